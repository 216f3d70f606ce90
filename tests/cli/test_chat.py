#!/usr/bin/env python3
"""The chat of `remat run` through a pseudo-terminal: lines, keys, commands, signals, files."""
import fcntl
import pty
import re
import select
import stat
import signal
import termios

from kit import *

SM = None if SANITIZED else real_model()
# The real model in models/, and without it a small one that writes nonsense.
MODEL = SM or model("chat.gguf", context=2048)
STATE = TMP / "state"
ASK = b"\x1b[?2004h"  # bracketed paste on: a line is read
WAIT = 240 if SANITIZED else 90


class Chat:
    """A chat at a terminal of its own. say() returns what is shown up to the next prompt."""

    def __init__(self, *args, env=None, size=(24, 100), budget="200M", ask=True):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            e = {**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(STATE), "NO_COLOR": "1", **(env or {})}
            argv = ["remat", "run", "-m", MODEL, "--memory", budget, *map(str, args)]
            os.execve(REMAT, argv, e)
        self.resize(*size)
        self.code, self.all = None, b""
        if ask:
            self.hello = self.until(ASK)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, what, seconds=WAIT):
        out, end = b"", time.monotonic() + seconds
        while what not in out and time.monotonic() < end:
            if not select.select([self.fd], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            out += data
        self.all += out
        return out.decode("utf-8", "replace").replace("\r\n", "\n")

    def send(self, data):
        data = data if isinstance(data, bytes) else data.encode()
        while data:  # both ways: the echo of a long line fills the terminal
            can = select.select([self.fd] if len(data) > 512 else [], [self.fd], [], WAIT)
            if can[0]:
                self.all += os.read(self.fd, 65536)
            elif can[1]:
                n = os.write(self.fd, data[:256])
                data = data[n:]
            else:
                return

    def say(self, text, *more):
        """What the chat answers, without the echo and the timings."""
        self.send(text + "\r")
        out = self.until(ASK)
        for line in more:
            self.send(line + "\r")
            out = self.until(ASK)
        at = out.find("\x1b[?2004l")
        out = out[at + len("\x1b[?2004l"):] if at >= 0 else out
        out = out[:out.rfind(ASK.decode())]
        return re.sub(r"\[prompt \d+.*\]\n", "", out).strip("\r")

    def end(self, seconds=WAIT):
        """Waits for the end and returns the exit code, or None."""
        stop = time.monotonic() + seconds
        while self.code is None and time.monotonic() < stop:
            self.until(b"\0none\0", 0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
        return self.code

    def peak(self):
        with open(f"/proc/{self.pid}/status") as f:
            return int(re.search(r"VmHWM:\s+(\d+)", f.read())[1]) * 1024


def reply(text):
    """Without the notes in brackets."""
    return "\n".join(s for s in text.split("\n") if not s.startswith("(")).rstrip("\n")


GREEDY = ["--temp", "0", "-n", "12"]
SYSTEM = ["--system", "You answer in one short sentence."]

# --- replies ---------------------------------------------------------------------------------------------
r = Run("run", "-m", MODEL, "-p", "What is the capital of France?", *GREEDY, *SYSTEM, "--memory", "200M")
want = r.out.decode("utf-8", "replace").rstrip("\n")
c = Chat(*GREEDY, *SYSTEM)
check("the first line names context, budget and predicted peak",
      re.search(r"context \d+, budget 200\.0 MiB, predicted peak [\d.]+ MiB", c.hello), c.hello)
first = c.say("What is the capital of France?")
if SM:
    check("the first reply is that of remat run", reply(first) == want, f"{first!r}, want {want!r}")
else:  # the toy writes control characters, which a terminal does not get
    visible = "".join(x for x in want if x in "\n\t" or (ord(x) >= 32 and not 0x7f <= ord(x) < 0xa0))
    check("the first reply is that of remat run", reply(first).replace("\ufffd", "") == visible.rstrip("\n").replace("\ufffd", ""),
          f"{first!r}, want {visible!r}")
second = c.say("And of Italy?")
check("a second turn", len(second) > 0 and "remat:" not in second, second)
check("/regen gives the same greedy reply", c.say("/regen") == second, second)
check("/undo and again give the same reply", "taken back" in c.say("/undo") and c.say("And of Italy?") == second, second)
out = c.say("/tokens")
check("/tokens counts", re.search(r"^\d+ tokens of \d+ in 5 messages", out), out)
out = c.say("/mem")
check("/mem shows the accounts and the cache", all(w in out for w in ("peak", "weights", "kv", "tokens 0 to")), out)
out = c.say("/stats")
check("/stats shows speeds", "last reply: prompt" in out and "threads" in out, out)

# --- files -------------------------------------------------------------------------------------------------
saved = TMP / "talk.json"
out = c.say(f"/save {saved}")
doc = json.loads(saved.read_bytes()) if saved.exists() else {}
check("/save writes JSON", "5 messages saved" in out and [m["role"] for m in doc["messages"]] ==
      ["system", "user", "assistant", "user", "assistant"] and doc["messages"][3]["content"] == "And of Italy?", out)
check("/save leaves nothing else", [p.name for p in TMP.glob("talk.json*")] == ["talk.json"])
third = c.say("And of Spain?")
out = c.say("/save /nowhere/talk.json")
check("/save to no place says so", "not saved" in out or "remat: " in out, out)
check("a home that is not there is not made", not pathlib.Path("/nowhere").exists())
out = c.say("/save /dev/null")
check("/save does not replace a device", "no file" in out and stat.S_ISCHR(os.stat("/dev/null").st_mode), out)
c.say("/clear")
check("/load and the next reply are as before", "5 messages loaded" in c.say(f"/load {saved}") and
      c.say("And of Spain?") == third, third)
for name, text in (("damaged", '{"messages": [{"role": "user", "con'), ("a number", "7"), ("roles", '[{"role": "x", "content": ""}]'),
                   ("late system", '[{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]'),
                   ("deep", "[" * 100000), ("long", json.dumps([{"role": "user", "content": "x" * 5000000}]))):
    out = c.say("/load " + write("bad.json", text))
    check(f"/load refuses: {name}", "not loaded" in out, out)
again = TMP / "again.json"
c.say("/undo")
c.say(f"/save {again}")
check("after refused loads nothing is lost", json.loads(again.read_bytes()) == doc)
note = write("note.txt", "A note: the sky is green today.\n")
out = c.say(f"/read {note}")
check("/read takes a file", "32 bytes" in out, out)
c.say("What does it say?")
c.say(f"/save {again}")
text = json.loads(again.read_bytes())["messages"][-2]["content"]
check("/read goes before the message", text == "A note: the sky is green today.\n\n\nWhat does it say?", text)
check("/read of nothing", "remat: " in c.say("/read /nowhere"))
check("/read without a name", "missing" in c.say("/read"))

# --- lines -------------------------------------------------------------------------------------------------


def sent(*lines):
    """The message that these lines make."""
    c.say(*lines)
    c.say(f"/save {again}")
    got = json.loads(again.read_bytes())["messages"][-2]["content"]
    c.say("/undo")
    return got


c.say("/set predict 2")
check("a backslash goes on", sent("one \\", "two") == "one \ntwo")
check("quotes hold several lines", sent('"""one', "two \\", "", 'three"""') == "one\ntwo \\\n\nthree")
check("quotes on their own lines", sent('"""', "/one", "two", '"""') == "/one\ntwo")
check("quotes on one line", sent('"""one"""') == "one")
check("a paste of several lines is one message", sent("\x1b[200~one\r\ttwo\n/three\x1b[201~ four") == "one\n\ttwo\n/three four")
check("other letters", sent("Gr\u00fc\u00dfe, \u4f60\u597d \U0001f600") == "Gr\u00fc\u00dfe, \u4f60\u597d \U0001f600")
c.send(b"a\xffb\xc3(\xe2\x82 c\xed\xa0\x80\r")
c.until(ASK)
c.say(f"/save {again}")
got = json.loads(again.read_bytes())["messages"][-2]["content"]
check("bytes that are not UTF-8", got.startswith("a\ufffdb\ufffd(\ufffd c") and "\ufffd" in got[8:], got)
c.say("/undo")
long = "word " * (1000 if SM else 200)
check("a long line", sent(long.strip()) == long.strip())
out = c.say("x" * 33000)
check("a line that is too long is not sent in part", "not sent" in out, out[-200:])
check("a blank before a slash makes it text", sent(" /help") == " /help")
out = c.say("/nope")
check("unknown commands say so", "no such command" in out, out)
c.send("/he\t")
c.until(b"/help")
out = c.say("")
check("Tab completes", "/regen" in out and "/undo" in out, out)
check("an empty line is nothing", c.say("   ") == "")
c.resize(10, 30)
c.send("resize me ")
c.until(b"me ")
c.resize(40, 120)
check("a resize in mid line", sent("now") == "resize me now")

# --- settings ----------------------------------------------------------------------------------------------
out = c.say("/set")
check("/set lists", "temp 0, top_k 40" in out and "predict 2" in out and "reasoning auto" in out, out)
for bad in ("temp x", "top_p 2", "nope 1", "temp", "seed -2", "reasoning maybe", "top_k 1.5", "predict 0"):
    out = c.say(f"/set {bad}")
    check(f"/set {bad} is refused", out.startswith("remat: "), out)
out = c.say("/set temp 0.9")
check("/set changes", "temp 0.9" in out, out)
c.say("/set seed 7")
c.say("/set predict 16")
a = c.say("Tell me a story.")
b = c.say("/regen")
check("a seed gives the same reply again", reply(a) == reply(b), (a, b))
c.say("/undo")
check("and after /undo", reply(c.say("Tell me a story.")) == reply(a), a)
check("/system shows", "one short sentence" in c.say("/system"))
c.say("/system Be brief.")
check("/system changes", "Be brief." in c.say("/system"))
c.say('/system ""')
check("/system can be taken away", "no system text" in c.say("/system"))
check("/clear forgets", "cleared" in c.say("/clear") and c.say("/tokens").startswith("0 tokens"))
check("/undo of nothing", "no message" in c.say("/undo"))
check("/regen of nothing", "no message" in c.say("/regen"))

# --- Ctrl-C and the end --------------------------------------------------------------------------------------
if SM:
    t, c = c, Chat("--temp", "0", "--ignore-eos", "--no-history")
    c.send("Count from one to one thousand, in words.\r")
    c.until(b"\x1b[?2004l")
    c.until(b" ")
    time.sleep(0.5)
    c.send("\x03")
    out = c.until(ASK)
    check("Ctrl-C stops a reply", "(stopped" in out, out[-200:])
    c.say(f"/save {again}")
    check("what came of it stays", json.loads(again.read_bytes())["messages"][-1]["content"] != "")
    c.say("/set predict 4")
    out = c.say("Go on.")
    check("another turn after Ctrl-C", "(stopped after 4" in out and "remat:" not in out, out)
    c.send("/bye\r")
    check("and it leaves", c.end() == 0, c.code)
    c = t
check("the budget is kept", SANITIZED or c.peak() <= 200 * MIB, c.peak())
c.send("some text")
c.until(b"text")
c.send("\x03")  # with it, it would be dropped by the terminal
out = c.until(ASK)
check("Ctrl-C drops a line", "leaves" not in out, out)
c.send("\x03")
check("Ctrl-C on an empty line hints", "leaves" in c.until(ASK))
c.say("/set")
c.send("\x03")
check("a line between starts anew", "leaves" in c.until(ASK))
c.send("\x03")
check("twice exits with 130", c.end() == 130, c.code)
history = STATE / "remat" / "history"
check("the history is the user's only", history.exists() and stat.S_IMODE(history.stat().st_mode) == 0o600)
check("the history has lines", b"And" in history.read_bytes())
history.unlink()
for leave in ("\x04", "/bye\r", "/exit\r", "/quit\r"):
    c = Chat(*GREEDY, "--no-history")
    c.send(leave)
    check(f"{leave!r} leaves", c.end() == 0, c.code)
check("--no-history leaves none", not history.exists())
c = Chat(*GREEDY)
os.kill(c.pid, signal.SIGTERM)
check("SIGTERM ends it", c.end() == 130, c.code)
c = Chat(*GREEDY, env={"LC_ALL": "C", "TERM": "dumb", "XDG_STATE_HOME": "", "HOME": "/nowhere"}, ask=False)
c.until(b"> ")
c.send("Hi \u00fc\r")
c.send("/bye\r")
check("a dumb terminal, no language, no home", c.end() == 0 and b"\x1b[?2004" not in c.all, c.all[-300:])

# --- a full context ------------------------------------------------------------------------------------------
c = Chat("--temp", "0", "-c", "200", "-n", "8")
out = c.say("word " * 700)
check("a message beyond the context is not sent", "do not fit" in out and "not sent" in out, out)
out = c.say("Hello.")
check("and the chat goes on", "remat:" not in out, out)
for i in range(30):
    out = c.say("Tell me more about it, please.")
    if "not sent" in out or "is full" in out:
        break
check("a full context is said", "/undo" in out and "/clear" in out, out)
c.say("/clear")
check("/clear makes room", "remat:" not in c.say("Hello."))
c.send("\x04")
check("and it ends well", c.end() == 0, c.code)

# --- thoughts ------------------------------------------------------------------------------------------------
r = Run("run", "-m", MODEL, "-p", "Hi", "--reasoning", "maybe", *SMALL)
check("--reasoning maybe", r.refused(2), r)
opening = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n"
r = Run("run", "-m", MODEL, "-p", "Hi", *GREEDY, "--template", write("think.jinja", opening), "--json", *SMALL)
check("an open thought is no text", r.json and r.json["text"] == "" and r.json.get("reasoning"), r)
r = Run("run", "-m", MODEL, "-p", "Hi", *GREEDY, "--template", write("think.jinja", opening), "--json", "--reasoning", "off", *SMALL)
check("--reasoning off leaves it", r.json and r.json["text"] != "" and "reasoning" not in r.json, r)
done()
