/* test_described.c: a model described by its numbers is planned for as a file of it would be. */
#include "engine/engine.h"
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <unistd.h>

static remat_shape shape_of(const tiny_spec *s, const rm_model *m) {
    const bool experts = s->expert_count > 0;
    return (remat_shape){
        .layer_count = s->layer_count,
        .dim = s->dim,
        .head_count = s->head_count,
        .kv_head_count = s->kv_head_count,
        .head_dim = s->head_dim,
        .feed_forward = experts ? 0 : s->feed_forward,
        .vocabulary = m->shape.vocabulary,
        .context_count = s->context_count,
        .weights = rm_formats[s->qkv].name,
        .tied = s->tied,
        .biases = s->biases,
        .head_norms = s->head_norms,
        .post_norms = s->post_norms,
        .window = s->window,
        .window_period =
            s->window > 0 && m->layers[s->layer_count - 1].window == 0 ? s->layer_count : 0,
        .expert_count = s->expert_count,
        .expert_used = s->expert_used,
        .expert_feed_forward = experts ? s->feed_forward : 0,
    };
}

typedef struct sums {
    uint64_t matrices, norms, layers;
} sums;

static void add(void *user, const char *part, int32_t layer, const char *type, uint64_t bytes) {
    sums *s = user;
    (void)type;
    *(strcmp(part, "norms") == 0 ? &s->norms : &s->matrices) += bytes;
    if (layer >= 0) s->layers += bytes * (uint64_t)(layer + 1);
}

static bool same_windows(const rm_model *a, const rm_model *b) {
    for (uint32_t l = 0; l < a->shape.layer_count; l++) {
        if (a->layers[l].window != b->layers[l].window) return false;
    }
    return true;
}

/* All that depends on the model, under several budgets: the same to a byte. */
static void compare(remat_engine *file, remat_engine *numbers, const char *name) {
    static const rm_account accounts[] = {
        RM_ACCOUNT_WEIGHTS, RM_ACCOUNT_WEIGHT_STREAM, RM_ACCOUNT_KV,    RM_ACCOUNT_KV_STAGE,
        RM_ACCOUNT_ROWS,    RM_ACCOUNT_WORK,          RM_ACCOUNT_LOGITS};
    for (uint32_t users = 1; users <= 3; users += 2) {
        remat_limits l = remat_limits_default();
        remat_plan a, b;
        remat_error err = {0};
        l.context_count = 700;
        l.sequence_count = users;
        REQUIRE(remat_plan_for(&a, file, &l, 0, &err) == REMAT_OK);
        REQUIRE(remat_plan_for(&b, numbers, &l, 0, &err) == REMAT_OK);
        EXPECT(a.predicted_peak_bytes > 0 && b.predicted_peak_bytes > 0);
        for (size_t i = 0; i < sizeof accounts / sizeof *accounts; i++) {
            if (a.account_bytes[accounts[i]] == b.account_bytes[accounts[i]]) continue;
            t_fail("%s: %s: %llu bytes by the file, %llu by its numbers", name,
                   rm_account_name(accounts[i]), (unsigned long long)a.account_bytes[accounts[i]],
                   (unsigned long long)b.account_bytes[accounts[i]]);
        }
        EXPECT_EQ_U64(a.kv_token_bytes, b.kv_token_bytes);
        EXPECT_EQ_U64(a.kv_bytes, b.kv_bytes);
        EXPECT_EQ_U64(a.prefill_bytes, b.prefill_bytes);
        EXPECT_EQ_U64(a.decode_bytes, b.decode_bytes);
    }
}

static void like_the_file(void) {
    uint32_t compared = 0;
    for (size_t i = 0; tiny_spec_architecture(i) != NULL; i++) {
        const tiny_spec s = *tiny_spec_architecture(i);
        char path[64];
        remat_engine *file = NULL, *numbers = NULL;
        remat_error err = {0};
        remat_options o = remat_options_default();
        o.memory_bytes = 256u << 20;
        o.thread_count = 2;
        if (s.rope_factors != 0 || s.rope_dim != 0) continue; /* what a shape does not say */
        const int fd = tiny_model_open(path, &s);
        if (fd < 0 || remat_open(&file, path, &o, &err) != REMAT_OK)
            t_fail("%s: %s", s.name, err.message);
        REQUIRE(file != NULL);
        const remat_shape shape = shape_of(&s, &file->model);
        if (remat_open_shape(&numbers, &shape, &o, &err) != REMAT_OK) {
            t_fail("%s: %s", s.name, err.message);
        } else if (same_windows(&file->model, &numbers->model)) {
            remat_model_info a, b;
            sums x = {0}, y = {0};
            remat_info(&a, file);
            remat_info(&b, numbers);
            EXPECT_EQ_U64(a.parameter_count, b.parameter_count);
            remat_each_weight(file, add, &x);
            remat_each_weight(numbers, add, &y);
            EXPECT_EQ_U64(x.matrices, y.matrices);
            EXPECT_EQ_U64(x.layers, y.layers);
            EXPECT_EQ_U64(x.norms, y.norms);
            EXPECT_EQ_U64(remat_weight_bytes_as(file, "q4_k"),
                          remat_weight_bytes_as(numbers, "Q4_K"));
            compare(file, numbers, s.name);
            compared++;
        }
        remat_close(&numbers);
        remat_close(&file);
        close(fd);
    }
    EXPECT(compared >= 5);
}

static const remat_shape good = {.layer_count = 4,
                                 .dim = 256,
                                 .head_count = 8,
                                 .kv_head_count = 2,
                                 .head_dim = 32,
                                 .feed_forward = 512,
                                 .vocabulary = 1000,
                                 .weights = "q8_0"};

static int open_shape(remat_engine **out, const remat_shape *s, remat_error *err) {
    remat_options o = remat_options_default();
    o.memory_bytes = 256u << 20;
    o.thread_count = 1;
    return remat_open_shape(out, s, &o, err);
}

/* A latent is cached once, whatever the heads: 2 bytes x (kv_rank + rope_dim) a layer. */
static void latent_attention(void) {
    remat_engine *e = NULL;
    remat_error err = {0};
    remat_plan p;
    remat_shape s = good;
    s.kv_rank = 128;
    s.rope_dim = 32;
    s.query_rank = 64;
    remat_limits l = remat_limits_default();
    l.context_count = 640;
    REQUIRE(open_shape(&e, &s, &err) == REMAT_OK);
    REQUIRE(remat_plan_for(&p, e, &l, 0, &err) == REMAT_OK);
    EXPECT_EQ_U64(p.kv_token_bytes, 4 * 2 * 160);
    EXPECT_EQ_U64(p.kv_bytes, 640 * 4 * 2 * 160);
    remat_model_info info;
    remat_info(&info, e);
    /* Attention by hand: to and from the query's latent, to the cached one, from it, the output. */
    const uint64_t layer = 256 * 64 + 64 * 8 * 64 + 256 * 160 + 128 * 2 * 256 + 256 * 256 +
                           3 * 256 * 512 + 2 * 256 + 128 + 64;
    EXPECT_EQ_U64(info.parameter_count, 4 * layer + 2 * 256000 + 256);
    remat_close(&e);
}

/* Parameters that the numbers do not tell of lie in the layers. */
static void more_parameters(void) {
    remat_engine *e = NULL;
    remat_error err = {0};
    remat_model_info info;
    sums x = {0}, y = {0};
    remat_shape s = good;
    REQUIRE(open_shape(&e, &s, &err) == REMAT_OK);
    remat_info(&info, e);
    remat_each_weight(e, add, &x);
    remat_close(&e);
    s.parameter_count = info.parameter_count + 4 * 256 * 100;
    REQUIRE(open_shape(&e, &s, &err) == REMAT_OK);
    remat_info(&info, e);
    remat_each_weight(e, add, &y);
    EXPECT_EQ_U64(info.parameter_count, s.parameter_count);
    /* 100 outputs are 7 strips of 16 rows of 256 in Q8_0 in each layer. */
    EXPECT_EQ_U64(y.matrices, x.matrices + 4 * 7 * 16 * 256 / 32 * 34);
    remat_close(&e);
    s.parameter_count = info.parameter_count / 2;
    EXPECT(open_shape(&e, &s, &err) == REMAT_E_USAGE && strstr(err.message, "parameters") != NULL);
}

static void numbers_out_of_range(void) {
    struct {
        remat_shape s;
        const char *word;
    } bad[] = {{good, "layers"},     {good, "hidden"},         {good, "heads"},
               {good, "kv_heads"},   {good, "head_dim"},       {good, "feed_forward"},
               {good, "vocabul"},    {good, "no multiple"},    {good, "type of weights"},
               {good, "window"},     {good, "experts_used"},   {good, "rope_dim"},
               {good, "parameters"}, {good, "type of weights"}};
    bad[0].s.layer_count = 0;
    bad[1].s.dim = UINT32_MAX;
    bad[2].s.head_count = 0;
    bad[3].s.kv_head_count = 0;
    bad[4].s.head_dim = 1 << 20;
    bad[5].s.feed_forward = 0;
    bad[6].s.vocabulary = UINT32_MAX;
    bad[7].s.kv_head_count = 3;
    bad[8].s.weights = "q9_9";
    bad[9].s.window = UINT32_MAX;
    bad[10].s.expert_count = 4;
    bad[11].s.kv_rank = 64;
    bad[12].s.parameter_count = UINT64_MAX;
    bad[13].s.weights = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        remat_engine *e = NULL;
        remat_error err = {0};
        const int status = open_shape(&e, &bad[i].s, &err);
        if (status != REMAT_E_USAGE || strstr(err.message, bad[i].word) == NULL)
            t_fail("%s: %d, \"%s\"", bad[i].word, status, err.message);
        if (e != NULL) remat_close(&e);
    }
}

/* It has no weights and no tokenizer. */
static void it_does_not_start(void) {
    remat_engine *e = NULL;
    remat_error err = {0};
    uint32_t ids[4];
    size_t count;
    const remat_limits l = remat_limits_default();
    REQUIRE(open_shape(&e, &good, &err) == REMAT_OK);
    EXPECT(remat_start(e, &l, &err) == REMAT_E_USAGE);
    EXPECT(remat_tokenize(ids, 4, &count, e, "a", 1, 0, &err) == REMAT_E_USAGE);
    EXPECT(remat_each_key(e, NULL, NULL, &err) == REMAT_OK);
    EXPECT_EQ_U64(remat_token_text(NULL, 0, e, 1, true, false), 0);
    EXPECT_EQ_U64(remat_weight_bytes_as(e, "no such type"), 0);
    remat_close(&e);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(like_the_file), T(latent_attention), T(more_parameters),
                  T(numbers_out_of_range), T(it_does_not_start));
}
