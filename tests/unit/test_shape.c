/* test_shape.c: an architecture's numbers from metadata: taken when sound, refused by name. */
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <unistd.h>

static int open_spec(remat_engine **e, const tiny_spec *s, remat_error *err) {
    char path[64];
    remat_options o = remat_options_default();
    o.memory_bytes = 64u << 20;
    o.thread_count = 1;
    const int fd = tiny_model_open(path, s);
    *err = (remat_error){0};
    *e = NULL;
    const int status = remat_open(e, path, &o, err);
    close(fd);
    return status;
}

static void numbers_of_every_model(void) {
    for (size_t i = 0; tiny_spec_all(i) != NULL; i++) {
        const tiny_spec *t = tiny_spec_all(i);
        remat_engine *e;
        remat_error err;
        if (open_spec(&e, t, &err) != REMAT_OK) {
            t_fail("%s: %s", t->name, err.message);
            continue;
        }
        const rm_shape *s = &e->model.shape;
        EXPECT(s->layer_count == t->layer_count && s->dim == t->dim);
        EXPECT(s->feed_forward == t->feed_forward && s->vocabulary == t->vocabulary);
        EXPECT(s->head_count == t->head_count && s->kv_head_count == t->kv_head_count);
        EXPECT(s->head_dim == t->head_dim && s->rope_dim == t->head_dim);
        EXPECT(s->head_dim_padded >= t->head_dim && s->head_dim_padded % 16 == 0);
        EXPECT(s->head_dim_padded < t->head_dim + 16);
        EXPECT((e->model.output.source == e->model.embedding.source) == t->tied);
        EXPECT((e->model.layers[0].bq.source != NULL) == t->biases);
        EXPECT((e->model.rope_factors.source != NULL) == (t->rope_factors > 0));
        EXPECT(e->model.layers[0].gate.format == t->gate && e->model.layers[0].up.format == t->up);
        remat_model_info info;
        remat_info(&info, e);
        EXPECT(info.vocabulary_count == t->vocabulary && info.layer_count == t->layer_count);
        EXPECT(info.context_count == t->context_count);
        remat_close(&e);
    }
}

static tiny_key number(const char *name, uint32_t v) {
    return (tiny_key){.name = name, .kind = TINY_U32, .u32 = v};
}
static tiny_key absent(const char *name) {
    return (tiny_key){.name = name, .kind = TINY_ABSENT};
}
static tiny_key real(const char *name, float v) {
    return (tiny_key){.name = name, .kind = TINY_F32, .f32 = v};
}

/* What may be left out has the value that the format says. */
static void what_may_be_absent(void) {
    tiny_spec t = tiny_spec_default();
    remat_engine *e;
    remat_error err;
    t.keys[0] = absent("llama.attention.key_length");
    t.keys[1] = absent("llama.attention.value_length");
    t.keys[2] = absent("llama.rope.dimension_count");
    t.keys[3] = absent("llama.vocab_size");
    t.keys[4] = absent("llama.rope.freq_base");
    REQUIRE(open_spec(&e, &t, &err) == REMAT_OK);
    EXPECT(e->model.shape.head_dim == 16 && e->model.shape.rope_dim == 16);
    remat_close(&e);
    t.kv_head_count = 4;
    t.keys[5] = absent("llama.attention.head_count_kv"); /* as many as query heads */
    REQUIRE(open_spec(&e, &t, &err) == REMAT_OK);
    EXPECT_EQ_U64(e->model.shape.kv_head_count, 4);
    remat_close(&e);
    t.keys[6] = number("llama.expert_count", 0); /* there, but says nothing */
    EXPECT(open_spec(&e, &t, &err) == REMAT_OK);
    remat_close(&e);
}

/* One key at a time is wrong; the message names it, or what it contradicts. */
static void contradictions_are_named(void) {
    const struct {
        tiny_key key;
        const char *named;
    } bad[] = {
        {absent("llama.block_count"), "block_count"},
        {number("llama.block_count", 0), "block_count"},
        {number("llama.block_count", 1025), "block_count"},
        {number("llama.block_count", 4), "blk.3."},
        {number("llama.block_count", 2), "blk.2."}, /* a layer that nothing would use */
        {number("llama.block_count", 1000), "block_count"},
        {absent("llama.embedding_length"), "embedding_length"},
        {number("llama.embedding_length", 0), "embedding_length"},
        {number("llama.embedding_length", 128), "token_embd.weight"},
        {number("llama.embedding_length", 1u << 30), "embedding_length"},
        {number("llama.feed_forward_length", 0), "feed_forward_length"},
        {number("llama.feed_forward_length", 192), "ffn_gate.weight"},
        {absent("llama.context_length"), "context_length"},
        {number("llama.context_length", 0), "context_length"},
        {number("llama.attention.head_count", 0), "head_count"},
        {number("llama.attention.head_count", 5), "head_count"},
        {number("llama.attention.head_count", 8), "attn_q.weight"},
        {number("llama.attention.head_count", UINT32_MAX), "head_count"},
        {number("llama.attention.head_count_kv", 0), "head_count_kv"},
        {number("llama.attention.head_count_kv", 3), "head_count_kv"},
        {number("llama.attention.head_count_kv", 4), "attn_k.weight"},
        {number("llama.attention.key_length", 32), "32"},
        {number("llama.attention.key_length", 1024), "key_length"},
        {number("llama.attention.value_length", 8), "8"},
        {number("llama.rope.dimension_count", 18), "rope.dimension_count"},
        {number("llama.rope.dimension_count", 7), "rope.dimension_count"},
        {number("llama.vocab_size", 299), "vocab_size"},
        {number("llama.vocab_size", 301), "vocab_size"},
        {number("llama.expert_count", 8), "expert_used_count"},
        {absent("llama.attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon"},
        {real("llama.attention.layer_norm_rms_epsilon", -1), "layer_norm_rms_epsilon"},
        {(tiny_key){.name = "general.architecture", .kind = TINY_TEXT, .text = "mamba"}, "mamba"},
        {absent("general.architecture"), "general.architecture"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny_spec t = tiny_spec_default();
        remat_engine *e;
        remat_error err;
        t.keys[0] = bad[i].key;
        const int status = open_spec(&e, &t, &err);
        if (status != REMAT_E_MODEL || strstr(err.message, bad[i].named) == NULL)
            t_fail("%s %u: status %d, \"%s\" does not name %s", bad[i].key.name, bad[i].key.u32,
                   status, err.message, bad[i].named);
        EXPECT(e == NULL);
    }
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(numbers_of_every_model), T(what_may_be_absent),
                  T(contradictions_are_named));
}
