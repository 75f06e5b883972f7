#ifndef HS_TOOLS_SOLVER_REPORT_H
#define HS_TOOLS_SOLVER_REPORT_H

/* What hotset-solve prints on stdout: a table for people or one JSON object. */

#include "tools/solver/job.h"

void hs_report_text(const hs_job *r);
HS_NODISCARD hs_status hs_report_json(const hs_job *r, hs_err *err);

#endif
