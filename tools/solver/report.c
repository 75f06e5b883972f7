/* The report.  Bytes of a use are summed over layers; the file's ledger has them one by one. */
#include "tools/solver/report.h"

#include "runtime/cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const char *const uses[] = {"attention", "predictor", "ffn norm", "output",
                                   "kv cache",  "neurons",   "scratch"};
enum { N_USES = sizeof uses / sizeof *uses };

static uint64_t bytes_of(const hs_placement *p, const char *use, uint32_t *layers, uint32_t *of)
{
    uint64_t sum = 0;
    *layers = *of = 0;
    for (size_t i = 0; i < p->n_ledger; i++) {
        const hs_ledger_line *e = &p->ledger[i];
        if (strcmp(e->what, use) != 0)
            continue;
        sum += e->bytes;
        *layers += e->bytes > 0 && e->layer >= 0;
        *of += e->layer >= 0;
    }
    return sum;
}

static uint64_t neuron_bytes(const hs_placement *p, uint32_t l)
{
    for (size_t i = 0; i < p->n_ledger; i++)
        if (p->ledger[i].layer == (int32_t)l && !strcmp(p->ledger[i].what, "neurons"))
            return p->ledger[i].bytes;
    return 0;
}

/* Activations of the layer: all of them, and those of neurons on the device. */
static void served(const hs_solve_report *r, uint32_t l, double *on, double *all)
{
    const hs_placement_layer *y = &r->plan->layer[l];
    *on = *all = 0;
    for (uint32_t i = 0; i < y->n_ff; i++)
        *all += (double)r->profile->count[l][i];
    for (uint32_t i = 0; i < y->n_device; i++)
        *on += (double)r->profile->count[l][y->neuron[i]];
}

static double share(double on, double all) { return all > 0 ? on / all : 0; }

/* ---- text -------------------------------------------------------------------------------------
 */

static void print_layers(const hs_solve_report *r)
{
    const hs_placement *p = r->plan;
    double on_sum = 0, all_sum = 0;
    uint64_t n_sum = 0, of_sum = 0, bytes_sum = 0;
    char size[24];
    printf("layer  neurons on device       size   activations served\n");
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        double on, all;
        served(r, l, &on, &all);
        printf("%5" PRIu32 "  %7" PRIu32 " of %-7" PRIu32 "%10s   %6.2f %%\n", l, y->n_device,
               y->n_ff, hs_format_bytes(size, sizeof size, neuron_bytes(p, l)),
               100 * share(on, all));
        on_sum += on;
        all_sum += all;
        n_sum += y->n_device;
        of_sum += y->n_ff;
        bytes_sum += neuron_bytes(p, l);
    }
    printf("  all  %7" PRIu64 " of %-7" PRIu64 "%10s   %6.2f %%\n\n", n_sum, of_sum,
           hs_format_bytes(size, sizeof size, bytes_sum), 100 * share(on_sum, all_sum));
}

static void print_ledger(const hs_solve_report *r)
{
    const hs_placement *p = r->plan;
    char size[24];
    printf("device memory                 bytes\n");
    for (int i = 0; i < N_USES; i++) {
        uint32_t layers, of;
        const uint64_t b = bytes_of(p, uses[i], &layers, &of);
        const bool lacks =
            !of && !b && strcmp(uses[i], "output") != 0 && strcmp(uses[i], "scratch") != 0;
        if (lacks) /* a model without predictors */
            continue;
        printf("%-12s %22" PRIu64 "  %10s", uses[i], b, hs_format_bytes(size, sizeof size, b));
        if (of)
            printf("   %" PRIu32 " of %" PRIu32 " layers", layers, of);
        else if (!b)
            printf("   %s", strcmp(uses[i], "output") ? "nothing to work on" : "on the CPU");
        printf("\n");
    }
    const uint64_t unused = r->budget - p->plan_bytes;
    printf("%-12s %22" PRIu64 "  %10s\n", "unused", unused,
           hs_format_bytes(size, sizeof size, unused));
    printf("%-12s %22" PRIu64 "  %10s\n\n", "budget", r->budget,
           hs_format_bytes(size, sizeof size, r->budget));
}

void hs_report_text(const hs_solve_report *r)
{
    const hs_solve_result *x = r->result;
    print_layers(r);
    print_ledger(r);
    printf("impact    %" PRId64 " activations, at most %" PRId64 " are possible (gap %.3g %%)\n",
           x->value, x->bound, 100 * x->gap);
    printf("solver    %s, plan by %s, groups of %" PRIu32 " neurons, %.3f s\n", x->status,
           x->source, r->plan->group, x->seconds);
    if (r->output)
        printf("placement %s\n", r->output);
}

/* ---- JSON ---------------------------------------------------------------------------------------
 */

static json_t *layers_json(const hs_solve_report *r)
{
    json_t *a = json_array();
    for (uint32_t l = 0; l < r->plan->n_layer; l++) {
        double on, all;
        served(r, l, &on, &all);
        json_array_append_new(a, json_pack("{s:I, s:I, s:I, s:f}", "layer", (json_int_t)l,
                                           "device_neurons", (json_int_t)r->plan->layer[l].n_device,
                                           "bytes", (json_int_t)neuron_bytes(r->plan, l),
                                           "served_share", share(on, all)));
    }
    return a;
}

static json_t *ledger_json(const hs_solve_report *r)
{
    json_t *o = json_object();
    for (int i = 0; i < N_USES; i++) {
        uint32_t layers, of;
        json_object_set_new(o, uses[i],
                            json_integer((json_int_t)bytes_of(r->plan, uses[i], &layers, &of)));
    }
    json_object_set_new(o, "unused", json_integer((json_int_t)(r->budget - r->plan->plan_bytes)));
    return o;
}

hs_status hs_report_json(const hs_solve_report *r, hs_err *err)
{
    const hs_solve_result *x = r->result;
    json_t *o = json_pack("{s:o, s:I, s:I, s:f, s:f, s:s, s:s, s:o, s:n}", "layers", layers_json(r),
                          "objective", (json_int_t)x->value, "bound", (json_int_t)x->bound, "gap",
                          x->gap, "time_s", x->seconds, "solver_status", x->status, "source",
                          x->source, "ledger", ledger_json(r), "predicted_s");
    if (!o)
        return hs_fail(err, HS_ERR_NOMEM, "report: out of memory");
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    printf("\n");
    json_decref(o);
    return HS_OK;
}
