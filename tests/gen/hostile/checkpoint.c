/* Checkpoint folders: a small Llama in safetensors, then one broken in each way. */
#include "tests/gen/hostile/hostile.h"

enum { N_EMBD = 32, N_FF = 64, N_VOCAB = 2048 }; /* the vocabulary is that of data/'s tokenizer */

typedef struct folder {
    const char *config;     /* text of config.json */
    uint64_t header_len;    /* as written; 0: the real one */
    const char *header;     /* instead of the generated one */
    const char *find, *put; /* replace this once in the generated header */
    long cut;               /* bytes off the end of the weights */
    const char *index;      /* text of model.safetensors.index.json */
    int no_weights, no_tokenizer;
} folder;

#define CONFIG(layers, width, heads, more)                                                        \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"relu\"," \
    "\"hidden_size\":" width ",\"intermediate_size\":64,\"num_hidden_layers\":" layers            \
    ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":2,\"vocab_size\":2048,"           \
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0" more "}"

static const char good_config[] = CONFIG("1", "32", "4", "");

static const struct {
    const char *name;
    uint64_t rows, cols;
} weights[] = {
    {"model.embed_tokens.weight", N_VOCAB, N_EMBD},
    {"model.layers.0.self_attn.q_proj.weight", N_EMBD, N_EMBD},
    {"model.layers.0.self_attn.k_proj.weight", N_EMBD / 2, N_EMBD},
    {"model.layers.0.self_attn.v_proj.weight", N_EMBD / 2, N_EMBD},
    {"model.layers.0.self_attn.o_proj.weight", N_EMBD, N_EMBD},
    {"model.layers.0.mlp.gate_proj.weight", N_FF, N_EMBD},
    {"model.layers.0.mlp.up_proj.weight", N_FF, N_EMBD},
    {"model.layers.0.mlp.down_proj.weight", N_EMBD, N_FF},
    {"model.layers.0.input_layernorm.weight", N_EMBD, 0},
    {"model.layers.0.post_attention_layernorm.weight", N_EMBD, 0},
    {"model.norm.weight", N_EMBD, 0},
    {"lm_head.weight", N_VOCAB, N_EMBD},
};

/* BF16; returns the bytes of all tensors. */
static size_t generate_header(char *out, size_t cap)
{
    size_t at = 0, n = (size_t)snprintf(out, cap, "{");
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        const size_t bytes = 2 * weights[i].rows * (weights[i].cols ? weights[i].cols : 1);
        char shape[48];
        if (weights[i].cols)
            snprintf(shape, sizeof shape, "%u,%u", (unsigned)weights[i].rows,
                     (unsigned)weights[i].cols);
        else
            snprintf(shape, sizeof shape, "%u", (unsigned)weights[i].rows);
        n += (size_t)snprintf(
            out + n, cap - n,
            "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", i ? "," : "",
            weights[i].name, shape, at, at + bytes);
        at += bytes;
    }
    n += (size_t)snprintf(out + n, cap - n, "}");
    while (n % 8)
        n += (size_t)snprintf(out + n, cap - n, " ");
    return at;
}

static void replace_once(char *text, size_t cap, const char *find, const char *with)
{
    char *at = strstr(text, find);
    if (!at) {
        fprintf(stderr, "not in the header: %s\n", find);
        exit(1);
    }
    char rest[8192];
    snprintf(rest, sizeof rest, "%s", at + strlen(find));
    snprintf(at, cap - (size_t)(at - text), "%s%s", with, rest);
}

static void copy_tokenizer(const char *dir)
{
    char path[1024];
    FILE *f = fopen("data/kjv-relu-8m/tokenizer.model", "rb");
    blob b = {0};
    char buf[4096];
    size_t n;
    while (f && (n = fread(buf, 1, sizeof buf, f)) > 0)
        put(&b, buf, n);
    if (!f || !b.n) {
        perror("data/kjv-relu-8m/tokenizer.model");
        exit(1);
    }
    fclose(f);
    snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    write_file(path, b.p, b.n);
    free(b.p);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_file(path, text, strlen(text));
}

static void write_weights(const char *dir, const folder *c)
{
    static char header[16384];
    const size_t bytes = generate_header(header, sizeof header);
    if (c->find)
        replace_once(header, sizeof header, c->find, c->put);
    const char *text = c->header ? c->header : header;
    blob b = {0};
    put_u64(&b, c->header_len ? c->header_len : strlen(text));
    put(&b, text, strlen(text));
    uint32_t state = 88172645u;
    for (size_t i = 0; i < bytes / 2; i++) {
        state = state * 1664525u + 1013904223u;
        /* BF16 between 2^-6 and 2^-4, either sign */
        put_uint(&b, (state >> 16 & 0x8000) | 0x3c80 | (state >> 20 & 0xff), 2);
    }
    char path[1024];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_file(path, b.p, b.n - (size_t)c->cut);
    free(b.p);
}

static void emit_folder(const char *dir, const char *kind, const char *name, const folder *c)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, kind);
    make_dir(path);
    snprintf(path, sizeof path, "%s/%s/%s", dir, kind, name);
    make_dir(path);
    write_text(path, "config.json", c->config ? c->config : good_config);
    if (!c->no_tokenizer)
        copy_tokenizer(path);
    if (!c->no_weights)
        write_weights(path, c);
    if (c->index)
        write_text(path, "model.safetensors.index.json", c->index);
}

#define FIRST_OFFSETS "\"data_offsets\":[0,131072]"
#define FIRST_SHAPE   "\"shape\":[2048,32]"
#define INDEX(file)                                               \
    "{\"metadata\":{},\"weight_map\":{\"lm_head.weight\":\"" file \
    "\",\"model.norm.weight\":\"model.safetensors\"}}"

static const struct {
    const char *name;
    folder how;
} cases[] = {
    {"header-past-end", {.header_len = 1 << 30}},
    {"header-one-past-end", {.header_len = 300000}},
    {"header-2-32", {.header_len = (uint64_t)1 << 32}},
    {"header-2-63", {.header_len = (uint64_t)1 << 63}},
    {"header-2-64-1", {.header_len = UINT64_MAX}},
    {"header-short", {.header_len = 40}},
    {"header-1", {.header_len = 1}},
    {"header-not-json", {.header = "this is no JSON."}},
    {"header-array", {.header = "[1,2,3]         "}},
    {"header-empty-object", {.header = "{}              "}},
    {"header-nul", {.find = "{\"model", .put = "{\"\\u0000model"}},
    {"name-twice", {.find = "lm_head.weight", .put = "model.norm.weight"}},
    {"offsets-reversed", {.find = FIRST_OFFSETS, .put = "\"data_offsets\":[131072,0]"}},
    {"offsets-past-end", {.find = FIRST_OFFSETS, .put = "\"data_offsets\":[900000,1031072]"}},
    {"offsets-2-63",
     {.find = FIRST_OFFSETS, .put = "\"data_offsets\":[9223372036854775807,9223372036854775807]"}},
    {"offsets-2-70", {.find = FIRST_OFFSETS, .put = "\"data_offsets\":[0,1180591620717411303424]"}},
    {"offsets-negative", {.find = FIRST_OFFSETS, .put = "\"data_offsets\":[-1,131071]"}},
    {"offsets-real", {.find = FIRST_OFFSETS, .put = "\"data_offsets\":[0.0,131072.5]"}},
    {"offsets-string", {.find = FIRST_OFFSETS, .put = "\"data_offsets\":[\"0\",\"131072\"]"}},
    {"offsets-one", {.find = FIRST_OFFSETS, .put = "\"data_offsets\":[0]"}},
    {"offsets-missing", {.find = "," FIRST_OFFSETS, .put = ""}},
    {"offsets-overlap", {.find = "[131072,133120]", .put = "[131070,133118]"}},
    {"shape-too-large", {.find = FIRST_SHAPE, .put = "\"shape\":[2048,33]"}},
    {"shape-wraps", {.find = FIRST_SHAPE, .put = "\"shape\":[4294967296,4294967296]"}},
    {"shape-2-63", {.find = FIRST_SHAPE, .put = "\"shape\":[9223372036854775807,2]"}},
    {"shape-negative", {.find = FIRST_SHAPE, .put = "\"shape\":[-2048,-32]"}},
    {"shape-zero", {.find = FIRST_SHAPE, .put = "\"shape\":[0,32]"}},
    {"shape-of-9", {.find = FIRST_SHAPE, .put = "\"shape\":[2048,32,1,1,1,1,1,1,1]"}},
    {"shape-missing", {.find = FIRST_SHAPE ",", .put = ""}},
    {"dtype-unknown", {.find = "BF16", .put = "BF17"}},
    {"dtype-f8", {.find = "BF16", .put = "F8_E4M3"}},
    {"dtype-number", {.find = "\"BF16\"", .put = "16"}},
    {"data-cut", {.cut = 1}},
    {"data-cut-half", {.cut = 200000}},
    {"no-weights", {.no_weights = 1}},
    {"no-tokenizer", {.no_tokenizer = 1}},
    {"tensor-unknown-shape", {.find = "[32,64]", .put = "[64,32]"}},
    {"tensor-missing", {.find = "mlp.gate_proj", .put = "mlp.wicket_proj"}},
    {"index-not-json", {.index = "{\"weight_map\":"}},
    {"index-no-map", {.index = "{\"metadata\":{}}"}},
    {"index-escapes", {.index = INDEX("../../valid/hf/model.safetensors")}},
    {"index-absolute", {.index = INDEX("/etc/passwd")}},
    {"index-missing-shard", {.index = INDEX("model-00002-of-00002.safetensors")}},
    {"config-not-json", {.config = "{\"architectures\":"}},
    {"config-empty", {.config = ""}},
    {"config-array", {.config = "[]"}},
    {"config-no-fields", {.config = "{\"architectures\":[\"LlamaForCausalLM\"]}"}},
    {"config-unknown", {.config = "{\"architectures\":[\"NonesuchForCausalLM\"]}"}},
    {"config-layers-0", {.config = CONFIG("0", "32", "4", "")}},
    {"config-layers-2", {.config = CONFIG("2", "32", "4", "")}},
    {"config-layers-10-9", {.config = CONFIG("1000000000", "32", "4", "")}},
    {"config-layers-real", {.config = CONFIG("1.5", "32", "4", "")}},
    {"config-width-negative", {.config = CONFIG("1", "-32", "4", "")}},
    {"config-width-2-63", {.config = CONFIG("1", "9223372036854775807", "4", "")}},
    {"config-width-2-70", {.config = CONFIG("1", "1180591620717411303424", "4", "")}},
    {"config-width-string", {.config = CONFIG("1", "\"32\"", "4", "")}},
    {"config-width-64", {.config = CONFIG("1", "64", "4", "")}},
    {"config-heads-0", {.config = CONFIG("1", "32", "0", "")}},
    {"config-heads-3", {.config = CONFIG("1", "32", "3", "")}},
    {"config-key-twice", {.config = CONFIG("1", "32", "4", ",\"hidden_size\":64")}},
};

static void emit_deep(const char *dir)
{
    static char deep[200001];
    memset(deep, '[', sizeof deep - 1);
    const folder header = {.header = deep}, config = {.config = deep};
    emit_folder(dir, "hf", "header-deep", &header);
    emit_folder(dir, "hf", "config-deep", &config);
}

void emit_checkpoints(const char *dir)
{
    const folder good = {0};
    emit_folder(dir, "valid", "hf", &good);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        emit_folder(dir, "hf", cases[i].name, &cases[i].how);
    emit_deep(dir);
}
