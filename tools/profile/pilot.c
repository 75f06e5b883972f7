/* The pilot: 128 tokens written by the model, then read again with an observer. */
#include "tools/profile/pilot.h"

#include "tools/profile/tally.h"

#include <gsl/gsl_sort_float.h>
#include <gsl/gsl_statistics_float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Magnitudes of a layer that are kept: enough for a 95 % quantile to 0.1 % of the mass. */
enum { SAMPLES = 1 << 18 };

void hs_pilot_quantiles(float threshold[HS_MAGNITUDE_LEVELS], float *sample, size_t n)
{
    gsl_sort_float(sample, 1, n);
    for (int i = 0; i < HS_MAGNITUDE_LEVELS; i++)
        threshold[i] = (float)gsl_stats_float_quantile_from_sorted_data(
            sample, 1, n, (double)hs_magnitude_level[i] / 100);
}

typedef struct ranked {
    int64_t count;
    int32_t id;
} ranked;

static int hotter_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int rising(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

hs_status hs_pilot_hottest(int32_t *top, uint32_t n_top, const int64_t *count, uint32_t n,
                           hs_err *err)
{
    ranked *r = malloc(n * sizeof *r);
    if (!r)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; i < n; i++)
        r[i] = (ranked){count[i], (int32_t)i};
    qsort(r, n, sizeof *r, hotter_first);
    for (uint32_t i = 0; i < n_top; i++)
        top[i] = r[i].id;
    free(r);
    qsort(top, n_top, sizeof *top, rising);
    return HS_OK;
}

/* ---- the text -------------------------------------------------------------------------- */

/* Ends of text are banned: one long text has more to say than many beginnings. */
static hs_status write_text(hs_session *s, const hs_model *m, int32_t *ids, size_t n, hs_err *err)
{
    hs_model_info info;
    hs_model_describe(m, &info);
    hs_sampler_params p = hs_sampler_defaults();
    p.seed = 0;
    hs_sampler *sampler;
    hs_status st = hs_sampler_new(&sampler, &p, info.n_vocab, err);
    if (st != HS_OK)
        return st;
    for (uint32_t i = 0; i < info.n_vocab; i++)
        if (hs_token_is_eog(m, (int32_t)i))
            hs_sampler_ban(sampler, (int32_t)i);
    ids[0] = info.bos >= 0 ? info.bos : 0;
    hs_session_reset(s);
    for (size_t i = 0; st == HS_OK && i < n; i++) {
        st = hs_session_eval(s, ids + i, 1, NULL, NULL, err);
        hs_sampler_accept(sampler, ids[i]);
        if (st == HS_OK && i + 1 < n)
            ids[i + 1] = hs_sampler_next(sampler, hs_session_logits(s));
    }
    hs_sampler_free(sampler);
    return st;
}

/* ---- thresholds ------------------------------------------------------------------------ */

typedef struct sampler {
    const hs_activation *a;
    float *sample; /* [n_layer][SAMPLES] */
    size_t *n;     /* [n_layer] */
    uint32_t stride;
} sampler;

/* Every stride-th neuron, others at each position. */
static void sample(void *ud, uint32_t layer, size_t pos, const float *z)
{
    const sampler *s = ud;
    for (size_t i = pos % s->stride; i < s->a->n_ff[layer]; i += s->stride)
        if (s->n[layer] < SAMPLES)
            s->sample[(size_t)layer * SAMPLES + s->n[layer]++] = fabsf(z[i]);
}

static hs_status find_thresholds(hs_activation *a, hs_session *s, const int32_t *ids, size_t n,
                                 hs_err *err)
{
    sampler p = {.a = a};
    p.stride = (uint32_t)((a->n_ff[0] * (uint64_t)n + SAMPLES - 1) / SAMPLES);
    p.sample = malloc((size_t)a->n_layer * SAMPLES * sizeof *p.sample);
    p.n = calloc(a->n_layer, sizeof *p.n);
    hs_status st = HS_OK;
    if (!p.sample || !p.n)
        st = hs_fail(err, HS_ERR_NOMEM, "out of memory");
    if (st == HS_OK) {
        hs_session_reset(s);
        hs_session_observe(s, sample, &p);
        st = hs_session_eval(s, ids, n, NULL, NULL, err);
    }
    for (uint32_t l = 0; st == HS_OK && l < a->n_layer; l++)
        hs_pilot_quantiles(a->threshold + (size_t)l * HS_MAGNITUDE_LEVELS,
                           p.sample + (size_t)l * SAMPLES, p.n[l]);
    free(p.sample);
    free(p.n);
    return st;
}

/* ---- neurons --------------------------------------------------------------------------- */

static hs_status find_hottest(hs_activation *a, hs_session *s, const int32_t *ids, size_t n,
                              hs_err *err)
{
    hs_activation *sum;
    hs_tally *t = NULL;
    hs_status st = hs_activation_new_like(&sum, a, err);
    if (st == HS_OK)
        st = hs_tally_new(&t, a, err);
    if (st == HS_OK) {
        hs_session_reset(s);
        hs_session_observe(s, hs_tally_observe, t);
        st = hs_session_eval(s, ids, n, NULL, NULL, err);
    }
    if (st == HS_OK)
        st = hs_tally_take(t, sum, 0, err);
    for (uint32_t l = 0; st == HS_OK && l < a->n_layer; l++)
        st = hs_pilot_hottest(a->top + (size_t)l * a->n_top, a->n_top, sum->count[l], a->n_ff[l],
                              err);
    hs_tally_free(t);
    hs_activation_free(sum);
    return st;
}

hs_status hs_pilot_run(hs_activation *a, const hs_model *m, hs_session_params params, hs_err *err)
{
    if (!a->magnitude && !a->stat[HS_STAT_COACTIVE])
        return HS_OK;
    hs_model_info info;
    hs_model_describe(m, &info);
    const uint32_t n =
        info.n_ctx_train && info.n_ctx_train < HS_PILOT_TOKENS ? info.n_ctx_train : HS_PILOT_TOKENS;
    params.n_ctx = n;
    int32_t ids[HS_PILOT_TOKENS];
    hs_session *s;
    hs_status st = hs_session_new(&s, m, &params, err);
    if (st != HS_OK)
        return st;
    st = write_text(s, m, ids, n, err);
    if (st == HS_OK && a->magnitude)
        st = find_thresholds(a, s, ids, n, err);
    if (st == HS_OK && a->stat[HS_STAT_COACTIVE])
        st = find_hottest(a, s, ids, n, err);
    hs_session_free(s);
    return st;
}
