#ifndef HS_TOOLS_QUANTIZE_PLAN_H
#define HS_TOOLS_QUANTIZE_PLAN_H

/* Which type every tensor gets.  Decided before anything is written; pure of I/O. */

#include "formats/gguf.h"
#include "formats/imatrix.h"
#include "tools/quantize/mixture.h"

#include <regex.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --tensor-type REGEX=T */
typedef struct hs_quant_rule {
    const char *text; /* REGEX=T, borrowed */
    regex_t regex;
    const hs_dtype_info *type;
    bool used; /* matched a tensor that may change its type */
} hs_quant_rule;

typedef struct hs_quant_options {
    const hs_dtype_info *type;       /* NULL: COPY */
    const hs_quant_mixture *mixture; /* of base `type`, or NULL */
    const hs_imatrix *imatrix;       /* borrowed, or NULL */
    const hs_dtype_info *output_type, *embedding_type, *predictor_type; /* NULL: not given */
    hs_quant_rule *rules;                                               /* owned */
    size_t n_rules;
    bool compat; /* powerinfer */
    bool pure, allow_requantize, no_fallback;
} hs_quant_options;

typedef struct hs_quant_step {
    const hs_gguf_tensor *tensor; /* borrowed from the input */
    const hs_dtype_info *from, *to;
    const hs_dtype_info *wanted; /* other than `to` when the rows do not divide into its blocks */
    bool compat;                 /* encode as PowerInfer does */
    hs_importance_kind importance;
    const uint8_t *weight; /* f32 [ne[0]], unaligned; NULL: all alike */
    uint64_t covered;      /* how many of them are not 0 */
    bool coarser_head;     /* the rule for heads could not give it Q6_K */
    uint64_t elems, bytes; /* bytes: of the output */
    double rms_error;      /* relative to the tensor's own RMS; filled while converting */
} hs_quant_step;

typedef struct hs_quant_plan {
    hs_quant_step *steps; /* one per tensor, in file order */
    size_t n;
    size_t n_changed, n_fallbacks;
    size_t n_weighable, n_weighted; /* tensors that importances matter to; that have some */
    bool imatrix;                   /* there is one */
    uint64_t elems, bytes_before, bytes_after;
} hs_quant_plan;

/* A type of tensors that this program can write; NULL and a message that lists them otherwise. */
const hs_dtype_info *hs_quant_type(const char *name, hs_err *err);

/* Parse one REGEX=T and append it. */
HS_NODISCARD hs_status hs_quant_rule_add(hs_quant_options *o, const char *text, hs_err *err);
void hs_quant_options_fini(hs_quant_options *o);

HS_NODISCARD hs_status hs_quant_plan_new(hs_quant_plan *plan, const hs_gguf *in,
                                         hs_quant_options *o, hs_err *err);
void hs_quant_plan_fini(hs_quant_plan *plan);

/* "row length 300 is not a multiple of 256, the block of Q6_K" */
void hs_quant_fallback_reason(const hs_quant_step *s, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif

#endif
