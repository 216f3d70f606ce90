#!/usr/bin/env python3
"""How fast remat reads prompts and writes answers, at several depths, and llama.cpp beside it.

    bench/speed.py [-m MODEL] [-n N] [-r N] [-t N] [--lengths 16,512,..] [--memory SIZE]
                   [--peer PYTHON] [--base COMMIT | --base-binary PATH] [--plot FILE.svg] [--save]

For each length the prompt is that many tokens of docs/demo/little-memory.txt, repeated as needed,
and N tokens (32) follow it whatever they are: what is printed are the rates of that prompt and of
the answer after it. Lengths for which the model's context has no room are left out. There are 3
runs of each, above 4,096 tokens 1; -r sets another number for all.

    --peer PYTHON    a Python with llama_cpp (or REMAT_PEER names it): llama.cpp gets the same file,
                     tokens and threads, in turn with remat, with flash attention and without, and
                     the better of the two counts, figure by figure
    --base, --base-binary    another commit, which is built, or another program, also in turn
    --plot FILE.svg    a picture (gnuplot), and its numbers in FILE.tsv
    --save    appends to bench/results/MACHINE.csv

Alone, the fastest run counts: other work on the machine only ever makes one slower. Beside
llama.cpp it is the median of each, and a ratio is one of medians.
"""
import argparse
import csv
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import picture

REMAT = os.environ.get("REMAT", "./remat")
MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = "docs/demo/little-memory.txt"
PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py")
LENGTHS, PLOT_LENGTHS = "16,512,4096,16384", "128,512,1024,2048,4096,8192,16384"
RUNS, LONG = 3, 4096  # above so many tokens one run is enough
SPARE = 8  # tokens of context that nothing uses
MIB = 1 << 20
RATES = picture.RATES
FIELDS = ["commit", "cpu", "cpus", "model", "kernels", "threads", "memory", "prompt_tokens",
          "new_tokens", "prefill_tok_s", "decode_tok_s", "peak_bytes", "recomputed_tokens",
          "context_tokens", "runs", "statistic", "answer_read_bytes_per_token", "answer_read_gb_s",
          "peer", "peer_prefill_tok_s", "peer_decode_tok_s", "peer_peak_bytes"]
NO_PEER = ("llama.cpp beside it: --peer PYTHON, with llama-cpp-python built here (a prebuilt one is"
           " no comparison: it leaves out AVX-512 and AMX)")


def fail(text, code=1):
    sys.stderr.write("speed: %s\n" % text)
    sys.exit(code)


def warn(text):
    progress("")
    sys.stderr.write("speed: warning: %s\n" % text)


def progress(text):
    """A line that the next one takes the place of; on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text)
        sys.stderr.flush()


# --- the machine and the programs -----------------------------------------------------------------


def cpu_info(name):
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.split(":")[0].strip() == name:
                return line.split(":", 1)[1].strip()
    return "unknown"


def busy_share():
    """The part of the CPUs' time that others take, while this waits."""
    def times():
        with open("/proc/stat", encoding="ascii") as f:
            return [int(word) for word in f.readline().split()[1:9]]
    before = times()
    time.sleep(1)
    spent = [b - a for a, b in zip(before, times())]
    return 1 - (spent[3] + spent[4]) / max(1, sum(spent))  # idle, waiting for a disk


def commit_name():
    try:
        return subprocess.run(["git", "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def build(commit):
    """Builds remat of another commit in build/base-COMMIT and returns its path."""
    if subprocess.run(["git", "rev-parse", "-q", "--verify", commit + "^{commit}"],
                      stdout=subprocess.DEVNULL).returncode != 0:
        fail("--base: there is no commit %s" % commit)
    tree = os.path.join("build", "base-" + re.sub(r"[^A-Za-z0-9]", "-", commit))
    os.makedirs(tree, exist_ok=True)
    archive = subprocess.Popen(["git", "archive", commit], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "BUILD")}
    jobs = "-j%d" % len(os.sched_getaffinity(0))
    if archive.wait() != 0 or subprocess.run(["make", "-s", jobs, "-C", tree, "remat"], env=env,
                                             stdout=subprocess.DEVNULL).returncode != 0:
        fail("--base: %s cannot be built" % commit)
    return os.path.join(tree, "remat")


def remat(binary, *words):
    """Runs a command with --json; returns what it says. Its warnings are passed on."""
    line = [binary] + [str(w) for w in words] + ["--json"]
    try:
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as e:
        fail("%s: %s; make builds it" % (binary, e.strerror))
    said = done.stderr.decode(errors="replace").strip()
    progress("")
    if done.returncode != 0:
        fail(said or "%s: exit code %d" % (binary, done.returncode))
    if said:
        print(said, file=sys.stderr)
    return json.loads(done.stdout)


class PeerError(Exception):
    """Why llama.cpp gave no figures."""


def peer(python, *words):
    """Runs bench/peer.py by the Python that has llama_cpp."""
    line = [python, PEER] + [str(w) for w in words]
    try:
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as e:
        raise PeerError("%s: %s" % (python, e.strerror))
    progress("")
    said = done.stderr.decode(errors="replace").strip().split("\n")[-1]
    if done.returncode != 0:
        raise PeerError(said or "exit code %d" % done.returncode)
    try:
        return json.loads(done.stdout.decode(errors="replace").strip().split("\n")[-1])
    except ValueError:
        raise PeerError("it printed no figures")


class Peer:
    """llama.cpp; gone once it has failed."""

    def __init__(self, python):
        self.python, self.name = python, ""
        if not python:
            return
        try:
            about = peer(python, "--about")
        except PeerError as e:
            self.lose(e)
            return
        sets = [name for name in about["features"] if name in ("AVX2", "AVX512", "AMX_INT8")]
        self.name = "llama_cpp %s (%s)" % (about["version"], " ".join(sets))
        have = cpu_info("flags").split()
        lack = [name for name, flag in (("AVX512", "avx512f"), ("AMX_INT8", "amx_int8"))
                if flag in have and name not in sets]
        if lack:
            warn("llama_cpp was built without %s, which this machine has: this is no comparison"
                 % " and ".join(lack))
        busy = busy_share()
        if busy > 0.2:
            warn("other programs take %.0f %% of the CPUs: threads of llama.cpp wait in loops and"
                 " lose more by it, so the ratios flatter" % (100 * busy))

    def lose(self, why):
        warn("llama.cpp failed (%s); going on without it" % why)
        self.python = ""


# --- measuring ------------------------------------------------------------------------------------


class Bench:
    """Runs every side in turn, so that all see the same moods of the machine."""

    def __init__(self, args, binaries, other, work):
        self.args, self.binaries, self.peer = args, binaries, other
        self.tokens = os.path.join(work, "tokens")
        self.ids = remat(REMAT, "tokenize", "-m", args.model, "-f", TEXT)["tokens"]
        self.threads = args.threads
        self.round = 0
        self.median = bool(other.python)

    def run(self, side, context):
        """One run: a side is a program, or what the peer's flash attention is."""
        a = self.args
        if side in ("on", "off"):
            return peer(self.peer.python, a.model, self.tokens, a.n, self.threads, context, side)
        more = ["--memory", a.memory] if a.memory else []
        more += ["-t", a.threads] if a.threads else []
        d = remat(side, "run", "-m", a.model, "--raw", "--tokens", self.tokens, "-n", a.n, "-c",
                  context, "--temp", 0, "--ignore-eos", *more)
        self.threads = d["threads"]
        return dict({name: d["timings"][name] for name in RATES}, whole=d,
                    peak_bytes=d["memory"]["peak_bytes"])

    def summary(self, runs):
        pick = statistics.median if self.median else max
        return dict({name: pick([r[name] for r in runs]) for name in RATES},
                    peak_bytes=max(r["peak_bytes"] for r in runs), whole=runs[0].get("whole"))

    def measure(self, length, rounds):
        """A summary for each program, and that of the peer or None."""
        with open(self.tokens, "w", encoding="ascii") as f:
            f.writelines("%d\n" % self.ids[i % len(self.ids)] for i in range(length))
        sides = self.binaries + (["on", "off"] if self.peer.python else [])
        runs, count = [[] for _ in sides], len(self.binaries)
        for _ in range(rounds):
            order = list(enumerate(sides))
            for i, side in order if self.round % 2 == 0 else order[::-1]:
                if i >= count and not self.peer.python:
                    continue
                progress("%d tokens, %s .." % (length, side if i < count else "llama.cpp"))
                try:
                    runs[i].append(self.run(side, length + self.args.n + SPARE))
                except PeerError as e:
                    self.peer.lose(e)
            self.round += 1
        ours = [self.summary(r) for r in runs[:count]]
        if not self.peer.python:
            return ours, None
        theirs = [self.summary(r) for r in runs[count:]]
        best = {name: max(t[name] for t in theirs) for name in RATES}
        return ours, dict(best, peak_bytes=min(t["peak_bytes"] for t in theirs))


# --- the model ------------------------------------------------------------------------------------


def number(info, name):
    """A number of the model's metadata; 0 where it has none."""
    key = "%s.%s" % (info["architecture"], name)
    return next((int(m["value"]) for m in info["metadata"] if m["key"] == key), 0)


def idle_bytes(info):
    """Bytes of the weights that a token of the answer does not read, but for single rows: an
    embedding that is not also the output matrix, and the experts that are not asked."""
    tensors = {t["name"]: t["bytes"] for t in info["tensors"]}
    idle = tensors.get("token_embd.weight", 0) if "output.weight" in tensors else 0
    count, used = number(info, "expert_count"), number(info, "expert_used_count")
    if count > 0:
        experts = sum(size for name, size in tensors.items() if "_exps." in name)
        idle += experts * (count - used) // count
    return idle


def read_bytes(info, d):
    """What a token of the answer reads from memory, weights and cache; None if not all is there."""
    cache, parts = d["cache"], d["memory"]["ledger_peak"]
    if cache["spilled_bytes"] or cache["dropped_tokens"] or parts["weight_stream"]:
        return None
    return parts["weights"] - idle_bytes(info) + cache["resident_bytes"]


# --- the table ------------------------------------------------------------------------------------

WIDE = """\
          ------ prompt tok/s -----   ------ answer tok/s -----   answer reads   --- peak MiB ---
 tokens     remat llama.cpp   ratio     remat llama.cpp   ratio           GB/s    remat llama.cpp"""
NARROW = " tokens   prompt tok/s   answer tok/s   answer reads GB/s   peak MiB"


def print_head(args, bench, lengths, d, wide):
    print("%s, %s; %s, kernels %s, %d threads, budget %s"
          % (cpu_info("model name"), commit_name(), os.path.basename(args.model), d["kernels"],
             d["threads"], args.memory or "auto"))
    kind, runs = "median" if bench.median else "fastest", args.r or RUNS
    few = not args.r and max(lengths) > LONG
    print("%d new tokens; %s%s" % (args.n, "one run" if runs == 1 else "%s of %d runs" %
                                   (kind, runs), ", one above %d tokens" % LONG if few else ""))
    if wide:
        print("llama.cpp: %s, the better of its two attention settings" % bench.peer.name)
    print("answer reads: the bytes of weights and cache that one of its tokens needs, times answer"
          " tok/s\n              (-: not all of them are in memory)\n")
    print(WIDE if wide else NARROW)


def rates(ours, theirs, name):
    """A rate of both and the ratio."""
    if not theirs:
        return "%9.1f %9s %7s" % (ours[name], "-", "-")
    return "%9.1f %9.1f %7.2f" % (ours[name], theirs[name], ours[name] / theirs[name])


def print_row(row, runs, theirs, wide):
    ours, whole = runs[0], runs[0]["whole"]
    peak, gb = ours["peak_bytes"] / MIB, row["answer_read_gb_s"] or "-"
    if wide:
        line = "%7d %s  %s %14s %8.1f %9s" % (
            row["prompt_tokens"], rates(ours, theirs, RATES[0]), rates(ours, theirs, RATES[1]), gb,
            peak, "%.1f" % (theirs["peak_bytes"] / MIB) if theirs else "-")
    else:
        line = "%7d %14.1f %14.1f %19s %10.1f" % (row["prompt_tokens"], ours[RATES[0]],
                                                  ours[RATES[1]], gb, peak)
    if whole["cache"]["recomputed_tokens"]:
        line += "   %d tokens computed again" % whole["cache"]["recomputed_tokens"]
    for other in runs[1:]:
        line += "   base %9.1f (%+.1f %%) %9.1f (%+.1f %%)" % tuple(
            x for name in RATES for x in (other[name], 100.0 * (ours[name] / other[name] - 1)))
    print(line, flush=True)


def row_of(args, bench, info, rounds, ours, theirs):
    """A line of the file; what was not measured is empty."""
    d = ours["whole"]
    row = {"model": os.path.basename(args.model), "kernels": d["kernels"], "threads": d["threads"],
           "memory": args.memory or "auto", "prompt_tokens": d["prompt_tokens"],
           "new_tokens": len(d["tokens"]), "peak_bytes": ours["peak_bytes"],
           "recomputed_tokens": d["cache"]["recomputed_tokens"],
           "context_tokens": d["prompt_tokens"] + args.n + SPARE, "runs": rounds,
           "statistic": "median" if bench.median else "fastest",
           "answer_read_bytes_per_token": "", "answer_read_gb_s": ""}
    row.update((name, "%.1f" % ours[name]) for name in RATES)
    size = read_bytes(info, d)
    if size is not None:
        row["answer_read_bytes_per_token"] = size
        row["answer_read_gb_s"] = "%.1f" % (size * ours["decode_tok_s"] / 1e9)
    if theirs:
        row.update(("peer_" + name, "%.1f" % theirs[name]) for name in RATES)
        row.update(peer=bench.peer.name, peer_peak_bytes=theirs["peak_bytes"])
    return row


def save(rows):
    cpu, commit = cpu_info("model name"), commit_name()
    path = os.path.join("bench", "results", re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-") +
                        ".csv")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    old = []  # of a time with fewer columns, perhaps
    if os.path.exists(path):
        with open(path, newline="", encoding="utf-8") as f:
            old = list(csv.DictReader(f))
    with open(path + ".new", "w", newline="", encoding="utf-8") as f:
        out = csv.DictWriter(f, FIELDS, restval="", lineterminator="\n")
        out.writeheader()
        out.writerows(old)
        out.writerows(dict(r, commit=commit, cpu=cpu, cpus=len(os.sched_getaffinity(0)))
                      for r in rows)
    os.replace(path + ".new", path)
    print("added to %s" % path)


# --- all of it ------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message + "; --help lists the options", 2)


def at_least(least):
    def number_of(text):
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError("%s is no number from %d on" % (text, least))
        return int(text)
    return number_of


def length_list(text):
    return [at_least(1)(word) for word in text.split(",")]


def arguments():
    p = Parser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
               usage=argparse.SUPPRESS)
    p.add_argument("-m", dest="model", default=MODEL, help=argparse.SUPPRESS)
    p.add_argument("-n", type=at_least(2), default=32, help=argparse.SUPPRESS)
    p.add_argument("-r", type=at_least(1), help=argparse.SUPPRESS)
    p.add_argument("-t", dest="threads", type=at_least(0), default=0, help=argparse.SUPPRESS)
    p.add_argument("--lengths", type=length_list, help=argparse.SUPPRESS)
    p.add_argument("--save", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--peer", default=os.environ.get("REMAT_PEER", ""), help=argparse.SUPPRESS)
    for name in ("--memory", "--base", "--base-binary", "--plot"):
        p.add_argument(name, default="", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.plot:
        if not args.plot.endswith(".svg"):
            fail("--plot: %s does not end in .svg" % args.plot, 2)
        if not os.path.isdir(os.path.dirname(args.plot) or "."):
            fail("--plot: there is no folder %s" % os.path.dirname(args.plot), 2)
        if shutil.which("gnuplot") is None:
            fail("--plot: there is no gnuplot; scripts/setup bench installs it, or take --save")
    if args.peer and shutil.which(args.peer) is None:
        fail("--peer: there is no program %s" % args.peer, 2)
    if args.base_binary and shutil.which(args.base_binary) is None:
        fail("--base-binary: there is no program %s" % args.base_binary, 2)
    if args.lengths is None:
        args.lengths = length_list(PLOT_LENGTHS if args.plot else LENGTHS)
    return args


def fitting(args, info):
    """The lengths for which the model's context has room."""
    context = number(info, "context_length")
    long = [n for n in args.lengths if context and n + args.n > context]
    lengths = [n for n in args.lengths if n not in long]
    if not lengths:
        fail("--lengths: the context of %d tokens has no room for any, with %d new ones"
             % (context, args.n))
    if long:
        print("left out: %s; the model's context is %d tokens, of which %d are for the answer" %
              (", ".join(map(str, long)), context, args.n))
    return lengths


def main():
    args = arguments()
    if not os.path.exists(args.model):
        print("speed: skipped, there is no %s; make models MODEL=smollm2 fetches it" % args.model)
        return
    info = remat(REMAT, "info", "-m", args.model)
    lengths = fitting(args, info)
    binaries = [REMAT]
    if args.base_binary or args.base:
        binaries.append(args.base_binary or build(args.base))
    if not args.peer:
        print(NO_PEER)
    rows, wide = [], False
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(args, binaries, Peer(args.peer), work)
        for length in lengths:
            rounds = args.r or (RUNS if length <= LONG else 1)
            ours, theirs = bench.measure(length, rounds)
            d = ours[0]["whole"]
            if not rows:
                wide = theirs is not None
                print_head(args, bench, lengths, d, wide)
            rows.append(row_of(args, bench, info, rounds, ours[0], theirs))
            print_row(rows[-1], ours, theirs, wide)
    if args.save:
        save(rows)
    if args.plot:
        data = picture.draw(args.plot, rows, "%s on %s, threads: %d" % (
            os.path.basename(args.model), cpu_info("model name"), d["threads"]))
        if data is None:
            fail("--plot: gnuplot failed")
        print("wrote %s and %s" % (args.plot, data))


if __name__ == "__main__":
    main()
