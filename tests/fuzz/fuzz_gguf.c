/* GGUF and PWRI: whatever is accepted is read to the last byte, through every accessor. */
#include "formats/fingerprint.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t read_kv(const hs_gguf *g, const hs_kv *kv)
{
    uint64_t sum = 0;
    if (kv->type == HS_KV_ARRAY && kv->elem == HS_KV_STRING) {
        size_t pos = 0;
        for (uint64_t i = 0; i < kv->count; i++) {
            const hs_str s = hs_kv_next_str(kv, &pos);
            for (size_t k = 0; k < s.n; k++)
                sum += (uint8_t)s.p[k];
        }
        if (pos != kv->raw_bytes)
            abort();
    } else if (kv->type == HS_KV_STRING) {
        for (size_t k = 0; k < kv->raw_bytes; k++)
            sum += kv->raw[k];
    } else {
        const uint64_t n = kv->type == HS_KV_ARRAY ? kv->count : 1;
        for (uint64_t i = 0; i < n; i++)
            sum += (uint64_t)hs_kv_int(kv, i) + (hs_kv_real(kv, i) > 0);
    }
    char key[256];
    if (kv->key.n >= sizeof key)
        return sum;
    memcpy(key, kv->key.p, kv->key.n);
    key[kv->key.n] = 0;
    if (hs_gguf_find(g, key) != kv)
        abort();
    uint32_t u = 0;
    uint64_t w = 0;
    float f = 0;
    double d = 0;
    bool b = false;
    hs_str s = {NULL, 0};
    const hs_kv *a = NULL;
    hs_err err;
    sum += (uint64_t)hs_gguf_u32(g, key, &u, &err) + (uint64_t)hs_gguf_u64(g, key, &w, &err) +
           (uint64_t)hs_gguf_f32(g, key, &f, &err) + (uint64_t)hs_gguf_f64(g, key, &d, &err) +
           (uint64_t)hs_gguf_bool(g, key, &b, &err) + (uint64_t)hs_gguf_str(g, key, &s, &err) +
           (uint64_t)hs_gguf_array(g, key, HS_KV_F32, &a, &err);
    return sum;
}

static uint64_t read_tensor(const hs_gguf *g, const hs_gguf_tensor *t)
{
    uint64_t sum = 0, row;
    if (hs_gguf_tensor_find(g, t->name) != t)
        abort();
    for (uint64_t i = 0; i < t->bytes; i++)
        sum += t->data[i];
    const hs_dtype_info *info = hs_dtype_get(t->dtype);
    if (!info->decode || !hs_dtype_row_bytes(t->dtype, t->ne[0], &row))
        return sum;
    /* Every row must decode: their number times their size is what the reader checked. */
    float *x = malloc((size_t)t->ne[0] * sizeof *x + 1);
    for (uint64_t at = 0; x && at < t->bytes; at += row)
        info->decode(x, t->data + at, (size_t)t->ne[0]);
    free(x);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hs_gguf *g;
    hs_err err;
    if (hs_gguf_parse(&g, data, size, &err) != HS_OK)
        return 0;
    volatile uint64_t sum = 0;
    for (size_t i = 0; i < g->n_kv; i++)
        sum += read_kv(g, &g->kv[i]);
    for (size_t i = 0; i < g->n_tensors; i++)
        sum += read_tensor(g, &g->tensors[i]);
    (void)sum; /* reading is the point */
    char print[HS_FINGERPRINT_CHARS + 1];
    hs_fingerprint(g, print);
    hs_gguf_free(g);
    return 0;
}
