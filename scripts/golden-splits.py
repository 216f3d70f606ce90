#!/usr/bin/env python3
"""Cuts texts with the models' patterns, as published, by Hugging Face's tokenizers.

    scripts/golden-splits.py > tests/golden/splits.txt      needs: pip install tokenizers

Output, for a C test:

    T TEXT                  a text; UTF-8, every byte but ASCII letters and digits written %HH
    R NAME NAME..           values of tokenizer.ggml.pre; then a line for each text, in order:
    LENGTH LENGTH..         bytes of its pieces
"""
import sys

from tokenizers import Regex, __version__
from tokenizers.pre_tokenizers import Sequence, Split

TEXTS = [
    "", " ", "a", "\n", "\t\t", "   ", "Hello world", "Hello  world's   3 cats!\n",
    "I've I'VE we'LL he'd It'S 'tis ''s '\u017f x'\u017f", "don't\u2019s can\u2019t",
    "1 12 123 1234 12345 123456 1234567", "3.14159e-10 1,000,000.50", "x1y22z333w4444",
    "\u0663\u0664\u0665 \u00b2\u00b3 \u2167 \u00bd123 \u0967\u0968\u0969\u096a 12\u066343567",
    "  lead", "trail  ", "a\n\nb\n \n  c\r\n\r\nd\n", "\n\n\n  d\n\t e  \n", " \n ", "\r\n\t\r x",
    "a\u00a0\u3000b \u2003\u2028c\u0085d\u180ee\u200bf",
    "if (x == 0) {\n\treturn foo_bar->baz;\n}\n\n",
    "http://www.example.com/a/b?c=d&e=f#g //!/\n//\n",
    "!!! ... ??? --- === \"'`~^|\\<>[]{}()@#$%&*+_",
    "camelCaseWord HTTPServer XMLHttpRequest iPhone McDonald's O'Reilly A'S",
    "\u00c9cole \u00fcber \u00c5ngstr\u00f6m na\u00efve \u00d8RSTED \u01c5ungla",
    "e\u0301a\u0308 o\u0302\u0323 x\u0301\u0302y", "\u043d\u0435\u0449\u043e \u043d\u0430 "
    "\u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438 \u0422\u0435\u0441\u0442",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002\u300c\u7b11\u300d\u3005\u3007",
    "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e\uff0c\u5bf9\u5427\uff1f\u4f60\u597d\uff01",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4. \u3131\u3132 \uac00\uac01",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964 \u0915\u094d\u0937",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064e\u064a\u06d4",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u1780\u17b6\u1793\u17cb\u178f\u17c2 \u05e9\u05dc\u05d5\u05dd",
    "\U0001f999\U0001f3fd\u200d\u2640\ufe0f \U0001f600!\U0001f600a \u2705x",
    "\u03b1\u03b2\u03b3 \u1f00\u1fbe\u2126\u212a \ufb01\ufb03 \u0531\u0565 \u10d0\u10d1 \u13a0",
    "\uff21\uff22\uff43 \uff11\uff12\uff13\uff14 \uff01\uff1f", "\u201cquoted\u201d \u2018single\u2019 "
    "\u2014dash\u2014 ellipsis\u2026 \u3001\u3002\ufe30 \u3105\u3106",
    "<sentinel:12>IMGIMGABCZ IMGIMGZ <sentinel:x>", "word " * 5 + "  end 1a a1 _x_ __init__ 9_9",
    "tab\tsep\tvalues\n1\t22\t333\n", "    four  two        eight\n        deep",
    " the quick brown fox; jumps  over\nthe   lazy dog", "a/b\\c a/\n/b \u20ac5 $3 5% \u00a7 \u00b5 \u2190",
    "\u00bd1234 \u00bd123\u00bd 12\u00b2345678 123\u00bd456 \u00bd12\u00bd 7\u00b212345",
    "12345a 123a4567 1234_567 12345678 \u0661\u0662\u0663\u0664", "x" * 70 + " " * 20 + "y" + "\n" * 9 + "z",
]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(suffix, but=""):
    upper, lower = "[%s%s]" % (UPPER, but), "[%s%s]" % (LOWER, but)
    return (r"[^\r\n\p{L}\p{N}]?" + upper + "*" + lower + "+" + suffix + r"|[^\r\n\p{L}\p{N}]?" +
            upper + "+" + lower + "*" + suffix)


LLAMA3 = SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST
QWEN2 = SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST
SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = cased(SUFFIX + "?") + r"|\p{N}{1,3}|" + SLASH
WORDS3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
          r"| ?[\p{P}\p{S}]+")
HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
LETTERS = "A-Za-z\u00b5" + "".join(
    chr(int(r.split("-")[0], 16)) + ("-" + chr(int(r.split("-")[1], 16)) if "-" in r else "")
    for r in """C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A
    38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF
    1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D
    1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4
    1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F
    2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F
    A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3
    104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943""".split())
JAIS2_BLANKS = "".join(r"|\s{%d}(?!\S)" % n for n in (512, 256, 128, 64, 32, 16, 8, 4))
DEEPSEEK3 = [r"\p{N}{1,3}", HAN, WORDS3 + r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]

RULES = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2 gpt2 phi-2 olmo mpt jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum "
    "roberta-bpe jina-v1-en jina-v2-code jina-v2-es jina-v2-de jina-es jina-de": [GPT2],
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": [r"\p{N}", GPT2],
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe "
    "glm4": [LLAMA3],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")],
    "jais-2": [SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+" + JAIS2_BLANKS + r"|\s{1,2}(?!\S)|\s{1}"],
    "qwen2 megrez deepseek-r1-qwen kormo stablelm2 hunyuan solar-open grok-2": [QWEN2],
    "qwen35": [SUFFIX + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "ufakzeka": [QWEN2[len(SUFFIX) + 1:]],
    "seed-coder": [SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+"
                   r"|\s+(?!\S)|\s+"],
    "bailingmoe bailingmoe2 llada-moe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"],
    "exaone-moe": [SUFFIX + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "tekken": [cased("") + r"|\p{N}|" + SLASH],
    "gpt-4o llama4 kanana2 talkie minimax-m2": [GPT4O],
    "tiny_aya cohere2moe": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
    "kimi-k2": [r"[\p{Han}]+|" + cased(SUFFIX + "?", r"&&[^\p{Han}]") + r"|\p{N}{1,3}|" + REST],
    "youtu": ["[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b"
              "\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + HAN,
              cased(SUFFIX + "?") + r"|\p{N}|" + SLASH],
    "deepseek-llm": [r"[\r\n]", r"\s?[" + LETTERS + "]+",
                     "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
                     CJK, r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": DEEPSEEK3,
    "spark2_5": DEEPSEEK3[:2] + [WORDS3 + r"|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "bloom gpt3-finnish poro-chat": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )",
                  r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
}


def escape(text):
    return "".join(chr(b) if chr(b).isascii() and chr(b).isalnum() else "%%%02X" % b
                   for b in text.encode("utf-8"))


def main():
    print("# made by scripts/golden-splits.py with tokenizers %s, see README.md" % __version__)
    for text in TEXTS:
        print("T " + escape(text))
    for names, patterns in RULES.items():
        cut = Sequence([Split(Regex(p), "isolated") for p in patterns])
        print("R " + names)
        for text in TEXTS:
            pieces = [p for p, _ in cut.pre_tokenize_str(text)] if text else []
            if "".join(pieces) != text:
                sys.exit("%s: the pieces of %r are not the text" % (names, text))
            print(" ".join(str(len(p.encode("utf-8"))) for p in pieces))


if __name__ == "__main__":
    main()
