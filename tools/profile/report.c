/* The report's folder and its CSV files. */
#include "tools/profile/report.h"

#include "runtime/cli_outdir.h"
#include "runtime/cli_page.h"
#include "tools/profile/detail.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MARK "report.html"

hs_status hs_report_check(const char *dir, bool force, hs_err *err)
{
    return hs_outdir_check(dir, MARK, force, err);
}

/* ---- CSV ------------------------------------------------------------------------------- */

static void put(FILE *f, double v)
{
    if (isnan(v))
        fputc(',', f);
    else
        fprintf(f, ",%.9g", v);
}

static void layers_csv(FILE *f, const hs_report *r)
{
    fputs("layer,neurons,dead,active_share,share_80,share_90,share_95,gini,active_5,active_50,"
          "active_95,active_text,active_generated,mean,mean_square\n",
          f);
    for (uint32_t l = 0; l < r->a->n_layer; l++) {
        const hs_summary_part *p = &r->sum->layer[l];
        hs_detail d;
        hs_detail_layer(&d, r->a, l);
        fprintf(f, "%" PRIu32 ",%" PRIu64 ",%" PRIu64, l, p->neurons, p->dead);
        const double v[] = {p->active_share, p->share[0], p->share[1], p->share[2],
                            p->gini,         d.low,       d.median,    d.high,
                            d.given,         d.generated, d.mean,      d.mean_square};
        for (size_t i = 0; i < sizeof v / sizeof *v; i++)
            put(f, v[i]);
        fputc('\n', f);
    }
}

static void neurons_csv(FILE *f, const hs_report *r)
{
    const hs_activation *a = r->a;
    int64_t **generated = a->stat[HS_STAT_GENERATED], **sum = a->stat[HS_STAT_SUM],
            **squares = a->stat[HS_STAT_SQUARES];
    fputs("layer,neuron,count,frequency,count_generated,mean,mean_square\n", f);
    for (uint32_t l = 0; l < a->n_layer; l++)
        for (uint32_t i = 0; i < a->n_ff[l]; i++) {
            const double n = (double)a->tokens;
            fprintf(f, "%" PRIu32 ",%" PRIu32 ",%" PRId64 ",%.9g,%" PRId64, l, i, a->count[l][i],
                    (double)a->count[l][i] / n, generated ? generated[l][i] : 0);
            put(f, sum ? (double)sum[l][i] / (1 << HS_ACTIVATION_SUM_BITS) / n : (double)NAN);
            put(f, squares ? (double)squares[l][i] / (1 << HS_ACTIVATION_SQUARE_BITS) / n
                           : (double)NAN);
            fputc('\n', f);
        }
}

static void cumulative_csv(FILE *f, const hs_report *r)
{
    const uint32_t n = r->a->n_layer;
    fputs("neurons_percent,model", f);
    for (uint32_t l = 0; l < n; l++)
        fprintf(f, ",layer_%" PRIu32, l);
    fputc('\n', f);
    for (size_t p = 0; p < HS_CURVE_POINTS; p++) {
        fprintf(f, "%zu", p);
        for (uint32_t l = 0; l <= n; l++) /* the model's row is the last one */
            put(f, 100 * r->curves->cumulative[(l ? l - 1 : n) * (size_t)HS_CURVE_POINTS + p]);
        fputc('\n', f);
    }
}

static void heat_csv(FILE *f, const hs_report *r)
{
    fputs("layer,rank_percent,active_percent\n", f);
    for (uint32_t l = 0; l < r->a->n_layer; l++)
        for (size_t b = 0; b < HS_RANK_BINS; b++)
            fprintf(f, "%" PRIu32 ",%.6g,%.6g\n", l, 100 * ((double)b + 0.5) / HS_RANK_BINS,
                    100 * r->curves->rank[(size_t)l * HS_RANK_BINS + b]);
}

static void sparsity_csv(FILE *f, const hs_report *r)
{
    fputs("layer,active_percent,positions_percent\n", f);
    for (uint32_t l = 0; l < r->a->n_layer; l++)
        for (size_t b = 0; b < HS_ACTIVE_BINS; b++)
            fprintf(f, "%" PRIu32 ",%zu,%.6g\n", l, b,
                    100 * r->curves->active[(size_t)l * HS_ACTIVE_BINS + b]);
}

static void overlap_csv(FILE *f, const hs_report *r)
{
    const size_t n = r->curves->n_text;
    fputs("text,other,jaccard,served_of_other\n", f);
    for (size_t i = 0; i < n * n; i++)
        fprintf(f, "%zu,%zu,%.6g,%.6g\n", i / n + 1, i % n + 1, r->curves->jaccard[i],
                r->curves->served[i]);
}

hs_status hs_report_csv(const hs_report *r, hs_err *err)
{
    const struct {
        const char *name;
        void (*write)(FILE *f, const hs_report *r);
        bool there;
    } files[] = {
        {"layers.csv", layers_csv, true},
        {"neurons.csv", neurons_csv, true},
        {"cumulative.csv", cumulative_csv, true},
        {"heat.csv", heat_csv, true},
        {"sparsity.csv", sparsity_csv, r->curves->active != NULL},
        {"overlap.csv", overlap_csv, r->curves->n_text > 0},
    };
    hs_status s = HS_OK;
    for (size_t i = 0; s == HS_OK && i < sizeof files / sizeof *files; i++) {
        FILE *f;
        if (!files[i].there)
            continue;
        s = hs_page_file(&f, r->dir, files[i].name, err);
        if (s != HS_OK)
            break;
        files[i].write(f, r);
        s = hs_page_close(f, r->dir, files[i].name, err);
    }
    return s;
}

/* ---- the whole ------------------------------------------------------------------------- */

static hs_status fill(const hs_cli *cli, hs_report *r, hs_err *err)
{
    hs_err why = {0};
    hs_status s = hs_report_csv(r, err);
    if (s == HS_OK)
        s = hs_report_plots(r, &r->plots, &why, err);
    if (s == HS_OK && !r->plots)
        hs_cli_note(cli, "the report has plots in text: %s", why.msg);
    return s == HS_OK ? hs_report_html(r, err) : s;
}

hs_status hs_report_write(const hs_cli *cli, const char *dir, const hs_activation *a,
                          const hs_summary *sum, hs_err *err)
{
    hs_curves *curves;
    hs_outdir *out = NULL;
    hs_status s = hs_curves_new(&curves, a, err);
    if (s == HS_OK)
        s = hs_outdir_open(&out, dir, MARK, cli->force, err);
    if (s == HS_OK) {
        hs_report r = {.a = a, .sum = sum, .curves = curves, .dir = hs_outdir_path(out)};
        s = fill(cli, &r, err);
    }
    hs_curves_free(curves);
    if (s != HS_OK) {
        hs_outdir_abort(out);
        return s;
    }
    return hs_outdir_commit(out, err);
}
