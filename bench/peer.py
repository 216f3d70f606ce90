#!/usr/bin/env python3
"""One prompt and answer by llama.cpp, timed; bench/speed.py runs this by a Python with llama_cpp.

    peer.py MODEL TOKENS NEW THREADS CONTEXT on|off    TOKENS: a file of ids; on: flash attention
    peer.py --about                                    the package's version and instruction sets

Prints one line of JSON. Loading and a warm-up of 64 tokens are not in the times. As in remat, the
first token of the answer comes out of the prompt, so NEW tokens are timed as NEW - 1.
"""
import json
import sys
import time

import llama_cpp
import numpy

WARM_UP = 64  # tokens


def about():
    """Instruction sets as llama.cpp names them: a build without one cannot use it."""
    words = llama_cpp.llama_print_system_info().decode().replace("|", ":").split(":")
    used = [w.split("=")[0].strip() for w in words if w.strip().endswith("= 1")]
    return {"version": llama_cpp.__version__, "features": used}


def peak_bytes():
    with open("/proc/self/status", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def greedy(m):
    """The likeliest next token; waits for the last computation to end."""
    row = numpy.ctypeslib.as_array(m._ctx.get_logits_ith(-1), shape=(m.n_vocab(),))
    return int(row.argmax())


def measure(model, path, new, threads, context, flash):
    with open(path, encoding="ascii") as f:
        tokens = [int(word) for word in f.read().split()]
    # A cache of the window's size for layers that see no more, as llama.cpp's own programs have it.
    m = llama_cpp.Llama(model, n_ctx=context, n_threads=threads, n_threads_batch=threads,
                        n_batch=2048, n_ubatch=512, flash_attn=flash, swa_full=False,
                        verbose=False)
    m.eval((tokens * WARM_UP)[:min(WARM_UP, context)])
    greedy(m)
    m.reset()
    m._ctx.kv_cache_clear()
    begin = time.perf_counter()
    m.eval(tokens)
    token = greedy(m)
    prompt_end = time.perf_counter()
    for _ in range(new - 1):
        m.eval([token])
        token = greedy(m)
    end = time.perf_counter()
    return {"prefill_tok_s": len(tokens) / (prompt_end - begin),
            "decode_tok_s": (new - 1) / (end - prompt_end), "peak_bytes": peak_bytes()}


def main():
    words = sys.argv[1:]
    if words == ["--about"]:
        print(json.dumps(about()))
    elif len(words) == 6 and words[5] in ("on", "off"):
        print(json.dumps(measure(words[0], words[1], int(words[2]), int(words[3]), int(words[4]),
                                 words[5] == "on")))
    else:
        sys.exit("usage: peer.py MODEL TOKENS NEW THREADS CONTEXT on|off, or peer.py --about")


if __name__ == "__main__":
    main()
