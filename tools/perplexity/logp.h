#ifndef HS_PERPLEXITY_LOGP_H
#define HS_PERPLEXITY_LOGP_H

/* Log-probabilities of a whole run in a file, and the comparison with such a file.
 *
 * Little endian, no alignment beyond what follows:
 *
 *   offset  bytes  content
 *        0      8  "HSLOGP01"
 *        8      4  u32 n_vocab
 *       12      4  u32 n_ctx
 *       16      4  u32 protocol: 0 once, 1 llama
 *       20      4  0
 *       24      8  u64 n_tokens
 *       32         n_tokens records: i32 the token scored, f32 log-probability [n_vocab]
 *
 * and nothing after them. */

#include "formats/file.h"
#include "tools/perplexity/chunks.h"

typedef struct hs_logp_header {
    uint32_t n_vocab, n_ctx;
    hs_ppl_protocol protocol;
    uint64_t n_tokens;
} hs_logp_header;

/* Begin a file; records follow. */
HS_NODISCARD hs_status hs_logp_begin(hs_out *out, const hs_logp_header *h, hs_err *err);
HS_NODISCARD hs_status hs_logp_append(hs_out *out, int32_t id, const float *logp, size_t n_vocab,
                                      hs_err *err);

typedef struct hs_logp_file {
    hs_map map;
    hs_logp_header header;
} hs_logp_file;

/* Open and check against what this run will do.  Messages start with the path. */
HS_NODISCARD hs_status hs_logp_open(hs_logp_file *f, const char *path, const hs_logp_header *want,
                                    hs_err *err);
void hs_logp_close(hs_logp_file *f);

/* Divergence from the file, the reference being the file's distribution. */
typedef struct hs_divergence {
    uint64_t n;        /* tokens compared */
    double kl, max_kl; /* sum and largest, nats */
    uint64_t same_top; /* positions whose most probable token is the file's */
    double max_error;  /* largest difference of any token's probability */
} hs_divergence;

/* Record `at` against this run's; false when it is of another text, or holds no
 * probabilities. */
bool hs_logp_compare(const hs_logp_file *f, uint64_t at, int32_t id, const float *logp,
                     hs_divergence *d);

#endif
