/* The placement file: PowerInfer's own one byte for byte, ours there and back, and a table of
 * broken ones. */
#include "formats/placement.h"

#include "formats/dtype.h"
#include "formats/file.h"
#include "formats/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GOLDEN "tests/golden/solver/cap5000_batch256.gpuidx"
#define PRINT  "0123456789abcdef0123456789abcdef"

/* ---- a file, described, so that each test breaks one thing of it ----------------------------- */

enum { MAX_T = 8, MAX_FF = 6, MAX_KV = 40, MAX_BYTES = 8192 };

typedef struct tensor {
    const char *name;
    uint32_t type, n_dims;
    uint64_t ne[2];
    int32_t v[MAX_FF];
} tensor;

typedef enum kind { ABSENT, U32, U64, F64, BOOL, STR, BOOLS, I32S, U64S, STRS, U32S } kind;

typedef struct kv {
    const char *key;
    kind kind;
    uint64_t u;
    double f;
    const char *s;
    int64_t a[4];
    const char *sa[4];
    uint64_t n;
} kv;

typedef struct spec {
    const char *magic;
    size_t n_kv, n_tensors;
    kv kv[MAX_KV];
    tensor t[MAX_T];
} spec;

/* Two layers of six and four neurons; neurons 1 and 4 of the first are on the device. */
static spec powerinfer(void)
{
    return (spec){
        .magic = "PWRI",
        .n_kv = 3,
        .kv = {{.key = "general.architecture", .kind = STR, .s = "generic.gpu_index"},
               {.key = "generic.gpu_index.block_count", .kind = U32, .u = 2},
               {.key = "split.vram_capacity", .kind = U64, .u = 5000}},
        .n_tensors = 4,
        .t = {{"blk.0.gpu_idx", 18, 1, {6}, {0, 1, 0, 0, 1, 0}},
              {"blk.0.gpu_bucket", 18, 1, {2}, {1, 4}},
              {"blk.1.gpu_idx", 18, 1, {4}, {0}},
              {"blk.1.gpu_bucket", 18, 1, {0}, {0}}},
    };
}

static spec ours(void)
{
    spec s = powerinfer();
    const kv more[] = {
        {.key = "hotset.model_fingerprint", .kind = STR, .s = PRINT},
        {.key = "hotset.solver.objective", .kind = STR, .s = "impact"},
        {.key = "hotset.solver.method", .kind = STR, .s = "exact"},
        {.key = "hotset.solver.value", .kind = F64, .f = 90},
        {.key = "hotset.solver.bound", .kind = F64, .f = 100},
        {.key = "hotset.solver.gap", .kind = F64, .f = 0.1},
        {.key = "hotset.solver.group", .kind = U32, .u = 64},
        {.key = "hotset.plan.context", .kind = U32, .u = 512},
        {.key = "hotset.plan.kv_type", .kind = U32, .u = 1},
        {.key = "hotset.plan.attn_layers", .kind = BOOLS, .a = {1, 0}, .n = 2},
        {.key = "hotset.plan.predictor_layers", .kind = BOOLS, .a = {0, 1}, .n = 2},
        {.key = "hotset.plan.ffn_norm_layers", .kind = BOOLS, .a = {1, 1}, .n = 2},
        {.key = "hotset.plan.kv_layers", .kind = BOOLS, .a = {1, 0}, .n = 2},
        {.key = "hotset.plan.output", .kind = BOOL, .u = 1},
        {.key = "hotset.plan.bytes", .kind = U64, .u = 4096},
        {.key = "hotset.plan.ledger_what", .kind = STRS, .sa = {"attention", "output"}, .n = 2},
        {.key = "hotset.plan.ledger_layer", .kind = I32S, .a = {0, -1}, .n = 2},
        {.key = "hotset.plan.ledger_bytes", .kind = U64S, .a = {4000, 96}, .n = 2},
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        s.kv[s.n_kv++] = more[i];
    return s;
}

typedef struct bytes {
    uint8_t p[MAX_BYTES];
    size_t n;
} bytes;

static void put(bytes *b, const void *p, size_t n)
{
    assert_true(n <= sizeof b->p - b->n);
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void put_int(bytes *b, uint64_t v, int width)
{
    for (int i = 0; i < width; i++) {
        const uint8_t c = (uint8_t)(v >> (8 * i));
        put(b, &c, 1);
    }
}

static void put_str(bytes *b, const char *s)
{
    put_int(b, strlen(s), 8);
    put(b, s, strlen(s));
}

static void put_kv(bytes *b, const kv *v)
{
    static const struct {
        uint32_t type, elem;
        int width;
    } code[] = {[U32] = {4, 0, 4},  [U64] = {10, 0, 8},  [F64] = {12, 0, 8}, [BOOL] = {7, 0, 1},
                [STR] = {8, 0, 0},  [BOOLS] = {9, 7, 1}, [I32S] = {9, 5, 4}, [U64S] = {9, 10, 8},
                [STRS] = {9, 8, 0}, [U32S] = {9, 4, 4}};
    put_str(b, v->key);
    put_int(b, code[v->kind].type, 4);
    if (v->kind == STR) {
        put_str(b, v->s);
    } else if (v->kind == F64) {
        uint64_t u;
        memcpy(&u, &v->f, 8);
        put_int(b, u, 8);
    } else if (code[v->kind].type == 9) {
        put_int(b, code[v->kind].elem, 4);
        put_int(b, v->n, 8);
        for (uint64_t i = 0; i < v->n; i++)
            if (v->kind == STRS)
                put_str(b, v->sa[i]);
            else
                put_int(b, (uint64_t)v->a[i], code[v->kind].width);
    } else {
        put_int(b, v->u, code[v->kind].width);
    }
}

static size_t tensor_bytes(const tensor *t)
{
    const size_t width = t->type == 27 ? 8 : 4;
    return (size_t)t->ne[0] * (t->n_dims > 1 ? (size_t)t->ne[1] : 1) * width;
}

static void pad(bytes *b)
{
    while (b->n % 32)
        put_int(b, 0, 1);
}

static bytes build(const spec *s)
{
    bytes b = {.n = 0};
    size_t n_kv = 0;
    for (size_t i = 0; i < s->n_kv; i++)
        n_kv += s->kv[i].kind != ABSENT;
    put(&b, s->magic, 4);
    put_int(&b, 3, 4);
    put_int(&b, s->n_tensors, 8);
    put_int(&b, n_kv, 8);
    for (size_t i = 0; i < s->n_kv; i++)
        if (s->kv[i].kind != ABSENT)
            put_kv(&b, &s->kv[i]);
    uint64_t offset = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const tensor *t = &s->t[i];
        put_str(&b, t->name);
        put_int(&b, t->n_dims, 4);
        for (uint32_t d = 0; d < t->n_dims; d++)
            put_int(&b, t->ne[d], 8);
        put_int(&b, t->type, 4);
        put_int(&b, offset, 8);
        offset += (tensor_bytes(t) + 31) / 32 * 32;
    }
    pad(&b);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const size_t n = tensor_bytes(&s->t[i]);
        for (size_t k = 0; k < n / 4; k++)
            put_int(&b, (uint32_t)s->t[i].v[k % MAX_FF], 4);
        pad(&b);
    }
    return b;
}

static hs_status parse(const spec *s, hs_placement **out, hs_err *err)
{
    const bytes b = build(s);
    uint8_t *exact = malloc(b.n); /* so that a read past the end is a sanitizer report */
    assert_non_null(exact);
    memcpy(exact, b.p, b.n);
    hs_gguf *g;
    *out = NULL;
    hs_status st = hs_gguf_parse(&g, exact, b.n, err);
    if (st == HS_OK) {
        st = hs_placement_parse(out, g, err);
        hs_gguf_free(g);
    }
    free(exact);
    return st;
}

static kv *key(spec *s, const char *name)
{
    for (size_t i = 0; i < s->n_kv; i++)
        if (!strcmp(s->kv[i].key, name))
            return &s->kv[i];
    fail_msg("no key %s", name);
    return NULL;
}

/* ---- files that are right ---------------------------------------------------------------------
 */

static hs_placement *must_parse(const spec *s)
{
    hs_placement *p;
    hs_err err = {0};
    const hs_status st = parse(s, &p, &err);
    if (st != HS_OK)
        fail_msg("%s", err.msg);
    return p;
}

static void check_shape(const hs_placement *p)
{
    assert_int_equal(p->n_layer, 2);
    assert_int_equal(p->vram_capacity, 5000);
    assert_int_equal(p->layer[0].n_ff, 6);
    assert_int_equal(p->layer[0].n_device, 2);
    assert_int_equal(p->layer[0].neuron[0], 1);
    assert_int_equal(p->layer[0].neuron[1], 4);
    assert_int_equal(p->layer[1].n_ff, 4);
    assert_int_equal(p->layer[1].n_device, 0);
}

static void test_powerinfers_own(void **state)
{
    (void)state;
    const spec s = powerinfer();
    hs_placement *p = must_parse(&s);
    check_shape(p);
    assert_false(p->has_plan);
    assert_string_equal(p->fingerprint, "");
    assert_int_equal(p->n_ctx, 0);
    hs_placement_free(p);
}

static void test_our_plan(void **state)
{
    (void)state;
    const spec s = ours();
    hs_placement *p = must_parse(&s);
    check_shape(p);
    assert_true(p->has_plan);
    assert_string_equal(p->fingerprint, PRINT);
    assert_string_equal(p->objective, "impact");
    assert_string_equal(p->method, "exact");
    assert_true(p->objective_value == 90 && p->bound == 100 && p->gap == 0.1);
    assert_int_equal(p->group, 64);
    assert_int_equal(p->n_ctx, 512);
    assert_int_equal(p->kv_type, HS_F16);
    assert_true(p->layer[0].attn && !p->layer[1].attn);
    assert_true(!p->layer[0].predictor && p->layer[1].predictor);
    assert_true(p->layer[0].ffn_norm && p->layer[1].ffn_norm);
    assert_true(p->layer[0].kv && !p->layer[1].kv);
    assert_true(p->output);
    assert_int_equal(p->plan_bytes, 4096);
    assert_int_equal(p->n_ledger, 2);
    assert_string_equal(p->ledger[1].what, "output");
    assert_int_equal(p->ledger[1].layer, -1);
    assert_int_equal(p->ledger[1].bytes, 96);
    hs_placement_free(p);
}

/* PowerInfer takes tensors by position: in another order the file is another placement there. */
static void test_order(void **state)
{
    (void)state;
    for (size_t other = 1; other < 4; other++) {
        spec s = powerinfer();
        const tensor t = s.t[0];
        s.t[0] = s.t[other];
        s.t[other] = t;
        char want[96];
        snprintf(want, sizeof want,
                 "blk.0.gpu_idx: expected as tensor 0 of the file, got it as %zu", other);
        hs_placement *p;
        hs_err err = {0};
        assert_int_equal(parse(&s, &p, &err), HS_ERR_FORMAT);
        assert_string_equal(err.msg, want);
    }
}

static hs_map slurp(const char *path)
{
    hs_map m;
    hs_err err = {0};
    if (hs_map_open(&m, path, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return m;
}

/* The bytes that writing p gives. */
static uint8_t *written(const hs_placement *p, bool plain, size_t *n)
{
    char path[] = "/tmp/test_placement.XXXXXX";
    assert_int_not_equal(close(mkstemp(path)), -1);
    hs_out *out;
    hs_map m;
    hs_err err = {0};
    assert_int_equal(hs_out_open(&out, path, true, &err), HS_OK);
    if (hs_placement_write(p, out, plain, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(hs_out_map(out, &m, &err), HS_OK);
    uint8_t *copy = malloc(m.size);
    assert_non_null(copy);
    memcpy(copy, m.data, m.size);
    *n = m.size;
    hs_map_close(&m);
    hs_out_abort(out);
    unlink(path);
    return copy;
}

static void test_golden_bytes(void **state)
{
    (void)state;
    hs_err err = {0};
    hs_placement *p;
    if (hs_placement_read(&p, GOLDEN, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(p->n_layer, 12);
    assert_int_equal(p->vram_capacity, 123456789);
    for (uint32_t l = 0; l < 12; l++)
        assert_int_equal(p->layer[l].n_ff, 1024);
    hs_map golden = slurp(GOLDEN);
    size_t n;
    uint8_t *ours_plain = written(p, true, &n);
    assert_int_equal(n, golden.size);
    assert_memory_equal(ours_plain, golden.data, n);
    free(ours_plain);
    /* Without a plan there is nothing to add. */
    uint8_t *again = written(p, false, &n);
    assert_int_equal(n, golden.size);
    assert_memory_equal(again, golden.data, n);
    free(again);
    hs_map_close(&golden);
    hs_placement_free(p);
}

static void test_our_bytes(void **state)
{
    (void)state;
    const spec s = ours();
    const bytes want = build(&s);
    hs_placement *p = must_parse(&s);
    size_t n;
    uint8_t *got = written(p, false, &n);
    assert_int_equal(n, want.n);
    assert_memory_equal(got, want.p, n);
    free(got);
    const spec pi = powerinfer();
    const bytes plain = build(&pi);
    got = written(p, true, &n);
    assert_int_equal(n, plain.n);
    assert_memory_equal(got, plain.p, n);
    free(got);
    hs_placement_free(p);
}

/* ---- the object -------------------------------------------------------------------------------
 */

static void test_set(void **state)
{
    (void)state;
    const uint32_t n_ff[] = {5, 3};
    hs_placement *p;
    hs_err err = {0};
    assert_int_equal(hs_placement_new(&p, 2, n_ff, &err), HS_OK);
    assert_int_equal(hs_placement_set(p, 0, (int32_t[]){4, 0, 2}, 3, &err), HS_OK);
    assert_memory_equal(p->layer[0].neuron, ((int32_t[]){0, 2, 4}), 12);
    assert_int_equal(hs_placement_set(p, 1, (int32_t[]){0, 3}, 2, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "layer 1: neuron 3 is outside 0..2");
    assert_int_equal(hs_placement_set(p, 1, (int32_t[]){-1}, 1, &err), HS_ERR_FORMAT);
    assert_int_equal(hs_placement_set(p, 1, (int32_t[]){2, 1, 2}, 3, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "layer 1: neuron 2 twice");
    assert_int_equal(hs_placement_set(p, 2, NULL, 0, &err), HS_ERR_FORMAT);
    assert_int_equal(p->layer[1].n_device, 0);
    assert_int_equal(hs_placement_set(p, 0, NULL, 0, &err), HS_OK);
    assert_int_equal(p->layer[0].n_device, 0);
    char what[64];
    memset(what, 'x', 48);
    what[48] = 0;
    assert_int_equal(hs_placement_add_ledger(p, what, -1, 1, &err), HS_ERR_FORMAT);
    what[47] = 0;
    assert_int_equal(hs_placement_add_ledger(p, what, -1, 1, &err), HS_OK);
    assert_string_equal(p->ledger[0].what, what);
    hs_placement_free(p);
    hs_placement_free(NULL);
}

/* ---- several devices ------------------------------------------------------------------------- */

/* The same two layers over three devices, of which the last has nothing. */
static spec several(void)
{
    spec s = {
        .magic = "GGUF",
        .n_kv = 4,
        .kv =
            {{.key = "general.architecture", .kind = STR, .s = "hotset.placement"},
             {.key = "hotset.placement.block_count", .kind = U32, .u = 2},
             {.key = "hotset.placement.device_capacity", .kind = U64S, .a = {5000, 300, 7}, .n = 3},
             {.key = "hotset.placement.device_bytes", .kind = U64S, .a = {4096, 200, 0}, .n = 3}},
        .n_tensors = 2,
        .t = {{"blk.0.device", 26, 1, {6}, {-1, 0, -1, 1, 0, -1}},
              {"blk.1.device", 26, 1, {4}, {-1, -1, -1, -1}}}};
    const spec one = ours();
    for (size_t i = 3; i < one.n_kv; i++)
        s.kv[s.n_kv++] = one.kv[i];
    static const char *const blocks[] = {"attn", "predictor", "ffn_norm", "kv"};
    static const char *const names[] = {"hotset.plan.attn_device", "hotset.plan.predictor_device",
                                        "hotset.plan.ffn_norm_device", "hotset.plan.kv_device"};
    static const int64_t where[4][2] = {{0, -1}, {-1, 1}, {1, 0}, {0, -1}};
    for (int b = 0; b < 4; b++) {
        char old[48];
        snprintf(old, sizeof old, "hotset.plan.%s_layers", blocks[b]);
        *key(&s, old) =
            (kv){.key = names[b], .kind = I32S, .a = {where[b][0], where[b][1]}, .n = 2};
    }
    *key(&s, "hotset.plan.output") = (kv){.key = "hotset.plan.output_device", .kind = U32, .u = 1};
    key(&s, "hotset.plan.bytes")->kind = ABSENT;
    *key(&s, "hotset.plan.ledger_what") = (kv){.key = "hotset.plan.ledger_what",
                                               .kind = STRS,
                                               .sa = {"attention", "output", "scratch"},
                                               .n = 3};
    key(&s, "hotset.plan.ledger_layer")->a[2] = -1;
    key(&s, "hotset.plan.ledger_layer")->n = 3;
    *key(&s, "hotset.plan.ledger_bytes") =
        (kv){.key = "hotset.plan.ledger_bytes", .kind = U64S, .a = {4000, 200, 96}, .n = 3};
    s.kv[s.n_kv++] = (kv){.key = "hotset.plan.ledger_device", .kind = I32S, .a = {0, 1, 0}, .n = 3};
    return s;
}

static void check_several(const hs_placement *p)
{
    assert_int_equal(p->n_devices, 3);
    assert_int_equal(p->n_layer, 2);
    assert_int_equal(p->vram_capacity, 5307);
    assert_int_equal(p->plan_bytes, 4296);
    assert_int_equal(p->device_capacity[1], 300);
    assert_int_equal(p->device_bytes[1], 200);
    assert_int_equal(p->layer[0].n_device, 3);
    assert_memory_equal(p->layer[0].neuron, ((int32_t[]){1, 3, 4}), 12);
    assert_memory_equal(p->layer[0].on_which, ((uint8_t[]){0, 1, 0}), 3);
    assert_int_equal(p->layer[1].n_device, 0);
    assert_true(p->layer[0].attn && p->layer[0].attn_device == 0 && !p->layer[1].attn);
    assert_true(!p->layer[0].predictor && p->layer[1].predictor);
    assert_int_equal(p->layer[1].predictor_device, 1);
    assert_int_equal(p->layer[0].ffn_norm_device, 1);
    assert_true(p->layer[0].kv && p->layer[0].kv_device == 0 && !p->layer[1].kv);
    assert_true(p->output);
    assert_int_equal(p->output_device, 1);
    assert_int_equal(p->ledger[1].device, 1);
}

static void test_several_devices(void **state)
{
    (void)state;
    const spec s = several();
    const bytes want = build(&s);
    hs_placement *p = must_parse(&s);
    check_several(p);
    size_t n;
    uint8_t *got = written(p, false, &n);
    assert_int_equal(n, want.n);
    assert_memory_equal(got, want.p, n);
    free(got);
    /* PowerInfer's layout cannot say it. */
    hs_err err = {0};
    assert_int_equal(hs_placement_write(p, NULL, true, &err), HS_ERR_USAGE);
    assert_string_equal(err.msg, "PowerInfer's own file knows one device, the plan has 3");
    hs_placement_free(p);
}

/* A head that no device has: the key is left out. */
static void test_several_without_head(void **state)
{
    (void)state;
    spec s = several();
    key(&s, "hotset.plan.output_device")->kind = ABSENT;
    hs_placement *p = must_parse(&s);
    assert_false(p->output);
    const bytes want = build(&s);
    size_t n;
    uint8_t *got = written(p, false, &n);
    assert_int_equal(n, want.n);
    assert_memory_equal(got, want.p, n);
    free(got);
    hs_placement_free(p);
}

static void test_view(void **state)
{
    (void)state;
    const spec s = several();
    hs_placement *p = must_parse(&s), *v;
    hs_err err = {0};
    assert_int_equal(hs_placement_view(&v, p, 0, &err), HS_OK);
    assert_int_equal(v->n_devices, 1);
    assert_int_equal(v->vram_capacity, 5000);
    assert_int_equal(v->plan_bytes, 4096);
    assert_memory_equal(v->layer[0].neuron, ((int32_t[]){1, 4}), 8);
    assert_int_equal(v->layer[0].n_device, 2);
    assert_null(v->layer[0].on_which);
    assert_true(v->layer[0].attn && v->layer[0].kv && !v->layer[0].ffn_norm && !v->output);
    assert_true(v->layer[1].ffn_norm && !v->layer[1].predictor);
    assert_int_equal(v->n_ledger, 2);
    assert_string_equal(v->fingerprint, PRINT);
    hs_placement_free(v);
    assert_int_equal(hs_placement_view(&v, p, 1, &err), HS_OK);
    assert_memory_equal(v->layer[0].neuron, ((int32_t[]){3}), 4);
    assert_true(!v->layer[0].attn && v->layer[0].ffn_norm && v->output);
    assert_true(v->layer[1].predictor && v->layer[1].predictor_device == 0);
    assert_int_equal(v->n_ledger, 1);
    hs_placement_free(v);
    assert_int_equal(hs_placement_view(&v, p, 2, &err), HS_OK);
    assert_int_equal(v->layer[0].n_device + v->layer[1].n_device + v->n_ledger, 0);
    assert_int_equal(v->vram_capacity, 7);
    hs_placement_free(v);
    assert_int_equal(hs_placement_view(&v, p, 3, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "device 3 of 3");
    hs_placement_free(p);
    /* Of one device: a copy. */
    const spec o = ours();
    p = must_parse(&o);
    assert_int_equal(hs_placement_view(&v, p, 0, &err), HS_OK);
    size_t n, m;
    uint8_t *a = written(p, false, &n), *b = written(v, false, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    hs_placement_free(v);
    hs_placement_free(p);
}

static void test_spread(void **state)
{
    (void)state;
    const uint32_t n_ff[] = {4};
    hs_placement *p;
    hs_err err = {0};
    assert_int_equal(hs_placement_new(&p, 1, n_ff, &err), HS_OK);
    assert_int_equal(hs_placement_devices(p, 1, (uint64_t[]){1}, &err), HS_ERR_FORMAT);
    assert_int_equal(hs_placement_devices(p, 9, (uint64_t[9]){0}, &err), HS_ERR_FORMAT);
    assert_int_equal(hs_placement_devices(p, 2, (uint64_t[]){UINT64_MAX, 1}, &err), HS_ERR_FORMAT);
    assert_int_equal(p->n_devices, 1);
    assert_int_equal(hs_placement_devices(p, 2, (uint64_t[]){8, 9}, &err), HS_OK);
    assert_int_equal(p->vram_capacity, 17);
    assert_int_equal(hs_placement_spread(p, 0, (int32_t[]){1, -1, 0, 1}, &err), HS_OK);
    assert_memory_equal(p->layer[0].neuron, ((int32_t[]){0, 2, 3}), 12);
    assert_memory_equal(p->layer[0].on_which, ((uint8_t[]){1, 0, 1}), 3);
    assert_int_equal(hs_placement_spread(p, 0, (int32_t[]){1, -1, 2, 1}, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "layer 0: neuron 2: expected a device from -1 to 1, got 2");
    assert_int_equal(hs_placement_spread(p, 0, (int32_t[]){-2, 0, 0, 0}, &err), HS_ERR_FORMAT);
    assert_int_equal(hs_placement_spread(p, 1, (int32_t[]){0, 0, 0, 0}, &err), HS_ERR_FORMAT);
    assert_int_equal(p->layer[0].n_device, 3);
    /* Setting by list means device 0 again. */
    assert_int_equal(hs_placement_set(p, 0, (int32_t[]){3}, 1, &err), HS_OK);
    assert_null(p->layer[0].on_which);
    hs_placement_free(p);
}

/* ---- files that are wrong ---------------------------------------------------------------------
 */

typedef struct broken {
    const char *name;
    void (*spoil)(spec *s);
    const char *expect; /* part of the message */
} broken;

#define SPOIL(fn, ...) \
    static void fn(spec *s) { __VA_ARGS__; }

SPOIL(gguf_magic, s->magic = "GGUF"; s->t[0].type = s->t[1].type = s->t[2].type = s->t[3].type = 26)
SPOIL(no_arch, key(s, "general.architecture")->kind = ABSENT)
SPOIL(other_arch, key(s, "general.architecture")->s = "llama")
SPOIL(arch_number, key(s, "general.architecture")->kind = U32)
SPOIL(no_count, key(s, "generic.gpu_index.block_count")->kind = ABSENT)
SPOIL(count_zero, key(s, "generic.gpu_index.block_count")->u = 0)
SPOIL(count_low, key(s, "generic.gpu_index.block_count")->u = 1)
SPOIL(count_high, key(s, "generic.gpu_index.block_count")->u = 3)
SPOIL(count_huge, key(s, "generic.gpu_index.block_count")->u = 0x80000001u)
SPOIL(no_capacity, key(s, "split.vram_capacity")->kind = ABSENT)
SPOIL(capacity_string, key(s, "split.vram_capacity")->kind = STR;
      key(s, "split.vram_capacity")->s = "1G")
SPOIL(layer_missing, s->n_tensors = 2)
SPOIL(bucket_missing, s->t[3].name = "blk.1.gpu_buckets")
SPOIL(layer_renamed, s->t[2].name = "blk.2.gpu_idx"; s->t[3].name = "blk.2.gpu_bucket")
SPOIL(leading_zero, s->t[0].name = "blk.00.gpu_idx")
SPOIL(extra_tensor, s->t[4] = (tensor){"blk.2.gpu_idx", 18, 1, {4}, {0}}; s->n_tensors = 5)
SPOIL(twice, s->t[2].name = "blk.0.gpu_idx")
SPOIL(idx_f32, s->t[0].type = 0)
SPOIL(bucket_f32, s->t[1].type = 0)
SPOIL(idx_2d, s->t[0].n_dims = 2; s->t[0].ne[0] = 3; s->t[0].ne[1] = 2)
SPOIL(no_neurons, s->t[2].ne[0] = 0)
SPOIL(idx_two, s->t[0].v[2] = 2)
SPOIL(idx_negative, s->t[0].v[2] = -1)
SPOIL(bucket_short, s->t[1].ne[0] = 1)
SPOIL(bucket_long, s->t[1].ne[0] = 3; s->t[1].v[2] = 5)
SPOIL(bucket_not_empty, s->t[3].ne[0] = 1)
SPOIL(descending, s->t[1].v[0] = 4; s->t[1].v[1] = 1)
SPOIL(duplicate, s->t[1].v[0] = 4)
SPOIL(disagrees, s->t[1].v[0] = 2)
SPOIL(negative_id, s->t[1].v[0] = -1)
SPOIL(id_at_end, s->t[1].v[1] = 6)
SPOIL(id_huge, s->t[1].v[1] = INT32_MAX)
SPOIL(no_print, key(s, "hotset.model_fingerprint")->kind = ABSENT)
SPOIL(print_short, key(s, "hotset.model_fingerprint")->s = "0123")
SPOIL(print_long, key(s, "hotset.model_fingerprint")->s = PRINT "0")
SPOIL(print_upper, key(s, "hotset.model_fingerprint")->s = "0123456789ABCDEF0123456789abcdef")
SPOIL(print_number, key(s, "hotset.model_fingerprint")->kind = U64)
SPOIL(no_objective, key(s, "hotset.solver.objective")->kind = ABSENT)
SPOIL(method_long, key(s, "hotset.solver.method")->s = "a method of sixteen")
SPOIL(value_nan, key(s, "hotset.solver.value")->f = (double)NAN)
SPOIL(bound_negative, key(s, "hotset.solver.bound")->f = -1)
SPOIL(gap_infinite, key(s, "hotset.solver.gap")->f = (double)INFINITY)
SPOIL(gap_string, key(s, "hotset.solver.gap")->kind = STR; key(s, "hotset.solver.gap")->s = "0")
SPOIL(group_zero, key(s, "hotset.solver.group")->u = 0)
SPOIL(context_zero, key(s, "hotset.plan.context")->u = 0)
SPOIL(context_absent, key(s, "hotset.plan.context")->kind = ABSENT)
SPOIL(kv_type_odd, key(s, "hotset.plan.kv_type")->u = 8)
SPOIL(attn_short, key(s, "hotset.plan.attn_layers")->n = 1)
SPOIL(attn_long, key(s, "hotset.plan.attn_layers")->n = 3)
SPOIL(attn_u32, key(s, "hotset.plan.attn_layers")->kind = U32S)
SPOIL(attn_scalar, key(s, "hotset.plan.attn_layers")->kind = BOOL)
SPOIL(attn_two, key(s, "hotset.plan.attn_layers")->a[0] = 2)
SPOIL(norm_absent, key(s, "hotset.plan.ffn_norm_layers")->kind = ABSENT)
SPOIL(kv_alone, key(s, "hotset.plan.kv_layers")->a[1] = 1)
SPOIL(output_absent, key(s, "hotset.plan.output")->kind = ABSENT)
SPOIL(output_number, key(s, "hotset.plan.output")->kind = U32)
SPOIL(bytes_over, key(s, "hotset.plan.bytes")->u = 5001;
      key(s, "hotset.plan.ledger_bytes")->a[0] = 4905)
SPOIL(ledger_sum, key(s, "hotset.plan.ledger_bytes")->a[0] = 3999)
SPOIL(ledger_wraps, key(s, "hotset.plan.ledger_bytes")->a[0] = -1)
SPOIL(ledger_lengths, key(s, "hotset.plan.ledger_layer")->n = 1)
SPOIL(ledger_half, key(s, "hotset.plan.ledger_what")->kind = ABSENT)
SPOIL(ledger_layer, key(s, "hotset.plan.ledger_layer")->a[0] = 2)
SPOIL(ledger_below, key(s, "hotset.plan.ledger_layer")->a[0] = -2)
SPOIL(ledger_unnamed, key(s, "hotset.plan.ledger_what")->sa[0] = "")

SPOIL(pwri_magic, s->magic = "PWRI"; s->t[0].type = s->t[1].type = 18)
SPOIL(m_no_count, key(s, "hotset.placement.block_count")->kind = ABSENT)
SPOIL(m_count_zero, key(s, "hotset.placement.block_count")->u = 0)
SPOIL(m_count_high, key(s, "hotset.placement.block_count")->u = 3)
SPOIL(m_no_capacity, key(s, "hotset.placement.device_capacity")->kind = ABSENT)
SPOIL(m_capacity_u32, key(s, "hotset.placement.device_capacity")->kind = U32S)
SPOIL(m_one_device, key(s, "hotset.placement.device_capacity")->n = 1)
SPOIL(m_capacity_wraps, key(s, "hotset.placement.device_capacity")->a[0] = -1)
SPOIL(m_bytes_short, key(s, "hotset.placement.device_bytes")->n = 2)
SPOIL(m_no_bytes, key(s, "hotset.placement.device_bytes")->kind = ABSENT)
SPOIL(m_over, key(s, "hotset.placement.device_bytes")->a[1] = 301;
      key(s, "hotset.plan.ledger_bytes")->a[1] = 301)
SPOIL(m_device_high, s->t[0].v[3] = 3)
SPOIL(m_device_low, s->t[0].v[3] = -2)
SPOIL(m_missing, s->t[1].name = "blk.1.devices")
SPOIL(m_type, s->t[1].type = 0)
SPOIL(m_2d, s->t[0].n_dims = 2; s->t[0].ne[0] = 3; s->t[0].ne[1] = 2)
SPOIL(m_no_neurons, s->t[1].ne[0] = 0)
SPOIL(m_extra, s->t[2] = (tensor){"blk.2.device", 26, 1, {4}, {0}}; s->n_tensors = 3)
SPOIL(m_no_print, key(s, "hotset.model_fingerprint")->kind = ABSENT)
SPOIL(m_attn_absent, key(s, "hotset.plan.attn_device")->kind = ABSENT)
SPOIL(m_attn_short, key(s, "hotset.plan.attn_device")->n = 1)
SPOIL(m_attn_high, key(s, "hotset.plan.attn_device")->a[1] = 3)
SPOIL(m_norm_low, key(s, "hotset.plan.ffn_norm_device")->a[0] = -2)
SPOIL(m_kv_alone, key(s, "hotset.plan.kv_device")->a[1] = 0)
SPOIL(m_kv_elsewhere, key(s, "hotset.plan.kv_device")->a[0] = 1)
SPOIL(m_output_high, key(s, "hotset.plan.output_device")->u = 3)
SPOIL(m_output_bool, key(s, "hotset.plan.output_device")->kind = BOOL)
SPOIL(m_ledger_absent, key(s, "hotset.plan.ledger_device")->kind = ABSENT)
SPOIL(m_ledger_high, key(s, "hotset.plan.ledger_device")->a[0] = 3)
SPOIL(m_ledger_low, key(s, "hotset.plan.ledger_device")->a[0] = -1)
SPOIL(m_ledger_other, key(s, "hotset.plan.ledger_device")->a[0] = 1)

static const broken several_table[] = {
    {"magic", pwri_magic, "magic: expected GGUF, got PWRI"},
    {"no block count", m_no_count, "hotset.placement.block_count: missing"},
    {"no layers", m_count_zero, "hotset.placement.block_count: expected at least 1, got 0"},
    {"more layers", m_count_high, "expected 3 tensors, one for each of 3 layers, got 2"},
    {"no capacities", m_no_capacity, "hotset.placement.device_capacity: missing"},
    {"capacities u32", m_capacity_u32, "device_capacity: expected array of u64"},
    {"one device", m_one_device, "device_capacity: expected 2 to 8 devices, got 1"},
    {"capacities wrap", m_capacity_wraps, "device_capacity: the sum wraps"},
    {"bytes short", m_bytes_short, "device_bytes: expected 3 entries, got 2"},
    {"no bytes", m_no_bytes, "hotset.placement.device_bytes: missing"},
    {"over a budget", m_over, "device_bytes: device 1: expected at most 300, got 301"},
    {"device 3 of 3", m_device_high,
     "blk.0.device: entry 3: expected a device from -1 to 2, got 3"},
    {"device -2", m_device_low, "blk.0.device: entry 3: expected a device from -1 to 2, got -2"},
    {"layer missing", m_missing, "blk.1.device: missing"},
    {"type", m_type, "blk.1.device: expected type I32, got F32"},
    {"shape", m_2d, "blk.0.device: expected 1 dimension, got 2"},
    {"no neurons", m_no_neurons, "blk.1.device: expected at least one neuron"},
    {"extra tensor", m_extra, "expected 2 tensors, one for each of 2 layers, got 3"},
    {"no fingerprint", m_no_print, "hotset.model_fingerprint: missing"},
    {"no attention", m_attn_absent, "hotset.plan.attn_device: missing"},
    {"attention short", m_attn_short, "hotset.plan.attn_device: expected 2 entries, got 1"},
    {"attention on 3", m_attn_high,
     "hotset.plan.attn_device: layer 1: expected a device from -1 to 2, got 3"},
    {"norm on -2", m_norm_low, "ffn_norm_device: layer 0: expected a device from -1 to 2, got -2"},
    {"kv without attention", m_kv_alone,
     "hotset.plan.kv_device: layer 1: its attention is not on the device"},
    {"kv elsewhere", m_kv_elsewhere,
     "hotset.plan.kv_device: layer 0: its attention is not on the device"},
    {"output on 3", m_output_high, "output_device: expected a device from 0 to 2, got 3"},
    {"output a bool", m_output_bool, "hotset.plan.output_device: expected"},
    {"no ledger devices", m_ledger_absent, "hotset.plan.ledger_device: missing"},
    {"ledger device 3", m_ledger_high,
     "ledger_device: entry 0: expected a device from 0 to 2, got 3"},
    {"ledger device -1", m_ledger_low, "ledger_device: entry 0: expected a device from 0 to 2"},
    {"another device's line", m_ledger_other,
     "ledger_bytes: expected a sum of 4096 (hotset.placement.device_bytes), got 96"},
};

static const broken table[] = {
    {"magic", gguf_magic, "magic: expected PWRI, got GGUF"},
    {"no architecture", no_arch, "general.architecture: missing"},
    {"a model", other_arch, "expected 'generic.gpu_index', got 'llama'"},
    {"architecture of another type", arch_number, "general.architecture: expected string"},
    {"no block count", no_count, "generic.gpu_index.block_count: missing"},
    {"no layers", count_zero, "block_count: expected at least 1, got 0"},
    {"fewer layers", count_low, "expected 2 tensors, two for each of 1 layers, got 4"},
    {"more layers", count_high, "expected 6 tensors, two for each of 3 layers, got 4"},
    {"many layers", count_huge, "expected 4294967298 tensors"},
    {"no capacity", no_capacity, "split.vram_capacity: missing"},
    {"capacity of another type", capacity_string, "split.vram_capacity: expected"},
    {"layer missing", layer_missing, "expected 4 tensors, two for each of 2 layers, got 2"},
    {"bucket missing", bucket_missing, "blk.1.gpu_bucket: missing"},
    {"layer gap", layer_renamed, "blk.1.gpu_idx: missing"},
    {"leading zero", leading_zero, "blk.0.gpu_idx: missing"},
    {"extra tensor", extra_tensor, "expected 4 tensors, two for each of 2 layers, got 5"},
    {"same name", twice, "have the same name blk.0.gpu_idx"},
    {"index type", idx_f32, "blk.0.gpu_idx: expected type I32, got F32"},
    {"bucket type", bucket_f32, "blk.0.gpu_bucket: expected type I32, got F32"},
    {"index shape", idx_2d, "blk.0.gpu_idx: expected 1 dimension, got 2"},
    {"no neurons", no_neurons, "blk.1.gpu_idx: expected at least one neuron"},
    {"index 2", idx_two, "blk.0.gpu_idx: entry 2: expected 0 or 1, got 2"},
    {"index -1", idx_negative, "blk.0.gpu_idx: entry 2: expected 0 or 1, got -1"},
    {"bucket short", bucket_short,
     "blk.0.gpu_bucket: expected 2 entries, the ones of blk.0.gpu_idx, got 1"},
    {"bucket long", bucket_long, "expected 2 entries, the ones of blk.0.gpu_idx, got 3"},
    {"bucket of nothing", bucket_not_empty, "blk.1.gpu_bucket: expected 0 entries"},
    {"descending", descending,
     "blk.0.gpu_bucket: entry 1: expected ascending neurons, got 1 after 4"},
    {"duplicate", duplicate, "entry 1: expected ascending neurons, got 4 after 4"},
    {"disagrees", disagrees, "blk.0.gpu_bucket: entry 0: neuron 2 is 0 in blk.0.gpu_idx"},
    {"negative neuron", negative_id, "entry 0: expected a neuron below 6, got -1"},
    {"neuron n_ff", id_at_end, "entry 1: expected a neuron below 6, got 6"},
    {"neuron huge", id_huge, "entry 1: expected a neuron below 6, got 2147483647"},
};

static const broken plan_table[] = {
    {"no fingerprint", no_print, "hotset.model_fingerprint: missing"},
    {"short fingerprint", print_short, "hotset.model_fingerprint: expected 32 hex digits"},
    {"long fingerprint", print_long, "hotset.model_fingerprint: expected 1 to 32 characters"},
    {"upper-case fingerprint", print_upper, "expected 32 hex digits"},
    {"fingerprint a number", print_number, "hotset.model_fingerprint: expected string"},
    {"no objective", no_objective, "hotset.solver.objective: missing"},
    {"long method", method_long, "hotset.solver.method: expected 1 to 15 characters, got 19"},
    {"value NaN", value_nan, "hotset.solver.value: expected a finite number"},
    {"bound -1", bound_negative, "hotset.solver.bound: expected a finite number >= 0, got -1"},
    {"gap infinite", gap_infinite, "hotset.solver.gap: expected a finite number"},
    {"gap a string", gap_string, "hotset.solver.gap: expected"},
    {"group 0", group_zero, "hotset.solver.group: expected at least 1, got 0"},
    {"context 0", context_zero, "hotset.plan.context: expected at least 1, got 0"},
    {"no context", context_absent, "hotset.plan.context: missing"},
    {"kv type", kv_type_odd, "hotset.plan.kv_type: expected 0 (F32) or 1 (F16), got 8"},
    {"attn short", attn_short, "hotset.plan.attn_layers: expected 2 entries, got 1"},
    {"attn long", attn_long, "hotset.plan.attn_layers: expected 2 entries, got 3"},
    {"attn u32", attn_u32, "hotset.plan.attn_layers: expected array of bool"},
    {"attn scalar", attn_scalar, "hotset.plan.attn_layers: expected array of bool"},
    {"attn 2", attn_two, "a bool is neither 0 nor 1"},
    {"no ffn norms", norm_absent, "hotset.plan.ffn_norm_layers: missing"},
    {"kv without attention", kv_alone,
     "hotset.plan.kv_layers: layer 1: its attention is not on the device"},
    {"no output", output_absent, "hotset.plan.output: missing"},
    {"output a number", output_number, "hotset.plan.output: expected bool"},
    {"over the budget", bytes_over, "hotset.plan.bytes: expected at most split.vram_capacity"},
    {"ledger sum", ledger_sum, "hotset.plan.ledger_bytes: expected a sum of 4096"},
    {"ledger wraps", ledger_wraps, "hotset.plan.ledger_bytes: the sum wraps"},
    {"ledger lengths", ledger_lengths, "hotset.plan.ledger_layer: expected 2 entries, got 1"},
    {"half a ledger", ledger_half, "hotset.plan.ledger_layer: expected 0 entries, got 2"},
    {"ledger layer 2", ledger_layer, "ledger_layer: entry 0: expected -1 to 1, got 2"},
    {"ledger layer -2", ledger_below, "ledger_layer: entry 0: expected -1 to 1, got -2"},
    {"ledger unnamed", ledger_unnamed, "ledger_what: entry 0: expected 1 to 47 characters"},
};

static void refuse(const broken *b, size_t n, spec (*good)(void))
{
    for (size_t i = 0; i < n; i++) {
        spec s = good();
        b[i].spoil(&s);
        hs_placement *p;
        hs_err err = {0};
        const hs_status st = parse(&s, &p, &err);
        if (st != HS_ERR_FORMAT)
            fail_msg("%s: status %d, message '%s'", b[i].name, st, err.msg);
        if (!strstr(err.msg, b[i].expect))
            fail_msg("%s: expected '%s' in '%s'", b[i].name, b[i].expect, err.msg);
        assert_null(p);
    }
}

static void test_broken(void **state)
{
    (void)state;
    refuse(table, sizeof table / sizeof *table, powerinfer);
    refuse(table, sizeof table / sizeof *table, ours);
    refuse(plan_table, sizeof plan_table / sizeof *plan_table, ours);
    refuse(several_table, sizeof several_table / sizeof *several_table, several);
}

/* Every prefix of a good file is refused, or (cut inside padding alone) says the same. */
static void test_cut_short(void **state)
{
    (void)state;
    const spec s = ours();
    const bytes b = build(&s);
    for (size_t n = 0; n < b.n; n++) {
        uint8_t *part = malloc(n ? n : 1);
        assert_non_null(part);
        memcpy(part, b.p, n);
        hs_gguf *g;
        hs_err err = {0};
        hs_placement *p = NULL;
        if (hs_gguf_parse(&g, part, n, &err) == HS_OK) {
            /* The last layer's bucket is empty, the data before it is 16 bytes and padding. */
            assert_int_equal(hs_placement_parse(&p, g, &err), HS_OK);
            assert_true(n >= b.n - 16);
            check_shape(p);
            hs_gguf_free(g);
        }
        hs_placement_free(p);
        free(part);
    }
}

static void test_read_names_the_file(void **state)
{
    (void)state;
    hs_placement *p;
    hs_err err = {0};
    assert_int_equal(hs_placement_read(&p, "tests/golden/none.gpuidx", &err), HS_ERR_INPUT);
    assert_non_null(strstr(err.msg, "tests/golden/none.gpuidx: "));
    char path[] = "/tmp/test_placement.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    spec s = powerinfer();
    s.t[0].v[2] = 2;
    const bytes b = build(&s);
    assert_int_equal(write(fd, b.p, b.n), b.n);
    close(fd);
    assert_int_equal(hs_placement_read(&p, path, &err), HS_ERR_FORMAT);
    assert_memory_equal(err.msg, path, strlen(path));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_powerinfers_own),
        cmocka_unit_test(test_our_plan),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_golden_bytes),
        cmocka_unit_test(test_our_bytes),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_several_devices),
        cmocka_unit_test(test_several_without_head),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_read_names_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
