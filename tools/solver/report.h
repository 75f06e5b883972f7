#ifndef HS_TOOLS_SOLVER_REPORT_H
#define HS_TOOLS_SOLVER_REPORT_H

/* What hotset-solve prints on stdout: a table for people or one JSON object. */

#include "formats/activation.h"
#include "formats/placement.h"
#include "tools/solver/solve.h"

typedef struct hs_solve_report {
    const hs_placement *plan; /* with its ledger */
    const hs_activation *profile;
    const hs_solve_result *result;
    uint64_t budget;
    const char *output; /* the file, NULL in a dry run */
} hs_solve_report;

void hs_report_text(const hs_solve_report *r);
HS_NODISCARD hs_status hs_report_json(const hs_solve_report *r, hs_err *err);

#endif
