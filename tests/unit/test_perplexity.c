/* How hotset-perplexity cuts texts, and its file of log-probabilities. */
#include "tools/perplexity/chunks.h"
#include "tools/perplexity/logp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { max_ids = 48, max_ctx = 16, bos = 1000 };

/* Ids 100, 101, … so that an id says where it stood. */
static void number(int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = 100 + (int32_t)i;
}

static void check_once(size_t n, size_t n_ctx, bool with_bos)
{
    int32_t ids[max_ids], inputs[max_ctx];
    int seen[max_ids] = {0};
    number(ids, n);
    hs_ppl_chunks c = {ids, n, n_ctx, with_bos ? bos : -1, HS_PPL_ONCE, 0};
    assert_int_equal(hs_ppl_chunks_count(&c, 0, NULL), HS_OK);
    uint64_t scored = 0;
    for (uint64_t k = 0; k < c.n_chunks; k++) {
        const hs_ppl_chunk x = hs_ppl_chunks_get(&c, k, inputs);
        assert_int_equal(x.first, 0);
        assert_in_range(x.n_inputs, 1, n_ctx - 1);
        if (k + 1 < c.n_chunks)
            assert_int_equal(x.n_inputs, n_ctx - 1);
        assert_int_equal(inputs[0], with_bos ? bos : x.target[0] - 1);
        for (size_t p = 0; p < x.n_inputs; p++) {
            seen[x.target[p] - 100]++;
            if (p) /* what was to be predicted is what comes next */
                assert_int_equal(inputs[p], x.target[p - 1]);
        }
        scored += x.n_inputs;
    }
    assert_int_equal(scored, hs_ppl_chunks_scored(&c));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(seen[i], i > 0 || with_bos);
}

static void once_predicts_every_token_once(void **state)
{
    (void)state;
    for (size_t n_ctx = 2; n_ctx <= 9; n_ctx++)
        for (size_t n = 1; n <= 40; n++) {
            check_once(n, n_ctx, true);
            if (n > 1)
                check_once(n, n_ctx, false);
        }
}

static void chunk_limit(void **state)
{
    (void)state;
    int32_t ids[max_ids];
    number(ids, 20);
    hs_ppl_chunks c = {ids, 20, 8, bos, HS_PPL_ONCE, 0};
    assert_int_equal(hs_ppl_chunks_count(&c, 2, NULL), HS_OK);
    assert_int_equal(c.n_chunks, 2);
    assert_int_equal(hs_ppl_chunks_scored(&c), 14);
    assert_int_equal(hs_ppl_chunks_count(&c, 99, NULL), HS_OK);
    assert_int_equal(c.n_chunks, 3);
    assert_int_equal(hs_ppl_chunks_scored(&c), 20);
}

static void llama_scores_second_halves(void **state)
{
    (void)state;
    int32_t ids[max_ids], inputs[max_ctx];
    number(ids, 27);
    for (int with_bos = 0; with_bos < 2; with_bos++) {
        hs_ppl_chunks c = {ids, 27, 8, with_bos ? bos : -1, HS_PPL_LLAMA, 0};
        assert_int_equal(hs_ppl_chunks_count(&c, 0, NULL), HS_OK);
        assert_int_equal(c.n_chunks, 3);
        assert_int_equal(hs_ppl_chunks_scored(&c), 9);
        for (uint64_t k = 0; k < 3; k++) {
            const hs_ppl_chunk x = hs_ppl_chunks_get(&c, k, inputs);
            assert_int_equal(x.n_inputs, 7);
            assert_int_equal(x.first, 4);
            assert_int_equal(inputs[0], with_bos ? bos : 100 + 8 * (int)k);
            for (int p = 1; p < 7; p++)
                assert_int_equal(inputs[p], 100 + 8 * (int)k + p);
            for (int p = 4; p < 7; p++)
                assert_int_equal(x.target[p], 100 + 8 * (int)k + p + 1);
        }
    }
}

static void too_short(void **state)
{
    (void)state;
    static const struct {
        hs_ppl_protocol protocol;
        int32_t bos;
        size_t n;
        const char *msg;
    } cases[] = {
        {HS_PPL_ONCE, bos, 0, "needs at least 1 token, got 0"},
        {HS_PPL_ONCE, -1, 1, "needs at least 2 tokens, got 1"},
        {HS_PPL_LLAMA, bos, 15, "needs at least 16 tokens, got 15"},
    };
    int32_t ids[max_ids];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hs_err err;
        hs_ppl_chunks c = {ids, cases[i].n, 8, cases[i].bos, cases[i].protocol, 0};
        assert_int_equal(hs_ppl_chunks_count(&c, 0, &err), HS_ERR_INPUT);
        assert_string_equal(err.msg, cases[i].msg);
    }
}

/* ---- the file ----------------------------------------------------------------------------- */

enum { n_vocab = 3, n_tokens = 2, file_bytes = 32 + n_tokens * (4 + 4 * n_vocab) };

static const hs_logp_header header = {n_vocab, 8, HS_PPL_ONCE, n_tokens};
static char path[64];

static void log_probabilities(float *out, double a, double b)
{
    out[0] = (float)log(a);
    out[1] = (float)log(b);
    out[2] = (float)log(1 - a - b);
}

static int write_base(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/hotset-logp-%d", (int)getpid());
    hs_out *out;
    float p[n_vocab];
    if (hs_out_open(&out, path, true, NULL) != HS_OK || hs_logp_begin(out, &header, NULL) != HS_OK)
        return -1;
    log_probabilities(p, 0.5, 0.25);
    if (hs_logp_append(out, 7, p, n_vocab, NULL) != HS_OK)
        return -1;
    log_probabilities(p, 0.1, 0.2);
    if (hs_logp_append(out, 9, p, n_vocab, NULL) != HS_OK)
        return -1;
    return hs_out_commit(out, false, NULL) == HS_OK ? 0 : -1;
}

static int remove_base(void **state)
{
    (void)state;
    return unlink(path);
}

static void compare(void **state)
{
    (void)state;
    hs_logp_file f;
    hs_divergence d = {0};
    float q[n_vocab];
    assert_int_equal(hs_logp_open(&f, path, &header, NULL), HS_OK);
    log_probabilities(q, 0.5, 0.25);
    assert_true(hs_logp_compare(&f, 0, 7, q, &d));
    assert_true(d.kl == 0 && d.max_kl == 0 && d.max_error == 0 && d.same_top == 1);
    log_probabilities(q, 0.6, 0.3); /* against 0.1, 0.2, 0.7 */
    assert_true(hs_logp_compare(&f, 1, 9, q, &d));
    const double kl = 0.1 * log(0.1 / 0.6) + 0.2 * log(0.2 / 0.3) + 0.7 * log(0.7 / 0.1);
    assert_true(fabs(d.kl - kl) < 1e-6 && d.max_kl == d.kl);
    assert_true(fabs(d.max_error - 0.6) < 1e-6);
    assert_int_equal(d.same_top, 1);
    assert_int_equal(d.n, 2);
    assert_false(hs_logp_compare(&f, 1, 7, q, &d)); /* another text */
    hs_logp_close(&f);
}

static void other_runs_are_refused(void **state)
{
    (void)state;
    static const struct {
        hs_logp_header want;
        const char *msg;
    } cases[] = {
        {{4, 8, HS_PPL_ONCE, 2}, "vocabulary: the model has 4 tokens, this file 3"},
        {{3, 9, HS_PPL_ONCE, 2}, "made with -c 8, this run uses 9"},
        {{3, 8, HS_PPL_LLAMA, 2}, "made with --protocol once, this run uses llama"},
        {{3, 8, HS_PPL_ONCE, 3}, "has 2 tokens, this run scores 3 (--chunks?)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hs_logp_file f;
        hs_err err;
        char want[200];
        assert_int_equal(hs_logp_open(&f, path, &cases[i].want, &err), HS_ERR_USAGE);
        snprintf(want, sizeof want, "%s: %s", path, cases[i].msg);
        assert_string_equal(err.msg, want);
    }
    const hs_logp_header fewer = {3, 8, HS_PPL_ONCE, 1};
    hs_logp_file f;
    assert_int_equal(hs_logp_open(&f, path, &fewer, NULL), HS_OK);
    hs_logp_close(&f);
}

/* Write `bytes` of the good file, one byte changed, and open it. */
static hs_status open_broken(const uint8_t *good, size_t bytes, size_t at, uint8_t xor, hs_err *err)
{
    char broken[80];
    uint8_t b[file_bytes + 1] = {0};
    memcpy(b, good, file_bytes);
    b[at] ^= xor;
    snprintf(broken, sizeof broken, "%s.broken", path);
    FILE *f = fopen(broken, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b, 1, bytes, f), bytes);
    fclose(f);
    hs_logp_file in;
    const hs_status s = hs_logp_open(&in, broken, &header, err);
    if (s == HS_OK)
        hs_logp_close(&in);
    unlink(broken);
    return s;
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    uint8_t good[file_bytes];
    hs_err err;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(good, 1, file_bytes, f), file_bytes);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    assert_int_equal(open_broken(good, file_bytes, 0, 0, &err), HS_OK);
    for (size_t bytes = 0; bytes < file_bytes; bytes++)
        assert_int_equal(open_broken(good, bytes, 0, 0, &err), HS_ERR_FORMAT);
    assert_int_equal(open_broken(good, file_bytes + 1, 0, 0, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "size: expected 2 tokens of 3 log-probabilities each, got 65"));
    for (size_t at = 0; at < 32; at++) /* every header byte is checked */
        assert_int_not_equal(open_broken(good, file_bytes, at, 0x40, &err), HS_OK);
    assert_int_equal(open_broken(good, file_bytes, 31, 0x80, &err), HS_ERR_FORMAT);
}

static void bad_probabilities_are_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, 0.5f, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t bytes[file_bytes] = {0};
        memcpy(bytes + 32 + 4, &bad[i], 4);
        const hs_logp_file f = {{bytes, file_bytes}, header};
        const float q[n_vocab] = {0};
        hs_divergence d = {0};
        assert_false(hs_logp_compare(&f, 0, 0, q, &d));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(once_predicts_every_token_once),
        cmocka_unit_test(chunk_limit),
        cmocka_unit_test(llama_scores_second_halves),
        cmocka_unit_test(too_short),
        cmocka_unit_test(compare),
        cmocka_unit_test(other_runs_are_refused),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(bad_probabilities_are_refused),
    };
    return cmocka_run_group_tests_name("perplexity", tests, write_base, remove_base);
}
