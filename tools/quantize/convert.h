#ifndef HS_TOOLS_QUANTIZE_CONVERT_H
#define HS_TOOLS_QUANTIZE_CONVERT_H

/* Carries a plan out: declares the output's KVs and tensors, then converts block by block in
 * memory that does not grow with the model.  The output does not depend on the threads. */

#include "formats/gguf_write.h"
#include "runtime/pool.h"
#include "tools/quantize/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A writer with everything declared; NULL when out of memory. */
hs_gguf_writer *hs_quant_declare(const hs_gguf *in, const hs_quant_options *o,
                                 const hs_quant_plan *plan);

/* Called on the calling thread; each may be NULL. */
typedef struct hs_quant_hooks {
    hs_progress_fn progress;
    void *progress_ud;
    void (*done)(void *ud, size_t i, const hs_quant_step *step); /* a tensor is complete */
    void *done_ud;
} hs_quant_hooks;

/* Write all data.  Weights that are not finite, or are not once encoded, are an error that
 * names the tensor and the element.  Fills steps' rms_error.  `pool` may be NULL. */
HS_NODISCARD hs_status hs_quant_convert(hs_quant_plan *plan, hs_gguf_writer *w, hs_pool *pool,
                                        const hs_quant_hooks *hooks, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
