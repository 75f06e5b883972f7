/* What is hashed, in this order: the KVs that change the result, sorted by key, then every
 * tensor sorted by name.  All lengths are hashed too, so that no two inputs share a byte stream. */
#include "formats/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

/* FNV's own parameters for 128 bits: the prime is 2^88 + 0x13b. */
hs_hash128 hs_hash_init(void) { return (hs_hash128){0x6c62272e07bb0142u, 0x62b821756295c58du}; }

hs_hash128 hs_hash_bytes(hs_hash128 h, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t hi = h.hi, lo = h.lo;
    for (size_t i = 0; i < bytes; i++) {
        lo ^= p[i];
        const u128 low = (u128)lo * 0x13b;
        hi = hi * 0x13b + (lo << 24) + (uint64_t)(low >> 64);
        lo = (uint64_t)low;
    }
    return (hs_hash128){hi, lo};
}

void hs_hash_hex(hs_hash128 h, char out[HS_FINGERPRINT_CHARS + 1])
{
    snprintf(out, HS_FINGERPRINT_CHARS + 1, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

static hs_hash128 hash_u64(hs_hash128 h, uint64_t v) { return hs_hash_bytes(h, &v, sizeof v); }

static hs_hash128 hash_str(hs_hash128 h, const void *p, size_t n)
{
    return hs_hash_bytes(hash_u64(h, n), p, n);
}

static bool starts_with(hs_str s, const char *p, size_t n)
{
    return s.n >= n && memcmp(s.p, p, n) == 0;
}

/* Does this KV change what the model computes? `arch` is general.architecture. */
static bool is_hyper_parameter(hs_str key, hs_str arch)
{
    static const char *const ours[] = {"general.architecture", "hotset.activation",
                                       "hotset.fatrelu", "hotset.predictor",
                                       "powerinfer.sparse_threshold"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (starts_with(key, ours[i], strlen(ours[i])))
            return true;
    return arch.n && key.n > arch.n && starts_with(key, arch.p, arch.n) && key.p[arch.n] == '.';
}

static hs_hash128 hash_kv(hs_hash128 h, const hs_kv *kv)
{
    h = hash_str(h, kv->key.p, kv->key.n);
    h = hash_u64(h, kv->type);
    if (kv->type == HS_KV_ARRAY)
        h = hash_u64(hash_u64(h, kv->elem), kv->count);
    return hash_str(h, kv->raw, kv->raw_bytes);
}

/* The sample: pages of 4 KiB, about 4 MiB over all tensors, 1 to 16 of a tensor.  Only a file
 * of more than 4096 tensors has smaller pages, so that 16 MiB always hold them. */
enum { PAGE = 4096, TOTAL_PAGES = 1024, MAX_PAGES = 16, MAX_SAMPLE = 16 << 20 };

typedef struct sampling {
    uint64_t pages; /* of a tensor */
    uint64_t page_bytes;
} sampling;

static sampling plan(uint64_t n_tensors)
{
    sampling s = {MAX_PAGES, PAGE};
    if (n_tensors > TOTAL_PAGES / MAX_PAGES)
        s.pages = n_tensors < TOTAL_PAGES ? TOTAL_PAGES / n_tensors : 1;
    if (n_tensors > MAX_SAMPLE / PAGE)
        s.page_bytes = MAX_SAMPLE / n_tensors;
    return s;
}

/* Fixed and well spread (the finaliser of splitmix64). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static hs_hash128 hash_data(hs_hash128 h, const hs_gguf_tensor *t, sampling s)
{
    if (t->bytes <= s.pages * s.page_bytes)
        return t->bytes ? hs_hash_bytes(h, t->data, (size_t)t->bytes) : h;
    const uint64_t seed = mix(h.lo ^ mix(t->bytes)); /* the name is in h already */
    const uint64_t stride = (t->bytes - s.page_bytes) / s.pages;
    for (uint64_t i = 0; i < s.pages; i++) {
        const uint64_t at = i * stride + (stride ? mix(seed + i) % (stride + 1) : 0);
        h = hs_hash_bytes(h, t->data + at, (size_t)s.page_bytes);
    }
    return h;
}

void hs_fingerprint(const hs_gguf *model, char out[HS_FINGERPRINT_CHARS + 1])
{
    const hs_kv *arch_kv = hs_gguf_find(model, "general.architecture");
    hs_str arch = {"", 0};
    if (arch_kv && arch_kv->type == HS_KV_STRING)
        arch = (hs_str){(const char *)arch_kv->raw, arch_kv->raw_bytes};
    hs_hash128 h = hs_hash_init();
    for (size_t i = 0; i < model->n_kv; i++) {
        const hs_kv *kv = &model->kv[model->by_key[i]];
        if (is_hyper_parameter(kv->key, arch))
            h = hash_kv(h, kv);
    }
    const sampling s = plan(model->n_tensors);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const hs_gguf_tensor *t = &model->tensors[model->by_name[i]];
        h = hash_str(h, t->name, strlen(t->name));
        h = hash_u64(hash_u64(h, t->dtype), t->n_dims);
        h = hs_hash_bytes(h, t->ne, sizeof t->ne);
        h = hash_data(h, t, s);
    }
    hs_hash_hex(h, out);
}

bool hs_fingerprint_matches(const hs_gguf *model, const char *print, bool parent_ok)
{
    if (parent_ok) {
        const hs_kv *kv = hs_gguf_find(model, "hotset.source_fingerprint");
        if (kv && kv->type == HS_KV_STRING &&
            hs_str_eq((hs_str){(const char *)kv->raw, kv->raw_bytes}, print))
            return true;
    }
    char own[HS_FINGERPRINT_CHARS + 1];
    hs_fingerprint(model, own);
    return strcmp(own, print) == 0;
}
