#!/usr/bin/env python3
"""Models in several files: the same tokens and logits as in one, and sets that are none."""
import os

from kit import *

WHOLE = model("whole.gguf", layers=3, rows=301)


def read(path):
    """Keys as they are in the file, and the tensors as (name, dims, type, data)."""
    data = open(path, "rb").read()
    at = 24
    fixed = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(form):
        nonlocal at
        v = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return v

    def text():
        nonlocal at
        n = number("Q")
        at += n
        return data[at - n:at].decode()

    def skip_value(kind):
        nonlocal at
        if kind == STR:
            text()
        elif kind == ARR:
            inner, n = number("I"), number("Q")
            for _ in range(n):
                skip_value(inner)
        else:
            at += fixed[kind]

    tensor_count, key_count = struct.unpack_from("<QQ", data, 8)
    for _ in range(key_count):
        text()
        skip_value(number("I"))
    keys, infos = data[24:at], []
    for _ in range(tensor_count):
        infos.append((text(), [number("Q") for _ in range(number("I"))], number("I"), number("Q")))
    start = at + -at % 32
    ends = sorted(i[3] for i in infos) + [len(data) - start]
    return key_count, keys, [(n, d, t, data[start + o:start + ends[ends.index(o) + 1]]) for n, d, t, o in infos]


def name(stem, number, count):
    return TMP / f"{stem}-{number:05d}-of-{count:05d}.gguf"


def part(path, number, count, total, tensors, keys=b"", key_count=0):
    s = lambda x: struct.pack("<Q", len(x)) + x.encode()
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), key_count + 3) + keys
    out += s("split.no") + struct.pack("<IH", 2, number - 1) + s("split.count") + struct.pack("<IH", 2, count)
    out += s("split.tensors.count") + struct.pack("<Ii", 5, total)
    body = b""
    for n, dims, kind, data in tensors:
        out += s(n) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, len(body))
        body += data + b"\0" * (-len(data) % 32)
    path.write_bytes(out + b"\0" * (-len(out) % 32) + body)


def split(path, stem, count, first_empty=False):
    """Cuts the model at path into parts and returns the path of the first."""
    key_count, keys, tensors = read(path)
    shares = count - first_empty
    for i in range(count):
        k = i - first_empty
        mine = tensors[len(tensors) * k // shares:len(tensors) * (k + 1) // shares] if k >= 0 else []
        part(name(stem, i + 1, count), i + 1, count, len(tensors), mine, *((keys, key_count) if i == 0 else ()))
    return str(name(stem, 1, count))


def logits_of(path, *args):
    f = TMP / "logits"
    r = toy("-p", "the thing he an on", "-n", "24", "--temp", "0", "--ignore-eos", "--logits", f, "--json", *args, model=path)
    return (r.code, ids(r), f.read_bytes() if r.code == 0 else None), r


want, _ = logits_of(WHOLE)
check("the whole model answers", want[0] == 0 and len(want[1]) == 24, want)
for count in (2, 3, 5, 16):
    for empty in (False, True):
        got, r = logits_of(split(WHOLE, f"m{count}{empty}", count, empty))
        check(f"{count} parts, first {'empty' if empty else 'not empty'}: the same tokens and logits", got == want, r)
got, r = logits_of(split(WHOLE, "budget", 3), "--recompute", "full", *([] if SANITIZED else ["-t", "2"]))
check("with everything recomputed", got == want, r)
whole, parts = Run("info", "-m", WHOLE, "--json"), Run("info", "-m", split(WHOLE, "info", 3), "--json")
check("info has all tensors", whole.code == 0 and parts.code == 0 and len(whole.json["tensors"]) == len(parts.json["tensors"])
      and parts.json["file_bytes"] == sum(os.path.getsize(name("info", i, 3)) for i in (1, 2, 3)), parts)
os.chdir(TMP)
r = Run("info", "-m", "info-00001-of-00003.gguf", "--json", cwd=TMP)
check("parts beside a path without a folder", r.code == 0, r)

# --- sets that are none -----------------------------------------------------------------------------------
one = ["run", "-p", "the", "-n", "1"]
for command in (["run", "-p", "the", "-n", "1"], ["info"], ["plan", "-c", "64"]):
    stem = "bad" + command[0]
    first = split(WHOLE, stem, 3)
    refuses(f"{command[0]}: the second part", 3, *command, "-m", name(stem, 2, 3), says=f"give the first, {TMP}/{stem}-00001-of-00003")
    name(stem, 2, 3).unlink()
    refuses(f"{command[0]}: a missing part", 1, *command, "-m", first, says=f"{stem}-00002-of-00003.gguf: no such file")
first = split(WHOLE, "other", 3)
split(model("other.gguf", layers=2, rows=301), "foreign", 3)
name("foreign", 2, 3).rename(name("other", 2, 3))
refuses("a part of another model", 3, *one, "-m", first, says="other-00002-of-00003.gguf: it is of a set of")
first = split(WHOLE, "order", 3)
name("order", 2, 3).write_bytes(name("order", 3, 3).read_bytes())
refuses("a part under the name of another", 3, *one, "-m", first, says="order-00002-of-00003.gguf: split.no is 2")
first = split(WHOLE, "cut", 3)
name("cut", 3, 3).write_bytes(name("cut", 3, 3).read_bytes()[:-200])
refuses("a part without its end", 3, *one, "-m", first, says="cut-00003-of-00003.gguf: tensor")
first = split(WHOLE, "renamed", 3)
os.rename(first, TMP / "renamed.gguf")
refuses("a first part under another name", 3, *one, "-m", TMP / "renamed.gguf", says="-00001-of-00003.gguf")
key_count, keys, tensors = read(WHOLE)
part(name("twice", 1, 2), 1, 2, len(tensors) + 1, tensors, keys, key_count)
part(name("twice", 2, 2), 2, 2, len(tensors) + 1, tensors[3:4])
refuses("a tensor in two parts", 3, *one, "-m", name("twice", 1, 2), says=f"twice-00002-of-00002.gguf: tensor {tensors[3][0]} is in part 1 too")
part(name("many", 1, 1001), 1, 1001, len(tensors), tensors, keys, key_count)
refuses("1001 parts", 3, *one, "-m", name("many", 1, 1001), says="1001 parts are more than")
done()
