/* Means and quantiles of one layer. */
#include "tools/profile/detail.h"

#include <math.h>

/* The smallest k that at least `percent` % of the positions do not exceed. */
double hs_detail_quantile(const hs_activation *a, uint32_t layer, int percent)
{
    if (!a->stat[HS_STAT_HISTOGRAM])
        return (double)NAN;
    const int64_t *h = a->stat[HS_STAT_HISTOGRAM][layer];
    const double want = (double)a->tokens * percent / 100;
    double sum = 0;
    uint32_t k = 0;
    for (; k < a->n_ff[layer]; k++)
        if ((sum += (double)h[k]) >= want)
            break;
    return (double)k / a->n_ff[layer];
}

double hs_detail_bytes(double active) { return (1 + 2 * active) / 3; }

static double total(const int64_t *v, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)v[i];
    return sum;
}

static double per(double sum, double n) { return n > 0 ? sum / n : (double)NAN; }

static void levels(hs_detail *d, const hs_activation *a, uint32_t l)
{
    const uint32_t n = a->n_ff[l];
    const double all = (double)a->tokens * n;
    for (int q = 0; q < HS_MAGNITUDE_LEVELS; q++) {
        d->threshold[q] = d->active[q] = d->kept[q] = (double)NAN;
        if (!a->magnitude)
            continue;
        d->threshold[q] = (double)a->threshold[(size_t)l * HS_MAGNITUDE_LEVELS + (size_t)q];
        d->active[q] = per(total(a->stat[HS_STAT_MAGNITUDE][l] + (size_t)q * n, n), all);
        if (a->stat[HS_STAT_KEPT] && a->stat[HS_STAT_SQUARES])
            d->kept[q] =
                per((double)a->stat[HS_STAT_KEPT][l][q], total(a->stat[HS_STAT_SQUARES][l], n));
    }
}

void hs_detail_layer(hs_detail *d, const hs_activation *a, uint32_t layer)
{
    const uint32_t n = a->n_ff[layer];
    const double all = (double)a->tokens * n, generated = (double)a->tokens_generated * n;
    const double sum_unit = 1 << HS_ACTIVATION_SUM_BITS,
                 square_unit = 1 << HS_ACTIVATION_SQUARE_BITS;
    d->low = hs_detail_quantile(a, layer, 5);
    d->median = hs_detail_quantile(a, layer, 50);
    d->high = hs_detail_quantile(a, layer, 95);
    int64_t **stat = a->stat[HS_STAT_SUM];
    d->mean = stat ? total(stat[layer], n) / all / sum_unit : (double)NAN;
    stat = a->stat[HS_STAT_SQUARES];
    d->mean_square = stat ? total(stat[layer], n) / all / square_unit : (double)NAN;
    stat = a->stat[HS_STAT_GENERATED];
    const double own = stat ? total(stat[layer], n) : 0;
    d->given = per(total(a->count[layer], n) - own, all - generated);
    d->generated = per(own, generated);
    levels(d, a, layer);
}
