#ifndef HS_FORMATS_ACTIVATION_H
#define HS_FORMATS_ACTIVATION_H

/* The activation profile: how often each neuron of each layer was active, and statistics of how
 * strongly and with which others.  The file is GGUF v3; formats/activation.md has the keys and
 * the meaning of every number.  All of them are integers, so that sums are exact whatever their
 * order. */

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

/* Statistics beside the counts.  Each is there for every layer or for none. */
typedef enum hs_activation_stat {
    HS_STAT_SUM,       /* [n_ff] of activations, HS_ACTIVATION_SUM_BITS fraction bits */
    HS_STAT_SQUARES,   /* [n_ff] of their squares, HS_ACTIVATION_SQUARE_BITS fraction bits */
    HS_STAT_HISTOGRAM, /* [n_ff + 1] positions at which exactly k neurons were active */
    HS_STAT_GENERATED, /* [n_ff] the part of the counts at generated positions */
    HS_STAT_BY_TEXT,   /* [n_source][n_ff] the counts text by text */
    HS_STAT_COACTIVE,  /* [n_top][n_top] positions at which both were active */
    HS_STAT_MAGNITUDE, /* [HS_MAGNITUDE_LEVELS][n_ff] positions at or above each threshold */
    HS_STAT_KEPT,      /* [HS_MAGNITUDE_LEVELS] squares at or above each threshold */
    HS_STATS
} hs_activation_stat;

enum {
    HS_ACTIVATION_SUM_BITS = 24,
    HS_ACTIVATION_SQUARE_BITS = 20,
    HS_ACTIVATION_CLAMP = 32768,  /* larger magnitudes count as this one */
    HS_ACTIVATION_MAX_TEXTS = 16, /* of more than these, counts are not kept text by text */
    HS_ACTIVATION_MAX_TOP = 1024,
    HS_MAGNITUDE_LEVELS = 5,
};

/* Percent of a layer's activations that lie below each threshold: 50, 70, 80, 90, 95. */
extern const uint32_t hs_magnitude_level[HS_MAGNITUDE_LEVELS];

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
    uint32_t generate;    /* tokens the model was to add to each chunk */
    bool complete;        /* chunks_done is all there is in the texts */
    /* Statistics, each NULL where the profile has it not. */
    uint64_t tokens_generated; /* of `tokens` */
    int64_t **stat[HS_STATS];  /* [HS_STATS][n_layer][hs_activation_stat_len()] */
    uint32_t n_top;
    int32_t *top; /* [n_layer][n_top] ascending: the neurons of HS_STAT_COACTIVE */
    /* Of a model whose activation is never zero: an activation counts as active when its
     * magnitude reaches the threshold of this level (percent); else 0. */
    uint32_t magnitude;
    float *threshold; /* [n_layer][HS_MAGNITUDE_LEVELS] ascending */
} hs_activation;

/* Zero counts and no source.  The object and everything in it is owned by the caller. */
HS_NODISCARD hs_status hs_activation_new(hs_activation **out, uint32_t n_layer,
                                         const uint32_t *n_ff, hs_err *err);
void hs_activation_free(hs_activation *a);
/* The same layers, model, texts, rules and statistics with every number zero: to count a part of
 * what `a` counts. */
HS_NODISCARD hs_status hs_activation_new_like(hs_activation **out, const hs_activation *a,
                                              hs_err *err);
/* Every count, sum and number of tokens zero. */
void hs_activation_clear(hs_activation *a);
/* Append a source; any directory in front of `name` is dropped. */
HS_NODISCARD hs_status hs_activation_add_source(hs_activation *a, const char *name,
                                                const char *hash, hs_err *err);
/* Numbers of one statistic of one layer, from the shape alone. */
uint64_t hs_activation_stat_len(const hs_activation *a, hs_activation_stat stat, uint32_t layer);
/* Zeros for every layer; for HS_STAT_COACTIVE after n_top, and `top` is made too, for
 * HS_STAT_MAGNITUDE `threshold`. */
HS_NODISCARD hs_status hs_activation_stat_add(hs_activation *a, hs_activation_stat stat,
                                              hs_err *err);
/* The name of the statistic's tensors, after "blk.N.". */
const char *hs_activation_stat_name(hs_activation_stat stat);
/* Every fault of the file is named with `path`: missing layers, wrong types or lengths,
 * negative counts, counts above hotset.profile.tokens.  The messages of hs_activation_parse
 * start with the tensor or key instead. */
HS_NODISCARD hs_status hs_activation_read(hs_activation **out, const char *path, hs_err *err);
HS_NODISCARD hs_status hs_activation_parse(hs_activation **out, const hs_gguf *g, hs_err *err);
HS_NODISCARD hs_status hs_activation_write(const hs_activation *a, const char *path, bool force,
                                           hs_err *err);
/* Add src's counts, tokens and sources to dst; shapes must be equal, fingerprints equal or one
 * of them empty, thresholds equal or both absent.  A sum that does not fit 63 bits is refused;
 * on failure dst is unchanged.  The result has the statistics that both have, and resume state
 * only when both are complete and were cut alike: the sum of profiles of A and of B is then the
 * profile of A and B. */
HS_NODISCARD hs_status hs_activation_add(hs_activation *dst, const hs_activation *src, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
