#include "formats/fingerprint.h"
#include "formats/gguf_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void hashes_as_published(void **state)
{
    (void)state;
    char hex[HS_FINGERPRINT_CHARS + 1];
    hs_hash_hex(hs_hash_init(), hex);
    assert_string_equal(hex, "6c62272e07bb014262b821756295c58d");
    hs_hash_hex(hs_hash_bytes(hs_hash_init(), "a", 1), hex);
    assert_string_equal(hex, "d228cb696f1a8caf78912b704e4a8964");
    hs_hash128 h = hs_hash_bytes(hs_hash_init(), "foo", 3);
    hs_hash_hex(hs_hash_bytes(h, "bar", 3), hex);
    assert_string_equal(hex, "343e1662793c64bf6f0d3597ba446f18");
    uint8_t all[768];
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)i;
    hs_hash_hex(hs_hash_bytes(hs_hash_init(), all, sizeof all), hex);
    assert_string_equal(hex, "ceced98447397784e46346c4dbaac68d");
}

/* A model in memory, varied by the tests. */
enum { WIDE = 4 << 20 };
typedef struct recipe {
    bool reversed; /* order of KVs and tensors */
    const char *name, *activation, *parent;
    uint32_t heads;
    float threshold;
    uint64_t ne;       /* of the first tensor */
    uint8_t small[32]; /* its bytes, or the first of them */
    size_t flip, span; /* bytes of the wide tensor to change */
    uint32_t alignment;
} recipe;

static const recipe plain = {
    .name = "m", .activation = "relu", .heads = 8, .threshold = 0.5f, .ne = 8, .alignment = 32};

static void set_kvs(hs_gguf_writer *w, const recipe *r)
{
    for (int k = 0; k < 6; k++)
        switch (r->reversed ? 5 - k : k) {
        case 0: hs_gguf_set_str(w, "general.architecture", "llama"); break;
        case 1: hs_gguf_set_str(w, "general.name", r->name); break;
        case 2: hs_gguf_set_u32(w, "llama.attention.head_count", r->heads); break;
        case 3: hs_gguf_set_str(w, "hotset.activation", r->activation); break;
        case 4: hs_gguf_set_f32(w, "powerinfer.sparse_threshold", r->threshold); break;
        default:
            if (r->parent)
                hs_gguf_set_str(w, "hotset.source_fingerprint", r->parent);
        }
}

static void print_of(const recipe *r, char *hex, const char *want, bool *matches, bool parent_ok)
{
    hs_gguf_writer *w = hs_gguf_writer_new(true, r->alignment);
    set_kvs(w, r);
    uint8_t *wide = calloc(1, WIDE);
    assert_non_null(wide);
    memset(wide + r->flip, 1, r->span);
    const uint64_t n_wide = WIDE;
    for (int k = 0; k < 2; k++)
        if (k == r->reversed)
            hs_gguf_add_tensor(w, "blk.0.a", HS_F32, 1, &r->ne);
        else
            hs_gguf_add_tensor(w, "blk.0.b", HS_I8, 1, &n_wide);
    hs_out *out;
    hs_err err;
    assert_int_equal(hs_out_open(&out, "tests/unit/not-kept.gguf", true, &err), HS_OK);
    assert_int_equal(hs_gguf_writer_begin(w, out, &err), HS_OK);
    for (int k = 0; k < 2; k++)
        assert_int_equal(k == r->reversed ? hs_gguf_writer_data(w, r->small, r->ne * 4, &err)
                                          : hs_gguf_writer_data(w, wide, WIDE, &err),
                         HS_OK);
    assert_int_equal(hs_gguf_writer_end(w, &err), HS_OK);
    hs_map map;
    hs_gguf *g;
    assert_int_equal(hs_out_map(out, &map, &err), HS_OK);
    assert_int_equal(hs_gguf_parse(&g, map.data, map.size, &err), HS_OK);
    hs_fingerprint(g, hex);
    if (want)
        *matches = hs_fingerprint_matches(g, want, parent_ok);
    hs_gguf_free(g);
    hs_map_close(&map);
    hs_out_abort(out);
    hs_gguf_writer_free(w);
    free(wide);
}

static bool same_as_plain(recipe r)
{
    char a[HS_FINGERPRINT_CHARS + 1], b[HS_FINGERPRINT_CHARS + 1];
    print_of(&plain, a, NULL, NULL, false);
    print_of(&r, b, NULL, NULL, false);
    return strcmp(a, b) == 0;
}

static void tells_models_apart(void **state)
{
    (void)state;
    recipe r = plain;
    r.reversed = true;
    assert_true(same_as_plain(r)); /* order is no difference */
    r = plain;
    r.name = "another name";
    assert_true(same_as_plain(r));
    r = plain;
    r.parent = "00000000000000000000000000000000";
    assert_true(same_as_plain(r));
    r = plain;
    r.alignment = 64;
    assert_true(same_as_plain(r));

    r = plain;
    r.heads = 4;
    assert_false(same_as_plain(r));
    r = plain;
    r.activation = "silu";
    assert_false(same_as_plain(r));
    r = plain;
    r.threshold = 0;
    assert_false(same_as_plain(r));
    r = plain;
    r.ne = 7;
    assert_false(same_as_plain(r));
    for (size_t i = 0; i < 32; i++) { /* a small tensor counts whole */
        r = plain;
        r.small[i] = 1;
        assert_false(same_as_plain(r));
    }
}

/* 16 pages of a wide tensor count, one in each 16th: a change of an 8th is always seen, one of
 * a byte is not. */
static void samples_wide_tensors(void **state)
{
    (void)state;
    size_t seen = 0;
    for (size_t k = 0; k < 8; k++) {
        recipe r = plain;
        r.flip = WIDE / 8 * k;
        r.span = WIDE / 8;
        assert_false(same_as_plain(r));
        r.span = 1;
        seen += !same_as_plain(r);
    }
    assert_true(seen < 8);
}

static void accepts_the_parent(void **state)
{
    (void)state;
    static const char parent[] = "0123456789abcdef0123456789abcdef";
    char own[HS_FINGERPRINT_CHARS + 1], hex[HS_FINGERPRINT_CHARS + 1];
    recipe r = plain;
    r.parent = parent;
    bool matches = false;
    print_of(&r, own, parent, &matches, true);
    assert_true(matches);
    print_of(&r, hex, parent, &matches, false);
    assert_false(matches);
    print_of(&r, hex, own, &matches, false);
    assert_true(matches);
    print_of(&r, hex, own, &matches, true);
    assert_true(matches);
    print_of(&r, hex, "", &matches, true);
    assert_false(matches);
}

/* Stored in profiles and placements: these may never change. */
static void is_stable(void **state)
{
    (void)state;
    static const char *const known[][2] = {
        {"tests/golden/m256.gguf", "f70b1c939621b44c6294f22f14df4cf8"},
        {"tests/golden/m256.q4_0.gguf", "e09f4c2b2146afe6f94a91e281dea94d"},
        {"tests/golden/m1.gguf", "101af07b93e7886d330060ffb2a67e59"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        hs_gguf *g;
        char hex[HS_FINGERPRINT_CHARS + 1];
        assert_int_equal(hs_gguf_open(&g, known[i][0], NULL), HS_OK);
        hs_fingerprint(g, hex);
        assert_string_equal(hex, known[i][1]);
        assert_true(hs_fingerprint_matches(g, known[i][1], false));
        hs_gguf_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_as_published),
        cmocka_unit_test(tells_models_apart),
        cmocka_unit_test(samples_wide_tensors),
        cmocka_unit_test(accepts_the_parent),
        cmocka_unit_test(is_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
