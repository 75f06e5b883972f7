/* hotset-profile's parts that need no model: the summary against numbers worked out by hand,
 * cutting texts, folders of activation_<layer>.pt. */
#include "formats/file.h"
#include "formats/torch_zip.h"
#include "tools/profile/count.h"
#include "tools/profile/print.h"
#include "tools/profile/ptdir.h"
#include "tools/profile/summary.h"
#include "tools/profile/texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HASH "fedcba9876543210fedcba9876543210"

/* ---- summary -------------------------------------------------------------------------- */

static hs_activation *counts(uint32_t n_layer, uint32_t n_ff, uint64_t tokens, const int64_t *v)
{
    uint32_t widths[16];
    assert_in_range(n_layer, 1, 16);
    for (uint32_t l = 0; l < n_layer; l++)
        widths[l] = n_ff;
    hs_activation *a;
    assert_int_equal(hs_activation_new(&a, n_layer, widths, NULL), HS_OK);
    a->tokens = tokens;
    for (uint32_t l = 0; l < n_layer; l++)
        memcpy(a->count[l], v + (size_t)l * n_ff, n_ff * sizeof *v);
    return a;
}

static hs_summary *summary(const hs_activation *a)
{
    hs_summary *s;
    hs_err err = {0};
    if (hs_summary_new(&s, a, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return s;
}

static void near(double got, double want)
{
    if (!(got - want < 1e-12 && want - got < 1e-12))
        fail_msg("got %.17g, expected %.17g", got, want);
}

/* 70 20 6 3 1 0 0 0 0 0 of 100: 80 % needs two neurons (70 + 20), 90 % exactly those two, 95 %
 * a third.  Gini, ascending: 2 * (6*1 + 7*3 + 8*6 + 9*20 + 10*70) / (10 * 100) - 11 / 10
 * = 2 * 955 / 1000 - 1.1 = 0.81. */
static void summary_of_a_skewed_layer(void **state)
{
    (void)state;
    const int64_t v[10] = {0, 3, 0, 70, 1, 0, 20, 0, 6, 0};
    hs_activation *a = counts(1, 10, 100, v);
    hs_summary *s = summary(a);
    const hs_summary_part *p = &s->layer[0];
    assert_int_equal(p->neurons, 10);
    assert_int_equal(p->dead, 5);
    near(p->active_share, 0.1);
    near(p->share[0], 0.2);
    near(p->share[1], 0.2);
    near(p->share[2], 0.3);
    near(p->gini, 0.81);
    assert_int_equal(p->n_hot, 4);
    const uint32_t hot[4] = {3, 6, 8, 1}, cold[4] = {4, 1, 8, 6};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(p->hot[i].neuron, hot[i]);
        assert_int_equal(p->cold[i].neuron, cold[i]);
    }
    near(p->hot[0].frequency, 0.7);
    near(p->cold[0].frequency, 0.01);
    assert_int_equal(p->cold[0].count, 1);
    hs_summary_free(s);
    hs_activation_free(a);
}

/* All equal: no inequality, and 80 % of the activations need 80 % of the neurons. */
static void summary_of_a_flat_layer(void **state)
{
    (void)state;
    int64_t v[20];
    for (int i = 0; i < 20; i++)
        v[i] = 7;
    hs_activation *a = counts(1, 20, 7, v);
    hs_summary *s = summary(a);
    near(s->model.active_share, 1);
    near(s->model.gini, 0);
    near(s->model.share[0], 0.8);
    near(s->model.share[1], 0.9);
    near(s->model.share[2], 0.95);
    assert_int_equal(s->model.dead, 0);
    /* Ties go to the lower number, hot and cold. */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(s->model.hot[i].neuron, i);
        assert_int_equal(s->model.cold[i].neuron, i);
    }
    hs_summary_free(s);
    hs_activation_free(a);
}

/* One neuron makes everything: Gini is (n - 1) / n. */
static void summary_of_one_living_neuron(void **state)
{
    (void)state;
    const int64_t v[4] = {0, 0, 9, 0};
    hs_activation *a = counts(1, 4, 10, v);
    hs_summary *s = summary(a);
    near(s->layer[0].gini, 0.75);
    near(s->layer[0].share[2], 0.25);
    assert_int_equal(s->layer[0].dead, 3);
    assert_int_equal(s->layer[0].n_hot, 4);
    assert_int_equal(s->layer[0].n_cold, 1);
    assert_int_equal(s->layer[0].cold[0].neuron, 2);
    hs_summary_free(s);
    hs_activation_free(a);
}

static void summary_of_a_dead_layer(void **state)
{
    (void)state;
    const int64_t v[3] = {0, 0, 0};
    hs_activation *a = counts(1, 3, 10, v);
    hs_summary *s = summary(a);
    near(s->layer[0].gini, 0);
    near(s->layer[0].active_share, 0);
    near(s->layer[0].share[0], 0);
    assert_int_equal(s->layer[0].dead, 3);
    assert_int_equal(s->layer[0].n_cold, 0);
    hs_summary_free(s);
    hs_activation_free(a);
}

/* The model's numbers are of all neurons together, not means of the layers':
 * 8 4 1 1 | 2 2 1 1 has total 20; 80 % (16) is 8 + 4 + 2 + 2, half of the neurons; 90 % (18) is
 * six; 95 % (19) seven.  Gini, ascending 1 1 1 1 2 2 4 8:
 * 2 * (1 + 2 + 3 + 4 + 10 + 12 + 28 + 64) / (8 * 20) - 9 / 8 = 248 / 160 - 1.125 = 0.425. */
static void summary_of_the_model(void **state)
{
    (void)state;
    const int64_t v[8] = {1, 8, 4, 1, 2, 1, 2, 1};
    hs_activation *a = counts(2, 4, 10, v);
    hs_summary *s = summary(a);
    const hs_summary_part *p = &s->model;
    assert_int_equal(p->neurons, 8);
    near(p->active_share, 0.25);
    near(p->share[0], 0.5);
    near(p->share[1], 0.75);
    near(p->share[2], 0.875);
    near(p->gini, 0.425);
    near(s->layer[0].share[0], 0.5); /* 8 + 4 of 14: 12 >= 11.2 */
    near(s->layer[0].share[1], 0.75);
    near(s->layer[1].share[0], 0.75); /* 2 + 2 + 1 of 6: 5 >= 4.8 */
    const uint32_t hot[4][2] = {{0, 1}, {0, 2}, {1, 0}, {1, 2}};
    const uint32_t cold[4][2] = {{0, 0}, {0, 3}, {1, 1}, {1, 3}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(p->hot[i].layer, hot[i][0]);
        assert_int_equal(p->hot[i].neuron, hot[i][1]);
        assert_int_equal(p->cold[i].layer, cold[i][0]);
        assert_int_equal(p->cold[i].neuron, cold[i][1]);
    }
    hs_summary_free(s);
    hs_activation_free(a);
}

static void summary_of_one_neuron(void **state)
{
    (void)state;
    const int64_t v[1] = {5};
    hs_activation *a = counts(1, 1, 10, v);
    hs_summary *s = summary(a);
    near(s->layer[0].gini, 0);
    near(s->layer[0].share[0], 1);
    assert_int_equal(s->layer[0].n_hot, 1);
    assert_int_equal(s->layer[0].n_cold, 1);
    hs_summary_free(s);
    hs_activation_free(a);
}

/* Names come from files: no control bytes reach the terminal, and JSON stays UTF-8. */
static void printing_cleans_names(void **state)
{
    (void)state;
    const int64_t v[1] = {5};
    hs_activation *a = counts(1, 1, 10, v);
    assert_int_equal(hs_activation_add_source(a, "a\x1b[2J\xff", HASH, NULL), HS_OK);
    hs_summary *s = summary(a);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    hs_profile_print(f, a, s);
    fclose(f);
    assert_null(strchr(text, '\x1b'));
    assert_non_null(strstr(text, "a?[2J"));
    free(text);
    text = NULL;
    f = open_memstream(&text, &n);
    assert_non_null(f);
    assert_int_equal(hs_profile_print_json(f, a, s, NULL), HS_OK);
    fclose(f);
    assert_non_null(strstr(text, "\"a?[2J?\""));
    free(text);
    hs_summary_free(s);
    hs_activation_free(a);
}

/* ---- cutting -------------------------------------------------------------------------- */

static void chunks_never_span_texts(void **state)
{
    (void)state;
    int32_t a[] = {10, 11, 12, 13, 14, 15, 16}, b[] = {20, 21, 22}, c[] = {30, 31, 32, 33};
    hs_text text[3] = {{.ids = a, .n_ids = 7}, {.ids = b, .n_ids = 3}, {.ids = c, .n_ids = 4}};
    hs_texts t = {.n = 3, .text = text, .n_ctx = 4, .bos = 1};
    for (int i = 0; i < 3; i++)
        t.n_chunks += hs_text_chunks(text[i].n_ids, 4, true);
    assert_int_equal(t.n_chunks, 6);
    const int32_t want[6][5] = {/* length, ids */
                                {4, 1, 10, 11, 12}, {4, 1, 13, 14, 15}, {2, 1, 16},
                                {4, 1, 20, 21, 22}, {4, 1, 30, 31, 32}, {2, 1, 33}};
    uint64_t sum = 0;
    for (uint64_t k = 0; k < 6; k++) {
        int32_t got[4];
        assert_int_equal(hs_texts_positions(&t, k), sum);
        size_t from = 9;
        const size_t n = hs_texts_chunk(&t, k, got, &from);
        assert_int_equal(from, k < 3 ? 0 : k < 4 ? 1 : 2);
        assert_int_equal(n, want[k][0]);
        assert_memory_equal(got, want[k] + 1, n * sizeof *got);
        sum += n;
    }
    int32_t none[4];
    size_t from;
    assert_int_equal(hs_texts_chunk(&t, 6, none, &from), 0);
    assert_int_equal(hs_texts_positions(&t, 6), 20);
    t.n_chunks = 4; /* --chunks 4 */
    assert_int_equal(hs_texts_chunk(&t, 4, none, &from), 0);
    assert_int_equal(hs_texts_positions(&t, 100), 14);
}

static void chunks_without_bos(void **state)
{
    (void)state;
    int32_t a[] = {10, 11, 12, 13, 14};
    hs_text text = {.ids = a, .n_ids = 5};
    const hs_texts t = {.n = 1, .text = &text, .n_ctx = 4, .bos = -1, .n_chunks = 2};
    assert_int_equal(hs_text_chunks(5, 4, false), 2);
    assert_int_equal(hs_text_chunks(4, 4, false), 1);
    assert_int_equal(hs_text_chunks(0, 4, true), 0);
    int32_t got[4];
    size_t from;
    assert_int_equal(hs_texts_chunk(&t, 0, got, &from), 4);
    assert_memory_equal(got, a, 16);
    assert_int_equal(hs_texts_chunk(&t, 1, got, &from), 1);
    assert_int_equal(got[0], 14);
}

/* ---- resuming ------------------------------------------------------------------------- */

static void resume_names_what_differs(void **state)
{
    (void)state;
    const int64_t v[2] = {5, 0};
    static const char other[] = "00000000000000000000000000000000";
    const struct {
        int edit;
        const char *msg;
    } cases[] = {
        {0, NULL},
        {1, "p: cannot resume: made with model " HASH
            ", this one is 00000000000000000000000000000000"},
        {2, "p: cannot resume: made with context 8, got 16"},
        {3, "p: cannot resume: made without --no-bos and without --special"},
        {4, "p: cannot resume: made from 1 texts, got 2"},
        {5, "p: cannot resume: text 1 was a.txt with hash " HASH
            ", b.txt has hash 00000000000000000000000000000000"},
        {6, "p: cannot resume: merged or imported, it does not say where it stopped"},
        {7, "p: cannot resume: its layers are not the model's"},
        {8, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hs_activation *a = counts(1, 2, 10, v);
        hs_activation *b = cases[i].edit == 7 ? counts(2, 1, 10, v) : counts(1, 2, 10, v);
        memcpy(a->fingerprint, HASH, sizeof HASH);
        memcpy(b->fingerprint, cases[i].edit == 1 ? other : HASH, sizeof HASH);
        a->n_ctx = cases[i].edit == 6 ? 0 : 8;
        b->n_ctx = cases[i].edit == 2 ? 16 : 8;
        b->special = cases[i].edit == 3;
        /* A renamed text is the same text. */
        const char *name = cases[i].edit == 5 || cases[i].edit == 8 ? "b.txt" : "a.txt";
        assert_int_equal(hs_activation_add_source(a, "a.txt", HASH, NULL), HS_OK);
        assert_int_equal(hs_activation_add_source(b, name, cases[i].edit == 5 ? other : HASH, NULL),
                         HS_OK);
        if (cases[i].edit == 4)
            assert_int_equal(hs_activation_add_source(b, "c.txt", other, NULL), HS_OK);
        hs_err err = {0};
        assert_int_equal(hs_count_same(a, b, "p", &err), cases[i].msg ? HS_ERR_USAGE : HS_OK);
        if (cases[i].msg)
            assert_string_equal(err.msg, cases[i].msg);
        hs_activation_free(a);
        hs_activation_free(b);
    }
}

/* ---- .pt folders ---------------------------------------------------------------------- */

static char folder[64];

static void in(char out[128], const char *name) { snprintf(out, 128, "%s/%s", folder, name); }

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hs-ptdir-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    char path[128];
    for (int l = 0; l < 20; l++) {
        char name[64];
        snprintf(name, sizeof name, "activation_%d.pt", l);
        in(path, name);
        unlink(path);
    }
    static const char *const other[] = {"activation_1.pt.bak", "activation_.pt",
                                        "activation_01.pt",    "xactivation_1.pt",
                                        "activation_1_pt",     "activation_-1.pt"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        in(path, other[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void put_file(const char *name, const void *p, size_t n)
{
    char path[128];
    in(path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* A layer's file with any element type: safetensors bytes, which are read by content. */
static void put_layer(int layer, const char *dtype, int count, const void *data, size_t bytes)
{
    uint8_t b[1024];
    char json[256], name[64];
    size_t n = (size_t)snprintf(
        json, sizeof json, "{\"t\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}",
        dtype, count, bytes);
    while (n % 8)
        json[n++] = ' ';
    assert_true(8 + n + bytes <= sizeof b);
    memset(b, 0, 8);
    b[0] = (uint8_t)n;
    memcpy(b + 8, json, n);
    memcpy(b + 8 + n, data, bytes);
    snprintf(name, sizeof name, "activation_%d.pt", layer);
    put_file(name, b, 8 + n + bytes);
}

static void put_i64(int layer, int count, int64_t first)
{
    int64_t v[8];
    assert_in_range(count, 1, 8);
    for (int i = 0; i < count; i++)
        v[i] = first + i;
    put_layer(layer, "I64", count, v, (size_t)count * 8);
}

static hs_activation *import_folder(hs_pt_expect x)
{
    hs_activation *a;
    hs_err err = {0};
    if (hs_pt_import(&a, folder, &x, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return a;
}

static void refuses_import(hs_pt_expect x, hs_status code, const char *rest)
{
    hs_activation *a;
    hs_err err = {0};
    const hs_status s = hs_pt_import(&a, folder, &x, &err);
    char want[512];
    snprintf(want, sizeof want, "%s%s", folder, rest);
    assert_string_equal(err.msg, want);
    assert_int_equal(s, code);
    assert_null(a);
}

/* Twelve layers: a listing sorted as text would put 10 and 11 before 2. */
static void import_takes_layers_by_number(void **state)
{
    (void)state;
    for (int l = 11; l >= 0; l--)
        put_i64(l, 3, 100 * l);
    put_file("activation_1.pt.bak", "junk", 4);
    put_file("activation_.pt", "junk", 4);
    put_file("activation_01.pt", "junk", 4);
    put_file("xactivation_1.pt", "junk", 4);
    put_file("activation_1_pt", "junk", 4);
    put_file("activation_-1.pt", "junk", 4);
    hs_activation *a = import_folder((hs_pt_expect){0});
    assert_int_equal(a->n_layer, 12);
    for (int l = 0; l < 12; l++)
        for (int i = 0; i < 3; i++)
            assert_int_equal(a->count[l][i], 100 * l + i);
    assert_int_equal(a->tokens, 1102);
    assert_string_equal(a->fingerprint, "");
    hs_activation_free(a);
    a = import_folder((hs_pt_expect){.n_layer = 12, .n_ff = 3, .positions = 5000});
    assert_int_equal(a->tokens, 5000);
    hs_activation_free(a);
}

static void import_takes_every_number_type(void **state)
{
    (void)state;
    const int64_t i64[3] = {1, 0, 250};
    const int32_t i32[3] = {1, 0, 250};
    const int16_t i16[3] = {1, 0, 250};
    const uint8_t u8[3] = {1, 0, 250};
    const double f64[3] = {1, 0, 250};
    const float f32[3] = {1, 0, 250};
    const uint16_t f16[3] = {0x3c00, 0, 0x5bd0};  /* 250 = 1.953125 * 2^7 */
    const uint16_t bf16[3] = {0x3f80, 0, 0x437a}; /* 250 = 0x437a0000 */
    put_layer(0, "I64", 3, i64, sizeof i64);
    put_layer(1, "I32", 3, i32, sizeof i32);
    put_layer(2, "I16", 3, i16, sizeof i16);
    put_layer(3, "U8", 3, u8, sizeof u8);
    put_layer(4, "F64", 3, f64, sizeof f64);
    put_layer(5, "F32", 3, f32, sizeof f32);
    put_layer(6, "F16", 3, f16, sizeof f16);
    put_layer(7, "BF16", 3, bf16, sizeof bf16);
    hs_activation *a = import_folder((hs_pt_expect){0});
    assert_int_equal(a->n_layer, 8);
    for (int l = 0; l < 8; l++)
        assert_memory_equal(a->count[l], i64, sizeof i64);
    hs_activation_free(a);
}

static void import_refuses_incomplete_folders(void **state)
{
    (void)state;
    refuses_import((hs_pt_expect){0}, HS_ERR_INPUT, ": no activation_<layer>.pt in this folder");
    put_i64(0, 3, 0);
    put_i64(1, 3, 0);
    put_i64(3, 3, 0);
    refuses_import((hs_pt_expect){0}, HS_ERR_INPUT,
                   ": activation_2.pt: layer 2 is missing, expected layers 0 to 3");
    put_i64(2, 3, 0);
    refuses_import((hs_pt_expect){.n_layer = 5, .n_ff = 3}, HS_ERR_INPUT,
                   ": activation_4.pt: layer 4 is missing, expected layers 0 to 4");
    refuses_import((hs_pt_expect){.n_layer = 3, .n_ff = 3}, HS_ERR_FORMAT,
                   ": activation_3.pt: the model has only 3 layers");
    hs_activation *a;
    hs_err err = {0};
    const hs_pt_expect any = {0};
    assert_int_equal(hs_pt_import(&a, "/nonexistent/folder", &any, &err), HS_ERR_INPUT);
    assert_string_equal(err.msg,
                        "/nonexistent/folder: cannot open folder: No such file or directory");
}

static void import_refuses_bad_layers(void **state)
{
    (void)state;
    put_i64(0, 3, 0);
    const hs_pt_expect any = {0}, model = {.n_layer = 2, .n_ff = 4};
    put_i64(1, 4, 0);
    refuses_import(any, HS_ERR_FORMAT, "/activation_1.pt: layer 1: expected 3 neurons, got 4");
    refuses_import(model, HS_ERR_FORMAT, "/activation_0.pt: layer 0: expected 4 neurons, got 3");
    const int64_t neg[3] = {1, -2, 3};
    put_layer(1, "I64", 3, neg, sizeof neg);
    refuses_import(any, HS_ERR_FORMAT, "/activation_1.pt: layer 1: neuron 1: count -2 is negative");
    const float fneg[3] = {1, 2, -0.5f};
    put_layer(1, "F32", 3, fneg, sizeof fneg);
    refuses_import(any, HS_ERR_FORMAT,
                   "/activation_1.pt: layer 1: neuron 2: count -0.5 is negative");
    const uint16_t nan[3] = {0x7e00, 0, 0};
    put_layer(1, "F16", 3, nan, sizeof nan);
    refuses_import(any, HS_ERR_FORMAT,
                   "/activation_1.pt: layer 1: neuron 0: count is not a number (NaN)");
    const float part[3] = {1, 2.25f, 3};
    put_layer(1, "F32", 3, part, sizeof part);
    refuses_import(any, HS_ERR_FORMAT,
                   "/activation_1.pt: layer 1: neuron 1: count 2.25 is not a whole number");
    const double large[3] = {1, 2, 0x1p63};
    put_layer(1, "F64", 3, large, sizeof large);
    refuses_import(any, HS_ERR_FORMAT,
                   "/activation_1.pt: layer 1: neuron 2: count 9.22337e+18 is too large");
    const uint8_t flags[3] = {1, 0, 1};
    put_layer(1, "BOOL", 3, flags, sizeof flags);
    refuses_import(any, HS_ERR_UNSUPPORTED,
                   "/activation_1.pt: layer 1: expected counts as int64, int32, int16, uint8 or "
                   "floating point, got BOOL");
    put_file("activation_1.pt", "junk", 4);
    hs_activation *a;
    hs_err err = {0};
    assert_int_equal(hs_pt_import(&a, folder, &any, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "activation_1.pt"));
}

static void import_needs_positions_that_fit(void **state)
{
    (void)state;
    const int64_t zero[3] = {0, 0, 0};
    put_layer(0, "I64", 3, zero, sizeof zero);
    refuses_import((hs_pt_expect){0}, HS_ERR_USAGE,
                   ": every count is 0; say with --positions how many were evaluated");
    hs_activation *a = import_folder((hs_pt_expect){.positions = 7});
    assert_int_equal(a->tokens, 7);
    hs_activation_free(a);
    put_i64(1, 3, 50);
    refuses_import((hs_pt_expect){.positions = 51}, HS_ERR_USAGE,
                   ": activation_1.pt: layer 1: neuron 2: count 52 exceeds --positions 51");
}

static void export_and_import_are_inverse(void **state)
{
    (void)state;
    int64_t v[12 * 2];
    for (int i = 0; i < 24; i++)
        v[i] = (int64_t)1 << (2 * i);
    hs_activation *a = counts(12, 2, (uint64_t)1 << 60, v);
    hs_err err = {0};
    if (hs_pt_export(a, folder, false, &err) != HS_OK)
        fail_msg("%s", err.msg);
    hs_activation *b = import_folder((hs_pt_expect){.positions = (uint64_t)1 << 60});
    assert_int_equal(b->n_layer, 12);
    for (int l = 0; l < 12; l++)
        assert_memory_equal(b->count[l], v + (size_t)l * 2, 16);

    /* In the way: refused, replaced with force; a layer too many: refused either way. */
    char want[256];
    assert_int_equal(hs_pt_export(a, folder, false, &err), HS_ERR_USAGE);
    snprintf(want, sizeof want, "%s: holds activation files; use --force to replace them", folder);
    assert_string_equal(err.msg, want);
    assert_int_equal(hs_pt_export(a, folder, true, &err), HS_OK);
    put_i64(12, 2, 0);
    assert_int_equal(hs_pt_export(a, folder, true, &err), HS_ERR_USAGE);
    snprintf(want, sizeof want,
             "%s: activation_12.pt is no layer of this profile and would be read with it; "
             "remove it",
             folder);
    assert_string_equal(err.msg, want);
    hs_activation_free(a);
    hs_activation_free(b);
}

static void export_makes_its_folder(void **state)
{
    (void)state;
    const int64_t v[2] = {5, 0};
    hs_activation *a = counts(1, 2, 10, v);
    char dir[160], path[192];
    snprintf(dir, sizeof dir, "%s/new", folder);
    snprintf(path, sizeof path, "%s/activation_0.pt", dir);
    hs_err err = {0};
    assert_int_equal(hs_pt_export_check(dir, 1, false, &err), HS_OK);
    assert_int_equal(hs_pt_export(a, dir, false, &err), HS_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    /* A file where the folder should be. */
    put_file("activation_1.pt.bak", "x", 1);
    snprintf(dir, sizeof dir, "%s/activation_1.pt.bak", folder);
    assert_int_equal(hs_pt_export_check(dir, 1, true, &err), HS_ERR_INPUT);
    assert_non_null(strstr(err.msg, dir));
    hs_activation_free(a);
}

/* torch wrote these; what we write must hold the same bytes for every value. */
static void reference_folder_survives(void **state)
{
    (void)state;
    static const char dir[] = "data/kjv-relu-8m/reference/activation";
    hs_activation *a, *b;
    hs_err err = {0};
    const hs_pt_expect x = {.n_layer = 6, .n_ff = 1024, .positions = 16384};
    if (hs_pt_import(&a, dir, &x, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(a->count[0][0], 279); /* activation_counts.json */
    assert_int_equal(a->count[0][5], 9334);
    if (hs_pt_export(a, folder, false, &err) != HS_OK)
        fail_msg("%s", err.msg);
    b = import_folder(x);
    for (int l = 0; l < 6; l++)
        assert_memory_equal(a->count[l], b->count[l], 1024 * 8);
    /* The table in data/kjv-relu-8m/README.md: 15 and 7 dead, 93.6 % and 88.3 % zeros. */
    hs_summary *s = summary(a);
    assert_int_equal(s->layer[3].dead, 15);
    assert_int_equal(s->layer[4].dead, 7);
    assert_true(s->layer[3].active_share > 0.0635 && s->layer[3].active_share < 0.0645);
    assert_true(s->layer[0].active_share > 0.1165 && s->layer[0].active_share < 0.1175);
    hs_summary_free(s);
    hs_activation_free(a);
    hs_activation_free(b);
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summary_of_a_skewed_layer),
        cmocka_unit_test(summary_of_a_flat_layer),
        cmocka_unit_test(summary_of_one_living_neuron),
        cmocka_unit_test(summary_of_a_dead_layer),
        cmocka_unit_test(summary_of_the_model),
        cmocka_unit_test(summary_of_one_neuron),
        cmocka_unit_test(printing_cleans_names),
        cmocka_unit_test(chunks_never_span_texts),
        cmocka_unit_test(chunks_without_bos),
        cmocka_unit_test(resume_names_what_differs),
        IN_FOLDER(import_takes_layers_by_number),
        IN_FOLDER(import_takes_every_number_type),
        IN_FOLDER(import_refuses_incomplete_folders),
        IN_FOLDER(import_refuses_bad_layers),
        IN_FOLDER(import_needs_positions_that_fit),
        IN_FOLDER(export_and_import_are_inverse),
        IN_FOLDER(export_makes_its_folder),
        IN_FOLDER(reference_folder_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
