#ifndef HS_PROFILE_PRINT_H
#define HS_PROFILE_PRINT_H

/* The summary on stdout: a table, or one JSON object with the same numbers. */

#include "tools/profile/summary.h"

#include <stdio.h>

void hs_profile_print(FILE *f, const hs_activation *a, const hs_summary *s);
HS_NODISCARD hs_status hs_profile_print_json(FILE *f, const hs_activation *a, const hs_summary *s,
                                             hs_err *err);

#endif
