#ifndef HS_TOOLS_QUANTIZE_REPORT_H
#define HS_TOOLS_QUANTIZE_REPORT_H

/* What was decided and done, for people and for programs. */

#include "runtime/cli.h"
#include "tools/quantize/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_quant_report {
    const char *input, *output, *type; /* type: the TYPE operand */
    bool compat, dry_run;
    uint64_t file_before, file_after; /* bytes */
} hs_quant_report;

/* One line of talk about tensor i; `done` adds the error. */
void hs_quant_say_step(const hs_cli *cli, const hs_quant_plan *plan, size_t i, bool done);
/* A warning for every tensor whose rows forced another type, and one that counts them. */
void hs_quant_say_fallbacks(const hs_cli *cli, const hs_quant_plan *plan);
/* The result on stdout: a line, or the JSON object. */
HS_NODISCARD hs_status hs_quant_print(const hs_cli *cli, const hs_quant_report *r,
                                      const hs_quant_plan *plan, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
