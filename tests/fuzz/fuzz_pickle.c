/* Torch files: the first byte chooses between a whole archive and a bare program with one
 * storage of 64 bytes; every element that is accepted is read, through its strides. */
#include "formats/pickle.h"
#include "formats/torch_zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_READ = 4096 }; /* an expanded tensor is larger than its storage */

static hs_status touch(void *ud, const hs_ckpt_tensor *t, hs_err *err)
{
    volatile double *sink = ud;
    const uint64_t n = hs_ckpt_elems(t);
    double v = 0;
    for (uint64_t i = 0; i < n && i < MAX_READ; i++) {
        (void)!hs_ckpt_value(t, i, &v, err);
        *sink = v;
        (void)!hs_ckpt_value(t, n - 1 - i, &v, err);
        *sink = v;
    }
    for (const char *p = t->name; *p; p++)
        *sink = *p;
    return HS_OK;
}

static hs_status storage(void *ud, const char *key, const uint8_t **data, size_t *bytes,
                         hs_err *err)
{
    if (key[0] != '0')
        return hs_fail(err, HS_ERR_FORMAT, "no storage %s", key);
    *data = ud;
    *bytes = 64;
    return HS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    volatile double sink = 0;
    void *ud = (void *)(uintptr_t)&sink;
    hs_err err;
    if (size && data[0] == 'P') {
        hs_torch_zip *z = NULL;
        (void)!hs_torch_zip_parse(&z, data, size, touch, ud, &err);
        hs_torch_zip_free(z);
    } else if (size) {
        uint8_t store[64] = {0};
        (void)!hs_pickle_tensors(data + 1, size - 1, storage, store, touch, ud, &err);
    }
    return 0;
}
