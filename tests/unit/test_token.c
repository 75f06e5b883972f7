/* The vocabulary and the tokenizer, on vocabularies made here and on the bundled one. */
#include "runtime/token.h"

#include "formats/json.h"
#include "runtime/hotset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- GGUF files in memory -------------------------------------------------------------- */

typedef struct blob {
    uint8_t *p;
    size_t n, cap;
    uint64_t n_kv;
} blob;

static void put(blob *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->p = realloc(b->p, b->cap);
        assert_non_null(b->p);
    }
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void put_u32(blob *b, uint32_t x)
{
    const uint8_t le[4] = {(uint8_t)x, (uint8_t)(x >> 8), (uint8_t)(x >> 16), (uint8_t)(x >> 24)};
    put(b, le, 4);
}

static void put_u64(blob *b, uint64_t x)
{
    put_u32(b, (uint32_t)x);
    put_u32(b, (uint32_t)(x >> 32));
}

static void put_str(blob *b, const char *p, size_t n)
{
    put_u64(b, n);
    put(b, p, n);
}

static void key(blob *b, const char *name, uint32_t type)
{
    b->n_kv++;
    put_str(b, name, strlen(name));
    put_u32(b, type);
}

static void array(blob *b, const char *name, uint32_t elem, uint64_t n)
{
    key(b, name, HS_KV_ARRAY);
    put_u32(b, elem);
    put_u64(b, n);
}

static void start(blob *b, const char *model)
{
    *b = (blob){0};
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, 0);
    put_u64(b, 0);
    if (model) {
        key(b, "tokenizer.ggml.model", HS_KV_STRING);
        put_str(b, model, strlen(model));
    }
}

static void set_u32(blob *b, const char *name, uint32_t x)
{
    key(b, name, HS_KV_U32);
    put_u32(b, x);
}

static void set_bool(blob *b, const char *name, bool x)
{
    key(b, name, HS_KV_BOOL);
    put(b, &(uint8_t){x}, 1);
}

static hs_gguf *finish(blob *b)
{
    for (int i = 0; i < 8; i++)
        b->p[16 + i] = (uint8_t)(b->n_kv >> 8 * i);
    while (b->n % 32)
        put(b, "", 1);
    hs_gguf *g;
    hs_err err;
    if (hs_gguf_parse(&g, b->p, b->n, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return g;
}

/* ---- vocabularies ----------------------------------------------------------------------- */

typedef struct item {
    const char *piece;
    float score;
    int32_t type;
} item;

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

typedef struct fixture {
    blob b;
    hs_gguf *g;
    hs_vocab *v;
} fixture;

static void put_items(blob *b, const item *it, size_t n)
{
    array(b, "tokenizer.ggml.tokens", HS_KV_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_str(b, it[i].piece, strlen(it[i].piece));
    array(b, "tokenizer.ggml.scores", HS_KV_F32, n);
    for (size_t i = 0; i < n; i++)
        put(b, &it[i].score, 4);
    array(b, "tokenizer.ggml.token_type", HS_KV_I32, n);
    for (size_t i = 0; i < n; i++)
        put_u32(b, (uint32_t)it[i].type);
}

static void open_blob(fixture *f)
{
    hs_err err;
    f->g = finish(&f->b);
    if (hs_vocab_new(&f->v, f->g, &err) != HS_OK)
        fail_msg("%s", err.msg);
}

static void close_fixture(fixture *f)
{
    hs_vocab_free(f->v);
    hs_gguf_free(f->g);
    free(f->b.p);
}

/* The base of every small vocabulary here: 0..2 special, 3..258 bytes. */
enum { BASE = 259 };

static void open_small(fixture *f, const item *extra, size_t n_extra, bool space)
{
    static char name[256][8];
    item it[BASE + 64] = {{"<unk>", 0, UNKNOWN}, {"<s>", 0, CONTROL}, {"</s>", 0, CONTROL}};
    assert_true(n_extra <= 64);
    for (int i = 0; i < 256; i++) {
        snprintf(name[i], sizeof name[i], "<0x%02X>", i);
        it[3 + i] = (item){name[i], 0, BYTE};
    }
    memcpy(it + BASE, extra, n_extra * sizeof *extra);
    start(&f->b, "llama");
    put_items(&f->b, it, BASE + n_extra);
    set_bool(&f->b, "tokenizer.ggml.add_space_prefix", space);
    open_blob(f);
}

static void expect_ids(const hs_vocab *v, const char *text, size_t n, bool special,
                       const int32_t *want, size_t n_want)
{
    int32_t *ids;
    size_t got;
    hs_err err;
    if (hs_vocab_encode(v, text, n, special, &ids, &got, &err) != HS_OK)
        fail_msg("%s", err.msg);
    bool same = got == n_want;
    for (size_t i = 0; same && i < got; i++)
        same = ids[i] == want[i];
    if (!same) {
        print_error("\"%s\":", text);
        for (size_t i = 0; i < got; i++)
            print_error(" %d", ids[i]);
        print_error("\n");
    }
    free(ids);
    assert_true(same);
}

#define EXPECT(v, text, special, ...)                                              \
    expect_ids(v, text, sizeof(text) - 1, special, (const int32_t[]){__VA_ARGS__}, \
               sizeof((const int32_t[]){__VA_ARGS__}) / 4)

/* ---- the bundled tokenizer --------------------------------------------------------------- */

static void open_bundled(fixture *f)
{
    hs_spm *m;
    hs_err err;
    if (hs_spm_open(&m, "data/kjv-relu-8m/tokenizer.model", &err) != HS_OK)
        fail_msg("%s", err.msg);
    start(&f->b, "llama");
    array(&f->b, "tokenizer.ggml.tokens", HS_KV_STRING, m->n);
    for (size_t i = 0; i < m->n; i++)
        put_str(&f->b, m->piece[i].p, m->piece[i].n);
    array(&f->b, "tokenizer.ggml.scores", HS_KV_F32, m->n);
    put(&f->b, m->score, m->n * 4);
    array(&f->b, "tokenizer.ggml.token_type", HS_KV_I32, m->n);
    put(&f->b, m->type, m->n * 4);
    hs_spm_free(m);
    open_blob(f);
}

static void test_reference_cases(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    json_t *root, *c;
    hs_err err;
    if (hs_json_read(&root, "data/kjv-relu-8m/reference/tokenizer_cases.json", &err) != HS_OK)
        fail_msg("%s", err.msg);
    const json_t *cases = json_object_get(root, "cases");
    assert_int_equal(json_array_size(cases), 60);
    size_t i;
    json_array_foreach(cases, i, c)
    {
        const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
        int32_t want[64];
        const size_t n = json_array_size(ids);
        assert_true(n <= 64);
        for (size_t k = 0; k < n; k++)
            want[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        expect_ids(f.v, json_string_value(text), json_string_length(text), false, want, n);
        char *back;
        size_t len;
        assert_int_equal(hs_vocab_decode(f.v, want, n, &back, &len, &err), HS_OK);
        /* U+2581 in a text comes back as the space it stands for. */
        if (!strstr(json_string_value(text), "\xe2\x96\x81")) {
            assert_int_equal(len, json_string_length(text));
            assert_memory_equal(back, json_string_value(text), len + 1);
        }
        free(back);
    }
    json_decref(root);
    close_fixture(&f);
}

static void test_reference_prompts(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    json_t *root;
    hs_err err;
    assert_int_equal(hs_json_read(&root, "data/kjv-relu-8m/reference/greedy.json", &err), HS_OK);
    size_t i;
    const json_t *p;
    json_array_foreach(json_object_get(root, "prompts"), i, p)
    {
        const json_t *text = json_object_get(p, "prompt"), *ids = json_object_get(p, "ids");
        int32_t want[256];
        const size_t n = json_array_size(ids);
        assert_true(n <= 256);
        for (size_t k = 0; k < n; k++)
            want[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        assert_int_equal(want[0], hs_vocab_bos(f.v));
        expect_ids(f.v, json_string_value(text), json_string_length(text), false, want + 1, n - 1);
    }
    json_decref(root);
    close_fixture(&f);
}

static void test_any_bytes(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    /* SentencePiece's own ids for "a\0b" (no BOS). */
    EXPECT(f.v, "a\0b", false, 262, 3, 1996);
    /* Bytes that are no UTF-8 are byte tokens (3 + byte) and come back as they were. */
    EXPECT(f.v, "\xff", false, 1976, 3 + 0xff);
    EXPECT(f.v, "a\xe2\x96", false, 262, 3 + 0xe2, 3 + 0x96);
    EXPECT(f.v, "a\xc0\xaf", false, 262, 3 + 0xc0, 3 + 0xaf);
    EXPECT(f.v, "a\xed\xa0\x80", false, 262, 3 + 0xed, 3 + 0xa0, 3 + 0x80);
    uint32_t rng = 12345;
    for (int round = 0; round < 300; round++) {
        char text[64];
        const size_t n = (size_t)(round % 64) + 1;
        for (size_t i = 0; i < n; i++) {
            rng = rng * 1664525 + 1013904223;
            text[i] = (char)(rng >> 24);
        }
        int32_t *ids;
        size_t n_ids, len;
        char *back;
        assert_int_equal(hs_vocab_encode(f.v, text, n, false, &ids, &n_ids, NULL), HS_OK);
        assert_int_equal(hs_vocab_decode(f.v, ids, n_ids, &back, &len, NULL), HS_OK);
        assert_int_equal(len, n);
        assert_memory_equal(back, text, n);
        free(back);
        free(ids);
    }
    close_fixture(&f);
}

static void test_empty(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    int32_t *ids = (int32_t *)&f;
    size_t n = 7;
    assert_int_equal(hs_vocab_encode(f.v, "", 0, false, &ids, &n, NULL), HS_OK);
    assert_null(ids);
    assert_int_equal(n, 0);
    assert_int_equal(hs_vocab_encode(f.v, NULL, 0, true, &ids, &n, NULL), HS_OK);
    hs_err err;
    assert_int_equal(hs_vocab_encode(f.v, "x", (size_t)INT32_MAX + 1, false, &ids, &n, &err),
                     HS_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "2147483648 bytes"));
    char *text;
    assert_int_equal(hs_vocab_decode(f.v, NULL, 0, &text, &n, NULL), HS_OK);
    assert_string_equal(text, "");
    free(text);
    close_fixture(&f);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* not disturbed by other processes */
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Growth is what matters: with a quadratic merge the long text would take minutes. */
static void test_long_texts(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    const size_t n = 2000000;
    char *text = malloc(n);
    assert_non_null(text);
    static const char verse[] = "And the LORD said unto Moses, 1 \xc3\xa9\n";
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < n; i++)
            text[i] = kind == 0 ? verse[i % (sizeof verse - 1)] : kind == 1 ? 'e' : ' ';
        int32_t *ids;
        size_t n_ids;
        const double t0 = seconds();
        assert_int_equal(hs_vocab_encode(f.v, text, n, false, &ids, &n_ids, NULL), HS_OK);
        assert_true(seconds() - t0 < 30); /* sanitizers included */
        assert_true(n_ids > 0 && n_ids <= n + 1);
        char *back;
        size_t len;
        assert_int_equal(hs_vocab_decode(f.v, ids, n_ids, &back, &len, NULL), HS_OK);
        assert_int_equal(len, n);
        assert_memory_equal(back, text, n);
        free(back);
        free(ids);
    }
    free(text);
    close_fixture(&f);
}

/* ---- the rules, one by one ---------------------------------------------------------------- */

static void test_merge_order(void **state)
{
    (void)state;
    static const item extra[] = {
        {"a", -10, NORMAL},  {"b", -10, NORMAL},           {"c", -10, NORMAL}, /* 259 260 261 */
        {"ab", -2, NORMAL},  {"bc", -1, NORMAL},                               /* 262 263 */
        {"aa", -1, NORMAL},  {"aaaa", -3, NORMAL},                             /* 264 265 */
        {"abc", -5, NORMAL}, {"\xe2\x96\x81", -9, NORMAL},                     /* 266 267 */
    };
    fixture f;
    open_small(&f, extra, sizeof extra / sizeof *extra, false);
    EXPECT(f.v, "ab", false, 262);
    EXPECT(f.v, "abc", false, 266); /* bc first (-1), then a + bc */
    EXPECT(f.v, "abb", false, 262, 260);
    EXPECT(f.v, "aaa", false, 264, 259); /* ties: the leftmost pair */
    EXPECT(f.v, "aaaaa", false, 265, 259);
    EXPECT(f.v, "aaaaaa", false, 265, 264);
    EXPECT(f.v, "caab", false, 261, 264, 260);
    EXPECT(f.v, "a b", false, 259, 267, 260);
    EXPECT(f.v, "x", false, 3 + 'x');
    close_fixture(&f);
    open_small(&f, extra, sizeof extra / sizeof *extra, true);
    EXPECT(f.v, "ab", false, 267, 262);
    close_fixture(&f);
}

static void test_kinds_of_pieces(void **state)
{
    (void)state;
    static const item extra[] = {
        {"a", -10, NORMAL},  {"b", -10, NORMAL},   /* 259 260 */
        {"ab", -1, UNUSED},  {"abab", -2, NORMAL}, /* 261 262 */
        {"ba", -5, CONTROL}, {"z", -1, UNUSED},    /* 263 264 */
        {"[x]", 0, USER},    {"[x][y", 0, USER},   /* 265 266 */
        {"  ", 0, USER},     {"a", -10, NORMAL},   /* 267 268 */
        {"[", -10, NORMAL},  {"x", -10, NORMAL},
        {"[x", -1, NORMAL},                                /* 269..271 */
        {"", -1, NORMAL},    {"\xe2\x96\x81", -9, NORMAL}, /* 272 273 */
    };
    fixture f;
    open_small(&f, extra, sizeof extra / sizeof *extra, false);
    EXPECT(f.v, "ab", false, 259, 260); /* unused: a step of merging, never a result */
    EXPECT(f.v, "abab", false, 262);
    EXPECT(f.v, "ababab", false, 262, 259, 260);
    EXPECT(f.v, "ba", false, 260, 259); /* control: never from text */
    EXPECT(f.v, "z", false, 3 + 'z');
    EXPECT(f.v, "a", false, 259); /* duplicates: the lowest id */
    EXPECT(f.v, "a[x]b", false, 259, 265, 260);
    EXPECT(f.v, "[x][y[x", false, 266, 271);
    EXPECT(f.v, "[x][x", false, 265, 271);
    EXPECT(f.v, "a  b", false, 259, 267, 260);
    EXPECT(f.v, "a   b", false, 259, 267, 273, 260);
    EXPECT(f.v, "<s>", false, 3 + '<', 3 + 's', 3 + '>');
    char *text;
    size_t n;
    assert_int_equal(
        hs_vocab_decode(f.v, (const int32_t[]){1, 259, 267, 265, 2}, 5, &text, &n, NULL), HS_OK);
    assert_string_equal(text, "a  [x]");
    free(text);
    assert_int_equal(hs_vocab_decode(f.v, (const int32_t[]){0, 259}, 2, &text, &n, NULL), HS_OK);
    assert_string_equal(text, " \xe2\x81\x87 a");
    free(text);
    hs_err err;
    assert_int_equal(hs_vocab_decode(f.v, (const int32_t[]){999}, 1, &text, &n, &err),
                     HS_ERR_USAGE);
    assert_non_null(strstr(err.msg, "999"));
    close_fixture(&f);
}

static void test_special(void **state)
{
    (void)state;
    static const item extra[] = {
        {"a", -10, NORMAL},
        {"\xe2\x96\x81", -9, NORMAL}, /* 259 260 */
        {"\xe2\x96\x81"
         "a",
         -1, NORMAL},
        {"<s>a", 0, CONTROL}, /* 261 262 */
        {"<|im_end|>", 0, CONTROL},
        {"<|eot_id|>", 0, NORMAL}, /* 263 264 */
    };
    fixture f;
    open_small(&f, extra, sizeof extra / sizeof *extra, true);
    EXPECT(f.v, "a</s>a", false, 261, 3 + '<', 3 + '/', 3 + 's', 3 + '>', 259);
    EXPECT(f.v, "a</s>a", true, 261, 2, 259);
    EXPECT(f.v, "</s>a", true, 2, 259);
    EXPECT(f.v, "<s> a", true, 1, 261);
    EXPECT(f.v, "<s>a<s>", true, 262, 1); /* the longest */
    EXPECT(f.v, "a", true, 261);
    assert_true(hs_vocab_is_eog(f.v, 2));
    assert_true(hs_vocab_is_eog(f.v, 263));
    assert_false(hs_vocab_is_eog(f.v, 264)); /* the name of one, but a normal piece */
    assert_false(hs_vocab_is_eog(f.v, -1));
    assert_false(hs_vocab_is_eog(f.v, 100000));
    close_fixture(&f);
}

static void test_without_bytes(void **state)
{
    (void)state;
    static const item it[] = {{"<unk>", 0, UNKNOWN}, {"a", -1, NORMAL}};
    fixture f;
    start(&f.b, "llama");
    put_items(&f.b, it, 2);
    set_bool(&f.b, "tokenizer.ggml.add_space_prefix", false);
    open_blob(&f);
    EXPECT(f.v, "axya", false, 1, 0, 1); /* neighbouring unknowns are one */
    assert_int_equal(hs_vocab_bos(f.v), -1);
    assert_int_equal(hs_vocab_eos(f.v), -1);
    close_fixture(&f);

    static const item only[] = {{"b", -1, NORMAL}, {"a", -1, NORMAL}};
    start(&f.b, "llama");
    put_items(&f.b, only, 2);
    open_blob(&f);
    int32_t *ids;
    size_t n;
    hs_err err;
    assert_int_equal(hs_vocab_encode(f.v, "a", 1, false, &ids, &n, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "0xE2"));
    assert_null(ids);
    close_fixture(&f);
}

static void test_facts(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    assert_int_equal(hs_vocab_size(f.v), 2048);
    assert_int_equal(hs_vocab_bos(f.v), 1); /* without keys: as such models have them */
    assert_int_equal(hs_vocab_eos(f.v), 2);
    assert_true(hs_vocab_add_bos(f.v));
    assert_int_equal(hs_vocab_type(f.v, 0), HS_TOKEN_UNKNOWN);
    assert_int_equal(hs_vocab_type(f.v, 1), HS_TOKEN_CONTROL);
    assert_int_equal(hs_vocab_type(f.v, 3), HS_TOKEN_BYTE);
    assert_int_equal(hs_vocab_type(f.v, 2047), HS_TOKEN_NORMAL);
    assert_true(hs_str_eq(hs_vocab_piece(f.v, 2), "</s>"));
    assert_int_equal(hs_vocab_piece(f.v, 4000).n, 0);
    char out[8];
    assert_int_equal(hs_vocab_bytes(f.v, 1, out, sizeof out), 0);
    assert_int_equal(hs_vocab_bytes(f.v, 3 + 0x41, out, sizeof out), 1);
    assert_int_equal(out[0], 0x41);
    assert_int_equal(hs_vocab_bytes(f.v, 261, out, 2), 4); /* " the", cut */
    assert_memory_equal(out, " t", 2);
    assert_int_equal(hs_vocab_bytes(f.v, -5, out, sizeof out), 0);
    close_fixture(&f);

    static const item it[] = {{"<s>", 0, CONTROL}, {"b", 0, NORMAL}, {"c", 0, CONTROL}};
    start(&f.b, "llama");
    put_items(&f.b, it, 3);
    set_u32(&f.b, "tokenizer.ggml.bos_token_id", 0);
    set_u32(&f.b, "tokenizer.ggml.eos_token_id", 2);
    set_bool(&f.b, "tokenizer.ggml.add_bos_token", false);
    open_blob(&f);
    assert_int_equal(hs_vocab_bos(f.v), 0); /* kept, although the flag is off */
    assert_int_equal(hs_vocab_eos(f.v), 2);
    assert_false(hs_vocab_add_bos(f.v));
    assert_true(hs_vocab_is_eog(f.v, 2));
    close_fixture(&f);
}

/* ---- files that are wrong ------------------------------------------------------------------ */

static void expect_refused(blob *b, hs_status code, const char *part1, const char *part2)
{
    hs_gguf *g = finish(b);
    hs_vocab *v = (hs_vocab *)b;
    hs_err err = {0};
    const hs_status s = hs_vocab_new(&v, g, &err);
    if (s != code || !strstr(err.msg, part1) || !strstr(err.msg, part2))
        fail_msg("status %d: %s", s, err.msg);
    assert_null(v);
    hs_gguf_free(g);
    free(b->p);
}

static void some_tokens(blob *b)
{
    start(b, "llama");
    array(b, "tokenizer.ggml.tokens", HS_KV_STRING, 2);
    put_str(b, "a", 1);
    put_str(b, "b", 1);
}

static void test_refused(void **state)
{
    (void)state;
    blob b;
    start(&b, NULL);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.model", "missing");
    start(&b, "gpt2");
    expect_refused(&b, HS_ERR_UNSUPPORTED, "tokenizer 'gpt2' is not supported yet", "");
    start(&b, "llama");
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.tokens", "missing");
    start(&b, "llama");
    array(&b, "tokenizer.ggml.tokens", HS_KV_I32, 1);
    put_u32(&b, 0);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.tokens", "i32");
    start(&b, "llama");
    array(&b, "tokenizer.ggml.tokens", HS_KV_STRING, 0);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.tokens", "0 entries");
    some_tokens(&b);
    array(&b, "tokenizer.ggml.scores", HS_KV_U8, 2);
    put(&b, "\1\2", 2);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.scores", "u8");
    some_tokens(&b);
    array(&b, "tokenizer.ggml.token_type", HS_KV_U8, 2);
    put(&b, "\1\2", 2);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.token_type", "u8");
    some_tokens(&b);
    array(&b, "tokenizer.ggml.scores", HS_KV_F32, 1);
    put_u32(&b, 0);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.scores has 1 entries", "tokens has 2");
    some_tokens(&b);
    array(&b, "tokenizer.ggml.scores", HS_KV_F32, 2);
    put_u32(&b, 0);
    put_u32(&b, 0x7fc00000);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.scores[1]", "nan");
    some_tokens(&b);
    array(&b, "tokenizer.ggml.token_type", HS_KV_I32, 3);
    for (int i = 0; i < 3; i++)
        put_u32(&b, 1);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.token_type has 3", "tokens has 2");
    some_tokens(&b);
    array(&b, "tokenizer.ggml.token_type", HS_KV_I32, 2);
    put_u32(&b, 1);
    put_u32(&b, 7);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.token_type[1] is 7", "");
    some_tokens(&b);
    array(&b, "tokenizer.ggml.token_type", HS_KV_I32, 2);
    put_u32(&b, 6);
    put_u32(&b, 1);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.tokens[0] is 'a'", "byte");
    static const char *const special[] = {"bos", "eos", "unknown", "padding", "seperator", "eot"};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        char name[64];
        snprintf(name, sizeof name, "tokenizer.ggml.%s_token_id", special[i]);
        some_tokens(&b);
        set_u32(&b, name, 2);
        expect_refused(&b, HS_ERR_FORMAT, name, "is 2, the vocabulary has 2 tokens");
    }
    some_tokens(&b);
    set_u32(&b, "tokenizer.ggml.add_bos_token", 1);
    expect_refused(&b, HS_ERR_FORMAT, "tokenizer.ggml.add_bos_token", "u32");
}

/* ---- size ------------------------------------------------------------------------------------ */

static void test_large_vocabulary(void **state)
{
    (void)state;
    enum { N = 256000 };
    fixture f;
    start(&f.b, "llama");
    array(&f.b, "tokenizer.ggml.tokens", HS_KV_STRING, N);
    for (unsigned i = 0; i < N; i++) {
        char s[32];
        put_str(&f.b, s, (size_t)snprintf(s, sizeof s, "p%x_%u", i * 2654435761u, i));
    }
    f.g = finish(&f.b);
    const double t0 = seconds();
    assert_int_equal(hs_vocab_new(&f.v, f.g, NULL), HS_OK);
    const double t = seconds() - t0;
    print_message("%d pieces in %.3f s\n", N, t);
    assert_true(t < 1); /* 0.05 s without sanitizers */
    assert_int_equal(hs_vocab_size(f.v), N);
    close_fixture(&f);
}

static void test_utf8_complete(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t want;
    } c[] = {
        {"", 0},
        {"a", 1},
        {"\xc3", 0},
        {"\xc3\xa9", 2},
        {"a\xc3", 1},
        {"\xe4\xbd", 0},
        {"\xe4\xbd\xa0", 3},
        {"ab\xe4\xbd\xa0\xe4", 5},
        {"\xf0\x9f\x98", 0},
        {"\xf0\x9f\x98\x80", 4},
        {"x\xf0\x9f", 1},
        {"\xf0\x9f\x98\x80\xf0", 4},
        {"\xff", 1}, /* these can never become a character */
        {"\x80\x80", 2},
        {"\xc0", 1},
        {"\xc1", 1},
        {"\xf5", 1},
        {"\xe0\x80", 2}, /* overlong */
        {"\xed\xa0", 2}, /* a surrogate */
        {"\xf4\x90", 2}, /* above U+10FFFF */
        {"\xf4\x8f", 0},
        {"\xe4"
         "a",
         2},
        {"\xe4\xbd"
         "a",
         3},
        {"\xf0\x9f\xc3", 2}, /* a broken start before an open one */
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        if (hs_utf8_complete(c[i].text, strlen(c[i].text)) != c[i].want)
            fail_msg("case %zu: %zu, expected %zu", i,
                     hs_utf8_complete(c[i].text, strlen(c[i].text)), c[i].want);
}

static void test_utf8_char(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t want;
    } c[] = {
        {"a", 1},
        {"\xc3\xa9", 2},
        {"\xe4\xbd\xa0z", 3},
        {"\xf0\x9f\x98\x80", 4},
        {"\xc3", 0},
        {"\xc3(", 0},
        {"\x80", 0},
        {"\xff", 0},
        {"\xc0\xaf", 0},
        {"\xed\xa0\x80", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xe0\x9f\xbf", 0},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        if (hs_utf8_char(c[i].text, strlen(c[i].text)) != c[i].want)
            fail_msg("case %zu", i);
    assert_int_equal(hs_utf8_char("\0", 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_cases), cmocka_unit_test(test_reference_prompts),
        cmocka_unit_test(test_any_bytes),       cmocka_unit_test(test_empty),
        cmocka_unit_test(test_long_texts),      cmocka_unit_test(test_merge_order),
        cmocka_unit_test(test_kinds_of_pieces), cmocka_unit_test(test_special),
        cmocka_unit_test(test_without_bytes),   cmocka_unit_test(test_facts),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_utf8_complete),   cmocka_unit_test(test_utf8_char),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
