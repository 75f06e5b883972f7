#ifndef HS_PROFILE_MACHINE_H
#define HS_PROFILE_MACHINE_H

/* --machine: measured, written as a machine file, printed. */

#include "runtime/cli.h"

HS_NODISCARD hs_status hs_machine_measure(const hs_cli *cli, const char *out, hs_err *err);

#endif
