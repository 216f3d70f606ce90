#!/usr/bin/env python3
"""--memory auto (the default) follows the machine: in a memory cgroup whose limit falls and rises while
SmolLM2 works, memory is given back and taken again, and the answer is the one of an undisturbed run."""
import tempfile
import time

from kit import *
from kit import cgroup

MODEL = real_model()
WORDS_COUNT, NEW = 2700, 300 # some 3000 tokens; the answer lasts longer than what is done to it
ROOMY = 512 * MIB
WORDS = ("the river ran past mill and meadow while a clerk in the tower counted boats barrels bells "
         "and birds wrote each number down twice then asked the miller if grain or rain came first").split()


def text(count):
    """Words in an order that does not repeat: about so many tokens."""
    random, out = Random(), []
    for i in range(count):
        out.append(WORDS[int(struct.unpack("<f", random.floats(1, 2))[0] * len(WORDS) / 2) % len(WORDS)])
        if i % 11 == 10:
            out[-1] += "."
    return " ".join(out)


def end(why):
    skip(why)
    done()


if MODEL is None:
    end("no SmolLM2 under models/")
if SANITIZED:
    end("a sanitizer's memory is not the program's")
group = cgroup.create(ROOMY)
if group is None:
    end(cgroup.why)

PROMPT_FILE = write("prompt", text(WORDS_COUNT))
ARGS = ["run", "-m", MODEL, "--raw", "-f", PROMPT_FILE, "-n", str(NEW), "--temp", "0", "--ignore-eos"]
SPILL = tempfile.mkdtemp(dir=TMP)


class Job:
    """A run in the cgroup, and its resident memory all along."""

    def __init__(self, *args):
        group.set_limit(ROOMY)
        self.kills = group.events()["oom_kill"]
        self.out = open(TMP / "out", "wb+")
        self.err = open(TMP / "err", "wb+")
        self.process = group.run([REMAT, *ARGS, *args], stdout=self.out, stderr=self.err, cwd=ROOT)
        self.sampler = cgroup.Sampler(self.process.pid)

    def rss(self):
        return cgroup.rss(self.process.pid)

    def written(self):
        return (TMP / "out").stat().st_size

    def wait_for(self, holds, timeout_s):
        end_s = time.monotonic() + timeout_s
        while not holds() and self.process.poll() is None and time.monotonic() < end_s:
            time.sleep(0.01)
        return self.process.poll() is None and holds()

    def lower(self, limit):
        """Version 1 refuses a limit that is under what is in use: a moment later it may not be."""
        for _ in range(200):
            try:
                group.set_limit(limit)
                return True
            except OSError:
                time.sleep(0.02)
        return False

    def squeeze(self):
        """A limit just over what is held leaves less than that once the reserve is kept free of it. Whether
        resident memory falls by an eighth; what it was before, and is now."""
        before = self.rss()
        done_ = self.lower(before + 16 * MIB) and self.wait_for(lambda: self.rss() < before - before // 8, 60)
        return done_, before, self.rss()

    def end(self, timeout_s=600):
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.samples = self.sampler.stop()
        self.out.seek(0)
        self.err.seek(0)
        output, errors = self.out.read(), self.err.read().decode("utf-8", "replace")
        self.out.close()
        self.err.close()
        self.killed = group.events()["oom_kill"] - self.kills
        self.said = f"exit {code}, {self.killed} killed, stderr {errors[-300:]!r}"
        return code, output


free = Run(*ARGS, "--json", timeout=600)
if not check("undisturbed", free.code == 0 and len(ids(free)) == NEW and free.json["prompt_tokens"] > 2800, free):
    done()
check("undisturbed: nothing was given up", free.json["memory"]["shrunk"] == 0 and
      free.json["memory"]["limit_bytes"] <= free.json["memory"]["budget_bytes"] and
      free.json["cache"]["spilled_bytes"] == 0 and free.json["cache"]["recomputed_tokens"] == 0, free.json["memory"])


def while_it_answers(name, *args):
    """The limit falls when the answer has begun, and rises again."""
    job = Job(*args)
    check(f"{name}: begins", job.wait_for(lambda: job.written() > 0, 300))
    once = job.squeeze()
    check(f"{name}: gives memory back", once[0], [b >> 20 for b in once[1:]])
    check(f"{name}: and stays under the limit", job.rss() <= group.limit(), (job.rss(), group.limit()))
    before = job.written()
    check(f"{name}: the answer goes on", job.wait_for(lambda: job.written() > before, 60))
    low = job.rss()
    # Memory is taken again when nobody has asked for any in 5 seconds. They are not to depend on how fast the
    # machine makes the rest of the answer.
    job.process.send_signal(signal.SIGSTOP)
    group.set_limit(ROOMY)
    time.sleep(6)
    job.process.send_signal(signal.SIGCONT)
    check(f"{name}: takes it again", job.wait_for(lambda: job.rss() > low + low // 10, 120), (low >> 20, job.rss() >> 20))
    code, output = job.end()
    check(f"{name}: ends well", code == 0 and job.killed == 0, job.said)
    check(f"{name}: the same answer", output.decode().rstrip("\n") == free.json["text"].rstrip("\n"), output[-200:])


def while_it_reads(name, *args):
    """The limit falls when most of the prompt has been read."""
    job = Job("--json", "-n", "20", *args)
    check(f"{name}: begins", job.wait_for(lambda: job.rss() > free.json["memory"]["peak_bytes"] * 5 // 6, 300))
    given = job.squeeze()
    check(f"{name}: gives memory back", given[0], [b >> 20 for b in given[1:]])
    code, output = job.end()
    check(f"{name}: ends well", code == 0 and job.killed == 0, job.said)
    if code != 0:
        return
    j = json.loads(output)
    check(f"{name}: the same answer", j["tokens"] == free.json["tokens"][:20], j["tokens"])
    check(f"{name}: says so", j["memory"]["shrunk"] > 0 and j["memory"]["limit_bytes"] < j["memory"]["budget_bytes"],
          j["memory"])
    check(f"{name}: what left can come back", j["cache"]["spilled_bytes"] > 0, j["cache"])


while_it_answers("by disk", "--spill", SPILL)
while_it_answers("by recomputing", "--spill", "off")
while_it_reads("in the prompt", "--spill", SPILL)
check("nothing is left of the spill files", os.listdir(SPILL) == [])
done()
