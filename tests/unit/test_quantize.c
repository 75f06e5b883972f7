/* The rules of hotset-quantize, and its conversion, on models made here. */
#include "formats/fingerprint.h"
#include "formats/gguf_write.h"
#include "tools/quantize/convert.h"
#include "tools/quantize/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Nothing is committed, so no file of this name appears. */
static const char path[] = "tests/unit/not-kept.gguf";

/* A file that has no name: what was written, mapped and parsed. */
typedef struct file {
    hs_out *out;
    hs_map map;
    hs_gguf *g;
} file;

static void close_file(file *f)
{
    hs_gguf_free(f->g);
    hs_map_close(&f->map);
    hs_out_abort(f->out);
}

static void must(hs_status s, const hs_err *err)
{
    if (s != HS_OK)
        fail_msg("%s", err->msg);
}

static void open_out(file *f, hs_gguf_writer *w)
{
    hs_err err;
    must(hs_out_open(&f->out, path, true, &err), &err);
    must(hs_gguf_writer_begin(w, f->out, &err), &err);
}

static void read_back(file *f)
{
    hs_err err;
    must(hs_out_map(f->out, &f->map, &err), &err);
    must(hs_gguf_parse(&f->g, f->map.data, f->map.size, &err), &err);
}

typedef struct tensor {
    const char *name;
    hs_dtype dtype;
    uint32_t n_dims;
    uint64_t ne[2];
} tensor;

/* Element i of every tensor, before rounding to its type. */
static float value(uint64_t i) { return (float)((i * 2654435761u >> 7) % 4001) / 2000 - 1; }

static void add_values(hs_gguf_writer *w, const tensor *t)
{
    const size_t n = (size_t)(t->ne[0] * (t->n_dims > 1 ? t->ne[1] : 1));
    const hs_dtype_info *type = hs_dtype_get(t->dtype);
    const size_t bytes = n / type->block_elems * type->block_bytes;
    float *x = malloc(n * sizeof *x);
    uint8_t *raw = calloc(1, bytes + 1);
    assert_true(x && raw);
    for (size_t i = 0; i < n; i++)
        x[i] = value(i);
    if (type->encode)
        type->encode(raw, x, n);
    hs_err err;
    must(hs_gguf_writer_data(w, raw, bytes, &err), &err);
    free(raw);
    free(x);
}

static file make(bool pwri, uint32_t alignment, const char *arch, const tensor *t, size_t n)
{
    hs_gguf_writer *w = hs_gguf_writer_new(pwri, alignment);
    hs_gguf_set_str(w, "general.architecture", arch);
    hs_gguf_set_u32(w, "general.file_type", 1);
    hs_gguf_set_f32(w, "powerinfer.sparse_threshold", 0.25f);
    hs_gguf_set_str(w, "hotset.activation", "relu");
    hs_gguf_set_array(w, "some.list", HS_KV_I16, (int16_t[]){1, -2, 3}, 3);
    hs_gguf_set_str(w, "last.key", "value");
    for (size_t i = 0; i < n; i++)
        hs_gguf_add_tensor(w, t[i].name, t[i].dtype, t[i].n_dims, t[i].ne);
    file f;
    open_out(&f, w);
    for (size_t i = 0; i < n; i++)
        add_values(w, &t[i]);
    hs_err err;
    must(hs_gguf_writer_end(w, &err), &err);
    hs_gguf_writer_free(w);
    read_back(&f);
    return f;
}

static file convert(const hs_gguf *in, hs_quant_options *o, int threads, hs_quant_plan *p)
{
    hs_err err;
    hs_pool *pool;
    must(hs_pool_new(&pool, threads, &err), &err);
    must(hs_quant_plan_new(p, in, o, &err), &err);
    hs_gguf_writer *w = hs_quant_declare(in, o, p);
    assert_non_null(w);
    file f;
    open_out(&f, w);
    must(hs_quant_convert(p, w, pool, &(hs_quant_hooks){0}, &err), &err);
    must(hs_gguf_writer_end(w, &err), &err);
    assert_int_equal(hs_out_size(f.out), hs_gguf_writer_size(w));
    hs_gguf_writer_free(w);
    hs_pool_free(pool);
    read_back(&f);
    return f;
}

/* --- rules -------------------------------------------------------------- */

static const tensor llama[] = {
    {"token_embd.weight", HS_F16, 2, {256, 8}},
    {"output.weight", HS_F16, 2, {256, 8}},
    {"blk.0.ffn_up.weight", HS_F16, 2, {256, 64}},
    {"blk.0.ffn_down_t.weight", HS_F16, 2, {256, 64}},
    {"blk.0.fc1.weight", HS_F16, 2, {256, 32}},
    {"blk.0.fc2.weight", HS_F16, 2, {32, 64}},
    {"blk.0.ffn_norm.weight", HS_F32, 1, {256, 0}},
    {"blk.0.scale", HS_F16, 2, {256, 2}},
};
enum { N_LLAMA = sizeof llama / sizeof *llama, EMBD = 0, HEAD, UP, DOWN, FC1, FC2, NORM, OTHER };

typedef struct rule_case {
    const char *type;
    bool compat, pure;
    hs_dtype head, predictor, rest;
} rule_case;

static void types_are_as_stated(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        /* powerinfer-format.md section 5.7 */
        {"Q4_0", true, false, HS_Q6_K, HS_Q4_0, HS_Q4_0},
        {"Q4_0", true, true, HS_Q4_0, HS_Q4_0, HS_Q4_0},
        {"Q8_0", true, false, HS_Q8_0, HS_Q5_0, HS_Q8_0},
        {"F16", true, false, HS_Q6_K, HS_Q5_0, HS_F16},
        {"Q5_0", true, false, HS_Q6_K, HS_Q5_0, HS_Q5_0},
        /* ours */
        {"Q4_0", false, false, HS_Q6_K, HS_Q8_0, HS_Q4_0},
        {"Q4_0", false, true, HS_Q4_0, HS_Q4_0, HS_Q4_0},
        {"Q5_0", false, false, HS_Q6_K, HS_Q8_0, HS_Q5_0},
        {"Q8_0", false, false, HS_Q8_0, HS_Q8_0, HS_Q8_0},
        {"F16", false, false, HS_F16, HS_F16, HS_F16},
        {"BF16", false, false, HS_BF16, HS_BF16, HS_BF16},
        {"F32", false, false, HS_F32, HS_F32, HS_F32},
        {NULL, false, false, HS_F16, HS_F16, HS_F16}, /* COPY */
    };
    file f = make(true, 32, "llama", llama, N_LLAMA);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const rule_case *c = &cases[i];
        hs_err err;
        hs_quant_options o = {.compat = c->compat, .pure = c->pure};
        o.type = c->type ? hs_quant_type(c->type, &err) : NULL;
        hs_quant_plan p;
        must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
        const hs_dtype want[] = {c->rest,      c->head,      c->rest, c->rest,
                                 c->predictor, c->predictor, HS_F32,  HS_F16};
        for (size_t k = 0; k < N_LLAMA; k++)
            if (p.steps[k].to->id != want[k])
                fail_msg("%s%s%s: %s is %s, expected %s", c->type ? c->type : "COPY",
                         c->compat ? " compat" : "", c->pure ? " pure" : "", llama[k].name,
                         p.steps[k].to->name, hs_dtype_name(want[k]));
        assert_int_equal(p.n_fallbacks, 0);
        hs_quant_plan_fini(&p);
    }
    close_file(&f);
}

/* --- mixtures ----------------------------------------------------------- */

/* The type of a layer's matrix, for all layers: one letter or digit each. */
static void expect_layers(const char *mix, const hs_quant_model *m, const char *what,
                          const char *want)
{
    char got[100] = "";
    const hs_quant_mixture *x = hs_quant_mixture_find(mix);
    assert_non_null(x);
    for (uint32_t l = 0; l < m->n_layer; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", l, what);
        const char *type = hs_dtype_name(hs_quant_mixture_type(x, m, name));
        got[l] = type[0] == 'I' ? 'N' : type[1]; /* Q4_K: 4; IQ4_NL: N */
    }
    if (strcmp(got, want) != 0)
        fail_msg("%s: %s is %s, expected %s", mix, what, got, want);
}

/* By hand from the published rules, for a model of 16 layers. */
static void mixtures_are_as_published(void **state)
{
    (void)state;
    static const char all2[] = "2222222222222222", all3[] = "3333333333333333";
    static const char all4[] = "4444444444444444", all5[] = "5555555555555555";
    hs_quant_model m = {.n_layer = 16, .n_gqa = 1};
    static const struct {
        const char *mix, *v, *down, *out, *rest;
    } want[] = {
        {"Q2_K", all3, all3, all3, all2},
        {"Q3_K_S", all3, all3, all3, all3},
        {"Q3_K_M", "5544444444444444", "5444444444444444", all4, all3},
        {"Q3_K", "5544444444444444", "5444444444444444", all4, all3},
        {"Q3_K_L", all5, all5, all5, all3},
        {"Q4_K_S", "5555444444444444", "5544444444444444", all4, all4},
        {"Q4_K_M", "6644644644644666", "6644644644644666", all4, all4},
        {"q4_k", "6644644644644666", "6644644644644666", all4, all4},
        {"Q5_K_S", all5, all5, all5, all5},
        {"Q5_K_M", "6655655655655666", "6655655655655666", all5, all5},
        {"IQ4_NL", "NNNNNNNNNNNNNNNN", "55NNNNNNNNNNNNNN", "NNNNNNNNNNNNNNNN", "NNNNNNNNNNNNNNNN"},
        {"Q4_0", all4, all4, all4, all4},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        expect_layers(want[i].mix, &m, "attn_v", want[i].v);
        expect_layers(want[i].mix, &m, "ffn_down", want[i].down);
        expect_layers(want[i].mix, &m, "ffn_down_t", want[i].down);
        expect_layers(want[i].mix, &m, "attn_output", want[i].out);
        expect_layers(want[i].mix, &m, "attn_q", want[i].rest);
        expect_layers(want[i].mix, &m, "ffn_up", want[i].rest);
    }
    m.n_gqa = 4;
    expect_layers("Q2_K", &m, "attn_v", all4);
    expect_layers("IQ4_XS", &m, "attn_v", all5);
    m.falcon = true;
    expect_layers("Q3_K_M", &m, "ffn_down", "5433433433433444");
    expect_layers("Q4_K_M", &m, "ffn_down", "6544544544544555");
    expect_layers("Q4_K_M", &m, "attn_qkv", all5);
    expect_layers("Q3_K_L", &m, "attn_output", all4);
    assert_null(hs_quant_mixture_find("Q4_K_L"));
    char names[300];
    snprintf(names, sizeof names, "%s", hs_quant_mixture_names());
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        const hs_quant_mixture *x = hs_quant_mixture_find(name);
        assert_non_null(x);
        assert_string_equal(x->name, name);
        assert_non_null(hs_dtype_get(x->base)->encode);
    }
}

/* --- importance matrices ------------------------------------------------ */

static void add_f32(hs_gguf_writer *w, const float *x, size_t n)
{
    hs_err err;
    must(hs_gguf_writer_data(w, x, n * sizeof *x, &err), &err);
}

/* One entry of n channels; the first `dead` have no importance. */
static file make_imatrix(const char *type, const char *name, uint64_t n, size_t dead, float count,
                         float odd)
{
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    char sums[80], counts[80];
    snprintf(sums, sizeof sums, "%s.in_sum2", name);
    snprintf(counts, sizeof counts, "%s.counts", name);
    hs_gguf_set_str(w, "general.type", type);
    hs_gguf_add_tensor(w, sums, HS_F32, 2, (uint64_t[]){n, 1});
    hs_gguf_add_tensor(w, counts, HS_F32, 2, (uint64_t[]){1, 1});
    file f;
    open_out(&f, w);
    float *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    for (size_t i = dead; i < n; i++)
        x[i] = i % 5 ? 0.01f : 100;
    x[n - 1] = odd;
    add_f32(w, x, (size_t)n);
    add_f32(w, &count, 1);
    free(x);
    hs_err err;
    must(hs_gguf_writer_end(w, &err), &err);
    hs_gguf_writer_free(w);
    read_back(&f);
    return f;
}

static hs_status open_imatrix(hs_imatrix **m, const file *f, hs_err *err)
{
    char name[] = "tests/unit/imatrix-XXXXXX";
    const int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f->map.data, f->map.size), (ssize_t)f->map.size);
    close(fd);
    const hs_status s = hs_imatrix_open(m, name, err);
    unlink(name);
    return s;
}

static void importances_are_found(void **state)
{
    (void)state;
    file model = make(true, 32, "llama", llama, N_LLAMA);
    hs_err err;
    hs_quant_options o = {.type = hs_dtype_get(HS_Q4_K)};
    hs_quant_plan p;

    file f = make_imatrix("imatrix", "blk.0.ffn_up.weight", 256, 56, 10, 1);
    hs_imatrix *m;
    must(open_imatrix(&m, &f, &err), &err);
    assert_int_equal(hs_imatrix_entries(m), 1);
    o.imatrix = m;
    file out = convert(model.g, &o, 3, &p);
    assert_int_equal(p.steps[UP].importance, HS_IMPORTANCE_CHANNELS);
    assert_int_equal(p.steps[UP].covered, 200);
    assert_int_equal(p.steps[DOWN].importance, HS_IMPORTANCE_NONE);
    assert_int_equal(p.steps[NORM].importance, HS_IMPORTANCE_NONE);
    assert_int_equal(p.n_weighted, 1);
    assert_true(p.n_weighable >= 3);
    /* The bytes are those of the weighted encoder, and not of the other. */
    float x[256], w[256];
    uint8_t raw[144];
    const hs_gguf_tensor *from = &model.g->tensors[UP], *to = &out.g->tensors[UP];
    assert_int_equal(to->dtype, HS_Q4_K);
    hs_dtype_get(from->dtype)->decode(x, from->data, 256);
    memcpy(w, hs_gguf_tensor_find(f.g, "blk.0.ffn_up.weight.in_sum2")->data, sizeof w);
    hs_dtype_get(HS_Q4_K)->encode_weighted(raw, x, w, 256);
    assert_memory_equal(raw, to->data, sizeof raw);
    hs_dtype_get(HS_Q4_K)->encode(raw, x, 256);
    assert_memory_not_equal(raw, to->data, sizeof raw);
    hs_quant_plan_fini(&p);
    hs_imatrix_free(m);
    close_file(&out);
    close_file(&f);

    f = make_imatrix("imatrix", "blk.0.ffn_down.weight", 64, 0, 10, 1); /* rows of ffn_down_t */
    must(open_imatrix(&m, &f, &err), &err);
    o.imatrix = m;
    must(hs_quant_plan_new(&p, model.g, &o, &err), &err);
    assert_int_equal(p.steps[DOWN].importance, HS_IMPORTANCE_ROWS);
    assert_null(p.steps[DOWN].weight);
    hs_quant_plan_fini(&p);
    hs_imatrix_free(m);
    close_file(&f);

    f = make_imatrix("imatrix", "blk.0.ffn_up.weight", 256, 0, 0, 1); /* counted over nothing */
    must(open_imatrix(&m, &f, &err), &err);
    o.imatrix = m;
    must(hs_quant_plan_new(&p, model.g, &o, &err), &err);
    assert_int_equal(p.n_weighted, 0);
    hs_quant_plan_fini(&p);
    hs_imatrix_free(m);
    close_file(&f);

    f = make_imatrix("imatrix", "blk.0.ffn_up.weight", 255, 0, 1, 1); /* another model's */
    must(open_imatrix(&m, &f, &err), &err);
    o.imatrix = m;
    assert_int_equal(hs_quant_plan_new(&p, model.g, &o, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg,
                        "blk.0.ffn_up.weight: the importance matrix has {255, 1}, expected "
                        "{256, 1}: it is another model's");
    hs_imatrix_free(m);
    close_file(&f);
    close_file(&model);
}

static void bad_importances_are_refused(void **state)
{
    (void)state;
    hs_imatrix *m;
    hs_err err;
    static const struct {
        const char *type, *name;
        float count, odd;
        const char *msg;
    } cases[] = {
        {"model", "a.weight", 1, 1, "is no importance matrix: general.type is not 'imatrix'"},
        {"imatrix", "a.weight", 1, NAN,
         "a.weight.in_sum2: element 31 is nan, expected a finite number >= 0"},
        {"imatrix", "a.weight", 1, INFINITY,
         "a.weight.in_sum2: element 31 is inf, expected a finite number >= 0"},
        {"imatrix", "a.weight", 1, -2,
         "a.weight.in_sum2: element 31 is -2, expected a finite number >= 0"},
        {"imatrix", "a.weight", -1, 1,
         "a.weight.counts: element 0 is -1, expected a finite number >= 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file f = make_imatrix(cases[i].type, cases[i].name, 32, 0, cases[i].count, cases[i].odd);
        assert_int_equal(open_imatrix(&m, &f, &err), HS_ERR_FORMAT);
        if (!strstr(err.msg, cases[i].msg))
            fail_msg("%s: expected %s", err.msg, cases[i].msg);
        close_file(&f);
    }
    file f = make(false, 32, "llama", llama, N_LLAMA);
    assert_int_equal(open_imatrix(&m, &f, &err), HS_ERR_FORMAT);
    close_file(&f);
}

static void heads_follow_the_rows(void **state)
{
    (void)state;
    static const tensor narrow[] = {{"token_embd.weight", HS_F16, 2, {96, 8}},
                                    {"output.weight", HS_F16, 2, {96, 8}}};
    static const tensor odd[] = {{"token_embd.weight", HS_F16, 2, {40, 8}},
                                 {"output.weight", HS_F16, 2, {40, 8}}};
    hs_err err;
    hs_quant_plan p;
    hs_quant_options o = {.type = hs_dtype_get(HS_Q4_0)};
    file f = make(true, 32, "llama", narrow, 2);
    for (int compat = 0; compat < 2; compat++) {
        o.compat = compat;
        must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
        assert_int_equal(p.steps[1].to->id, HS_Q8_0);
        assert_int_equal(p.n_fallbacks, 0);
        assert_int_equal(p.steps[1].coarser_head, !compat);
        hs_quant_plan_fini(&p);
    }
    close_file(&f);

    f = make(true, 32, "falcon", llama, N_LLAMA);
    o = (hs_quant_options){.type = hs_dtype_get(HS_Q4_0), .compat = true};
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    assert_int_equal(p.steps[HEAD].to->id, HS_Q8_0);
    hs_quant_plan_fini(&p);
    close_file(&f);

    f = make(false, 32, "llama", odd, 2); /* nothing divides: F16, and said */
    o = (hs_quant_options){.type = hs_dtype_get(HS_Q4_0)};
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    assert_int_equal(p.n_fallbacks, 2);
    assert_int_equal(p.n_changed, 0);
    char why[128];
    hs_quant_fallback_reason(&p.steps[1], why, sizeof why);
    assert_string_equal(why, "row length 40 is not a multiple of 32, the block of Q8_0");
    hs_quant_plan_fini(&p);
    o.no_fallback = true;
    assert_int_equal(hs_quant_plan_new(&p, f.g, &o, &err), HS_ERR_FAILED);
    close_file(&f);

    f = make(false, 32, "llama", llama, 1); /* tied: the embedding is the head */
    o = (hs_quant_options){.type = hs_dtype_get(HS_Q4_0)};
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    assert_int_equal(p.steps[EMBD].to->id, HS_Q6_K);
    hs_quant_plan_fini(&p);
    close_file(&f);
}

static void options_outrank_each_other(void **state)
{
    (void)state;
    hs_err err;
    hs_quant_options o = {.type = hs_dtype_get(HS_Q4_0),
                          .pure = true,
                          .output_type = hs_dtype_get(HS_F16),
                          .embedding_type = hs_dtype_get(HS_Q8_0),
                          .predictor_type = hs_dtype_get(HS_Q5_0)};
    must(hs_quant_rule_add(&o, "fc1=BF16", &err), &err);
    must(hs_quant_rule_add(&o, "^blk\\.[0-9]+\\.(fc|ffn_up)=F32", &err), &err);
    file f = make(true, 32, "llama", llama, N_LLAMA);
    hs_quant_plan p;
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    assert_int_equal(p.steps[EMBD].to->id, HS_Q8_0);
    assert_int_equal(p.steps[HEAD].to->id, HS_F16);
    assert_int_equal(p.steps[UP].to->id, HS_F32);
    assert_int_equal(p.steps[DOWN].to->id, HS_Q4_0);
    assert_int_equal(p.steps[FC1].to->id, HS_BF16);
    assert_int_equal(p.steps[FC2].to->id, HS_F32);
    assert_int_equal(p.steps[NORM].to->id, HS_F32);
    hs_quant_plan_fini(&p);
    hs_quant_options_fini(&o);

    /* COPY changes what rules name, and only that */
    must(hs_quant_rule_add(&o, "fc=Q8_0", &err), &err);
    must(hs_quant_rule_add(&o, "a=b=c=Q8_0", &err), &err); /* the last '=' counts */
    o = (hs_quant_options){.rules = o.rules, .n_rules = 1 + 1};
    assert_int_equal(hs_quant_plan_new(&p, f.g, &o, &err), HS_ERR_USAGE);
    assert_memory_equal(err.msg, "--tensor-type 'a=b=c=Q8_0' matches no weight matrix", 51);
    regfree(&o.rules[1].regex);
    o.n_rules = 1;
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    assert_int_equal(p.n_changed, 2);
    hs_quant_plan_fini(&p);
    hs_quant_options_fini(&o);
    close_file(&f);
}

static void some_inputs_are_refused(void **state)
{
    (void)state;
    static const tensor quantized[] = {{"a.weight", HS_Q8_0, 2, {32, 2}}};
    static const tensor unknown[] = {{"a.weight", HS_I16, 2, {256, 2}}};
    static const tensor modern[] = {{"a.weight", HS_BF16, 1, {32, 0}}};
    static const tensor ints[] = {{"a", HS_I32, 1, {4, 0}}};
    hs_err err;
    hs_quant_plan p;
    hs_quant_options o = {.type = hs_dtype_get(HS_F16)};
    file f = make(false, 32, "llama", quantized, 1);
    assert_int_equal(hs_quant_plan_new(&p, f.g, &o, &err), HS_ERR_USAGE);
    assert_memory_equal(err.msg, "a.weight: is Q8_0 already", 25);
    o.allow_requantize = true;
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    hs_quant_plan_fini(&p);
    o = (hs_quant_options){.type = hs_dtype_get(HS_Q8_0)}; /* it stays what it is */
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    hs_quant_plan_fini(&p);
    close_file(&f);

    f = make(false, 32, "llama", unknown, 1);
    o.allow_requantize = true;
    assert_int_equal(hs_quant_plan_new(&p, f.g, &o, &err), HS_ERR_UNSUPPORTED);
    assert_string_equal(err.msg, "a.weight: cannot convert from I16, only copy it");
    o.type = NULL;
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    hs_quant_plan_fini(&p);
    close_file(&f);

    o = (hs_quant_options){.type = hs_dtype_get(HS_Q4_0), .compat = true};
    f = make(true, 32, "llama", modern, 1);
    assert_int_equal(hs_quant_plan_new(&p, f.g, &o, &err), HS_ERR_UNSUPPORTED);
    assert_string_equal(err.msg, "a.weight: PowerInfer has no type BF16");
    close_file(&f);
    f = make(true, 32, "llama", ints, 1);
    must(hs_quant_plan_new(&p, f.g, &o, &err), &err);
    hs_quant_plan_fini(&p);
    close_file(&f);
}

/* --- conversion --------------------------------------------------------- */

/* Tensor by tensor against the whole rows decoded and encoded at once. */
static void expect_rows(const hs_gguf_tensor *from, const hs_gguf_tensor *to)
{
    const size_t n = (size_t)from->ne[0];
    float *x = malloc(n * sizeof *x);
    uint8_t *raw = malloc((size_t)to->bytes);
    assert_true(x && raw);
    const uint64_t rows = from->ne[1], a = from->bytes / rows, b = to->bytes / rows;
    for (uint64_t r = 0; r < rows; r++) {
        hs_dtype_get(from->dtype)->decode(x, from->data + r * a, n);
        hs_dtype_get(to->dtype)->encode(raw + r * b, x, n);
    }
    assert_memory_equal(raw, to->data, to->bytes);
    free(raw);
    free(x);
}

/* What rows of n elements become where `type` is asked for. */
static hs_dtype fitting(hs_dtype type, uint64_t n)
{
    if (n % hs_dtype_get(type)->block_elems == 0)
        return type;
    if (n % 32)
        return HS_F16;
    return type == HS_Q6_K   ? HS_Q8_0
           : type == HS_Q5_K ? HS_Q5_1
           : type == HS_Q4_K ? HS_Q5_0
                             : HS_IQ4_NL;
}

static void converts_every_row_length(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, 31, 32, 33, 255, 256, 257, 288, 512, 4544};
    static const hs_dtype types[] = {HS_F32,  HS_F16,  HS_BF16, HS_Q8_0,   HS_Q5_0,
                                     HS_Q4_0, HS_Q6_K, HS_Q4_1, HS_Q5_1,   HS_Q2_K,
                                     HS_Q3_K, HS_Q4_K, HS_Q5_K, HS_IQ4_NL, HS_IQ4_XS};
    enum { N = sizeof lengths / sizeof *lengths };
    tensor t[N];
    char names[N][20];
    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "t%zu.weight", i);
        t[i] = (tensor){names[i], HS_F32, 2, {lengths[i], 37}};
    }
    file in = make(false, 64, "llama", t, N);
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const hs_dtype_info *type = hs_dtype_get(types[k]);
        hs_quant_options o = {.type = type};
        hs_quant_plan p, q;
        file a = convert(in.g, &o, 1, &p), b = convert(in.g, &o, 4, &q);
        assert_int_equal(a.map.size, b.map.size);
        assert_memory_equal(a.map.data, b.map.data, a.map.size);
        assert_int_equal(a.g->alignment, 64);
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(a.g->tensors[i].dtype, fitting(types[k], lengths[i]));
            assert_true(p.steps[i].rms_error == q.steps[i].rms_error);
            assert_true(p.steps[i].rms_error >= 0 && p.steps[i].rms_error < 0.3);
            expect_rows(&in.g->tensors[i], &a.g->tensors[i]);
        }
        hs_quant_plan_fini(&p);
        hs_quant_plan_fini(&q);
        close_file(&a);
        close_file(&b);
    }
    close_file(&in);
}

static void reports_the_error(void **state)
{
    (void)state;
    static const tensor t[] = {{"a.weight", HS_F32, 2, {32, 3}}};
    file in = make(false, 32, "llama", t, 1);
    hs_quant_options o = {.type = hs_dtype_get(HS_Q4_0), .pure = true};
    hs_quant_plan p;
    file out = convert(in.g, &o, 1, &p);
    float x[96], y[96];
    hs_dtype_get(HS_F32)->decode(x, in.g->tensors[0].data, 96);
    hs_dtype_get(HS_Q4_0)->decode(y, out.g->tensors[0].data, 96);
    double lost = 0, all = 0;
    for (size_t i = 0; i < 96; i++) {
        lost += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        all += (double)x[i] * (double)x[i];
    }
    assert_true(fabs(p.steps[0].rms_error - sqrt(lost / all)) < 1e-7);
    hs_quant_plan_fini(&p);
    close_file(&out);
    close_file(&in);
}

static void expect_key(const hs_gguf *g, size_t i, const char *key)
{
    if (i >= g->n_kv || !hs_str_eq(g->kv[i].key, key))
        fail_msg("KV %zu is %.*s, expected %s", i, i < g->n_kv ? (int)g->kv[i].key.n : 4,
                 i < g->n_kv ? g->kv[i].key.p : "none", key);
}

static void carries_the_metadata_over(void **state)
{
    (void)state;
    file in = make(true, 32, "llama", llama, N_LLAMA);
    hs_quant_options o = {.type = hs_dtype_get(HS_Q8_0)};
    hs_quant_plan p;
    file out = convert(in.g, &o, 1, &p);
    static const char *const ours[] = {"general.architecture",
                                       "general.file_type",
                                       "powerinfer.sparse_threshold",
                                       "hotset.activation",
                                       "some.list",
                                       "last.key",
                                       "general.quantization_version",
                                       "hotset.source_fingerprint"};
    assert_int_equal(out.g->n_kv, 8);
    for (size_t i = 0; i < 8; i++)
        expect_key(out.g, i, ours[i]);
    assert_int_equal(hs_kv_int(&out.g->kv[1], 0), 7);
    assert_int_equal(hs_kv_int(&out.g->kv[6], 0), 2);
    assert_int_equal(out.g->kv[4].raw_bytes, 6);
    assert_memory_equal(out.g->kv[4].raw, in.g->kv[4].raw, 6);
    assert_true(out.g->pwri);
    char parent[HS_FINGERPRINT_CHARS + 1];
    hs_fingerprint(in.g, parent);
    assert_true(hs_fingerprint_matches(out.g, parent, true));
    assert_false(hs_fingerprint_matches(out.g, parent, false));
    hs_quant_plan_fini(&p);

    /* a grandchild keeps the first parent */
    o = (hs_quant_options){.type = hs_dtype_get(HS_Q4_0), .allow_requantize = true};
    file third = convert(out.g, &o, 1, &p);
    assert_true(hs_fingerprint_matches(third.g, parent, true));
    assert_int_equal(third.g->n_kv, 8);
    hs_quant_plan_fini(&p);
    close_file(&third);

    /* a copy is a copy */
    o = (hs_quant_options){0};
    third = convert(out.g, &o, 1, &p);
    assert_int_equal(third.map.size, out.map.size);
    assert_memory_equal(third.map.data, out.map.data, out.map.size);
    hs_quant_plan_fini(&p);
    close_file(&third);

    /* PowerInfer's has none of our keys, wherever they come from */
    o = (hs_quant_options){.type = hs_dtype_get(HS_F16), .compat = true, .allow_requantize = true};
    third = convert(out.g, &o, 1, &p);
    static const char *const theirs[] = {"general.architecture",
                                         "general.file_type",
                                         "powerinfer.sparse_threshold",
                                         "some.list",
                                         "last.key",
                                         "general.quantization_version"};
    assert_int_equal(third.g->n_kv, 6);
    for (size_t i = 0; i < 6; i++)
        expect_key(third.g, i, theirs[i]);
    assert_int_equal(hs_kv_int(&third.g->kv[1], 0), 1);
    hs_quant_plan_fini(&p);
    close_file(&third);
    close_file(&out);
    close_file(&in);
}

/* --- weights that are no numbers ---------------------------------------- */

static void refuse(float bad, hs_dtype from, hs_dtype to, const char *msg)
{
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "a.weight", from, 2, (uint64_t[]){512, 3});
    float x[1536];
    for (size_t i = 0; i < 1536; i++)
        x[i] = value(i);
    x[512 + 300] = bad;
    uint8_t raw[sizeof x];
    hs_dtype_get(from)->encode(raw, x, 1536);
    file in;
    hs_err err;
    open_out(&in, w);
    must(hs_gguf_writer_data(w, raw, 1536 * hs_dtype_get(from)->block_bytes, &err), &err);
    hs_gguf_writer_free(w);
    read_back(&in);

    hs_quant_options o = {.type = hs_dtype_get(to)};
    hs_quant_plan p;
    must(hs_quant_plan_new(&p, in.g, &o, &err), &err);
    w = hs_quant_declare(in.g, &o, &p);
    file out;
    open_out(&out, w);
    assert_int_equal(hs_quant_convert(&p, w, NULL, &(hs_quant_hooks){0}, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, msg);
    hs_out_abort(out.out);
    hs_gguf_writer_free(w);
    hs_quant_plan_fini(&p);
    close_file(&in);
}

static void names_the_weight_that_is_no_number(void **state)
{
    (void)state;
    static const hs_dtype types[] = {HS_F32, HS_F16, HS_BF16, HS_Q8_0, HS_Q6_K, HS_Q5_0, HS_Q4_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        refuse(NAN, HS_F32, types[i],
               "a.weight: element 300 of row 1 is NaN, expected a finite number");
        refuse(INFINITY, HS_F16, types[i],
               "a.weight: element 300 of row 1 is infinite, expected a finite number");
        refuse(-INFINITY, HS_BF16, types[i],
               "a.weight: element 300 of row 1 is -infinite, expected a finite number");
    }
    refuse(70000, HS_F32, HS_F16,
           "a.weight: values about element 300 of row 1 are too large for F16");
    refuse(1e30f, HS_BF16, HS_Q8_0,
           "a.weight: values about element 288 of row 1 are too large for Q8_0");
    refuse(-1e30f, HS_F32, HS_Q4_0,
           "a.weight: values about element 288 of row 1 are too large for Q4_0");
}

static bool stop_at_once(void *ud, uint64_t done, uint64_t total)
{
    (void)ud;
    return done > total;
}

static void stops_when_told(void **state)
{
    (void)state;
    file in = make(true, 32, "llama", llama, N_LLAMA);
    hs_err err;
    hs_quant_options o = {.type = hs_dtype_get(HS_Q8_0)};
    hs_quant_plan p;
    must(hs_quant_plan_new(&p, in.g, &o, &err), &err);
    hs_gguf_writer *w = hs_quant_declare(in.g, &o, &p);
    file out;
    open_out(&out, w);
    assert_int_equal(
        hs_quant_convert(&p, w, NULL, &(hs_quant_hooks){.progress = stop_at_once}, &err),
        HS_ERR_INTERRUPTED);
    hs_out_abort(out.out);
    hs_gguf_writer_free(w);
    hs_quant_plan_fini(&p);
    close_file(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_as_stated),
        cmocka_unit_test(mixtures_are_as_published),
        cmocka_unit_test(importances_are_found),
        cmocka_unit_test(bad_importances_are_refused),
        cmocka_unit_test(heads_follow_the_rows),
        cmocka_unit_test(options_outrank_each_other),
        cmocka_unit_test(some_inputs_are_refused),
        cmocka_unit_test(converts_every_row_length),
        cmocka_unit_test(reports_the_error),
        cmocka_unit_test(carries_the_metadata_over),
        cmocka_unit_test(names_the_weight_that_is_no_number),
        cmocka_unit_test(stops_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
