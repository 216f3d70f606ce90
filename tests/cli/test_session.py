#!/usr/bin/env python3
"""remat run --session: going on as if never stopped, damaged and foreign files, interruptions, full disks."""
import hashlib
import resource
import signal

from kit import *

LONG = model("long.gguf", layers=3, context=2048, heads=4, kv_heads=2, head_dim=12, dim=48, ff=100, rows=301)
GREEDY = ["--temp", "0", "--ignore-eos"]
FILE = TMP / "s"
ROWS = 301
prompt = [1] + [100 + i * 7 % 190 for i in range(299)]
more = [100 + i * 11 % 190 for i in range(50)]
PROMPT, MORE = (write(n, " ".join(map(str, t))) for n, t in (("prompt", prompt), ("more", more)))


def run(*args, logits=True, session=FILE, where=LONG, **how):
    """The toy with --session; its logits by their hash."""
    f = TMP / "l.bin"
    f.unlink(missing_ok=True)
    r = toy(*args, "--session", session, *GREEDY, "--json", *(["--logits", f] if logits else []), model=where, **how)
    r.logits = hashlib.sha256(f.read_bytes()).hexdigest()[:16] if f.exists() and f.stat().st_size else None
    r.session = r.json.get("session", {}) if isinstance(r.json, dict) else {}
    return r


def saved(path=FILE):
    """Token ids in the file."""
    data = path.read_bytes()
    count = struct.unpack_from("<I", data, 12)[0]
    return list(struct.unpack_from(f"<{count}I", data, 128))


def others():
    return [f.name for f in TMP.iterdir() if ".tmp-" in f.name]


# --- going on ----------------------------------------------------------------------------------------------
FILE.unlink(missing_ok=True)
r = run("--tokens", PROMPT, "-n", 8)
check("a session is saved", r.code == 0 and r.session == {"loaded_tokens": 0, "loaded_pages": 0, "lost_pages": 0, "saved_bytes": FILE.stat().st_size}, r)
check("it holds prompt and answer", saved() == prompt + ids(r), saved()[-12:])
check("it is private", FILE.stat().st_mode & 0o777 == 0o600)
first = FILE.read_bytes()
all_tokens = prompt + ids(r) + more
f = TMP / "l.bin"
whole = toy("--tokens", write("all", " ".join(map(str, all_tokens))), "-n", 6, *GREEDY, "--json", "--logits", f, model=LONG)
want = hashlib.sha256(f.read_bytes()).hexdigest()[:16]
pages = (len(prompt) + 7 + 63) // 64 * 3
plan = Run("plan", "-m", LONG, "-c", str(len(all_tokens) + 6), "--json", *SMALL).json
for name, args, loaded in (("all", [], pages), ("three threads", ["-t", "3"], pages), ("small chunks", ["-ub", "16"], pages),
                           ("little memory", [] if SANITIZED else ["--memory", str(plan["minimum_bytes"] + (64 << 10))], None),
                           ("no cache", ["--recompute", "full"], 0), ("a page of cache", ["--resident", "64"], 3)):
    FILE.write_bytes(first)
    r = run("--tokens", MORE, "-n", 6, *args)
    right = r.code == 0 and r.logits == want and ids(r) == ids(whole) and r.session["loaded_tokens"] == len(prompt) + 8
    check(f"it goes on with the same bits: {name}", right and (loaded is None or r.session["loaded_pages"] == loaded) and r.err == "", r)
    check(f"and is saved again: {name}", saved() == all_tokens + ids(whole), saved()[-5:])
    check(f"prompt_tokens is the prompt: {name}", r.json and r.json["prompt_tokens"] == len(more), r)
FILE.write_bytes(first)
r = run("--tokens", MORE, "-n", 6, "--session-tokens-only")
check("tokens only: the same bits", r.code == 0 and r.logits == want, r)
check("tokens only: a small file", FILE.stat().st_size < 128 + 4 * len(saved()) + 64 and r.session["saved_bytes"] == FILE.stat().st_size, FILE.stat())
r = run("-p", "", "-n", 4)
check("tokens only: loaded and computed again", r.code == 0 and r.session["loaded_pages"] == 0 and r.session["lost_pages"] == 0 and r.err == "", r)
four = ids(r)
FILE.write_bytes(first)
run("--tokens", MORE, "-n", 6)
r = run("-p", "", "-n", 4)
check("no prompt: the answer goes on", r.code == 0 and ids(r) == four and r.json["prompt_tokens"] == 0, r)
check("no prompt: as in one run", saved()[len(all_tokens):] == ids(toy("--tokens", TMP / "all", "-n", 10, *GREEDY, "--json", model=LONG)), saved())
r = run("-p", "", "-n", 0)
check("no prompt and no answer", r.code == 0 and ids(r) == [], r)
before = saved()
check("nothing pending: it still goes on", run("-p", "", "-n", 2).code == 0 and saved()[:-2] == before)
r = toy("-p", "", "-n", "2", "--session", TMP / "new", model=LONG)
check("a session may begin with the start token alone", r.code == 0 and saved(TMP / "new")[0] == 1, r)
FILE.write_bytes(first)
r = toy("--tokens", MORE, "-n", 3, "--session", FILE, *GREEDY, model=LONG)
check("as text", r.code == 0 and r.err == "" and r.out != b"", r)
FILE.write_bytes(first)
r = run("-p", "x", "-n", 1, logits=False)
check("text that goes on has no start token", r.code == 0 and 1 not in saved()[len(prompt) + 8:], saved()[-4:])

# --- conversations -----------------------------------------------------------------------------------------
TEMPLATE = write("t.jinja", "{% for m in messages %}{{ '<s>' + m.role + ' ' + m.content + '</s>\n' }}{% endfor %}"
                            "{% if add_generation_prompt %}{{ '<s>assistant ' }}{% endif %}")
TALK = ["run", "-m", LONG, "--template", TEMPLATE, "--session", TMP / "talk", "--temp", "0", "--json", *SMALL]
text = lambda t: Run("tokenize", "-m", LONG, "--no-bos", "-p", t, "--json", *SMALL).json["tokens"]
for ending, extra, closing in (("cut off", ["--ignore-eos"], 1), ("with an end token", ["-l", "2+1000"], 0)):
    (TMP / "talk").unlink(missing_ok=True)
    a = Run(*TALK, "-p", "who", "--system", "be", "-n", "5", *extra)
    b = Run(*TALK, "-p", "okay why", "-n", "3", "--ignore-eos")
    got = saved(TMP / "talk")
    tail = [2] * closing + text("<s>x</s>\n<s>user okay why</s>\n<s>assistant ")
    at = tail.index(2, closing) if 2 in tail[closing:] else 0
    tail = [2] * closing + tail[at + 1:]
    n = len(a.json["tokens"]) + a.json["prompt_tokens"]
    check(f"a conversation goes on: {ending}", a.code == 0 and b.code == 0 and got[:1] == [1] and
          got[n:] == tail + b.json["tokens"], (a, b, got[n:], tail))
b = Run(*TALK, "-p", "and", "--system", "be", "-n", "1")
check("--system comes too late", b.code == 0 and b.err.startswith("remat: warning: --system") and b.err.count("\n") == 1, b)
odd = write("odd.jinja", "{{ messages[-1].content }}")
b = Run(*TALK, "-p", "and", "-n", "1", "--template", odd)
check("a template that shows no replies", b.refused(1) and "--raw" in b.err, b)

# --- files that are not right ------------------------------------------------------------------------------
count, page_count = struct.unpack_from("<I", first, 12)[0], struct.unpack_from("<I", first, 20)[0]
table = (128 + 4 * count + 63) // 64 * 64
last_pages = len(first) - 200
for at in (0, 9, 40, 120, 128, 128 + 4 * count - 8, table + 5, table + 32 * page_count - 9, len(first) // 2, last_pages):
    data = bytearray(first)
    for i in range(at, at + 8):
        data[i] ^= 0x40 + i % 7
    FILE.write_bytes(data)
    r = run("--tokens", MORE, "-n", 6)
    if at < table - 8 and at < 128 + 4 * count:
        check(f"8 bytes flipped at {at}: refused and left", r.refused(1) and "session" in r.err and FILE.read_bytes() == data, r)
    else:
        check(f"8 bytes flipped at {at}: healed", r.code == 0 and r.logits == want and r.err.count("\n") == 1 and
              r.err.startswith("remat: warning: session") and r.session["lost_pages"] >= 1, r)
        check(f"8 bytes flipped at {at}: whole again", run("-p", "", "-n", 1).session.get("lost_pages") == 0)
for n in (0, 5, 100, 128, 600, table - 70, table, table + 50, len(first) // 2, len(first) - 1):
    FILE.write_bytes(first[:n])
    r = run("--tokens", MORE, "-n", 6)
    if n < 128 + 4 * count:
        check(f"cut at {n}: refused and left", r.refused(1) and FILE.read_bytes() == first[:n], r)
    else:
        check(f"cut at {n}: healed", r.code == 0 and r.logits == want and r.session["lost_pages"] >= 1 and r.err.count("\n") == 1, r)
FILE.write_bytes(first)
r = run("--tokens", MORE, "-n", 6, "--kv", "f32")
wide = toy("--tokens", TMP / "all", "-n", 6, *GREEDY, "--kv", "f32", "--json", "--logits", f, model=LONG)
check("another cache format is computed again", r.code == 0 and r.session["loaded_pages"] == 0 and r.session["lost_pages"] == page_count and
      "another format" in r.err and r.err.count("\n") == 1 and r.logits == hashlib.sha256(f.read_bytes()).hexdigest()[:16], r)
FILE.write_bytes(first)
sibling = model("sibling.gguf", layers=3, context=2048, heads=4, kv_heads=2, head_dim=12, dim=48, ff=100, rows=ROWS,
                change=lambda t: (t[0], t[1], t[2][::-1] if t[0] == "blk.1.ffn_up.weight" else t[2]))
for where, what in ((sibling, "a sibling of equal shape"), (TOY, "another model")):
    r = run("--tokens", MORE, "-n", 1, where=where)
    check(f"{what} is refused", r.refused(1) and "another model" in r.err and FILE.read_bytes() == first, r)
for c in (10, 307, 350, 357):
    r = run("--tokens", MORE, "-n", 6, "-c", c)
    check(f"-c {c} is too small for it", r.refused(5) and "-c" in r.err and FILE.read_bytes() == first, r)
r = run("--tokens", MORE, "-n", 6, "-c", 364)
check("-c that just fits", r.code == 0 and r.logits == want, r)
refuses("a directory", 1, "run", "-m", LONG, "--raw", "-p", "x", "-n", "1", "--session", TMP, says="directory")
refuses("a device", 1, "run", "-m", LONG, "--raw", "-p", "x", "-n", "1", "--session", "/dev/null", says="regular")
refuses("no such directory", 1, "run", "-m", LONG, "--raw", "-p", "x", "-n", "1", "--session", TMP / "no" / "s", says="no such")
refuses("an empty name", 1, "run", "-m", LONG, "--raw", "-p", "x", "-n", "1", "--session", "", says="empty")
refuses("--session-tokens-only alone", 2, "run", "-m", LONG, "--raw", "-p", "x", "--session-tokens-only", says="--session")
if os.geteuid() != 0:
    FILE.chmod(0)
    refuses("no permission", 1, "run", "-m", LONG, "--raw", "-p", "x", "-n", "1", "--session", FILE, says="permission")
    FILE.chmod(0o600)
check("nothing is left beside it", others() == [], others())

# --- trouble while running ---------------------------------------------------------------------------------
def small_disk(kib):
    def before():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))
    return before


for kib in (1, 4, 20, len(first) >> 10):
    FILE.write_bytes(first)
    r = run("--tokens", MORE, "-n", 6, logits=False, before=small_disk(kib))
    check(f"a disk that is full after {kib} KiB", r.sound() and r.code == 1 and "not saved" in r.err and "as it was" in r.err and
          FILE.read_bytes() == first and others() == [], (r, others()))
r = toy("--tokens", MORE, "-n", 6, "--session", FILE, *GREEDY, model=LONG, before=small_disk(4))
check("the answer is shown all the same", r.code == 1 and len(r.out) == 7 and r.out.endswith(b"\n") and r.err.count("\n") == 1, r)

SLOW = model("slow.gguf", layers=8, context=60000, heads=4, kv_heads=2, head_dim=32, dim=128, ff=512, rows=ROWS)
path = TMP / "slow"
r = run("--tokens", PROMPT, "-n", 50000, logits=False, session=path, where=SLOW, send=(4 if SANITIZED else 1.5, signal.SIGINT), timeout=300)
tokens = saved(path) if path.exists() else []
check("interrupted: what there is is saved", r.code == 130 and r.lines and len(tokens) > 301 and tokens[:300] == prompt, (r, len(tokens)))
n = len(tokens) - len(prompt)
once = toy("--tokens", PROMPT, "-n", n + 5, "-c", 60000, *GREEDY, "--json", model=SLOW, timeout=600)
r = run("-p", "", "-n", 5, session=path, where=SLOW)
check("interrupted: and goes on as in one run", r.code == 0 and tokens[len(prompt):] + ids(r) == ids(once), (r, n))
path.unlink(missing_ok=True)
long_prompt = write("long", " ".join(str(100 + i * 7 % 190) for i in range(50000)))
r = run("--tokens", long_prompt, "-n", 5, logits=False, session=path, where=SLOW, send=(2 if SANITIZED else 0.7, signal.SIGINT), timeout=300)
check("interrupted in the prompt: nothing to save", r.code == 130 and not path.exists(), r)
r = run("--tokens", PROMPT, "-n", 5, logits=False, session=path, where=LONG, env={"REMAT_MEMORY": "1M"}) if not SANITIZED else None
check("a budget that is too small: nothing is written", r is None or (r.code == 4 and not path.exists()), r)

FILE.write_bytes(first)
kinds = set()
for i in range(12):
    r = run("--tokens", MORE, "-n", 6, logits=False, timeout=0.01 + 0.01 * i)
    data = FILE.read_bytes()
    kinds.add(data == first)
    check(f"killed after {10 + 10 * i} ms: old or new", data == first or saved()[:len(all_tokens)] == all_tokens or r.code == 0, r)
    FILE.write_bytes(first)
    for name in others():
        (TMP / name).unlink()
done()
