#ifndef HS_FORMATS_GGUF_WRITE_H
#define HS_FORMATS_GGUF_WRITE_H

/* Writer of GGUF version 3 and PWRI: declare KVs and tensors, then stream the data.
 *
 * Offsets are final before the first byte is written, so memory use does not grow with the
 * model.  Declarations never fail: running out of memory, a name that is too long or a row that
 * does not divide into blocks is remembered and returned by hs_gguf_writer_begin. */

#include "formats/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_gguf_writer hs_gguf_writer;

/* `alignment` is a power of two from 8 to 65536; other than 32 writes general.alignment. */
hs_gguf_writer *hs_gguf_writer_new(bool pwri, uint32_t alignment);
void hs_gguf_writer_free(hs_gguf_writer *w);

/* KVs appear in the order of the calls; setting a key again replaces its value in place. */
void hs_gguf_set_u32(hs_gguf_writer *w, const char *key, uint32_t v);
void hs_gguf_set_u64(hs_gguf_writer *w, const char *key, uint64_t v);
void hs_gguf_set_f32(hs_gguf_writer *w, const char *key, float v);
void hs_gguf_set_f64(hs_gguf_writer *w, const char *key, double v);
void hs_gguf_set_bool(hs_gguf_writer *w, const char *key, bool v);
void hs_gguf_set_str(hs_gguf_writer *w, const char *key, const char *v);
void hs_gguf_set_strn(hs_gguf_writer *w, const char *key, hs_str v);
/* n elements of the plain type `elem` in host memory order. */
void hs_gguf_set_array(hs_gguf_writer *w, const char *key, hs_kv_type elem, const void *v,
                       uint64_t n);
void hs_gguf_set_str_array(hs_gguf_writer *w, const char *key, const hs_str *v, uint64_t n);
/* Byte for byte what a reader found, whatever its type. */
void hs_gguf_copy_kv(hs_gguf_writer *w, const hs_kv *kv);

/* Data must follow in the order of declaration. */
void hs_gguf_add_tensor(hs_gguf_writer *w, const char *name, hs_dtype dtype, uint32_t n_dims,
                        const uint64_t *ne);

/* Total file size; valid after the declarations. */
uint64_t hs_gguf_writer_size(const hs_gguf_writer *w);
/* Write header, KVs and tensor table to `out` (borrowed until hs_gguf_writer_end). */
HS_NODISCARD hs_status hs_gguf_writer_begin(hs_gguf_writer *w, hs_out *out, hs_err *err);
/* Append data of the current tensor; padding and the step to the next tensor are automatic. */
HS_NODISCARD hs_status hs_gguf_writer_data(hs_gguf_writer *w, const void *data, uint64_t bytes,
                                           hs_err *err);
/* Check that every declared byte was written; the caller commits `out`. */
HS_NODISCARD hs_status hs_gguf_writer_end(hs_gguf_writer *w, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
