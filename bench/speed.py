#!/usr/bin/env python3
"""How fast remat reads prompts and writes answers, at several lengths and budgets.

    bench/speed.py [-m MODEL] [-n N] [-r N] [--lengths 16,128,..] [--memory SIZE] [-t N]
                   [--base COMMIT | --base-binary PATH] [--save]

For each length the prompt is that many tokens of docs/demo/little-memory.txt, repeated as needed,
and N tokens follow it whatever they are. Each figure is the fastest of several runs: other work on
the machine only ever makes one slower. --base builds another commit beside this one and runs both
in turn. --save appends to bench/results/MACHINE.csv.
"""
import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile

REMAT = os.environ.get("REMAT", "./remat")
MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = "docs/demo/little-memory.txt"
FIELDS = ["commit", "cpu", "cpus", "model", "kernels", "threads", "memory", "prompt_tokens",
          "new_tokens", "prefill_tok_s", "decode_tok_s", "peak_bytes", "recomputed_tokens"]


def output_of(line):
    return subprocess.run(line, stdout=subprocess.PIPE, universal_newlines=True,
                          check=True).stdout


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def commit_name():
    try:
        return output_of(["git", "describe", "--always", "--dirty"]).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def build(commit):
    """Builds remat of another commit in build/base-COMMIT and returns its path."""
    tree = os.path.join("build", "base-" + re.sub(r"[^A-Za-z0-9]", "-", commit))
    os.makedirs(tree, exist_ok=True)
    archive = subprocess.Popen(["git", "archive", commit], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
    if archive.wait() != 0:
        sys.exit("speed: there is no commit %s" % commit)
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "BUILD")}
    jobs = "-j%d" % len(os.sched_getaffinity(0))
    subprocess.run(["make", "-s", jobs, "-C", tree, "remat"], check=True, env=env,
                   stdout=subprocess.DEVNULL)
    return os.path.join(tree, "remat")


def once(binary, args, tokens):
    line = [binary, "run", "-m", args.model, "--raw", "--tokens", tokens, "-n", str(args.n),
            "--temp", "0", "--ignore-eos", "--json"]
    if args.memory:
        line += ["--memory", args.memory]
    if args.threads:
        line += ["-t", str(args.threads)]
    return json.loads(output_of(line))


def best(binaries, args, tokens):
    """One dict per binary; runs alternate, so that all see the same moods of the machine."""
    out = [None] * len(binaries)
    for _ in range(args.r):
        for i, binary in enumerate(binaries):
            d = once(binary, args, tokens)
            if out[i] is None:
                out[i] = d
            for name in ("prefill_tok_s", "decode_tok_s"):
                out[i]["timings"][name] = max(out[i]["timings"][name], d["timings"][name])
            out[i]["memory"]["peak_bytes"] = max(out[i]["memory"]["peak_bytes"],
                                                 d["memory"]["peak_bytes"])
    return out


def print_row(runs):
    d = runs[0]
    line = "%7d %12.1f %12.1f %11.1f MiB %11d" % (
        d["prompt_tokens"], d["timings"]["prefill_tok_s"], d["timings"]["decode_tok_s"],
        d["memory"]["peak_bytes"] / (1 << 20), d["cache"]["recomputed_tokens"])
    for other in runs[1:]:
        line += "   base %9.1f (%+.1f %%) %9.1f (%+.1f %%)" % tuple(
            x for name in ("prefill_tok_s", "decode_tok_s")
            for x in (other["timings"][name],
                      100.0 * (d["timings"][name] / other["timings"][name] - 1)))
    print(line, flush=True)


def save(rows):
    cpu = cpu_name()
    path = os.path.join("bench", "results", re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-") +
                        ".csv")
    fresh = not os.path.exists(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", newline="", encoding="utf-8") as f:
        out = csv.DictWriter(f, FIELDS, lineterminator="\n")
        if fresh:
            out.writeheader()
        for r in rows:
            out.writerow(dict(r, commit=commit_name(), cpu=cpu,
                              cpus=len(os.sched_getaffinity(0))))
    print("added to %s" % path)


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    p.add_argument("-m", dest="model", default=MODEL)
    p.add_argument("-n", type=int, default=32)
    p.add_argument("-r", type=int, default=3)
    p.add_argument("-t", dest="threads", type=int, default=0)
    p.add_argument("--lengths", default="16,128,512,1024,2048")
    p.add_argument("--memory", default="")
    p.add_argument("--base")
    p.add_argument("--base-binary")
    p.add_argument("--save", action="store_true")
    args = p.parse_args()
    if not os.path.exists(args.model):
        print("speed: skipped, there is no %s; make models MODEL=smollm2 fetches it" % args.model)
        return
    binaries = [REMAT]
    if args.base_binary or args.base:
        binaries.append(args.base_binary or build(args.base))
    ids = json.loads(output_of([REMAT, "tokenize", "-m", args.model, "-f", TEXT,
                                "--json"]))["tokens"]
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for length in map(int, args.lengths.split(",")):
            tokens = os.path.join(work, "tokens")
            with open(tokens, "w", encoding="ascii") as f:
                f.write("\n".join(str(ids[i % len(ids)]) for i in range(length)) + "\n")
            runs = best(binaries, args, tokens)
            d = runs[0]
            if not rows:
                print("%s, %s; %s, kernels %s, %d threads, budget %s; %d new tokens, fastest of %d"
                      % (cpu_name(), commit_name(), os.path.basename(args.model), d["kernels"],
                         d["threads"], args.memory or "auto", args.n, args.r))
                print(" prompt  prompt tok/s answer tok/s     peak memory  recomputed")
            print_row(runs)
            rows.append({"model": os.path.basename(args.model), "kernels": d["kernels"],
                         "threads": d["threads"], "memory": args.memory or "auto",
                         "prompt_tokens": d["prompt_tokens"], "new_tokens": len(d["tokens"]),
                         "prefill_tok_s": "%.1f" % d["timings"]["prefill_tok_s"],
                         "decode_tok_s": "%.1f" % d["timings"]["decode_tok_s"],
                         "peak_bytes": d["memory"]["peak_bytes"],
                         "recomputed_tokens": d["cache"]["recomputed_tokens"]})
    if args.save:
        save(rows)


if __name__ == "__main__":
    main()
