#!/usr/bin/env python3
"""What a small budget costs in time, as ratios within one run.

    bench/memory.py [-m MODEL] [--tokens N] [-n N] [-t N] [--small SIZE] [--json FILE]

Each pair runs in turn, several times, and the median of the ratios counts:

    prefill      N tokens in a small budget, against everything resident
    weights      decode with all weights streamed: what the disk's rate allows (bytes read a token
                 / rate, the rate measured beside it by direct reads of the model file), over what it took
    pages        the same with all pages spilled and the weights resident
    half         decode with a half of the pages in memory, against none
"""
import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time

REMAT = os.environ.get("REMAT", "./remat")
TEXT = "docs/demo/little-memory.txt"
MIB = 1 << 20


def run(args, prompt, new, *extra):
    line = [REMAT, "run", "-m", args.model, "--raw", "--tokens", prompt, "-n", str(new), "--temp",
            "0", "--ignore-eos", "--json", "-t", str(args.threads)] + list(extra)
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit("memory.py: %s: %s" % (" ".join(line), done.stderr.decode()[-300:]))
    return json.loads(done.stdout)


def disk_rate(path):
    """Bytes a second of direct reads, 8 MiB each, one after the other: as `dd iflag=direct`."""
    buffer = mmap.mmap(-1, 8 * MIB)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    begin, total = time.perf_counter(), 0
    while total < 1024 * MIB:
        got = os.preadv(file, [buffer], total)
        if got <= 0:
            break
        total += got // 4096 * 4096
        if got < len(buffer):
            break
    os.close(file)
    return total / (time.perf_counter() - begin)


def prompt_file(args, folder):
    out = subprocess.run([REMAT, "tokenize", "-m", args.model, "-f", TEXT, "--json"],
                         stdout=subprocess.PIPE, check=True)
    ids = json.loads(out.stdout)["tokens"]
    while len(ids) < args.tokens:
        ids = ids + ids[1:]
    path = os.path.join(folder, "tokens")
    with open(path, "w") as f:
        f.write(" ".join(map(str, ids[:args.tokens])))
    return path


def decode(result, since):
    """Tokens a second, and bytes read a token, of a run beyond a shorter one of the same prompt."""
    tokens = len(result["tokens"]) - len(since["tokens"])
    seconds = result["timings"]["decode_s"] - since["timings"]["decode_s"]
    cache, before = result["cache"], since["cache"]
    read = sum(cache[k] - before[k] for k in ("spill_read_bytes", "weight_read_bytes"))
    return tokens / seconds, read / tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("-n", type=int, default=16, help="new tokens")
    parser.add_argument("-r", type=int, default=3, help="repeats")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--small", default="40M", help="the small budget")
    parser.add_argument("--json", help="figures to a file")
    args = parser.parse_args()
    rows = []

    def report(name, mine, other, what):
        ratio = statistics.median(m / o for m, o in zip(mine, other))
        rows.append({"what": name, "mine": mine, "other": other, "ratio": ratio})
        print("%-8s %8.2f / %8.2f = %.2f   %s" % (name, statistics.median(mine),
                                                  statistics.median(other), ratio, what), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        prompt = prompt_file(args, folder)
        small, large = [], []
        for _ in range(args.r):
            small.append(run(args, prompt, 1, "--memory", args.small)["timings"]["prefill_tok_s"])
            large.append(run(args, prompt, 1, "--memory", "8G")["timings"]["prefill_tok_s"])
        report("prefill", small, large, "tokens/s in %s, and with everything resident" % args.small)
        for name, extra in (("weights", ("--weights", "stream")),
                            ("pages", ("--weights", "resident", "--cold", "spill",
                                       "--resident", "0"))):
            took, allowed = [], []
            for _ in range(args.r):
                rate = disk_rate(args.model)
                first = run(args, prompt, 3, "--memory", "8G", *extra)
                speed, read = decode(run(args, prompt, 3 + args.n, "--memory", "8G", *extra), first)
                took.append(speed)
                allowed.append(rate / read)
            report(name, took, allowed, "tokens/s, and what the disk allows (last: %.0f MiB/s)"
                   % (rate / MIB))
        half, none = [], []
        for _ in range(args.r):
            spill = ("--memory", "8G", "--weights", "resident", "--cold", "spill", "--resident")
            for list_, count in ((half, args.tokens // 2), (none, 0)):
                first = run(args, prompt, 3, *spill, str(count))
                list_.append(decode(run(args, prompt, 3 + args.n, *spill, str(count)), first)[0])
        report("half", half, none, "tokens/s with a half of the pages in memory, and with none")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
