#ifndef HS_FORMATS_FINGERPRINT_H
#define HS_FORMATS_FINGERPRINT_H

/* 128-bit FNV-1a, and the model fingerprint built on it: it tells models apart, it is no
 * checksum.  It covers the KVs that change the result (the architecture's hyper-parameters,
 * hotset.activation*, hotset.predictor*, powerinfer.sparse_threshold), every tensor's name,
 * shape and type, and a fixed, seeded sample of every tensor's bytes; at most 16 MiB are read
 * whatever the model's size.  Order of KVs and tensors in the file does not matter. */

#include "formats/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HS_FINGERPRINT_CHARS = 32 };

typedef struct hs_hash128 {
    uint64_t hi, lo;
} hs_hash128;

hs_hash128 hs_hash_init(void);
hs_hash128 hs_hash_bytes(hs_hash128 h, const void *data, size_t bytes);
/* 32 lower-case hex digits and a NUL. */
void hs_hash_hex(hs_hash128 h, char out[HS_FINGERPRINT_CHARS + 1]);

void hs_fingerprint(const hs_gguf *model, char out[HS_FINGERPRINT_CHARS + 1]);
/* True when `print` (as stored in a profile or placement) is this model's own fingerprint or,
 * with `parent_ok`, its hotset.source_fingerprint. */
bool hs_fingerprint_matches(const hs_gguf *model, const char *print, bool parent_ok);

#ifdef __cplusplus
}
#endif

#endif
