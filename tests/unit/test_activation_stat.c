/* The statistics of a profile: a round trip, everything that must hold between them, files that
 * lack a part, and sums that are the profile of the sum, byte for byte. */
#include "formats/activation.h"
#include "formats/file.h"
#include "formats/gguf_write.h"

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

enum { LAYERS = 2, FF = 4, TOP = 2 };

static char path[64];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/hs-stat-XXXXXX");
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int drop_path(void **state)
{
    (void)state;
    return unlink(path);
}

/* ---- a profile, counted position by position ------------------------------------------- */

static hs_activation *empty(size_t texts, bool magnitude)
{
    const uint32_t n_ff[LAYERS] = {FF, FF};
    hs_activation *a;
    assert_int_equal(hs_activation_new(&a, LAYERS, n_ff, NULL), HS_OK);
    memcpy(a->fingerprint, PRINT, sizeof PRINT);
    for (size_t i = 0; i < texts; i++) {
        char name[8] = "a.txt";
        name[0] = (char)(name[0] + i);
        assert_int_equal(hs_activation_add_source(a, name, HASH, NULL), HS_OK);
    }
    a->n_ctx = 8;
    a->generate = 2;
    a->n_top = TOP;
    a->magnitude = magnitude ? 70 : 0;
    for (int i = 0; i < HS_STATS; i++) {
        const hs_activation_stat st = (hs_activation_stat)i;
        if ((st == HS_STAT_BY_TEXT && texts < 2) ||
            ((st == HS_STAT_MAGNITUDE || st == HS_STAT_KEPT) && !magnitude))
            continue;
        assert_int_equal(hs_activation_stat_add(a, st, NULL), HS_OK);
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        a->top[l * TOP] = (int32_t)l;
        a->top[l * TOP + 1] = 3;
        for (int q = 0; magnitude && q < HS_MAGNITUDE_LEVELS; q++)
            a->threshold[l * HS_MAGNITUDE_LEVELS + q] = 0.5f + (float)q;
    }
    return a;
}

/* The neurons whose bit is set in `mask` are active, with strength `v`. */
static void position(hs_activation *a, size_t text, unsigned mask, int64_t v, bool generated)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < FF; i++) {
            if (!(mask >> i & 1))
                continue;
            n++;
            a->count[l][i]++;
            a->stat[HS_STAT_SUM][l][i] += v;
            a->stat[HS_STAT_SQUARES][l][i] += v * v;
            a->stat[HS_STAT_GENERATED][l][i] += generated;
            if (a->stat[HS_STAT_BY_TEXT])
                a->stat[HS_STAT_BY_TEXT][l][text * FF + i]++;
            for (int q = 0; a->magnitude && q < HS_MAGNITUDE_LEVELS; q++)
                if (hs_magnitude_level[q] <= a->magnitude) {
                    a->stat[HS_STAT_MAGNITUDE][l][q * FF + (int)i]++;
                    a->stat[HS_STAT_KEPT][l][q] += v * v;
                }
        }
        a->stat[HS_STAT_HISTOGRAM][l][n]++;
        const int32_t *top = a->top + (size_t)l * TOP;
        for (int i = 0; i < TOP; i++)
            for (int k = 0; k < TOP; k++)
                a->stat[HS_STAT_COACTIVE][l][i * TOP + k] +=
                    (mask >> top[i] & 1) && (mask >> top[k] & 1);
    }
    a->tokens++;
    a->tokens_generated += generated;
}

/* One chunk of a text: positions and one generated token, all from a small generator. */
static void chunk(hs_activation *a, size_t text, unsigned seed)
{
    for (unsigned i = 0; i < 5; i++) {
        seed = seed * 1103515245u + 12345u;
        position(a, text, seed >> 16 & 15u, (int64_t)(seed >> 20) - 900, i == 4);
    }
    a->chunks_done++;
}

static hs_activation *full(bool magnitude)
{
    hs_activation *a = empty(2, magnitude);
    chunk(a, 0, 1);
    chunk(a, 0, 2);
    chunk(a, 1, 3);
    a->complete = true;
    return a;
}

typedef struct bytes {
    uint8_t *p;
    size_t n;
} bytes;

static bytes written(const hs_activation *a)
{
    hs_err err = {0};
    if (hs_activation_write(a, path, true, &err) != HS_OK)
        fail_msg("%s", err.msg);
    hs_map map;
    assert_int_equal(hs_map_open(&map, path, NULL), HS_OK);
    bytes b = {malloc(map.size), map.size};
    assert_non_null(b.p);
    memcpy(b.p, map.data, map.size);
    hs_map_close(&map);
    return b;
}

static void same_file(const hs_activation *a, const hs_activation *b)
{
    bytes x = written(a), y = written(b);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.p, y.p, x.n);
    free(x.p);
    free(y.p);
}

static hs_activation *must_read(void)
{
    hs_activation *a;
    hs_err err = {0};
    if (hs_activation_read(&a, path, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return a;
}

static void round_trip(void **state)
{
    (void)state;
    for (int magnitude = 0; magnitude < 2; magnitude++) {
        hs_activation *a = full(magnitude);
        const bytes first = written(a);
        hs_activation *b = must_read();
        assert_int_equal(b->tokens_generated, 3);
        assert_int_equal(b->generate, 2);
        assert_true(b->complete);
        assert_int_equal(b->n_top, TOP);
        assert_int_equal(b->magnitude, magnitude ? 70 : 0);
        for (int i = 0; i < HS_STATS; i++) {
            assert_int_equal(!a->stat[i], !b->stat[i]);
            for (uint32_t l = 0; a->stat[i] && l < LAYERS; l++)
                assert_memory_equal(a->stat[i][l], b->stat[i][l],
                                    8 * hs_activation_stat_len(a, (hs_activation_stat)i, l));
        }
        same_file(a, b);
        free(first.p);
        hs_activation_free(a);
        hs_activation_free(b);
    }
}

/* ---- what must hold --------------------------------------------------------------------- */

static void squares_negative(hs_activation *a) { a->stat[HS_STAT_SQUARES][1][2] = -1; }
static void sum_of_the_dead(hs_activation *a)
{
    for (uint32_t i = 0; i < FF; i++)
        a->stat[HS_STAT_SUM][0][i] = 7;
    *a->count[0] = 0;
}
static void histogram_short(hs_activation *a) { a->stat[HS_STAT_HISTOGRAM][0][2]--; }
static void histogram_shifted(hs_activation *a)
{
    a->stat[HS_STAT_HISTOGRAM][1][0]++;
    a->stat[HS_STAT_HISTOGRAM][1][2]--;
}
static void histogram_negative(hs_activation *a) { a->stat[HS_STAT_HISTOGRAM][1][4] = -3; }
static void generated_more(hs_activation *a) { a->stat[HS_STAT_GENERATED][0][1] = 4; }
static void generated_nothing(hs_activation *a) { a->tokens_generated = 0; }
static void generated_all(hs_activation *a) { a->tokens_generated = a->tokens + 1; }
static void text_more(hs_activation *a) { a->stat[HS_STAT_BY_TEXT][0][FF + 1] = 99; }
static void text_less(hs_activation *a)
{
    int64_t *v = a->stat[HS_STAT_BY_TEXT][0];
    v[v[0] ? 0 : FF]--;
}
static void top_falls(hs_activation *a) { a->top[1] = 0; }
static void top_beyond(hs_activation *a) { a->top[3] = FF; }
static void pair_lopsided(hs_activation *a) { a->stat[HS_STAT_COACTIVE][0][1] = 0; }
static void pair_diagonal(hs_activation *a) { a->stat[HS_STAT_COACTIVE][1][3]++; }
static void complete_alone(hs_activation *a) { a->n_ctx = 0, a->chunks_done = 0; }
static void unknown_level(hs_activation *a) { a->magnitude = 60; }
static void no_level(hs_activation *a) { a->magnitude = 0; }
static void threshold_falls(hs_activation *a) { a->threshold[6] = 0; }
static void threshold_nan(hs_activation *a) { a->threshold[0] = (float)strtod("nan", NULL); }
static void level_count(hs_activation *a) { a->stat[HS_STAT_MAGNITUDE][0][FF]++; }
static void level_rises(hs_activation *a) { a->stat[HS_STAT_MAGNITUDE][0][4 * FF] = 3; }
static void kept_rises(hs_activation *a) { a->stat[HS_STAT_KEPT][1][4] = 1; }

static const struct broken {
    void (*edit)(hs_activation *);
    bool magnitude;
    const char *msg; /* part of it */
} broken[] = {
    {squares_negative, false, "blk.1.ffn_activation_squares: entry 2: expected at least 0, got -1"},
    {sum_of_the_dead, false, "ffn_activation_s"},
    {histogram_short, false, "blk.0.ffn_active_histogram: does not add up"},
    {histogram_shifted, false, "blk.1.ffn_active_histogram: does not add up"},
    {histogram_negative, false, "blk.1.ffn_active_histogram: entry 4: expected at least 0"},
    {generated_more, false, "blk.0.ffn_active_count_generated: entry 1: expected a part"},
    {generated_nothing, false, "tokens_generated 0 and ffn_active_count_generated"},
    {generated_all, false, "hotset.profile.tokens_generated 16 exceeds hotset.profile.tokens 15"},
    {text_more, false, "blk.0.ffn_active_count_by_text: entry 5: expected a part"},
    {text_less, false, "blk.0.ffn_active_count_by_text: entry 0: expected the texts to add up"},
    {top_falls, false, "blk.0.ffn_coactive_neuron: entry 1: expected rising"},
    {top_beyond, false,
     "blk.1.ffn_coactive_neuron: entry 1: expected rising neuron numbers below 4"},
    {pair_lopsided, false, "blk.0.ffn_coactive_count: entry 1: expected a symmetric part"},
    {pair_diagonal, false, "blk.1.ffn_coactive_count: entry 3: expected the neuron's count"},
    {complete_alone, false, "hotset.profile.complete without hotset.profile.context"},
    {unknown_level, true, "hotset.profile.magnitude: expected 50, 70, 80, 90 or 95"},
    {no_level, true, "ffn_magnitude_...: expected hotset.profile.magnitude"},
    {threshold_falls, true, "blk.1.ffn_magnitude_threshold: entry 1: expected rising"},
    {threshold_nan, true, "blk.0.ffn_magnitude_threshold: entry 0: expected rising"},
    {level_count, true, "blk.0.ffn_magnitude_count: entry 4: expected"},
    {level_rises, true, "blk.0.ffn_magnitude_count: entry 16: expected counts that fall"},
    {kept_rises, true, "blk.1.ffn_magnitude_kept: entry 4: expected sums that fall"},
};

static void contradictions_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        hs_activation *a = full(broken[i].magnitude);
        broken[i].edit(a);
        hs_err err = {0};
        if (hs_activation_write(a, path, true, &err) != HS_ERR_USAGE ||
            !strstr(err.msg, broken[i].msg))
            fail_msg("case %zu: expected \"%s\", got \"%s\"", i, broken[i].msg, err.msg);
        hs_activation_free(a);
    }
}

/* ---- files that lack a part ------------------------------------------------------------- */

typedef struct cut {
    const char *skip;   /* this tensor is left out */
    const char *narrow; /* this one is an entry short */
    const char *retype; /* this one is of type I32 */
    const char *key;    /* this key is left out */
    const char *msg;
} cut;

/* The file at `path` again with one thing changed. */
static void rewrite(const cut *c)
{
    hs_gguf *g;
    assert_int_equal(hs_gguf_open(&g, path, NULL), HS_OK);
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    for (size_t i = 0; i < g->n_kv; i++)
        if (!c->key || !hs_str_eq(g->kv[i].key, c->key))
            hs_gguf_copy_kv(w, &g->kv[i]);
    uint64_t size[64];
    assert_true(g->n_tensors <= 64);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_gguf_tensor *t = &g->tensors[i];
        uint64_t ne[2] = {t->ne[0], t->ne[1]};
        const bool narrow = c->narrow && strcmp(t->name, c->narrow) == 0;
        const bool retype = c->retype && strcmp(t->name, c->retype) == 0;
        ne[t->n_dims - 1] -= narrow;
        const hs_dtype type = retype ? HS_I32 : t->dtype;
        size[i] = ne[0] * ne[1] * (type == HS_I64 ? 8 : 4);
        if (!c->skip || strcmp(t->name, c->skip) != 0)
            hs_gguf_add_tensor(w, t->name, type, t->n_dims, ne);
    }
    hs_out *out;
    assert_int_equal(hs_out_open(&out, path, true, NULL), HS_OK);
    assert_int_equal(hs_gguf_writer_begin(w, out, NULL), HS_OK);
    for (size_t i = 0; i < g->n_tensors; i++)
        if (!c->skip || strcmp(g->tensors[i].name, c->skip) != 0)
            assert_int_equal(hs_gguf_writer_data(w, g->tensors[i].data, size[i], NULL), HS_OK);
    assert_int_equal(hs_gguf_writer_end(w, NULL), HS_OK);
    assert_int_equal(hs_out_commit(out, false, NULL), HS_OK);
    hs_gguf_writer_free(w);
    hs_gguf_free(g);
}

static const cut cuts[] = {
    {.skip = "blk.1.ffn_activation_sum",
     .msg = "blk.1.ffn_activation_sum: missing, other layers have it"},
    {.skip = "blk.0.ffn_active_histogram",
     .msg = "blk.0.ffn_active_histogram: missing, other layers have it"},
    {.skip = "blk.0.ffn_coactive_neuron",
     .msg = "blk.0.ffn_coactive_neuron: missing, other layers have it"},
    {.skip = "blk.1.ffn_magnitude_threshold",
     .msg = "blk.1.ffn_magnitude_threshold: missing, other layers have it"},
    {.narrow = "blk.1.ffn_active_histogram",
     .msg = "blk.1.ffn_active_histogram: expected I64 {5, 1}, got 1-dimensional I64 {4, 1}"},
    {.narrow = "blk.0.ffn_active_count_by_text",
     .msg = "blk.0.ffn_active_count_by_text: expected I64 {4, 2}, got 2-dimensional I64 {4, 1}"},
    {.narrow = "blk.0.ffn_magnitude_count",
     .msg = "blk.0.ffn_magnitude_count: expected I64 {4, 5}, got 2-dimensional I64 {4, 4}"},
    {.retype = "blk.1.ffn_active_count_generated",
     .msg = "blk.1.ffn_active_count_generated: expected I64 {4, 1}, got 1-dimensional I32 {4, 1}"},
    {.key = "hotset.profile.magnitude_levels",
     .msg = "hotset.profile.magnitude_levels: expected [50, 70, 80, 90, 95]"},
    {.key = "hotset.profile.magnitude", .msg = "expected hotset.profile.magnitude"},
    {.key = "hotset.profile.tokens_generated", .msg = "tokens_generated 0 and"},
};

static void lacking_files_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        hs_activation *a = full(true);
        free(written(a).p);
        rewrite(&cuts[i]);
        hs_activation *b;
        hs_err err = {0};
        if (hs_activation_read(&b, path, &err) != HS_ERR_FORMAT || !strstr(err.msg, cuts[i].msg))
            fail_msg("case %zu: expected \"%s\", got \"%s\"", i, cuts[i].msg, err.msg);
        hs_activation_free(a);
    }
}

/* ---- sums ------------------------------------------------------------------------------ */

/* A of two chunks, B of one: their sum is the profile of both. */
static void a_sum_is_the_profile_of_the_sum(void **state)
{
    (void)state;
    for (int magnitude = 0; magnitude < 2; magnitude++) {
        hs_activation *want = full(magnitude), *a = empty(1, magnitude), *b = empty(1, magnitude);
        chunk(a, 0, 1);
        chunk(a, 0, 2);
        chunk(b, 0, 3);
        a->complete = b->complete = true;
        strcpy(b->source[0].name, "b.txt");
        hs_err err = {0};
        if (hs_activation_add(a, b, &err) != HS_OK)
            fail_msg("%s", err.msg);
        same_file(want, a);
        /* Two of the sum are a sum of four texts, whatever the order of adding. */
        assert_int_equal(hs_activation_add(want, a, NULL), HS_OK);
        hs_activation *c = must_read();
        assert_int_equal(hs_activation_add(c, a, NULL), HS_OK);
        same_file(want, c);
        assert_int_equal(c->n_source, 4);
        assert_non_null(c->stat[HS_STAT_BY_TEXT]);
        hs_activation_free(want);
        hs_activation_free(a);
        hs_activation_free(b);
        hs_activation_free(c);
    }
}

static void texts_are_kept_apart_up_to_a_limit(void **state)
{
    (void)state;
    hs_activation *a = empty(1, false), *b = empty(1, false);
    chunk(a, 0, 1);
    chunk(b, 0, 2);
    for (int i = 2; i <= HS_ACTIVATION_MAX_TEXTS + 2; i++) {
        assert_int_equal(hs_activation_add(a, b, NULL), HS_OK);
        assert_int_equal(a->n_source, i);
        assert_int_equal(a->stat[HS_STAT_BY_TEXT] != NULL, i <= HS_ACTIVATION_MAX_TEXTS);
        free(written(a).p);
    }
    assert_int_equal(a->n_ctx, 0); /* neither was complete */
    hs_activation_free(a);
    hs_activation_free(b);
}

static void only_what_both_have_is_summed(void **state)
{
    (void)state;
    hs_activation *a = full(false), *b = empty(1, false);
    chunk(b, 0, 9);
    b->top[0] = 2; /* other pairs */
    b->stat[HS_STAT_COACTIVE][0][0] = b->count[0][2];
    b->stat[HS_STAT_COACTIVE][0][1] = b->stat[HS_STAT_COACTIVE][0][2] = 0;
    assert_int_equal(hs_activation_add(a, b, NULL), HS_OK);
    assert_null(a->stat[HS_STAT_COACTIVE]);
    assert_null(a->top);
    assert_int_equal(a->n_top, 0);
    assert_non_null(a->stat[HS_STAT_SUM]);
    free(written(a).p);
    /* A profile that knows counts only: nothing else is left, but what is zero there. */
    const uint32_t n_ff[LAYERS] = {FF, FF};
    hs_activation *old;
    assert_int_equal(hs_activation_new(&old, LAYERS, n_ff, NULL), HS_OK);
    old->tokens = 3;
    assert_int_equal(hs_activation_add(a, old, NULL), HS_OK);
    for (int i = 0; i < HS_STATS; i++)
        assert_int_equal(a->stat[i] != NULL, i == HS_STAT_GENERATED);
    assert_int_equal(a->tokens_generated, 4);
    free(written(a).p);
    assert_int_equal(hs_activation_add(old, b, NULL), HS_OK);
    assert_non_null(old->stat[HS_STAT_GENERATED]);
    free(written(old).p);
    hs_activation_free(a);
    hs_activation_free(b);
    hs_activation_free(old);
}

static void unequal_rules_are_refused(void **state)
{
    (void)state;
    hs_activation *a = full(true), *b = full(true), *c = full(false);
    b->threshold[3] += 0.25f;
    const bytes before = written(a);
    hs_err err = {0};
    assert_int_equal(hs_activation_add(a, b, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "thresholds differ"));
    assert_int_equal(hs_activation_add(a, c, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "hotset.profile.magnitude: expected 70, got 0");
    b->threshold[3] -= 0.25f;
    b->stat[HS_STAT_SQUARES][1][1] = INT64_MAX;
    assert_int_equal(hs_activation_add(a, b, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "layer 1: ffn_activation_squares 1: "));
    const bytes after = written(a);
    assert_int_equal(before.n, after.n);
    assert_memory_equal(before.p, after.p, after.n);
    free(before.p);
    free(after.p);
    hs_activation_free(a);
    hs_activation_free(b);
    hs_activation_free(c);
}

static void a_like_profile_is_empty(void **state)
{
    (void)state;
    hs_activation *a = full(true), *b;
    assert_int_equal(hs_activation_new_like(&b, a, NULL), HS_OK);
    assert_int_equal(b->tokens, 0);
    chunk(b, 0, 1);
    chunk(b, 0, 2);
    chunk(b, 1, 3);
    b->complete = true;
    same_file(a, b);
    hs_activation_clear(b);
    assert_int_equal(b->count[0][0], 0);
    assert_int_equal(b->stat[HS_STAT_COACTIVE][1][3], 0);
    assert_int_equal(b->tokens_generated, 0);
    hs_activation_free(a);
    hs_activation_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, make_path, drop_path),
        cmocka_unit_test_setup_teardown(contradictions_are_found, make_path, drop_path),
        cmocka_unit_test_setup_teardown(lacking_files_are_refused, make_path, drop_path),
        cmocka_unit_test_setup_teardown(a_sum_is_the_profile_of_the_sum, make_path, drop_path),
        cmocka_unit_test_setup_teardown(texts_are_kept_apart_up_to_a_limit, make_path, drop_path),
        cmocka_unit_test_setup_teardown(only_what_both_have_is_summed, make_path, drop_path),
        cmocka_unit_test_setup_teardown(unequal_rules_are_refused, make_path, drop_path),
        cmocka_unit_test_setup_teardown(a_like_profile_is_empty, make_path, drop_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
