/* The report.  The ledger is shown by layer and use, and summed up by use. */
#include "tools/solver/report.h"

#include "runtime/cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

const char *const hs_report_uses[] = {"attention", "predictor", "ffn norm", "output",
                                      "kv cache",  "neurons",   "scratch"};

uint64_t hs_report_use(const hs_placement *p, const char *use, uint32_t *layers, uint32_t *of)
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

uint64_t hs_report_layer(const hs_placement *p, uint32_t l, const char *use)
{
    for (size_t i = 0; i < p->n_ledger; i++)
        if (p->ledger[i].layer == (int32_t)l && !strcmp(p->ledger[i].what, use))
            return p->ledger[i].bytes;
    return 0;
}

/* Activations of the layer: all of them, and those of neurons on the device. */
void hs_report_served(const hs_job *r, uint32_t l, double *on, double *all)
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

/* Uses of a layer's own, in the order of the table's columns. */
static const char *const columns[] = {"attention", "predictor", "ffn norm", "kv cache", "neurons"};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static void print_row(const hs_placement *p, uint32_t l)
{
    char size[24];
    for (int i = 0; i < N_COLUMNS; i++) {
        const uint64_t b = hs_report_layer(p, l, columns[i]);
        printf("%11s", b ? hs_format_bytes(size, sizeof size, b) : "-");
    }
}

static void print_layers(const hs_job *r)
{
    const hs_placement *p = r->plan;
    double on_sum = 0, all_sum = 0;
    uint64_t n_sum = 0, of_sum = 0;
    char size[24];
    printf("layer  %sneurons on device    attention  predictor   ffn norm   kv cache    neurons"
           "   activations served\n",
           r->of ? "device  " : "");
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        double on, all;
        hs_report_served(r, l, &on, &all);
        printf("%5" PRIu32 "  ", l);
        if (r->of)
            printf("%6" PRIu32 "  ", (uint32_t)r->belongs[l]);
        printf("%7" PRIu32 " of %-7" PRIu32, y->n_device, y->n_ff);
        print_row(p, l);
        printf("   %6.2f %%\n", 100 * share(on, all));
        on_sum += on;
        all_sum += all;
        n_sum += y->n_device;
        of_sum += y->n_ff;
    }
    printf("  all  %s%7" PRIu64 " of %-7" PRIu64, r->of ? "        " : "", n_sum, of_sum);
    for (int i = 0; i < N_COLUMNS; i++) {
        uint32_t layers, of;
        const uint64_t b = hs_report_use(p, columns[i], &layers, &of);
        printf("%11s", b ? hs_format_bytes(size, sizeof size, b) : "-");
    }
    printf("   %6.2f %%\n\n", 100 * share(on_sum, all_sum));
}

static void print_ledger(const hs_job *r)
{
    const hs_placement *p = r->plan;
    char size[24];
    printf("device memory                 bytes\n");
    for (int i = 0; i < HS_REPORT_USES; i++) {
        uint32_t layers, of;
        const uint64_t b = hs_report_use(p, hs_report_uses[i], &layers, &of);
        const bool lacks = !of && !b && strcmp(hs_report_uses[i], "output") != 0 &&
                           strcmp(hs_report_uses[i], "scratch") != 0;
        if (lacks) /* a model without predictors */
            continue;
        printf("%-12s %22" PRIu64 "  %10s", hs_report_uses[i], b,
               hs_format_bytes(size, sizeof size, b));
        if (of)
            printf("   %" PRIu32 " of %" PRIu32 " layers", layers, of);
        else if (!b)
            printf("   %s",
                   strcmp(hs_report_uses[i], "output") ? "nothing to work on" : "on the CPU");
        printf("\n");
    }
    const uint64_t unused = r->o->budget - p->plan_bytes;
    printf("%-12s %22" PRIu64 "  %10s\n", "unused", unused,
           hs_format_bytes(size, sizeof size, unused));
    printf("%-12s %22" PRIu64 "  %10s\n\n", "budget", r->o->budget,
           hs_format_bytes(size, sizeof size, r->o->budget));
}

/* What each of several devices holds. */
static void print_devices(const hs_job *r)
{
    const hs_placement *p = r->plan;
    char size[3][24];
    printf("device                                    budget      planned       unused  layers\n");
    for (uint32_t d = 0; d < p->n_devices; d++) {
        uint32_t layers = 0;
        for (uint32_t l = 0; l < p->n_layer; l++)
            layers += r->belongs[l] == d;
        const char *name = r->machine ? r->machine->device[d].name : "";
        printf("%6" PRIu32 "  %-28.28s%12s %12s %12s  %6" PRIu32 "%s\n", d, name,
               hs_format_bytes(size[0], sizeof size[0], p->device_capacity[d]),
               hs_format_bytes(size[1], sizeof size[1], p->device_bytes[d]),
               hs_format_bytes(size[2], sizeof size[2], p->device_capacity[d] - p->device_bytes[d]),
               layers, p->output && p->output_device == d ? " and the head" : "");
    }
    printf("\n");
}

static void print_time(const hs_job *r, const char *what, double step_s)
{
    const double cpu = r->step_s[HS_BASE_CPU];
    printf("  %-22s %10.3f ms %8.2f x\n", what, 1e3 * step_s / (double)r->o->batch,
           step_s > 0 ? cpu / step_s : 0);
}

static void print_times(const hs_job *r)
{
    const hs_machine *m = r->machine;
    printf("predicted time of a token");
    for (uint32_t d = 0; d < r->plan->n_devices; d++)
        printf("%s %s", d ? " +" : ",", m->device[d].name[0] ? m->device[d].name : "device");
    if (r->o->batch > 1)
        printf(", %d tokens together", (int)r->o->batch);
    printf("\n");
    print_time(r, "CPU only", r->step_s[HS_BASE_CPU]);
    print_time(r, "whole layers", r->step_s[HS_BASE_LAYERS]);
    print_time(r, "neurons at random", r->step_s[HS_BASE_RANDOM]);
    print_time(r, "greedy", r->step_s[HS_BASE_GREEDY]);
    print_time(r, "this placement", r->plan_s);
    printf("\n");
}

static void print_proof(const hs_job *r)
{
    const hs_solve_result *x = &r->result;
    const double ms = 1e3 / (double)r->o->batch;
    if (r->latency)
        printf("latency   %.6g ms a token, at least %.6g ms are needed (gap %.3g %%)\n",
               ms * r->plan->objective_value, ms * r->plan->bound, 100 * r->plan->gap);
    else
        printf("impact    %" PRId64 " activations, at most %" PRId64
               " are possible (gap %.3g %%)\n",
               x->value, x->bound, 100 * x->gap);
    const char *unit = r->latency ? " ps saved" : "";
    printf("bounds    %" PRId64 "%s by Lagrange", x->lagrange_bound, unit);
    if (x->glpk_bound >= 0)
        printf(", %" PRId64 "%s by GLPK", x->glpk_bound, unit);
    printf(", %" PRId64 "%s proven\n", x->bound, unit);
}

void hs_report_text(const hs_job *r)
{
    const hs_solve_result *x = &r->result;
    print_layers(r);
    print_ledger(r);
    if (r->of)
        print_devices(r);
    if (r->machine)
        print_times(r);
    print_proof(r);
    printf("solver    %s, plan by %s, groups of %" PRIu32 " neurons, %.3f s\n", x->status,
           x->source, r->plan->group, x->seconds);
    if (!r->o->dry_run)
        printf("placement %s\n", r->o->output);
}

/* ---- JSON ---------------------------------------------------------------------------------------
 */

static json_t *layers_json(const hs_job *r)
{
    json_t *a = json_array();
    for (uint32_t l = 0; l < r->plan->n_layer; l++) {
        double on, all;
        hs_report_served(r, l, &on, &all);
        json_t *row = json_pack("{s:I, s:I, s:I, s:f}", "layer", (json_int_t)l, "device_neurons",
                                (json_int_t)r->plan->layer[l].n_device, "bytes",
                                (json_int_t)hs_report_layer(r->plan, l, "neurons"), "served_share",
                                share(on, all));
        if (r->of)
            json_object_set_new(row, "device", json_integer(r->belongs[l]));
        json_array_append_new(a, row);
    }
    return a;
}

/* Of several devices: budget and bytes, and what they are for. */
static json_t *devices_json(const hs_job *r)
{
    const hs_placement *p = r->plan;
    json_t *a = json_array();
    for (uint32_t d = 0; d < p->n_devices; d++) {
        json_t *o =
            json_pack("{s:I, s:I, s:I, s:I}", "device", (json_int_t)d, "budget",
                      (json_int_t)p->device_capacity[d], "planned", (json_int_t)p->device_bytes[d],
                      "unused", (json_int_t)(p->device_capacity[d] - p->device_bytes[d]));
        for (int u = 0; u < HS_REPORT_USES; u++) {
            uint64_t sum = 0;
            for (size_t i = 0; i < p->n_ledger; i++)
                if (p->ledger[i].device == (int32_t)d &&
                    !strcmp(p->ledger[i].what, hs_report_uses[u]))
                    sum += p->ledger[i].bytes;
            json_object_set_new(o, hs_report_uses[u], json_integer((json_int_t)sum));
        }
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *ledger_json(const hs_job *r)
{
    json_t *o = json_object();
    for (int i = 0; i < HS_REPORT_USES; i++) {
        uint32_t layers, of;
        json_object_set_new(
            o, hs_report_uses[i],
            json_integer((json_int_t)hs_report_use(r->plan, hs_report_uses[i], &layers, &of)));
    }
    json_object_set_new(o, "unused",
                        json_integer((json_int_t)(r->o->budget - r->plan->plan_bytes)));
    return o;
}

/* Every line of the file's ledger. */
static json_t *lines_json(const hs_placement *p)
{
    json_t *a = json_array();
    for (size_t i = 0; i < p->n_ledger; i++) {
        const hs_ledger_line *e = &p->ledger[i];
        json_array_append_new(
            a, json_pack("{s:s, s:o, s:I, s:f, s:I}", "use", e->what, "layer",
                         e->layer < 0 ? json_null() : json_integer((json_int_t)e->layer), "bytes",
                         (json_int_t)e->bytes, "mib", (double)e->bytes / 1048576, "device",
                         (json_int_t)e->device));
    }
    return a;
}

static json_t *times_json(const hs_job *r)
{
    if (!r->machine)
        return json_null();
    const double batch = (double)r->o->batch;
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "with", r->plan_s / batch, "without",
                     r->step_s[HS_BASE_CPU] / batch, "layers", r->step_s[HS_BASE_LAYERS] / batch,
                     "random", r->step_s[HS_BASE_RANDOM] / batch, "greedy",
                     r->step_s[HS_BASE_GREEDY] / batch);
}

hs_status hs_report_json(const hs_job *r, FILE *to, hs_err *err)
{
    const hs_solve_result *x = &r->result;
    const hs_placement *p = r->plan;
    json_t *o = json_pack(
        "{s:o, s:o, s:o, s:f, s:f, s:s, s:s, s:I, s:o, s:o, s:o, s:o}", "layers", layers_json(r),
        "objective",
        r->latency ? json_real(p->objective_value) : json_integer((json_int_t)x->value), "bound",
        r->latency ? json_real(p->bound) : json_integer((json_int_t)x->bound), "gap", p->gap,
        "time_s", x->seconds, "solver_status", x->status, "source", x->source, "lagrange_bound",
        (json_int_t)x->lagrange_bound, "glpk_bound",
        x->glpk_bound < 0 ? json_null() : json_integer((json_int_t)x->glpk_bound), "ledger",
        ledger_json(r), "ledger_lines", lines_json(p), "predicted_s", times_json(r));
    if (!o)
        return hs_fail(err, HS_ERR_NOMEM, "report: out of memory");
    if (r->of)
        json_object_set_new(o, "devices", devices_json(r));
    json_dumpf(o, to, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', to);
    json_decref(o);
    return HS_OK;
}
