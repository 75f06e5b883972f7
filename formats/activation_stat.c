/* The statistics of a profile: their shapes, and what must hold between them and the counts.
 * They say the same thing several ways (a histogram has the sum of the counts, a diagonal the
 * counts themselves), so a file that contradicts itself is found out. */
#include "formats/activation_impl.h"

#include "formats/cursor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const uint32_t hs_magnitude_level[HS_MAGNITUDE_LEVELS] = {50, 70, 80, 90, 95};

static const char *const names[HS_STATS] = {
    [HS_STAT_SUM] = "ffn_activation_sum",
    [HS_STAT_SQUARES] = "ffn_activation_squares",
    [HS_STAT_HISTOGRAM] = "ffn_active_histogram",
    [HS_STAT_GENERATED] = "ffn_active_count_generated",
    [HS_STAT_BY_TEXT] = "ffn_active_count_by_text",
    [HS_STAT_COACTIVE] = "ffn_coactive_count",
    [HS_STAT_MAGNITUDE] = "ffn_magnitude_count",
    [HS_STAT_KEPT] = "ffn_magnitude_kept",
};

const char *hs_activation_stat_name(hs_activation_stat stat) { return names[stat]; }

uint32_t hs_activation_stat_dims(const hs_activation *a, hs_activation_stat stat, uint32_t layer,
                                 uint64_t ne[2])
{
    ne[0] = a->n_ff[layer];
    ne[1] = 1;
    switch (stat) {
    case HS_STAT_HISTOGRAM: ne[0]++; return 1;
    case HS_STAT_BY_TEXT: ne[1] = a->n_source; return 2;
    case HS_STAT_COACTIVE: ne[0] = ne[1] = a->n_top; return 2;
    case HS_STAT_MAGNITUDE: ne[1] = HS_MAGNITUDE_LEVELS; return 2;
    case HS_STAT_KEPT: ne[0] = HS_MAGNITUDE_LEVELS; return 1;
    default: return 1;
    }
}

/* Cannot wrap: the largest factors are 2^31 and 1024. */
uint64_t hs_activation_stat_len(const hs_activation *a, hs_activation_stat stat, uint32_t layer)
{
    uint64_t ne[2];
    (void)hs_activation_stat_dims(a, stat, layer, ne);
    return ne[0] * ne[1];
}

void hs_activation_stat_drop(hs_activation *a, hs_activation_stat stat)
{
    for (uint32_t l = 0; a->stat[stat] && l < a->n_layer; l++)
        free(a->stat[stat][l]);
    free(a->stat[stat]);
    a->stat[stat] = NULL;
    if (stat == HS_STAT_COACTIVE) {
        free(a->top);
        a->top = NULL;
        a->n_top = 0;
    }
    if (stat == HS_STAT_MAGNITUDE) {
        free(a->threshold);
        a->threshold = NULL;
    }
}

hs_status hs_activation_stat_add(hs_activation *a, hs_activation_stat stat, hs_err *err)
{
    int64_t **v = a->stat[stat] = calloc(a->n_layer, sizeof *v);
    bool ok = v != NULL;
    for (uint32_t l = 0; ok && l < a->n_layer; l++) {
        v[l] = calloc(hs_activation_stat_len(a, stat, l), sizeof **v);
        ok = v[l] != NULL;
    }
    if (ok && stat == HS_STAT_COACTIVE) {
        a->top = calloc((size_t)a->n_layer * a->n_top, sizeof *a->top);
        ok = a->top != NULL;
    }
    if (ok && stat == HS_STAT_MAGNITUDE) {
        a->threshold = calloc((size_t)a->n_layer * HS_MAGNITUDE_LEVELS, sizeof *a->threshold);
        ok = a->threshold != NULL;
    }
    if (ok)
        return HS_OK;
    hs_activation_stat_drop(a, stat);
    return hs_fail(err, HS_ERR_NOMEM, "out of memory");
}

/* ---- what must hold --------------------------------------------------------------------- */

typedef struct context {
    const hs_activation *a;
    hs_status code;
    hs_err *err;
    uint32_t layer;
} context;

static hs_status fault(const context *c, hs_activation_stat stat, uint64_t at, int64_t got,
                       const char *want)
{
    return hs_fail(c->err, c->code,
                   "blk.%" PRIu32 ".%s: entry %" PRIu64 ": expected %s, got %" PRId64, c->layer,
                   names[stat], at, want, got);
}

static hs_status check_sums(const context *c)
{
    const hs_activation *a = c->a;
    const uint32_t l = c->layer;
    const int64_t *sum = a->stat[HS_STAT_SUM] ? a->stat[HS_STAT_SUM][l] : NULL;
    const int64_t *squares = a->stat[HS_STAT_SQUARES] ? a->stat[HS_STAT_SQUARES][l] : NULL;
    for (uint32_t i = 0; i < a->n_ff[l]; i++) {
        const bool zero = !a->magnitude && a->count[l][i] == 0;
        if (squares && squares[i] < 0)
            return fault(c, HS_STAT_SQUARES, i, squares[i], "at least 0");
        if (squares && zero && squares[i])
            return fault(c, HS_STAT_SQUARES, i, squares[i], "0 of a neuron never active");
        if (sum && zero && sum[i])
            return fault(c, HS_STAT_SUM, i, sum[i], "0 of a neuron never active");
    }
    return HS_OK;
}

/* Wraps no more than the counts themselves: a sum past 2^63 is a fault. */
static hs_status check_histogram(const context *c)
{
    const hs_activation *a = c->a;
    const uint32_t l = c->layer, n = a->n_ff[l];
    if (!a->stat[HS_STAT_HISTOGRAM])
        return HS_OK;
    const int64_t *h = a->stat[HS_STAT_HISTOGRAM][l];
    uint64_t positions = 0, active = 0, counted = 0, product;
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = hs_add(counted, (uint64_t)a->count[l][i], &counted);
    for (uint32_t k = 0; k <= n; k++) {
        if (h[k] < 0)
            return fault(c, HS_STAT_HISTOGRAM, k, h[k], "at least 0");
        ok = ok && hs_add(positions, (uint64_t)h[k], &positions) &&
             hs_mul((uint64_t)h[k], k, &product) && hs_add(active, product, &active);
    }
    if (ok && positions == a->tokens && active == counted)
        return HS_OK;
    return hs_fail(c->err, c->code,
                   "blk.%" PRIu32 ".%s: does not add up to " HS_PROFILE_KEY_TOKENS " %" PRIu64
                   " and the neurons' counts",
                   l, names[HS_STAT_HISTOGRAM], a->tokens);
}

static hs_status check_generated(const context *c)
{
    const hs_activation *a = c->a;
    const uint32_t l = c->layer;
    if (!a->stat[HS_STAT_GENERATED])
        return HS_OK;
    const int64_t generated = (int64_t)a->tokens_generated,
                  given = (int64_t)(a->tokens - a->tokens_generated);
    for (uint32_t i = 0; i < a->n_ff[l]; i++) {
        const int64_t v = a->stat[HS_STAT_GENERATED][l][i], all = a->count[l][i];
        if (v < 0 || v > generated || v > all || all - v > given)
            return fault(c, HS_STAT_GENERATED, i, v, "a part of the count that the tokens allow");
    }
    return HS_OK;
}

static hs_status check_by_text(const context *c)
{
    const hs_activation *a = c->a;
    const uint32_t l = c->layer, n = a->n_ff[l];
    if (!a->stat[HS_STAT_BY_TEXT])
        return HS_OK;
    const int64_t *v = a->stat[HS_STAT_BY_TEXT][l];
    for (uint32_t i = 0; i < n; i++) {
        int64_t left = a->count[l][i];
        for (size_t t = 0; t < a->n_source; t++) {
            const int64_t x = v[t * n + i];
            if (x < 0 || x > left)
                return fault(c, HS_STAT_BY_TEXT, t * n + i, x, "a part of the count");
            left -= x;
        }
        if (left)
            return fault(c, HS_STAT_BY_TEXT, i, v[i], "the texts to add up to the count");
    }
    return HS_OK;
}

static hs_status check_coactive(const context *c)
{
    const hs_activation *a = c->a;
    const uint32_t l = c->layer, n = a->n_top;
    if (!a->stat[HS_STAT_COACTIVE])
        return HS_OK;
    const int32_t *top = a->top + (size_t)l * n;
    const int64_t *v = a->stat[HS_STAT_COACTIVE][l];
    for (uint32_t i = 0; i < n; i++)
        if (top[i] < 0 || (uint32_t)top[i] >= a->n_ff[l] || (i && top[i] <= top[i - 1]))
            return hs_fail(c->err, c->code,
                           "blk.%" PRIu32 "." HS_PROFILE_TOP ": entry %" PRIu32
                           ": expected rising neuron numbers below %" PRIu32 ", got %" PRId32,
                           l, i, a->n_ff[l], top[i]);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++) {
            const uint64_t at = (uint64_t)i * n + k;
            const int64_t own = a->count[l][top[i]];
            if (i == k && v[at] != own)
                return fault(c, HS_STAT_COACTIVE, at, v[at], "the neuron's count");
            if (v[at] < 0 || v[at] > own || v[at] != v[(uint64_t)k * n + i])
                return fault(c, HS_STAT_COACTIVE, at, v[at], "a symmetric part of the counts");
        }
    return HS_OK;
}

static hs_status check_thresholds(const context *c)
{
    const float *t = c->a->threshold + (size_t)c->layer * HS_MAGNITUDE_LEVELS;
    for (int i = 0; i < HS_MAGNITUDE_LEVELS; i++)
        if (!isfinite(t[i]) || t[i] < 0 || (i && t[i] < t[i - 1]))
            return hs_fail(c->err, c->code,
                           "blk.%" PRIu32 "." HS_PROFILE_THRESHOLD
                           ": entry %d: expected rising magnitudes, got %g",
                           c->layer, i, (double)t[i]);
    return HS_OK;
}

static hs_status check_magnitude(const context *c)
{
    const hs_activation *a = c->a;
    const uint32_t l = c->layer, n = a->n_ff[l];
    if (!a->stat[HS_STAT_MAGNITUDE])
        return HS_OK;
    const hs_status s = check_thresholds(c);
    if (s != HS_OK)
        return s;
    const int64_t *v = a->stat[HS_STAT_MAGNITUDE][l];
    for (uint64_t q = 0; q < HS_MAGNITUDE_LEVELS; q++)
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t at = q * n + i;
            if (v[at] < 0 || (uint64_t)v[at] > a->tokens || (q && v[at] > v[at - n]))
                return fault(c, HS_STAT_MAGNITUDE, at, v[at], "counts that fall with the level");
            if (hs_magnitude_level[q] == a->magnitude && v[at] != a->count[l][i])
                return fault(c, HS_STAT_MAGNITUDE, at, v[at], "the neuron's count");
        }
    const int64_t *kept = a->stat[HS_STAT_KEPT] ? a->stat[HS_STAT_KEPT][l] : NULL;
    for (int q = 0; kept && q < HS_MAGNITUDE_LEVELS; q++)
        if (kept[q] < 0 || (q && kept[q] > kept[q - 1]))
            return fault(c, HS_STAT_KEPT, (uint64_t)q, kept[q], "sums that fall with the level");
    return HS_OK;
}

static hs_status check_presence(const hs_activation *a, hs_status code, hs_err *err)
{
    if (a->tokens_generated > a->tokens)
        return hs_fail(err, code,
                       HS_PROFILE_KEY_GENERATED " %" PRIu64 " exceeds " HS_PROFILE_KEY_TOKENS
                                                " %" PRIu64,
                       a->tokens_generated, a->tokens);
    if (!a->tokens_generated != !a->stat[HS_STAT_GENERATED])
        return hs_fail(err, code, HS_PROFILE_KEY_GENERATED " %" PRIu64 " and %s: expected both",
                       a->tokens_generated, names[HS_STAT_GENERATED]);
    bool level = false;
    for (int q = 0; q < HS_MAGNITUDE_LEVELS; q++)
        level = level || hs_magnitude_level[q] == a->magnitude;
    if (a->magnitude && (!level || !a->stat[HS_STAT_MAGNITUDE]))
        return hs_fail(err, code,
                       HS_PROFILE_KEY_MAGNITUDE ": expected 50, 70, 80, 90 or 95 and "
                                                "blk.N.%s, got %" PRIu32,
                       names[HS_STAT_MAGNITUDE], a->magnitude);
    if (!a->magnitude && (a->stat[HS_STAT_MAGNITUDE] || a->stat[HS_STAT_KEPT]))
        return hs_fail(err, code, "blk.N.ffn_magnitude_...: expected " HS_PROFILE_KEY_MAGNITUDE);
    return HS_OK;
}

hs_status hs_activation_check_stats(const hs_activation *a, hs_status code, hs_err *err)
{
    hs_status s = check_presence(a, code, err);
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++) {
        const context c = {a, code, err, l};
        if ((s = check_sums(&c)) == HS_OK && (s = check_histogram(&c)) == HS_OK &&
            (s = check_generated(&c)) == HS_OK && (s = check_by_text(&c)) == HS_OK &&
            (s = check_coactive(&c)) == HS_OK)
            s = check_magnitude(&c);
    }
    return s;
}
