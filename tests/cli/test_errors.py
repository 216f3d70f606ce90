#!/usr/bin/env python3
"""Wrong usage, paths that are no model, damaged models, streams that fail: exit codes and messages."""
import os
import resource
import subprocess

from kit import *

GOOD = ["-m", TOY, "--raw", "-p", "the"]

# --- usage -----------------------------------------------------------------------------------------------
refuses("no command", 2)
refuses("unknown command", 2, "walk", says="walk")
refuses("no model", 2, "run", "-p", "x", says="-m")
refuses("unknown flag", 2, "run", *GOOD, "--no-such-flag", says="--no-such-flag")
refuses("flag of another command", 2, "info", "-m", TOY, "--temp", "1", says="--temp")
refuses("two inputs", 2, "run", *GOOD, "-f", TOY)
refuses("prompt and -", 2, "run", *GOOD, "-")
for flag in ("-m", "-p", "-n", "--memory", "--stop", "--tokens", "-t", "--logit-bias"):
    r = Run("run", *GOOD, flag)
    check(f"value of {flag} is missing", r.refused(2) and flag in r.err and r.out == b"", r)
for flag, values in {
    "-n": ["12x", "", " 5", "+5", "-3", "99999999999999999999", "1.5", "0x10", "nan", "\u0661"],
    "-c": ["-1", "x", "4294967296", "-"],
    "-t": ["-1", "65", "100000", "two"],
    "-ub": ["513", "-1", "x"],
    "--resident": ["-1", "x"],
    "--memory": ["12Q", "", "K", "nan", "inf", "-5", "1e30G", "5 ", " 5M", "1M ", "1MB!", "0x10", "0x1p30", "0", "M", "1,5G"],
    "--temp": ["x", "nan", "inf", "-inf", "1e400", ""],
    "--top-p": ["1.5", "-0.1", "nan"],
    "--min-p": ["-1", "2"],
    "--seed": ["x", "1.5", "", "99999999999999999999"],
    "-l": ["abc", "5", "5+", "-1+1", "+1", "5+nan", "5+inf", "5-inf", "999999999+1", "300+1", "99999999999999999999+1"],
    "--kv": ["f8", "", "F16"],
    "--cold": ["", "melt"],
    "--recompute": ["never"],
    "--kernels": ["bogus", "AVX2", "x" * 5000],
    "--stop": ["", "s" * 257],
}.items():
    for value in values:
        r = Run("run", *GOOD, "-n", "1", flag, value, *([] if flag == "--memory" else SMALL))
        check(f"{flag} {value[:24]!r} is refused", r.refused(2) and r.out == b"", r)
for flag, value in (("--memory", "-5"), ("-n", "12x"), ("-t", "65"), ("--top-p", "1.5")):
    refuses(f"{flag} {value}", 2, "run", *GOOD, flag, value) if flag != "--memory" else check(
        "--memory -5 --json", (Run("run", *GOOD, flag, value, "--json").json or {}).get("error", {}).get("code") == "usage")
r = Run("run", *GOOD, "-n", "1", *[x for i in range(17) for x in ("--stop", f"s{i}")], *SMALL)
check("17 stops are refused", r.refused(2), r)
r = Run("run", *GOOD, "-n", "1", *[x for i in range(1025) for x in ("-l", f"{i % 300}+0")], *SMALL)
check("1025 biases are refused", r.refused(2), r)
r = Run("run", *GOOD, "-n", "1", *[x for i in range(1024) for x in ("-l", f"{i % 300}+0")], *SMALL)
check("1024 biases are taken", r.code == 0, r)
r = toy("-p", "the", "-n", "3", "-n", "2", "--temp", "9", "--temp", "0", "--json", "--ignore-eos")
check("an option given twice: the last counts", r.code == 0 and len(ids(r)) == 2, r)
r = toy("-p", "--json", "-n", "2")
check("a value that looks like --json is a value", r.code == 0 and r.json is None, r)
r = toy("--stop", "--json", "-p", "the", "-n", "2")
check("a stop text that looks like --json is a stop text", r.code == 0 and r.json is None, r)
for args in (["--help"], ["-h"], ["help"], ["run", "--help"], ["score", "-h"], ["plan", "--help"]):
    r = Run(*args)
    check(f"{' '.join(args)} is help on stdout", r.code == 0 and r.out.startswith(b"usage: remat") and r.err == "", r)
r = Run("run", "-m", TOY, "-p", b"\xff\xfe\x80bad", "-n", "1", "--raw", "--json", *SMALL)
check("an argument that is not UTF-8", r.code == 0 and r.json is not None, r)
r = Run("run", "-m", TOY, "-p", "x", b"--\xff\xfe\x1b[31m", "--json")
check("an unknown flag that is not UTF-8", r.refused(2) and "error" in (r.json or {}), r)
check("no control characters of an argument reach the terminal", "\x1b" not in r.err, r)
r = Run("run", "-m", TOY, "--raw", "-n", "1", "-p", "the " * 30000, *SMALL)
check("a very long argument", r.refused(5) and r.out == b"", r)

# --- paths that are no model ------------------------------------------------------------------------------
text = write("text.txt", "# just some text\n" * 100)
os.mkfifo(TMP / "fifo")
(TMP / "loop").symlink_to(TMP / "loop")
data = open(TOY, "rb").read()
for what, path, code, says in (
    ("a missing path", TMP / "absent.gguf", 1, "absent.gguf"),
    ("a missing folder", TMP / "absent" / "x.gguf", 1, "x.gguf"),
    ("a file as a folder", text + "/x.gguf", 1, "x.gguf"),
    ("a directory", TMP, 1, "directory"),
    ("an empty file", write("empty.gguf", b""), 3, "empty"),
    ("a text file", text, 3, "GGUF"),
    ("a FIFO nobody writes to", TMP / "fifo", 1, "fifo"),
    ("/dev/zero", "/dev/zero", 1, "/dev/zero"),
    ("/dev/null", "/dev/null", 1, "/dev/null"),
    ("a terminal", "/dev/tty", 1, ""),
    ("a link to itself", TMP / "loop", 1, "loop"),
    ("an empty name", "", 1, ""),
    ("a magic and no more", write("magic.gguf", b"GGUF"), 3, "header"),
    ("half a model", write("half.gguf", data[:len(data) // 2]), 3, "tensor"),
    ("a model without its last byte", write("less.gguf", data[:-1]), 3, "tensor"),
):
    for command in (["run", "-p", "x", "-n", "1"], ["info"], ["plan"]):
        refuses(f"{command[0]}: {what}", code, *command, "-m", path, within_s=1, says=says)
locked = write("locked.gguf", data)
os.chmod(locked, 0)
os.chmod(TMP, 0o755)
try:
    nobody = (lambda: os.setuid(65534)) if os.getuid() == 0 else None
    refuses("a file without read permission", 1, "run", "-p", "x", "-m", locked, within_s=1, says="permission", before=nobody)
except (PermissionError, subprocess.SubprocessError):
    skip("a file without read permission: another user cannot run the program here")

# The reason must survive a long path, and odd bytes in a name must not break JSON.
deep = TMP / ("d" * 120) / ("e" * 120) / ("f" * 60)
deep.mkdir(parents=True)
for name, want in (("toy_nan", "finite"), ("h16_head_count_zero", "head_count"), ("h14_offset_past_end", "end"), ("h12_elements_wrap", "dimension")):
    source = (TOYS if name.startswith("toy") else GOLDEN / "badgguf") / (name + ".gguf")
    path = deep / (name + ".gguf")
    path.write_bytes(source.read_bytes())
    r = Run("run", "-m", path, "--raw", "-p", "x", "-n", "1", *SMALL)
    check(f"the reason survives a long path: {name}", r.sound() and r.code in (1, 3) and want in r.err, r)
odd = os.fsencode(TMP) + b"/m\xff\xfe\"\n\x1b[1m.gguf"
with open(odd, "wb") as f:
    f.write(data)
r = Run("run", "-m", odd, "--raw", "-p", "the", "-n", "1", "--json", *SMALL)
check("a file name with odd bytes, in JSON", r.code == 0 and r.json is not None, r)
r = Run("run", "-m", odd + b"x", "-p", "the", "--json")
check("a missing file name with odd bytes, in JSON", r.refused(1) and "error" in (r.json or {}), r)
check("no control characters of a path reach the terminal", "\x1b" not in r.err, r)

# --- damaged models ---------------------------------------------------------------------------------------
manifest = json.loads((GOLDEN / "badgguf" / "manifest.json").read_text())
for row in sorted(manifest, key=lambda row: row["expect"] != "load"):
    path = TMP / "model.gguf"  # a neutral name: the file's own name tells the fault
    path.write_bytes((GOLDEN / "badgguf" / row["file"]).read_bytes())
    field = row["field"] if row["expect"] != "load" else ""
    names = {field.lower(), field.split(".")[-1].lower(), field.replace("_", " ").lower()} - {"weight"}
    if field == "n_dims":
        names.add("dimensions")
    for command in (["run", "--raw", "-p", "the", "-n", "4", "--temp", "0"], ["info"], ["plan", "-c", "64"]):
        r = Run(command[0], "-m", path, *command[1:], *SMALL)
        if row["expect"] == "load":
            right = r.code == 0 and r.out != b""
        elif command[0] == "run" and row["expect"] == "reject":
            right = r.refused(3) and any(n in r.err.lower() for n in names)
        else:  # info and plan may take a file whose fault is elsewhere
            right = r.sound() and (r.code == 0 or r.refused(3))
        check(f"{command[0]}: {row['file']}", right and quick(r, 2) and within(r, 48 * MIB), f"{row['expect']} {field}: {r}")
outs = {c: ids(toy("-p", "the", "-n", "8", "--temp", "0", "--ignore-eos", "--json", model=GOLDEN / "badgguf" / f"{c}.gguf"))
        for c in ("c01_plain", "c02_unusual_valid", "c03_version2")}
check("valid but uncommon files give the same tokens", len(set(map(str, outs.values()))) == 1 and None not in outs.values(), outs)
for name in ("toy_nan", "toy_inf"):
    r = Run("run", "-m", TOYS / f"{name}.gguf", "--raw", "-p", "the", "-n", "4", *SMALL)
    check(f"run: {name} is an error that names what is not finite", (r.refused(3) or r.refused(1)) and "finite" in r.err and r.out == b"", r)

# --- streams that fail ------------------------------------------------------------------------------------
with open("/dev/full", "wb") as full:
    for args in (["run", *GOOD, "-n", "3"], ["run", *GOOD, "-n", "3", "--json"], ["info", "-m", TOY], ["--help"],
                 ["score", "-m", TOY, "-p", "the thing"], ["tokenize", "-m", TOY, "-p", "the"]):
        r = Run(*args, *([] if args == ["--help"] else SMALL), stdout=full)
        check(f"/dev/full as stdout: {args[0]} {args[-1]}", r.refused(1) and "standard output" in r.err, r)
for args in (["run", *GOOD, "-n", "100", "--ignore-eos"], ["info", "-m", TOY, "--json"]):
    p = subprocess.Popen([REMAT, *args, *SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(1)
    p.stdout.close()
    err = p.stderr.read().decode()
    p.stderr.close()
    p.wait()
    check(f"a reader that leaves early: {args[0]}", p.returncode in (0, 1) and "bug" not in err, f"{p.returncode} {err}")
for what, path in (("a folder", TMP), ("a missing folder", TMP / "no" / "x"), ("no name", "")):
    refuses(f"--logits to {what}", 1, "run", *GOOD, "-n", "1", "--logits", path)
r = Run("run", *GOOD, "-n", "1", "--logits", "/dev/full", *SMALL)
check("--logits to a full disk", r.refused(1), r)


def closed(*fds):
    def close():
        for fd in fds:
            os.close(fd)
    return close


# A file opened in place of a closed standard stream must not be taken for it.
r = Run("run", "-m", TOY, "-n", "2", *SMALL, before=closed(0), timeout=20)
check("closed stdin and no prompt", r.sound() and r.code in (1, 2) and len(r.lines) == 1 and r.out == b"", r)
r = Run("run", "-m", TOY, "-n", "2", "-", *SMALL, before=closed(0), timeout=20)
check("closed stdin as prompt", r.sound() and r.code in (1, 2) and len(r.lines) == 1 and r.out == b"", r)
logits = str(TMP / "logits")
r = Run("run", *GOOD, "-n", "2", "--ignore-eos", "--logits", logits, *SMALL, before=closed(0, 1), timeout=20)
size = os.path.getsize(logits) if os.path.exists(logits) else 0
check("closed stdin and stdout: logits stay logits", r.refused(1) and size in (0, 1200, 2400), f"{size} bytes; {r}")
Run("run", *GOOD, "-n", "2", "--ignore-eos", "--logits", logits, *SMALL, before=closed(0, 1, 2), timeout=20)
size = os.path.getsize(logits)
check("all standard streams closed: logits stay logits", size in (0, 1200, 2400), f"{size} bytes")

# --- limits of the system ---------------------------------------------------------------------------------
if not SANITIZED:
    limit = lambda kind, n: lambda: resource.setrlimit(kind, (n, n))
    r = Run("run", *GOOD, "-n", "2", before=limit(resource.RLIMIT_AS, 300 * MIB))
    check("auto budget under a limit of addresses", r.sound() and (r.code == 0 or r.refused(4) or r.refused(1)), r)
    r = Run("run", *GOOD, "-n", "2", "--memory", "64M", before=limit(resource.RLIMIT_AS, 300 * MIB))
    check("a budget under a limit of addresses", r.code == 0, r)
    r = Run("run", *GOOD, "-n", "2", "--memory", "64M", "--logits", logits, before=limit(resource.RLIMIT_NOFILE, 4))
    check("no descriptor left", r.refused(1), r)
    r = Run("run", *GOOD, "-n", "2", "--memory", "1000000G")
    check("a budget beyond all addresses works or says so", r.code == 0 or ("reserve" in r.err and r.code != 4 and r.sound()), r)
done()
