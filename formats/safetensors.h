#ifndef HS_FORMATS_SAFETENSORS_H
#define HS_FORMATS_SAFETENSORS_H

/* One safetensors file: u64 header length, JSON header, data. */

#include "formats/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called once per tensor, in order of data offset; `t->data` points into `data`; `t->name` is
 * valid during the call only.  A failing callback ends the walk with its status. */
typedef hs_status (*hs_ckpt_visit)(void *ud, const hs_ckpt_tensor *t, hs_err *err);

/* Checks everything: header length, JSON (duplicate names included), dtype, shape product,
 * offsets without overlap, hole or reach past the end. */
HS_NODISCARD hs_status hs_safetensors_parse(const void *data, size_t size, hs_ckpt_visit visit,
                                            void *ud, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
