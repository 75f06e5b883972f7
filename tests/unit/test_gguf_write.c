#include "formats/cursor.h"
#include "formats/gguf_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* Nothing is committed, so no file of this name appears. */
static const char path[] = "tests/unit/not-kept.gguf";

static hs_out *begin(hs_gguf_writer *w)
{
    hs_out *out;
    hs_err err;
    if (hs_out_open(&out, path, true, &err) != HS_OK || hs_gguf_writer_begin(w, out, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return out;
}

static void copy_to(hs_gguf_writer *w, const hs_gguf *g)
{
    for (size_t i = 0; i < g->n_kv; i++)
        hs_gguf_copy_kv(w, &g->kv[i]);
    for (size_t i = 0; i < g->n_tensors; i++)
        hs_gguf_add_tensor(w, g->tensors[i].name, g->tensors[i].dtype, g->tensors[i].n_dims,
                           g->tensors[i].ne);
}

static void copies_byte_for_byte(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/golden/m1.gguf", "tests/golden/m256.q4_0.gguf",
                                        "tests/golden/solver/cap5000_batch256.gpuidx"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        hs_gguf *g;
        hs_err err;
        if (hs_gguf_open(&g, files[k], &err) != HS_OK)
            fail_msg("%s", err.msg);
        hs_gguf_writer *w = hs_gguf_writer_new(g->pwri, g->alignment);
        copy_to(w, g);
        assert_int_equal(hs_gguf_writer_size(w), g->map.size);
        hs_out *out = begin(w);
        for (size_t i = 0; i < g->n_tensors; i++) {
            /* in two pieces, to cross the seam */
            const uint64_t n = g->tensors[i].bytes, half = n / 2;
            assert_int_equal(hs_gguf_writer_data(w, g->tensors[i].data, half, &err), HS_OK);
            if (n)
                assert_int_equal(hs_gguf_writer_data(w, g->tensors[i].data + half, n - half, &err),
                                 HS_OK);
        }
        assert_int_equal(hs_gguf_writer_end(w, &err), HS_OK);
        hs_map map;
        assert_int_equal(hs_out_map(out, &map, &err), HS_OK);
        assert_int_equal(map.size, g->map.size);
        assert_memory_equal(map.data, g->map.data, map.size);
        hs_map_close(&map);
        hs_out_abort(out);
        hs_gguf_writer_free(w);
        hs_gguf_free(g);
    }
}

static void set_all(hs_gguf_writer *w)
{
    static const float floats[] = {1, -2.5f};
    static const int32_t ints[] = {-1, 7, 9};
    static const uint8_t bools[] = {1, 0};
    static const hs_str strings[] = {{"x", 1}, {"", 0}, {"\0z", 2}};
    hs_gguf_set_str(w, "s", "first");
    hs_gguf_set_u32(w, "u32", 4000000000u);
    hs_gguf_set_u64(w, "u64", UINT64_MAX);
    hs_gguf_set_f32(w, "f32", 0.1f);
    hs_gguf_set_f64(w, "f64", 0.1);
    hs_gguf_set_bool(w, "bool", true);
    hs_gguf_set_strn(w, "strn", (hs_str){"abc", 2});
    hs_gguf_set_array(w, "floats", HS_KV_F32, floats, 2);
    hs_gguf_set_array(w, "ints", HS_KV_I32, ints, 3);
    hs_gguf_set_array(w, "bools", HS_KV_BOOL, bools, 2);
    hs_gguf_set_array(w, "none", HS_KV_U64, NULL, 0);
    hs_gguf_set_str_array(w, "strings", strings, 3);
    /* again, with another type and length: in place */
    hs_gguf_set_str(w, "s", "a longer second value");
    hs_gguf_set_u32(w, "f32", 3);
}

static hs_gguf *reread(hs_out *out, hs_map *map)
{
    hs_gguf *g = NULL;
    hs_err err;
    if (hs_out_map(out, map, &err) != HS_OK ||
        hs_gguf_parse(&g, map->data, map->size, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return g;
}

static void writes_every_kv_type(void **state)
{
    (void)state;
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    set_all(w);
    hs_out *out = begin(w);
    hs_err err;
    assert_int_equal(hs_gguf_writer_end(w, &err), HS_OK);
    assert_int_equal(hs_out_size(out), hs_gguf_writer_size(w));
    hs_map map;
    hs_gguf *g = reread(out, &map);
    assert_int_equal(g->n_kv, 12);
    assert_true(hs_str_eq(g->kv[0].key, "s") && hs_str_eq(g->kv[3].key, "f32"));
    hs_str s;
    uint32_t u = 0;
    double d = 0;
    bool b = false;
    const hs_kv *a;
    assert_int_equal(hs_gguf_str(g, "s", &s, NULL), HS_OK);
    assert_true(hs_str_eq(s, "a longer second value"));
    assert_int_equal(hs_gguf_u32(g, "f32", &u, NULL), HS_OK);
    assert_int_equal(u, 3);
    assert_int_equal(hs_gguf_f64(g, "f64", &d, NULL), HS_OK);
    assert_true(d == 0.1);
    assert_int_equal(hs_gguf_bool(g, "bool", &b, NULL), HS_OK);
    assert_true(b);
    assert_int_equal(hs_gguf_str(g, "strn", &s, NULL), HS_OK);
    assert_true(hs_str_eq(s, "ab"));
    assert_int_equal(hs_gguf_array(g, "floats", HS_KV_F32, &a, NULL), HS_OK);
    assert_true(a->count == 2 && hs_kv_real(a, 1) == -2.5);
    assert_int_equal(hs_gguf_array(g, "ints", HS_KV_I32, &a, NULL), HS_OK);
    assert_true(a->count == 3 && hs_kv_int(a, 0) == -1 && hs_kv_int(a, 2) == 9);
    assert_int_equal(hs_gguf_array(g, "none", HS_KV_U64, &a, NULL), HS_OK);
    assert_int_equal(a->count, 0);
    assert_int_equal(hs_gguf_array(g, "strings", HS_KV_STRING, &a, NULL), HS_OK);
    size_t pos = 0;
    hs_kv_next_str(a, &pos);
    hs_kv_next_str(a, &pos);
    s = hs_kv_next_str(a, &pos);
    assert_int_equal(s.n, 2);
    assert_memory_equal(s.p, "\0z", 2);
    hs_gguf_free(g);
    hs_map_close(&map);
    hs_out_abort(out);
    hs_gguf_writer_free(w);
}

static void many_kvs_keep_their_order(void **state)
{
    (void)state;
    enum { N = 5000 };
    hs_gguf_writer *w = hs_gguf_writer_new(true, 32);
    char key[20];
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < N; i++) {
            snprintf(key, sizeof key, "key.%u", i * 37 % N);
            hs_gguf_set_u32(w, key, i + round);
        }
    hs_out *out = begin(w);
    hs_map map;
    hs_gguf *g = reread(out, &map);
    assert_int_equal(g->n_kv, N);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(key, sizeof key, "key.%u", i * 37 % N);
        assert_true(hs_str_eq(g->kv[i].key, key));
        assert_int_equal(hs_kv_int(&g->kv[i], 0), i + 1);
    }
    hs_gguf_free(g);
    hs_map_close(&map);
    hs_out_abort(out);
    hs_gguf_writer_free(w);
}

/* A reader of its own: where the data of tensor `k` starts, from the format's definition. */
static size_t independent_data_offset(const uint8_t *p, size_t k, uint64_t align)
{
    const uint64_t n_tensors = hs_get_u64(p + 8), n_kv = hs_get_u64(p + 16);
    size_t at = 24;
    for (uint64_t i = 0; i < n_kv; i++) {
        at += 8 + hs_get_u64(p + at);
        assert_int_equal(hs_get_u32(p + at), 4); /* these files have u32 values only */
        at += 8;
    }
    uint64_t offset = 0;
    for (uint64_t i = 0; i < n_tensors; i++) {
        at += 8 + hs_get_u64(p + at);
        at += 4 + 8 * (size_t)hs_get_u32(p + at) + 4;
        if (i == k)
            offset = hs_get_u64(p + at);
        at += 8;
    }
    return (at + align - 1) / align * align + offset;
}

static void pads_odd_sizes(void **state)
{
    (void)state;
    static const uint64_t ne[] = {1, 31, 32, 33, 200, 5};
    enum { N = sizeof ne / sizeof *ne };
    for (uint32_t align = 8; align <= 65536; align *= 2) {
        hs_gguf_writer *w = hs_gguf_writer_new(false, align);
        hs_gguf_set_u32(w, "k", 1);
        if (align == 64) /* wherever the caller wants it */
            hs_gguf_set_u32(w, "general.alignment", 64);
        hs_gguf_set_u32(w, "l", 1);
        char name[8];
        for (uint32_t i = 0; i < N; i++) {
            snprintf(name, sizeof name, "t%u", i);
            hs_gguf_add_tensor(w, name, HS_I8, 1, &ne[i]);
        }
        hs_out *out = begin(w);
        uint8_t data[200];
        hs_err err;
        for (uint32_t i = 0; i < N; i++) {
            memset(data, (int)(10 + i), sizeof data);
            assert_int_equal(hs_gguf_writer_data(w, data, ne[i], &err), HS_OK);
        }
        assert_int_equal(hs_gguf_writer_end(w, &err), HS_OK);
        assert_int_equal(hs_out_size(out), hs_gguf_writer_size(w));
        assert_int_equal(hs_out_size(out) % align, 0);
        hs_map map;
        hs_gguf *g = reread(out, &map);
        assert_int_equal(g->alignment, align);
        assert_int_equal(g->n_kv, align == 32 ? 2 : 3);
        assert_true(align != 64 || hs_str_eq(g->kv[1].key, "general.alignment"));
        for (uint32_t i = 0; i < N; i++) {
            const size_t at = independent_data_offset(map.data, i, align);
            assert_ptr_equal(g->tensors[i].data, map.data + at);
            for (uint64_t k = 0; k < ne[i]; k++)
                assert_int_equal(map.data[at + k], 10 + i);
        }
        hs_gguf_free(g);
        hs_map_close(&map);
        hs_out_abort(out);
        hs_gguf_writer_free(w);
    }
}

static void writes_the_old_i32(void **state)
{
    (void)state;
    for (int pwri = 0; pwri < 2; pwri++) {
        hs_gguf_writer *w = hs_gguf_writer_new(pwri, 32);
        hs_gguf_add_tensor(w, "a", HS_I32, 1, (uint64_t[]){0});
        hs_gguf_add_tensor(w, "b", HS_I64, 1, (uint64_t[]){1});
        hs_out *out = begin(w);
        hs_err err;
        assert_int_equal(hs_gguf_writer_data(w, &(int64_t){1}, 8, &err), HS_OK);
        assert_int_equal(hs_gguf_writer_end(w, &err), HS_OK);
        hs_map map;
        hs_gguf *g = reread(out, &map);
        assert_memory_equal(map.data, pwri ? "PWRI" : "GGUF", 4);
        assert_int_equal(hs_get_u32(map.data + 24 + 8 + 1 + 4 + 8), pwri ? 18 : 26);
        assert_int_equal(g->tensors[0].dtype, HS_I32);
        assert_null(g->tensors[0].data);
        assert_int_equal(g->tensors[0].offset, g->tensors[1].offset);
        hs_gguf_free(g);
        hs_map_close(&map);
        hs_out_abort(out);
        hs_gguf_writer_free(w);
    }
}

/* What hs_gguf_writer_begin says about a declaration. */
static void refused(hs_gguf_writer *w, const char *msg)
{
    hs_out *out;
    hs_err err;
    assert_int_equal(hs_out_open(&out, path, true, &err), HS_OK);
    assert_int_not_equal(hs_gguf_writer_begin(w, out, &err), HS_OK);
    assert_string_equal(err.msg, msg);
    hs_out_abort(out);
    hs_gguf_writer_free(w);
}

static void remembers_bad_declarations(void **state)
{
    (void)state;
    const uint64_t n33[] = {33, 2}, zero[] = {32, 0}, huge[] = {UINT64_MAX / 32 * 32, 2};
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "blk.0.x", HS_Q4_0, 2, n33);
    hs_gguf_set_u32(w, "", 1); /* the first fault is kept */
    refused(w, "blk.0.x: row length 33 is not a multiple of 32, the block of Q4_0");

    w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "0123456789012345678901234567890123456789012345678901234567890123",
                       HS_F32, 2, n33);
    refused(w, "tensor name of 64 bytes, expected 1 to 63: "
               "0123456789012345678901234567890123456789012345678901234567890123");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "", HS_F32, 1, n33);
    refused(w, "tensor name of 0 bytes, expected 1 to 63: ");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "a", HS_F32, 5, n33);
    refused(w, "a: 5 dimensions, expected 1 to 4");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "a", HS_F32, 2, zero);
    refused(w, "a: dimension 1 is 0");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "a", HS_Q4_0, 2, huge);
    refused(w, "a: the size overflows");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "a", (hs_dtype)5, 1, n33);
    refused(w, "a: unknown tensor type 5");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "a", HS_F32, 1, n33);
    hs_gguf_add_tensor(w, "b", HS_F32, 1, n33);
    hs_gguf_add_tensor(w, "a", HS_F16, 1, n33);
    refused(w, "two tensors are called a");
    w = hs_gguf_writer_new(false, 12);
    refused(w, "alignment 12, expected a power of two from 8 to 65536");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_set_u32(w, "general.alignment", 64);
    refused(w, "general.alignment is not the alignment 32 of the data");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_set_array(w, "k", HS_KV_STRING, NULL, 1);
    refused(w, "k: array of 1 string values");
    w = hs_gguf_writer_new(false, 32);
    hs_gguf_set_u32(w, "", 1);
    refused(w, "KV 0: key of 0 bytes, expected 1 to 65535 without NUL");
}

static void counts_the_data(void **state)
{
    (void)state;
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    hs_gguf_add_tensor(w, "a", HS_F32, 1, (uint64_t[]){3});
    hs_gguf_add_tensor(w, "b", HS_F32, 1, (uint64_t[]){1});
    hs_out *out = begin(w);
    static const uint8_t data[16];
    hs_err err;
    assert_int_equal(hs_gguf_writer_data(w, data, 8, &err), HS_OK);
    assert_int_equal(hs_gguf_writer_data(w, data, 8, &err), HS_ERR_FAILED);
    assert_string_equal(err.msg, "a: 8 bytes where 4 are missing");
    assert_int_equal(hs_gguf_writer_end(w, &err), HS_ERR_FAILED);
    assert_string_equal(err.msg, "a: 8 of 12 bytes were written");
    assert_int_equal(hs_gguf_writer_data(w, data, 4, &err), HS_OK);
    assert_int_equal(hs_gguf_writer_end(w, &err), HS_ERR_FAILED);
    assert_string_equal(err.msg, "b: 0 of 4 bytes were written");
    assert_int_equal(hs_gguf_writer_data(w, data, 4, &err), HS_OK);
    assert_int_equal(hs_gguf_writer_end(w, &err), HS_OK);
    assert_int_equal(hs_gguf_writer_data(w, data, 1, &err), HS_ERR_FAILED);
    assert_string_equal(err.msg, "1 bytes after the last tensor");
    hs_out_abort(out);
    hs_gguf_writer_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_byte_for_byte),      cmocka_unit_test(writes_every_kv_type),
        cmocka_unit_test(many_kvs_keep_their_order), cmocka_unit_test(pads_odd_sizes),
        cmocka_unit_test(writes_the_old_i32),        cmocka_unit_test(remembers_bad_declarations),
        cmocka_unit_test(counts_the_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
