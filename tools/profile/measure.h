#ifndef HS_PROFILE_MEASURE_H
#define HS_PROFILE_MEASURE_H

/* How fast this machine is, in the terms of formats/machine.h. */

#include "formats/machine.h"
#include "runtime/cpu.h"
#include "runtime/device.h"

typedef struct hs_measure {
    hs_cpu_level level; /* of the kernels */
    int threads;        /* the most */
    int repetitions;    /* of every figure; its spread is over them */
    double seconds;     /* about, of one repetition */
    uint64_t bytes;     /* of weights that are read, far above what caches hold */
    hs_progress_fn progress;
    void *progress_ud;
} hs_measure;

/* Every allowed CPU, 5 repetitions of 40 ms, 256 MiB: some seconds in all. */
hs_measure hs_measure_defaults(void);
HS_NODISCARD hs_status hs_measure_cpu(hs_machine_cpu *out, const hs_measure *p, hs_err *err);
/* Device `ordinal` of `ops`; its kernels only as whole matrices. */
HS_NODISCARD hs_status hs_measure_device(hs_machine_device *out, const hs_device_ops *ops,
                                         int ordinal, const hs_measure *p, hs_err *err);

/* Mean of n samples and their standard deviation relative to it. */
void hs_measure_mean(double *mean, double *spread, const double *v, size_t n);

#endif
