/* The report as a folder. */
#include "runtime/cli_outdir.h"
#include "runtime/cli_page.h"
#include "tools/solver/report.h"
#include "tools/solver/simulate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MARK "report.html"

enum { STEPS = 16, BAR = 50, N_TIMES = HS_N_BASELINES + 2, T_IMPACT = HS_N_BASELINES, T_PLAN };

static const char *const time_name[N_TIMES] = {"CPU only", "whole layers", "neurons at random",
                                               "greedy",   "impact plan",  "this placement"};

typedef struct page {
    hs_job *r;
    const char *dir;
    double predicted[N_TIMES]; /* seconds of a token; 0: not known */
    double drawn[N_TIMES];     /* the same, activations drawn by lot */
    bool plots;
} page;

/* ---- times ---------------------------------------------------------------------------------- */

/* The impact plan beside a latency plan for one device: of the same job, solved again. */
static hs_status impact_plan(hs_job *r, hs_job *y, hs_job_options *o, hs_err *err)
{
    *o = *r->o;
    o->objective = "impact";
    o->report = NULL;
    o->cli.quiet = true;
    *y = (hs_job){.o = o,
                  .model = r->model,
                  .info = r->info,
                  .profile = r->profile,
                  .machine = r->machine,
                  .order = r->order};
    y->min_neurons = calloc((size_t)r->info.n_layer + 1, sizeof *y->min_neurons);
    if (!y->min_neurons)
        return hs_fail(err, HS_ERR_NOMEM, "report: out of memory");
    for (uint32_t l = 0; l < r->info.n_layer; l++)
        y->min_neurons[l] = (uint32_t)o->min_neurons;
    const hs_status s = hs_job_prepare(y, err);
    return s == HS_OK ? hs_job_solve(y, err) : s;
}

static hs_status draw(const hs_job *y, const hs_placement *impact, double *out, hs_err *err)
{
    const hs_placement *p[N_TIMES];
    hs_simulated m[N_TIMES];
    size_t n = 0;
    for (int i = 0; i < HS_N_BASELINES; i++)
        p[n++] = y->base[i];
    p[n++] = impact ? impact : y->plan;
    p[n++] = y->plan;
    const hs_status s = hs_simulate(&y->cost, p, n, STEPS, m, err);
    for (int i = 0; s == HS_OK && i < N_TIMES; i++)
        out[i] = m[i].mean;
    return s;
}

/* Of several devices: what each saves, taken from the CPU's time. */
static hs_status time_devices(page *g, hs_err *err)
{
    hs_job *r = g->r;
    hs_status s = HS_OK;
    double cpu = 0, saved[N_TIMES] = {0};
    for (uint32_t d = 0; s == HS_OK && d < r->o->n_devices; d++) {
        double one[N_TIMES] = {0};
        s = draw(&r->of[d], NULL, one, err);
        cpu = one[HS_BASE_CPU];
        for (int i = 0; i < N_TIMES; i++)
            saved[i] += cpu - one[i];
    }
    for (int i = 0; i < N_TIMES; i++)
        g->drawn[i] = i == T_IMPACT ? 0 : cpu - saved[i];
    return s;
}

static hs_status take_times(page *g, hs_err *err)
{
    hs_job *r = g->r;
    if (!r->machine)
        return HS_OK;
    for (int i = 0; i < HS_N_BASELINES; i++)
        g->predicted[i] = r->step_s[i];
    g->predicted[T_PLAN] = r->plan_s;
    hs_status s = HS_OK;
    if (r->of) {
        s = time_devices(g, err);
    } else {
        hs_job other = {0};
        hs_job_options o;
        if (r->latency)
            s = impact_plan(r, &other, &o, err);
        g->predicted[T_IMPACT] = r->latency ? other.plan_s : r->plan_s;
        if (s == HS_OK)
            s = draw(r, other.plan, g->drawn, err);
        hs_job_part_fini(&other);
    }
    for (int i = 0; i < N_TIMES; i++) {
        g->predicted[i] /= (double)r->o->batch;
        g->drawn[i] /= (double)r->o->batch;
    }
    return s;
}

/* ---- files beside the page ------------------------------------------------------------------ */

static void layers_csv(FILE *f, const page *g)
{
    const hs_placement *p = g->r->plan;
    fputs("layer,device,neurons,on_device,share_percent,served_percent,attention,predictor,"
          "ffn_norm,kv_cache,neuron_bytes\n",
          f);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        double on, all;
        hs_report_served(g->r, l, &on, &all);
        fprintf(f, "%" PRIu32 ",%d,%" PRIu32 ",%" PRIu32 ",%.6g,%.6g", l,
                g->r->belongs ? g->r->belongs[l] : 0, y->n_ff, y->n_device,
                100.0 * y->n_device / y->n_ff, all > 0 ? 100 * on / all : 0);
        static const char *const use[] = {"attention", "predictor", "ffn norm", "kv cache",
                                          "neurons"};
        for (size_t i = 0; i < sizeof use / sizeof *use; i++)
            fprintf(f, ",%" PRIu64, hs_report_layer(p, l, use[i]));
        fputc('\n', f);
    }
}

static void ledger_csv(FILE *f, const page *g)
{
    const hs_placement *p = g->r->plan;
    fputs("use,layer,device,bytes,mib\n", f);
    for (size_t i = 0; i < p->n_ledger; i++) {
        const hs_ledger_line *e = &p->ledger[i];
        fprintf(f, "%s,", e->what);
        if (e->layer >= 0)
            fprintf(f, "%" PRId32, e->layer);
        fprintf(f, ",%" PRId32 ",%" PRIu64 ",%.9g\n", e->device, e->bytes,
                (double)e->bytes / 1048576);
    }
}

static void times_csv(FILE *f, const page *g)
{
    fputs("plan,predicted_ms,drawn_ms\n", f);
    for (int i = 0; i < N_TIMES; i++)
        if (g->predicted[i] > 0)
            fprintf(f, "%s,%.9g,%.9g\n", time_name[i], 1e3 * g->predicted[i], 1e3 * g->drawn[i]);
}

static hs_status write_csv(const page *g, const char *name, void (*put)(FILE *, const page *),
                           hs_err *err)
{
    FILE *f;
    const hs_status s = hs_page_file(&f, g->dir, name, err);
    if (s != HS_OK)
        return s;
    put(f, g);
    return hs_page_close(f, g->dir, name, err);
}

static hs_status write_json(const page *g, hs_err *err)
{
    FILE *f;
    hs_status s = hs_page_file(&f, g->dir, "plan.json", err);
    if (s != HS_OK)
        return s;
    s = hs_report_json(g->r, f, err);
    const hs_status closed = hs_page_close(f, g->dir, "plan.json", s == HS_OK ? err : NULL);
    return s == HS_OK ? closed : s;
}

/* ---- plots ---------------------------------------------------------------------------------- */

static void script(FILE *f, const page *g)
{
    const uint32_t n = g->r->plan->n_layer;
    hs_page_script(f);
    hs_page_script_plot(f, "layers", "Neurons on the device and activations they serve", 480);
    fprintf(f,
            "set xlabel 'layer'\nset ylabel 'share (%%)'\nset xrange [-0.6:%g]\n"
            "set yrange [0:105]\nset key outside bottom center horizontal\n"
            "set style fill solid 0.8 noborder\nset boxwidth 0.8\n"
            "plot 'layers.csv' using 1:6 with boxes lc rgb '#f2a65a' title 'activations served', "
            "\\\n  '' using 1:5 with boxes lc rgb '#8e2f6f' title 'neurons on the device'\n",
            (double)n - 0.4);
    if (!g->r->machine)
        return;
    hs_page_script_plot(f, "times", "Time of a token", 420);
    fputs("set xlabel ''\nset ylabel 'ms'\nset xrange [*:*]\nset yrange [0:*]\n"
          "set style data histograms\nset style histogram clustered gap 1\nset boxwidth 0.9\n"
          "plot 'times.csv' using 2:xtic(1) lc rgb '#f2a65a' title 'predicted', \\\n"
          "  '' using 3 lc rgb '#8e2f6f' title 'activations drawn by lot'\n",
          f);
}

static hs_status draw_plots(page *g, hs_err *err)
{
    static const char *const name[] = {"layers", "times"};
    hs_err why = {0};
    FILE *f;
    hs_status s = hs_page_file(&f, g->dir, HS_PAGE_SCRIPT, err);
    if (s != HS_OK)
        return s;
    script(f, g);
    fputs("set output\n", f);
    s = hs_page_close(f, g->dir, HS_PAGE_SCRIPT, err);
    if (s != HS_OK)
        return s;
    g->plots = hs_page_draw(g->dir, name, g->r->machine ? 2 : 1, &why);
    if (!g->plots)
        hs_cli_note(&g->r->o->cli, "the report has plots in text: %s", why.msg);
    return HS_OK;
}

static void bar(FILE *f, double share)
{
    const int n = (int)(share * BAR + 0.5);
    for (int i = 0; i < n && i < BAR; i++)
        fputc('#', f);
    fputc('\n', f);
}

static void text_layers(FILE *f, const page *g)
{
    fputs("<pre>\nlayer  activations served by the device\n", f);
    for (uint32_t l = 0; l < g->r->plan->n_layer; l++) {
        double on, all;
        hs_report_served(g->r, l, &on, &all);
        const double share = all > 0 ? on / all : 0;
        fprintf(f, "%5" PRIu32 "  %6.2f %% ", l, 100 * share);
        bar(f, share);
    }
    fputs("</pre>\n", f);
}

static void text_times(FILE *f, const page *g)
{
    fputs("<pre>\n", f);
    for (int i = 0; i < N_TIMES; i++)
        if (g->predicted[i] > 0) {
            fprintf(f, "%-18s %10.3f ms ", time_name[i], 1e3 * g->predicted[i]);
            bar(f, g->predicted[i] / g->predicted[HS_BASE_CPU]);
        }
    fputs("</pre>\n", f);
}

/* ---- the page ------------------------------------------------------------------------------- */

static void put_facts(FILE *f, const hs_job *r)
{
    const hs_placement *p = r->plan;
    char size[2][24];
    fputs("<p>Model ", f);
    hs_page_text(f, r->o->model);
    fprintf(f, " (%s), ", p->fingerprint);
    fprintf(f, "objective %s: %s of %s planned", p->objective,
            hs_format_bytes(size[0], sizeof size[0], p->plan_bytes),
            hs_format_bytes(size[1], sizeof size[1], r->o->budget));
    if (r->of)
        fprintf(f, " on %" PRIu32 " devices", p->n_devices);
    fprintf(f, ", context %" PRIu32 ", groups of %" PRIu32 " neurons.</p>\n<p>", p->n_ctx,
            p->group);
    if (r->latency)
        fprintf(f, "A step takes %.6g ms; %.6g ms are proven to be needed",
                1e3 * p->objective_value, 1e3 * p->bound);
    else
        fprintf(f, "%.0f activations are served; %.0f are proven to be the most",
                p->objective_value, p->bound);
    fprintf(f, " (gap %.3g %%, %s, plan by %s).</p>\n", 100 * p->gap, r->result.status,
            r->result.source);
}

static void put_times(FILE *f, const page *g)
{
    const hs_job *r = g->r;
    fputs("<h2>Time of a token</h2>\n<p>Machine: ", f);
    hs_page_text(f, r->machine->cpu.name[0] ? r->machine->cpu.name : "CPU");
    for (uint32_t d = 0; d < r->plan->n_devices; d++) {
        fputs(" + ", f);
        hs_page_text(f, r->machine->device[d].name[0] ? r->machine->device[d].name : "device");
    }
    fprintf(f, ", from ");
    hs_page_text(f, r->o->machine);
    fputs("</p>\n<table><tr><th class=\"l\">plan</th><th>predicted, ms</th><th>against the CPU</th>"
          "<th>drawn by lot, ms</th></tr>\n",
          f);
    for (int i = 0; i < N_TIMES; i++)
        if (g->predicted[i] > 0)
            fprintf(f,
                    "<tr><td class=\"l\">%s</td><td>%.3f</td><td>%.2f x</td><td>%.3f</td></tr>\n",
                    time_name[i], 1e3 * g->predicted[i],
                    g->predicted[HS_BASE_CPU] / g->predicted[i], 1e3 * g->drawn[i]);
    fprintf(
        f,
        "</table>\n<p class=\"note\">Drawn by lot: the mean of %d steps in which each neuron is "
        "active by its share of the profile, times a liveliness of its layer from 0.7 to 1.3; "
        "costs are the predicted ones. Nothing here is measured.</p>\n",
        STEPS);
}

static void put_ledger(FILE *f, const hs_job *r)
{
    const hs_placement *p = r->plan;
    fputs("<h2>Device memory</h2>\n<table><tr><th class=\"l\">use</th><th>bytes</th><th>MiB</th>"
          "<th>layers</th></tr>\n",
          f);
    for (int i = 0; i < HS_REPORT_USES; i++) {
        uint32_t layers, of;
        const uint64_t b = hs_report_use(p, hs_report_uses[i], &layers, &of);
        fprintf(f, "<tr><td class=\"l\">%s</td><td>%" PRIu64 "</td><td>%.2f</td><td>",
                hs_report_uses[i], b, (double)b / 1048576);
        if (of)
            fprintf(f, "%" PRIu32 " of %" PRIu32, layers, of);
        fputs("</td></tr>\n", f);
    }
    const uint64_t unused = r->o->budget - p->plan_bytes;
    fprintf(f,
            "<tr><td class=\"l\">unused</td><td>%" PRIu64 "</td><td>%.2f</td><td></td></tr>\n"
            "<tr><td class=\"l\">budget</td><td>%" PRIu64 "</td><td>%.2f</td><td></td></tr>\n",
            unused, (double)unused / 1048576, r->o->budget, (double)r->o->budget / 1048576);
    for (uint32_t d = 0; r->of && d < p->n_devices; d++)
        fprintf(f,
                "<tr><td class=\"l\">device %" PRIu32 "</td><td>%" PRIu64
                "</td><td>%.2f</td><td>of %.2f MiB</td></tr>\n",
                d, p->device_bytes[d], (double)p->device_bytes[d] / 1048576,
                (double)p->device_capacity[d] / 1048576);
    fputs("</table>\n", f);
}

static void put_layers(FILE *f, const hs_job *r)
{
    const hs_placement *p = r->plan;
    fprintf(f,
            "<h2>Layers</h2>\n<table><tr><th>layer</th>%s<th>neurons</th><th>on the device</th>"
            "<th>served</th><th class=\"l\">dense blocks on the device</th></tr>\n",
            r->of ? "<th>device</th>" : "");
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        double on, all;
        hs_report_served(r, l, &on, &all);
        fprintf(f, "<tr><td>%" PRIu32 "</td>", l);
        if (r->of)
            fprintf(f, "<td>%d</td>", r->belongs[l]);
        fprintf(f,
                "<td>%" PRIu32 "</td><td>%" PRIu32 "</td><td>%.2f %%</td><td class=\"l\">"
                "%s%s%s%s</td></tr>\n",
                y->n_ff, y->n_device, all > 0 ? 100 * on / all : 0, y->attn ? "attention " : "",
                y->predictor ? "predictor " : "", y->ffn_norm ? "FFN norm " : "",
                y->kv ? "KV cache" : "");
    }
    fputs("</table>\n", f);
}

static hs_status put_page(FILE *f, const page *g, hs_err *err)
{
    const hs_job *r = g->r;
    hs_status s = HS_OK;
    hs_page_begin(f, "Placement");
    put_facts(f, r);
    if (r->machine) {
        put_times(f, g);
        if (g->plots)
            s = hs_page_plot(f, g->dir, "times.svg", "time of a token under each plan", err);
        else
            text_times(f, g);
    }
    put_ledger(f, r);
    put_layers(f, r);
    if (s == HS_OK && g->plots)
        s = hs_page_plot(f, g->dir, "layers.svg", "neurons and activations by layer", err);
    else if (s == HS_OK)
        text_layers(f, g);
    hs_page_end(f);
    return s;
}

static hs_status write_page(page *g, hs_err *err)
{
    FILE *f;
    hs_status s = take_times(g, err);
    if (s == HS_OK)
        s = write_csv(g, "layers.csv", layers_csv, err);
    if (s == HS_OK)
        s = write_csv(g, "ledger.csv", ledger_csv, err);
    if (s == HS_OK && g->r->machine)
        s = write_csv(g, "times.csv", times_csv, err);
    if (s == HS_OK)
        s = write_json(g, err);
    if (s == HS_OK)
        s = draw_plots(g, err);
    if (s == HS_OK)
        s = hs_page_file(&f, g->dir, MARK, err);
    if (s != HS_OK)
        return s;
    s = put_page(f, g, err);
    const hs_status closed = hs_page_close(f, g->dir, MARK, s == HS_OK ? err : NULL);
    return s == HS_OK ? closed : s;
}

hs_status hs_plan_report_check(const hs_job_options *o, hs_err *err)
{
    return hs_outdir_check(o->report, MARK, o->cli.force, err);
}

hs_status hs_plan_report(hs_job *r, hs_err *err)
{
    hs_outdir *out;
    hs_status s = hs_outdir_open(&out, r->o->report, MARK, r->o->cli.force, err);
    if (s != HS_OK)
        return s;
    page g = {.r = r, .dir = hs_outdir_path(out)};
    s = write_page(&g, err);
    if (s == HS_OK)
        return hs_outdir_commit(out, err);
    hs_outdir_abort(out);
    return s;
}
