/* How well the host's and the device's parts of split layers overlap.
 *
 *   hybrid MODEL PLACEMENT DEVICE   (make bench-gpu)
 * prints the time of a token as it is, with the host's neurons left out, with the devices' left
 * out, and the first divided by the larger of the others: 1 is a perfect overlap. */
#include "runtime/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS = 32 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need(hs_status st, const hs_err *err)
{
    if (st) {
        fprintf(stderr, "bench_hybrid: %s\n", err->msg);
        exit(1);
    }
}

static double token_time(hs_session *s)
{
    hs_err err;
    int32_t id = 1;
    hs_session_reset(s);
    need(hs_session_eval(s, &id, 1, NULL, NULL, &err), &err);
    const double start = now();
    for (int i = 0; i < TOKENS; i++) {
        id = 2 + i;
        need(hs_session_eval(s, &id, 1, NULL, NULL, &err), &err);
    }
    return (now() - start) / TOKENS;
}

int main(int argc, char **argv)
{
    hs_err err;
    hs_model *m;
    hs_session *s;
    if (argc != 4) {
        printf("hybrid: needs a model and a placement; make bench-gpu gives it both\n");
        return 0;
    }
    need(hs_model_load(&m, argv[1], &err), &err);
    const hs_session_params p = {.placement = argv[2], .device = argv[3], .n_ctx = 256};
    need(hs_session_new(&s, m, &p, &err), &err);
    hs_split *sp = s->split;
    const double split = token_time(s);
    for (uint32_t l = 0; l < m->n_layer; l++)
        if (sp->layer[l].n_device)
            sp->layer[l].n_host = 0; /* the records still come, and sums of nothing go back */
    const double device = token_time(s);
    hs_session_free(s);
    /* The host's part: its neurons of split layers alone, every other layer left out. */
    need(hs_session_new(&s, m, &p, &err), &err);
    int32_t id = 1;
    need(hs_session_eval(s, &id, 1, NULL, NULL, &err), &err); /* fills x, its norm and the masks */
    const double start = now();
    for (int i = 0; i < TOKENS; i++)
        for (uint32_t l = 0; l < m->n_layer; l++)
            if (s->split->layer[l].n_device && s->split->layer[l].n_host)
                hs_neurons_host(s, l, s->xn, s->mode[l] == HS_SPARSITY_PREDICTED ? s->score : NULL,
                                1);
    const double host = (now() - start) / TOKENS;
    printf("| split token, ms | device part, ms | host neurons, ms | split / larger part |\n"
           "|---:|---:|---:|---:|\n| %.3f | %.3f | %.3f | %.2f |\n",
           split * 1e3, device * 1e3, host * 1e3, split / (device > host ? device : host));
    hs_session_free(s);
    hs_model_free(m);
    return 0;
}
