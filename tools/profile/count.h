#ifndef HS_PROFILE_COUNT_H
#define HS_PROFILE_COUNT_H

/* Running the model over the chunks and counting. */

#include "formats/activation.h"
#include "tools/profile/ranks.h"
#include "tools/profile/sums.h"
#include "tools/profile/texts.h"

/* What to count beside the neurons' own counts. */
typedef struct hs_count_want {
    uint32_t generate;  /* tokens that the model adds to each chunk */
    uint32_t n_top;     /* neurons of each layer whose pairs are counted */
    uint32_t magnitude; /* level (percent) that counts as active, of a model without zeros */
} hs_count_want;

typedef struct hs_count_job {
    const hs_cli *cli;
    const hs_model *model;
    const hs_texts *texts;
    const char *out;     /* the profile's path, written once it is complete */
    const char *partial; /* chunks so far are saved here meanwhile; removed at the end */
    const char *from;    /* where `a` was read from, for messages; NULL: it is fresh */
    bool replace;        /* `out` may be replaced */
    double autosave_s;   /* seconds between saves */
    hs_sums *sums;       /* sees the inputs of all matrices; NULL: nobody asks */
    hs_ranks *ranks;     /* each takes every n-th chunk; rank 0 writes */
} hs_count_job;

/* An empty profile of these texts: shape, fingerprint, sources, how they are cut, statistics.
 * Thresholds and the neurons of the pairs are still to be found. */
HS_NODISCARD hs_status hs_count_begin(hs_activation **out, const hs_model *m, const hs_texts *t,
                                      const hs_count_want *want, const hs_cli *cli, hs_err *err);
/* Find them. */
HS_NODISCARD hs_status hs_count_pilot(hs_activation *a, const hs_model *m, const hs_cli *cli,
                                      hs_err *err);
/* Whether `a`, read from `path`, was begun with what `fresh` says; the message tells what
 * differs. */
HS_NODISCARD hs_status hs_count_same(const hs_activation *a, const hs_activation *fresh,
                                     const char *path, hs_err *err);
/* Evaluate the chunks from a->chunks_done to the last and leave the profile in job->out.
 * Interrupted, the whole chunks so far are in job->partial. */
HS_NODISCARD hs_status hs_count_run(hs_activation *a, const hs_count_job *job, hs_err *err);

#endif
