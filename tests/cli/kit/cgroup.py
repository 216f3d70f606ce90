"""A memory cgroup of our own, version 1 or 2: run a program in it, change its limit, look at it.

    group = cgroup.create(256 * MIB)        None when this machine does not let us; cgroup.why says why
    process = group.run(["remat", ...])     a subprocess.Popen that is in the group from its first page on
    samples = cgroup.Sampler(process.pid)   (seconds, resident bytes), until the process is gone
    group.set_limit(128 * MIB)              OSError (EBUSY) where version 1 cannot get below usage
    group.usage(), group.peak(), group.events()["oom_kill"]
    group.remove()                          ends what is left in it; at exit too

Also a program, to try it by hand: cgroup.py LIMIT_MIB COMMAND..
"""
import atexit
import errno
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

why = ""  # why the last create() gave None


def _mount(kind, controller):
    """Where a hierarchy is mounted, and what of it is the mount's root; None when it is not."""
    for line in open("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, (fstype, _, options) = left.split(), right.split()[:3]
        if fstype == kind and (not controller or controller in options.split(",")):
            return pathlib.Path(fields[4]), fields[3]
    return None


def _own_path(controller):
    """Our group in /proc/self/cgroup: version 2's line for ""."""
    for line in open("/proc/self/cgroup"):
        _, names, path = line.rstrip("\n").split(":", 2)
        if controller in names.split(","):
            return path
    return None


def _parents(mount, root, path):
    """Folders where a group could be made: our own group's, then those above, as far as they are visible."""
    inside = os.path.relpath(path, root) if path.startswith(root) else "."
    folder = mount if inside.startswith("..") else (mount / inside)
    while True:
        if folder.is_dir():
            yield folder
        if folder == mount:
            return
        folder = folder.parent


def create(limit_bytes, name="remat-test"):
    """A Group with this limit below our own group, or as near to it as the system allows."""
    global why
    if os.geteuid() != 0:
        why = "making a memory cgroup needs root"
        return None
    why = "no memory cgroup hierarchy is mounted"
    for version, kind, controller in ((2, "cgroup2", ""), (1, "cgroup", "memory")):
        found, path = _mount(kind, controller), _own_path(controller)
        if found is None or path is None:
            continue
        for parent in _parents(found[0], found[1], path):
            folder = parent / f"{name}-{os.getpid()}-{time.monotonic_ns()}"
            try:
                if version == 2 and "memory" not in (parent / "cgroup.subtree_control").read_text().split():
                    # Refused in a group that has processes, and where the controller is version 1's.
                    (parent / "cgroup.subtree_control").write_text("+memory")
                folder.mkdir()
            except OSError as e:
                why = f"{parent}: {e.strerror}"
                continue
            group = Group(version, folder)
            try:
                group.set_limit(limit_bytes)
            except OSError as e:
                why = f"{folder}: {e.strerror}"
                group.remove()
                continue
            why = ""
            return group
    return None


class Group:
    def __init__(self, version, folder):
        self.version, self.folder = version, folder
        atexit.register(self.remove)

    def _read(self, name):
        try:
            return (self.folder / name).read_text()
        except OSError:
            return ""

    def run(self, argv, **how):
        """subprocess.Popen(argv, **how), in the group."""
        procs = str(self.folder / "cgroup.procs")

        def enter():
            fd = os.open(procs, os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)

        return subprocess.Popen(argv, preexec_fn=enter, **how)

    def set_limit(self, limit_bytes):
        """New limit; None for no limit. Version 1 refuses what it cannot reach by dropping file pages and
        swapping (EBUSY); version 2 kills."""
        if self.version == 2:
            text, name = "max" if limit_bytes is None else str(limit_bytes), "memory.max"
        else:
            text, name = "-1" if limit_bytes is None else str(limit_bytes), "memory.limit_in_bytes"
        fd = os.open(self.folder / name, os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def limit(self):
        text = self._read("memory.max" if self.version == 2 else "memory.limit_in_bytes").strip()
        return None if text == "max" or int(text) >= 1 << 62 else int(text)

    def usage(self):
        """Bytes charged now, file pages included."""
        return int(self._read("memory.current" if self.version == 2 else "memory.usage_in_bytes") or 0)

    def peak(self):
        """The most that was ever charged; 0 where the kernel does not count it."""
        return int(self._read("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes") or 0)

    def events(self):
        """max: how often the limit was met; oom_kill: processes killed for it."""
        if self.version == 2:
            lines = self._read("memory.events").splitlines()
        else:
            lines = self._read("memory.oom_control").splitlines() + ["max " + (self._read("memory.failcnt") or "0")]
        found = {"max": 0, "oom_kill": 0}
        found.update((a, int(b)) for a, b in (line.split() for line in lines if line.strip()))
        return found

    def pids(self):
        return [int(p) for p in self._read("cgroup.procs").split()]

    def remove(self):
        """Ends what still runs in it, and removes it. May be called twice."""
        for _ in range(100):
            if not self.folder.exists():
                break
            for pid in self.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                self.folder.rmdir()
            except OSError as e:
                if e.errno != errno.EBUSY:
                    break
                time.sleep(0.05)  # the last page of an ended process takes its time


def rss(pid):
    """Resident bytes of a process; 0 when it is gone."""
    try:
        for line in open(f"/proc/{pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Sampler:
    """Looks at a process's resident bytes until it is gone or stop() is called. samples: (seconds, bytes)."""

    def __init__(self, pid, every_s=0.02):
        self.pid, self.every_s, self.samples = pid, every_s, []
        self.start_s = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._end.is_set():
            now = rss(self.pid)
            if now == 0 and self.samples:
                break
            self.samples.append((time.monotonic() - self.start_s, now))
            self._end.wait(self.every_s)

    def stop(self):
        self._end.set()
        self._thread.join()
        return self.samples

    def now(self):
        """Seconds since the sampler began, to mark what was done when."""
        return time.monotonic() - self.start_s

    def between(self, first_s, last_s):
        return [b for s, b in self.samples if first_s <= s <= last_s]

    def wait_until(self, holds, timeout_s):
        """Waits until holds(resident bytes) is true; false when it takes too long or the process ends."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            now = rss(self.pid)
            if now == 0 and self.samples:
                return False
            if holds(now):
                return True
            time.sleep(self.every_s)
        return False


def _main():
    group = create(int(sys.argv[1]) << 20)
    if group is None:
        print(f"skip: {why}")
        return 77
    process = group.run(sys.argv[2:])
    sampler = Sampler(process.pid)
    code = process.wait()
    most = max(b for _, b in sampler.stop())
    print(f"exit {code}, most resident {most >> 20} MiB, charged {group.peak() >> 20} MiB, {group.events()}",
          file=sys.stderr)
    group.remove()
    return code


if __name__ == "__main__":
    sys.exit(_main())
