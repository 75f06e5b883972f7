/* Folders of weights: which files count, what an index may say, and element access. */
#include "formats/checkpoint.h"
#include "formats/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static void put(const char *name, const void *data, size_t n)
{
    char *path = hs_path_join(dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    free(path);
}

static void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

/* A safetensors file of one-element F32 tensors a, b, … named by the letters. */
static void put_shard(const char *file, const char *letters)
{
    char buf[4096];
    size_t n = 8;
    buf[n++] = '{';
    for (size_t i = 0; letters[i]; i++)
        n += (size_t)sprintf(
            buf + n, "%s\"%c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
            i ? "," : "", letters[i], 4 * i, 4 * i + 4);
    buf[n++] = '}';
    for (int i = 0; i < 8; i++)
        buf[i] = (char)((n - 8) >> (8 * i));
    memset(buf + n, 0, 4 * strlen(letters));
    put(file, buf, n + 4 * strlen(letters));
}

static int fresh(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/hotset-ckpt-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model.safetensors.index.json",
        "model.safetensors",
        "pytorch_model.bin.index.json",
        "pytorch_model.bin",
        "s1",
        "s2",
        "s3",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = hs_path_join(dir, names[i]);
        unlink(path);
        free(path);
    }
    return rmdir(dir);
}

static void refuse(hs_status expected, const char *message)
{
    hs_checkpoint *c = (hs_checkpoint *)1;
    hs_err err = {0};
    char full[1024];
    snprintf(full, sizeof full, "%s%s", dir, message);
    assert_int_equal(hs_checkpoint_open_dir(&c, dir, &err), expected);
    assert_string_equal(err.msg, full);
    assert_null(c);
}

static hs_checkpoint *accept(size_t n)
{
    hs_checkpoint *c = NULL;
    hs_err err = {0};
    if (hs_checkpoint_open_dir(&c, dir, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(hs_checkpoint_count(c), n);
    return c;
}

static void test_index(void **state)
{
    (void)state;
    put_text(
        "model.safetensors.index.json",
        "{\"metadata\":{},\"weight_map\":{\"c\":\"s2\",\"a\":\"s1\",\"b\":\"s1\",\"d\":\"s3\"}}");
    refuse(HS_ERR_INPUT, "/model.safetensors.index.json: 3 of 3 shards are missing (incomplete "
                         "download?): s1 (2 tensors), s2 (1 tensors), s3 (1 tensors)");
    put_shard("s1", "ab");
    put_shard("s3", "d");
    refuse(HS_ERR_INPUT, "/model.safetensors.index.json: 1 of 3 shards are missing (incomplete "
                         "download?): s2 (1 tensors)");
    put_shard("s2", "x");
    refuse(HS_ERR_FORMAT,
           "/model.safetensors.index.json: tensor c is promised in s2, which lacks it");
    put_shard("s2", "ca");
    char message[128];
    snprintf(message, sizeof message, "/s2: tensor a is also in %s/s1", dir);
    refuse(HS_ERR_FORMAT, message);
    put_shard("s2", "a");
    put_shard("s1", "bc");
    refuse(HS_ERR_FORMAT,
           "/model.safetensors.index.json: tensor c is promised in s2 and stands in s1");
    put_shard("s1", "ab");
    put_shard("s2", "c");
    hs_checkpoint *c = accept(4);
    /* in the order of the files, whatever the index's order */
    assert_string_equal(hs_checkpoint_at(c, 0)->name, "a");
    assert_string_equal(hs_checkpoint_at(c, 2)->name, "c");
    assert_string_equal(hs_checkpoint_at(c, 3)->name, "d");
    assert_ptr_equal(hs_checkpoint_find(c, "d"), hs_checkpoint_at(c, 3));
    assert_null(hs_checkpoint_find(c, "e"));
    hs_checkpoint_free(c);
    put_text("s2", "junk");
    refuse(HS_ERR_FORMAT, "/s2: 4 bytes, too short for a safetensors file");
}

static void test_bad_index(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"{", ": line 1, column 1: string or '}' expected near end of file"},
        {"{}", ": weight_map: expected an object"},
        {"{\"weight_map\":[]}", ": weight_map: expected an object"},
        {"{\"weight_map\":{}}", ": weight_map is empty"},
        {"{\"weight_map\":{\"a\":1}}", ": weight_map: a: expected a file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", ": weight_map: a: \"\" is not a plain file name"},
        {"{\"weight_map\":{\"a\":\"../s1\"}}",
         ": weight_map: a: \"../s1\" is not a plain file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
         ": weight_map: a: \"/etc/passwd\" is not a plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", ": weight_map: a: \"..\" is not a plain file name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[256];
        snprintf(message, sizeof message, "/model.safetensors.index.json%s", cases[i].message);
        put_text("model.safetensors.index.json", cases[i].json);
        refuse(HS_ERR_FORMAT, message);
    }
}

static void test_single(void **state)
{
    (void)state;
    refuse(HS_ERR_INPUT, ": no weights: expected model.safetensors or pytorch_model.bin, or the "
                         ".index.json of either");
    put_shard("pytorch_model.bin", "ab"); /* by content, not by name */
    hs_checkpoint_free(accept(2));
    put_shard("model.safetensors", "abc");
    hs_checkpoint *c = accept(3);
    assert_non_null(strstr(hs_checkpoint_at(c, 0)->file, "/model.safetensors"));
    hs_checkpoint_free(c);
    put_text("model.safetensors", "");
    refuse(HS_ERR_FORMAT, "/model.safetensors: 0 bytes, too short for a safetensors file");
    char *path = hs_path_join(dir, "model.safetensors");
    unlink(path);
    assert_int_equal(mkdir(path, 0777), 0);
    refuse(HS_ERR_INPUT, "/model.safetensors: is a directory, expected a file");
    rmdir(path);
    free(path);
}

/* A header length that reads as a pickle's or zip's magic is still safetensors. */
static void test_magic(void **state)
{
    (void)state;
    static const uint8_t length[8] = {0x80, 0x02};
    uint8_t file[8 + 0x280];
    memset(file, ' ', sizeof file);
    memcpy(file, length, 8);
    memcpy(file + 8, "{}", 2);
    put("model.safetensors", file, sizeof file);
    hs_checkpoint_free(accept(0));
}

static void test_demo(void **state)
{
    (void)state;
    hs_checkpoint *c = NULL;
    hs_err err = {0};
    if (hs_checkpoint_open_dir(&c, "data/kjv-relu-8m", &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(hs_checkpoint_count(c), 57);
    const hs_ckpt_tensor *t = hs_checkpoint_find(c, "model.layers.5.self_attn.k_proj.weight");
    assert_non_null(t);
    assert_int_equal(t->elem, HS_ELEM_BF16);
    assert_int_equal(t->shape[0], 128);
    float row[256];
    double v;
    assert_int_equal(hs_ckpt_row_f32(t, 127, row, &err), HS_OK);
    for (uint64_t i = 0; i < 256; i++) {
        assert_int_equal(hs_ckpt_value(t, 127 * 256 + i, &v, &err), HS_OK);
        assert_true(v == (double)row[i]);
    }
    assert_int_equal(hs_ckpt_row_f32(t, 128, row, &err), HS_ERR_FORMAT);
    assert_int_equal(hs_ckpt_int(t, 0, &(int64_t){0}, &err), HS_ERR_UNSUPPORTED);
    hs_checkpoint_free(c);
}

static void test_elements(void **state)
{
    (void)state;
    static const uint8_t bytes[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
                                      0x00, 0x3c, 0x80, 0x3f, 0x01, 0x00, 0x00, 0xc0};
    char name[] = "x";
    hs_ckpt_tensor t = {.name = name, .file = "f", .n_dims = 1, .shape = {1}, .stride = {1}};
    static const struct {
        hs_elem elem;
        size_t at;
        double value;
        int64_t integer;
        bool is_int;
    } cases[] = {
        {HS_ELEM_I64, 0, 9223372036854775807.0, INT64_MAX, true},
        {HS_ELEM_I32, 0, -1, -1, true},
        {HS_ELEM_I16, 6, 0x7fff, 0x7fff, true},
        {HS_ELEM_I8, 0, -1, -1, true},
        {HS_ELEM_U8, 0, 255, 255, true},
        {HS_ELEM_BOOL, 0, 1, 1, true},
        {HS_ELEM_BOOL, 8, 0, 0, true},
        {HS_ELEM_F16, 8, 1, 0, false},
        {HS_ELEM_BF16, 10, 1, 0, false},
        {HS_ELEM_F32, 12, -2.0000002384185791015625, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t.elem = cases[i].elem;
        t.data = bytes + cases[i].at;
        double v = 0;
        int64_t n = 0;
        hs_err err;
        assert_int_equal(hs_ckpt_value(&t, 0, &v, &err), HS_OK);
        assert_true(v == cases[i].value);
        assert_int_equal(hs_ckpt_int(&t, 0, &n, &err),
                         cases[i].is_int ? HS_OK : HS_ERR_UNSUPPORTED);
        assert_true(n == cases[i].integer);
    }
    float f;
    hs_err err;
    t.elem = HS_ELEM_U8;
    strcpy(t.elem_name, "U8");
    assert_int_equal(hs_ckpt_row_f32(&t, 0, &f, &err), HS_ERR_UNSUPPORTED);
    assert_string_equal(err.msg, "f: tensor x is of type U8, expected float weights (is this an "
                                 "already quantized checkpoint?)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_index, fresh, clean),
        cmocka_unit_test_setup_teardown(test_bad_index, fresh, clean),
        cmocka_unit_test_setup_teardown(test_single, fresh, clean),
        cmocka_unit_test_setup_teardown(test_magic, fresh, clean),
        cmocka_unit_test(test_demo),
        cmocka_unit_test(test_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
