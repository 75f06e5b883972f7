/* Sorting and adding up for the plots. */
#include "tools/profile/curves.h"

#include <gsl/gsl_sort.h>
#include <stdlib.h>
#include <string.h>

static hs_status no_memory(hs_err *err) { return hs_fail(err, HS_ERR_NOMEM, "out of memory"); }

void hs_curves_free(hs_curves *c)
{
    if (!c)
        return;
    free(c->cumulative);
    free(c->rank);
    free(c->active);
    free(c->jaccard);
    free(c->served);
    free(c);
}

/* x is sorted here. */
static void cumulate(double *to, double *x, size_t n)
{
    gsl_sort(x, 1, n);
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        total += x[i];
    size_t k = 0;
    for (size_t p = 0; p < HS_CURVE_POINTS; p++) {
        const size_t want = (n * p + (HS_CURVE_POINTS - 2) / 2) / (HS_CURVE_POINTS - 1);
        while (k < want)
            sum += x[n - ++k];
        to[p] = total > 0 ? sum / total : 0;
    }
}

/* x ascending; a bin without a neuron of its own has its neighbour's. */
static void rank(double *to, const double *x, size_t n, uint64_t tokens)
{
    for (size_t b = 0; b < HS_RANK_BINS; b++) {
        const size_t first = n * b / HS_RANK_BINS;
        size_t last = n * (b + 1) / HS_RANK_BINS;
        last = last > first ? last : first + 1;
        double sum = 0;
        for (size_t i = first; i < last; i++)
            sum += x[n - 1 - i];
        to[b] = sum / (double)(last - first) / (double)tokens;
    }
}

static void spread(double *to, const int64_t *h, size_t n, uint64_t tokens)
{
    for (size_t k = 0; k <= n; k++)
        to[k * (HS_ACTIVE_BINS - 1) / n] += (double)h[k] / (double)tokens;
}

static hs_status fill(hs_curves *c, const hs_activation *a, hs_err *err)
{
    size_t n = 0, at = 0;
    for (uint32_t l = 0; l < a->n_layer; l++)
        n += a->n_ff[l];
    double *all = malloc(n * sizeof *all);
    if (!all)
        return no_memory(err);
    for (uint32_t l = 0; l < a->n_layer; l++) {
        for (uint32_t i = 0; i < a->n_ff[l]; i++)
            all[at + i] = (double)a->count[l][i];
        cumulate(c->cumulative + (size_t)l * HS_CURVE_POINTS, all + at, a->n_ff[l]);
        rank(c->rank + (size_t)l * HS_RANK_BINS, all + at, a->n_ff[l], a->tokens);
        if (c->active)
            spread(c->active + (size_t)l * HS_ACTIVE_BINS, a->stat[HS_STAT_HISTOGRAM][l],
                   a->n_ff[l], a->tokens);
        at += a->n_ff[l];
    }
    cumulate(c->cumulative + (size_t)a->n_layer * HS_CURVE_POINTS, all, n);
    free(all);
    return HS_OK;
}

/* ---- texts ----------------------------------------------------------------------------- */

typedef struct ranked {
    int64_t count;
    size_t id;
} ranked;

static int hotter_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

hs_status hs_curves_hot(bool *hot, const int64_t *count, size_t n, int percent, hs_err *err)
{
    ranked *r = malloc(n * sizeof *r);
    if (!r)
        return no_memory(err);
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        r[i] = (ranked){count[i], i};
        total += (double)count[i];
        hot[i] = false;
    }
    qsort(r, n, sizeof *r, hotter_first);
    for (size_t i = 0; i < n && sum * 100 < total * percent; i++) {
        hot[r[i].id] = true;
        sum += (double)r[i].count;
    }
    free(r);
    return HS_OK;
}

typedef struct overlap {
    double *both, *either, *served; /* [n_text][n_text] */
    double *total;                  /* [n_text] */
} overlap;

static void compare(overlap *o, const int64_t *count, const bool *hot, size_t n, size_t texts)
{
    for (size_t i = 0; i < texts; i++)
        for (size_t j = 0; j < texts; j++) {
            double both = 0, either = 0, served = 0, total = 0;
            const bool *x = hot + i * n, *y = hot + j * n;
            for (size_t k = 0; k < n; k++) {
                const double v = (double)count[j * n + k];
                both += x[k] && y[k];
                either += x[k] || y[k];
                served += x[k] ? v : 0;
                total += v;
            }
            o->both[i * texts + j] += both;
            o->either[i * texts + j] += either;
            o->served[i * texts + j] += served;
            if (i == 0)
                o->total[j] += total;
        }
}

static hs_status overlap_layers(overlap *o, const hs_activation *a, hs_err *err)
{
    hs_status s = HS_OK;
    const size_t texts = a->n_source;
    if (!a->stat[HS_STAT_BY_TEXT])
        return HS_OK;
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++) {
        const size_t n = a->n_ff[l];
        const int64_t *count = a->stat[HS_STAT_BY_TEXT][l];
        bool *hot = calloc(n, (texts + 1) * sizeof *hot);
        if (!hot)
            return no_memory(err);
        for (size_t t = 0; s == HS_OK && t < texts; t++)
            s = hs_curves_hot(hot + t * n, count + t * n, n, 80, err);
        if (s == HS_OK)
            compare(o, count, hot, n, texts);
        free(hot);
    }
    return s;
}

static hs_status compare_texts(hs_curves *c, const hs_activation *a, hs_err *err)
{
    const size_t n = c->n_text;
    overlap o = {.both = c->jaccard,
                 .either = calloc(n * n, sizeof(double)),
                 .served = c->served,
                 .total = calloc(n, sizeof(double))};
    hs_status s = o.either && o.total ? overlap_layers(&o, a, err) : no_memory(err);
    for (size_t i = 0; s == HS_OK && i < n * n; i++) {
        c->jaccard[i] = o.either[i] > 0 ? o.both[i] / o.either[i] : 0;
        c->served[i] = o.total[i % n] > 0 ? o.served[i] / o.total[i % n] : 0;
    }
    free(o.either);
    free(o.total);
    return s;
}

hs_status hs_curves_new(hs_curves **out, const hs_activation *a, hs_err *err)
{
    *out = NULL;
    hs_curves *c = calloc(1, sizeof *c);
    if (!c)
        return no_memory(err);
    const size_t layers = c->n_layer = a->n_layer;
    c->n_text = a->stat[HS_STAT_BY_TEXT] ? a->n_source : 0;
    c->cumulative = calloc((layers + 1) * HS_CURVE_POINTS, sizeof *c->cumulative);
    c->rank = calloc(layers * HS_RANK_BINS, sizeof *c->rank);
    bool ok = c->cumulative && c->rank;
    if (a->stat[HS_STAT_HISTOGRAM])
        ok = (c->active = calloc(layers * HS_ACTIVE_BINS, sizeof *c->active)) && ok;
    if (c->n_text) {
        ok = (c->jaccard = calloc(c->n_text * c->n_text, sizeof *c->jaccard)) && ok;
        ok = (c->served = calloc(c->n_text * c->n_text, sizeof *c->served)) && ok;
    }
    hs_status s = ok ? fill(c, a, err) : no_memory(err);
    if (s == HS_OK && c->n_text)
        s = compare_texts(c, a, err);
    if (s != HS_OK) {
        hs_curves_free(c);
        return s;
    }
    *out = c;
    return HS_OK;
}
