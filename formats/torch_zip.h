#ifndef HS_FORMATS_TORCH_ZIP_H
#define HS_FORMATS_TORCH_ZIP_H

/* torch.save files (zip, torch 1.6 and newer), read without ever executing pickle: an
 * interpreter of the handful of opcodes and globals that tensors need, refusing all else. */

#include "formats/file.h"
#include "formats/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Storages read from the archive; owned by the caller.  Uncompressed members are borrowed from
 * the input, compressed ones are owned here. */
typedef struct hs_torch_zip hs_torch_zip;

/* Visit every tensor of the saved object: a plain tensor (name ""), a Parameter, or a (possibly
 * nested) dict of them (names joined by "."; an integer key is written in decimal).  Other
 * values (numbers, strings, None) are skipped.  `data` must outlive *out, and the tensors' data
 * live as long as *out. */
HS_NODISCARD hs_status hs_torch_zip_parse(hs_torch_zip **out, const void *data, size_t size,
                                          hs_ckpt_visit visit, void *ud, hs_err *err);
void hs_torch_zip_free(hs_torch_zip *z);

/* Write a 1-D int64 tensor as torch.save(t, "<stem>.pt") does: the file torch and PowerInfer
 * read; byte-identical for equal input.  The caller commits `out`. */
HS_NODISCARD hs_status hs_torch_write_i64(hs_out *out, const char *stem, const int64_t *v,
                                          uint64_t n, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
