/*
 * test_stream.c: weights that pass through memory are the bytes of resident ones, whatever stays,
 * however small the ring is, and after sweeps that ended in the middle.
 */
#include "gguf/split.h"
#include "harness.h"
#include "model/stream.h"
#include "split_model.h"
#include "tiny_model.h"

#include <sys/stat.h>
#include <unistd.h>

enum { UNITS_MAX = 64, PARTS = 3, ALL_STRIPS = 1 << 20 };

static char folder[64];

/* A file, all of its weights in memory, and a second model that streams some of them. */
typedef struct fixture {
    rm_ledger ledger;
    rm_file file;
    rm_gguf gguf;
    rm_model all, some;
    rm_stream stream;
    rm_threads *threads;
    int fd; /* of the tiny model; -1 for a split one */
    char path[64];
    uint8_t resident[UNITS_MAX];
} fixture;

static void discard(fixture *f) {
    rm_stream_stop(&f->stream);
    rm_threads_stop(&f->threads);
    rm_split_close(&f->gguf);
    rm_file_close(&f->file);
    rm_ledger_close(&f->ledger);
    if (f->fd >= 0) close(f->fd);
}

static bool never(void *user) {
    (void)user;
    return false;
}

static int load(fixture *f, rm_model *m, uint8_t *stage, remat_error *err) {
    const rm_load how = {.threads = f->threads,
                         .stage = stage,
                         .stage_bytes = rm_model_stage_bytes(m),
                         .canceled = never};
    return rm_model_load(m, &f->gguf, &how, err);
}

static int build(fixture *f, const char *path, const uint8_t *resident,
                 const rm_stream_shape *shape, uint32_t thread_count, remat_error *err) {
    void *memory;
    uint8_t *stage;
    RM_TRY(rm_ledger_open(&f->ledger, 64u << 20, 4096, err));
    RM_TRY(rm_file_open(&f->file, path, err));
    RM_TRY(rm_gguf_header(&f->gguf, &f->file, err));
    RM_TRY(rm_gguf_layout(&f->gguf, &f->ledger, err));
    RM_TRY(rm_gguf_parse(&f->gguf, err));
    RM_TRY(rm_split_open(&f->gguf, &f->ledger, path, err));
    RM_TRY(rm_model_describe(&f->all, &f->gguf, err));
    RM_TRY(rm_model_describe(&f->some, &f->gguf, err));
    RM_TRY(rm_model_bind(&f->all, &f->ledger, &f->gguf, err));
    RM_TRY(rm_model_bind(&f->some, &f->ledger, &f->gguf, err));
    RM_TRY(rm_model_layout(&f->all, &f->ledger, NULL, err));
    RM_TRY(rm_model_layout(&f->some, &f->ledger, resident, err));
    RM_TRY(rm_stream_layout(&f->stream, &f->ledger, &f->some, shape, err));
    RM_TRY(rm_ledger_carve(&stage, &f->ledger, RM_ACCOUNT_IO, thread_count,
                           rm_model_stage_bytes(&f->all), err));
    RM_TRY(rm_ledger_carve(&memory, &f->ledger, RM_ACCOUNT_WORK, 1, rm_threads_bytes(thread_count),
                           err));
    RM_TRY(rm_threads_start(&f->threads, memory, thread_count, err));
    RM_TRY(load(f, &f->all, stage, err));
    RM_TRY(load(f, &f->some, stage, err));
    return rm_stream_start(&f->stream, &f->some, &f->gguf, f->threads, err);
}

static bool make_at(fixture *f, const char *path, const uint8_t *resident, uint64_t raw_bytes,
                    uint32_t output_strips) {
    const rm_stream_shape shape = {.raw_bytes = raw_bytes, .output_strips = output_strips};
    remat_error err = {0};
    f->file.fd = -1;
    if (build(f, path, resident, &shape, 2, &err) == REMAT_OK) return true;
    t_fail("%s", err.message);
    discard(f);
    return false;
}

static bool make(fixture *f, const tiny_spec *spec, const uint8_t *resident, uint64_t raw_bytes,
                 uint32_t output_strips) {
    memset(f, 0, sizeof *f);
    f->fd = tiny_model_open(f->path, spec);
    return f->fd >= 0 && make_at(f, f->path, resident, raw_bytes, output_strips);
}

static const uint8_t nothing[UNITS_MAX];

/* --- what must be equal ----------------------------------------------------------------------- */

static void check_matrix(const rm_matrix *got, const rm_matrix *want, const char *what) {
    const size_t bytes = (size_t)want->count * rm_strips(want->outputs) * want->strip_bytes;
    if (got->strips == NULL || memcmp(got->strips, want->strips, bytes) != 0)
        t_fail("%s: tensor %s of format %s has other bytes", what, want->source->name,
               rm_formats[want->format].name);
}

static void check_layer(fixture *f, uint32_t layer, const char *what) {
    for (uint32_t half = 0; half < 2; half++) {
        rm_matrix *got[RM_UNIT_MATRICES], *want[RM_UNIT_MATRICES];
        const uint32_t unit = RM_UNIT_LAYERS + 2 * layer + half;
        const uint32_t count = rm_unit_matrices(want, &f->all, unit);
        EXPECT_EQ_U64(rm_unit_matrices(got, &f->some, unit), count);
        for (uint32_t i = 0; i < count; i++)
            check_matrix(got[i], want[i], what);
    }
}

static int stream_layers(fixture *f, uint32_t first, uint32_t last, const char *what,
                         remat_error *err) {
    for (uint32_t layer = first; layer <= last; layer++) {
        RM_TRY(rm_stream_layer(&f->stream, layer, err));
        check_layer(f, layer, what);
    }
    return REMAT_OK;
}

/* A pass: the tiles follow each other and are the output matrix together. */
static int stream_output(fixture *f, const char *what, remat_error *err) {
    const rm_matrix *want = &f->all.output;
    uint32_t outputs = 0;
    for (;;) {
        rm_matrix tile;
        uint32_t first;
        RM_TRY(rm_stream_output(&f->stream, &tile, &first, err));
        if (tile.outputs == 0) break;
        EXPECT_EQ_U64(first * RM_LANES, outputs);
        EXPECT(tile.k == want->k && tile.format == want->format && tile.count == 1);
        const size_t bytes = rm_strips(tile.outputs) * want->strip_bytes;
        if (memcmp(tile.strips, want->strips + first * want->strip_bytes, bytes) != 0)
            t_fail("%s: a tile of the output from strip %u on has other bytes", what, first);
        outputs += tile.outputs;
        if (outputs > want->outputs) break;
    }
    EXPECT_EQ_U64(outputs, want->outputs);
    return REMAT_OK;
}

static int try_sweep(fixture *f, uint32_t passes, const char *what, remat_error *err) {
    const uint32_t layers = f->all.shape.layer_count;
    rm_stream_begin(&f->stream, 0, layers - 1, passes);
    int status = stream_layers(f, 0, layers - 1, what, err);
    for (uint32_t i = 0; status == REMAT_OK && i < passes; i++)
        status = stream_output(f, what, err);
    rm_stream_end(&f->stream);
    return status;
}

static void sweep(fixture *f, uint32_t passes, const char *what) {
    remat_error err = {0};
    if (try_sweep(f, passes, what, &err) != REMAT_OK) t_fail("%s: %s", what, err.message);
}

static void check_embeddings(fixture *f, const char *what) {
    static float got[1024], want[1024];
    static _Alignas(64) uint8_t space[64 << 10];
    const rm_matrix *w = &f->all.embedding;
    remat_error err = {0};
    REQUIRE(w->k <= 1024 && rm_stream_embed_space(&f->some) <= sizeof space);
    for (uint32_t token = 0; token < w->outputs; token++) {
        const uint8_t *strip = w->strips + token / RM_LANES * w->strip_bytes;
        rm_unpack_row(want, w->format, strip, token % RM_LANES, w->k);
        if (rm_stream_embed(&f->stream, got, token, space, &err) != REMAT_OK)
            t_fail("%s: %s", what, err.message);
        if (memcmp(got, want, w->k * sizeof *got) != 0)
            t_fail("%s: the embedding of %u differs", what, token);
    }
}

static void check_model(const tiny_spec *spec, const char *what) {
    static const uint32_t tiles[] = {1, 3, ALL_STRIPS};
    for (size_t i = 0; i < 3; i++) {
        fixture f;
        REQUIRE(make(&f, spec, nothing, i == 0 ? 0 : 1 << 20, tiles[i]));
        sweep(&f, 2, what);
        sweep(&f, 1, what);
        if (i == 0) check_embeddings(&f, what);
        discard(&f);
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

static void every_format(void) {
    for (int i = 0; i < RM_FORMAT_COUNT; i++) {
        tiny_spec spec = tiny_spec_default();
        if (rm_formats[i].gguf_k > 32) {
            spec.dim = 256;
            spec.feed_forward = 512;
            spec.head_dim = 64;
        }
        tiny_spec_format(&spec, (rm_format)i);
        check_model(&spec, rm_formats[i].name);
        spec.tied = true;
        check_model(&spec, rm_formats[i].name);
    }
}

/* Experts, fused tensors, biases, heads of any shape. */
static void every_model(void) {
    const tiny_spec *spec;
    for (size_t i = 0; (spec = tiny_spec_all(i)) != NULL; i++)
        check_model(spec, spec->name);
    for (size_t i = 0; (spec = tiny_spec_architecture(i)) != NULL; i++)
        check_model(spec, spec->name);
}

static const tiny_spec *any_spec(void) {
    size_t count = 0;
    while (tiny_spec_architecture(count) != NULL)
        count++;
    return tiny_spec_architecture(t_random() % count);
}

/* Resident units are never touched, and streamed ones are not in the arena. */
static void any_subset_of_units(void) {
    for (int round = 0; round < 80; round++) {
        const tiny_spec *spec = any_spec();
        uint8_t resident[UNITS_MAX];
        fixture f;
        for (int i = 0; i < UNITS_MAX; i++)
            resident[i] = t_random() % 2 == 0;
        REQUIRE(make(&f, spec, resident, t_random() % 3 * 40000, 1 + (uint32_t)t_random() % 8));
        uint64_t kept = 0;
        for (uint32_t unit = 0; unit < rm_unit_count(&f.some); unit++) {
            EXPECT(f.some.resident[unit] == resident[unit]);
            kept += resident[unit] ? 0 : rm_unit_bytes(&f.some, unit);
        }
        EXPECT_EQ_U64(f.some.weight_bytes + kept, f.all.weight_bytes);
        sweep(&f, 1, spec->name);
        check_embeddings(&f, spec->name);
        sweep(&f, 2, spec->name);
        discard(&f);
    }
}

static void nothing_streamed_carves_nothing(void) {
    const tiny_spec spec = tiny_spec_default();
    fixture f;
    REQUIRE(make(&f, &spec, NULL, 1 << 20, 4));
    EXPECT_EQ_U64(f.ledger.owned[RM_ACCOUNT_WEIGHT_STREAM], 0);
    sweep(&f, 3, "resident");
    check_embeddings(&f, "resident");
    EXPECT(f.stream.slot == NULL && f.stream.aio == NULL);
    discard(&f);
}

/* The slot holds the largest layer, or a tile; measuring counts what building carves. */
static void slot_is_the_largest(void) {
    const tiny_spec spec = tiny_spec_default();
    for (int tile = 0; tile < 2; tile++) {
        fixture f;
        rm_ledger measure;
        REQUIRE(make(&f, &spec, nothing, 1 << 16, tile ? ALL_STRIPS : 1));
        const uint64_t layer = rm_unit_bytes(&f.all, 2) + rm_unit_bytes(&f.all, 3);
        const uint64_t output = rm_unit_bytes(&f.all, 1);
        EXPECT_EQ_U64(f.stream.slot_bytes, tile && output > layer ? output : layer);
        const uint64_t taken = f.ledger.owned[RM_ACCOUNT_WEIGHT_STREAM];
        const rm_stream_shape shape = f.stream.shape;
        rm_stream other;
        remat_error err = {0};
        rm_ledger_measure(&measure);
        EXPECT(rm_stream_layout(&other, &measure, &f.some, &shape, &err) == REMAT_OK);
        EXPECT_EQ_U64(measure.owned[RM_ACCOUNT_WEIGHT_STREAM], taken);
        discard(&f);
    }
}

/* Sweeps that end anywhere, that begin while another runs, and that have some of the layers. */
static void sweeps_are_given_up(void) {
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 7;
    for (int ring = 0; ring < 2; ring++) {
        fixture f;
        remat_error err = {0};
        REQUIRE(make(&f, &spec, nothing, ring ? 2 << 20 : 0, 2));
        for (int round = 0; round < 60; round++) {
            const uint32_t first = (uint32_t)t_random() % 7, left = 7 - first;
            const uint32_t last = first + (uint32_t)t_random() % left;
            rm_stream_begin(&f.stream, first, last, 2);
            const bool early = t_random() % 2 == 0;
            const uint32_t some = (uint32_t)t_random() % (last - first + 1);
            if (early) {
                if (some > 0)
                    EXPECT(stream_layers(&f, first, first + some - 1, "part", &err) == REMAT_OK);
            } else {
                EXPECT(stream_layers(&f, first, last, "whole", &err) == REMAT_OK);
                if (t_random() % 2 == 0) EXPECT(stream_output(&f, "once", &err) == REMAT_OK);
            }
            if (t_random() % 2 == 0) rm_stream_end(&f.stream);
        }
        sweep(&f, 2, "afterwards");
        discard(&f);
    }
}

/* Strips point nowhere when they hold another layer. */
static void strips_are_taken_back(void) {
    const tiny_spec spec = tiny_spec_default();
    fixture f;
    remat_error err = {0};
    REQUIRE(make(&f, &spec, nothing, 1 << 16, 2));
    rm_stream_begin(&f.stream, 0, 2, 1);
    EXPECT(f.some.layers[0].wq.strips == NULL);
    EXPECT(rm_stream_layer(&f.stream, 0, &err) == REMAT_OK && f.some.layers[0].wq.strips != NULL);
    EXPECT(rm_stream_layer(&f.stream, 1, &err) == REMAT_OK && f.some.layers[0].wq.strips == NULL);
    EXPECT(f.some.layers[1].down.strips != NULL);
    rm_stream_end(&f.stream);
    EXPECT(f.some.layers[1].down.strips == NULL);
    discard(&f);
}

/* Whole and split, on a disk, where reads pass the page cache by: blocks begin before the tensor,
 * and the file ends within the last one. */
static void files_on_a_disk(void) {
    char tiny[64], stem[96], path[256];
    const tiny_spec spec = tiny_spec_default();
    const int fd = tiny_model_open(tiny, &spec);
    REQUIRE(fd >= 0);
    snprintf(stem, sizeof stem, "%s/s", folder);
    REQUIRE(split_model(stem, tiny, PARTS));
    close(fd);
    split_path(path, stem, 1, PARTS);
    for (int ring = 0; ring < 2; ring++) {
        fixture f = {.fd = -1};
        REQUIRE(make_at(&f, path, nothing, ring ? 1 << 20 : 0, 5));
        EXPECT_EQ_U64(f.gguf.part_count, PARTS);
        sweep(&f, 2, "split");
        check_embeddings(&f, "split");
        EXPECT(atomic_load(&f.stream.read_bytes) > f.all.weight_bytes);
        discard(&f);
    }
    for (uint32_t i = 1; i <= PARTS; i++) {
        split_path(path, stem, i, PARTS);
        unlink(path);
    }
}

/* --- failures --------------------------------------------------------------------------------- */

static void nth_read_fails_and_is_healed(void) {
    static const rm_io_fault faults[] = {RM_IO_FAIL, RM_IO_SHORT, RM_IO_PART};
    const tiny_spec spec = tiny_spec_default();
    for (size_t kind = 0; kind < 3; kind++) {
        fixture f;
        REQUIRE(make(&f, &spec, nothing, 0, 2));
        for (uint64_t n = 1; n < 80; n++) {
            rm_io_fault_at(n, faults[kind]);
            sweep(&f, 1, "fault");
            check_embeddings(&f, "fault");
            rm_io_fault_at(0, RM_IO_FAIL);
        }
        discard(&f);
    }
}

/* A file that has become shorter fails twice. Nothing is damaged: when it is whole again, so are
 * the sweeps. */
static void both_reads_fail(void) {
    static uint8_t bytes[4 << 20];
    const tiny_spec spec = tiny_spec_default();
    for (int ring = 0; ring < 2; ring++) {
        fixture f;
        REQUIRE(make(&f, &spec, nothing, ring ? 1 << 20 : 0, 2));
        const uint64_t size = f.file.size;
        REQUIRE(size <= sizeof bytes && pread(f.fd, bytes, size, 0) == (ssize_t)size);
        for (uint64_t at = f.gguf.data_at; at < size; at += (size - f.gguf.data_at) / 20) {
            remat_error err = {0};
            REQUIRE(ftruncate(f.fd, (off_t)at) == 0);
            EXPECT(try_sweep(&f, 1, "short", &err) == REMAT_E_FAILED);
            EXPECT(strstr(err.message, "became shorter") != NULL);
            REQUIRE(pwrite(f.fd, bytes, size, 0) == (ssize_t)size);
            sweep(&f, 1, "whole again");
        }
        discard(&f);
    }
}

/* A scale of a tensor becomes infinite after the start. */
static void weights_that_are_not_finite(void) {
    static const char *const tensors[] = {"blk.1.attn_k.weight", "blk.2.ffn_down.weight",
                                          "output.weight"};
    const tiny_spec spec = tiny_spec_default();
    for (size_t i = 0; i < 3; i++) {
        fixture f;
        remat_error err = {0};
        REQUIRE(make(&f, &spec, nothing, i * 60000, 4));
        const rm_gguf_tensor *t = rm_gguf_tensor_find(&f.gguf, tensors[i]);
        REQUIRE(t != NULL);
        const uint64_t row = 17, at = t->at + row * (t->bytes / t->dims[1]);
        const uint16_t infinite = 0x7c00;
        uint16_t before;
        REQUIRE(pread(f.fd, &before, 2, (off_t)at) == 2);
        REQUIRE(pwrite(f.fd, &infinite, 2, (off_t)at) == 2);
        EXPECT(try_sweep(&f, 1, "infinite", &err) == REMAT_E_MODEL);
        if (strstr(err.message, tensors[i]) == NULL || strstr(err.message, "row 17:") == NULL)
            t_fail("the message is: %s", err.message);
        REQUIRE(pwrite(f.fd, &before, 2, (off_t)at) == 2);
        sweep(&f, 1, "finite again");
        discard(&f);
    }
}

static void nth_carve_fails(void) {
    const tiny_spec spec = tiny_spec_default();
    const rm_stream_shape shape = {.raw_bytes = 1 << 16, .output_strips = 2};
    fixture f;
    REQUIRE(make(&f, &spec, nothing, 1 << 16, 2));
    uint64_t n = 1;
    for (;; n++) {
        rm_stream s;
        remat_error err = {0};
        rm_ledger_fail_at(&f.ledger, n);
        const int status = rm_stream_layout(&s, &f.ledger, &f.some, &shape, &err);
        if (status == REMAT_OK) break;
        EXPECT(status == REMAT_E_BUDGET && strstr(err.message, "weight_stream") != NULL);
        rm_stream_stop(&s);
    }
    EXPECT_EQ_U64(n, 6);
    discard(&f);
}

int main(int argc, char **argv) {
    snprintf(folder, sizeof folder, "/tmp/remat-stream-XXXXXX");
    if (mkdtemp(folder) == NULL) return 1;
    const int status =
        RM_RUN(argc, argv, T(every_format), T(every_model), T(any_subset_of_units),
               T(nothing_streamed_carves_nothing), T(slot_is_the_largest), T(sweeps_are_given_up),
               T(strips_are_taken_back), T(files_on_a_disk), T(nth_read_fails_and_is_healed),
               T(both_reads_fail), T(weights_that_are_not_finite), T(nth_carve_fails));
    rmdir(folder);
    return status;
}
