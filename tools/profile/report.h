#ifndef HS_PROFILE_REPORT_H
#define HS_PROFILE_REPORT_H

/* The report of a profile: a folder with report.html, which needs nothing else, the data of its
 * plots as CSV, and the plots as SVG with the script that draws them. */

#include "runtime/cli.h"
#include "tools/profile/curves.h"
#include "tools/profile/summary.h"

#include <stdio.h>

/* What would stop it, before long work is done for it. */
HS_NODISCARD hs_status hs_report_check(const char *dir, bool force, hs_err *err);
HS_NODISCARD hs_status hs_report_write(const hs_cli *cli, const char *dir, const hs_activation *a,
                                       const hs_summary *sum, hs_err *err);

/* ---- parts ------------------------------------------------------------------------------ */

typedef struct hs_report {
    const hs_activation *a;
    const hs_summary *sum;
    const hs_curves *curves;
    const char *dir; /* being written */
    bool plots;      /* gnuplot drew them */
} hs_report;

HS_NODISCARD hs_status hs_report_csv(const hs_report *r, hs_err *err);
HS_NODISCARD hs_status hs_report_html(const hs_report *r, hs_err *err);
/* Writes plots.gp and has gnuplot run it; false when there is no gnuplot or it failed, with the
 * reason in `why`. */
HS_NODISCARD hs_status hs_report_plots(const hs_report *r, bool *drawn, hs_err *why, hs_err *err);
/* The plots as text. */
void hs_report_text_cumulative(FILE *f, const hs_report *r);
void hs_report_text_heat(FILE *f, const double *v, uint32_t rows, uint32_t columns,
                         const char *below);

#endif
