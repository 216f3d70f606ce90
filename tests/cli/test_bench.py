#!/usr/bin/env python3
"""remat bench: rows, the same logits in all of them, refused budgets, lists, JSON and CSV, pictures."""
import csv
import io

from kit import *

LONG = model("long.gguf", layers=3, context=1024, heads=4, kv_heads=2, head_dim=12, dim=48, ff=100, rows=301)
FEW = ["--prompt-tokens", "300", "-n", "4", "-r", "1"]
GNUPLOT = shutil.which("gnuplot") is not None
tmpdir = TMP / "scratch"
tmpdir.mkdir()
ENV = {"TMPDIR": str(tmpdir)}


def bench(*args, model=LONG, **how):
    return Run("bench", "-m", model, *args, env={**ENV, **how.pop("env", {})}, **how)


def rows(r):
    return r.json["rows"] if r.code == 0 and r.json else []


# --- rows ------------------------------------------------------------------------------------------------
r = bench(*FEW, "--budgets", "max,min", "--recompute", "auto,off,full,block,layer,selective", "--json")
got = rows(r)
check("a row for each budget and mode", [(x["budget"], x["mode"]) for x in got] == [
    (b, m) for b in ("max", "min") for m in ("auto", "off", "full", "drop block", "drop layer", "drop selective")], r)
check("all are done", [x["status"] for x in got] == ["ok"] * 12, got)
check("and have the same logits", len({x["logits_hash"] for x in got}) == 1 and all(x["same_logits"] is True for x in got), got)
check("16 digits", all(len(x["logits_hash"]) == 16 and int(x["logits_hash"], 16) >= 0 for x in got))
check("peaks under budgets", SANITIZED or all(0 < x["peak_bytes"] <= x["budget_bytes"] for x in got), got)
check("everything stays in max", all(x["spill_read_bytes"] == x["weight_read_bytes"] == 0 for x in got[:2]), got[:2])
check("nothing is computed again with off", all(x["recomputed_tokens"] == 0 for x in got if x["mode"] == "off"), got)
check("something is with full", all(x["recomputed_tokens"] > 0 for x in got if x["mode"] == "full"), got)
check("speeds, measured and planned", all(x[k] > 0 for x in got for k in (
    "pp_avg_ts", "tg_avg_ts", "pp_planned_ts", "tg_planned_ts")), got[:1])
check("one sample each", all(len(x["pp_samples_ts"]) == len(x["tg_samples_ts"]) == x["runs"] == 1 for x in got), got[:1])
check("names of the field", got and got[0]["test"] == "pp300 tg4 @ d300" and got[0]["n_prompt"] == 300 and got[0]["n_gen"] == 4 and
      got[0]["n_depth"] == 300 and got[0]["type_k"] == "f16" and got[0]["n_threads"] >= 1, got[:1])
d = r.json or {}
check("machine and model", d and d["model"]["architecture"] == "llama" and d["model"]["parameters"] > 0 and d["machine"]["cpu"] and
      d["machine"]["threads"] >= 1 and d["repetitions"] == 1, list(d))
r = bench("--prompt-tokens", "20,70", "-n", "2,3", "-r", "2", "--kv", "f16,f32", "-t", "1,2", "--budgets", "max", "--json")
got = rows(r)
check("products of lists", len(got) == 16 and len({(x["n_prompt"], x["n_gen"], x["type_k"], x["n_threads"]) for x in got}) == 16, r)
check("the same work has the same logits, whatever the threads", all(x["same_logits"] for x in got) and
      len({(x["n_prompt"], x["n_gen"], x["type_k"], x["logits_hash"]) for x in got}) == 8, got)
check("two samples, mean and deviation", all(x["runs"] == 2 and abs(sum(x["pp_samples_ts"]) / 2 - x["pp_avg_ts"]) < 1e-3 * x["pp_avg_ts"]
                                             and x["pp_stddev_ts"] >= 0 for x in got), got[:1])
want = toy("--tokens", write("ids", "1 " + "100 " * 29), "-n", "3", "--temp", "0", "--ignore-eos", "--json", model=LONG)
r = bench("--prompt-tokens", "30", "-n", "3", "-r", "1", "--tokens", write("short", "1 100"), "--budgets", "max", "--json")
check("token ids from a file, repeated behind the first", r.code == 0 and want.code == 0 and rows(r)[0]["n_prompt"] == 30, (r, want))
for how in (["-f", write("t.txt", "the thing he an on")], ["-"]):
    r = bench("--prompt-tokens", "30", "-n", "2", "-r", "1", "--budgets", "max", "--json", *how, stdin=b"the thing he an on")
    check(f"text by {how[0]}", len(rows(r)) == 1, r)
r = bench("-f", write("empty", b""), "-n", "2")
check("an empty text", r.refused(2) or (r.code == 0 and r.sound()), r)

# --- budgets ---------------------------------------------------------------------------------------------
r = bench(*FEW, "--budgets", "max,1M,half", "--json")
got = rows(r)
check("a budget that is refused is a row", [x["status"] for x in got][:2] == ["ok", "refused"] and got[1]["minimum_bytes"] > 1 << 20 and
      got[1]["logits_hash"] is None and got[1]["pp_avg_ts"] is None, r)
least = got[1]["minimum_bytes"] if len(got) > 1 else 0
r = bench(*FEW, "--budgets", str(least + (1 << 20)), "--json")
check("the one that it names works", len(rows(r)) == 1 and rows(r)[0]["status"] == "ok", r)
r = bench(*FEW, "--budgets", "1M", "--json")
check("no row is done: exit 4, one document", r.refused(4) and r.json and r.json["rows"][0]["status"] == "refused" and
      r.json["error"]["code"] == "budget" and r.json["error"]["minimum_bytes"] == r.json["rows"][0]["minimum_bytes"] and r.out.count(b"\n") == 1, r)
r = bench(*FEW, "--budgets", "max,8T", "--json")
check("more than the machine has is refused", SANITIZED or (len(rows(r)) == 2 and rows(r)[1]["status"] == "refused" and "free" in rows(r)[1]["message"]), r)
r = bench(*FEW, "--budgets", "max", "--spill", "/none/such", "--json")
check("a row that fails", r.sound() and r.code in (0, 1), r)
r = bench(*FEW, "--budgets", "max", "--kernels", "bogus", "--json")
check("all rows fail", r.refused(2) or (r.code == 1 and r.json["rows"][0]["status"] == "failed" and "bogus" in r.json["rows"][0]["message"]), r)

# --- environment ------------------------------------------------------------------------------------------
r = bench(*FEW, "--budgets", "max", "--json", env={"REMAT_RECOMPUTE": "full", "REMAT_THREADS": "1,2", "REMAT_MEMORY": "1M"})
check("lists from the environment", [(x["mode"], x["n_threads"], x["status"]) for x in rows(r)] == [("full", 1, "ok"), ("full", 2, "ok")], r)

# --- tables ----------------------------------------------------------------------------------------------
r = bench(*FEW, "--budgets", "max,1M")
lines = [s for s in r.out.decode().splitlines() if s.startswith("|")]
check("a table in Markdown", r.code == 0 and len(lines) == 4 and len({s.count("|") for s in lines}) == 1 and
      " pp300 tg4 @ d300 " in lines[2] and " needs " in lines[3] and set(lines[1]) <= set("|-:"), r)
r = bench(*FEW, "--budgets", "max,1M", "--csv")
table = list(csv.DictReader(io.StringIO(r.out.decode())))
keys = list(rows(bench(*FEW, "--budgets", "max", "--json"))[0])
check("CSV has the fields of JSON", r.code == 0 and len(table) == 2 and list(table[0]) == [k for k in keys if not k.endswith("_samples_ts")] and
      table[0]["status"] == "ok" and table[1]["status"] == "refused" and table[1]["logits_hash"] == "" and table[0]["same_logits"] == "1", r)
check("a message with a comma stays one field", all(None not in x for x in table), table)

# --- what is wrong ----------------------------------------------------------------------------------------
for option in ("--budgets", "--prompt-tokens", "-n", "-t", "--recompute", "--cold", "--kv"):
    for bad in ("", ",", "64,,", ",64", "64,", "0", "-1", "1000000000000000000", "x", "max,max,,", " ", "1e3", "0x10", "a" * 100):
        if option == "--budgets" and bad in ("1000000000000000000", "1e3"):
            continue  # a size, and more than this machine has
        r = bench(*FEW, option, bad)
        check(f"{option} {bad[:20]!r} is refused", r.refused(2) and r.out == b"" and option in r.err, r)
r = bench(*FEW, "--budgets", "max,1000000000000000000", "--json")
check("a budget of 10^18", SANITIZED or (r.code == 0 and rows(r)[1]["status"] == "refused"), r)
for args, says in ((["--budgets", ",".join(["max"] * 17)], "16"), (["-r", "0"], "-r"), (["-r", "33"], "32"), (["-r", "-1"], "-r"),
                   (["--csv", "--json"], "--csv"), (["--recompute", "off", "--cold", "drop"], "off"),
                   (["--budgets", ",".join(["max"] * 16), "--recompute", "auto,off,full,block,layer,selective", "--cold", "auto,spill,drop"], "256"),
                   (["--experiment", "--budgets", "max"], "--experiment"), (["--experiment", "-n", "2,3"], "--experiment"),
                   (["--memory", "64M"], "--memory"), (["-p", "text"], "-p")):
    r = bench(*args)
    check(f"{' '.join(args)[:60]} is refused", r.refused(2) and says in r.err, r)
r = Run("bench")
check("no model", r.refused(2), r)
refuses("a file that is no model", 3, "bench", "-m", write("junk.gguf", b"junk" * 100)) if not SMALL else None

# --- pictures ---------------------------------------------------------------------------------------------
began = time.monotonic()
for path, code in ((TMP / "none" / "a.svg", 1), (TMP / "a.pdf", 2), (TMP / "plain", 2), ("/proc/a.svg", 1), (tmpdir, 2)):
    r = bench("--prompt-tokens", "900", "-r", "30", "--plot", path)
    check(f"--plot {pathlib.Path(path).name} is refused before any work", r.refused(code) and r.out == b"" and quick(r, 2), r)
(TMP / "d.svg").mkdir()
r = bench(*FEW, "--plot", TMP / "d.svg")
check("--plot where a folder is", r.refused(1) and "d.svg" in r.err, r)
if GNUPLOT:
    for name in ("p.svg", "p.png"):
        r = bench(*FEW, "--budgets", "max,min,1M", "--recompute", "auto,block", "--plot", TMP / name, "--json")
        data = (TMP / name).read_bytes() if (TMP / name).exists() else b""
        check(f"{name} is drawn", r.code == 0 and (b"</svg>" in data if name == "p.svg" else data[:4] == b"\x89PNG"), r)
        tsv = (TMP / "p.tsv").read_text().splitlines()
        peaks = {s.split("\t")[3]: s.split("\t")[5] for s in tsv if s.startswith("peak memory\tmeasured\t")}
        want = {f"{x['budget']}, {x['mode']}": x["peak_bytes"] / MIB if x["peak_bytes"] else None for x in rows(r)}
        check(f"{name}: its numbers are those of the rows", len(peaks) == 6 and all(
            peaks[k] == "-" if v is None else abs(float(peaks[k]) - v) < 1e-3 for k, v in want.items()), (peaks, want))
else:
    skip("pictures: no gnuplot")
r = bench(*FEW, "--budgets", "max", "--plot", TMP / "q.svg", "--json", env={"PATH": "/none"})
check("no gnuplot: said, and the numbers are there", r.refused(1) and "gnuplot-nox" in r.err and (TMP / "q.tsv").exists() and
      not (TMP / "q.svg").exists() and r.json["rows"][0]["status"] == "ok", r)

# --- the experiment ---------------------------------------------------------------------------------------
WIDE = model("wide.gguf", layers=4, context=1024, heads=8, kv_heads=8, head_dim=64, dim=64, ff=64)  # 8 KiB of cache a token
r = bench("--experiment", "--prompt-tokens", 400 if SANITIZED else 800, "-n", "3", "--json", model=WIDE)
got = rows(r)
by = {x["name"]: x for x in got}
check("the experiment", len(got) == 9 and all(x["status"] == "ok" and x["same_logits"] for x in got), r)
if len(got) == 9:
    kept, half, most, none = (by[n] for n in ("everything kept", "1/2 dropped, blocks", "3/4 dropped, blocks", "nothing kept"))
    check("its peaks fall as more is dropped", SANITIZED or kept["peak_bytes"] > half["peak_bytes"] > most["peak_bytes"] > none["peak_bytes"], by)
    check("and more is computed again", 0 == kept["recomputed_tokens"] < half["recomputed_tokens"] < most["recomputed_tokens"] <
          none["recomputed_tokens"], by)
    check("the disk is used where it is said", by["1/2 on disk"]["spill_read_bytes"] > 0 and by["1/2 on disk"]["recomputed_tokens"] == 0, by)
r = bench("--experiment", "--prompt-tokens", "200", "-n", "2")
check("and its table", r.code == 0 and r.out.decode().count("\n| ") == 10 and "everything kept" in r.out.decode(), r)

# --- Ctrl-C -----------------------------------------------------------------------------------------------
for after in (0.05, 0.4, 1):
    r = bench("--prompt-tokens", "1000", "-n", "20", "-r", "30", "--recompute", "full", send=(after * (4 if SANITIZED else 1), signal.SIGINT))
    check(f"SIGINT after {after} s", r.sound() and r.code in (130, -2) and (SANITIZED or r.seconds < after + 3), r)
check("nothing is left in the folder for temporary files", list(tmpdir.iterdir()) == [], list(tmpdir.iterdir()))
done()
