/* Counting one chunk.  Everything is an integer, so chunks add up to the same profile in any
 * order and on any number of machines. */
#include "tools/profile/tally.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct hs_tally {
    hs_activation *a; /* the chunk's numbers */
    bool generated, overflow;
    int32_t *list; /* [n_top] those active at the position at hand */
};

static float clamp(float z)
{
    const float most = (float)HS_ACTIVATION_CLAMP;
    return z > most ? most : z < -most ? -most : z;
}

int64_t hs_tally_fixed(float z)
{
    return llrint((double)clamp(z) * (double)(1 << HS_ACTIVATION_SUM_BITS));
}

/* The square of a float is exact in a double. */
int64_t hs_tally_square(float z)
{
    const double v = (double)clamp(z);
    return llrint(v * v * (double)(1 << HS_ACTIVATION_SQUARE_BITS));
}

static void add(hs_tally *t, int64_t *sum, int64_t v)
{
    if (__builtin_add_overflow(*sum, v, sum))
        t->overflow = true;
}

hs_status hs_tally_new(hs_tally **out, const hs_activation *shape, hs_err *err)
{
    *out = NULL;
    hs_tally *t = calloc(1, sizeof *t);
    if (!t)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_status s = hs_activation_new_like(&t->a, shape, err);
    t->list = calloc(shape->n_top + 1u, sizeof *t->list);
    if (s == HS_OK && !t->list)
        s = hs_fail(err, HS_ERR_NOMEM, "out of memory");
    if (s != HS_OK) {
        hs_tally_free(t);
        return s;
    }
    *out = t;
    return HS_OK;
}

void hs_tally_free(hs_tally *t)
{
    if (!t)
        return;
    hs_activation_free(t->a);
    free(t->list);
    free(t);
}

void hs_tally_clear(hs_tally *t)
{
    hs_activation_clear(t->a);
    t->generated = t->overflow = false;
}

void hs_tally_generated(hs_tally *t, bool generated) { t->generated = generated; }

/* ---- one position ---------------------------------------------------------------------- */

static void strength(hs_tally *t, uint32_t l, uint32_t i, float z)
{
    if (t->a->stat[HS_STAT_SUM])
        add(t, &t->a->stat[HS_STAT_SUM][l][i], hs_tally_fixed(z));
    if (t->a->stat[HS_STAT_SQUARES])
        add(t, &t->a->stat[HS_STAT_SQUARES][l][i], hs_tally_square(z));
}

/* Thresholds rise, so the levels that are reached come first. */
static void magnitudes(hs_tally *t, uint32_t l, uint32_t i, float z)
{
    const hs_activation *a = t->a;
    const float *threshold = a->threshold + (size_t)l * HS_MAGNITUDE_LEVELS;
    for (uint32_t q = 0; q < HS_MAGNITUDE_LEVELS && fabsf(z) >= threshold[q]; q++) {
        a->stat[HS_STAT_MAGNITUDE][l][(size_t)q * a->n_ff[l] + i]++;
        if (a->stat[HS_STAT_KEPT])
            add(t, &a->stat[HS_STAT_KEPT][l][q], hs_tally_square(z));
    }
}

static void pairs(hs_tally *t, uint32_t l, const float *z, float threshold)
{
    const hs_activation *a = t->a;
    const int32_t *top = a->top + (size_t)l * a->n_top;
    int64_t *v = a->stat[HS_STAT_COACTIVE][l];
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_top; i++)
        if (fabsf(z[top[i]]) >= threshold)
            t->list[n++] = (int32_t)i;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++)
            v[(size_t)t->list[i] * a->n_top + (size_t)t->list[k]]++;
}

/* The least magnitude that counts as active: of a ReLU model, anything but zero. */
static float least(const hs_activation *a, uint32_t l)
{
    uint32_t q = 0;
    if (!a->magnitude)
        return 0x1p-149f;
    while (hs_magnitude_level[q] != a->magnitude)
        q++;
    return a->threshold[(size_t)l * HS_MAGNITUDE_LEVELS + q];
}

void hs_tally_observe(void *tally, uint32_t layer, size_t pos, const float *z)
{
    (void)pos;
    hs_tally *t = tally;
    const hs_activation *a = t->a;
    const uint32_t l = layer, n_ff = a->n_ff[l];
    const float threshold = least(a, l);
    int64_t *generated =
        t->generated && a->stat[HS_STAT_GENERATED] ? a->stat[HS_STAT_GENERATED][l] : NULL;
    uint32_t active = 0;
    for (uint32_t i = 0; i < n_ff; i++) {
        if (a->magnitude) {
            strength(t, l, i, z[i]);
            magnitudes(t, l, i, z[i]);
        }
        if (!(fabsf(z[i]) >= threshold))
            continue;
        if (!a->magnitude)
            strength(t, l, i, z[i]);
        a->count[l][i]++;
        if (generated)
            generated[i]++;
        active++;
    }
    if (a->stat[HS_STAT_HISTOGRAM])
        a->stat[HS_STAT_HISTOGRAM][l][active]++;
    if (a->stat[HS_STAT_COACTIVE])
        pairs(t, l, z, threshold);
    if (l == 0) {
        t->a->tokens++;
        t->a->tokens_generated += t->generated;
    }
}

/* ---- taking over ----------------------------------------------------------------------- */

static void add_all(hs_tally *t, int64_t *to, const int64_t *from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        add(t, &to[i], from[i]);
}

hs_status hs_tally_take(hs_tally *t, hs_activation *a, size_t text, hs_err *err)
{
    for (uint32_t l = 0; l < a->n_layer; l++) {
        add_all(t, a->count[l], t->a->count[l], a->n_ff[l]);
        for (int i = 0; i < HS_STATS; i++) {
            const hs_activation_stat st = (hs_activation_stat)i;
            if (a->stat[st] && st == HS_STAT_BY_TEXT)
                add_all(t, a->stat[st][l] + text * a->n_ff[l], t->a->count[l], a->n_ff[l]);
            else if (a->stat[st])
                add_all(t, a->stat[st][l], t->a->stat[st][l], hs_activation_stat_len(a, st, l));
        }
    }
    a->tokens += t->a->tokens;
    a->tokens_generated += t->a->tokens_generated;
    if (t->overflow)
        return hs_fail(err, HS_ERR_FAILED,
                       "the sums of activations no longer fit 63 bits; profile fewer texts at a "
                       "time");
    return HS_OK;
}
