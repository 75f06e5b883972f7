/* Machine files: every figure of an accepted one is asked for. */
#include "formats/machine.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hs_machine *m = malloc(sizeof *m);
    hs_err err;
    if (!m || hs_machine_parse(m, data, size, &err) != HS_OK) {
        free(m);
        return 0;
    }
    for (uint32_t t = 0; t < HS_DTYPE_LIMIT + 1; t++) {
        if (!(hs_machine_cpu_rate(&m->cpu, t, t & 1, t) > 0))
            abort();
        for (size_t d = 0; d < m->n_devices; d++)
            if (!(hs_machine_device_rate(&m->device[d], t, t & 1) > 0) ||
                !(hs_machine_upload_s(&m->device[d], UINT64_C(1) << t) >= 0) ||
                !(hs_machine_download_s(&m->device[d], UINT64_C(1) << t) >= 0))
                abort();
    }
    free(m);
    return 0;
}
