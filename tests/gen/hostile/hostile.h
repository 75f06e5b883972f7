#ifndef HS_TESTS_GEN_HOSTILE_H
#define HS_TESTS_GEN_HOSTILE_H

/* A GGUF file in pieces; what it claims and what it holds are apart, so that a case can make
 * them differ. */

#include "tests/gen/blob.h"

typedef struct kv {
    char *key;
    uint64_t key_len; /* as written; key_bytes are there */
    size_t key_bytes;
    uint32_t type;
    blob value;
} kv;

typedef struct tensor {
    char *name;
    uint64_t name_len;
    size_t name_bytes;
    uint32_t n_dims;
    uint64_t ne[5];
    uint32_t type;
    uint64_t offset;
    blob data;
} tensor;

typedef struct file {
    char magic[4];
    uint32_t version;
    uint64_t told_tensors, told_kv;
    kv kv[40];
    tensor tensor[40];
    size_t n_kv, n_tensor;
    long cut; /* > 0: to cut - 1 bytes; < 0: that many off the end */
} file;

typedef struct hostile_case {
    const char *name;
    void (*breaks)(file *f, uint64_t arg);
    uint64_t arg;
} hostile_case;

extern const hostile_case hostile_container[], hostile_model[], hostile_placement[],
    hostile_profile[], hostile_weights[];

kv *add_kv(file *f, const char *key, uint32_t type);
void kv_u32(file *f, const char *key, uint32_t v);
void kv_u64(file *f, const char *key, uint64_t v);
void kv_f32(file *f, const char *key, float v);
void kv_str(file *f, const char *key, const char *v);
blob *kv_array(file *f, const char *key, uint32_t elem, uint64_t n);
tensor *add_tensor(file *f, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1);
kv *find_kv(file *f, const char *key);
tensor *find_tensor(file *f, const char *name);
void settle(file *f);
void base_model(file *f);
void base_placement(file *f);
void base_profile(file *f);
void emit_checkpoints(const char *dir);

#endif
