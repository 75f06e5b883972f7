#ifndef HS_FORMATS_PICKLE_H
#define HS_FORMATS_PICKLE_H

/* The part of pickle that saved tensors need, as an interpreter that can build values and nothing
 * else: every opcode and every global outside the list is refused by name and byte position. */

#include "formats/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Finds the bytes of storage `key`; the function that fails fills err. */
typedef hs_status (*hs_pickle_storage)(void *ud, const char *key, const uint8_t **data,
                                       size_t *bytes, hs_err *err);

/* Run the program and visit the tensors of its result as hs_torch_zip_parse describes; messages
 * start with "byte N: " or with the tensor's name.  Memory is bounded whatever the program. */
HS_NODISCARD hs_status hs_pickle_tensors(const void *program, size_t size,
                                         hs_pickle_storage storage, void *storage_ud,
                                         hs_ckpt_visit visit, void *visit_ud, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
