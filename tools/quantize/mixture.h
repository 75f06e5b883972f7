#ifndef HS_TOOLS_QUANTIZE_MIXTURE_H
#define HS_TOOLS_QUANTIZE_MIXTURE_H

/* The field's mixtures: a TYPE such as Q4_K_M stands for one type for most matrices and finer
 * ones for those that suffer most.  Pure of I/O. */

#include "formats/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hs_quant_target {
    HS_TARGET_PLAIN, /* one type */
    HS_TARGET_Q2_K,
    HS_TARGET_Q3_K_S,
    HS_TARGET_Q3_K_M,
    HS_TARGET_Q3_K_L,
    HS_TARGET_Q4_K_S,
    HS_TARGET_Q4_K_M,
    HS_TARGET_Q5_K_S,
    HS_TARGET_Q5_K_M,
    HS_TARGET_IQ4, /* IQ4_NL and IQ4_XS */
} hs_quant_target;

typedef struct hs_quant_mixture {
    const char *name; /* the TYPE operand */
    hs_quant_target target;
    hs_dtype base;
    int file_type; /* general.file_type */
} hs_quant_mixture;

/* Case-insensitive; NULL for what is no TYPE.  Q3_K, Q4_K and Q5_K mean their _M. */
const hs_quant_mixture *hs_quant_mixture_find(const char *name);
/* All TYPEs but COPY, separated by blanks. */
const char *hs_quant_mixture_names(void);

/* What the rules ask about a model. */
typedef struct hs_quant_model {
    bool falcon;
    uint32_t n_layer, n_gqa; /* n_gqa: query heads per key and value head */
} hs_quant_model;

void hs_quant_model_read(hs_quant_model *m, const hs_gguf *in);

/* Which of its rules decide; ffn_down_t counts as ffn_down.  Neither heads nor predictors. */
hs_dtype hs_quant_mixture_type(const hs_quant_mixture *mix, const hs_quant_model *m,
                               const char *tensor);

#ifdef __cplusplus
}
#endif

#endif
