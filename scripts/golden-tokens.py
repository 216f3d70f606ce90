#!/usr/bin/env python3
"""Turns token ids kept as JSON into lines that a C test reads without a JSON library.

    scripts/golden-tokens.py MODEL GOLDEN.json [CASES.json [BOS]] > tests/golden/tokenize-NAME.txt

GOLDEN.json is a list of {"text", "plain", "special"}; CASES.json holds {"rows": [{"text", MODEL:
{"plain", "special"}}], "long": [{"text", "repeat", "tokens": {MODEL: n}}]}. Texts that are in both
must have the same ids. BOS: id of the token that the model begins with, which the rows of
CASES.json leave out. Output, one case a line:

    TEXT|PLAIN IDS|SPECIAL IDS      "=" where both are the same
    *REPEAT TEXT|NUMBER OF TOKENS

TEXT is UTF-8, with every byte that is not a letter or digit of ASCII written %HH.
"""
import json
import sys


def escape(text):
    return "".join(chr(b) if chr(b).isascii() and chr(b).isalnum() else "%%%02X" % b
                   for b in text.encode("utf-8"))


def line(text, row):
    plain = " ".join(map(str, row["plain"]))
    special = " ".join(map(str, row["special"]))
    return "%s|%s|%s" % (escape(text), plain, "=" if special == plain else special)


def main(argv):
    if len(argv) not in (3, 4, 5):
        sys.exit("usage: golden-tokens.py MODEL GOLDEN.json [CASES.json [BOS]]")
    model, lines, seen = argv[1], [], {}
    rows = [(r["text"], r) for r in json.load(open(argv[2], encoding="utf-8"))]
    cases = {"rows": [], "long": []}
    if len(argv) > 3:
        cases = json.load(open(argv[3], encoding="utf-8"))
    bos = [int(argv[4])] if len(argv) > 4 else []
    rows += [(r["text"], {"plain": r[model]["plain"], "special": bos + r[model]["special"]})
             for r in cases["rows"] if model in r]
    for text, row in rows:
        new = line(text, row)
        if seen.setdefault(text, new) != new:
            sys.exit("two answers for %r" % text)
        if new not in lines:
            lines.append(new)
    for row in cases["long"]:
        if model in row["tokens"]:
            lines.append("*%d %s|%d" % (row["repeat"], escape(row["text"]), row["tokens"][model]))
    print("# %s; made by scripts/golden-tokens.py, see README.md" % model)
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv)
