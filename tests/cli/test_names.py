#!/usr/bin/env python3
"""Other names: llama.cpp's options, the environment, escapes, version, help, completion, the man page."""
import fcntl
import pty
import re
import select
import shlex
import termios

from kit import *

BASE = ["-p", "the thing he an on", "--temp", "0", "--ignore-eos", "-n", "8"]
COMMANDS = ["run", "score", "eval", "plan", "bench", "info", "tokenize", "template", "detokenize", "completion", "version"]


def tokens(*args, **how):
    r = toy(*args, "--json", **how)
    return ids(r) if r.code == 0 else r


# --- names of llama.cpp ----------------------------------------------------------------------------------
greedy = tokens(*BASE)
check("the model answers", isinstance(greedy, list) and len(greedy) == 8, greedy)
for flags in ("--ctx-size 64", "-c 64", "--threads 1", "-tb 1", "--threads-batch 1", "-b 2048", "-b 2048 -ub 512", "--batch-size 7",
              "--ubatch-size 5", "--no-mmap", "--mlock", "-fa on", "-fa off", "-fa", "--flash-attn auto", "-ngl 99", "-cb",
              "--jinja", "-ctk f16 -ctv f16", "--cache-type-k f16 --cache-type-v f16", "-s 5", "--repeat-last-n 64", "--no-escape"):
    got = tokens(*BASE, *flags.split())
    check(f"{flags}: the same answer", got == greedy, got)
check("--n-predict, --predict", tokens(*BASE, "--n-predict", 3) == greedy[:3] and tokens(*BASE, "--predict", 2) == greedy[:2])
check("--temperature", tokens(*BASE, "--temp", "3", "--temperature", "0") == greedy)
r = Run("run", "-m", TOY, "-no-cnv", *BASE, "--json", *SMALL)
check("-no-cnv is --raw", ids(r) == greedy, r)
text = toy(*BASE, "--json").json["text"]
stop = next(c for c in text[1:] if c.isalpha() and c.isascii() and c != text[0])
for name in ("--stop", "-r", "--reverse-prompt"):
    r = toy(*BASE, name, stop, "--json")
    check(f"{name} ends the answer", r.code == 0 and r.json["text"] == text[:text.index(stop)] and r.json["finish_reason"] == "stop", r)
r = toy(*BASE, "--no-mmap", "-fa", "on", "-ngl", "99", "--mlock")
check("one warning for all options without effect", r.code == 0 and
      r.err == "remat: warning: --no-mmap, -fa, -ngl, --mlock: no effect here\n", r)
r = toy(*BASE, "-fa", "maybe")
check("-fa takes no other word", r.refused(2) and "maybe" in r.err, r)
check("-b bounds -ub", [Run("plan", "-m", TOY, "-c", "100", *f.split(), "--json", *SMALL).json["chunk_rows"]
                        for f in ("-b 32", "-b 32 -ub 64", "-b 64 -ub 32", "-b 2048 -ub 32")] == [32, 32, 32, 32])
for flags in ("--mirostat 2", "-np 2", "--typical 0.9", "--grammar x", "--lora x", "--n-predict", "-ngl"):
    r = toy("-p", "the", *flags.split())
    check(f"{flags} stays an error", r.refused(2), r)

# --- escapes ---------------------------------------------------------------------------------------------
count = lambda *args, **how: (Run("tokenize", "-m", TOY, *args, "--json", *SMALL, **how).json or {}).get("tokens")
plain = count("-p", "a\nb\t\"'\\\x41")
check("escapes with -e", count("-e", "-p", r"a\nb\t\"\'\\\x41") == plain and count("-p", r"a\nb\t\"\'\\\x41", "--escape") == plain)
check("no escapes without", count("-p", r"a\nb") == count("-f", write("raw.txt", r"a\nb")) != count("-e", "-p", r"a\nb"))
check("-e and then --no-escape", count("-e", "--no-escape", "-p", r"a\nb") == count("-p", r"a\nb"))
check("a file is never escaped", count("-e", "-f", write("raw.txt", r"a\nb")) == count("-p", r"a\nb"))
for odd in ("\\", "\\q", "\\x", "\\x4", "\\xg1", "\\x00", "a\\"):
    check(f"{odd!r} is no escape", count("-e", "-p", odd) == count("-p", odd))
check("escapes in a stop text", tokens(*BASE, "-e", "-r", "\\x%02x" % ord(text[0])) == tokens(*BASE, "-r", text[0]))

# --- environment -----------------------------------------------------------------------------------------
env = lambda *args, **vars: Run(*args, *SMALL, "--json", env=vars)
run = ["run", "--raw", "-p", "the thing he an on", "--ignore-eos"]
check("options from the environment", ids(env(*run, REMAT_MODEL=TOY, REMAT_TEMP="0", REMAT_PREDICT="8")) == greedy)
check("a flag wins", ids(env(*run, "-m", TOY, "--temp", "0", "-n", "8", REMAT_MODEL="/none", REMAT_TEMP="9", REMAT_PREDICT="3")) == greedy)
r = env(*run, "-m", TOY, "--temperature", "0", "-n", "4", REMAT_TEMP="9")
check("also under its other name", ids(r) == greedy[:4], r)
r = env(*run, "-m", TOY, REMAT_TEMP="warm")
check("a bad value names the variable", r.refused(2) and "REMAT_TEMP" in r.err, r)
r = env(*run, "-m", TOY, "--temp", "0", "-n", "4", REMAT_TEMP="warm", REMAT_SEED="")
check("what is not used is not looked at", ids(r) == greedy[:4], r)
r = env("info", "-m", TOY, REMAT_TEMP="warm")
check("nor what is of other commands", r.code == 0, r)
r = env(*run, "-m", TOY, "-n", "1", REMAT_KERNELS="bogus")
check("REMAT_KERNELS", r.refused(2) and "bogus" in r.err, r)
r = Run("run", "--help", env={"REMAT_TEMP": "warm"})
check("help needs no environment", r.code == 0, r)
r = env(*run, "-m", TOY, "-n", "1", REMAT_MEMORY="64K") if not SANITIZED else None
check("REMAT_MEMORY", SANITIZED or r.refused(4), r)
r = Run("template", "--template", write("t.jinja", "{{ 1 + 1 }}"), env={"REMAT_MODEL": "/none"})
check("a template needs no model, given or not", r.out == b"2", r)

# --- version and help ------------------------------------------------------------------------------------
version = json.loads(Run("--version", "--json").out)
check("--version --json", version["name"] == "remat" and version["version"].count(".") == 2, version)
for args in (["--version"], ["version"]):
    check(f"{' '.join(args)}", Run(*args).out.decode() == f"remat {version['version']}\n")
for command in [None] + COMMANDS:
    for all_ in ([], ["all"]) if command else ([],):
        r = Run(*([command] if command else []), "--help", *all_)
        lines = r.out.decode().splitlines()
        check(f"{command} --help {' '.join(all_)} fits", r.code == 0 and max(map(len, lines)) <= 80 and (all_ or len(lines) <= 26), r)
        check(f"{command} --help {' '.join(all_)} has no blank at an end", not any(s != s.rstrip() for s in lines), lines)
for args, says in (["csh"], "csh"), ([], "bash"), (["bash", "zsh"], "zsh"), (["--json"], "--json"):
    r = Run("completion", *args)
    check(f"completion {' '.join(args)} is refused", r.refused(2) and says in r.err, r)

# --- man page --------------------------------------------------------------------------------------------
page = ROOT / "docs" / "man" / "remat.1"
r = subprocess.run([sys.executable, ROOT / "scripts" / "man", "--check", REMAT], capture_output=True, text=True)
check("docs/man/remat.1 has the options of the program (make man)", r.returncode == 0, r.stdout + r.stderr)
check("docs/man/remat.1 has its version", f'"remat {version["version"]}"' in page.read_text())
if shutil.which("groff"):
    r = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z", page], capture_output=True, text=True)
    check("docs/man/remat.1 has no mistake in it", r.returncode == 0 and r.stderr == "", r.stderr)
else:
    skip("the man page: no groff")

# --- completion ------------------------------------------------------------------------------------------
HELP = {c: Run(c, "--help", "all").out.decode() for c in COMMANDS}
NAMES = {c: set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(s[2:].split("  ")[0] for s in HELP[c].splitlines() if s.startswith("  -"))))
         for c in COMMANDS}
folder = TMP / "with files"
folder.mkdir()
for name in ("model one.gguf", "model2.gguf", "other.txt"):
    (folder / name).write_bytes(b"")
(folder / "remat").symlink_to(REMAT)
PATHS = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(TMP)}


def shell(program, *args, text):
    return subprocess.run([program, *args], input=text, capture_output=True, text=True, cwd=folder, env=PATHS, timeout=60)


def bash(*words):
    script = f"source <({shlex.quote(REMAT)} completion bash)\nCOMP_WORDS=({' '.join(map(shlex.quote, words))})\n"
    script += f"COMP_CWORD={len(words) - 1}\n_remat\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    r = shell("bash", "--norc", text=script)
    return set(r.stdout.splitlines()) - {""} if r.returncode == 0 and r.stderr == "" else r


def fish(*words):
    line = shlex.quote(" ".join(words))
    r = shell("fish", "--no-config", text=f"source ({shlex.quote(REMAT)} completion fish | psub)\ncomplete -C{line}\n")
    return {s.split("\t")[0] for s in r.stdout.splitlines()} if r.stderr == "" else r


if shutil.which("bash"):
    check("bash: commands", bash("remat", "") == {*COMMANDS, "--help", "--version"}, bash("remat", ""))
    check("bash: commands by their beginning", bash("remat", "te") == {"template"})
    for c in COMMANDS:
        check(f"bash: options of {c}", bash("remat", c, "-") == NAMES[c], bash("remat", c, "-"))
    check("bash: models", bash("remat", "run", "-m", "mod") == {"model one.gguf", "model2.gguf"}, bash("remat", "run", "-m", "mod"))
    check("bash: words of an option", bash("remat", "run", "--kv", "") == {"f16", "f32"} and
          bash("remat", "run", "-fa", "o") == {"on", "off"}, bash("remat", "run", "--kv", ""))
    check("bash: nothing for a number", bash("remat", "run", "-n", "") == set())
    check("bash: shells", bash("remat", "completion", "f") == {"fish"}, bash("remat", "completion", "f"))
else:
    skip("completion of bash: no bash")
if shutil.which("fish"):
    check("fish: commands", fish("remat", "") == set(COMMANDS), fish("remat", ""))
    for c in COMMANDS[:7]:
        want = NAMES[c]
        got = fish("remat", c, "-") | fish("remat", c, "--")
        check(f"fish: options of {c}", {n for n in want if n.startswith("--")} <= got, want - got)
        check(f"fish: no options of others at {c}", {n for n in got if n.startswith("--")} <= want, got - want)
    check("fish: models", {"model one.gguf", "model2.gguf"} <= {s.replace("\\", "") for s in fish("remat", "run", "-m", "mod")}, fish("remat", "run", "-m", "mod"))
    check("fish: words of an option", fish("remat", "run", "--kv", "''") == {"f16", "f32"} or fish("remat", "run", "--kv", "f") == {"f16", "f32"},
          fish("remat", "run", "--kv", "f"))
else:
    skip("completion of fish: no fish")
if shutil.which("zsh"):
    def zsh(line):
        """What an interactive zsh shows when the line is completed: a terminal of its own, for
        _arguments works nowhere else."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 100, 200, 0, 0))
        p = subprocess.Popen(["zsh", "-f", "-i"], stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=PATHS,
                             start_new_session=True)
        os.close(slave)
        setup = (f"PS1=; autoload -Uz compinit; compinit -u -D; source <({shlex.quote(REMAT)} completion zsh); "
                 "setopt no_auto_menu list_ambiguous; LISTMAX=10000; bindkey '^I' list-choices; print REA''DY\n")
        out, text, end = b"", [setup, line + "\t"], time.monotonic() + 30
        while time.monotonic() < end:
            if text and (len(text) == 2 or b"READY" in out):
                out = b"" if len(text) == 1 else out
                os.write(master, text.pop(0).encode())
            ready = select.select([master], [], [], 20 if b"\n" not in out or text else 1)[0]
            if not ready:
                break
            try:
                out += os.read(master, 65536)
            except OSError:
                break
        p.kill()
        p.wait()
        os.close(master)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.decode("utf-8", "replace"))

    r = shell("zsh", "-n", text=Run("completion", "zsh").out.decode())
    check("zsh: the script is sound", r.returncode == 0 and r.stderr == "", r.stderr)
    out = zsh("remat ")
    check("zsh: commands", all(c in out for c in COMMANDS), out)
    out = zsh("remat run --re")
    check("zsh: options", all(n in out for n in ("--recompute", "--repeat-penalty", "--resident", "--reverse-prompt")), out)
    out = zsh("remat run --recompute ")
    check("zsh: words of an option", all(n in out for n in ("auto", "full", "block")), out)
else:
    skip("completion of zsh: no zsh")
done()
