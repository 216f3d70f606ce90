/* test_pack.c: half precision, strips, and where activations and results lie. */
#include "harness.h"
#include "kernels/formats.h"
#include "weights.h"

static float f32_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void halves_round_trip(void) {
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = rm_f16_to_f32((uint16_t)h);
        if (f != f)
            EXPECT((h & 0x7fff) > 0x7c00);
        else if (rm_f16_from_f32(f) != h)
            t_fail("%04x -> %a -> %04x", h, (double)f, rm_f16_from_f32(f));
    }
    EXPECT(rm_f16_to_f32(0x3c00) == 1);
    EXPECT(rm_f16_to_f32(0x0001) == 0x1p-24f);
    EXPECT(rm_f16_to_f32(0xfbff) == -65504);
    EXPECT(isinf(rm_f16_to_f32(0x7c00)));
}

/* Against the two neighbours: never farther than the other one, even when in the middle. */
static void halves_round_to_nearest_even(void) {
    for (int i = 0; i < 300000; i++) {
        const float f = f32_of((uint32_t)t_random());
        const uint16_t h = rm_f16_from_f32(f);
        if (f != f) {
            EXPECT((h & 0x7fff) > 0x7c00);
            continue;
        }
        if (fabsf(f) >= 65520) {
            EXPECT((h & 0x7fff) == 0x7c00);
            continue;
        }
        const double error = fabs((double)rm_f16_to_f32(h) - (double)f);
        for (int side = -1; side <= 1; side += 2) {
            const int near = (h & 0x7fff) + side;
            if (near < 0 || near >= 0x7c00) continue;
            const uint16_t other = (uint16_t)((h & 0x8000) | near);
            const double far = fabs((double)rm_f16_to_f32(other) - (double)f);
            if (error > far || (error == far && h % 2 == 1)) t_fail("%a -> %04x", (double)f, h);
        }
    }
    EXPECT_EQ_U64(rm_f16_from_f32(65519.996f), 0x7bff);
    EXPECT_EQ_U64(rm_f16_from_f32(0x1p-25f), 0); /* in the middle: even */
    EXPECT_EQ_U64(rm_f16_from_f32(-0.0f), 0x8000);
}

static void types_have_names(void) {
    for (int f = 0; f < RM_FORMAT_COUNT; f++)
        EXPECT_EQ_U64(rm_format_of_gguf(rm_formats[f].gguf_type), (uint64_t)f);
    EXPECT_EQ_U64(rm_format_of_gguf(12), RM_Q4_K);
    EXPECT_EQ_U64(rm_format_of_gguf(16), RM_FORMAT_COUNT);
    EXPECT_EQ_U64(rm_format_of_gguf(0xffffffff), RM_FORMAT_COUNT);
    EXPECT(strcmp(rm_gguf_type_name(12), "Q4_K") == 0);
    EXPECT(strcmp(rm_gguf_type_name(8), "Q8_0") == 0);
    EXPECT(strcmp(rm_gguf_type_name(5), "unknown") == 0);
    EXPECT(strcmp(rm_gguf_type_name(0xffffffff), "unknown") == 0);
}

/* --- strips -------------------------------------------------------------------------------- */

enum { K_MAX = 1024, ROW_BYTES_MAX = K_MAX * 4 };

static uint8_t rows[16 * ROW_BYTES_MAX];
static _Alignas(64) uint8_t strip[(K_MAX + 64) * 16 * 4];

static void put_u16(uint8_t *at, uint16_t v) {
    memcpy(at, &v, sizeof v);
}

/* Random blocks with finite scales. */
static void make_rows(rm_format f, uint32_t count, uint32_t k) {
    const rm_format_info *info = &rm_formats[f];
    for (size_t b = 0; b < (size_t)count * (k / info->gguf_k); b++) {
        uint8_t *at = rows + b * info->gguf_bytes;
        const float value = (float)(t_random() % 2001) * 0.001f - 1;
        for (size_t i = 0; i < info->gguf_bytes; i++)
            at[i] = (uint8_t)t_random();
        w_set_scales(f, at, value, value * 0.5f);
    }
}

static void strips_give_rows_back(void) {
    for (int round = 0; round < 300; round++) {
        const rm_format f = (rm_format)(t_random() % RM_FORMAT_COUNT);
        const uint32_t step = rm_formats[f].gguf_k;
        const uint32_t most = step == 1 ? 320 : K_MAX / step;
        const uint32_t k = (1 + (uint32_t)t_random() % most) * step;
        const uint32_t count = 1 + (uint32_t)(t_random() % 16);
        float out[K_MAX];
        make_rows(f, count, k);
        memset(strip, 0xee, sizeof strip);
        EXPECT(rm_pack_strip(strip, f, rows, count, k) == -1);
        for (size_t i = rm_strip_bytes(f, k); i < sizeof strip; i++)
            REQUIRE(strip[i] == 0xee); /* nothing beyond the strip */
        for (uint32_t row = 0; row < count; row++) {
            rm_unpack_row(out, f, strip, row, k);
            for (uint32_t i = 0; i < k; i++)
                if (out[i] != (float)w_value(f, rows + row * rm_gguf_row_bytes(f, k), i))
                    t_fail("%s %u x %u, row %u k %u", rm_formats[f].name, count, k, row, i);
        }
    }
}

/* Missing rows and k are zero bytes, so that a product with them is zero. */
static void padding_is_zero(void) {
    for (int f = 0; f < RM_FORMAT_COUNT; f++) {
        const bool super = rm_formats[f].act == RM_ACT_Q8K;
        const uint32_t k = super ? 256 : 32;
        make_rows((rm_format)f, 3, k);
        memset(strip, 0xee, sizeof strip);
        EXPECT(rm_pack_strip(strip, (rm_format)f, rows, 3, k) == -1);
        const size_t all = rm_strip_bytes((rm_format)f, k),
                     used = rm_gguf_row_bytes((rm_format)f, k);
        size_t not_zero = 0;
        for (size_t i = 0; i < all; i++)
            not_zero += strip[i] != 0;
        EXPECT(not_zero <= 3 * used);
        float out[256];
        for (uint32_t lane = 3; lane < 16; lane++) {
            rm_unpack_row(out, (rm_format)f, strip, lane, k);
            for (uint32_t i = 0; i < k; i++)
                EXPECT(out[i] == 0);
        }
        if (super) continue; /* rows are whole blocks */
        rm_unpack_row(out, (rm_format)f, strip, 0, 64);
        for (uint32_t i = 32; i < 64; i++)
            EXPECT(out[i] == 0);
    }
}

/* Puts an infinity or a NaN into a block. */
static void spoil(rm_format f, uint8_t *block, int kind) {
    static const uint16_t bad16[] = {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff};
    static const uint16_t bad_bf16[] = {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff};
    static const uint32_t bad32[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff};
    unsigned at[2];
    const unsigned n = w_scales(f, at);
    if (f == RM_F32) memcpy(block, &bad32[kind % 5], 4);
    if (f == RM_BF16) put_u16(block, bad_bf16[kind % 5]);
    if (f == RM_MXFP4) *block = 255;
    if (n > 0) put_u16(block + at[t_random() % n], bad16[kind % 5]);
}

static void bad_values_are_found(void) {
    for (int round = 0; round < 800; round++) {
        const rm_format f = (rm_format)(t_random() % RM_FORMAT_COUNT);
        const uint32_t count = 1 + (uint32_t)(t_random() % 16), k = 768;
        const size_t row_bytes = rm_gguf_row_bytes(f, k);
        const uint32_t row = (uint32_t)(t_random() % count);
        make_rows(f, count, k);
        const size_t block = t_random() % (k / rm_formats[f].gguf_k) * rm_formats[f].gguf_bytes;
        spoil(f, rows + row * row_bytes + block, round);
        if (row + 1 < count) spoil(f, rows + (count - 1) * row_bytes, 0); /* does not hide it */
        EXPECT_EQ_U64((uint64_t)rm_pack_strip(strip, f, rows, count, k), row);
    }
}

/* --- outside values ------------------------------------------------------------------------ */

/* Answers of gguf-py: README.md in tests/golden. Per type 4 bytes of its number and 4 of the number
 * of values, then the blocks of one row, then the values. Bit for bit. */
static void values_are_those_of_the_reference(void) {
    static uint8_t file[200 << 10];
    static float out[4096];
    FILE *in = fopen("tests/golden/quants.bin", "rb");
    REQUIRE(in != NULL);
    const size_t bytes = fread(file, 1, sizeof file, in);
    fclose(in);
    unsigned seen = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t head[2];
        REQUIRE(at + sizeof head <= bytes);
        memcpy(head, file + at, sizeof head);
        const rm_format f = rm_format_of_gguf(head[0]);
        const uint32_t k = head[1];
        REQUIRE(f != RM_FORMAT_COUNT && k <= K_MAX);
        const uint8_t *row = file + at + sizeof head;
        at += sizeof head + rm_gguf_row_bytes(f, k) + k * sizeof(float);
        REQUIRE(at <= bytes);
        EXPECT(rm_pack_strip(strip, f, row, 1, k) == -1);
        rm_unpack_row(out, f, strip, 0, k);
        for (uint32_t i = 0; i < k; i++) {
            uint32_t got, want;
            memcpy(&got, &out[i], sizeof got);
            memcpy(&want, row + rm_gguf_row_bytes(f, k) + i * sizeof want, sizeof want);
            if (got != want) t_fail("%s %u: %08x, not %08x", rm_formats[f].name, i, got, want);
        }
        seen |= 1u << f;
    }
    EXPECT_EQ_U64(seen, (1u << RM_FORMAT_COUNT) - 1);
}

/* --- activations and results ----------------------------------------------------------------- */

static void views_fit_their_bytes(void) {
    static _Alignas(64) char memory[1 << 18];
    for (int kind = 0; kind < RM_ACT_COUNT; kind++) {
        for (uint32_t n = 1; n < 40; n += 3) {
            const uint32_t k = 1 + (uint32_t)(t_random() % 600),
                           padded = rm_pad_k_of((rm_act_kind)kind, k);
            const uint32_t blocks = padded / rm_act_block((rm_act_kind)kind) * n;
            const size_t bytes = rm_acts_bytes((rm_act_kind)kind, n, k);
            const rm_acts x = rm_acts_view(memory, (rm_act_kind)kind, n, k);
            EXPECT_EQ_U64(x.k_count, padded);
            EXPECT_EQ_U64(x.row_count, n);
            if (kind == RM_ACT_F32) {
                EXPECT(x.q == NULL && x.d == NULL && x.ds == NULL && x.neg_sum == NULL);
                EXPECT((char *)(x.f + (size_t)n * x.k_count) <= memory + bytes);
                continue;
            }
            EXPECT(x.f == NULL && (char *)x.q == memory);
            EXPECT((char *)x.d >= (char *)x.q + (size_t)n * x.k_count);
            if (kind == RM_ACT_Q8K) {
                EXPECT(x.ds == NULL && x.neg_sum == NULL && (uintptr_t)x.sums % 64 == 0);
                EXPECT((char *)x.sums >= (char *)(x.d + blocks));
                EXPECT((char *)(x.sums + blocks * RM_SUMS) <= memory + bytes);
                continue;
            }
            EXPECT(x.ds >= x.d + blocks && (char *)x.neg_sum >= (char *)(x.ds + blocks));
            EXPECT((char *)(x.neg_sum + blocks) <= memory + bytes);
            EXPECT((uintptr_t)x.d % 64 == 0 && (uintptr_t)x.ds % 64 == 0);
            EXPECT((uintptr_t)x.neg_sum % 64 == 0);
        }
    }
}

static void rows_of_views_are_groups(void) {
    static _Alignas(64) char memory[1 << 18];
    const rm_acts x = rm_acts_view(memory, RM_ACT_Q8, 50, 192);
    const rm_acts v = rm_acts_rows(&x, 32, 18), w = rm_acts_rows(&x, 16, 16);
    EXPECT_EQ_U64(v.row_count, 18);
    EXPECT(v.q == x.q + 32 * 192 && v.d == x.d + 32 * 6 && v.ds == x.ds + 32 * 6);
    EXPECT(v.neg_sum == x.neg_sum + 32 * 6);
    EXPECT(w.q == x.q + 16 * 192 && w.row_count == 16);
    const rm_acts k = rm_acts_view(memory, RM_ACT_Q8K, 50, 600), u = rm_acts_rows(&k, 32, 18);
    EXPECT(u.q == k.q + 32 * 768 && u.d == k.d + 32 * 3 && u.sums == k.sums + 32 * 3 * RM_SUMS);
    const rm_acts f = rm_acts_view(memory, RM_ACT_F32, 50, 100);
    EXPECT(rm_acts_rows(&f, 48, 2).f == f.f + 48 * 128);
}

/* Every (row, strip) has 16 floats of its own, and together they fill the tiles. */
static void results_do_not_overlap(void) {
    enum { MOST = 40 * 3 * 16 };
    static float at[MOST];
    for (uint32_t n = 1; n <= 40; n += 3) {
        const rm_out y = {at, n, 3};
        memset(at, 0, sizeof at);
        for (uint32_t row = 0; row < n; row++) {
            for (uint32_t s = 0; s < 3; s++) {
                for (int l = 0; l < 16; l++)
                    rm_out_at(&y, row, s)[l] += (float)(row * 100 + s * 16 + (uint32_t)l + 1);
            }
        }
        for (uint32_t row = 0; row < n; row++) {
            float line[32];
            rm_out_row(line, &y, row, 1, 2);
            for (int i = 0; i < 32; i++)
                EXPECT(line[i] == (float)(row * 100 + 16 + (uint32_t)i + 1));
        }
        for (size_t i = 0; i < MOST; i++)
            EXPECT((at[i] != 0) == (i < (size_t)n * 3 * 16));
    }
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(halves_round_trip), T(halves_round_to_nearest_even),
                  T(types_have_names), T(strips_give_rows_back), T(padding_is_zero),
                  T(bad_values_are_found), T(values_are_those_of_the_reference),
                  T(views_fit_their_bytes), T(rows_of_views_are_groups), T(results_do_not_overlap));
}
