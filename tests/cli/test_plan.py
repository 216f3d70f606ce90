#!/usr/bin/env python3
"""remat plan: models by name and by numbers, what fits, advice, costs, pictures, bad input."""
import json
import os

from kit import *

os.environ["REMAT_RATES"] = "guess"  # speeds that do not depend on the machine
GIB = 1 << 30

# What the models' authors count.
PARAMETERS = {
    "deepseek-v3": 671026419200, "gemma-3-1b": 999885952, "gemma-3-270m": 268098176, "gpt-oss-20b": 20914757184,
    "llama-2-7b": 6738415616, "llama-2-13b": 13015864320, "llama-2-70b": 68976648192, "llama-3.1-8b": 8030261248,
    "llama-3.1-70b": 70553706496, "mistral-7b": 7241732096, "mixtral-8x7b": 46702792704, "qwen2.5-0.5b": 494032768,
    "qwen2.5-7b": 7615616512, "qwen2.5-72b": 72706203648, "qwen3-0.6b": 596049920, "qwen3-8b": 8190735360,
    "qwen3-30b-a3b": 30532122624, "qwen3-235b-a22b": 235093634560, "smollm2-135m": 134515008,
    "tinyllama-1.1b": 1100048384,
}


def plan(*args, **how):
    """--memory is the plan's budget here: without one there is none, whatever the build."""
    return Run("plan", *args, **how)


def shape(**numbers):
    return write("shape.json", json.dumps(numbers))


# --- models by name ------------------------------------------------------------------------------------------
names = Run("plan", "--list-shapes", "--json").json
check("known models are listed", isinstance(names, list) and len(names) > 30 and names == sorted(names), names)
check("and as text", Run("plan", "--list-shapes").out.decode().split() == names)
for name in (names or [])[::8 if SANITIZED else 1]:  # each takes seconds there
    p = plan("--model-shape", name, "-c", 2048, "--json").json
    want = PARAMETERS.get(name)
    got = p["model"]["parameters"] if p else 0
    check(f"{name}: so many parameters", got > 0 and (want is None or abs(got - want) <= want * 1e-5), f"{got}, not {want}")
p = plan("--model-shape", "LLaMA-2-7B", "--weight-type", "f16", "-c", 4096, "--json").json
check("in any case; f16 weights take two bytes each", p and abs(p["parts"]["weights"] - 2 * 6738415616) < 2e6, p and p["parts"])
check("KV of LLaMA-7B: half a MiB a token", p and p["kv_token_bytes"] == 512 << 10 and p["kv_bytes"] == 2 * GIB)
check("parts sum up to the peak", p and sum(p["parts"].values()) == p["predicted_peak_bytes"])
check("layers and ends sum up to the weights", p and abs(sum(p["weights"]["layers"]) + p["weights"]["embedding"] +
      p["weights"]["output"] + p["weights"]["norms"] - p["parts"]["weights"]) < 1 << 20)
small = plan("--model-shape", "qwen2.5-7b", "--weight-type", "q4_k", "-c", 4096, "--json").json
large = plan("--model-shape", "qwen2.5-7b", "--weight-type", "q8_0", "-c", 4096, "--json").json
saved = [s for s in large["savings"] if s["measure"] == "weights as q4_k"]
check("a type's saving is what a plan with it takes", saved and abs(saved[0]["full_bytes"] - small["predicted_peak_bytes"]) <= small["predicted_peak_bytes"] * 0.01, saved)
batch = plan("--model-shape", "qwen2.5-7b", "-c", 4096, "--batch", 4, "--json").json
check("four sequences have four caches", batch["kv_bytes"] == 4 * small["kv_bytes"])
check("what begins alike is cached once", any("share" in s["measure"] for s in batch["savings"]))

# A sanitizer's own memory is another in every process: what has to agree between two is not asked there.
# --- budgets -------------------------------------------------------------------------------------------------
front = small["frontier"]
check("the frontier goes from the smallest to everything", front[0]["budget_bytes"] == small["minimum_bytes"] and
      front[-1]["budget_bytes"] == small["full_bytes"] and all(a["budget_bytes"] < b["budget_bytes"] for a, b in zip(front, front[1:])))
check("each stays in its budget", all(f["predicted_peak_bytes"] <= f["budget_bytes"] for f in front))
check("the end is no slower than the start", front[-1]["decode_tok_s"] > front[0]["decode_tok_s"])
rows = {r["name"]: r for r in small["budgets"]}
check("smallest, comfortable, full", list(rows) == ["smallest", "comfortable", "full"] and
      rows["smallest"]["budget_bytes"] <= rows["comfortable"]["budget_bytes"] <= rows["full"]["budget_bytes"], rows)
given = plan("--model-shape", "qwen2.5-7b", "-c", 4096, "--memory", "2G", "--json").json
check("a given budget has a row, and is kept", [r["name"] for r in given["budgets"]][2] == "given" and given["predicted_peak_bytes"] <= 2 * GIB)
limits = plan("--model-shape", "llama-3.1-8b", "-c", 4096, "--memory", "6G", "--json").json["limits"]
at = plan("--model-shape", "llama-3.1-8b", "-c", limits["context_in_memory"], "--memory", "6G", "--json").json
over = plan("--model-shape", "llama-3.1-8b", "-c", limits["context_in_memory"] + 64, "--memory", "6G", "--json").json
check("the largest context in memory is the largest", SANITIZED or at["full_bytes"] <= 6 * GIB < over["full_bytes"], limits)
short = ((1, 1, 64), (100, 3, 384), (100, 1, 128), (448, 1, 448), (449, 1, 512), (8192, 1, 512))
for c, b, rows_most in short[:2] if SANITIZED else short:
    r = plan("--model-shape", "smollm2-135m", "-c", c, "--batch", b, "--json")
    check(f"a chunk has no more rows than there are tokens: {b} x {c}", r.json["chunk_rows"] == rows_most, r)
users = plan("--model-shape", "llama-3.1-8b", "-c", 4096, "--batch", limits["sequences_in_memory"], "--memory", "6G", "--json").json
more = plan("--model-shape", "llama-3.1-8b", "-c", 4096, "--batch", limits["sequences_in_memory"] + 1, "--memory", "6G", "--json").json
check("so is the number of sequences", SANITIZED or users["full_bytes"] <= 6 * GIB < more["full_bytes"], limits)
r = plan("--model-shape", "llama-3.1-8b", "-c", 4096, "--memory", "64M", "--json")
check("too small a budget is refused, and names one that works", r.refused(4) and
      (SANITIZED or plan("--model-shape", "llama-3.1-8b", "-c", 4096, "--memory", r.json["error"]["minimum_bytes"], "--json").code == 0), r)

# --- by numbers ----------------------------------------------------------------------------------------------
llama = dict(layers=32, hidden=4096, heads=32, kv_heads=32, head_dim=128, feed_forward=11008, vocabulary=32000, weight_bits=16)
p = plan("--model-shape", shape(**llama), "-c", 131072, "--json").json
check("LLaMA-7B with 128K tokens: 64 GiB of cache", p and p["kv_bytes"] == 64 * GIB)
same = plan("--model-shape", "llama-2-7b", "--weight-type", "f16", "-c", 131072, "--json").json
check("the same as by name", all(p["parts"][k] == same["parts"][k] for k in p["parts"] if k not in ("program", "io", "text")), [p["parts"], same["parts"]])
p = plan("--model-shape", shape(layers=61, hidden=7168, heads=128, attention="mla", kv_rank=512, rope_dim=64, head_dim=128,
                                feed_forward=18432, vocabulary=129280, weight_bits=8, parameters=671e9), "-c", 1024, "--json").json
check("a latent cache: 1152 bytes a token and layer", p and p["kv_token_bytes"] == 1152 * 61)
check("and all the parameters that are given", p and abs(p["model"]["parameters"] - 671e9) < 671e6)
p = plan("--model-shape", shape(**{**llama, "window": 4096}), "-c", 65536, "--json").json
check("a window bounds the cache", p and p["kv_bytes"] <= (4096 + 64) * (512 << 10))
p = plan("--model-shape", shape(**{**llama, "window": 4096, "window_period": 2}), "-c", 65536, "--json").json
check("of half the layers, half of it", p and abs(p["kv_bytes"] - (16 * GIB + GIB)) < 100 * MIB, p and p["kv_bytes"])
for what, numbers, says in (
        ("zero heads", {**llama, "heads": 0}, "heads"), ("a negative count", {**llama, "layers": -3}, "layers"),
        ("a fraction", {**llama, "layers": 2.5}, "layers"), ("10^18 layers", {**llama, "layers": 10**18}, "layers"),
        ("a text for a number", {**llama, "hidden": "4096"}, "hidden"), ("an unknown member", {**llama, "heds": 3}, "heds"),
        ("heads that do not divide", {**llama, "kv_heads": 5}, "multiple"), ("no vocabulary", {k: v for k, v in llama.items() if k != "vocabulary"}, "vocabulary"),
        ("mla without a rank", {**llama, "attention": "mla"}, "mla"), ("no such attention", {**llama, "attention": "hyena"}, "attention"),
        ("no such type", {**llama, "weights": "q9"}, "q9"), ("1 bit", {**llama, "weight_bits": 1}, "weight_bits"),
        ("fewer parameters than its numbers", {**llama, "parameters": 1e9}, "parameters"), ("an empty object", {}, "layers")):
    refuses(what, 2, "plan", "--model-shape", shape(**numbers), "-c", "512", says=says)
for what, data in (("a list", "[1]"), ("nothing", ""), ("half an object", '{"layers": 3'), ("a member twice", '{"layers": 3, "layers": 4}'),
                   ("any bytes", b"\xff\x00{}"), ("deep brackets", "[" * 5000)):
    refuses(f"a shape of {what}", 2, "plan", "--model-shape", write("bad.json", data), says="bad.json")
refuses("a shape of 70 KB", 2, "plan", "--model-shape", write("bad.json", '{"name": "' + "x" * 70000 + '"}'), says="at most")
refuses("a file that is not there", 1, "plan", "--model-shape", str(TMP / "none.json"), says="none.json")
refuses("no known model", 2, "plan", "--model-shape", "llama-9", says="--list-shapes")
refuses("a model and a shape", 2, "plan", "-m", TOY, "--model-shape", "llama-2-7b", says="not both")
refuses("neither", 2, "plan", says="-m")
refuses("a context of 10^18", 2, "plan", "--model-shape", "llama-2-7b", "-c", 10**18, says="-c")
refuses("a context of 2^31 - 1", 2, "plan", "--model-shape", "llama-2-7b", "-c", 2**31 - 1, says="limits")
refuses("no sequence", 2, "plan", "--model-shape", "llama-2-7b", "--batch", 0, says="--batch")
refuses("a type for a file", 2, "plan", "-m", TOY, "--weight-type", "q8_0", says="--weight-type")
refuses("watts without --cost", 2, "plan", "--model-shape", "llama-2-7b", "--watts", 9, says="--cost")
refuses("running a shape", 2, "run", "--model-shape", "llama-2-7b", says="--model-shape")

# --- tasks, costs, pictures ----------------------------------------------------------------------------------
for task in ("batch", "rag", "code", "chat", "voice", "api"):
    r = plan("--model-shape", "qwen2.5-1.5b", "-c", 4096, "--task", task, "--json")
    t = (r.json or {}).get("task", {})
    check(f"--task {task}", r.code == 0 and t.get("name") == task and all(b["reason"] for b in t["budgets"]), r)
check("for batches every budget will do", all(b["suits"] for b in plan("--model-shape", "qwen2.5-1.5b", "-c", 4096, "--task", "batch", "--json").json["task"]["budgets"]))
check("nobody talks with 70B parameters here", not any(b["suits"] for b in plan("--model-shape", "llama-3.1-70b", "-c", 4096, "--task", "voice", "--json").json["task"]["budgets"]))
check("a token in many seconds is explained", b"less than a token a second" in plan("--model-shape", "llama-3.1-70b", "-c", 4096).out)
refuses("no such task", 2, "plan", "--model-shape", "llama-2-7b", "--task", "poetry", says="poetry")
costs = ["--cost", "--tokens-in", 2e6, "--tokens-out", 0, "--cached", 0.5, "--api-in", 1, "--api-cached", 0.1, "--api-out", 0,
         "--hardware-price", 1000, "--watts", 100, "--idle-watts", 100, "--electricity-price", 0.25, "--hours", 10, "--years", 0]
c = plan("--model-shape", "qwen2.5-0.5b", "-c", 4096, *costs, "--json").json["cost"]
check("the API: a million at 1, a million at 0.1", abs(c["api_a_day"] - 1.1) < 1e-9, c)
check("here: 100 W for 10 hours at 0.25", abs(c["electricity_a_day"] - 0.25) < 1e-9, c)
check("1000 are back after 1000 / 0.85 days", abs(c["break_even_days"] - 1000 / 0.85) < 1e-3, c)
c = plan("--model-shape", "qwen2.5-0.5b", "-c", 4096, *costs, "--api-in", 0, "--api-cached", 0, "--json").json["cost"]
check("nothing pays off against nothing", c["break_even_days"] is None, c)
c = plan("--model-shape", "llama-3.1-70b", "-c", 4096, "--cost", "--tokens-in", 1e9, "--json").json["cost"]
check("a day has 24 hours", c["fits_the_hours"] is False and c["busy_hours_a_day"] > 24)
check("and the text says so", b"does not fit" in plan("--model-shape", "llama-3.1-70b", "-c", 4096, "--cost", "--tokens-in", 1e9).out)
for name, bad in (("25 hours", ["--hours", 25]), ("no hours", ["--hours", 0]), ("a share of 2", ["--cached", 2]), ("negative watts", ["--watts", -1]),
                  ("no number", ["--watts", "many"]), ("infinite", ["--api-in", "1e999"])):
    refuses(name, 2, "plan", "--model-shape", "llama-2-7b", "-c", "512", "--cost", *bad, says=bad[0])
refuses("a picture of no kind", 2, "plan", "--model-shape", "llama-2-7b", "--plot", str(TMP / "a.gif"), says=".svg")
if shutil.which("gnuplot"):
    for extra in ([], ["--cost"]):
        picture = TMP / "plan.svg"
        picture.unlink(missing_ok=True)
        r = plan("--model-shape", "qwen2.5-0.5b", "-c", 2048, "--plot", picture, *extra)
        numbers = (TMP / "plan.tsv").read_text()
        check(f"a picture and its numbers {' '.join(extra)}", r.code == 0 and picture.read_text().startswith("<?xml") and
              ("here" in numbers if extra else "smallest budget" in numbers), r)
else:
    skip("no gnuplot")
done()
