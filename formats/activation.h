#ifndef HS_FORMATS_ACTIVATION_H
#define HS_FORMATS_ACTIVATION_H

/* The activation profile: how often each neuron of each layer was active.  The file is GGUF v3;
 * formats/activation.md has the keys. */

#include "formats/err.h"
#include "formats/fingerprint.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_activation_source {
    char name[256];                      /* base name of the text, no path */
    char hash[HS_FINGERPRINT_CHARS + 1]; /* of the text's bytes */
} hs_activation_source;

typedef struct hs_activation {
    uint32_t n_layer;
    uint64_t tokens;                            /* positions evaluated */
    char fingerprint[HS_FINGERPRINT_CHARS + 1]; /* "" when unknown */
    uint32_t *n_ff;                             /* [n_layer] */
    int64_t **count;                            /* [n_layer][n_ff[l]], 0 <= count <= tokens */
    size_t n_source;
    hs_activation_source *source;
    /* Resume state: chunks done so far and the context they were cut with. */
    uint64_t chunks_done;
    uint32_t n_ctx;       /* 0: not cut by hotset-profile, no resume */
    bool no_bos, special; /* how the texts became tokens */
} hs_activation;

/* Zero counts and no source.  The object and everything in it is owned by the caller. */
HS_NODISCARD hs_status hs_activation_new(hs_activation **out, uint32_t n_layer,
                                         const uint32_t *n_ff, hs_err *err);
void hs_activation_free(hs_activation *a);
/* Append a source; any directory in front of `name` is dropped. */
HS_NODISCARD hs_status hs_activation_add_source(hs_activation *a, const char *name,
                                                const char *hash, hs_err *err);
/* Every fault of the file is named with `path`: missing layers, wrong types or lengths,
 * negative counts, counts above hotset.profile.tokens.  The messages of hs_activation_parse
 * start with the tensor or key instead. */
HS_NODISCARD hs_status hs_activation_read(hs_activation **out, const char *path, hs_err *err);
HS_NODISCARD hs_status hs_activation_parse(hs_activation **out, const hs_gguf *g, hs_err *err);
HS_NODISCARD hs_status hs_activation_write(const hs_activation *a, const char *path, bool force,
                                           hs_err *err);
/* Add src's counts, tokens and sources to dst; shapes must be equal, fingerprints equal or one
 * of them empty.  A sum that does not fit 63 bits is refused; on failure dst is unchanged.
 * The result has no resume state. */
HS_NODISCARD hs_status hs_activation_add(hs_activation *dst, const hs_activation *src, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
