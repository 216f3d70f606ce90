#!/usr/bin/env python3
"""The real model in models/: one answer under any budget, budgets kept, interruptions, stops, streams."""
import hashlib
import math
import os
import signal
import subprocess

from kit import *

SM = real_model()
if SM is None:
    skip("no models/*.gguf of 98362432 bytes (make models MODEL=smollm2)")
    done()
if SANITIZED:
    skip("too slow under a sanitizer")
    done()
GREEDY = ["--temp", "0", "--ignore-eos", "--raw"]
PROMPT = write("prompt.txt", "The old library had more books than anyone could count. " * 24)


def run(*args, **how):
    return Run("run", "-m", SM, *args, **how)


# --- memory --------------------------------------------------------------------------------------------------
f = TMP / "logits"


def hash_of(*args, prompt=PROMPT, count=6):
    f.unlink(missing_ok=True)
    r = run("-f", prompt, "-n", count, *GREEDY, "--logits", f, "--json", *args)
    return r, hashlib.sha256(f.read_bytes()).hexdigest() if r.code == 0 else repr(r)


_, want = hash_of()
r = run("-f", PROMPT, "-n", "6", *GREEDY, "--memory", "1M", "--json")
least = r.json["error"].get("minimum_bytes", 0) if r.json else 0
check("the least budget is named", r.refused(4) and 8 * MIB < least < 32 * MIB, r)
for budget in (least, least + 2 * MIB, least + 8 * MIB, 256 * MIB):
    r, got = hash_of("--memory", budget)
    check(f"same logits in {budget / MIB:.1f} MiB, and no byte more", got == want and r.peak <= budget and r.json["memory"]["peak_bytes"] <= budget,
          f"peak {r.peak / MIB:.2f} MiB; {r}")
r = run("-f", PROMPT, "-n", "6", *GREEDY, "--memory", least - 2 * MIB)
check("2 MiB less are refused", r.refused(4), r)
p = Run("plan", "-m", SM, "-c", "400", "--json")
for key in ("minimum_bytes", "full_bytes"):
    r = run("-p", "The capital of France is", "-c", "400", "-n", "8", *GREEDY, "--memory", p.json[key], "--json")
    check(f"plan's {key} works", r.code == 0 and r.peak <= p.json[key], f"{p.json[key] / MIB:.2f} MiB, peak {r.peak / MIB:.2f}: {r}")
for args in (["-t", 1], ["-t", 3, "-ub", 7], ["-ub", 512], ["--resident", 64, "-t", 2], ["--kernels", "avx2"]):
    r, got = hash_of(*args)
    check(f"same logits with {' '.join(map(str, args))}", got == want or r.code == 2, r)
short = write("short.txt", "The capital of France is")
_, a = hash_of(prompt=short, count=2)
for args in (["-ub", 1], ["--resident", 0]):
    _, b = hash_of(*args, prompt=short, count=2)
    check(f"same logits with {' '.join(map(str, args))}", a == b, b)
for args in (["run", "-n", "2", "--raw"], ["score"]):
    text = TMP / "text"
    with open(text, "wb") as out:
        for _ in range(40):
            out.write(b"Many words in a row. " * 2000)
    for budget in (96, 128, 200):
        r = Run(args[0], "-m", SM, *args[1:], "-f", text, "--memory", f"{budget}M")
        check(f"{args[0]} of 1.6 MiB of text in {budget} MiB", r.sound() and r.code in (4, 5, 0) and r.peak <= budget * MIB, f"peak {r.peak / MIB:.1f} MiB; {r}")

# --- interruptions ---------------------------------------------------------------------------------------------
big = write("big.txt", "The old library had more books than anyone could count. " * 600)
for name, number in (("SIGINT", signal.SIGINT), ("SIGTERM", signal.SIGTERM)):
    r = run("--raw", "-f", big, "-n", "1", send=(0.8, number), timeout=20)
    check(f"{name} during the prompt", r.refused(130) and r.out == b"" and r.seconds < 5, r)
    r = run("--raw", "-p", "Once upon a time", "-n", "4000", "--ignore-eos", "--temp", "0", send=(1.5, number), timeout=20)
    check(f"{name} during the answer keeps its text", r.refused(130) and len(r.out) > 0 and r.seconds < 8, r)
r = run("--raw", "-p", "Once upon a time", "-n", "4000", "--ignore-eos", "--json", send=(2.0, signal.SIGINT), timeout=20)
check("SIGINT with --json", r.refused(130) and r.json and r.json["error"]["code"] == "interrupted", r)
r = run("--raw", "-p", "Once", "-n", "1", send=(0.03, signal.SIGINT), timeout=20)
check("SIGINT while loading", r.code in (130, -2) and r.seconds < 3, r)

# --- text ------------------------------------------------------------------------------------------------------
T = run("-p", "Name three colours.", "-n", "40", "--temp", "0", "--json")
text = T.json["text"]
r = run("-p", "Name three colours.", "-n", "40", "--temp", "0")
check("streamed text equals the document's", r.out.decode() == text + "\n", (T, r))
wrong = []
for at in range(3, min(len(text) - 8, 60), 9):
    stop = text[at:at + 8]
    r = run("-p", "Name three colours.", "-n", "40", "--temp", "0", "--stop", stop)
    if r.out.decode() != text[:text.index(stop)] + "\n":
        wrong.append((stop, r))
check("X01 stops across tokens", not wrong, wrong[:2])
r = run("-p", "Name three colours.", "-n", "40", "--temp", "0", "--stop", text[-3:] + "\u00a7")
check("X02 held text is released at the end", r.out.decode() == text + "\n", r)
for prompt in ("\U0001f999" * 6, "\u65e5" * 6):
    a, b = (run("-p", prompt, "-n", "24", *GREEDY, *x) for x in ([], ["--json"]))
    p = subprocess.Popen([REMAT, "run", "-m", SM, "-p", prompt, "-n", "24", *GREEDY], stdout=subprocess.PIPE, bufsize=0)
    pieces = []
    while piece := os.read(p.stdout.fileno(), 1 << 16):
        pieces.append(piece)
    p.stdout.close()
    p.wait()
    try:
        whole = [x.decode() for x in pieces]
    except UnicodeDecodeError as e:
        whole = e
    check(f"X03 no character is cut: {prompt[:1]}", a.out.decode("utf-8", "replace") == b.json["text"] + "\n" and isinstance(whole, list), (whole, a, b))
check("an end token ends the answer", run("-p", "Say yes.", "-n", "200", "--temp", "0", "--json").json["finish_reason"] == "stop")

# --- sampling ----------------------------------------------------------------------------------------------------
BASE = ["--raw", "-p", "The capital of France is", "--ignore-eos", "-n", "16", "--json"]
greedy = run(*BASE, "--temp", "0").json["tokens"]
for flags in (["--temp", "1e-5"], ["--temp", "1e-38", "--top-k", "0", "--top-p", "1", "--min-p", "0"], ["--temp", "-1"], ["--top-k", "1"], ["--top-p", "0"], ["--min-p", "1"]):
    got = run(*BASE, *flags, "--seed", "3").json["tokens"]
    check(f"S01 S02 {' '.join(flags)} equals greedy", got == greedy, got)
first = [run(*BASE[:-3], "-n", "1", "--json", "--temp", "0.8", "--seed", s).json["tokens"][0] for s in range(1, 13)]
check("S06 the likely token comes most often", first.count(greedy[0]) >= 4, first)

# --- score ---------------------------------------------------------------------------------------------------------
r, _ = hash_of(prompt=short, count=5)
n = len(f.read_bytes()) // 4 // 5
row = struct.unpack(f"<{5 * n}f", f.read_bytes())
prompt = Run("tokenize", "-m", SM, "-f", short, "--json").json["tokens"]
s = Run("score", "-m", SM, "--tokens", write("s", " ".join(map(str, prompt + r.json["tokens"]))), "--top", "4", "--json")
worst = 0
for i in range(5):
    one = row[i * n:i * n + n]
    most = max(one)
    lse = math.log(sum(math.exp(x - most) for x in one)) + most
    worst = max(worst, abs(s.json["logprobs"][len(prompt) + i] - (one[r.json["tokens"][i]] - lse)))
check("score equals run's logits", worst < 1e-4, worst)
done()
