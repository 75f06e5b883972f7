/* hotset-convert as a library call: the golden conversion byte for byte, the order and kind of
 * the source not mattering, and what a folder must not be. */
#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "tools/convert/convert.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const hs_cli quiet = {.program = "test", .quiet = true};
static char root[64], output[96];

static int fresh(void **state)
{
    (void)state;
    strcpy(root, "/tmp/hotset-convert-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(output, sizeof output, "%s/out.gguf", root);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static hs_gguf *convert_to(const hs_conv_options *options, const char *path)
{
    hs_conv_options o = *options;
    hs_conv_report r;
    hs_err err = {0};
    hs_gguf *g = NULL;
    o.output = path;
    o.force = true;
    if (!o.outtype)
        o.outtype = "auto";
    if (!o.layout)
        o.layout = "auto";
    if (hs_convert(&o, &quiet, &r, &err) != HS_OK || hs_gguf_open(&g, path, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(r.bytes, g->map.size);
    assert_int_equal(r.tensors, g->n_tensors);
    return g;
}

static hs_gguf *convert(const hs_conv_options *o) { return convert_to(o, output); }

/* ---- the golden file ------------------------------------------------------------------- */

static void test_golden(void **state)
{
    (void)state;
    const hs_conv_options o = {.model_dir = "tests/golden/hf/m1",
                               .predictor = "tests/golden/hf/m1_pred",
                               .outtype = "f16"};
    hs_err err;
    hs_gguf *g = convert(&o), *gold = NULL;
    assert_int_equal(hs_gguf_open(&gold, "tests/golden/m1.gguf", &err), HS_OK);
    assert_true(g->pwri);
    assert_int_equal(g->version, gold->version);
    assert_int_equal(g->n_tensors, gold->n_tensors);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_gguf_tensor *a = &g->tensors[i], *b = &gold->tensors[i];
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->n_dims, b->n_dims);
        assert_memory_equal(a->ne, b->ne, sizeof a->ne);
        assert_int_equal(a->offset, b->offset);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    /* the original's KVs in their order, then ours */
    assert_true(g->n_kv > gold->n_kv);
    for (size_t i = 0; i < g->n_kv; i++) {
        const hs_kv *a = &g->kv[i];
        if (i >= gold->n_kv) {
            assert_memory_equal(a->key.p, "hotset.", 7);
            continue;
        }
        const hs_kv *b = &gold->kv[i];
        assert_int_equal(a->key.n, b->key.n);
        assert_memory_equal(a->key.p, b->key.p, a->key.n);
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->elem, b->elem);
        assert_int_equal(a->count, b->count);
        assert_int_equal(a->raw_bytes, b->raw_bytes);
        assert_memory_equal(a->raw, b->raw, a->raw_bytes);
    }
    hs_str act = {0};
    assert_int_equal(hs_gguf_str(g, "hotset.activation", &act, &err), HS_OK);
    assert_true(hs_str_eq(act, "relu"));
    hs_gguf_free(g);
    hs_gguf_free(gold);
}

/* ---- values ---------------------------------------------------------------------------- */

static float source(const hs_checkpoint *c, const char *name, uint64_t row, uint64_t col)
{
    const hs_ckpt_tensor *t = hs_checkpoint_find(c, name);
    assert_non_null(t);
    double v = HUGE_VAL;
    assert_int_equal(hs_ckpt_value(t, row * t->shape[1] + col, &v, NULL), HS_OK);
    return (float)v;
}

static float stored(const hs_gguf *g, const char *name, uint64_t row, uint64_t col)
{
    const hs_gguf_tensor *t = hs_gguf_tensor_find(g, name);
    assert_non_null(t);
    assert_int_equal(t->dtype, HS_F32);
    float v;
    memcpy(&v, t->data + 4 * (row * t->ne[0] + col), 4);
    return v;
}

static void test_values(void **state)
{
    (void)state;
    hs_checkpoint *c = NULL;
    hs_err err;
    assert_int_equal(hs_checkpoint_open_dir(&c, "data/kjv-relu-8m", &err), HS_OK);
    hs_gguf *sparse = convert(&(hs_conv_options){
        .model_dir = "data/kjv-relu-8m", .outtype = "f32", .layout = "powerinfer"});
    char path[128];
    snprintf(path, sizeof path, "%s/dense.gguf", root);
    hs_gguf *dense = convert_to(
        &(hs_conv_options){.model_dir = "data/kjv-relu-8m", .outtype = "f32", .layout = "dense"},
        path);
    assert_true(sparse->pwri);
    assert_false(dense->pwri);
    static const char down[] = "model.layers.3.mlp.down_proj.weight";
    for (uint64_t i = 0; i < 1024; i += 31)
        for (uint64_t k = 0; k < 256; k += 17) {
            assert_true(stored(sparse, "blk.3.ffn_down_t.weight", i, k) == source(c, down, k, i));
            assert_true(stored(dense, "blk.3.ffn_down.weight", k, i) == source(c, down, k, i));
        }
    /* 8 query heads and 4 key heads of 32: row h*32 + 2p + s is row h*32 + 16s + p */
    for (uint64_t h = 0; h < 8; h++)
        for (uint64_t p = 0; p < 16; p++)
            for (uint64_t s = 0; s < 2; s++) {
                const uint64_t to = h * 32 + 2 * p + s, from = h * 32 + 16 * s + p;
                assert_true(stored(dense, "blk.5.attn_q.weight", to, 100) ==
                            source(c, "model.layers.5.self_attn.q_proj.weight", from, 100));
                if (h < 4)
                    assert_true(stored(dense, "blk.5.attn_k.weight", to, 7) ==
                                source(c, "model.layers.5.self_attn.k_proj.weight", from, 7));
            }
    assert_true(stored(dense, "blk.5.attn_v.weight", 33, 3) ==
                source(c, "model.layers.5.self_attn.v_proj.weight", 33, 3));
    bool predictors = true;
    assert_int_equal(hs_gguf_bool(sparse, "hotset.sparse.predictors", &predictors, &err), HS_OK);
    assert_false(predictors);
    assert_null(hs_gguf_find(dense, "hotset.sparse.predictors"));
    assert_null(hs_gguf_find(sparse, "powerinfer.sparse_threshold"));
    hs_gguf_free(sparse);
    hs_gguf_free(dense);
    hs_checkpoint_free(c);
}

static void test_outtypes(void **state)
{
    (void)state;
    static const struct {
        const char *outtype;
        hs_dtype dtype;
        uint32_t file_type;
    } rows[] = {
        {"auto", HS_BF16, 32}, {"f32", HS_F32, 0},   {"f16", HS_F16, 1},
        {"bf16", HS_BF16, 32}, {"q8_0", HS_Q8_0, 7},
    };
    char path[128];
    snprintf(path, sizeof path, "%s/f32.gguf", root);
    hs_gguf *f32 = convert_to(&(hs_conv_options){.model_dir = "data/kjv-relu-8m",
                                                 .predictor = "data/kjv-relu-8m/predictor",
                                                 .outtype = "f32"},
                              path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hs_gguf *g = convert(&(hs_conv_options){.model_dir = "data/kjv-relu-8m",
                                                .predictor = "data/kjv-relu-8m/predictor",
                                                .outtype = rows[i].outtype});
        uint32_t file_type = 99;
        assert_int_equal(hs_gguf_u32(g, "general.file_type", &file_type, NULL), HS_OK);
        assert_int_equal(file_type, rows[i].file_type);
        assert_int_equal(g->n_tensors, f32->n_tensors);
        for (size_t k = 0; k < g->n_tensors; k++) {
            const hs_gguf_tensor *a = &g->tensors[k], *b = &f32->tensors[k];
            assert_int_equal(a->dtype, a->n_dims == 1 ? HS_F32 : rows[i].dtype);
            uint8_t *want = malloc(a->bytes);
            const size_t n = (size_t)(b->ne[0] * b->ne[1]);
            hs_dtype_get(a->dtype)->encode(want, (const float *)(const void *)b->data, n);
            assert_memory_equal(a->data, want, a->bytes);
            free(want);
        }
        hs_gguf_free(g);
    }
    float t = -1;
    assert_int_equal(hs_gguf_f32(f32, "powerinfer.sparse_threshold", &t, NULL), HS_OK);
    assert_true(t == 0.0f);
    hs_gguf_free(f32);
}

/* ---- a tiny folder that can be broken -------------------------------------------------- */

static void put(const char *dir, const char *name, const void *data, size_t n)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void put_text(const char *dir, const char *name, const char *text)
{
    put(dir, name, text, strlen(text));
}

typedef struct tiny {
    const char *name;
    int rows, cols;
} tiny;

/* n_embd 64, one head of 64, n_ff 96, one layer, 32 tokens */
static const tiny tiny_tensors[] = {
    {"model.embed_tokens.weight", 32, 64},
    {"model.layers.0.self_attn.q_proj.weight", 64, 64},
    {"model.layers.0.self_attn.k_proj.weight", 64, 64},
    {"model.layers.0.self_attn.v_proj.weight", 64, 64},
    {"model.layers.0.self_attn.o_proj.weight", 64, 64},
    {"model.layers.0.mlp.gate_proj.weight", 96, 64},
    {"model.layers.0.mlp.up_proj.weight", 96, 64},
    {"model.layers.0.mlp.down_proj.weight", 64, 96},
    {"model.layers.0.input_layernorm.weight", 64, 0},
    {"model.layers.0.post_attention_layernorm.weight", 64, 0},
    {"model.norm.weight", 64, 0},
    {"lm_head.weight", 32, 64},
    {"model.layers.0.self_attn.rotary_emb.inv_freq", 32, 0},
};
enum { N_TINY = sizeof tiny_tensors / sizeof *tiny_tensors };

#define TINY_CONFIG                                                                         \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":32," \
    "\"hidden_size\":64,\"num_hidden_layers\":1,\"intermediate_size\":96,"                  \
    "\"num_attention_heads\":1,\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,"      \
    "\"hidden_act\":\"relu\",\"bos_token_id\":1,\"eos_token_id\":2}"

/* What to change: tensor `name` gets other dimensions (rows -1: it is left out), or is added. */
typedef struct change {
    const char *name;
    int rows, cols;
    const char *dtype;
} change;

/* Elements count up from 1 in steps of 1/1024 in every tensor. */
static void put_tensors(const char *dir, const char *file, const tiny *list, int n,
                        const change *ch, bool reversed)
{
    char header[4096];
    size_t h = 8, at = 0;
    uint8_t *data = calloc(1, 1 << 20);
    bool changed = false;
    header[h++] = '{';
    for (int k = 0; k <= n; k++) {
        const int i = reversed ? n - 1 - k : k;
        tiny t = i >= 0 && i < n ? list[i] : (tiny){0};
        const char *dtype = "F32";
        if (ch && ((t.name && strcmp(t.name, ch->name) == 0) || (!t.name && !changed))) {
            changed = true;
            t = (tiny){ch->name, ch->rows, ch->cols};
            dtype = ch->dtype ? ch->dtype : dtype;
        }
        if (!t.name || t.rows < 0)
            continue;
        const size_t size = strcmp(dtype, "F32") == 0 ? 4 : 1;
        const size_t elems = (size_t)t.rows * (size_t)(t.cols ? t.cols : 1);
        h += (size_t)sprintf(header + h, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d",
                             h > 9 ? "," : "", t.name, dtype, t.rows);
        if (t.cols)
            h += (size_t)sprintf(header + h, ",%d", t.cols);
        h += (size_t)sprintf(header + h, "],\"data_offsets\":[%zu,%zu]}", at, at + elems * size);
        for (size_t e = 0; e < elems && size == 4; e++) {
            const float v = 1.0f + (float)e / 1024;
            memcpy(data + at + 4 * e, &v, 4);
        }
        at += elems * size;
    }
    header[h++] = '}';
    for (int i = 0; i < 8; i++)
        header[i] = (char)((h - 8) >> (8 * i));
    uint8_t *whole = malloc(h + at);
    memcpy(whole, header, h);
    memcpy(whole + h, data, at);
    put(dir, file, whole, h + at);
    free(whole);
    free(data);
}

/* n pieces: <unk>, <s>, </s>, then p3, p4, … */
static void put_tokenizer(const char *dir, int n)
{
    char buf[4096];
    size_t k = 0;
    for (int i = 0; i < n; i++) {
        static const char *const first[] = {"<unk>", "<s>", "</s>"};
        static const char types[] = {2, 3, 3};
        char name[16];
        const int m = i < 3 ? snprintf(name, sizeof name, "%s", first[i])
                            : snprintf(name, sizeof name, "p%d", i);
        buf[k++] = 10;
        buf[k++] = (char)(m + 4);
        buf[k++] = 10;
        buf[k++] = (char)m;
        memcpy(buf + k, name, (size_t)m);
        k += (size_t)m;
        buf[k++] = 24;
        buf[k++] = i < 3 ? types[i] : 1;
    }
    put(dir, "tokenizer.model", buf, k);
}

static void put_tiny(const char *dir, const change *ch)
{
    assert_true(mkdir(dir, 0777) == 0 || errno == EEXIST);
    put_text(dir, "config.json", TINY_CONFIG);
    put_tokenizer(dir, 32);
    put_tensors(dir, "model.safetensors", tiny_tensors, N_TINY, ch, false);
}

static void test_tiny(void **state)
{
    (void)state;
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, NULL);
    hs_gguf *g = convert(&(hs_conv_options){.model_dir = dir});
    assert_int_equal(g->n_tensors, 12);
    assert_true(g->pwri);
    assert_int_equal(hs_gguf_tensor_find(g, "blk.0.ffn_down_t.weight")->dtype, HS_F32);
    assert_true(stored(g, "blk.0.ffn_down_t.weight", 95, 1) == 1.0f + (96.0f + 95) / 1024);
    hs_gguf_free(g);
    /* rows of 64 fit Q8_0 blocks; a dense down projection has rows of 96, which fit too */
    g = convert(&(hs_conv_options){.model_dir = dir, .outtype = "q8_0", .layout = "dense"});
    assert_int_equal(hs_gguf_tensor_find(g, "blk.0.ffn_down.weight")->dtype, HS_Q8_0);
    hs_gguf_free(g);
}

static void test_fallback(void **state)
{
    (void)state;
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, NULL);
    put_tensors(dir, "model.safetensors", tiny_tensors, N_TINY, NULL, false);
    static const tiny odd[] = {
        {"0.fc1.weight", 20, 64},
        {"0.fc2.weight", 96, 20},
    };
    put_tensors(root, "pred.safetensors", odd, 2, NULL, false);
    char pred[96];
    snprintf(pred, sizeof pred, "%s/pred.safetensors", root);
    hs_gguf *g = convert(&(hs_conv_options){.model_dir = dir,
                                            .predictor = pred,
                                            .outtype = "q8_0",
                                            .has_threshold = true,
                                            .threshold = 0.5});
    assert_int_equal(hs_gguf_tensor_find(g, "blk.0.fc1.weight")->dtype, HS_Q8_0);
    assert_int_equal(hs_gguf_tensor_find(g, "blk.0.fc2.weight")->dtype, HS_F16);
    float t = 0;
    assert_int_equal(hs_gguf_f32(g, "powerinfer.sparse_threshold", &t, NULL), HS_OK);
    assert_true(t == 0.5f);
    hs_str input = {0};
    assert_int_equal(hs_gguf_str(g, "hotset.predictor.input", &input, NULL), HS_OK);
    assert_true(hs_str_eq(input, "residual"));
    hs_gguf_free(g);
}

static void same_bytes(const char *a, const char *b)
{
    hs_map x, y;
    assert_int_equal(hs_map_open(&x, a, NULL), HS_OK);
    assert_int_equal(hs_map_open(&y, b, NULL), HS_OK);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    hs_map_close(&x);
    hs_map_close(&y);
}

/* One file, the same reversed, and shards whose index lists them backwards. */
static void test_order(void **state)
{
    (void)state;
    char dir[3][96], out[3][96];
    for (int i = 0; i < 3; i++) {
        char parent[96];
        snprintf(parent, sizeof parent, "%s/%d", root, i);
        assert_int_equal(mkdir(parent, 0777), 0);
        snprintf(dir[i], sizeof dir[i], "%s/%d/m", root, i);
        snprintf(out[i], sizeof out[i], "%s/%d.gguf", root, i);
        put_tiny(dir[i], NULL);
    }
    put_tensors(dir[1], "model.safetensors", tiny_tensors, N_TINY, NULL, true);
    put_tensors(dir[2], "s1", tiny_tensors + 7, N_TINY - 7, NULL, true);
    put_tensors(dir[2], "s2", tiny_tensors, 7, NULL, false);
    char index[2048] = "{\"weight_map\":{";
    for (int i = N_TINY; i-- > 0;)
        sprintf(index + strlen(index), "\"%s\":\"%s\"%s", tiny_tensors[i].name, i < 7 ? "s2" : "s1",
                i ? "," : "}}");
    put_text(dir[2], "model.safetensors.index.json", index);
    for (int i = 0; i < 3; i++)
        hs_gguf_free(convert_to(&(hs_conv_options){.model_dir = dir[i], .outtype = "f16"}, out[i]));
    same_bytes(out[0], out[1]);
    same_bytes(out[0], out[2]);
}

/* ---- activation, ties, vocabulary ------------------------------------------------------ */

/* TINY_CONFIG with one part replaced. */
static void put_config(const char *dir, const char *from, const char *to)
{
    char text[2048] = TINY_CONFIG;
    if (from) {
        char *at = strstr(text, from);
        assert_non_null(at);
        const size_t n = strlen(from), m = strlen(to);
        memmove(at + m, at + n, strlen(at + n) + 1);
        memcpy(at, to, m);
    }
    put_text(dir, "config.json", text);
}

static void test_activation(void **state)
{
    (void)state;
    static const struct {
        const char *to, *layout, *act;
        bool pwri;
    } rows[] = {
        {"\"hidden_act\":\"relu\",", "auto", "relu", true},
        {"\"hidden_act\":\"relu\",", "dense", "relu", false},
        {"\"hidden_act\":\"silu\",", "auto", "silu", false},
        {"\"hidden_act\":\"silu\",", "powerinfer", "silu", true},
        {"\"hidden_act\":\"gelu\",", "auto", "gelu", false},
        {"\"hidden_act\":\"gelu_new\",", "auto", "gelu_tanh", false},
        {"\"hidden_act\":\"gelu_pytorch_tanh\",", "auto", "gelu_tanh", false},
        {"\"hidden_act\":\"fatrelu\",\"hidden_act_param\":0.01,", "auto", "fatrelu", true},
        {"", "auto", "silu", false},
        {"\"hidden_act\":null,", "powerinfer", "relu", true},
    };
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_config(dir, "\"hidden_act\":\"relu\",", rows[i].to);
        hs_gguf *g = convert(&(hs_conv_options){.model_dir = dir, .layout = rows[i].layout});
        hs_str act = {0};
        assert_int_equal(hs_gguf_str(g, "hotset.activation", &act, NULL), HS_OK);
        assert_true(hs_str_eq(act, rows[i].act));
        assert_int_equal(g->pwri, rows[i].pwri);
        float t = -1;
        assert_int_equal(hs_gguf_f32(g, "hotset.fatrelu_threshold", &t, NULL), HS_OK);
        assert_true(t == (strcmp(rows[i].act, "fatrelu") ? -1.0f : 0.01f));
        hs_gguf_free(g);
    }
    put_config(dir, "LlamaForCausalLM", "BambooForCausalLM");
    hs_gguf *g = convert(&(hs_conv_options){.model_dir = dir});
    hs_str act = {0};
    assert_int_equal(hs_gguf_str(g, "hotset.activation", &act, NULL), HS_OK);
    assert_true(hs_str_eq(act, "drelu"));
    assert_non_null(hs_gguf_find(g, "bamboo.block_count"));
    hs_gguf_free(g);
}

static void test_tied(void **state)
{
    (void)state;
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, &(change){"lm_head.weight", -1, 0, NULL});
    put_config(dir, "\"hidden_act\"", "\"tie_word_embeddings\":true,\"hidden_act\"");
    hs_gguf *g = convert(&(hs_conv_options){.model_dir = dir, .layout = "dense"});
    assert_null(hs_gguf_tensor_find(g, "output.weight"));
    hs_gguf_free(g);
    g = convert(&(hs_conv_options){.model_dir = dir});
    const hs_gguf_tensor *a = hs_gguf_tensor_find(g, "token_embd.weight"),
                         *b = hs_gguf_tensor_find(g, "output.weight");
    assert_non_null(b);
    assert_memory_equal(a->data, b->data, a->bytes);
    hs_gguf_free(g);
}

static void test_rope(void **state)
{
    (void)state;
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, NULL);
    put_config(dir, "\"hidden_act\"",
               "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0},"
               "\"hidden_act\"");
    hs_gguf *g = convert(&(hs_conv_options){.model_dir = dir});
    float base = 0, factor = 0;
    assert_int_equal(hs_gguf_f32(g, "llama.rope.freq_base", &base, NULL), HS_OK);
    assert_int_equal(hs_gguf_f32(g, "llama.rope.scaling.factor", &factor, NULL), HS_OK);
    assert_true(base == 10000.0f && factor == 2.0f);
    hs_gguf_free(g);
    put_config(dir, NULL, NULL);
    g = convert(&(hs_conv_options){.model_dir = dir});
    assert_null(hs_gguf_find(g, "llama.rope.freq_base"));
    hs_gguf_free(g);
}

typedef struct token {
    const char *text;
    int type;
} token;

static token token_at(const hs_gguf *g, uint32_t id, char *buf)
{
    const hs_kv *pieces, *types;
    assert_int_equal(hs_gguf_array(g, "tokenizer.ggml.tokens", HS_KV_STRING, &pieces, NULL), HS_OK);
    assert_int_equal(hs_gguf_array(g, "tokenizer.ggml.token_type", HS_KV_I32, &types, NULL), HS_OK);
    assert_true(id < pieces->count && types->count == pieces->count);
    size_t pos = 0;
    hs_str s = {0};
    for (uint32_t i = 0; i <= id; i++)
        s = hs_kv_next_str(pieces, &pos);
    memcpy(buf, s.p, s.n);
    buf[s.n] = 0;
    return (token){buf, (int)hs_kv_int(types, id)};
}

static void test_vocab(void **state)
{
    (void)state;
    char dir[96], buf[64];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, NULL);
    put_tokenizer(dir, 28);
    put_text(dir, "added_tokens.json", "{\"<extra>\":28,\"<s>\":1}");
    put_text(dir, "tokenizer_config.json",
             "{\"added_tokens_decoder\":{\"30\":{\"content\":\"<tool>\",\"special\":true},"
             "\"28\":{\"content\":\"<extra>\",\"special\":false},"
             "\"5\":{\"content\":\"<new5>\",\"special\":true}},"
             "\"bos_token\":{\"content\":\"<tool>\"},\"pad_token\":\"<unk>\",\"unk_token\":null,"
             "\"add_bos_token\":false,\"add_eos_token\":true}");
    hs_gguf *g = convert(&(hs_conv_options){.model_dir = dir});
    static const struct {
        uint32_t id;
        token is;
    } want[] = {
        {1, {"<s>", 3}},      {4, {"p4", 1}},       {5, {"<new5>", 3}},  {27, {"p27", 1}},
        {28, {"<extra>", 4}}, {29, {"[PAD29]", 5}}, {30, {"<tool>", 3}}, {31, {"[PAD31]", 5}},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const token t = token_at(g, want[i].id, buf);
        assert_string_equal(t.text, want[i].is.text);
        assert_int_equal(t.type, want[i].is.type);
    }
    uint32_t bos = 99, eos = 99, pad = 99, unk = 99;
    bool add_bos = true, add_eos = false;
    assert_int_equal(hs_gguf_u32(g, "tokenizer.ggml.bos_token_id", &bos, NULL), HS_OK);
    assert_int_equal(hs_gguf_u32(g, "tokenizer.ggml.eos_token_id", &eos, NULL), HS_OK);
    assert_int_equal(hs_gguf_u32(g, "tokenizer.ggml.padding_token_id", &pad, NULL), HS_OK);
    assert_int_equal(hs_gguf_u32(g, "tokenizer.ggml.unknown_token_id", &unk, NULL), HS_OK);
    assert_int_equal(hs_gguf_bool(g, "tokenizer.ggml.add_bos_token", &add_bos, NULL), HS_OK);
    assert_int_equal(hs_gguf_bool(g, "tokenizer.ggml.add_eos_token", &add_eos, NULL), HS_OK);
    assert_int_equal(bos, 30);
    assert_int_equal(eos, 2);
    assert_int_equal(pad, 0);
    assert_int_equal(unk, 99);
    assert_false(add_bos);
    assert_true(add_eos);
    hs_gguf_free(g);
    /* no rows for an added token: left out */
    put_tokenizer(dir, 32);
    put_text(dir, "added_tokens.json", "{\"[PAD]\":32}");
    put_text(dir, "tokenizer_config.json", "{}");
    g = convert(&(hs_conv_options){.model_dir = dir});
    assert_string_equal(token_at(g, 31, buf).text, "p31");
    hs_gguf_free(g);
}

static void test_vocab_only(void **state)
{
    (void)state;
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, NULL);
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    hs_gguf *g = convert(&(hs_conv_options){.model_dir = dir, .vocab_only = true});
    assert_false(g->pwri);
    assert_int_equal(g->n_tensors, 0);
    assert_non_null(hs_gguf_find(g, "tokenizer.ggml.tokens"));
    hs_gguf_free(g);
}

/* ---- refusals -------------------------------------------------------------------------- */

static void refuse(const hs_conv_options *options, hs_status status, const char *message)
{
    hs_conv_options o = *options;
    hs_conv_report r;
    hs_err err = {0};
    o.output = output;
    o.outtype = "auto";
    if (!o.layout)
        o.layout = "auto";
    const hs_status s = hs_convert(&o, &quiet, &r, &err);
    char full[1024];
    snprintf(full, sizeof full, "%s%s", root, message);
    if (s != status || strcmp(err.msg, *message == '/' ? full : message) != 0)
        fail_msg("status %d, \"%s\"; expected %d, \"%s\"", s, err.msg, status, message);
    assert_int_not_equal(access(output, F_OK), 0); /* nothing was left behind */
}

static void test_bad_config(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        hs_status status;
        const char *message;
    } rows[] = {
        {"LlamaForCausalLM", "GPT2LMHeadModel", HS_ERR_UNSUPPORTED,
         "/m/config.json: architecture GPT2LMHeadModel is not supported (supported: "
         "LlamaForCausalLM, BambooForCausalLM)"},
        {"\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"",
         "\"model_type\":\"gpt2\"", HS_ERR_UNSUPPORTED,
         "/m/config.json: architecture gpt2 is not supported (supported: LlamaForCausalLM, "
         "BambooForCausalLM)"},
        {"\"hidden_size\":64,", "", HS_ERR_FORMAT, "/m/config.json: hidden_size is missing"},
        {"\"hidden_size\":64,", "\"hidden_size\":-64,", HS_ERR_FORMAT,
         "/m/config.json: hidden_size: expected a whole number from 1 to 16777216"},
        {"\"hidden_size\":64,", "\"hidden_size\":64.5,", HS_ERR_FORMAT,
         "/m/config.json: hidden_size: expected a whole number from 1 to 16777216"},
        {"\"num_hidden_layers\":1,", "\"num_hidden_layers\":99999999,", HS_ERR_FORMAT,
         "/m/config.json: num_hidden_layers: expected a whole number from 1 to 4096"},
        {"\"num_attention_heads\":1,", "\"num_attention_heads\":3,", HS_ERR_FORMAT,
         "/m/config.json: hidden_size 64 is no multiple of num_attention_heads 3"},
        {"\"num_attention_heads\":1,", "\"num_attention_heads\":64,", HS_ERR_FORMAT,
         "/m/config.json: the head size is 1, expected an even number"},
        {"\"num_attention_heads\":1,", "\"num_attention_heads\":4,\"num_key_value_heads\":3,",
         HS_ERR_FORMAT,
         "/m/config.json: num_key_value_heads is 3, expected a divisor of num_attention_heads 4"},
        {"\"rms_norm_eps\":1e-5,", "", HS_ERR_FORMAT, "/m/config.json: rms_norm_eps is missing"},
        {"\"relu\"", "\"mish\"", HS_ERR_UNSUPPORTED,
         "/m/config.json: hidden_act mish is not supported (supported: relu, fatrelu, drelu, silu, "
         "gelu, gelu_new, gelu_pytorch_tanh)"},
        {"\"relu\"", "\"fatrelu\"", HS_ERR_FORMAT,
         "/m/config.json: hidden_act fatrelu: hidden_act_param: expected its threshold, a number "
         "from 0"},
        {"\"hidden_act\"", "\"rope_scaling\":{\"rope_type\":\"llama3\"},\"hidden_act\"",
         HS_ERR_UNSUPPORTED,
         "/m/config.json: rope_scaling: type llama3 is not supported (supported: linear, yarn)"},
        {"\"hidden_act\"", "\"rope_theta\":0,\"hidden_act\"", HS_ERR_FORMAT,
         "/m/config.json: rope_theta: expected a positive number"},
        {"\"hidden_act\"", "\"quantization_config\":{\"quant_method\":\"gptq\"},\"hidden_act\"",
         HS_ERR_UNSUPPORTED,
         "/m/config.json: an already quantized checkpoint (gptq); convert the original weights"},
        {"\"vocab_size\":32", "\"vocab_size\":31", HS_ERR_FORMAT,
         "/m: the tokenizer has 32 tokens, config.json's vocab_size is 31"},
        {"\"vocab_size\":32", "\"vocab_size\":33", HS_ERR_FORMAT,
         "/m/model.safetensors: tensor model.embed_tokens.weight: expected shape [33, 64], got "
         "[32, 64]"},
        {"\"num_hidden_layers\":1,", "\"num_hidden_layers\":2,", HS_ERR_FORMAT,
         "/m: tensor model.layers.1.self_attn.q_proj.weight is missing"},
    };
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_config(dir, rows[i].from, rows[i].to);
        refuse(&(hs_conv_options){.model_dir = dir}, rows[i].status, rows[i].message);
    }
}

static void test_bad_tensors(void **state)
{
    (void)state;
    static const struct {
        change ch;
        hs_status status;
        const char *message;
    } rows[] = {
        {{"model.norm.weight", -1, 0, NULL},
         HS_ERR_FORMAT,
         "/m: tensor model.norm.weight is missing"},
        {{"lm_head.weight", -1, 0, NULL},
         HS_ERR_FORMAT,
         "/m: tensor lm_head.weight is missing (and config.json does not say tie_word_embeddings)"},
        {{"model.norm.weight", 65, 0, NULL},
         HS_ERR_FORMAT,
         "/m/model.safetensors: tensor model.norm.weight: expected shape [64], got [65]"},
        {{"model.norm.weight", 64, 1, NULL},
         HS_ERR_FORMAT,
         "/m/model.safetensors: tensor model.norm.weight: expected shape [64], got [64, 1]"},
        {{"model.layers.0.mlp.down_proj.weight", 96, 64, NULL},
         HS_ERR_FORMAT,
         "/m/model.safetensors: tensor model.layers.0.mlp.down_proj.weight: expected shape "
         "[64, 96], got [96, 64]"},
        {{"model.layers.0.self_attn.q_proj.bias", 64, 0, NULL},
         HS_ERR_UNSUPPORTED,
         "/m/model.safetensors: tensor model.layers.0.self_attn.q_proj.bias is not part of "
         "LlamaForCausalLM as supported here"},
        {{"model.layers.1.input_layernorm.weight", 64, 0, NULL},
         HS_ERR_UNSUPPORTED,
         "/m/model.safetensors: tensor model.layers.1.input_layernorm.weight is not part of "
         "LlamaForCausalLM as supported here"},
        {{"model.layers.0.mlp.up_proj.qweight", 8, 8, NULL},
         HS_ERR_UNSUPPORTED,
         "/m/model.safetensors: tensor model.layers.0.mlp.up_proj.qweight: this is a GPTQ or AWQ "
         "checkpoint (already quantized); convert the original weights"},
        {{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 8, 8, NULL},
         HS_ERR_UNSUPPORTED,
         "/m/model.safetensors: tensor "
         "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: this is a LoRA adapter; "
         "merge it into its base model first (merge_and_unload, then save_pretrained)"},
        {{"model.layers.0.mlp.up_proj.weight", 96, 64, "U8"},
         HS_ERR_UNSUPPORTED,
         "/m/model.safetensors: tensor model.layers.0.mlp.up_proj.weight is of type U8, expected "
         "float weights (a bitsandbytes, FP8 or other quantized checkpoint? convert the original "
         "weights)"},
        {{"model.layers.0.mlp.up_proj.weight", 96, 64, "F8_E4M3"},
         HS_ERR_UNSUPPORTED,
         "/m/model.safetensors: tensor model.layers.0.mlp.up_proj.weight is of type F8_E4M3, "
         "expected float weights (a bitsandbytes, FP8 or other quantized checkpoint? convert the "
         "original weights)"},
    };
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_tiny(dir, &rows[i].ch);
        refuse(&(hs_conv_options){.model_dir = dir}, rows[i].status, rows[i].message);
    }
}

static void test_bad_folder(void **state)
{
    (void)state;
    char dir[96], path[128];
    snprintf(dir, sizeof dir, "%s/m", root);
    refuse(&(hs_conv_options){.model_dir = dir}, HS_ERR_INPUT,
           "/m/config.json: cannot open: No such file or directory");
    assert_int_equal(mkdir(dir, 0777), 0);
    put_text(dir, "adapter_config.json", "{}");
    refuse(&(hs_conv_options){.model_dir = dir}, HS_ERR_UNSUPPORTED,
           "/m: a LoRA adapter; merge it into its base model first (merge_and_unload, then "
           "save_pretrained)");
    put_tiny(dir, NULL);
    snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    unlink(path);
    refuse(&(hs_conv_options){.model_dir = dir}, HS_ERR_INPUT,
           "/m/tokenizer.model: cannot open: No such file or directory");
    put_text(dir, "tokenizer.json", "{}");
    refuse(&(hs_conv_options){.model_dir = dir}, HS_ERR_UNSUPPORTED,
           "/m/tokenizer.json: only a SentencePiece tokenizer.model is supported, and the folder "
           "has none");
    put_tokenizer(dir, 32);
    put_text(dir, "added_tokens.json", "{\"x\":\"y\"}");
    refuse(&(hs_conv_options){.model_dir = dir}, HS_ERR_FORMAT,
           "added_tokens.json: \"x\": expected an id");
    put_text(dir, "added_tokens.json", "{\"x\":40}");
    put_tokenizer(dir, 30);
    refuse(&(hs_conv_options){.model_dir = dir}, HS_ERR_FORMAT,
           "/m: the tokenizer has 41 tokens, config.json's vocab_size is 32");
    put_text(dir, "added_tokens.json", "{\"x\":31,\"y\":31}");
    refuse(&(hs_conv_options){.model_dir = dir}, HS_ERR_FORMAT,
           "added_tokens.json: token 31 is \"y\", and \"x\" in added_tokens.json");
    put_text(dir, "added_tokens.json", "{}");
    refuse(&(hs_conv_options){.model_dir = dir, .layout = "dense", .predictor = dir}, HS_ERR_USAGE,
           "--layout dense has no place for --predictor");
    refuse(&(hs_conv_options){.model_dir = dir, .has_threshold = true}, HS_ERR_USAGE,
           "--sparse-threshold needs --predictor");
}

static void test_bad_predictors(void **state)
{
    (void)state;
    char dir[96], pred[96], path[128];
    snprintf(dir, sizeof dir, "%s/m", root);
    /* digits in the folder's own name mean nothing */
    snprintf(pred, sizeof pred, "%s/model_7.pt", root);
    put_tiny(dir, NULL);
    const hs_conv_options o = {.model_dir = dir, .predictor = pred};
    refuse(&o, HS_ERR_INPUT, "/model_7.pt: cannot open: No such file or directory");
    assert_int_equal(mkdir(pred, 0777), 0);
    refuse(&o, HS_ERR_INPUT,
           "/model_7.pt: no predictors (expected model_<layer>.pt, model_<layer>.safetensors, or "
           "model.safetensors with all layers)");
    static const tiny good[] = {{"fc1.weight", 8, 64}, {"fc2.weight", 96, 8}};
    put_tensors(pred, "model_1.pt", good, 2, NULL, false);
    refuse(&o, HS_ERR_FORMAT,
           "/model_7.pt/model_1.pt: a predictor of layer 1, but the model has 1 layers");
    snprintf(path, sizeof path, "%s/model_1.pt", pred);
    unlink(path);
    static const struct {
        change ch;
        const char *message;
    } rows[] = {
        {{"fc1.weight", -1, 0, NULL},
         "/model_7.pt/model_0.safetensors: fc1.weight of layer 0 is missing"},
        {{"fc1.bias", 8, 0, NULL},
         "/model_7.pt/model_0.safetensors: unexpected tensor fc1.bias (a predictor is fc1.weight "
         "and fc2.weight)"},
        {{"fc1.weight", 8, 63, NULL},
         "/model_7.pt/model_0.safetensors: fc1.weight: expected shape [R, 64], got 2 dimensions "
         "[8, 63]"},
        {{"fc2.weight", 96, 9, NULL},
         "/model_7.pt/model_0.safetensors: fc2.weight: expected shape [96, 8], got 2 dimensions "
         "[96, 9]"},
        {{"fc2.weight", 95, 8, NULL},
         "/model_7.pt/model_0.safetensors: fc2.weight: expected shape [96, 8], got 2 dimensions "
         "[95, 8]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_tensors(pred, "model_0.safetensors", good, 2, &rows[i].ch, false);
        refuse(&o, HS_ERR_FORMAT, rows[i].message);
    }
    put_tensors(pred, "model_0.safetensors", good, 2, NULL, false);
    put_tensors(pred, "model_0.pt", good, 2, NULL, false);
    char message[256];
    snprintf(message, sizeof message,
             "/model_7.pt/model_0.safetensors: fc1.weight of layer 0 is also in %s/model_0.pt",
             pred);
    refuse(&o, HS_ERR_FORMAT, message);
    snprintf(path, sizeof path, "%s/model_0.pt", pred);
    unlink(path);
    put_text(pred, "config.json", "{\"sparse_threshold\":\"high\"}");
    refuse(&o, HS_ERR_FORMAT, "/model_7.pt/config.json: sparse_threshold: expected a number");
    put_text(pred, "config.json", "{\"sparse_threshold\":null}");
    hs_gguf *g = convert(&o);
    assert_null(hs_gguf_find(g, "powerinfer.sparse_threshold"));
    assert_int_equal(hs_gguf_tensor_find(g, "blk.0.fc2.weight")->ne[0], 8);
    hs_gguf_free(g);
    unlink(output);
    put_config(dir, "\"num_hidden_layers\":1,", "\"num_hidden_layers\":2,");
    refuse(&o, HS_ERR_FORMAT,
           "/model_7.pt: no predictor of layer 1 (model_1.pt or model_1.safetensors); the model "
           "has 2 layers");
}

/* ---- losses and files ------------------------------------------------------------------ */

static void test_losses(void **state)
{
    (void)state;
    char dir[96];
    snprintf(dir, sizeof dir, "%s/m", root);
    put_tiny(dir, NULL);
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    static const float odd[] = {1e38f, -1e38f, 65520, 65519, 1e-8f, -1e-7f, (float)HUGE_VAL};
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -(long)(4 * 32 + 4 * 32 * 64), SEEK_END), 0); /* lm_head */
    assert_int_equal(fwrite(odd, sizeof odd, 1, f), 1);
    fclose(f);
    hs_conv_options o = {.model_dir = dir, .output = output, .outtype = "f16", .layout = "auto"};
    hs_conv_report r;
    hs_err err;
    assert_int_equal(hs_convert(&o, &quiet, &r, &err), HS_OK);
    assert_int_equal(r.too_large, 3);
    assert_int_equal(r.flushed, 1);
    assert_int_equal(r.not_finite, 1);
}

static void test_output(void **state)
{
    (void)state;
    char dir[96], path[128];
    snprintf(dir, sizeof dir, "%s/m", root);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    put_tiny(dir, NULL);
    put_text(root, "out.gguf", "precious");
    hs_conv_options o = {.model_dir = dir, .output = output, .outtype = "auto", .layout = "auto"};
    hs_conv_report r;
    hs_err err;
    assert_int_equal(hs_convert(&o, &quiet, &r, &err), HS_ERR_USAGE);
    hs_map map;
    assert_int_equal(hs_map_open(&map, output, NULL), HS_OK);
    assert_int_equal(map.size, 8);
    hs_map_close(&map);
    o.output = path; /* an input, even with --force */
    o.force = true;
    assert_int_equal(hs_convert(&o, &quiet, &r, &err), HS_ERR_USAGE);
    assert_non_null(strstr(err.msg, "is an input of this conversion"));
    o.output = output;
    assert_int_equal(hs_convert(&o, &quiet, &r, &err), HS_OK);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, fresh, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_golden),      TEST(test_values),     TEST(test_outtypes),
        TEST(test_tiny),        TEST(test_fallback),   TEST(test_order),
        TEST(test_activation),  TEST(test_tied),       TEST(test_rope),
        TEST(test_vocab),       TEST(test_vocab_only), TEST(test_bad_config),
        TEST(test_bad_tensors), TEST(test_bad_folder), TEST(test_bad_predictors),
        TEST(test_losses),      TEST(test_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
