/*
 * pattern_rules.c: how each model family cuts text, by the name in tokenizer.ggml.pre.
 *
 * A pattern is a fact about a model: it stands in the model's tokenizer.json, and the names are
 * those that files carry. Written here as PCRE2 has it; equal sets are written one way, and where
 * the original would keep a state for every character of a long word, as possessive repeats.
 *
 * Names that are not here are refused: a wrong cut gives wrong tokens, and nothing else shows it.
 */
#include "text/pattern.h"

#include <string.h>

/* Whitespace as Unicode has it. PCRE2's own \s also holds U+180E, which is not whitespace since
 * Unicode 6.3. */
#define WS "\\p{Z}\\t-\\r\\x{85}"

/* ---- parts of several patterns */

#define SUFFIX      "'(?i:[sdmt]|ll|ve|re)"
#define BLANKS      "[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"
#define SIGNS       " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*"
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define ASCII_SIGNS "!-/:-@\\[-`{-~"
#define KANA_HAN    "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* Words that begin a new one at a capital letter. */
#define CASED(upper, lower, suffix)                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower  \
    "*" suffix

/* ---- patterns */

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])"
#define DIGITS_GPT2 "\\p{N}", GPT2
#define LLAMA3      SUFFIX "|" WORD "|\\p{N}{1,3}|" SIGNS "|" BLANKS
#define QWEN2       SUFFIX "|" WORD "|\\p{N}|" SIGNS "|" BLANKS
#define QWEN35                                                                                     \
    SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" \
           "|" BLANKS
#define MINICPM5 SUFFIX "|" WORD "|\\p{N}+|" SIGNS "|" BLANKS
#define TEKKEN   CASED(UPPER, LOWER, "") "|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
#define GPT4O                                                                                      \
    CASED(UPPER, LOWER, "(?:" SUFFIX ")?")                                                         \
    "|\\p{N}{1,3}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
#define YOUTU                                                                                      \
    CASED(UPPER, LOWER, "(?:" SUFFIX ")?")                                                         \
    "|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
/* The two classes are UPPER and LOWER without Han. */
#define KIMI_UPPER "[^\\p{sc:Han}\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define KIMI_LOWER "[^\\p{sc:Han}\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define KIMI_K2                                                                                    \
    "\\p{sc:Han}+|" CASED(KIMI_UPPER, KIMI_LOWER, "(?:" SUFFIX ")?") "|\\p{N}{1,3}|" SIGNS         \
                                                                     "|" BLANKS
#define JAIS2                                                                                      \
    SUFFIX "|" WORD "|\\p{N}{1,3}|" SIGNS "|[" WS "]*[\\r\\n]+|[" WS "]{512}(?![^" WS "])|[" WS    \
           "]{256}(?![^" WS "])|[" WS "]{128}(?![^" WS "])|[" WS "]{64}(?![^" WS "])|[" WS         \
           "]{32}(?![^" WS "])|[" WS "]{16}(?![^" WS "])|[" WS "]{8}(?![^" WS "])|[" WS            \
           "]{4}(?![^" WS "])|[" WS "]{1,2}(?![^" WS "])|[" WS "]"
#define DEEPSEEK3_WORDS                                                                            \
    "[" ASCII_SIGNS "][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define DEEPSEEK3 "\\p{N}{1,3}", KANA_HAN, DEEPSEEK3_WORDS "[\\r\\n]*|" BLANKS
#define SPARK                                                                                      \
    "\\p{N}{1,3}", KANA_HAN, DEEPSEEK3_WORDS "|[\\r\\n]|[" WS "]+(?![^" WS "])|[" WS "]+", "\\p{N}"
/* U+0800..U+4E00 is as in the original, which names Han from there on by mistake. */
#define DEEPSEEK_CJK   "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define DEEPSEEK_CODER "[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"
/* Letters that have a case, as of the Unicode version the authors had. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"                 \
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}"                            \
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"                           \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"                 \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}"                            \
    "\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}"                            \
    "\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}"                  \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"                  \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"                              \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_LLM                                                                               \
    "[\\r\\n]", "[" WS "]?[" DEEPSEEK_LETTERS "]+",                                                \
        "[" WS "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"                \
        "\\x{3000}-\\x{3002}]+",                                                                   \
        "[" WS "]+\\z", DEEPSEEK_CJK, "\\p{N}+"
#define FALCON_SIGNS "\\p{P}$+<=>^~|"
#define FALCON       "[" FALCON_SIGNS "`]+", GPT2, "[0-9][0-9][0-9]"
#define BLOOM                                                                                      \
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}"                                                  \
    "\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
#define CHAMELEON                                                                                  \
    "<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",                        \
        "[\\p{P}" ASCII_SIGNS "]", GPT2
#define BAILINGMOE                                                                                 \
    SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]++[\\r\\n]*|[" WS        \
           "]*[\\r\\n]|[" WS "]+(?![^" WS "])|[" WS "]+"
#define SEED_CODER SUFFIX "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" BLANKS
#define UFAKZEKA   WORD "|\\p{N}|" SIGNS "|" BLANKS
/* Words and the single blanks between them are one piece. */
#define EXAONE_MOE                                                                                 \
    SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+|\\p{N}"     \
           "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]?|[" WS "]*[\\r\\n]|[" WS "]+(?![^" WS "])|[" WS     \
           "]+"
/* Digits in threes, counted from the right. The original looks ahead to the end from every digit;
 * here that is done once, at the start of a piece, and \G goes on from there. */
#define DIGIT        "\\p{Nd}"
#define FIRST_DIGITS "\\A(?=" DIGIT "++\\z)(?:" DIGIT "{1,2}(?=(?:" DIGIT "{3})*+\\z)|" DIGIT "{3})"
/* A piece may hold numbers that are no digits, which stay with the three before them. */
#define SUPERBPE                                                                                   \
    "\\p{N}+", "(?s)" FIRST_DIGITS "|(?!\\A)\\G" DIGIT "{3}(?=" DIGIT "|\\z)|.+?(?=(?:" DIGIT      \
               "{3})++(?!" DIGIT "))|.+"
#define TINY_AYA                                                                                   \
    "(?<!" DIGIT ")" DIGIT "++(?![\\p{L}\\p{M}\\p{N}\\p{Pc}])",                                    \
        FIRST_DIGITS "|(?!\\A)\\G" DIGIT "{3}", GPT4O
#define YOUTU_SCRIPTS                                                                              \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+"                                                    \
    "|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}"          \
    "\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" KANA_HAN

/* ---- names */

#define RULE(name, ...)                                                                            \
    {                                                                                              \
        name, .patterns = { __VA_ARGS__ }                                                          \
    }
#define RULE_NFC(name, ...)                                                                        \
    {                                                                                              \
        name, .nfc = true, .patterns = { __VA_ARGS__ }                                             \
    }
/* A piece that is a token is taken as it is; text begins with a token for that. */
#define RULE_WHOLE(name, ...)                                                                      \
    {                                                                                              \
        name, .ignore_merges = true, .patterns = { __VA_ARGS__ }                                   \
    }
#define RULE_WHOLE_BOS(name, ...)                                                                  \
    {                                                                                              \
        name, .ignore_merges = true, .add_bos = true, .patterns = { __VA_ARGS__ }                  \
    }

static const rm_pattern_rule RULES[] = {
    RULE("default", "[" FALCON_SIGNS "]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"),
    RULE("gpt-2", GPT2),
    RULE("gpt2", GPT2),
    RULE("phi-2", GPT2),
    RULE_NFC("olmo", GPT2),
    RULE_NFC("mpt", GPT2),
    RULE("jais", GPT2),
    RULE("trillion", GPT2),
    RULE("granite-docling", GPT2),
    RULE("exaone4", GPT2),
    RULE("gigachat", GPT2),
    RULE("a.x-4.0", GPT2),
    RULE("mellum", GPT2),
    RULE("roberta-bpe", GPT2),
    RULE("jina-v1-en", GPT2),
    {"jina-v2-code", .strip_mask = true, .patterns = {GPT2}},
    {"jina-v2-es", .strip_mask = true, .patterns = {GPT2}},
    {"jina-v2-de", .strip_mask = true, .patterns = {GPT2}},
    RULE("jina-es", GPT2),
    RULE("jina-de", GPT2),

    RULE("smollm", DIGITS_GPT2),
    RULE("starcoder", DIGITS_GPT2),
    RULE("refact", DIGITS_GPT2),
    RULE_NFC("command-r", DIGITS_GPT2),
    RULE("codeshell", DIGITS_GPT2),
    RULE("exaone", DIGITS_GPT2),
    RULE("minerva-7b", DIGITS_GPT2),
    RULE("mellum2", DIGITS_GPT2),

    RULE_WHOLE_BOS("llama-bpe", LLAMA3),
    RULE_WHOLE_BOS("llama3", LLAMA3),
    RULE_WHOLE_BOS("llama-v3", LLAMA3),
    RULE_WHOLE_BOS("falcon3", LLAMA3),
    RULE_WHOLE_BOS("falcon-h1", LLAMA3),
    RULE_WHOLE_BOS("pixtral", LLAMA3),
    RULE_WHOLE_BOS("midm-2.0", LLAMA3),
    RULE_WHOLE_BOS("lfm2", LLAMA3),
    RULE("dbrx", LLAMA3),
    RULE("smaug-bpe", LLAMA3),
    RULE("chatglm-bpe", LLAMA3),
    RULE("glm4", LLAMA3),
    RULE_WHOLE("minicpm5", "\\p{N}{1,3}", MINICPM5),
    RULE("jais-2", JAIS2),

    RULE_NFC("qwen2", QWEN2),
    RULE_NFC("megrez", QWEN2),
    RULE_NFC("qwen35", QWEN35),
    RULE("deepseek-r1-qwen", QWEN2),
    RULE("kormo", QWEN2),
    RULE("stablelm2", QWEN2),
    RULE("hunyuan", QWEN2),
    RULE("solar-open", QWEN2),
    RULE("grok-2", QWEN2),
    RULE("laguna", "[^\\n]+|\\n+", QWEN2),
    RULE("ufakzeka", UFAKZEKA),
    RULE("seed-coder", SEED_CODER),
    RULE("bailingmoe", BAILINGMOE),
    RULE("bailingmoe2", BAILINGMOE),
    RULE("llada-moe", BAILINGMOE),
    RULE("exaone-moe", EXAONE_MOE),

    RULE_WHOLE_BOS("tekken", TEKKEN),
    RULE("gpt-4o", GPT4O),
    RULE("llama4", GPT4O),
    RULE("kanana2", GPT4O),
    RULE("talkie", GPT4O),
    RULE("minimax-m2", GPT4O),
    RULE("tiny_aya", TINY_AYA),
    RULE("cohere2moe", TINY_AYA),
    RULE("kimi-k2", KIMI_K2),
    RULE_WHOLE("youtu", YOUTU_SCRIPTS, YOUTU),

    RULE("deepseek-llm", DEEPSEEK_LLM),
    RULE("deepseek-coder", DEEPSEEK_CODER),
    RULE("deepseek-v3", DEEPSEEK3),
    RULE("hunyuan-dense", DEEPSEEK3),
    RULE("joyai-llm", DEEPSEEK3),
    RULE("hy_v4", DEEPSEEK3),
    RULE("spark2_5", SPARK),

    RULE("falcon", FALCON),
    RULE("bloom", BLOOM),
    RULE("gpt3-finnish", BLOOM),
    RULE("poro-chat", BLOOM),
    RULE("viking", BLOOM, "\\p{N}"),
    {"chameleon", .add_bos = true, .patterns = {CHAMELEON}},
    RULE("superbpe", SUPERBPE),
};

const rm_pattern_rule *rm_pattern_rule_at(size_t i) {
    return i < sizeof RULES / sizeof RULES[0] ? &RULES[i] : NULL;
}

const rm_pattern_rule *rm_pattern_rule_find(const char *name) {
    for (size_t i = 0; i < sizeof RULES / sizeof RULES[0]; i++) {
        if (strcmp(RULES[i].name, name) == 0) return &RULES[i];
    }
    return NULL;
}
