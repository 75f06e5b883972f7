/* Safetensors: every byte that the parser accepts is read. */
#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static hs_status touch(void *ud, const hs_ckpt_tensor *t, hs_err *err)
{
    (void)err;
    volatile uint8_t *sink = ud;
    const uint64_t n = hs_ckpt_elems(t) * hs_elem_bytes(t->elem);
    for (uint64_t i = 0; i < n; i++)
        *sink = t->data[i];
    for (const char *p = t->name; *p; p++)
        *sink = (uint8_t)*p;
    return HS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    volatile uint8_t sink = 0;
    hs_err err;
    (void)!hs_safetensors_parse(data, size, touch, (void *)(uintptr_t)&sink, &err);
    return sink & 0;
}
