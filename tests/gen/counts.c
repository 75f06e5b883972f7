/* An activation profile from a seed, for benchmarks of the solver: lognormal counts whose hottest
 * 26 % give 80 % of all activations, in a million tokens, 10 % of the neurons active.
 *
 *   counts [-hot] OUT LAYERS N_FF [SEED]
 *
 * With -hot, neuron l of layer l is active always, and no other one ever. */
#include "formats/activation.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

/* Uniform in (0, 1]. */
static double uniform(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(state >> 11) + 1) / 9007199254740993.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* The share of the hottest 26 % of a lognormal distribution is Phi(sigma - 0.6433). */
static const double sigma = 1.4849, active = 0.1;

static hs_status make(hs_activation **a, uint32_t n_layer, uint32_t n, hs_err *err)
{
    uint32_t *n_ff = calloc(n_layer, sizeof *n_ff);
    if (!n_ff)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    for (uint32_t l = 0; l < n_layer; l++)
        n_ff[l] = n;
    const hs_status s = hs_activation_new(a, n_layer, n_ff, err);
    free(n_ff);
    if (s != HS_OK)
        return s;
    (*a)->tokens = 1000000;
    for (uint32_t l = 0; l < n_layer; l++)
        for (uint32_t i = 0; i < n; i++)
            (*a)->count[l][i] =
                (int64_t)(1e6 * fmin(1, exp(log(active) - sigma * sigma / 2 + sigma * normal())));
    return HS_OK;
}

int main(int argc, char **argv)
{
    hs_activation *a = NULL;
    hs_err err = {0};
    const bool hot = argc > 1 && !strcmp(argv[1], "-hot");
    argc -= hot;
    argv += hot;
    if (argc < 4)
        return 2;
    state = argc > 4 ? strtoull(argv[4], NULL, 10) : 20240607;
    const uint32_t n_layer = (uint32_t)strtoul(argv[2], NULL, 10),
                   n_ff = (uint32_t)strtoul(argv[3], NULL, 10);
    hs_status s = n_layer && n_ff ? make(&a, n_layer, n_ff, &err) : HS_ERR_USAGE;
    for (uint32_t l = 0; s == HS_OK && hot && l < n_layer; l++)
        for (uint32_t i = 0; i < n_ff; i++)
            a->count[l][i] = i == l ? 1000000 : 0;
    if (s == HS_OK)
        s = hs_activation_write(a, argv[1], true, &err);
    hs_activation_free(a);
    if (s != HS_OK)
        fprintf(stderr, "counts: %s\n", err.msg);
    return s != HS_OK;
}
