/* haystack.c: see haystack.h. */
#include "app/haystack.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const towns[] = {
    "Lisbon",  "Tallinn", "Kyoto",   "Quito",   "Bergen", "Tunis",    "Dakar",   "Lima",
    "Riga",    "Hanoi",   "Perth",   "Cusco",   "Malmo",  "Aleppo",   "Genoa",   "Utrecht",
    "Oaxaca",  "Durban",  "Samsun",  "Leipzig", "Nagoya", "Cork",     "Bilbao",  "Tromso",
    "Halifax", "Jaipur",  "Mombasa", "Turin",   "Gdansk", "Valdivia", "Antwerp", "Sapporo",
};
static const char *const people[] = {
    "a baker",           "the old gardener", "a young engineer",   "the librarian",
    "a retired captain", "the carpenter",    "a travelling nurse", "the schoolteacher",
    "a quiet painter",   "the postman",      "a fisherman",        "the watchmaker",
    "a student of law",  "the miller",       "a bus driver",       "the beekeeper",
    "a glass blower",    "the night porter", "a cellist",          "the surveyor",
};
static const char *const deeds[] = {
    "mended",  "borrowed", "described",  "sold",     "forgot",  "carried home", "photographed",
    "cleaned", "measured", "gave away",  "sketched", "weighed", "hid",          "polished",
    "counted", "found",    "wrapped up", "repaired", "admired", "traded",
};
static const char *const qualities[] = {
    "rusty", "heavy",    "blue",   "foreign", "wooden",  "broken",  "elegant",
    "small", "noisy",    "warm",   "narrow",  "painted", "cheap",   "rare",
    "dusty", "borrowed", "square", "green",   "silver",  "striped",
};
static const char *const things[] = {
    "lantern",          "bicycle",       "kettle",          "umbrella",
    "map of the coast", "violin",        "basket of pears", "ladder",
    "compass",          "notebook",      "typewriter",      "coat",
    "teapot",           "pair of boots", "mirror",          "anchor",
    "curtain",          "barometer",     "wheelbarrow",     "letter",
    "box of seeds",     "saddle",        "chair",           "radio",
};
static const char *const times[] = {
    "before the market opened", "late in the evening",     "while it was raining",
    "after the last train",     "on the first warm day",   "during the long strike",
    "as the bells began",       "in the middle of winter", "without telling anyone",
    "for the third time",       "with hardly any light",   "once the guests had left",
};
static const char *const places[] = {
    "near the harbour",       "behind the town hall", "on the bridge",
    "by the railway station", "in a narrow street",   "at the edge of a field",
    "under the arcades",      "beside the old mill",  "in the upper village",
    "outside the theatre",    "along the canal",      "close to the lighthouse",
};
static const char *const ends[] = {
    "Nobody asked why",           "It was talked about for weeks", "The neighbours only smiled",
    "That surprised everyone",    "A dog barked somewhere",        "The wind had turned by then",
    "It cost less than expected", "The paper did not mention it",  "Some called it luck",
    "The children cheered",       "There was tea afterwards",      "The road was closed that day",
};

static const char *one(rm_random *r, const char *const *list, size_t count) {
    return list[rm_random_u64(r) % count];
}

#define ONE(r, list) one((r), (list), COUNT(list))

/* A sentence by one of four patterns; the longest words of all lists make some 200 bytes. */
static size_t make_up(char out[APP_SENTENCE_BYTES], rm_random *r) {
    const char *const who = ONE(r, people), *const town = ONE(r, towns);
    const char *const did = ONE(r, deeds), *const what = ONE(r, things);
    const char *const how = ONE(r, qualities), *const when = ONE(r, times);
    const char *const where = ONE(r, places), *const end = ONE(r, ends);
    int n = 0;
    switch (rm_random_u64(r) % 4) {
    case 0:
        n = snprintf(out, APP_SENTENCE_BYTES, "In %s, %s %s the %s %s %s. ", town, who, did, how,
                     what, when);
        break;
    case 1:
        n = snprintf(out, APP_SENTENCE_BYTES, "It is said that %s from %s %s the %s %s %s. %s. ",
                     who, town, did, how, what, where, end);
        break;
    case 2:
        n = snprintf(out, APP_SENTENCE_BYTES,
                     "The %s %s that %s %s %s had come from %s, and %s wanted it back. ", how, what,
                     who, did, when, town, ONE(r, people));
        break;
    default:
        n = snprintf(out, APP_SENTENCE_BYTES,
                     "Somewhere %s of %s there was once the %s %s that %s "
                     "%s %s. ",
                     where, town, how, what, who, did, when);
        break;
    }
    return (size_t)n;
}

/* --- text of a file --------------------------------------------------------------------------- */

static bool blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Bytes of the sentence that begins at `at`: up to the blanks behind . ! ? or an empty line. */
static size_t sentence(const char *text, size_t bytes, size_t at) {
    const size_t left = bytes - at;
    const size_t most = left < APP_SENTENCE_BYTES ? left : APP_SENTENCE_BYTES;
    for (size_t n = 1; n < most; n++) {
        const char *c = text + at + n;
        const bool stop = strchr(".!?", c[-1]) != NULL && c[-1] != '\0' && blank(c[0]);
        if (!stop && !(c[-1] == '\n' && c[0] == '\n')) continue;
        while (n < most && blank(text[at + n]))
            n++;
        return n;
    }
    size_t n = most;
    while (n < left && n > 1 && ((unsigned char)text[at + n] & 0xc0) == 0x80)
        n--;
    return n;
}

void app_haystack_start(app_haystack *h, const char *text, size_t bytes, uint64_t seed) {
    *h = (app_haystack){.text = bytes > 0 ? text : NULL, .bytes = bytes};
    rm_random_seed(&h->random, seed);
    if (h->text == NULL) return;
    /* From the first whole sentence after some place. */
    h->at = rm_random_u64(&h->random) % bytes;
    h->at += sentence(text, bytes, h->at);
    if (h->at == bytes) h->at = 0;
}

size_t app_haystack_next(const char **out, app_haystack *h) {
    if (h->text == NULL) {
        *out = h->made;
        return make_up(h->made, &h->random);
    }
    const size_t n = sentence(h->text, h->bytes, h->at);
    *out = h->text + h->at;
    h->at = h->at + n < h->bytes ? h->at + n : 0;
    return n;
}

/* --- needles ---------------------------------------------------------------------------------- */

void app_needle_make(app_needle *out, rm_random *r) {
    const char *const town = ONE(r, towns);
    snprintf(out->number, sizeof out->number, "%u",
             1000000 + (unsigned)(rm_random_u64(r) % 9000000));
    snprintf(out->prefix, sizeof out->prefix, "The secret number of %s is", town);
    snprintf(out->fact, sizeof out->fact, "%s %s. ", out->prefix, out->number);
    snprintf(out->question, sizeof out->question, "What is the secret number of %s?", town);
}
