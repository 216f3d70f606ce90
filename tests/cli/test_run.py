#!/usr/bin/env python3
"""remat run and score on small models: sampling, stops, contexts, prompts, threads, budgets."""
import hashlib
import math
import os
import signal
import subprocess

from kit import *

LONG = model("long.gguf", layers=3, context=2048, heads=4, kv_heads=2, head_dim=12, dim=48, ff=100, rows=301)
GREEDY = ["--temp", "0", "--ignore-eos"]
BASE = ["-p", "the thing he an on"]


def tokens(*args, **how):
    r = toy(*args, "--json", **how)
    return ids(r) if r.code == 0 else r


def token_file(name, values):
    return write(name, " ".join(map(str, values)))


# --- S: sampling -------------------------------------------------------------------------------------------
greedy = tokens(*BASE, "-n", "32", *GREEDY)
check("greedy gives 32 tokens", isinstance(greedy, list) and len(greedy) == 32, greedy)
OFF = ["--top-k", "0", "--top-p", "1", "--min-p", "0", "--ignore-eos", "-n", "32"]
for t in ("1e-5", "1e-9", "1e-38", "1e-45", "1e-60", "-1", "-1e30", "0"):
    got = tokens(*BASE, *OFF, "--temp", t, "--seed", "7")
    check(f"S01 temperature {t} equals greedy", got == greedy, got)
HOT = [*BASE, "--ignore-eos", "-n", "32", "--temp", "2", "--seed", "42"]
off = tokens(*HOT, "--top-p", "1", "--min-p", "0", "--top-k", "0")
for k in ("-1", "-5", "300", "301", "1000000000", "2147483647", "-2147483648"):
    got = tokens(*HOT, "--top-p", "1", "--min-p", "0", "--top-k", k)
    check(f"S02 top-k {k} is off", got == off and len(off) == 32, got)
check("S02 top-k 299 is not broken", isinstance(tokens(*HOT, "--top-k", "299"), list))
for flags in (["--top-k", "1"], ["--top-p", "0"], ["--min-p", "1"], ["--top-k", "1", "--top-p", "0.8"],
              ["--top-k", "0", "--top-p", "0"], ["--top-k", "0", "--top-p", "1", "--min-p", "1"], ["--top-p", "1e-30", "--top-k", "0"]):
    got = tokens(*HOT, *flags)
    check(f"S02 {' '.join(flags)} equals greedy", got == greedy, got)
for n in (1, 2, 40, 255, 256, 257):
    got = tokens(*HOT, "--top-k", n, "--top-p", "0.9999999", "--min-p", "0")
    check(f"S02 top-k {n} gives 32 tokens", isinstance(got, list) and len(got) == 32, got)
check("S04 a seed gives the same tokens", len({str(tokens(*HOT)) for _ in range(3)}) == 1)
check("S04 another seed gives others", tokens(*HOT, "--seed", "43") != tokens(*HOT))
free = [tokens(*BASE, "--ignore-eos", "-n", "32", "--temp", "2") for _ in range(2)]
check("S04 no seed differs from run to run", free[0] != free[1] and len(free[0]) == 32, free)
for seed in ("0", "4294967296", "9223372036854775807", "-1", "9223372036854775808"):
    r, again = (toy(*BASE, "-n", "8", "--temp", "2", "--ignore-eos", "--seed", seed, "--json") for _ in range(2))
    same = seed == "-1" or ids(r) == ids(again)
    check(f"S04 seed {seed} is treated the same way twice", r.sound() and r.code in (0, 2) and r.code == again.code and same, (r, again))
r = toy(*BASE, "-n", "16", "--temp", "2", "--ignore-eos", "--json")
check("S04 the seed in the document gives the same text again", r.code == 0 and
      tokens(*BASE, "-n", "16", "--temp", "2", "--ignore-eos", "--seed", r.json["seed"]) == ids(r), r)
check("S05 a banned token does not come", greedy[0] not in (tokens(*BASE, "-n", "32", *GREEDY, "-l", f"{greedy[0]}-100") or []))
check("S05 a forced token comes", tokens(*BASE, "-n", "3", *GREEDY, "-l", "77+100") == [77] * 3)
check("S05 a huge bias is a number", tokens(*BASE, "-n", "3", *GREEDY, "-l", "5+1e30") == [5] * 3)
got = tokens(*BASE, "-n", "3", "--ignore-eos", "--temp", "1", "-l", "5+3e38", "-l", "5+3e38", "-l", "6+3e38")
check("S05 biases that add up to infinity", got == [5] * 3, got)
got = tokens(*BASE, "-n", "3", "--ignore-eos", "--temp", "1", *[x for i in range(300) for x in ("-l", f"{i}-3e38")] * 2)
check("S05 everything banned beyond measure still gives tokens", isinstance(got, list) and len(got) == 3, got)
many = [tokens(*BASE, "-n", "1", "--ignore-eos", "--temp", "1e6", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", s) for s in range(1, 31)]
check("S06 a large temperature gives different tokens", len({str(t) for t in many}) >= 26, many)
# What is drawn follows the probabilities: two tokens far above the others.
f = TMP / "rows"
r = toy(*BASE, "-n", "100", "--ignore-eos", "--temp", "1", "--seed", "11", "--top-k", "0", "--top-p", "1", "--min-p", "0",
        "-l", "100+500", "-l", "101+499", "--logits", f, "--json")
row = struct.unpack("<30000f", f.read_bytes()) if r.code == 0 else [0.0] * 30000
p = [1 / (1 + math.exp(row[i * 300 + 101] - 1 - row[i * 300 + 100])) for i in range(100)]
seen, want, spread = (ids(r) or []).count(100), sum(p), math.sqrt(sum(x * (1 - x) for x in p))
check("S06 draws follow the probabilities", r.code == 0 and abs(seen - want) < 4 * spread and set(ids(r)) <= {100, 101},
      f"{seen} of 100 times the better one, expected {want:.1f}")
wrong = []
for flags in (["--top-k", "2"], ["--top-k", "2", "--min-p", "0.05", "--top-p", "0.95"], ["--top-k", "0", "--top-p", "0.99"], ["--top-k", "0", "--min-p", "0.01"]):
    r = toy(*BASE, "-n", "100", "--ignore-eos", "--temp", "1", "--seed", "11", *flags, "-l", "100+500", "-l", "101+499", "--json")
    if r.code != 0 or abs(ids(r).count(100) - want) > 6 * spread:
        wrong.append((flags, ids(r).count(100), want))
check("S06 draws behind filters follow them too", not wrong, wrong)
for flags in (["--repeat-penalty", "1.3"], ["--frequency-penalty", "2"], ["--presence-penalty", "2"]):
    a = tokens(*BASE, "-n", "40", *GREEDY, *flags, "--repeat-last-n", "64")
    check(f"S03 {flags[0]} repeats itself", a == tokens(*BASE, "-n", "40", *GREEDY, *flags, "--repeat-last-n", "64") and len(a) == 40, a)
    check(f"S03 {flags[0]} with window 0 is off", tokens(*BASE, "-n", "32", *GREEDY, *flags, "--repeat-last-n", "0") == greedy)
    check(f"S03 {flags[0]} with window -1", len(tokens(*BASE, "-n", "32", *GREEDY, *flags, "--repeat-last-n", "-1")) == 32)

# --- X: stops and text -------------------------------------------------------------------------------------
# The toy writes bytes at random; biased to letters, it writes text that stops can be made from.
letters = [x for i in range(300) if not (3 + 97 <= i <= 3 + 122) for x in ("-l", f"{i}-1000")]
TEXT = [*BASE, "-n", "24", "--temp", "3", "--seed", "5", "--ignore-eos", *letters]
full = toy(*TEXT, "--json")
text = full.json["text"] if full.json else ""
plain = toy(*TEXT)
check("streamed text and the document's are equal", full.code == 0 and plain.out.decode() == text + "\n" and len(text) == 24, (full, plain))
wrong = []
for size in (1, 3, 8):
    for at in range(0, len(text) - size + 1, 2):
        stop = text[at:at + size]
        want = text[:text.index(stop)]
        r, s = toy(*TEXT, "--stop", stop, "--json"), toy(*TEXT, "--stop", stop)
        if not (r.code == 0 and r.json["text"] == want and r.json["finish_reason"] == "stop" and s.out.decode() == want + "\n"):
            wrong.append((stop, want, r, s))
check("X01 a stop on any offset", not wrong, wrong[:2])
wrong = []
for at in range(len(text) - 5):
    r = toy(*TEXT, "--stop", text[at:at + 5] + "\u00a7")
    if r.out.decode() != text + "\n":
        wrong.append((text[at:at + 5], r))
check("X02 what only begins like a stop is released", not wrong, wrong[:2])
part = text[10:14]
r = toy(*TEXT, "--stop", part, "--stop", part + text[14], "--json")
check("X02 two stops, one the start of the other", r.json and r.json["text"] == text[:text.index(part)], r)
r = toy(*TEXT, "--stop", text[-1] + "zz", "--json")
check("X02 a stop that begins in the last token", r.json and r.json["text"] == text and r.json["finish_reason"] == "length", r)
r = toy(*TEXT, *[x for i in range(16) for x in ("--stop", f"{i:x}" * 256)])
check("X04 16 stops of 256 bytes", r.out.decode() == text + "\n", r)
r = toy(*TEXT, "--stop", "</s>")
check("X04 a special token's text as stop", r.out.decode() == text + "\n", r)
# Bytes: the parts of one character are tokens of their own.
llama = [3 + b for b in "\U0001f999".encode()]
wrong = []
for n in range(1, 5):
    want = b"\xf0\x9f\xa6\x99"[:n] if n < 4 else "\U0001f999".encode()
    force = [x for i in range(300) if i not in llama[:n] for x in ("-l", f"{i}-1000")]
    r = toy(*BASE, "-n", "12", "--temp", "5", "--seed", "3", "--ignore-eos", *force, "--json")
    if r.json is None or not isinstance(r.json["text"], str):
        wrong.append(r)
check("X03 broken characters stay valid JSON", not wrong, wrong[:1])

# --- n, c, context -------------------------------------------------------------------------------------------
r = toy(*BASE, "-n", "0", "--json")
check("-n 0 gives nothing", r.code == 0 and ids(r) == [] and r.json["text"] == "" and r.json["finish_reason"] == "length", r)
r = toy(*BASE, "-n", "1", *GREEDY, "--json")
check("-n 1 gives one token", r.code == 0 and ids(r) == greedy[:1], r)
for n in ("-1", "-2"):
    r = toy(*BASE, "-n", n, *GREEDY, "--json")
    check(f"-n {n} goes on to the context's end", r.code == 0 and r.json["finish_reason"] == "context" and
          len(ids(r)) == 128 - r.json["prompt_tokens"] + 1, r)
r = toy(*BASE, "-n", "2147483647", *GREEDY, "--json", "--memory", "64M")
check("a huge -n ends at the context", r.code == 0 and r.json["finish_reason"] == "context", r)
C = 40
for n in (C - 2, C - 1, C, C + 1, C + 2, 10 * C):
    f = token_file(f"p{n}", [1] + [100 + i % 26 for i in range(n - 1)])
    for predict in (0, 1, 2, 16):
        r = toy("--tokens", f, "-c", C, "-n", predict, *GREEDY, "--json")
        if n > C or (n == C and predict > 1):
            right = r.refused(5) and str(n) in r.err and str(C) in r.err and r.json["error"]["code"] == "context"
        else:
            want = min(predict, C - n + 1)
            right = r.code == 0 and len(ids(r)) == want and r.json["prompt_tokens"] == n and \
                r.json["finish_reason"] == ("length" if want == predict else "context")
        check(f"O08 {n} tokens in a context of {C}, -n {predict}", right, r)
r = toy("-p", "the " * 500, "-c", C, "-n", "1")
check("O08 a long text in a small context", r.refused(5), r)
r = toy(*BASE, "-n", "4", "-c", "100000", *GREEDY, "--json")
check("-c beyond the model's context warns and works", r.code == 0 and ids(r) == greedy[:4] and r.err.startswith("remat: warning: ") and r.err.count("\n") == 1, r)
r = toy(*BASE, "-n", "150", "-c", "200", *GREEDY, "--json")
check("generating beyond the model's context works", r.code == 0 and len(ids(r)) == 150, r)
for c in ("16777217", "2147483647"):
    r = toy(*BASE, "-n", "4", "-c", c)
    check(f"-c {c} is refused", r.refused(2) and r.out == b"", r)
r = Run("plan", "-m", TOY, "-c", "16777216", *SMALL)
check("plan of the largest context", r.code in (0, 4) and r.sound(), r)

# --- prompts --------------------------------------------------------------------------------------------------
for what, data, code in (("junk", b"1 2 x 3", 1), ("a minus", b"1 -2", 1), ("an empty file", b"", 1), ("blanks", b" \n\t ", 1),
                         ("a huge id", b"1 99999999999999999999999", 1), ("2^32", b"1 4294967296", 1), ("2^32-1", b"1 4294967295", 1),
                         ("an id out of range", b"1 300", 1), ("a NUL", b"1 2\x003", 1), ("a NUL at the end", b"1 2\x00", 1), ("commas", b"1,2", 1),
                         ("a byte-order mark", b"\xef\xbb\xbf1 2", 1)):
    f = write("junk", data)
    for command in (["run", "--raw", "-n", "1"], ["score"], ["detokenize"]):
        r = Run(*command, "-m", TOY, "--tokens", f, *SMALL)
        check(f"--tokens with {what}: {command[0]}", r.refused(code) and r.out == b"", r)
r = toy("--tokens", write("t", b"  1\r\n\t5 \n 9"), "-n", "1", "--json")
check("--tokens with any blanks", r.code == 0 and r.json["prompt_tokens"] == 3, r)
want = ids(toy("-p", "hi there", "-n", "8", *GREEDY, "--json"))
for args, how in ((["-"], dict(stdin=b"hi there")), (["-f", "-"], dict(stdin=b"hi there")), ([], dict(stdin=b"hi there")),
                  (["-f", write("p.txt", "hi there")], {})):
    r = toy(*args, "-n", "8", *GREEDY, "--json", **how)
    check(f"the prompt by {args[:1] or 'a pipe'}", r.code == 0 and ids(r) == want, r)
r = toy("-", "-n", "1", stdin=b"")
check("an empty pipe as prompt", (r.code == 0 and r.sound()) or r.refused(2), r)
empty = write("none.gguf", b"")
r = toy("-", "-n", "1", "--json", stdin=b"\xff\xfe\x80\xc3\x28\xe2\x82\0x")
check("T09 odd bytes from a pipe", r.code == 0 and r.json["prompt_tokens"] >= 9, r)
for f, what in ((TMP, "directory"), (TMP / "absent", "absent")):
    refuses(f"-f with {what}", 1, "run", "-m", TOY, "--raw", "-f", f, says=what)
    refuses(f"--tokens with {what}", 1, "run", "-m", TOY, "--raw", "--tokens", f, says=what)
r = toy("-p", "x", "--system", "y", "-n", "1")
check("--system with --raw is refused", r.refused(2), r)
r = Run("run", "-m", TOY, "-p", "x", "--system", "y", "-n", "1", "--json", *SMALL)
check("a system message without chat marks in the model", r.code == 0 and r.json["prompt_tokens"] >= 3, r)
read, put = os.pipe()
p = subprocess.Popen([REMAT, "run", "-m", TOY, "--raw", "-n", "1", "-", *SMALL], stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
os.close(read)
time.sleep(2 if SANITIZED else 0.3)
p.send_signal(signal.SIGINT)
try:
    p.wait(10 if SANITIZED else 2)
    check("SIGINT while waiting for the prompt", p.returncode == 130, f"exit {p.returncode}")
except subprocess.TimeoutExpired:
    check("SIGINT while waiting for the prompt", False, "it goes on waiting")
    p.kill()
    p.wait()
os.close(put)
p.stdout.close()
p.stderr.close()

# --- one answer whatever the threads, chunks, cache, kernels --------------------------------------------------
PROMPT = write("prompt.txt", "the thing on an inn he had in the den then " * 14)


def hash_of(*args, count=12, where=LONG):
    f = TMP / "l.bin"
    f.unlink(missing_ok=True)
    r = toy("-f", PROMPT, "-n", count, *GREEDY, "--logits", f, "--json", *args, model=where)
    return hashlib.sha256(f.read_bytes()).hexdigest() if r.code == 0 and f.stat().st_size == 4 * 301 * count else r


want = hash_of()
check("the long toy runs", isinstance(want, str), want)
for args in [["-t", t, "-ub", u] for t in (1, 2, 3) for u in (1, 7, 64, 512)] + [["-t", 64]] + \
        [["--resident", n, "-t", t, "-ub", u] for n in (0, 64, 100) for t, u in ((1, 512), (3, 7))] + \
        [["--recompute", "full"], ["-c", "2048"], ["-c", "1025", "--resident", "64"]] + \
        [["--kernels", k, "-t", 2] for k in ("ref", "avx2", "avxvnni", "avx512", "amx")]:
    got = hash_of(*args)
    if "--kernels" in args and not isinstance(got, str) and got.code == 2:
        skip(f"kernels {args[1]}: this machine has none")
        continue
    check(f"same logits with {' '.join(map(str, args))}", got == want, got)
for k in ("ref", "avx2"):
    r = toy(*BASE, "-n", "1", "--json", env={"REMAT_KERNELS": k})
    check(f"REMAT_KERNELS={k}", r.code == 2 or (r.code == 0 and r.json["kernels"] == k), r)
r = toy(*BASE, "-n", "1", env={"REMAT_KERNELS": "bogus"})
check("REMAT_KERNELS=bogus is refused", r.refused(2), r)
r = toy(*BASE, "-n", "1", "--json", env={"REMAT_KERNELS": ""})
check("REMAT_KERNELS= is no choice", r.code == 0, r)
check("--kv f32 repeats itself", hash_of("--kv", "f32") == hash_of("--kv", "f32", "-t", 3, "-ub", 7, "--resident", 0))
check("-ctk and -ctv are --kv", hash_of("-ctk", "f32", "-ctv", "f32") == hash_of("--kv", "f32"))
for args in (["-ctk", "f32"], ["-ctv", "f32", "-ctk", "f16"]):
    r = toy(*BASE, *args)
    check(f"{' '.join(args)} is refused", r.refused(2), r)
for shape in (dict(dim=40, ff=72, heads=5, kv_heads=1, head_dim=20, rows=309), dict(dim=36, ff=100, heads=3, kv_heads=3, head_dim=10, rows=301),
              dict(dim=33, ff=1, heads=1, kv_heads=1, head_dim=2, rows=300)):
    m = model("odd.gguf", layers=2, context=1024, **shape)
    outs = set()
    for args in (["-t", 1, "--kernels", "ref"], ["-t", 3, "-ub", 1, "--resident", 0], ["-t", 2, "-ub", 64, "--resident", 64], ["-ub", 3]):
        f = TMP / "odd.bin"
        r = toy("-f", PROMPT, "-n", 10, *GREEDY, "--logits", f, *args, model=m)
        outs.add(hashlib.sha256(f.read_bytes()).hexdigest() if r.code == 0 else repr(r))
    check(f"odd shapes give one answer: {shape}", len(outs) == 1 and "exit" not in str(outs), outs)
# Rows of the embedding that no token names (padding to a round number) are legal.
short = model("short.gguf", rows=320, words=300)
r = toy(*BASE, "-n", "8", *GREEDY, "-l", "310+1000", "--json", model=short)
check("a token that the tokenizer does not name is generated without text", r.code == 0 and ids(r) == [310] * 8 and r.json["text"] == "", r)
r = toy("--tokens", token_file("pad", [1, 310, 5]), "-n", "2", model=short)
check("such a token in a prompt", r.sound() and r.code == 0, r)
r = toy(*BASE, "-n", "20", "--ignore-eos", "--temp", "9", "--seed", "4", "--top-k", "0", "--top-p", "1", "--min-p", "0", model=short)
check("such tokens by chance", r.sound() and r.code == 0, r)

# --- score ------------------------------------------------------------------------------------------------------
f = TMP / "rows"
r = toy("-f", PROMPT, "-n", "9", *GREEDY, "--logits", f, "--json", model=LONG)
prompt = Run("tokenize", "-m", LONG, "-f", PROMPT, "--json", *SMALL).json["tokens"]
row = struct.unpack(f"<{9 * 301}f", f.read_bytes())
for args in ([], ["-ub", 1], ["-ub", 3, "-t", 2], ["-ub", 17, "-t", 3], ["--kernels", "ref"]):
    s = Run("score", "-m", LONG, "--tokens", token_file("s", prompt + ids(r)), "--top", "3", "--json", *args, *SMALL)
    worst = math.inf
    if s.json and len(s.json["logprobs"]) == len(prompt) + 9 and s.json["logprobs"][0] is None:
        worst = 0
        for i in range(9):
            one = row[i * 301:i * 301 + 301]
            most = max(one)
            lse = math.log(sum(math.exp(x - most) for x in one)) + most
            worst = max(worst, abs(s.json["logprobs"][len(prompt) + i] - (one[ids(r)[i]] - lse)),
                        abs(s.json["top"][len(prompt) + i][0][1] - (max(one) - lse)))
    check(f"score equals run's logits {' '.join(map(str, args))}", worst < 1e-4, f"{worst} {s}")
s = Run("score", "-m", TOY, "--tokens", token_file("one", [5]), "--json", "--top", "2", *SMALL)
check("score of one token", s.code == 0 and s.json["logprobs"] == [None] and s.json["top"] == [None], s)
s = Run("score", "-m", TOY, "-p", "the", "--json", "--top", "64", *SMALL)
check("score --top 64", s.code == 0 and all(len(t) == 64 for t in s.json["top"][1:]), s)
refuses("score --top 65", 2, "score", "-m", TOY, "-p", "the", "--top", "65")
refuses("score with -c too small", 5, "score", "-m", TOY, "--tokens", token_file("ten", [1] + [100] * 9), "-c", "9")
refuses("score of nothing", 5, "score", "-m", TOY, "-p", "", "--no-bos")

# --- budgets ------------------------------------------------------------------------------------------------------
r = toy(*BASE, "-n", "4", "--memory", "1", "--json")
least = (r.json or {}).get("error", {}).get("minimum_bytes", 0)
check("the least budget is named", r.refused(4) and least > MIB and r.json["error"]["code"] == "budget", r)
if not SANITIZED:
    for args in (BASE + ["-n", "4"], ["-f", PROMPT, "-n", "9", "-c", "2000"], ["-f", PROMPT, "-n", "9", "-t", 8, "--kv", "f32", "-ub", "512"]):
        m = LONG if "-f" in args else TOY
        r = toy(*args, *GREEDY, "--memory", "1K", "--json", model=m)
        least = (r.json or {}).get("error", {}).get("minimum_bytes", 0)
        r = toy(*args, *GREEDY, "--memory", least, "--json", model=m)
        check(f"the named budget works: {' '.join(map(str, args[:2]))[-30:]}", r.code == 0 and r.json["memory"]["peak_bytes"] <= least, f"{least}: {r}")
        r = toy(*args, *GREEDY, "--memory", least - 1024 * 1024, "--json", model=m)
        check("a MiB less does not, or keeps to it", r.refused(4) or (r.code == 0 and r.json["memory"]["peak_bytes"] <= least - MIB), f"{least}: {r}")
        p = Run("plan", "-m", m, *(["-c", "2000"] if "2000" in args else []), "--json", "--memory", "1K")
        check("plan of too little is exit 4 with a number", p.refused(4) and p.json["error"].get("minimum_bytes", 0) > 0, p)
    # In pieces: what this script takes would count as the program's (see kit.Run).
    text, f = TMP / "big.txt", TMP / "big.ids"
    with open(text, "wb") as x, open(f, "wb") as y:
        for _ in range(12 * 16):
            x.write(b"x" * 65536)
            y.write(b"5 " * 65536)
    for command, m in (["tokenize"], LONG), (["run", "--raw", "-n", "1"], LONG), (["score"], LONG):
        for size in (40, 64, 200, 500):
            r = Run(*command, "-m", m, "-f", text, "--memory", f"{size}M")
            r.out = r.out[:200]
            check(f"{command[0]} of 12 MiB of text in {size} MiB", r.sound() and r.code in (0, 4, 5) and within(r, size * MIB),
                  f"peak {r.peak / MIB:.1f} MiB; {r}")
    for size in (40, 64):
        for command in (["run", "--raw", "-n", "1"], ["score"], ["detokenize"]):
            r = Run(*command, "-m", TOY, "--tokens", f, "--memory", f"{size}M")
            check(f"{command[0]} of 24 MiB of ids in {size} MiB", r.sound() and r.code in (0, 4, 5) and within(r, size * MIB),
                  f"peak {r.peak / MIB:.1f} MiB; {r}")
    with open(TMP / "hole", "wb") as hole:
        hole.truncate(300 * MIB)
    r = toy("-f", TMP / "hole", "-n", "1", "--memory", "200M")
    check("a prompt of 300 MiB in 200 MiB", r.sound() and r.code in (4, 5) and len(r.lines) == 1 and within(r, 200 * MIB) and quick(r, 3), f"peak {r.peak / MIB:.1f}; {r}")
    with open(TMP / "hole", "rb") as hole:
        r = Run("run", "-m", TOY, "--raw", "-n", "1", "-", "--memory", "64M", source=hole)
    check("300 MiB on standard input in 64 MiB", r.sound() and r.code in (4, 5) and len(r.lines) == 1 and within(r, 64 * MIB), f"peak {r.peak / MIB:.1f}; {r}")
    for command in (["tokenize", "-p", "hi"], ["info"], ["detokenize", "--tokens", token_file("d", [5])]):
        r = Run(command[0], "-m", TOY, *command[1:], "--memory", "1M", "--json")
        check(f"{command[0]} in 1 MiB is refused with the least that works", r.refused(4) and r.json["error"].get("minimum_bytes", 0) > 0, r)
    r = toy(*BASE, "-c", "16000000", "-n", "-1", "--memory", "40M", "--json")
    check("a huge context in 40 MiB", r.refused(4) and within(r, 40 * MIB), f"peak {r.peak / MIB:.1f}; {r}")
    r = toy(*BASE, "-c", "16000000", "-n", "8", *GREEDY, "--json")
    check("a huge context in auto", r.code in (0, 4) and r.sound(), r)

# A model that shrinks or changes while it is read.
if not SANITIZED:
    grow = model("grow.gguf", dim=256, ff=512, heads=8, kv_heads=8, layers=1, size=0.02)
    whole = open(grow, "rb").read()
    codes = set()
    for wait in (0.0, 0.002, 0.004, 0.006, 0.01, 0.02):
        p = subprocess.Popen([REMAT, "run", "-m", grow, "--raw", "-p", "the", "-n", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(wait)
        os.truncate(grow, len(whole) // 3)
        err = p.stderr.read().decode()
        p.stderr.close()
        codes.add((p.wait(), "bug" in err))
        with open(grow, "wb") as f:
            f.write(whole)
    check("a model that shrinks while it is read", all(c in (0, 1, 3) and not bug for c, bug in codes), codes)
done()
