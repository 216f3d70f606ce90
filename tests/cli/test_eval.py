#!/usr/bin/env python3
"""remat eval and score --choices on small models: windows, references, damage, needles, refusals."""
import math
import resource

from kit import *

M = model("eval.gguf", dim=32, ff=64, heads=4, kv_heads=2, layers=3, context=600, size=0.6)
VOCABULARY = 300
IDS = [3 + (i * i * 31 + i * 17) % 290 for i in range(330)]
LIST = write("ids", " ".join(map(str, IDS)))
WINDOW = 64
BASE = ["eval", "-m", M, "--tokens", LIST, "-c", WINDOW]


def evaluate(*args, m=M):
    return Run("eval", "-m", m, *args, "--json", *([] if "--memory" in args else SMALL))


def score(tokens, m=M):
    r = Run("score", "-m", m, "--tokens", write("s", " ".join(map(str, tokens))), "--json", *SMALL)
    return r.json["logprobs"]


def by_hand(ids, window, stride=0, chunks=1 << 30):
    """The windows as llama.cpp cuts them, from `remat score`. BOS is 1."""
    first = window - stride if stride else window // 2 + 1
    nll = []
    for at in list(range(0, len(ids) - window + 1, stride or window))[:chunks]:
        nll += [-x for x in score([1] + ids[at + 1:at + window])[first:]]
    mean = sum(nll) / len(nll)
    error = math.sqrt(max(0, sum(x * x for x in nll) / len(nll) - mean * mean) / (len(nll) - 1)) if len(nll) > 1 else 0
    return math.exp(mean), math.exp(mean) * error, len(nll)


# --- windows -------------------------------------------------------------------------------------------
for name, args, right in (("windows", [], by_hand(IDS, WINDOW)), ("--chunks", ["--chunks", 2], by_hand(IDS, WINDOW, chunks=2)),
                          ("an odd window", ["-c", 33], by_hand(IDS, 33)), ("the smallest window", ["-c", 3], by_hand(IDS, 3)),
                          ("a window of the whole text", ["-c", 330], by_hand(IDS, 330)),
                          ("--ppl-stride", ["--ppl-stride", 20], by_hand(IDS, WINDOW, 20))):
    r = Run(*BASE, *args, "--json", *SMALL)
    j = r.json or {}
    check(name, r.code == 0 and abs(j["perplexity"] / right[0] - 1) < 1e-6 and abs(j["uncertainty"] - right[1]) < 1e-4 * right[1] + 1e-6
          and j["tokens_scored"] == right[2] and abs(j["nll"] - math.log(right[0])) < 1e-6, f"{right} {r}")
    check(f"{name}: each in JSON", len(j["nll_by_window"]) == j["windows"] and abs(sum(j["nll_by_window"]) / j["windows"] - j["nll"]) < 1e-9, r)
whole = Run(*BASE, "--json", *SMALL).json
check("what JSON has", whole["window"] == WINDOW and whole["windows"] == 5 and whole["text_tokens"] == 330 and
      {"memory", "cache", "kernels", "threads"} <= set(whole), whole)
r = Run(*BASE, *SMALL)
check("for people", r.code == 0 and r.err == "" and r.out.decode().startswith(f"perplexity {whole['perplexity']:.4f} \u00b1 "), r)
text = write("text", "the thing he an on in the an " * 40)
tokens = Run("tokenize", "-m", M, "-f", text, "--no-special", "--json", *SMALL).json["tokens"]
same = [evaluate(*a, "-c", 40)  for a in (["--ppl", text], ["-f", text], ["--perplexity", text], ["--tokens", write("t", " ".join(map(str, tokens)))])]
check("--ppl, -f and --tokens", len({r.json["perplexity"] for r in same}) == 1, same)
r = Run("eval", "-m", M, "--ppl", "-", "-c", 40, "--json", *SMALL, stdin=open(text, "rb").read())
check("--ppl - is standard input", r.json["perplexity"] == same[0].json["perplexity"], r)

# --- one answer ----------------------------------------------------------------------------------------
reference = str(TMP / "reference")
r = Run(*BASE, "--save-base", reference, "--json", *SMALL)
check("--save-base changes nothing", r.code == 0 and r.json["perplexity"] == whole["perplexity"], r)
least = Run(*BASE, "--memory", "1K", "--json").json["error"]["minimum_bytes"] if not SANITIZED else 1 << 28
SETTINGS = ([], ["-t", 1], ["-t", 3, "-ub", 5], ["--kernels", "ref"], ["--weights", "stream"], ["--step", 1, "--resident", 0, "--cold", "drop"],
            ["--step", 20, "--recompute", "full"], ["--step", 63], ["--step", 1000], ["--step", 7, "--cold", "spill", "--resident", 0],
            ["--memory", least])
for args in SETTINGS:
    r = evaluate("--base", reference, *args)
    d = (r.json or {}).get("divergence", {})
    check(f"the same bits: {' '.join(map(str, args))}", r.code == 0 and d["same_bits"] == 155 and d["kld"] == {"value": 0, "error": 0} and d["max"] == 0
          and d["same_top"]["value"] == 1 and r.json["perplexity"] == whole["perplexity"] == d["base_perplexity"], r)
    check("and within the budget", "--memory" not in args or within(r, least), r)
r = evaluate("--base", reference, "--chunks", 2)
check("--base with fewer windows", r.json["divergence"]["same_bits"] == 62 and r.json["windows"] == 2, r)

# --- divergence ----------------------------------------------------------------------------------------
HEAD = "<8s6I3Q"


def read(path):
    data = pathlib.Path(path).read_bytes()
    magic, version, vocabulary, window, stride, first, windows, count, _, _ = struct.unpack_from(HEAD, data)
    at = 56 + (count * 4 + 7) // 8 * 8
    rows = windows * (window - first)
    right = (magic == b"rematlp\0" and version == 1 and count == (windows - 1) * stride + window and len(data) == at + rows * (8 + 4 * vocabulary)
             and list(struct.unpack_from(f"<{count}I", data, 56)) == IDS[:count])
    return right, [struct.unpack_from(f"<{vocabulary}f", data, at + i * (8 + 4 * vocabulary) + 8) for i in range(rows)]


other = str(TMP / "other")
Run(*BASE, "--save-base", other, "--kv", "f32", *SMALL)
(good, p), (_, q) = read(reference), read(other)
check("the file is as documented", good and len(p) == 155)
check("its rows are probabilities", all(abs(sum(map(math.exp, row)) - 1) < 1e-5 for row in p))
kld = sorted(sum(math.exp(a) * (a - b) for a, b in zip(*rows)) for rows in zip(p, q))
mean = sum(kld) / 155
tokens = [IDS[w * WINDOW + i] for w in range(5) for i in range(WINDOW // 2 + 1, WINDOW)]
ratio = [a[t] - b[t] for a, b, t in zip(p, q, tokens)]
change = [math.exp(b[t]) - math.exp(a[t]) for a, b, t in zip(p, q, tokens)]
r = evaluate("--base", reference, "--kv", "f32")
d = r.json["divergence"]
near = lambda x, y: abs(x - y) <= 1e-6 * abs(y) + 1e-12
check("divergence by hand", near(d["kld"]["value"], mean) and near(d["max"], kld[-1]) and near(d["median"], kld[77]) and mean > 0, (d, mean))
error = math.sqrt((sum(x * x for x in kld) / 155 - mean * mean) / 154)
check("its error", abs(d["kld"]["error"] - error) < 1e-3 * error, (d, error))
check("ln of the ratio", near(d["ln_ppl_ratio"]["value"], sum(ratio) / 155) and
      near(math.log(r.json["perplexity"] / d["base_perplexity"]), d["ln_ppl_ratio"]["value"]), (d, sum(ratio) / 155))
check("change of p", near(d["change_of_p"]["value"], sum(change) / 155) and near(d["change_of_p_rms"], math.sqrt(sum(x * x for x in change) / 155)), d)
check("same best token", near(d["same_top"]["value"], sum(a.index(max(a)) == b.index(max(b)) for a, b in zip(p, q)) / 155), d)
check("other bits", d["same_bits"] < 155 and d["p99.9"] <= d["max"] and d["p90"] <= d["p95"] <= d["p99"], d)
r = Run("eval", "-m", M, "--base", reference, "--kv", "f32", *SMALL)
check("divergence for people", r.code == 0 and "KL divergence" in r.out.decode() and "of 155 rows" in r.out.decode(), r)

# --- damage --------------------------------------------------------------------------------------------
whole_file = pathlib.Path(reference).read_bytes()


def damaged(name, data, says=""):
    refuses(f"a reference that is damaged: {name}", 1, "eval", "-m", M, "--base", write("damaged", data), says=says)


def changed(at, by=1):
    return whole_file[:at] + bytes([whole_file[at] ^ by]) + whole_file[at + 1:]


damaged("empty", b"", "no file of --save-base")
damaged("55 bytes", whole_file[:55], "no file of --save-base")
damaged("another file", b"x" * 5000, "no file of --save-base")
damaged("the header alone", whole_file[:56], "cut off")
damaged("a byte is missing", whole_file[:-1], "cut off")
damaged("a byte more", whole_file + b"x", "longer")
damaged("a later version", changed(8, 2), "version 3")
for at in (12, 16, 20, 24, 28, 32, 40, 48):
    damaged(f"byte {at}", changed(at), "header")
damaged("a token", changed(60), "tokens")
damaged("the first row", changed(56 + 4 * 320 + 8 + 4 * 5), "row")
damaged("the last row", changed(len(whole_file) - 3), "row")
damaged("a hash", changed(56 + 4 * 320 + 2), "row")
refuses("--base of no file", 1, "eval", "-m", M, "--base", TMP / "none")
refuses("--base of a directory", 1, "eval", "-m", M, "--base", TMP)
wide = model("wide.gguf", rows=301, context=600)
refuses("--base of another vocabulary", 1, "eval", "-m", wide, "--base", reference, says="vocabulary of 300")
refuses("--base and a text", 2, *BASE, "--base", reference, says="has the text")
refuses("--base and another -c", 2, "eval", "-m", M, "--base", reference, "-c", 65, says="leave out -c")
refuses("--base and --save-base", 2, "eval", "-m", M, "--base", reference, "--save-base", reference)
refuses("--save-base nowhere", 1, *BASE, "--save-base", TMP / "no" / "file", says="not saved")
refuses("--save-base onto a directory", 1, *BASE, "--save-base", TMP)
before = set(os.listdir(TMP))


def full_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))


r = Run(*BASE, "--save-base", TMP / "full", *SMALL, before=full_disk)
check("--save-base on a full disk", r.refused(1) and set(os.listdir(TMP)) <= before | {"ids", "s"}, r)
check("an old reference is still there after all this", pathlib.Path(reference).read_bytes() == whole_file)

# --- refusals ------------------------------------------------------------------------------------------
refuses("a text shorter than a window", 5, "eval", "-m", M, "--ppl", write("short", "the thing"), says="less than a window of 512")
refuses("an empty text", 2, "eval", "-m", M, "--ppl", write("empty", ""), says="empty")
refuses("an empty list", 1, "eval", "-m", M, "--tokens", write("empty", ""))
refuses("a window of 1", 2, *BASE[:-1], 1, says="predicts nothing")
refuses("a window of 2", 2, *BASE[:-1], 2, says="predicts nothing")
refuses("a window of 10^18", 2, *BASE[:-1], 10 ** 18, says="-c")
refuses("a window of 10^9", 5, *BASE[:-1], 10 ** 9, says="less than a window")
refuses("a negative window", 2, *BASE[:-1], "-5")
refuses("a token outside the vocabulary", 1, "eval", "-m", M, "--tokens", write("out", "1 2 3 4 300 " * 5), "-c", 8, says="300 at place 4")
refuses("--ppl-stride of a window", 2, *BASE, "--ppl-stride", WINDOW, says="--ppl-stride")
refuses("two texts", 2, *BASE, "--ppl", text, says="--ppl")
refuses("no text", 2, "eval", "-m", M, stdin=b"", says="empty")
refuses("--ppl of no file", 1, "eval", "-m", M, "--ppl", TMP / "none")
refuses("--needle and --ppl", 2, "eval", "-m", M, "--needle", "--ppl", text)
refuses("--needle and --tokens", 2, *BASE[:5], "--needle", says="--needle")
refuses("--depths without --needle", 2, *BASE, "--depths", "50", says="--needle")
refuses("--depths 101", 2, "eval", "-m", M, "--needle", "--raw", "--depths", "0,101", "--lengths", "300", says="101")
for bad in ("-1", "", ",", "5,", ",5", "5,,6", "a", "5;6", "1" * 40, "99999999999", ",".join("5" * 17)):
    refuses(f"--lengths {bad!r}", 2, "eval", "-m", M, "--needle", "--lengths", bad, says="--lengths")
refuses("a length beyond the context", 5, "eval", "-m", M, "--needle", "--raw", "--lengths", "300,601", says="601 tokens")
refuses("a length beyond -c", 5, "eval", "-m", M, "--needle", "--raw", "--lengths", "300", "-c", 310, says="310")
refuses("a length of nothing but the question", 2, "eval", "-m", M, "--needle", "--raw", "--lengths", "10", says="--lengths: 10")
refuses("too many prompts", 2, "eval", "-m", M, "--needle", "--raw", "--lengths", "300", "--repeat", 10 ** 6, says="--repeat")
refuses("a haystack of nothing", 2, "eval", "-m", M, "--needle", "-f", write("empty", ""), says="empty")
refuses("a haystack of one long word", 2, "eval", "-m", M, "--needle", "--raw", "--lengths", "500", "-f", write("one", "\0" * 500))

# --- needles -------------------------------------------------------------------------------------------
# Token by token of bytes: the question alone takes hundreds.
LONG = model("long.gguf", dim=32, ff=64, heads=4, kv_heads=2, layers=2, context=2000, size=0.6)
NEEDLE = ["--needle", "--raw", "--lengths", "900,1200", "--depths", "0,50,100", "--seed", 3]
r = evaluate(*NEEDLE, m=LONG)
j = r.json or {}
check("a table of needles", r.code == 0 and j["lengths"] == [900, 1200] and j["depths"] == [0, 50, 100] and len(j["prompts"]) == 6
      and all(len(row) == 2 for row in j["found"] + j["logprob"]) and len(j["found"]) == 3, r)
check("prompts are of their lengths", all(x["length"] - 420 < x["tokens"] <= x["length"] for x in j["prompts"]), j["prompts"])
check("one fact at every depth", len({x["expected"] for x in j["prompts"] if x["length"] == 900}) == 1 and
      len({x["expected"] for x in j["prompts"]}) == 2, j["prompts"])
check("what the right answer's probability is", all(x < 0 for row in j["logprob"] for x in row), j["logprob"])
for args in (["--weights", "stream", "-t", 1], ["--cold", "drop", "--resident", 64], ["--recompute", "full"], ["-ub", 7]):
    s = evaluate(*NEEDLE, *args, m=LONG)
    check(f"the same needles: {' '.join(map(str, args))}", s.code == 0 and s.json["prompts"] == j["prompts"], s)
s = evaluate(*NEEDLE[:-1], 4, m=LONG)
check("another seed", s.json["prompts"] != j["prompts"], s)
s = evaluate(*NEEDLE, "--repeat", 2, m=LONG)
check("--repeat: other facts beside the same ones", len(s.json["prompts"]) == 12 and [x["expected"] for x in s.json["prompts"][::2]] ==
      [x["expected"] for x in j["prompts"]] and len({x["expected"] for x in s.json["prompts"]}) == 4, s)
s = evaluate(*NEEDLE, "-f", write("hay", "He said that it was so. And on it went, line by line!\n\nThen an end? No. " * 3), m=LONG)
check("a haystack of a file", s.code == 0 and s.json["prompts"] != j["prompts"] and [x["expected"] for x in s.json["prompts"]] == [x["expected"] for x in j["prompts"]], s)
s = evaluate(*[a for a in NEEDLE if a != "--raw"], "--chat-template", "chatml", m=LONG)
check("through a chat template", s.code == 0 and s.json["prompts"] != j["prompts"], s)
s = Run("eval", "-m", LONG, *NEEDLE, *SMALL)
check("needles for people", s.code == 0 and "of 6 answers were right" in s.out.decode() and s.err == "", s)
SM = real_model()
if SM and not SANITIZED:
    s = evaluate("--needle", "--lengths", "300", "--depths", "50", m=SM)
    check("a real model finds it", s.json["accuracy"] == 1 and s.json["logprob"][0][0] > -1, s)
else:
    skip("a real model looking for a needle: no models/, or a sanitizer")

# --- pictures ------------------------------------------------------------------------------------------
refuses("--plot of no picture", 2, *BASE, "--plot", TMP / "x.txt", says=".svg")
if shutil.which("gnuplot"):
    r = Run(*BASE, "--plot", TMP / "ppl.svg", "--json", *SMALL)
    rows = [s.split("\t") for s in (TMP / "ppl.tsv").read_text().splitlines()]
    check("a picture of perplexity", r.code == 0 and b"<svg" in (TMP / "ppl.svg").read_bytes() and r.json["windows"] == 5, r)
    alone, together = ([float(s[5]) for s in rows if s[:2] == ["Along the text", name]] for name in ("window", "all so far"))
    check("its numbers", len(alone) == 5 and all(abs(x - math.exp(y)) < 1e-6 * x for x, y in zip(alone, r.json["nll_by_window"])) and
          abs(together[-1] / r.json["perplexity"] - 1) < 1e-6, rows)
    r = evaluate("--base", reference, "--plot", TMP / "base.png")
    check("a picture with a reference", r.code == 0 and (TMP / "base.png").read_bytes()[:4] == b"\x89PNG" and "KL divergence" in (TMP / "base.tsv").read_text(), r)
    r = evaluate(*NEEDLE, "--plot", TMP / "needle.svg", m=LONG)
    rows = [s.split("\t") for s in (TMP / "needle.tsv").read_text().splitlines()]
    check("a picture of needles", r.code == 0 and b"<svg" in (TMP / "needle.svg").read_bytes(), r)
    deep = {(s[3], s[5]): float(s[-1]) for s in rows if "ln p" in s[1]}
    check("each in its place", all(abs(deep[str(l), str(d)] - r.json["logprob"][i][k]) < 1e-6 for i, d in enumerate((0, 50, 100)) for k, l in enumerate((900, 1200))), rows)
else:
    skip("pictures: no gnuplot")

# --- choices -------------------------------------------------------------------------------------------
PROMPT = "the thing he an on"


def choices(*args, m=M, **how):
    return Run("score", "-m", m, *args, "--json", *([] if "--memory" in args else SMALL), **how)


def words(text, *args):
    return Run("tokenize", "-m", M, "-p", text, "--json", *args, *SMALL).json["tokens"]


GIVEN = [" the", "in", " an on", "x", "", " the", " he an the he"]
r = choices("-p", PROMPT, "--choices", "|".join(GIVEN))
given = [c for c in GIVEN if c]
j = r.json or {}
check("choices", r.code == 0 and sorted(c["text"] for c in j["choices"]) == sorted(given) and j["best"] == j["choices"][0]["text"]
      and all(given[c["index"]] == c["text"] for c in j["choices"]), r)
for c in j.get("choices", []):
    all_ = score(words(PROMPT + c["text"]))
    right = sum(all_[j["prompt_tokens"]:])
    check(f"log-probability of {c['text']!r}", len(all_) == j["prompt_tokens"] + c["tokens"] and abs(c["logprob"] - right) < 1e-5 and
          abs(c["mean_logprob"] - right / c["tokens"]) < 1e-5, f"{right} {c}")
total = sum(math.exp(c["logprob"]) for c in j["choices"])
check("they are sorted, and their probabilities add up", [c["logprob"] for c in j["choices"]] == sorted((c["logprob"] for c in j["choices"]), reverse=True)
      and abs(sum(c["probability"] for c in j["choices"]) - 1) < 1e-6 and all(abs(c["probability"] - math.exp(c["logprob"]) / total) < 1e-6 for c in j["choices"]), j)
for args in (["--choices-file", write("list", "\n".join(GIVEN))], ["--choices-file", write("list2", "\r\n".join(GIVEN) + "\r\n"), "-t", 1],
             ["--choices", "|".join(GIVEN), "--weights", "stream", "-ub", 2], ["--choices", "|".join(GIVEN), "--cold", "drop", "--recompute", "full"]):
    s = choices("-p", PROMPT, *args)
    check(f"the same choices: {' '.join(map(str, args))[:30]}", s.code == 0 and s.json["choices"] == j["choices"], s)
r = Run("score", "-m", M, "-p", PROMPT, "--choices", "in|on", *SMALL)
check("choices for people", r.code == 0 and len(r.out.decode().splitlines()) == 3 and r.err == "", r)
r = choices("-p", PROMPT, "--choices", "x")
check("one choice has all", r.json["choices"][0]["probability"] == 1, r)
refuses("no choices", 2, "score", "-m", M, "-p", "the", "--choices", "||", says="none")
refuses("an empty list of choices", 2, "score", "-m", M, "-p", "the", "--choices-file", write("empty", ""), says="none")
refuses("choices behind nothing", 2, "score", "-m", M, "-p", "", "--no-bos", "--choices", "a|b", says="prompt")
refuses("choices beyond -c", 5, "score", "-m", M, "-p", PROMPT, "--choices", "a|b", "-c", 3)
refuses("--choices twice", 2, "score", "-m", M, "-p", "x", "--choices", "a|b", "--choices-file", text)
refuses("--choices and --top", 2, "score", "-m", M, "-p", "x", "--choices", "a|b", "--top", 3)
refuses("--choices and --tokens", 2, "score", "-m", M, "--tokens", LIST, "--choices", "a|b")

# --- no keys and values are kept -----------------------------------------------------------------------
# With streamed weights a model of four times the layers takes what its list of tensors, its norms and
# its table of pages take: some kilobytes a layer.
if not SANITIZED:
    ids = write("many", " ".join(str(3 + i * 7 % 290) for i in range(3000)))
    one, four = ((model(f"layers{n}.gguf", dim=64, ff=128, heads=4, kv_heads=2, layers=n, context=4096), n) for n in (4, 16))
    for command in (["score", "--tokens", ids], ["eval", "--tokens", ids, "-c", 3000], ["score", "-p", "the an " * 300, "--choices", "x|y"]):
        few, many = (Run(command[0], "-m", m, *command[1:], "--weights", "stream", "--json").json["memory"] for m, _ in (one, four))
        parts, others = few["ledger_peak"], many["ledger_peak"]
        check(f"{command[0]}: nothing grows with the layers", all(parts[x] == others[x] for x in ("weight_stream", "kv_stage", "rows", "work", "logits", "io")) and
              0 <= others["kv"] - parts["kv"] <= 12 * 256 and 0 <= others["weights"] - parts["weights"] <= 12 * 1024, f"{parts} {others}")
        # The choices' one row of logits reads too few weights to fill the ring of a model this small.
        check(f"{command[0]}: nor does the peak", all(x["peak_bytes"] <= x["predicted_peak_bytes"] for x in (few, many)) and
              ("--choices" in command or abs(many["peak_bytes"] - few["peak_bytes"]) < MIB), f"{few['peak_bytes']} {many['peak_bytes']}")

done()
