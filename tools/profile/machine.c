/* What --machine does around the measuring. */
#include "tools/profile/machine.h"

#include "runtime/hotset.h"
#include "tools/profile/measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static hs_status settings(hs_measure *p, const hs_cli *cli, hs_err *err)
{
    *p = hs_measure_defaults();
    if (cli->threads)
        p->threads = (int)cli->threads;
    hs_cpu_level want;
    if (cli->cpu && (!hs_cpu_from_name(cli->cpu, &want) || want > p->level))
        return hs_fail(err, HS_ERR_USAGE, "--cpu: this machine has %s, not %s",
                       hs_cpu_name(p->level), cli->cpu);
    if (cli->cpu)
        p->level = want;
    return HS_OK;
}

static hs_status measure(hs_machine *m, const hs_measure *p, hs_err *err)
{
    hs_machine_init(m);
    snprintf(m->note, sizeof m->note, "measured by hotset-profile %s, %s kernels", HS_VERSION,
             hs_cpu_name(p->level));
    hs_status s = hs_measure_cpu(&m->cpu, p, err);
    const hs_device_ops *ops = hs_device_cuda();
    const int n = ops ? ops->count(NULL) : 0;
    for (int i = 0; s == HS_OK && i < n && i < HS_MACHINE_DEVICES; i++) {
        s = hs_measure_device(&m->device[i], ops, i, p, err);
        m->n_devices++;
    }
    return s;
}

/* The file itself. */
static hs_status print_json(const char *path, hs_err *err)
{
    char *text;
    size_t n;
    const hs_status s = hs_read_text(path, &text, &n, err);
    if (s == HS_OK) {
        fwrite(text, 1, n, stdout);
        free(text);
    }
    return s;
}

static void print(const hs_machine *m)
{
    printf("%s\n\nreading memory\n", m->cpu.name);
    for (size_t i = 0; i < m->cpu.bandwidth.n; i++) {
        const hs_machine_point *p = &m->cpu.bandwidth.point[i];
        printf("%4" PRIu64 " threads %9.2f GB/s  +- %4.1f %%\n", p->at, p->rate / 1e9,
               100 * p->spread);
    }
    printf("\nkernels         dense GB/s          sparse GB/s\n");
    for (uint32_t t = 0; t < HS_DTYPE_LIMIT; t++) {
        const hs_machine_rate *r = &m->cpu.type[t];
        if (r->dense > 0)
            printf("%-8s %10.2f +- %4.1f %% %10.2f +- %4.1f %%\n", hs_dtype_name(t), r->dense / 1e9,
                   100 * r->dense_spread, r->sparse / 1e9, 100 * r->sparse_spread);
    }
    for (size_t i = 0; i < m->n_devices; i++) {
        const hs_machine_device *d = &m->device[i];
        printf("\ndevice %zu: %.2f GB/s, a copy starts in %.1f us, a wait takes %.1f us\n", i,
               d->bandwidth / 1e9, d->latency_s * 1e6, d->sync_s * 1e6);
    }
    if (!m->n_devices)
        printf("\nno CUDA device\n");
}

hs_status hs_machine_measure(const hs_cli *cli, const char *out, hs_err *err)
{
    hs_measure p;
    hs_out *file = NULL;
    hs_machine *m = calloc(1, sizeof *m);
    if (!m)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_progress progress;
    hs_progress_init(&progress, cli, "measuring", "figures");
    hs_status s = settings(&p, cli, err);
    p.progress = hs_progress_step;
    p.progress_ud = &progress;
    if (s == HS_OK)
        s = hs_out_open(&file, out, cli->force, err);
    if (s == HS_OK)
        s = measure(m, &p, err);
    hs_progress_end(&progress);
    if (s == HS_OK)
        s = hs_machine_write(m, file, err);
    if (s == HS_OK) {
        s = hs_out_commit(file, true, err);
        file = NULL;
    }
    if (s == HS_OK && cli->json)
        s = print_json(out, err);
    else if (s == HS_OK)
        print(m);
    hs_out_abort(file);
    free(m);
    return s;
}
