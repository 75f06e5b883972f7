/* Malformed GGUF, placement, profile and safetensors files, one fault each, beside the valid
 * ones they are made from.   Usage: hostile DIR
 *
 *   DIR/valid/{model.gguf,x.gpuidx,x.activation.gguf,hf/}
 *   DIR/container/  files no program may read as a container      (NAME.gguf)
 *   DIR/model/      readable containers that are no valid model   (NAME.gguf)
 *   DIR/placement/  for valid/model.gguf                          (NAME.gpuidx)
 *   DIR/profile/    for valid/model.gguf                          (NAME.gguf)
 *   DIR/hf/         checkpoint folders                            (NAME/)
 */
#include "tests/gen/blob.h"
#include "tests/gen/hostile/hostile.h"

enum { N_EMBD = 32, N_FF = 64, N_LAYER = 2, N_HEAD = 4, N_KV = 2, N_VOCAB = 263, ALIGN = 32 };
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 };

/* ---- files in pieces, so that a case can break one ------------------------------------ */

kv *add_kv(file *f, const char *key, uint32_t type)
{
    kv *k = &f->kv[f->n_kv++];
    *k = (kv){.key_len = strlen(key), .key_bytes = strlen(key), .type = type};
    k->key = strdup(key);
    return k;
}

void kv_u32(file *f, const char *key, uint32_t v) { put_u32(&add_kv(f, key, U32)->value, v); }
void kv_u64(file *f, const char *key, uint64_t v) { put_u64(&add_kv(f, key, U64)->value, v); }
void kv_f32(file *f, const char *key, float v) { put_f32(&add_kv(f, key, F32)->value, v); }
void kv_str(file *f, const char *key, const char *v) { put_str(&add_kv(f, key, STR)->value, v); }

blob *kv_array(file *f, const char *key, uint32_t elem, uint64_t n)
{
    blob *b = &add_kv(f, key, ARR)->value;
    put_u32(b, elem);
    put_u64(b, n);
    return b;
}

tensor *add_tensor(file *f, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1)
{
    tensor *t = &f->tensor[f->n_tensor++];
    *t = (tensor){.name_len = strlen(name),
                  .name_bytes = strlen(name),
                  .n_dims = ne1 ? 2 : 1,
                  .ne = {ne0, ne1 ? ne1 : 1, 1, 1, 1},
                  .type = type};
    t->name = strdup(name);
    return t;
}

kv *find_kv(file *f, const char *key)
{
    for (size_t i = 0; i < f->n_kv; i++)
        if (strcmp(f->kv[i].key, key) == 0)
            return &f->kv[i];
    fprintf(stderr, "no key %s\n", key);
    exit(1);
}

tensor *find_tensor(file *f, const char *name)
{
    for (size_t i = 0; i < f->n_tensor; i++)
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    fprintf(stderr, "no tensor %s\n", name);
    exit(1);
}

static void pad(blob *b)
{
    while (b->n % ALIGN)
        put_uint(b, 0, 1);
}

/* Offsets and counts as they should be; cases change them afterwards. */
void settle(file *f)
{
    uint64_t at = 0;
    for (size_t i = 0; i < f->n_tensor; i++) {
        f->tensor[i].offset = at;
        at += (f->tensor[i].data.n + ALIGN - 1) / ALIGN * ALIGN;
    }
    f->told_tensors = f->n_tensor;
    f->told_kv = f->n_kv;
}

static blob serialize(const file *f)
{
    blob b = {0};
    put(&b, f->magic, 4);
    put_u32(&b, f->version);
    put_u64(&b, f->told_tensors);
    put_u64(&b, f->told_kv);
    for (size_t i = 0; i < f->n_kv; i++) {
        put_u64(&b, f->kv[i].key_len);
        put(&b, f->kv[i].key, f->kv[i].key_bytes);
        put_u32(&b, f->kv[i].type);
        put(&b, f->kv[i].value.p, f->kv[i].value.n);
    }
    for (size_t i = 0; i < f->n_tensor; i++) {
        const tensor *t = &f->tensor[i];
        put_u64(&b, t->name_len);
        put(&b, t->name, t->name_bytes);
        put_u32(&b, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims && d < 5; d++)
            put_u64(&b, t->ne[d]);
        put_u32(&b, t->type);
        put_u64(&b, t->offset);
    }
    pad(&b);
    for (size_t i = 0; i < f->n_tensor; i++) {
        put(&b, f->tensor[i].data.p, f->tensor[i].data.n);
        pad(&b);
    }
    if (f->cut < 0 && b.n > (size_t)-f->cut)
        b.n -= (size_t)-f->cut;
    else if (f->cut > 0 && (size_t)f->cut - 1 < b.n)
        b.n = (size_t)f->cut - 1;
    return b;
}

static void release(file *f)
{
    for (size_t i = 0; i < f->n_kv; i++) {
        free(f->kv[i].key);
        free(f->kv[i].value.p);
    }
    for (size_t i = 0; i < f->n_tensor; i++) {
        free(f->tensor[i].name);
        free(f->tensor[i].data.p);
    }
}

/* ---- the valid ones ------------------------------------------------------------------- */

static void weights(file *f, const char *name, uint64_t cols, uint64_t rows)
{
    tensor *t = add_tensor(f, name, 0, cols, rows);
    uint32_t state = 2463534242u ^ (uint32_t)f->n_tensor;
    for (uint64_t i = 0; i < cols * (rows ? rows : 1); i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        put_f32(&t->data, rows ? ((float)(state >> 8) / 8388608.0f - 1) * 0.3f : 1.0f);
    }
}

static void vocabulary(file *f)
{
    static const char *const extra[] = {"\xe2\x96\x81", "a", "b",
                                        "\xe2\x96\x81"
                                        "a"};
    kv_str(f, "tokenizer.ggml.model", "llama");
    blob *b = kv_array(f, "tokenizer.ggml.tokens", STR, N_VOCAB);
    put_str(b, "<unk>");
    put_str(b, "<s>");
    put_str(b, "</s>");
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        put_str(b, name);
    }
    for (int i = 0; i < 4; i++)
        put_str(b, extra[i]);
    b = kv_array(f, "tokenizer.ggml.scores", F32, N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++)
        put_f32(b, (float)-i);
    b = kv_array(f, "tokenizer.ggml.token_type", I32, N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++)
        put_u32(b, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
    kv_u32(f, "tokenizer.ggml.bos_token_id", 1);
    kv_u32(f, "tokenizer.ggml.eos_token_id", 2);
}

void base_model(file *f)
{
    static const struct {
        const char *name;
        uint64_t cols, rows;
    } layer[] = {
        {"attn_q", N_EMBD, N_EMBD},
        {"attn_k", N_EMBD, N_EMBD / N_HEAD * N_KV},
        {"attn_v", N_EMBD, N_EMBD / N_HEAD * N_KV},
        {"attn_output", N_EMBD, N_EMBD},
        {"ffn_gate", N_EMBD, N_FF},
        {"ffn_up", N_EMBD, N_FF},
        {"ffn_down", N_FF, N_EMBD},
        {"attn_norm", N_EMBD, 0},
        {"ffn_norm", N_EMBD, 0},
    };
    *f = (file){.magic = "GGUF", .version = 3};
    kv_str(f, "general.architecture", "llama");
    kv_u32(f, "llama.block_count", N_LAYER);
    kv_u32(f, "llama.context_length", 64);
    kv_u32(f, "llama.embedding_length", N_EMBD);
    kv_u32(f, "llama.feed_forward_length", N_FF);
    kv_u32(f, "llama.attention.head_count", N_HEAD);
    kv_u32(f, "llama.attention.head_count_kv", N_KV);
    kv_u32(f, "llama.rope.dimension_count", N_EMBD / N_HEAD);
    kv_f32(f, "llama.rope.freq_base", 10000);
    kv_f32(f, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    kv_str(f, "hotset.activation", "relu");
    kv_u32(f, "general.alignment", ALIGN);
    vocabulary(f);
    weights(f, "token_embd.weight", N_EMBD, N_VOCAB);
    for (int l = 0; l < N_LAYER; l++) {
        for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, layer[i].name);
            weights(f, name, layer[i].cols, layer[i].rows);
        }
    }
    weights(f, "output_norm.weight", N_EMBD, 0);
    weights(f, "output.weight", N_EMBD, N_VOCAB);
    settle(f);
}

void base_placement(file *f)
{
    *f = (file){.magic = "PWRI", .version = 3};
    kv_str(f, "general.architecture", "generic.gpu_index");
    kv_u32(f, "generic.gpu_index.block_count", N_LAYER);
    kv_u64(f, "split.vram_capacity", 1 << 20);
    for (int l = 0; l < N_LAYER; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.gpu_idx", l);
        tensor *idx = add_tensor(f, name, 18, N_FF, 0);
        snprintf(name, sizeof name, "blk.%d.gpu_bucket", l);
        tensor *bucket = add_tensor(f, name, 18, N_FF / 2, 0);
        for (uint32_t i = 0; i < N_FF; i++) {
            put_u32(&idx->data, i % 2);
            if (i % 2)
                put_u32(&bucket->data, i);
        }
    }
    settle(f);
}

void base_profile(file *f)
{
    *f = (file){.magic = "GGUF", .version = 3};
    kv_str(f, "general.type", "activation-profile");
    kv_u64(f, "hotset.profile.tokens", 100);
    for (int l = 0; l < N_LAYER; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_active_count", l);
        tensor *t = add_tensor(f, name, 27, N_FF, 0);
        for (uint64_t i = 0; i < N_FF; i++)
            put_u64(&t->data, 100 - i);
    }
    settle(f);
}

/* ---- one file a case ------------------------------------------------------------------ */

static void emit(const char *dir, const char *kind, const char *name, const char *suffix,
                 const file *f)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, kind);
    make_dir(path);
    snprintf(path, sizeof path, "%s/%s/%s.%s", dir, kind, name, suffix);
    const blob b = serialize(f);
    write_file(path, b.p, b.n);
    free(b.p);
}

static void emit_cases(const char *dir, const char *kind, const char *suffix, void (*base)(file *f),
                       const hostile_case *cases)
{
    for (; cases->name; cases++) {
        file f;
        base(&f);
        cases->breaks(&f, cases->arg);
        emit(dir, kind, cases->name, suffix, &f);
        release(&f);
    }
}

/* Every length a header can be cut to. */
static void emit_cuts(const char *dir)
{
    for (int n = 0; n <= 24; n++) {
        file f;
        base_model(&f);
        f.cut = n + 1;
        char name[32];
        snprintf(name, sizeof name, "cut-to-%02d-bytes", n);
        emit(dir, "container", name, "gguf", &f);
        release(&f);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return fprintf(stderr, "usage: hostile DIR\n"), 2;
    const char *dir = argv[1];
    file f;
    make_dir(dir);
    base_model(&f);
    emit(dir, "valid", "model", "gguf", &f);
    release(&f);
    base_placement(&f);
    emit(dir, "valid", "x", "gpuidx", &f);
    release(&f);
    base_profile(&f);
    emit(dir, "valid", "x.activation", "gguf", &f);
    release(&f);
    emit_cuts(dir);
    emit_cases(dir, "container", "gguf", base_model, hostile_container);
    emit_cases(dir, "model", "gguf", base_model, hostile_model);
    emit_cases(dir, "weights", "gguf", base_model, hostile_weights);
    emit_cases(dir, "placement", "gpuidx", base_placement, hostile_placement);
    emit_cases(dir, "profile", "gguf", base_profile, hostile_profile);
    emit_checkpoints(dir);
    return 0;
}
