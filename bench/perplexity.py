#!/usr/bin/env python3
"""Perplexity of a text by remat, and by llama.cpp beside it on the same tokens and windows.

    bench/perplexity.py [-m MODEL] [-f FILE] [-c N] [--chunks N] [-t N] [--peer PYTHON]

The text is FILE, or docs/*.md and README.md joined. Both cut it as llama.cpp's perplexity does:
windows of N tokens (512), the model's begin-of-text token in place of the first of each, and the
predictions of the second half count. --peer PYTHON, or REMAT_PEER, names a Python with llama_cpp;
without it there is only our figure. Exit 1 when the figures are more than 0.5 % apart.

Prints one line of JSON.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

REMAT = os.environ.get("REMAT", "./remat")
MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
APART = 0.005

# What the Python of the peer runs: MODEL TOKENS WINDOW WINDOWS THREADS.
PEER = """
import json, math, sys
import llama_cpp, numpy
model, path, window, count, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
with open(path) as f:
    text = [int(word) for word in f.read().split()]
m = llama_cpp.Llama(model, n_ctx=window, n_batch=window, n_threads=threads, logits_all=True,
                    swa_full=False, verbose=False)
bos = llama_cpp.llama_vocab_bos(m._model.vocab) if m._model.add_bos_token() else None
nll = []
for w in range(count):
    ids = text[w * window:(w + 1) * window]
    if bos is not None:
        ids[0] = bos
    m.reset()
    m._ctx.kv_cache_clear()
    m.eval(ids)
    for i in range(window // 2, window - 1):
        row = m.scores[i].astype(numpy.float64)
        most = row.max()
        nll.append(most + math.log(numpy.exp(row - most).sum()) - row[ids[i + 1]])
    print("window %d of %d: %.4f" % (w + 1, count, math.exp(sum(nll) / len(nll))), file=sys.stderr)
print(json.dumps({"perplexity": math.exp(sum(nll) / len(nll)), "tokens_scored": len(nll),
                  "version": llama_cpp.__version__}))
"""


def fail(text):
    sys.stderr.write("perplexity: %s\n" % text)
    sys.exit(1)


def run(line):
    try:
        done = subprocess.run([str(word) for word in line], stdout=subprocess.PIPE)
    except OSError as e:
        fail("%s: %s" % (line[0], e.strerror))
    if done.returncode != 0:
        fail("%s: exit code %d" % (line[0], done.returncode))
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def joined(folder):
    """The text of this repository, as a file."""
    path = os.path.join(folder, "text")
    with open(path, "wb") as out:
        for name in sorted(glob.glob("docs/*.md")) + ["README.md"]:
            with open(name, "rb") as f:
                out.write(f.read())
    return path


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    p.add_argument("-m", "--model", default=MODEL)
    p.add_argument("-f", "--file")
    p.add_argument("-c", "--window", type=int, default=512)
    p.add_argument("--chunks", type=int, default=0)
    p.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--peer", default=os.environ.get("REMAT_PEER"))
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text, tokens = a.file or joined(folder), os.path.join(folder, "tokens")
        ids = run([REMAT, "tokenize", "-m", a.model, "-f", text, "--no-special", "--json"])["tokens"]
        with open(tokens, "w", encoding="ascii") as f:
            f.write(" ".join(map(str, ids)))
        ours = run([REMAT, "eval", "-m", a.model, "--tokens", tokens, "-c", a.window,
                    "-t", a.threads, "--chunks", a.chunks, "--json"])
        out = {"model": os.path.basename(a.model), "window": a.window, "windows": ours["windows"],
               "tokens_scored": ours["tokens_scored"], "perplexity": ours["perplexity"],
               "uncertainty": ours["uncertainty"]}
        if a.peer:
            theirs = run([a.peer, "-c", PEER, a.model, tokens, a.window, ours["windows"],
                          a.threads])
            if theirs["tokens_scored"] != ours["tokens_scored"]:
                fail("the peer has scored %d tokens" % theirs["tokens_scored"])
            out["peer"] = "llama-cpp-python " + theirs["version"]
            out["peer_perplexity"] = theirs["perplexity"]
            out["apart"] = ours["perplexity"] / theirs["perplexity"] - 1
    print(json.dumps(out))
    sys.exit(1 if abs(out.get("apart", 0)) > APART else 0)


if __name__ == "__main__":
    main()
