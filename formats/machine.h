#ifndef HS_FORMATS_MACHINE_H
#define HS_FORMATS_MACHINE_H

/* The machine file: how fast a machine's processor, its devices and the way between them are,
 * measured by hotset-profile --machine or written by hand.  docs/machine.md has the keys.
 *
 * All rates are bytes of weights (or copied bytes) per second, spreads are standard deviations
 * relative to the value (0: not known), times are seconds. */

#include "formats/dtype.h"
#include "formats/err.h"
#include "formats/file.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HS_MACHINE_VERSION = 1,
    HS_MACHINE_POINTS = 64, /* at most, per curve */
    HS_MACHINE_DEVICES = 8,
    HS_MACHINE_TEXT = 512, /* bytes of a name or note, NUL included */
};

/* One point of a curve: `at` is a number of threads or bytes, and rises. */
typedef struct hs_machine_point {
    uint64_t at;
    double rate, spread;
} hs_machine_point;

typedef struct hs_machine_curve {
    size_t n;
    hs_machine_point point[HS_MACHINE_POINTS];
} hs_machine_curve;

/* What the kernels of one tensor type achieve; a rate of 0 was not given. */
typedef struct hs_machine_rate {
    double dense, dense_spread;   /* whole matrices */
    double sparse, sparse_spread; /* rows of scattered neurons */
} hs_machine_rate;

typedef struct hs_machine_cpu {
    char name[HS_MACHINE_TEXT];
    uint64_t memory;                      /* bytes; 0: not given */
    hs_machine_curve bandwidth;           /* reading, by number of threads; at least one point */
    hs_machine_rate type[HS_DTYPE_LIMIT]; /* [hs_dtype], with the threads that read fastest */
} hs_machine_cpu;

typedef struct hs_machine_device {
    char name[HS_MACHINE_TEXT];
    uint64_t memory;          /* bytes; 0: not given */
    uint64_t context_bytes;   /* taken by the driver as soon as the device is opened */
    double bandwidth, spread; /* reading its own memory */
    double latency_s;         /* of starting a copy between host and device */
    double sync_s;            /* of waiting for the device once, in every layer it shares */
    hs_machine_curve upload, download; /* by bytes of one copy; at least one point each */
    hs_machine_rate type[HS_DTYPE_LIMIT];
} hs_machine_device;

typedef struct hs_machine {
    char note[HS_MACHINE_TEXT]; /* where the figures come from; "" */
    hs_machine_cpu cpu;
    size_t n_devices;
    hs_machine_device device[HS_MACHINE_DEVICES];
} hs_machine;

/* What a file leaves out: no names and figures, and for a device 10 us latency, 20 us per
 * synchronisation, copies at 12 GB/s, no context.  The bandwidths are 0 and the CPU's curve is
 * empty: to be filled in. */
void hs_machine_init(hs_machine *m);
void hs_machine_device_init(hs_machine_device *d);

/* Unknown keys, numbers that are not finite or out of range and curves that do not rise are
 * HS_ERR_FORMAT.  Messages of hs_machine_read start with the path. */
HS_NODISCARD hs_status hs_machine_parse(hs_machine *out, const void *data, size_t size,
                                        hs_err *err);
HS_NODISCARD hs_status hs_machine_read(hs_machine *out, const char *path, hs_err *err);
/* Appends the file to `out`, after the checks of reading; the caller commits or aborts. */
HS_NODISCARD hs_status hs_machine_write(const hs_machine *m, hs_out *out, hs_err *err);

/* The curve at `at`: linear between points, its first or last value outside them. */
double hs_machine_at(const hs_machine_curve *c, uint64_t at);
/* Bytes/s of a type's kernels.  Without a figure for the type: the memory's bandwidth.  threads:
 * 0 for the number that reads fastest; another one scales the figure as the bandwidth scales. */
double hs_machine_cpu_rate(const hs_machine_cpu *c, uint32_t dtype, bool sparse, uint32_t threads);
double hs_machine_device_rate(const hs_machine_device *d, uint32_t dtype, bool sparse);
/* Seconds of one copy. */
double hs_machine_upload_s(const hs_machine_device *d, uint64_t bytes);
double hs_machine_download_s(const hs_machine_device *d, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
