#ifndef HS_TOOLS_SOLVER_REPORT_H
#define HS_TOOLS_SOLVER_REPORT_H

/* What hotset-solve prints on stdout: a table for people or one JSON object. */

#include "tools/solver/job.h"

#include <stdio.h>

void hs_report_text(const hs_job *r);
HS_NODISCARD hs_status hs_report_json(const hs_job *r, FILE *to, hs_err *err);

/* --report: a folder with report.html, which needs nothing else, plan.json, the data of its plots
 * as CSV, and the plots. */
HS_NODISCARD hs_status hs_plan_report_check(const hs_job_options *o, hs_err *err);
HS_NODISCARD hs_status hs_plan_report(hs_job *r, hs_err *err);
/* Bytes of one use, of how many layers; of layer l. */
uint64_t hs_report_use(const hs_placement *p, const char *use, uint32_t *layers, uint32_t *of);
uint64_t hs_report_layer(const hs_placement *p, uint32_t l, const char *use);
enum { HS_REPORT_USES = 7 };
extern const char *const hs_report_uses[HS_REPORT_USES];
/* Activations of layer l: all of them, and those of neurons on a device. */
void hs_report_served(const hs_job *r, uint32_t l, double *on, double *all);

#endif
