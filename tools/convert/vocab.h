#ifndef HS_TOOLS_CONVERT_VOCAB_H
#define HS_TOOLS_CONVERT_VOCAB_H

/* The vocabulary of a folder: tokenizer.model, tokens added to it, special ids. */

#include "formats/json.h"
#include "formats/spm.h"
#include "runtime/cli.h"
#include "tools/convert/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_conv_vocab {
    uint32_t n;                    /* the configuration's vocab_size */
    hs_str *piece;                 /* [n], borrowed from the members below */
    float *score;                  /* [n] */
    int32_t *type;                 /* [n], an hs_token_type */
    int64_t special[HS_N_SPECIAL]; /* -1: none */
    int add_bos, add_eos;          /* -1: not stated */
    hs_spm *spm;
    json_t *added, *config; /* NULL where the files are absent */
    char *pads;
} hs_conv_vocab;

/* Messages name the file.  What is dropped, padded or doubtful is said through `cli`. */
HS_NODISCARD hs_status hs_conv_vocab_read(hs_conv_vocab *v, const char *dir,
                                          const hs_conv_config *c, const hs_cli *cli, hs_err *err);
void hs_conv_vocab_fini(hs_conv_vocab *v);

#ifdef __cplusplus
}
#endif

#endif
