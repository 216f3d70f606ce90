/* preset.c: well-known models. Numbers are those of their own configuration files. Part: app. */
#include "app/preset.h"

#include <strings.h>

/* Layers, hidden size, heads, KV heads, channels of a head, feed-forward, vocabulary, context. */
#define SHAPE(layers, hidden, heads, kv, channels, ff, words, context, ...)                        \
    {                                                                                              \
        .layer_count = (layers), .dim = (hidden), .head_count = (heads), .kv_head_count = (kv),    \
        .head_dim = (channels), .feed_forward = (ff), .vocabulary = (words),                       \
        .context_count = (context), __VA_ARGS__                                                    \
    }

static const app_preset presets[] = {
    {"deepseek-v3",
     SHAPE(61, 7168, 128, 128, 128, 18432, 129280, 163840, .kv_rank = 512, .rope_dim = 64,
           .query_rank = 1536, .expert_count = 256, .expert_used = 8, .expert_feed_forward = 2048,
           .shared_feed_forward = 2048, .dense_layer_count = 3),
     671026419200ull},
    {"gemma-3-12b",
     SHAPE(48, 3840, 16, 8, 256, 15360, 262208, 131072, .tied = true, .head_norms = true,
           .post_norms = true, .window = 1024, .window_period = 6),
     0ull},
    {"gemma-3-1b",
     SHAPE(26, 1152, 4, 1, 256, 6912, 262144, 32768, .tied = true, .head_norms = true,
           .post_norms = true, .window = 512, .window_period = 6),
     999885952ull},
    {"gemma-3-270m",
     SHAPE(18, 640, 4, 1, 256, 2048, 262144, 32768, .tied = true, .head_norms = true,
           .post_norms = true, .window = 512, .window_period = 6),
     268098176ull},
    {"gemma-3-27b",
     SHAPE(62, 5376, 32, 16, 128, 21504, 262208, 131072, .tied = true, .head_norms = true,
           .post_norms = true, .window = 1024, .window_period = 6),
     0ull},
    {"gemma-3-4b",
     SHAPE(34, 2560, 8, 4, 256, 10240, 262208, 131072, .tied = true, .head_norms = true,
           .post_norms = true, .window = 1024, .window_period = 6),
     0ull},
    {"gpt-oss-120b",
     SHAPE(36, 2880, 64, 8, 64, 0, 201088, 131072, .weights = "mxfp4", .expert_count = 128,
           .parameter_count = 116829156672ull, .biases = true, .window = 128, .window_period = 2,
           .expert_used = 4, .expert_feed_forward = 2880),
     116829156672ull},
    {"gpt-oss-20b",
     SHAPE(24, 2880, 64, 8, 64, 0, 201088, 131072, .weights = "mxfp4", .expert_count = 32,
           .parameter_count = 20914757184ull, .biases = true, .window = 128, .window_period = 2,
           .expert_used = 4, .expert_feed_forward = 2880),
     20914757184ull},
    {"llama-2-13b", SHAPE(40, 5120, 40, 40, 128, 13824, 32000, 4096, .tied = false),
     13015864320ull},
    {"llama-2-70b", SHAPE(80, 8192, 64, 8, 128, 28672, 32000, 4096, .tied = false), 68976648192ull},
    {"llama-2-7b", SHAPE(32, 4096, 32, 32, 128, 11008, 32000, 4096, .tied = false), 6738415616ull},
    {"llama-3.1-70b", SHAPE(80, 8192, 64, 8, 128, 28672, 128256, 131072, .tied = false),
     70553706496ull},
    {"llama-3.1-8b", SHAPE(32, 4096, 32, 8, 128, 14336, 128256, 131072, .tied = false),
     8030261248ull},
    {"llama-3.2-1b", SHAPE(16, 2048, 32, 8, 64, 8192, 128256, 131072, .tied = true), 1235814400ull},
    {"llama-3.2-3b", SHAPE(28, 3072, 24, 8, 128, 8192, 128256, 131072, .tied = true),
     3212749824ull},
    {"mistral-7b", SHAPE(32, 4096, 32, 8, 128, 14336, 32000, 32768, .window = 4096), 7241732096ull},
    {"mixtral-8x7b",
     SHAPE(32, 4096, 32, 8, 128, 0, 32000, 32768, .expert_count = 8, .expert_used = 2,
           .expert_feed_forward = 14336),
     46702792704ull},
    {"phi-3-mini", SHAPE(32, 3072, 32, 32, 96, 8192, 32064, 4096, .tied = false), 3821079552ull},
    {"qwen2.5-0.5b", SHAPE(24, 896, 14, 2, 64, 4864, 151936, 32768, .tied = true, .biases = true),
     494032768ull},
    {"qwen2.5-1.5b", SHAPE(28, 1536, 12, 2, 128, 8960, 151936, 32768, .tied = true, .biases = true),
     1543714304ull},
    {"qwen2.5-14b", SHAPE(48, 5120, 40, 8, 128, 13824, 152064, 131072, .biases = true),
     14770033664ull},
    {"qwen2.5-32b", SHAPE(64, 5120, 40, 8, 128, 27648, 152064, 131072, .biases = true),
     32763876352ull},
    {"qwen2.5-3b", SHAPE(36, 2048, 16, 2, 128, 11008, 151936, 32768, .tied = true, .biases = true),
     3085938688ull},
    {"qwen2.5-72b", SHAPE(80, 8192, 64, 8, 128, 29568, 152064, 131072, .biases = true),
     72706203648ull},
    {"qwen2.5-7b", SHAPE(28, 3584, 28, 4, 128, 18944, 152064, 131072, .biases = true),
     7615616512ull},
    {"qwen3-0.6b",
     SHAPE(28, 1024, 16, 8, 128, 3072, 151936, 40960, .tied = true, .head_norms = true),
     596049920ull},
    {"qwen3-1.7b",
     SHAPE(28, 2048, 16, 8, 128, 6144, 151936, 40960, .tied = true, .head_norms = true),
     1720574976ull},
    {"qwen3-14b", SHAPE(40, 5120, 40, 8, 128, 17408, 151936, 40960, .head_norms = true),
     14768307200ull},
    {"qwen3-235b-a22b",
     SHAPE(94, 4096, 64, 4, 128, 0, 151936, 40960, .expert_count = 128, .expert_used = 8,
           .expert_feed_forward = 1536, .head_norms = true),
     235093634560ull},
    {"qwen3-30b-a3b",
     SHAPE(48, 2048, 32, 4, 128, 0, 151936, 40960, .expert_count = 128, .expert_used = 8,
           .expert_feed_forward = 768, .head_norms = true),
     30532122624ull},
    {"qwen3-32b", SHAPE(64, 5120, 64, 8, 128, 25600, 151936, 40960, .head_norms = true),
     32762123264ull},
    {"qwen3-4b", SHAPE(36, 2560, 32, 8, 128, 9728, 151936, 40960, .tied = true, .head_norms = true),
     4022468096ull},
    {"qwen3-8b", SHAPE(36, 4096, 32, 8, 128, 12288, 151936, 40960, .head_norms = true),
     8190735360ull},
    {"smollm2-1.7b", SHAPE(24, 2048, 32, 32, 64, 8192, 49152, 8192, .tied = true), 1711376384ull},
    {"smollm2-135m", SHAPE(30, 576, 9, 3, 64, 1536, 49152, 8192, .tied = true), 134515008ull},
    {"smollm2-360m", SHAPE(32, 960, 15, 5, 64, 2560, 49152, 8192, .tied = true), 361821120ull},
    {"tinyllama-1.1b", SHAPE(22, 2048, 32, 4, 64, 5632, 32000, 2048, .tied = false), 1100048384ull},
};

const app_preset *app_presets(size_t *count) {
    *count = sizeof presets / sizeof *presets;
    return presets;
}

const app_preset *app_preset_find(const char *name) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcasecmp(presets[i].name, name) == 0) return &presets[i];
    }
    return NULL;
}
