#!/usr/bin/env python3
"""How fast is prose tokenized? Prints MB/s for each model in models/, one core, loading left out.

    bench/tokenizer.py [REMAT]
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
REMAT = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "remat")
BYTES = 4 << 20


def prose():
    """Our own documents, their paragraphs in a new order each time: no text is seen twice in a row."""
    paragraphs = []
    for path in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.txt")]):
        paragraphs += path.read_text().split("\n\n")
    pick, out, size = random.Random(1), [], 0
    while size < BYTES:
        pick.shuffle(paragraphs)
        out += paragraphs
        size += sum(len(p) for p in paragraphs)
    return "\n\n".join(out)[:BYTES]


def seconds(model, path):
    best = 1e9
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run([REMAT, "tokenize", "-m", model, "-f", path], stdout=subprocess.DEVNULL, check=True)
        best = min(best, time.perf_counter() - begin)
    return best


def main():
    models = sorted((ROOT / "models").glob("*.gguf"))
    if not models:
        print("tokenize: no models (make models)")
    with tempfile.TemporaryDirectory() as folder:
        text, empty = os.path.join(folder, "text"), os.path.join(folder, "empty")
        pathlib.Path(text).write_text(prose())
        pathlib.Path(empty).write_text("a")
        for model in models:
            spent = seconds(str(model), text) - seconds(str(model), empty)
            print("tokenize %-40s %6.1f MB/s" % (model.name, BYTES / 1e6 / spent))


main()
