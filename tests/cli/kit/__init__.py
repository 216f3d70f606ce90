"""What the scripts beside this folder share: run the program, count checks, build small models.

Python 3 and its standard library only. REMAT names the program (default: ./remat of the repository),
SANITIZED=1 says that it is a sanitizer build: then memory and seconds are not looked at.
"""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
REMAT = os.path.abspath(os.environ.get("REMAT", ROOT / "remat"))
GOLDEN = ROOT / "tests" / "golden"
TOYS = GOLDEN / "toys"
TOY = str(TOYS / "toy_base.gguf")
MIB = 1 << 20
TMP = pathlib.Path(tempfile.mkdtemp(prefix="remat-cli-"))
with open(REMAT, "rb") as program:
    _bytes = program.read()
SANITIZED = "SANITIZED" in os.environ or b"__asan_init" in _bytes or b"__tsan_init" in _bytes
# The sanitizer's shadow of a large reservation is slow to write: every run gets a budget.
SMALL = ["--memory", "256M"] if SANITIZED else []
HANGS_S = 600 if SANITIZED else 120  # a run of this many seconds hangs

if SANITIZED:  # inputs stay in memory to the end, on purpose (src/app/input.h)
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0:" + os.environ.get("ASAN_OPTIONS", "")

_passed = _failed = _skipped = 0


def check(name, right, detail=""):
    """One test. detail is shown when it fails."""
    global _passed, _failed
    if right:
        _passed += 1
        print(f"ok {name}", flush=True)
    else:
        _failed += 1
        print(f"FAIL {name}: {' '.join(str(detail).split())[:400]}", flush=True)
    return bool(right)


def skip(reason):
    global _skipped
    _skipped += 1
    print(f"skip: {reason}", flush=True)


def done():
    shutil.rmtree(TMP, ignore_errors=True)
    print(f"{_passed} passed, {_failed} failed")
    sys.exit(1 if _failed else 77 if _passed == 0 else 0)


def real_model():
    """Path of SmolLM2-135M-Instruct.Q4_1, known by its size in bytes; None when it is not there."""
    for path in sorted((ROOT / "models").glob("**/*.gguf")):
        if path.stat().st_size == 98362432:
            return str(path)
    return None


class Run:
    """One finished run. code is negative after a signal; out is bytes, err is text; peak is what the
    kernel says of resident memory: as the run's own JSON has it (VmHWM), else what its parent is
    told, which is at least that of this script (the figure outlives exec)."""

    def __init__(self, *args, stdin=None, source=None, env=None, timeout=HANGS_S, before=None, send=None, cwd=None, **how):
        argv = [REMAT] + [os.fsencode(str(a)) if not isinstance(a, bytes) else a for a in args]
        start = time.monotonic()
        self.timed_out = False
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            how.setdefault("stdout", out)
            how.setdefault("stderr", err)
            how["stdin"] = source or (subprocess.DEVNULL if stdin is None else subprocess.PIPE)
            p = subprocess.Popen(argv, env={**os.environ, **(env or {})}, cwd=cwd or ROOT,
                                 preexec_fn=before or (lambda: None), **how)
            timer = threading.Timer(timeout, self._end, [p])
            timer.start()
            if send is not None:  # (seconds, signal)
                time.sleep(send[0])
                os.kill(p.pid, send[1])
            if stdin is not None and how["stdin"] == subprocess.PIPE:
                try:
                    p.stdin.write(stdin)
                    p.stdin.close()
                except BrokenPipeError:
                    pass
            # Popen's own signals may reap a process that has just ended, and its status is gone. It
            # stays until the timer is out of the way, so that its number means it and no other.
            os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
            timer.cancel()
            timer.join()
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = self.code = os.waitstatus_to_exitcode(status)
            self.seconds = time.monotonic() - start
            out.seek(0)
            err.seek(0)
            self.out, self.err = out.read(), err.read().decode("utf-8", "replace")
        self.peak = usage.ru_maxrss * 1024
        try:
            self.json = json.loads(self.out)
        except ValueError:
            self.json = None
        if isinstance(self.json, dict) and "memory" in self.json:
            self.peak = self.json["memory"]["peak_bytes"]  # the kernel's figure for it alone

    def _end(self, p):
        self.timed_out = True
        os.kill(p.pid, signal.SIGKILL)

    @property
    def lines(self):
        """Lines of stderr without warnings."""
        return [s for s in self.err.splitlines() if not s.startswith("remat: warning: ")]

    def sound(self):
        """No crash, no assertion, no sanitizer finding, no hang."""
        return (0 <= self.code <= 130 and not self.timed_out and "remat: bug" not in self.err
                and "Sanitizer" not in self.err and "runtime error:" not in self.err)

    def refused(self, code):
        """The exit code, one line on stderr, and stdout as the contract wants it."""
        return (self.sound() and self.code == code and len(self.lines) == 1
                and self.lines[0].startswith("remat: "))

    def __repr__(self):
        return f"exit {self.code} after {self.seconds:.2f} s; stderr {self.err[-300:]!r}; stdout {self.out[:120]!r}"


def quick(run, seconds):
    return SANITIZED or run.seconds < seconds


def within(run, budget):
    return SANITIZED or run.peak <= budget


def refuses(name, code, *args, within_s=None, says="", **how):
    """Runs a command that must fail, as text and with --json."""
    r = Run(*args, *SMALL, **how)
    right = r.refused(code) and r.out == b"" and says.lower() in r.err.lower()
    check(name, right and (within_s is None or quick(r, within_s)), f"want exit {code} {says!r}: {r}")
    j = Run(*args, *SMALL, "--json", **how)
    e = (j.json or {}).get("error", {}) if isinstance(j.json, dict) else {}
    names = {1: "failed", 2: "usage", 3: "model", 4: "budget", 5: "context", 130: "interrupted"}
    check(name + " --json", j.refused(code) and e.get("code") == names[code] and
          isinstance(e.get("message"), str) and e["message"] != "" and j.out.count(b"\n") == 1,
          f"want exit {code}: {j}")
    return r


def toy(*args, model=TOY, **how):
    return Run("run", "-m", model, "--raw", *args, *([] if "--memory" in args else SMALL), **how)


def ids(run):
    return run.json.get("tokens") if isinstance(run.json, dict) else None


def write(name, data):
    path = TMP / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


# --- small models --------------------------------------------------------------------------------------

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9


def _text(x):
    b = x if isinstance(x, bytes) else x.encode()
    return struct.pack("<Q", len(b)) + b


def _value(kind, v):
    if kind == STR:
        return _text(v)
    if kind == ARR:
        return struct.pack("<IQ", v[0], len(v[1])) + b"".join(_value(v[0], x) for x in v[1])
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}[kind], v)


class Random:
    """xorshift32: the same files on every machine."""

    def __init__(self, seed=2463534242):
        self.x = seed

    def floats(self, n, size=0.2):
        out = []
        for _ in range(n):
            x = self.x
            x ^= (x << 13) & 0xFFFFFFFF
            x ^= x >> 17
            x ^= (x << 5) & 0xFFFFFFFF
            self.x = x
            out.append((x / 4294967296 - 0.5) * size)
        return struct.pack(f"<{n}f", *out)


def _vocabulary(n):
    tokens, types = ["<unk>", "<s>", "</s>"], [2, 3, 3]
    tokens += [f"<0x{b:02X}>" for b in range(256)]
    types += [6] * 256
    plain = ["\u2581"] + [chr(c) for c in range(97, 123)] + ["\u2581the", "he", "th", "in", "an", "on"]
    plain = plain[:n - len(tokens)]
    tokens += plain
    types += [1] * len(plain)
    while len(tokens) < n:
        tokens.append(f"<pad{len(tokens)}>")
        types.append(4)
    return tokens, types


def model(name, dim=32, ff=64, heads=2, kv_heads=1, head_dim=None, rows=300, words=None, context=128,
          layers=1, size=0.2, keys=(), change=None):
    """Writes a llama model in f32 and returns its path. rows: of the embedding; words: tokens."""
    r = Random()
    hd = head_dim or dim // heads
    tokens, types = _vocabulary(words or rows)
    kv = {
        "general.architecture": (STR, "llama"), "general.name": (STR, "toy"),
        "llama.block_count": (U32, layers), "llama.context_length": (U32, context),
        "llama.embedding_length": (U32, dim), "llama.feed_forward_length": (U32, ff),
        "llama.attention.head_count": (U32, heads), "llama.attention.head_count_kv": (U32, kv_heads),
        "llama.attention.key_length": (U32, hd), "llama.attention.value_length": (U32, hd),
        "llama.rope.dimension_count": (U32, hd // 2 * 2), "llama.rope.freq_base": (F32, 10000.0),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "tokenizer.ggml.model": (STR, "llama"), "tokenizer.ggml.pre": (STR, "default"),
        "tokenizer.ggml.tokens": (ARR, (STR, tokens)),
        "tokenizer.ggml.scores": (ARR, (F32, [-float(i) for i in range(len(tokens))])),
        "tokenizer.ggml.token_type": (ARR, (I32, types)),
        "tokenizer.ggml.bos_token_id": (U32, 1), "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.ggml.unknown_token_id": (U32, 0), "tokenizer.ggml.add_bos_token": (BOOL, 1),
    }
    kv.update(keys)
    one = lambda n: struct.pack(f"<{n}f", *[1.0] * n)
    tensors = [("token_embd.weight", [dim, rows], r.floats(dim * rows, 2)),
               ("output_norm.weight", [dim], one(dim)),
               ("output.weight", [dim, rows], r.floats(dim * rows, 2))]
    for i in range(layers):
        shapes = [("attn_q", dim, heads * hd), ("attn_k", dim, kv_heads * hd), ("attn_v", dim, kv_heads * hd),
                  ("attn_output", heads * hd, dim), ("ffn_gate", dim, ff), ("ffn_up", dim, ff), ("ffn_down", ff, dim)]
        tensors += [(f"blk.{i}.attn_norm.weight", [dim], one(dim)), (f"blk.{i}.ffn_norm.weight", [dim], one(dim))]
        tensors += [(f"blk.{i}.{n}.weight", [k, m], r.floats(k * m, size)) for n, k, m in shapes]
    if change:
        tensors = [change(t) for t in tensors]
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv))
    out += b"".join(_text(k) + struct.pack("<I", t) + _value(t, v) for k, (t, v) in kv.items())
    body = b""
    for n, dims, data in tensors:
        out += _text(n) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        out += struct.pack("<IQ", 0, len(body))
        body += data + b"\0" * (-len(data) % 32)
    out += b"\0" * (-len(out) % 32)
    return write(name, out + body)
