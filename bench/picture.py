"""The picture of bench/speed.py: tokens a second against context length, by gnuplot."""
import math
import os
import subprocess

RATES = ("prefill_tok_s", "decode_tok_s")
SERIES = (("remat", "", "0x2f81f7", 7), ("llama.cpp", "peer_", "0xd9730d", 5))
# Colours that are readable on white and on black. Paths are in single quotes, '' for '.
PLOT = """\
set terminal svg size 920,420 dynamic font "sans-serif,14"
set output '%(svg)s'
set datafile separator "\\t"
set datafile missing "-"
ink = 0x767676
set border 3 lc rgb ink lw 1
set tics nomirror textcolor rgb ink
set grid y lc rgb ink lw 0.5 dt (1,4)
set xlabel "context length, tokens" textcolor rgb ink
set logscale x 2
set xrange [%(least)f:%(most)f]
set yrange [0:*]
set xtics (%(tics)s)
set ylabel "tokens a second" textcolor rgb ink
set key at graph 0.5,1.09 center horizontal Left reverse samplen 2 textcolor rgb ink
set multiplot layout 1,2 margins char 9,char 2,char 5.5,char 4.5 spacing char 11
set label '%(caption)s' at screen 0.5,char 0.8 center noenhanced textcolor rgb ink
set title "reading a prompt of that length" offset 0,1.3 textcolor rgb ink
plot %(prompt)s
unset label
set title "answering after a prompt of that length" offset 0,1.3 textcolor rgb ink
plot %(answer)s
unset multiplot
"""


def quoted(text):
    return text.replace("'", "''")


def tics(lengths, span):
    """Labels of the lengths; one that would lie on the one before it goes without."""
    out, last = [], 0
    for n in lengths:
        if last == 0 or math.log(n / last) > 0.11 * math.log(span):
            last = n
        out.append('"%s" %d' % (n if last == n else "", n))
    return ", ".join(out)


def draw(path, rows, caption):
    """Writes the picture and its numbers, and returns the name of the latter; None if gnuplot
    failed. A row has prompt_tokens and, as text, the rates; peer_.. of them may be missing."""
    rows = sorted(rows, key=lambda r: r["prompt_tokens"])
    data = os.path.splitext(path)[0] + ".tsv"
    series = [s for s in SERIES if any(s[1] + RATES[0] in r for r in rows)]
    names = [prefix + name for _, prefix, _, _ in series for name in RATES]
    with open(data, "w", encoding="utf-8") as f:
        f.write("\t".join(["tokens"] + ["%s %s tok/s" % (s[0], what) for s in series
                                        for what in ("prompt", "answer")]) + "\n")
        for r in rows:
            f.write("\t".join([str(r["prompt_tokens"])] + [r.get(n, "-") for n in names]) + "\n")
    lengths = sorted({r["prompt_tokens"] for r in rows})
    lines = [", ".join("'%s' skip 1 using 1:%d with linespoints lc rgb %s lw 2 pt %d ps 0.8 "
                       "title '%s'" % (quoted(data), 2 + 2 * i + panel, colour, shape, title)
                       for i, (title, _, colour, shape) in enumerate(series))
             for panel in range(2)]
    least, most = lengths[0] / 1.25, lengths[-1] * 1.25
    script = PLOT % {"svg": quoted(path), "least": least, "most": most, "caption": quoted(caption),
                     "tics": tics(lengths, most / least), "prompt": lines[0], "answer": lines[1]}
    done = subprocess.run(["gnuplot"], input=script.encode())
    return data if done.returncode == 0 else None
