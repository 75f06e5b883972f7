/* The faults: GGUF containers, models, placements, profiles. */
#include "tests/gen/hostile/hostile.h"

#include <math.h>

#define TOP(bit)   ((uint64_t)1 << (bit))
#define ALL_ONES   UINT64_MAX
#define EMBD       "token_embd.weight"
#define GATE0      "blk.0.ffn_gate.weight"
#define PREFIX     "llama."
#define HEAD_COUNT PREFIX "attention.head_count"

static void set_value(kv *k, uint64_t v, unsigned bytes)
{
    k->value.n = 0;
    put_uint(&k->value, v, bytes);
}

/* ---- containers ----------------------------------------------------------------------- */

static void magic(file *f, uint64_t arg)
{
    for (unsigned i = 0; i < 4; i++)
        f->magic[i] = (char)(arg >> 8 * (3 - i));
}

static void version(file *f, uint64_t arg) { f->version = (uint32_t)arg; }
static void told_tensors(file *f, uint64_t arg) { f->told_tensors = arg; }
static void told_kv(file *f, uint64_t arg) { f->told_kv = arg; }
static void more_tensors(file *f, uint64_t arg) { f->told_tensors += arg; }
static void more_kv(file *f, uint64_t arg) { f->told_kv += arg; }
static void cut_end(file *f, uint64_t arg) { f->cut = -(long)arg; }
static void cut_to(file *f, uint64_t arg) { f->cut = (long)arg + 1; }

static void key_len(file *f, uint64_t arg) { f->kv[2].key_len = arg; }

static void key_nul(file *f, uint64_t arg) { f->kv[2].key[arg] = '\0'; }

static void key_empty(file *f, uint64_t arg)
{
    (void)arg;
    f->kv[2].key_len = f->kv[2].key_bytes = 0;
}

static void key_twice(file *f, uint64_t arg)
{
    (void)arg;
    kv_u32(f, f->kv[2].key, 64);
    f->told_kv++;
}

static void string_len(file *f, uint64_t arg)
{
    blob *b = &find_kv(f, "general.architecture")->value;
    b->n = 0;
    put_u64(b, arg);
    put(b, "llama", 5);
}

static void array_string_len(file *f, uint64_t arg)
{
    blob *b = &find_kv(f, "tokenizer.ggml.tokens")->value;
    for (unsigned i = 0; i < 8; i++)
        b->p[12 + i] = (uint8_t)(arg >> 8 * i);
}

static void value_type(file *f, uint64_t arg) { f->kv[2].type = (uint32_t)arg; }

static void array_elem(file *f, uint64_t arg)
{
    blob *b = kv_array(f, "test.array", (uint32_t)arg, 1);
    put_u32(b, 4); /* of a nested array: u32 … */
    put_u64(b, 1); /* … one of them */
    put_u32(b, 7);
    f->told_kv++;
}

static void array_len(file *f, uint64_t arg)
{
    put_u32(kv_array(f, "test.array", 4, arg), 7);
    f->told_kv++;
}

static void alignment(file *f, uint64_t arg) { set_value(find_kv(f, "general.alignment"), arg, 4); }

static void alignment_type(file *f, uint64_t arg)
{
    (void)arg;
    kv *k = find_kv(f, "general.alignment");
    k->type = 8;
    k->value.n = 0;
    put_str(&k->value, "32");
}

static void name_len(file *f, uint64_t arg) { f->tensor[1].name_len = arg; }
static void name_nul(file *f, uint64_t arg) { f->tensor[1].name[arg] = '\0'; }

static void name_long(file *f, uint64_t arg)
{
    tensor *t = &f->tensor[1];
    t->name = realloc(t->name, (size_t)arg);
    if (!t->name)
        exit(1);
    memset(t->name, 'a', (size_t)arg);
    t->name_len = t->name_bytes = (size_t)arg;
}

static void name_twice(file *f, uint64_t arg)
{
    (void)arg;
    tensor *t = &f->tensor[2]; /* as large as tensor 3, so that only the name is wrong */
    free(t->name);
    t->name = strdup(f->tensor[3].name);
    t->name_len = t->name_bytes = strlen(t->name);
}

static void n_dims(file *f, uint64_t arg) { f->tensor[0].n_dims = (uint32_t)arg; }
static void dim0(file *f, uint64_t arg) { find_tensor(f, GATE0)->ne[0] = arg; }

static void both_dims(file *f, uint64_t arg)
{
    tensor *t = find_tensor(f, GATE0);
    t->ne[0] = t->ne[1] = arg;
}

static void four_dims(file *f, uint64_t arg)
{
    tensor *t = find_tensor(f, GATE0);
    t->n_dims = 4;
    for (unsigned i = 0; i < 4; i++)
        t->ne[i] = arg;
}

static void flat_dim(file *f, uint64_t arg)
{
    dim0(f, arg);
    find_tensor(f, GATE0)->ne[1] = 1;
}

static void offset_plus(file *f, uint64_t arg) { f->tensor[3].offset += arg; }
static void offset_is(file *f, uint64_t arg) { f->tensor[3].offset = arg; }

static void offset_same(file *f, uint64_t arg)
{
    f->tensor[3].offset = f->tensor[(size_t)arg].offset;
}

static void offsets_swapped(file *f, uint64_t arg)
{
    (void)arg; /* of tensors of different sizes, so that they overlap their neighbours */
    const uint64_t t = f->tensor[0].offset;
    f->tensor[0].offset = f->tensor[1].offset;
    f->tensor[1].offset = t;
}

static void tensor_type(file *f, uint64_t arg) { find_tensor(f, GATE0)->type = (uint32_t)arg; }

static void ragged_block(file *f, uint64_t arg)
{
    tensor *t = find_tensor(f, GATE0);
    t->type = (uint32_t)arg;
    t->ne[0] = 31;
}

const hostile_case hostile_container[] = {
    {"magic-wrong", magic, 0x47475558},
    {"magic-swapped", magic, 0x46554747},
    {"magic-zero", magic, 0},
    {"version-0", version, 0},
    {"version-1", version, 1},
    {"version-4", version, 4},
    {"version-2-31", version, TOP(31)},
    {"version-swapped", version, 0x03000000},
    {"cut-half", cut_to, 60000},
    {"cut-in-kv", cut_to, 300},
    {"cut-in-tensors", cut_to, 9000},
    {"cut-last-byte", cut_end, 1},
    {"tensors-2-31", told_tensors, TOP(31)},
    {"tensors-2-32-1", told_tensors, TOP(32) - 1},
    {"tensors-2-63", told_tensors, TOP(63)},
    {"tensors-2-64-1", told_tensors, ALL_ONES},
    {"tensors-one-more", more_tensors, 1},
    {"kv-2-31", told_kv, TOP(31)},
    {"kv-2-32-1", told_kv, TOP(32) - 1},
    {"kv-2-63", told_kv, TOP(63)},
    {"kv-2-64-1", told_kv, ALL_ONES},
    {"kv-one-more", more_kv, 1},
    {"kv-one-less", more_kv, ALL_ONES},
    {"key-empty", key_empty, 0},
    {"key-2-32", key_len, TOP(32)},
    {"key-2-63", key_len, TOP(63)},
    {"key-2-64-1", key_len, ALL_ONES},
    {"key-past-end", key_len, 1000000},
    {"key-nul", key_nul, 3},
    {"key-twice", key_twice, 0},
    {"string-2-32", string_len, TOP(32)},
    {"string-2-63", string_len, TOP(63)},
    {"string-2-64-1", string_len, ALL_ONES},
    {"string-past-end", string_len, 1000000},
    {"array-string-2-63", array_string_len, TOP(63)},
    {"array-string-past-end", array_string_len, 1000000},
    {"value-type-13", value_type, 13},
    {"value-type-2-32-1", value_type, TOP(32) - 1},
    {"array-nested", array_elem, 9},
    {"array-elem-13", array_elem, 13},
    {"array-elem-2-31", array_elem, TOP(31)},
    {"array-past-end", array_len, 1000000},
    {"array-2-62", array_len, TOP(62)},
    {"array-2-64-1", array_len, ALL_ONES},
    {"alignment-0", alignment, 0},
    {"alignment-3", alignment, 3},
    {"alignment-2-32-1", alignment, TOP(32) - 1},
    {"alignment-2-31", alignment, TOP(31)},
    {"alignment-string", alignment_type, 0},
    {"name-empty", name_len, 0},
    {"name-2-63", name_len, TOP(63)},
    {"name-2-64-1", name_len, ALL_ONES},
    {"name-nul", name_nul, 3},
    {"name-64-KiB", name_long, 65536},
    {"name-twice", name_twice, 0},
    {"dims-0", n_dims, 0},
    {"dims-5", n_dims, 5},
    {"dims-2-32-1", n_dims, TOP(32) - 1},
    {"dim-2-64-1", dim0, ALL_ONES},
    {"dim-2-63", dim0, TOP(63)},
    {"dim-past-end", dim0, 1 << 20},
    {"dims-product-wraps", both_dims, TOP(33)},
    {"dims-product-is-0", both_dims, TOP(32)},
    {"dims-four-wrap", four_dims, TOP(16)},
    {"dims-bytes-wrap", flat_dim, TOP(62)},
    {"dims-bytes-wrap-to-8", flat_dim, TOP(62) + 2},
    {"dims-padding-wraps", flat_dim, TOP(62) - 1},
    {"offset-unaligned", offset_plus, 1},
    {"offset-unaligned-4", offset_plus, 4},
    {"offset-overlaps", offset_same, 1},
    {"offset-overlaps-first", offset_same, 0},
    {"offset-past-end", offset_is, 1 << 24},
    {"offset-wraps", offset_is, ALL_ONES - 31},
    {"offset-2-63", offset_is, TOP(63)},
    {"offsets-swapped", offsets_swapped, 0},
    {"type-99", tensor_type, 99},
    {"type-removed-4", tensor_type, 4},
    {"type-removed-5", tensor_type, 5},
    {"type-removed-31", tensor_type, 31},
    {"type-minus-1", tensor_type, TOP(32) - 1},
    {"block-row-q4-0", ragged_block, 2},
    {"block-row-q8-0", ragged_block, 8},
    {"block-row-q6-k", ragged_block, 14},
    {NULL, NULL, 0},
};

/* ---- models --------------------------------------------------------------------------- */

static void pwri(file *f, uint64_t arg) { magic(f, arg); }

static void layers(file *f, uint64_t arg) { set_value(find_kv(f, PREFIX "block_count"), arg, 4); }

static void heads(file *f, uint64_t arg) { set_value(find_kv(f, HEAD_COUNT), arg, 4); }
static void kv_heads(file *f, uint64_t arg) { set_value(find_kv(f, HEAD_COUNT "_kv"), arg, 4); }

static void rope_dim(file *f, uint64_t arg)
{
    set_value(find_kv(f, PREFIX "rope.dimension_count"), arg, 4);
}

static void rope_base(file *f, uint64_t bits)
{
    set_value(find_kv(f, PREFIX "rope.freq_base"), bits, 4);
}

static void eps(file *f, uint64_t bits)
{
    set_value(find_kv(f, PREFIX "attention.layer_norm_rms_epsilon"), bits, 4);
}

static void width(file *f, uint64_t arg)
{
    set_value(find_kv(f, PREFIX "embedding_length"), arg, 4);
}

static void width64(file *f, uint64_t arg)
{
    kv *k = find_kv(f, PREFIX "embedding_length");
    k->type = 10;
    set_value(k, arg, 8);
}

static void width_negative(file *f, uint64_t arg)
{
    kv *k = find_kv(f, PREFIX "embedding_length");
    k->type = 5;
    set_value(k, arg, 4);
}

static void width_string(file *f, uint64_t arg)
{
    (void)arg;
    kv *k = find_kv(f, PREFIX "embedding_length");
    k->type = 8;
    k->value.n = 0;
    put_str(&k->value, "32");
}

static void n_ff(file *f, uint64_t arg)
{
    set_value(find_kv(f, PREFIX "feed_forward_length"), arg, 4);
}

static void context(file *f, uint64_t arg)
{
    set_value(find_kv(f, PREFIX "context_length"), arg, 4);
}

static void drop_kv(file *f, kv *k)
{
    free(k->key);
    free(k->value.p);
    memmove(k, k + 1, (size_t)(f->kv + f->n_kv - (k + 1)) * sizeof *k);
    f->n_kv--;
    f->told_kv--;
}

static void no_width(file *f, uint64_t arg)
{
    (void)arg;
    drop_kv(f, find_kv(f, PREFIX "embedding_length"));
}

static void no_tokens(file *f, uint64_t arg)
{
    (void)arg;
    drop_kv(f, find_kv(f, "tokenizer.ggml.tokens"));
}

static void architecture(file *f, uint64_t arg)
{
    static const char *const names[] = {"nonesuch", "", "generic.gpu_index"};
    blob *b = &find_kv(f, "general.architecture")->value;
    b->n = 0;
    put_str(b, names[arg]);
}

static void architecture_nul(file *f, uint64_t arg)
{
    blob *b = &find_kv(f, "general.architecture")->value;
    b->n = 0;
    put_u64(b, arg);
    put(b, "llama\0x", (size_t)arg);
}

static void bos(file *f, uint64_t arg)
{
    set_value(find_kv(f, "tokenizer.ggml.bos_token_id"), arg, 4);
}

static void eos(file *f, uint64_t arg)
{
    set_value(find_kv(f, "tokenizer.ggml.eos_token_id"), arg, 4);
}

static void tokens_as_numbers(file *f, uint64_t arg)
{
    blob *b = &find_kv(f, "tokenizer.ggml.tokens")->value;
    b->n = 0;
    put_u32(b, 4);
    put_u64(b, arg);
    for (uint64_t i = 0; i < arg; i++)
        put_u32(b, (uint32_t)i);
}

static void few_scores(file *f, uint64_t arg)
{
    blob *b = &find_kv(f, "tokenizer.ggml.scores")->value;
    b->n = 0;
    put_u32(b, 6);
    put_u64(b, arg);
    for (uint64_t i = 0; i < arg; i++)
        put_f32(b, 0);
}

static void score_nan(file *f, uint64_t bits)
{
    blob *b = &find_kv(f, "tokenizer.ggml.scores")->value;
    for (unsigned i = 0; i < 4; i++)
        b->p[12 + 4 * 260 + i] = (uint8_t)(bits >> 8 * i);
}

static void few_token_types(file *f, uint64_t arg)
{
    blob *b = &find_kv(f, "tokenizer.ggml.token_type")->value;
    b->n = 0;
    put_u32(b, 5);
    put_u64(b, arg);
    for (uint64_t i = 0; i < arg; i++)
        put_u32(b, 1);
}

static void rename_tensor(tensor *t, const char *name)
{
    free(t->name);
    t->name = strdup(name);
    t->name_len = t->name_bytes = strlen(name);
}

static void lost_tensor(file *f, uint64_t arg)
{
    (void)arg;
    rename_tensor(find_tensor(f, GATE0), "blk.0.something.weight");
}

static void drop_last_tensor(file *f)
{
    const tensor *t = &f->tensor[--f->n_tensor];
    free(t->name);
    free(t->data.p);
}

static void no_output_norm(file *f, uint64_t arg)
{
    (void)arg; /* swapped with the last, so that the file is whole but for it */
    tensor *norm = find_tensor(f, "output_norm.weight"), *last = &f->tensor[f->n_tensor - 1];
    free(norm->name);
    free(norm->data.p);
    *norm = *last;
    f->n_tensor--;
    settle(f);
}

static void dims_swapped(file *f, uint64_t arg)
{
    (void)arg;
    tensor *t = find_tensor(f, GATE0);
    const uint64_t n = t->ne[0];
    t->ne[0] = t->ne[1];
    t->ne[1] = n;
}

static void vocab_rows(file *f, uint64_t arg) { find_tensor(f, EMBD)->ne[1] = arg; }

const hostile_case hostile_model[] = {
    {"sparse-magic-dense-tensors", pwri, 0x50575249},
    {"layers-0", layers, 0},
    {"layers-1-of-2", layers, 1},
    {"layers-3-of-2", layers, 3},
    {"layers-2-32-1", layers, TOP(32) - 1},
    {"heads-0", heads, 0},
    {"heads-3", heads, 3},
    {"heads-2-32-1", heads, TOP(32) - 1},
    {"kv-heads-0", kv_heads, 0},
    {"kv-heads-3", kv_heads, 3},
    {"kv-heads-8", kv_heads, 8},
    {"rope-dim-above-head", rope_dim, 64},
    {"rope-dim-odd", rope_dim, 7},
    {"rope-base-0", rope_base, 0},
    {"rope-base-nan", rope_base, 0x7fc00000},
    {"eps-nan", eps, 0x7fc00000},
    {"eps-inf", eps, 0x7f800000},
    {"eps-negative", eps, 0xbf800000},
    {"width-0", width, 0},
    {"width-64", width, 64},
    {"width-2-32-1", width, TOP(32) - 1},
    {"width-2-63", width64, TOP(63)},
    {"width-negative", width_negative, TOP(32) - 32},
    {"width-string", width_string, 0},
    {"width-missing", no_width, 0},
    {"n-ff-0", n_ff, 0},
    {"n-ff-65", n_ff, 65},
    {"context-0", context, 0},
    {"architecture-unknown", architecture, 0},
    {"architecture-empty", architecture, 1},
    {"architecture-placement", architecture, 2},
    {"architecture-nul", architecture_nul, 7},
    {"bos-is-vocab", bos, 263},
    {"bos-2-31", bos, TOP(31)},
    {"eos-2-32-1", eos, TOP(32) - 2},
    {"tokens-missing", no_tokens, 0},
    {"tokens-numbers", tokens_as_numbers, 263},
    {"tokens-none", tokens_as_numbers, 0},
    {"scores-too-few", few_scores, 262},
    {"score-nan", score_nan, 0x7fc00000},
    {"token-types-too-few", few_token_types, 1},
    {"tensor-missing", lost_tensor, 0},
    {"output-norm-missing", no_output_norm, 0},
    {"tensor-transposed", dims_swapped, 0},
    {"tensor-dim-0", dim0, 0},
    {"tensor-is-i32", tensor_type, 26},
    {"vocab-rows-differ", vocab_rows, 262},
    {NULL, NULL, 0},
};

/* ---- placements ----------------------------------------------------------------------- */

static void set_i32(file *f, const char *name, size_t i, uint64_t v)
{
    blob *b = &find_tensor(f, name)->data;
    for (unsigned k = 0; k < 4; k++)
        b->p[4 * i + k] = (uint8_t)(v >> 8 * k);
}

static void set_i64(file *f, const char *name, size_t i, uint64_t v)
{
    blob *b = &find_tensor(f, name)->data;
    for (unsigned k = 0; k < 8; k++)
        b->p[8 * i + k] = (uint8_t)(v >> 8 * k);
}

static void shorten(file *f, const char *name, uint64_t n, size_t bytes)
{
    tensor *t = find_tensor(f, name);
    t->ne[0] = n;
    t->data.n = (size_t)n * bytes;
    settle(f);
}

static void idx_short(file *f, uint64_t arg) { shorten(f, "blk.1.gpu_idx", arg, 4); }
static void idx_value(file *f, uint64_t arg) { set_i32(f, "blk.1.gpu_idx", 0, arg); }
static void bucket_short(file *f, uint64_t arg) { shorten(f, "blk.1.gpu_bucket", arg, 4); }
static void bucket_first(file *f, uint64_t arg) { set_i32(f, "blk.1.gpu_bucket", 0, arg); }
static void bucket_last(file *f, uint64_t arg) { set_i32(f, "blk.1.gpu_bucket", 31, arg); }
static void idx_type(file *f, uint64_t arg)
{
    find_tensor(f, "blk.1.gpu_idx")->type = (uint32_t)arg;
}

static void place_layers(file *f, uint64_t arg)
{
    set_value(find_kv(f, "generic.gpu_index.block_count"), arg, 4);
}

static void place_other(file *f, uint64_t arg)
{
    char hex[33];
    memset(hex, (int)arg, 32);
    hex[32] = '\0';
    kv_str(f, "hotset.model_fingerprint", hex);
    f->told_kv++;
}

static void lost_layer(file *f, uint64_t arg)
{
    set_value(find_kv(f, "generic.gpu_index.block_count"), arg, 4);
    while (f->n_tensor > 2)
        drop_last_tensor(f);
    settle(f);
}

static void tensors_swapped(file *f, uint64_t arg)
{
    const tensor t = f->tensor[0];
    f->tensor[0] = f->tensor[arg];
    f->tensor[arg] = t;
    settle(f);
}

static void layers_swapped(file *f, uint64_t arg)
{
    tensors_swapped(f, 2);
    const tensor t = f->tensor[1];
    f->tensor[1] = f->tensor[3];
    f->tensor[3] = t;
    settle(f);
    (void)arg;
}

static void lost_bucket(file *f, uint64_t arg)
{
    (void)arg;
    drop_last_tensor(f);
    settle(f);
}

static void extra_tensor(file *f, uint64_t arg)
{
    tensor *t = add_tensor(f, "blk.7.gpu_idx", (uint32_t)arg, 1, 0);
    put_u64(&t->data, 0);
    settle(f);
}

static void bucket_name(file *f, uint64_t arg)
{
    (void)arg;
    rename_tensor(find_tensor(f, "blk.1.gpu_bucket"), "blk.1.bucket");
}

const hostile_case hostile_placement[] = {
    {"magic-wrong", magic, 0x47475558},
    {"cut-to-20-bytes", cut_to, 20},
    {"cut-half", cut_to, 500},
    {"cut-last-byte", cut_end, 1},
    {"tensors-2-63", told_tensors, TOP(63)},
    {"kv-2-63", told_kv, TOP(63)},
    {"idx-63-of-64", idx_short, 63},
    {"idx-value-2", idx_value, 2},
    {"idx-value-minus-1", idx_value, TOP(32) - 1},
    {"idx-disagrees", idx_value, 1},
    {"bucket-too-few", bucket_short, 31},
    {"bucket-empty", bucket_short, 0},
    {"bucket-negative", bucket_first, TOP(32) - 1},
    {"bucket-id-64", bucket_last, 64},
    {"bucket-id-2-31-1", bucket_last, TOP(31) - 1},
    {"bucket-twice", bucket_first, 3},
    {"bucket-unsorted", bucket_first, 9},
    {"bucket-disagrees", bucket_first, 0},
    {"idx-is-f32", idx_type, 0},
    {"layers-0", place_layers, 0},
    {"layers-1-of-2", place_layers, 1},
    {"layers-3-of-2", place_layers, 3},
    {"layers-2-32-1", place_layers, TOP(32) - 1},
    {"model-has-more-layers", lost_layer, 1},
    {"layers-swapped", layers_swapped, 0},
    {"bucket-before-idx", tensors_swapped, 1},
    {"bucket-lost", lost_bucket, 0},
    {"bucket-name", bucket_name, 0},
    {"tensor-extra", extra_tensor, 18},
    {"model-is-another", place_other, '0'},
    {"fingerprint-not-hex", place_other, 'z'},
    {NULL, NULL, 0},
};

/* ---- profiles ------------------------------------------------------------------------- */

static void count_is(file *f, uint64_t arg) { set_i64(f, "blk.1.ffn_active_count", 5, arg); }
static void count_short(file *f, uint64_t arg) { shorten(f, "blk.1.ffn_active_count", arg, 8); }
static void count_type(file *f, uint64_t arg)
{
    find_tensor(f, "blk.1.ffn_active_count")->type = (uint32_t)arg;
}

static void count_f64_nan(file *f, uint64_t arg)
{
    count_type(f, 28);
    count_is(f, arg);
}

static void profile_tokens(file *f, uint64_t arg)
{
    set_value(find_kv(f, "hotset.profile.tokens"), arg, 8);
}

static void profile_no_tokens(file *f, uint64_t arg)
{
    (void)arg;
    drop_kv(f, find_kv(f, "hotset.profile.tokens"));
}

static void profile_kind(file *f, uint64_t arg)
{
    static const char *const kinds[] = {"model", ""};
    blob *b = &find_kv(f, "general.type")->value;
    b->n = 0;
    put_str(b, kinds[arg]);
}

static void profile_other(file *f, uint64_t arg)
{
    char hex[33];
    memset(hex, (int)arg, 32);
    hex[32] = '\0';
    kv_str(f, "hotset.profile.fingerprint", hex);
    f->told_kv++;
}

static void profile_lost_layer(file *f, uint64_t arg)
{
    (void)arg;
    drop_last_tensor(f);
    settle(f);
}

static void profile_hole(file *f, uint64_t arg)
{
    (void)arg;
    rename_tensor(find_tensor(f, "blk.0.ffn_active_count"), "blk.2.ffn_active_count");
}

static void profile_extra(file *f, uint64_t arg)
{
    tensor *t = add_tensor(f, "blk.2.ffn_active_count", (uint32_t)arg, 64, 0);
    for (int i = 0; i < 64; i++)
        put_u64(&t->data, 1);
    settle(f);
}

static void profile_stranger(file *f, uint64_t arg)
{
    tensor *t = add_tensor(f, "output.weight", (uint32_t)arg, 1, 0);
    put_u64(&t->data, 0);
    settle(f);
}

const hostile_case hostile_profile[] = {
    {"magic-wrong", magic, 0x47475558},
    {"cut-to-20-bytes", cut_to, 20},
    {"cut-half", cut_to, 700},
    {"cut-last-byte", cut_end, 1},
    {"tensors-2-63", told_tensors, TOP(63)},
    {"kv-2-63", told_kv, TOP(63)},
    {"count-negative", count_is, ALL_ONES},
    {"count-above-tokens", count_is, 101},
    {"count-2-63-1", count_is, TOP(63) - 1},
    {"model-has-more-neurons", count_short, 63},
    {"count-none", count_short, 0},
    {"count-is-f32", count_type, 0},
    {"count-is-i32", count_type, 26},
    {"count-is-nan", count_f64_nan, (uint64_t)0x7ff8 << 48},
    {"tokens-0", profile_tokens, 0},
    {"tokens-2-63", profile_tokens, TOP(63)},
    {"tokens-missing", profile_no_tokens, 0},
    {"kind-model", profile_kind, 0},
    {"kind-empty", profile_kind, 1},
    {"model-has-more-layers", profile_lost_layer, 0},
    {"layer-hole", profile_hole, 0},
    {"model-has-fewer-layers", profile_extra, 27},
    {"tensor-stranger", profile_stranger, 27},
    {"model-is-another", profile_other, '0'},
    {"fingerprint-not-hex", profile_other, 'z'},
    {NULL, NULL, 0},
};

/* ---- weights, which only evaluation looks at --------------------------------------------- */

static void all_weights(file *f, const char *name, uint64_t bits)
{
    tensor *t = find_tensor(f, name);
    for (size_t i = 0; i < t->data.n; i++)
        t->data.p[i] = (uint8_t)(bits >> 8 * (i % 4));
}

static void embedding(file *f, uint64_t arg) { all_weights(f, "token_embd.weight", arg); }

static void output_norm(file *f, uint64_t arg) { all_weights(f, "output_norm.weight", arg); }

const hostile_case hostile_weights[] = {
    {"token_embd-inf", embedding, 0x7f800000},
    {"token_embd-nan", embedding, 0x7fc00000},
    {"output_norm-inf", output_norm, 0xff800000},
    {NULL, NULL, 0},
};
