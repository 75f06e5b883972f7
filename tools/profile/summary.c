/* Sparsity statistics.  Counts become doubles for GSL: exact up to 2^53 positions, far beyond
 * what a profile can see. */
#include "tools/profile/summary.h"

#include "formats/cursor.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics.h>
#include <stdlib.h>

const int hs_summary_percent[HS_SUMMARY_SHARES] = {80, 90, 95};

/* G = 2 * sum(i * x_i) / (n * sum(x)) - (n + 1) / n, with x ascending and i from 1. */
static double gini(const double *x, size_t n, double total)
{
    if (!(total > 0))
        return 0;
    double weighted = 0;
    for (size_t i = 0; i < n; i++)
        weighted += (double)(i + 1) * (x[i] / total);
    const double g = (2 * weighted - (double)(n + 1)) / (double)n;
    return g > 0 ? g : 0;
}

static double share_of(const double *x, size_t n, double total, int percent)
{
    double sum = 0;
    size_t k = 0;
    while (k < n && sum * 100 < total * percent)
        sum += x[n - ++k];
    return (double)k / (double)n;
}

static bool hotter(const hs_summary_neuron *a, const hs_summary_neuron *b)
{
    return a->count > b->count;
}

static bool colder(const hs_summary_neuron *a, const hs_summary_neuron *b)
{
    return a->count < b->count;
}

/* Candidates come in order of layer and number: an equal one goes behind. */
static void insert(hs_summary_neuron *list, uint32_t *n, hs_summary_neuron c,
                   bool (*before)(const hs_summary_neuron *, const hs_summary_neuron *))
{
    uint32_t at = *n;
    while (at > 0 && before(&c, &list[at - 1]))
        at--;
    if (at == HS_SUMMARY_EXTREMES)
        return;
    if (*n < HS_SUMMARY_EXTREMES)
        (*n)++;
    for (uint32_t i = *n - 1; i > at; i--)
        list[i] = list[i - 1];
    list[at] = c;
}

static void find_extremes(hs_summary_part *p, const hs_activation *a, uint32_t l)
{
    for (uint32_t i = 0; i < a->n_ff[l]; i++) {
        const int64_t n = a->count[l][i];
        const hs_summary_neuron c = {l, i, n, (double)n / (double)a->tokens};
        insert(p->hot, &p->n_hot, c, hotter);
        if (n > 0)
            insert(p->cold, &p->n_cold, c, colder);
    }
}

/* `x` holds the part's n counts and is sorted here. */
static void describe(hs_summary_part *p, double *x, size_t n, uint64_t tokens)
{
    gsl_sort(x, 1, n);
    double total = 0;
    for (size_t i = 0; i < n; i++)
        total += x[i];
    p->neurons = n;
    while (p->dead < n && !(x[p->dead] > 0))
        p->dead++;
    p->active_share = gsl_stats_mean(x, 1, n) / (double)tokens;
    p->gini = gini(x, n, total);
    for (int i = 0; i < HS_SUMMARY_SHARES; i++)
        p->share[i] = share_of(x, n, total, hs_summary_percent[i]);
}

static void fill(hs_summary *s, const hs_activation *a, double *all)
{
    size_t at = 0;
    for (uint32_t l = 0; l < a->n_layer; l++) {
        for (uint32_t i = 0; i < a->n_ff[l]; i++)
            all[at + i] = (double)a->count[l][i];
        /* Sorting each layer in place leaves the model's counts complete. */
        describe(&s->layer[l], all + at, a->n_ff[l], a->tokens);
        find_extremes(&s->layer[l], a, l);
        find_extremes(&s->model, a, l);
        at += a->n_ff[l];
    }
    describe(&s->model, all, at, a->tokens);
}

hs_status hs_summary_new(hs_summary **out, const hs_activation *a, hs_err *err)
{
    *out = NULL;
    uint64_t n = 0, bytes;
    for (uint32_t l = 0; l < a->n_layer; l++)
        n += a->n_ff[l];
    if (!n)
        return hs_fail(err, HS_ERR_USAGE, "a profile without neurons");
    hs_summary *s = calloc(1, sizeof *s);
    double *all = hs_mul(n, sizeof *all, &bytes) ? malloc(bytes) : NULL;
    if (s)
        s->layer = calloc(a->n_layer, sizeof *s->layer);
    if (!s || !all || !s->layer) {
        free(all);
        hs_summary_free(s);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    }
    s->n_layer = a->n_layer;
    fill(s, a, all);
    free(all);
    *out = s;
    return HS_OK;
}

void hs_summary_free(hs_summary *s)
{
    if (!s)
        return;
    free(s->layer);
    free(s);
}
