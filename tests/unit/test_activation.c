/* The activation profile: exact bytes, round trip, a table of broken files, exact sums. */
#include "formats/activation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PRINT "0123456789abcdef0123456789abcdef"
#define HASH  "fedcba9876543210fedcba9876543210"

/* ---- a file, described, so that each test breaks one thing of it ----------------------- */

enum { MAX_T = 12, MAX_FF = 4 };

typedef struct tensor {
    const char *name;
    uint32_t type, n_dims;
    uint64_t ne[2];
    int64_t v[MAX_FF];
} tensor;

typedef struct spec {
    const char *magic, *type; /* NULL: no key */
    bool has_layers, has_tokens, tokens_f32, has_chunks, has_context, source_u32;
    uint32_t layers, context;
    uint64_t tokens, chunks;
    const char *print, *source[3];
    size_t n_source, n_tensors;
    tensor t[MAX_T];
} spec;

static spec good(void)
{
    return (spec){
        .magic = "GGUF",
        .type = "activation-profile",
        .has_layers = true,
        .layers = 2,
        .has_tokens = true,
        .tokens = 20,
        .print = PRINT,
        .source = {HASH " a text.txt"},
        .n_source = 1,
        .has_chunks = true,
        .chunks = 3,
        .has_context = true,
        .context = 8,
        .n_tensors = 2,
        .t = {{"blk.0.ffn_active_count", 27, 1, {4}, {0, 20, 3, 7}},
              {"blk.1.ffn_active_count", 27, 1, {4}, {1, 2, 3, 4}}},
    };
}

typedef struct bytes {
    uint8_t p[4096];
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

static void put_kv(bytes *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_int(b, type, 4);
}

static size_t tensor_bytes(const tensor *t)
{
    const size_t width = t->type == 0 || t->type == 26 ? 4 : 8;
    return (size_t)t->ne[0] * (t->n_dims > 1 ? (size_t)t->ne[1] : 1) * width;
}

static void pad(bytes *b)
{
    while (b->n % 32)
        put_int(b, 0, 1);
}

static void put_kvs(bytes *b, const spec *s)
{
    if (s->type) {
        put_kv(b, "general.type", 8);
        put_str(b, s->type);
    }
    if (s->has_layers) {
        put_kv(b, "hotset.profile.block_count", 4);
        put_int(b, s->layers, 4);
    }
    if (s->has_tokens) {
        put_kv(b, "hotset.profile.tokens", s->tokens_f32 ? 6 : 10);
        put_int(b, s->tokens, s->tokens_f32 ? 4 : 8);
    }
    if (s->print) {
        put_kv(b, "hotset.profile.fingerprint", 8);
        put_str(b, s->print);
    }
    if (s->n_source) {
        put_kv(b, "hotset.profile.source", 9);
        put_int(b, s->source_u32 ? 4 : 8, 4);
        put_int(b, s->n_source, 8);
        for (size_t i = 0; i < s->n_source; i++)
            if (s->source_u32)
                put_int(b, 1, 4);
            else
                put_str(b, s->source[i]);
    }
    if (s->has_chunks) {
        put_kv(b, "hotset.profile.chunks_done", 10);
        put_int(b, s->chunks, 8);
    }
    if (s->has_context) {
        put_kv(b, "hotset.profile.context", 4);
        put_int(b, s->context, 4);
    }
}

static bytes build(const spec *s)
{
    bytes b = {.n = 0};
    put(&b, s->magic, 4);
    put_int(&b, 3, 4);
    put_int(&b, s->n_tensors, 8);
    put_int(&b,
            (s->type != NULL) + s->has_layers + s->has_tokens + (s->print != NULL) +
                (s->n_source > 0) + s->has_chunks + s->has_context,
            8);
    put_kvs(&b, s);
    uint64_t at = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const tensor *t = &s->t[i];
        put_str(&b, t->name);
        put_int(&b, t->n_dims, 4);
        for (uint32_t d = 0; d < t->n_dims; d++)
            put_int(&b, t->ne[d], 8);
        put_int(&b, t->type, 4);
        put_int(&b, at, 8);
        at += (tensor_bytes(t) + 31) / 32 * 32;
    }
    pad(&b);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const size_t n = tensor_bytes(&s->t[i]);
        for (size_t k = 0; k < n / 8; k++)
            put_int(&b, (uint64_t)(k < MAX_FF ? s->t[i].v[k] : 0), 8);
        if (n % 8)
            put_int(&b, 0, 4);
        pad(&b);
    }
    return b;
}

static hs_status parse(const bytes *b, hs_activation **a, hs_err *err)
{
    hs_gguf *g;
    *a = NULL;
    hs_status s = hs_gguf_parse(&g, b->p, b->n, err);
    if (s != HS_OK)
        return s;
    s = hs_activation_parse(a, g, err);
    hs_gguf_free(g);
    return s;
}

static hs_activation *must_parse(const spec *s)
{
    const bytes b = build(s);
    hs_activation *a;
    hs_err err = {0};
    if (parse(&b, &a, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return a;
}

/* ---- reading -------------------------------------------------------------------------- */

static void reads_a_good_file(void **state)
{
    (void)state;
    const spec s = good();
    hs_activation *a = must_parse(&s);
    assert_int_equal(a->n_layer, 2);
    assert_int_equal(a->n_ff[0], 4);
    assert_int_equal(a->tokens, 20);
    assert_string_equal(a->fingerprint, PRINT);
    assert_int_equal(a->n_source, 1);
    assert_string_equal(a->source[0].name, "a text.txt");
    assert_string_equal(a->source[0].hash, HASH);
    assert_int_equal(a->chunks_done, 3);
    assert_int_equal(a->n_ctx, 8);
    assert_memory_equal(a->count[0], s.t[0].v, 32);
    assert_memory_equal(a->count[1], s.t[1].v, 32);
    hs_activation_free(a);
}

/* Only the counts and their number of tokens are needed; the order of tensors is free. */
static void reads_a_foreign_file(void **state)
{
    (void)state;
    spec s = good();
    s.has_layers = s.has_chunks = s.has_context = false;
    s.print = NULL;
    s.n_source = 0;
    const tensor t = s.t[0];
    s.t[0] = s.t[1];
    s.t[1] = t;
    s.t[2] = (tensor){"blk.1.ffn_mean", 0, 1, {3}, {0}};
    s.n_tensors = 3;
    hs_activation *a = must_parse(&s);
    assert_string_equal(a->fingerprint, "");
    assert_int_equal(a->n_layer, 2);
    assert_int_equal(a->count[0][1], 20);
    assert_int_equal(a->count[1][1], 2);
    hs_activation_free(a);
}

/* Layer 10 is layer 10, wherever a list of names would have sorted it. */
static void layers_are_numbers(void **state)
{
    (void)state;
    static const char *const name[12] = {
        "blk.10.ffn_active_count", "blk.11.ffn_active_count", "blk.2.ffn_active_count",
        "blk.1.ffn_active_count",  "blk.0.ffn_active_count",  "blk.3.ffn_active_count",
        "blk.4.ffn_active_count",  "blk.5.ffn_active_count",  "blk.6.ffn_active_count",
        "blk.7.ffn_active_count",  "blk.9.ffn_active_count",  "blk.8.ffn_active_count"};
    static const int64_t layer[12] = {10, 11, 2, 1, 0, 3, 4, 5, 6, 7, 9, 8};
    spec s = good();
    s.has_layers = false;
    s.n_tensors = 12;
    for (int i = 0; i < 12; i++)
        s.t[i] = (tensor){name[i], 27, 1, {1}, {layer[i]}};
    hs_activation *a = must_parse(&s);
    assert_int_equal(a->n_layer, 12);
    for (int i = 0; i < 12; i++)
        assert_int_equal(a->count[i][0], i);
    hs_activation_free(a);
}

static void no_type(spec *s) { s->type = NULL; }
static void model_type(spec *s) { s->type = "model"; }
static void pwri(spec *s) { s->magic = "PWRI"; }
static void no_tensor(spec *s)
{
    s->n_tensors = 0;
    s->has_layers = false;
}
static void last_missing(spec *s) { s->layers = 3; }
static void many_layers(spec *s) { s->layers = UINT32_MAX; }
static void zero_layers(spec *s) { s->layers = 0; }
static void first_missing(spec *s)
{
    s->has_layers = false;
    s->t[0].name = "blk.2.ffn_active_count";
}
static void gap(spec *s)
{
    s->has_layers = false;
    s->t[1].name = "blk.2.ffn_active_count";
}
static void far_gap(spec *s)
{
    s->has_layers = false;
    s->t[1].name = "blk.4294967295.ffn_active_count";
}
static void too_many(spec *s) { s->layers = 1; }
static void leading_zero(spec *s) { s->t[1].name = "blk.01.ffn_active_count"; }
static void duplicate(spec *s) { s->t[1].name = "blk.0.ffn_active_count"; }
static void add(spec *s, const char *name)
{
    s->t[s->n_tensors++] = (tensor){name, 27, 1, {4}, {0}};
}
static void stranger(spec *s) { add(s, "token_embd.weight"); }
static void attention(spec *s) { add(s, "blk.0.attn_count"); }
static void extra_layer(spec *s) { add(s, "blk.7.ffn_mean"); }
static void wrong_type(spec *s) { s->t[1].type = 26; }
static void float_type(spec *s) { s->t[1].type = 0; }
static void two_dims(spec *s)
{
    s->t[0].n_dims = 2;
    s->t[0].ne[0] = 2;
    s->t[0].ne[1] = 2;
}
static void negative(spec *s) { s->t[1].v[2] = -1; }
static void above(spec *s) { s->t[0].v[1] = 21; }
static void huge(spec *s) { s->t[0].v[3] = INT64_MAX; }
static void no_tokens(spec *s) { s->has_tokens = false; }
static void zero_tokens(spec *s) { s->tokens = 0; }
static void big_tokens(spec *s) { s->tokens = (uint64_t)1 << 63; }
static void float_tokens(spec *s) { s->tokens_f32 = true; }
static void short_print(spec *s) { s->print = "0123"; }
static void upper_print(spec *s) { s->print = "0123456789ABCDEF0123456789abcdef"; }
static void source_path(spec *s) { s->source[0] = HASH " dir/a.txt"; }
static void source_bare(spec *s) { s->source[0] = HASH " "; }
static void source_hash(spec *s) { s->source[0] = "nothex a.txt"; }
static void source_ints(spec *s) { s->source_u32 = true; }
static void chunks_alone(spec *s) { s->has_context = false; }
static void context_alone(spec *s) { s->has_chunks = false; }
static void few_chunks(spec *s) { s->chunks = 2; }
static void more_chunks(spec *s) { s->chunks = 21; }

static const struct broken {
    void (*edit)(spec *);
    const char *msg; /* NULL: the container's own reader finds it */
} broken[] = {
    {no_type, "general.type: expected \"activation-profile\", got \"\""},
    {model_type, "general.type: expected \"activation-profile\", got \"model\""},
    {pwri, NULL},
    {no_tensor, "blk.0.ffn_active_count: missing"},
    {last_missing, "blk.2.ffn_active_count: missing"},
    {many_layers, "blk.2.ffn_active_count: missing"},
    {zero_layers, "hotset.profile.block_count: expected at least 1, got 0"},
    {first_missing, "blk.0.ffn_active_count: missing"},
    {gap, "blk.1.ffn_active_count: missing"},
    {far_gap, "blk.1.ffn_active_count: missing"},
    {too_many, "blk.1.ffn_active_count: unexpected layer, the profile has 1 layers"},
    {leading_zero, "blk.1.ffn_active_count: missing"},
    {duplicate, NULL},
    {stranger, "token_embd.weight: unexpected tensor, a profile has only blk.N.ffn_..."},
    {attention, "blk.0.attn_count: unexpected tensor, a profile has only blk.N.ffn_..."},
    {extra_layer, "blk.7.ffn_mean: unexpected layer, the profile has 2 layers"},
    {wrong_type, "blk.1.ffn_active_count: expected type I64, got I32"},
    {float_type, "blk.1.ffn_active_count: expected type I64, got F32"},
    {two_dims, "blk.0.ffn_active_count: expected 1 dimension of 1 to 2147483647 neurons, got 2 "
               "of 2"},
    {negative, "blk.1.ffn_active_count: neuron 2: expected a count of at least 0, got -1"},
    {above, "blk.0.ffn_active_count: neuron 1: count 21 exceeds hotset.profile.tokens 20"},
    {huge, "blk.0.ffn_active_count: neuron 3: count 9223372036854775807 exceeds "
           "hotset.profile.tokens 20"},
    {no_tokens, "hotset.profile.tokens: missing"},
    {zero_tokens, "hotset.profile.tokens: expected 1 to 2^63-1, got 0"},
    {big_tokens, "hotset.profile.tokens: expected 1 to 2^63-1, got 9223372036854775808"},
    {float_tokens, NULL},
    {short_print, "hotset.profile.fingerprint: expected 32 hex digits, got \"0123\""},
    {upper_print, "hotset.profile.fingerprint: expected 32 hex digits, got "
                  "\"0123456789ABCDEF0123456789abcdef\""},
    {source_path, "hotset.profile.source: entry 0: expected \"<32 hex digits> <file name>\", got "
                  "\"" HASH " dir/a.txt\""},
    {source_bare, "hotset.profile.source: entry 0: expected \"<32 hex digits> <file name>\", got "
                  "\"" HASH " \""},
    {source_hash, "hotset.profile.source: entry 0: expected \"<32 hex digits> <file name>\", got "
                  "\"nothex a.txt\""},
    {source_ints, NULL},
    {chunks_alone, "hotset.profile.chunks_done 3 and hotset.profile.context 0: expected both or "
                   "neither"},
    {context_alone, "hotset.profile.chunks_done 0 and hotset.profile.context 8: expected both or "
                    "neither"},
    {few_chunks, "hotset.profile.tokens 20 cannot come from 2 chunks of at most 8"},
    {more_chunks, "hotset.profile.tokens 20 cannot come from 21 chunks of at most 8"},
};

static void refuses_broken_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        spec s = good();
        broken[i].edit(&s);
        const bytes b = build(&s);
        hs_activation *a;
        hs_err err = {0};
        if (parse(&b, &a, &err) != HS_ERR_FORMAT)
            fail_msg("case %zu (%s): accepted, or another error: %s", i,
                     broken[i].msg ? broken[i].msg : "", err.msg);
        assert_null(a);
        assert_true(err.msg[0] != 0);
        if (broken[i].msg)
            assert_string_equal(err.msg, broken[i].msg);
    }
}

/* A name of 1 byte to 255 is a name; at 256 it would not fit what we keep. */
static void long_source_names(void **state)
{
    (void)state;
    char v[HS_FINGERPRINT_CHARS + 1 + 256 + 1];
    for (size_t n = 255; n <= 256; n++) {
        memcpy(v, HASH " ", 33);
        memset(v + 33, 'x', n);
        v[33 + n] = 0;
        spec s = good();
        s.source[0] = v;
        const bytes b = build(&s);
        hs_activation *a;
        assert_int_equal(parse(&b, &a, NULL), n == 255 ? HS_OK : HS_ERR_FORMAT);
        hs_activation_free(a);
    }
}

/* Every truncation of a good file is an error, and never a read past the end. */
static void refuses_truncation(void **state)
{
    (void)state;
    const spec s = good();
    const bytes b = build(&s);
    for (size_t n = 0; n < b.n; n++) {
        uint8_t *exact = malloc(n ? n : 1);
        assert_non_null(exact);
        memcpy(exact, b.p, n);
        hs_gguf *g;
        hs_activation *a = NULL;
        if (hs_gguf_parse(&g, exact, n, NULL) == HS_OK) {
            /* The last padding is all that may be cut. */
            assert_true(n >= b.n - 31);
            assert_int_equal(hs_activation_parse(&a, g, NULL), HS_OK);
            hs_gguf_free(g);
            hs_activation_free(a);
        }
        free(exact);
    }
}

/* ---- writing -------------------------------------------------------------------------- */

static void slurp(const char *path, bytes *b)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    b->n = fread(b->p, 1, sizeof b->p, f);
    fclose(f);
}

static void writes_exactly_these_bytes(void **state)
{
    (void)state;
    const spec s = good();
    const bytes want = build(&s);
    hs_activation *a = must_parse(&s);
    char path[] = "/tmp/hs-activation-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    hs_err err = {0};
    /* It exists: only --force replaces it. */
    assert_int_equal(hs_activation_write(a, path, false, &err), HS_ERR_USAGE);
    assert_int_equal(hs_activation_write(a, path, true, &err), HS_OK);
    bytes got = {.n = 0};
    slurp(path, &got);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);

    /* A profile that no reader would take is not written, and the file stays. */
    a->count[1][0] = 21;
    assert_int_equal(hs_activation_write(a, path, true, &err), HS_ERR_USAGE);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, "neuron 0: count 21 exceeds"));
    slurp(path, &got);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
    unlink(path);
    a->count[1][0] = 1;
    a->tokens = 0;
    assert_int_equal(hs_activation_write(a, path, true, &err), HS_ERR_USAGE);
    assert_int_not_equal(access(path, F_OK), 0);
    hs_activation_free(a);
}

static void read_names_the_path(void **state)
{
    (void)state;
    spec s = good();
    s.t[1].v[2] = -5;
    const bytes b = build(&s);
    char path[] = "/tmp/hs-activation-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, b.p, b.n), (ssize_t)b.n);
    close(fd);
    hs_activation *a;
    hs_err err = {0};
    assert_int_equal(hs_activation_read(&a, path, &err), HS_ERR_FORMAT);
    char want[256];
    snprintf(want, sizeof want,
             "%s: blk.1.ffn_active_count: neuron 2: expected a count of at least 0, got -5", path);
    assert_string_equal(err.msg, want);
    unlink(path);
    assert_int_equal(hs_activation_read(&a, path, &err), HS_ERR_INPUT);
    assert_non_null(strstr(err.msg, path));
    assert_null(a);
}

static void new_refuses_nonsense(void **state)
{
    (void)state;
    hs_activation *a;
    const uint32_t none[1] = {0}, big[1] = {(uint32_t)1 << 31};
    assert_int_equal(hs_activation_new(&a, 0, none, NULL), HS_ERR_USAGE);
    assert_int_equal(hs_activation_new(&a, 1, none, NULL), HS_ERR_USAGE);
    assert_int_equal(hs_activation_new(&a, 1, big, NULL), HS_ERR_USAGE);
    assert_null(a);
}

static void sources_lose_their_folder(void **state)
{
    (void)state;
    hs_activation *a;
    const uint32_t n_ff[1] = {1};
    assert_int_equal(hs_activation_new(&a, 1, n_ff, NULL), HS_OK);
    assert_int_equal(hs_activation_add_source(a, "/some/where/text.txt", HASH, NULL), HS_OK);
    assert_string_equal(a->source[0].name, "text.txt");
    assert_int_equal(hs_activation_add_source(a, "where/", HASH, NULL), HS_ERR_USAGE);
    assert_int_equal(hs_activation_add_source(a, "text.txt", "12", NULL), HS_ERR_USAGE);
    assert_int_equal(a->n_source, 1);
    hs_activation_free(a);
}

/* ---- adding --------------------------------------------------------------------------- */

static void adds_exactly(void **state)
{
    (void)state;
    spec s = good();
    hs_activation *a = must_parse(&s);
    s.print = NULL;
    s.tokens = 24;
    s.t[0].v[0] = 24;
    s.source[0] = PRINT " b.txt";
    hs_activation *b = must_parse(&s);
    hs_err err = {0};
    assert_int_equal(hs_activation_add(b, a, &err), HS_OK);
    assert_int_equal(b->tokens, 44);
    assert_string_equal(b->fingerprint, PRINT);
    assert_int_equal(b->n_ctx, 0);
    assert_int_equal(b->chunks_done, 0);
    assert_int_equal(b->n_source, 2);
    assert_string_equal(b->source[0].name, "b.txt");
    assert_string_equal(b->source[1].name, "a text.txt");
    const int64_t want[2][4] = {{24, 40, 6, 14}, {2, 4, 6, 8}};
    assert_memory_equal(b->count[0], want[0], 32);
    assert_memory_equal(b->count[1], want[1], 32);
    hs_activation_free(a);
    hs_activation_free(b);
}

/* b is broken by `edit`; a must stay as it was. */
static void refuses_add(void (*edit)(spec *), const char *msg)
{
    spec s = good();
    const bytes before = build(&s);
    hs_activation *a = must_parse(&s);
    edit(&s);
    hs_activation *b = must_parse(&s);
    hs_err err = {0};
    assert_int_equal(hs_activation_add(a, b, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, msg);
    char path[] = "/tmp/hs-activation-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(hs_activation_write(a, path, true, &err), HS_OK);
    bytes after = {.n = 0};
    slurp(path, &after);
    unlink(path);
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.p, before.p, before.n);
    hs_activation_free(a);
    hs_activation_free(b);
}

static void one_layer(spec *s) { s->layers = (uint32_t)(s->n_tensors = 1); }
static void narrow(spec *s) { s->t[1].ne[0] = 3; }
static void other_model(spec *s) { s->print = HASH; }
static void full(spec *s)
{
    s->has_chunks = s->has_context = false;
    s->tokens = INT64_MAX - 19;
}

static void refuses_to_add_unequals(void **state)
{
    (void)state;
    refuses_add(one_layer, "expected 2 layers, got 1");
    refuses_add(narrow, "layer 1: expected 4 neurons, got 3");
    refuses_add(other_model, "expected a profile of model " PRINT ", got one of " HASH);
    refuses_add(full, "20 and 9223372036854775788 tokens overflow");
}

/* Counts above the tokens cannot come from a file, but a sum must not wrap even then. */
static void refuses_to_wrap_counts(void **state)
{
    (void)state;
    const spec s = good();
    hs_activation *a = must_parse(&s), *b = must_parse(&s);
    a->count[1][3] = INT64_MAX;
    b->count[1][3] = 1;
    hs_err err = {0};
    assert_int_equal(hs_activation_add(a, b, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "layer 1: neuron 3: 9223372036854775807 and 1 overflow");
    assert_int_equal(a->count[0][1], 20);
    hs_activation_free(a);
    hs_activation_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_good_file),
        cmocka_unit_test(reads_a_foreign_file),
        cmocka_unit_test(layers_are_numbers),
        cmocka_unit_test(refuses_broken_files),
        cmocka_unit_test(long_source_names),
        cmocka_unit_test(refuses_truncation),
        cmocka_unit_test(writes_exactly_these_bytes),
        cmocka_unit_test(read_names_the_path),
        cmocka_unit_test(new_refuses_nonsense),
        cmocka_unit_test(sources_lose_their_folder),
        cmocka_unit_test(adds_exactly),
        cmocka_unit_test(refuses_to_add_unequals),
        cmocka_unit_test(refuses_to_wrap_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
