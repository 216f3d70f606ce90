#!/usr/bin/env python3
"""Turns expected renderings of chat templates into records that a C test reads without JSON.

    scripts/golden-templates.py GOLDEN.json CASES.json NAME=MODEL.gguf.. > templates.txt

GOLDEN.json is a list of {"template" or "model", "input", "expect"}; expect null means an error. The
template of a model NAME is read from the metadata of MODEL.gguf (its first megabytes are enough).
CASES.json is a list of {"template", "input"}, rendered here by Jinja2 as its users set it up.
Output:

    template BYTES      case BYTES BYTES        error BYTES
    TEXT                JSON                    JSON
                        EXPECTED

"template" holds for the cases that follow. Each text is followed by a line break of its own.
"""
import datetime
import json
import struct
import sys

NOW = 1786970096  # tests/unit/test_template.c has the same
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}


def unpack(f, form):
    return struct.unpack("<" + form, f.read(struct.calcsize("<" + form)))


def value(f, kind):
    if kind in SCALARS:
        return unpack(f, SCALARS[kind])[0]
    if kind == 8:
        return f.read(unpack(f, "Q")[0])
    inner, count = unpack(f, "IQ")
    return [value(f, inner) for _ in range(count)]


def template_of(path):
    with open(path, "rb") as f:
        _, _, _, keys = unpack(f, "IIQQ")
        for _ in range(keys):
            key = f.read(unpack(f, "Q")[0])
            found = value(f, unpack(f, "I")[0])
            if key == b"tokenizer.chat_template":
                return found.decode("utf-8")
    sys.exit("%s has no chat template" % path)


def environment():
    import jinja2.exceptions
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("_inside")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _inside(self, caller):
            return caller()

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(
            tzinfo=None).strftime(form)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return env


def render(env, case):
    try:
        return env.from_string(case["template"]).render(
            bos_token="<s>", eos_token="</s>", **case["input"])
    except Exception:  # whatever Python makes of it: an error is an error
        return None


def put(out, word, *texts):
    data = [t.encode("utf-8") for t in texts]
    out.write((" ".join([word] + [str(len(d)) for d in data]) + "\n").encode())
    for d in data:
        out.write(d + b"\n")


def main(argv):
    if len(argv) < 3:
        sys.exit("usage: golden-templates.py GOLDEN.json CASES.json NAME=MODEL.gguf..")
    golden = json.load(open(argv[1], encoding="utf-8"))
    cases = json.load(open(argv[2], encoding="utf-8"))
    models = dict(a.split("=", 1) for a in argv[3:])
    env = environment()
    for case in cases:
        case["expect"] = render(env, case)
    out, before, of = sys.stdout.buffer, None, {}
    for case in golden + cases:
        if "model" in case:
            name = case["model"]
            if name not in of:
                of[name] = template_of(models[name])
            case["template"] = of[name]
        if case["template"] != before:
            put(out, "template", case["template"])
            before = case["template"]
        text = json.dumps(case["input"], ensure_ascii=False)
        if case["expect"] is None:
            put(out, "error", text)
        else:
            put(out, "case", text, case["expect"])


if __name__ == "__main__":
    main(sys.argv)
