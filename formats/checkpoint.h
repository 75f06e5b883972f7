#ifndef HS_FORMATS_CHECKPOINT_H
#define HS_FORMATS_CHECKPOINT_H

/* Tensors of a checkpoint, whatever container they came in: one or many safetensors files,
 * or torch zip files.  Readers of those formats fill this; tools see nothing else. */

#include "formats/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hs_elem {
    HS_ELEM_F64,
    HS_ELEM_F32,
    HS_ELEM_F16,
    HS_ELEM_BF16,
    HS_ELEM_I64,
    HS_ELEM_I32,
    HS_ELEM_I16,
    HS_ELEM_I8,
    HS_ELEM_U8,
    HS_ELEM_BOOL,
    HS_ELEM_OTHER, /* well-formed but not ours (F8_E4M3, U64…): its name is in `elem_name` */
} hs_elem;

enum { HS_CKPT_MAX_DIMS = 8 };

typedef struct hs_ckpt_tensor {
    char *name; /* owned by the checkpoint */
    hs_elem elem;
    char elem_name[16];               /* as the file spells it */
    uint32_t n_dims;                  /* 0..8 */
    uint64_t shape[HS_CKPT_MAX_DIMS]; /* outermost first, as torch prints it */
    int64_t stride[HS_CKPT_MAX_DIMS]; /* in elements, >= 0; every index is inside `data` */
    const uint8_t *data;              /* element [0]…[0]; little endian, unaligned */
    const char *file;                 /* the file it came from; owned by the checkpoint */
} hs_ckpt_tensor;

typedef struct hs_checkpoint hs_checkpoint;

/* A model folder: model.safetensors.index.json with its shards, else model.safetensors, else
 * pytorch_model.bin.index.json, else pytorch_model.bin.  Missing shards, tensors the index
 * promises and no file has, duplicate names: errors that name the file. */
HS_NODISCARD hs_status hs_checkpoint_open_dir(hs_checkpoint **out, const char *dir, hs_err *err);
/* One file; safetensors or torch zip by content, never by name. */
HS_NODISCARD hs_status hs_checkpoint_open_file(hs_checkpoint **out, const char *path, hs_err *err);
void hs_checkpoint_free(hs_checkpoint *c);

size_t hs_checkpoint_count(const hs_checkpoint *c);
/* In the order of the files; the reference is valid until the checkpoint is freed. */
const hs_ckpt_tensor *hs_checkpoint_at(const hs_checkpoint *c, size_t i);
const hs_ckpt_tensor *hs_checkpoint_find(const hs_checkpoint *c, const char *name);

/* Row `row` of a 2-D tensor (or all of a 1-D one, row 0) as floats into out[shape[last]].
 * Strides are honoured.  Float kinds only: HS_ERR_UNSUPPORTED naming the tensor otherwise. */
HS_NODISCARD hs_status hs_ckpt_row_f32(const hs_ckpt_tensor *t, uint64_t row, float *out,
                                       hs_err *err);
/* Element i (row-major logical order) as a number, any kind but OTHER. */
HS_NODISCARD hs_status hs_ckpt_value(const hs_ckpt_tensor *t, uint64_t i, double *out, hs_err *err);
/* The same for integer kinds, exactly. */
HS_NODISCARD hs_status hs_ckpt_int(const hs_ckpt_tensor *t, uint64_t i, int64_t *out, hs_err *err);
/* Number of elements. */
uint64_t hs_ckpt_elems(const hs_ckpt_tensor *t);
uint32_t hs_elem_bytes(hs_elem e);

#ifdef __cplusplus
}
#endif

#endif
