#include "formats/gguf.h"
#include "formats/gguf_write.h"
#include "tests/unit/gguf_asm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* --- hand-broken files -------------------------------------------------- */

typedef struct broken {
    const char *what, *text;
    hs_status status;
    const char *msg;
} broken;

#define F HS_ERR_FORMAT
#define U HS_ERR_UNSUPPORTED
static const broken bad[] = {
    /* magic and version */
    {"empty", "", F, "empty file, expected GGUF or PWRI"},
    {"one byte", "=G", F, "file ends at byte 1 inside the magic"},
    {"no version", "=GGUF", F, "file ends at byte 4 inside the header"},
    {"no counts", "=GGUF 3/4 0/8", F, "file ends at byte 16 inside the header"},
    {"magic", "=FUGG 3/4 0/8 0/8", F, "starts with bytes 46 55 47 47, expected GGUF or PWRI"},
    {"magic of another case", "=gguf 3/4 0/8 0/8", F,
     "starts with bytes 67 67 75 66, expected GGUF or PWRI"},
    {"version 0", "=GGUF 0/4 0/8 0/8", U, "GGUF version 0, expected 2 or 3"},
    {"version 1", "=GGUF 1/4 0/4 0/4", U, "GGUF version 1, expected 2 or 3"},
    {"version 1, PWRI", "=PWRI 1/4 0/8 0/8", U, "PWRI version 1, expected 2 or 3"},
    {"version 4", "=GGUF 4/4 0/8 0/8", U, "GGUF version 4, expected 2 or 3"},
    {"version 2^31", "=GGUF 0x80000000/4 0/8 0/8", U, "GGUF version 2147483648, expected 2 or 3"},
    {"big-endian", "=GGUF 0x03000000/4 0/8 0/8", U, "big-endian file, expected little-endian"},

    /* counts */
    {"2^31 tensors", HEAD(0x80000000, 0), F,
     "tensor count 2147483648 does not fit in the 0 bytes left"},
    {"2^32-1 tensors", HEAD(0xffffffff, 0) ".20", F,
     "tensor count 4294967295 does not fit in the 20 bytes left"},
    {"2^63 tensors", HEAD(0x8000000000000000, 0), F,
     "tensor count 9223372036854775808 does not fit in the 0 bytes left"},
    {"2^64-1 tensors", HEAD(0xffffffffffffffff, 0), F,
     "tensor count 18446744073709551615 does not fit in the 0 bytes left"},
    {"2^31 KVs", HEAD(0, 0x80000000), F, "KV count 2147483648 does not fit in the 0 bytes left"},
    {"2^32-1 KVs", HEAD(0, 0xffffffff) ".27", F,
     "KV count 4294967295 does not fit in the 27 bytes left"},
    {"2^63 KVs", HEAD(0, 0x8000000000000000), F,
     "KV count 9223372036854775808 does not fit in the 0 bytes left"},
    {"2^64-1 KVs", HEAD(0, 0xffffffffffffffff), F,
     "KV count 18446744073709551615 does not fit in the 0 bytes left"},
    {"one tensor more", HEAD(2, 0) ROW("a", 32, 0, 0) DATA, F,
     "tensor 1 at byte 57: name of 0 bytes, expected 1 to 63"},
    {"one tensor less", HEAD(1, 0) ROW("a", 32, 0, 0) ROW("b", 32, 0, 128) DATA ".128", F,
     "160 bytes after the last tensor's data, which ends at byte 192"},
    {"one KV more", HEAD(1, 1) ROW("a", 32, 0, 0) DATA, F,
     "tensor 0 at byte 38: name of 0 bytes, expected 1 to 63"},
    {"one KV less", HEAD(1, 1) "$k 4/4 7/4 $l 4/4 7/4 " ROW("a", 32, 0, 0) DATA, F,
     "tensor 0 (l): dimension 1 is 1516123455488: the element count overflows"},
    {"trailing junk", ONE ".1", F, "1 bytes after the last tensor's data, which ends at byte 192"},
    {"trailing junk without tensors", HEAD(0, 0) "@32 .1", F,
     "1 bytes after the last tensor's data, which ends at byte 32"},

    /* keys and strings */
    {"empty key", HEAD(0, 1) "0/8 4/4 1/4", F,
     "KV 0 at byte 24: key of 0 bytes, expected 1 to 65535"},
    {"key of 65536 bytes", HEAD(0, 1) "65536/8 *65536 4/4 1/4", F,
     "KV 0 at byte 24: key of 65536 bytes, expected 1 to 65535"},
    {"key of 2^32 bytes", HEAD(0, 1) "0x100000000/8 .20", F,
     "KV 0 at byte 24: key of 4294967296 bytes, expected 1 to 65535"},
    {"key of 2^64-1 bytes", HEAD(0, 1) "0xffffffffffffffff/8 .20", F,
     "KV 0 at byte 24: key of 18446744073709551615 bytes, expected 1 to 65535"},
    {"key past the end", HEAD(0, 1) "100/8 .20", F,
     "KV 0 at byte 24: the key runs past the end of the file"},
    {"NUL in a key", HEAD(0, 1) "3/8 =a .1 =b 4/4 1/4", F,
     "KV 0 at byte 24: the key contains a NUL byte"},
    {"duplicate key", HEAD(0, 3) "$k 0/4 1/1 $b 0/4 1/1 $k 4/4 7/4", F,
     "KVs 0 and 2 have the same key k"},
    {"no value", HEAD(0, 1) "$kk 4/4", F,
     "KV 0 (kk) at byte 34: u32 value of 4 bytes runs past the end of the file"},
    {"no value type", HEAD(0, 1) "$kkkkkkkk 4/2", F,
     "KV 0 (kkkkkkkk) at byte 40: file ends at byte 42 inside the value's type"},
    {"string past the end", HEAD(0, 1) "$k 8/4 9/8 =12345678", F,
     "KV 0 (k) at byte 33: string value of 9 bytes runs past the end of the file"},
    {"string of 2^32 bytes", HEAD(0, 1) "$k 8/4 0x100000000/8", F,
     "KV 0 (k) at byte 33: string value of 4294967296 bytes runs past the end of the file"},
    {"string of 2^63 bytes", HEAD(0, 1) "$k 8/4 0x8000000000000000/8", F,
     "KV 0 (k) at byte 33: string value of 9223372036854775808 bytes runs past the end of the "
     "file"},
    {"string of 2^64-1 bytes", HEAD(0, 1) "$k 8/4 0xffffffffffffffff/8", F,
     "KV 0 (k) at byte 33: string value of 18446744073709551615 bytes runs past the end of the "
     "file"},
    {"value type 13", HEAD(0, 1) "$k 13/4 0/4", F, "KV 0 (k) at byte 33: unknown value type 13"},
    {"value type -1", HEAD(0, 1) "$k 0xffffffff/4 0/4", F,
     "KV 0 (k) at byte 33: unknown value type 4294967295"},
    {"bool 2", HEAD(0, 1) "$k 7/4 2/1", F, "KV 0 (k) at byte 33: bool value 2, expected 0 or 1"},
    {"control bytes in a key", HEAD(0, 1) "1/8 27/1 13/4 0/4", F,
     "KV 0 (?) at byte 33: unknown value type 13"},

    /* arrays */
    {"array of arrays", HEAD(0, 1) "$k 9/4 9/4 1/8 4/4 1/8 1/4", F,
     "KV 0 (k) at byte 33: array of arrays, expected plain elements"},
    {"array element type 13", HEAD(0, 1) "$k 9/4 13/4 0/8", F,
     "KV 0 (k) at byte 33: unknown array element type 13"},
    {"array header cut", HEAD(0, 1) "$k 9/4 4/4 0/4", F,
     "KV 0 (k) at byte 33: file ends at byte 45 inside an array header"},
    {"array past the end", HEAD(0, 1) "$k 9/4 4/4 3/8 .8", F,
     "KV 0 (k) at byte 33: array of 3 u32 values does not fit in the 8 bytes left"},
    {"43 bytes, 2^63 elements", HEAD(0, 1) "$k 9/4 0/4 0x8000000000000000/8", F,
     "KV 0 (k) at byte 33: array of 9223372036854775808 u8 values does not fit in the 0 bytes "
     "left"},
    {"array bytes wrap", HEAD(0, 1) "$k 9/4 10/4 0x2000000000000001/8 .8", F,
     "KV 0 (k) at byte 33: array of 2305843009213693953 u64 values does not fit in the 8 bytes "
     "left"},
    {"2^63 strings", HEAD(0, 1) "$k 9/4 8/4 0x8000000000000000/8 .16", F,
     "KV 0 (k) at byte 33: array of 9223372036854775808 string values does not fit in the 16 "
     "bytes left"},
    {"string array past the end", HEAD(0, 1) "$k 9/4 8/4 2/8 $ab 5/8 =1234", F,
     "KV 0 (k) at byte 33: string 1 of 2 at byte 59 runs past the end of the file"},
    {"string array, 2^64-1", HEAD(0, 1) "$k 9/4 8/4 1/8 0xffffffffffffffff/8", F,
     "KV 0 (k) at byte 33: string 0 of 1 at byte 49 runs past the end of the file"},
    {"bool array with a 3", HEAD(0, 1) "$k 9/4 7/4 3/8 1/1 3/1 0/1", F,
     "KV 0 (k) at byte 33: a bool is neither 0 nor 1"},

    /* general.alignment */
    {"alignment 0", HEAD(0, 1) "$general.alignment 4/4 0/4", F,
     "general.alignment 0, expected a power of two from 8 to 65536"},
    {"alignment 3", HEAD(0, 1) "$general.alignment 4/4 3/4", F,
     "general.alignment 3, expected a power of two from 8 to 65536"},
    {"alignment 4", HEAD(0, 1) "$general.alignment 4/4 4/4", F,
     "general.alignment 4, expected a power of two from 8 to 65536"},
    {"alignment 2^17", HEAD(0, 1) "$general.alignment 4/4 131072/4", F,
     "general.alignment 131072, expected a power of two from 8 to 65536"},
    {"alignment 2^30", HEAD(0, 1) "$general.alignment 4/4 0x40000000/4", F,
     "general.alignment 1073741824, expected a power of two from 8 to 65536"},
    {"alignment 2^31", HEAD(0, 1) "$general.alignment 4/4 0x80000000/4", F,
     "general.alignment 2147483648, expected a power of two from 8 to 65536"},
    {"alignment u8", HEAD(0, 1) "$general.alignment 0/4 32/1", F,
     "general.alignment: expected u32, got u8"},
    {"alignment u16", HEAD(0, 1) "$general.alignment 2/4 32/2", F,
     "general.alignment: expected u32, got u16"},
    {"alignment i32", HEAD(0, 1) "$general.alignment 5/4 32/4", F,
     "general.alignment: expected u32, got i32"},
    {"alignment u64", HEAD(0, 1) "$general.alignment 10/4 32/8", F,
     "general.alignment: expected u32, got u64"},
    {"alignment f32", HEAD(0, 1) "$general.alignment 6/4 32/4", F,
     "general.alignment: expected u32, got f32"},

    /* tensor names */
    {"empty name", HEAD(1, 0) "0/8 1/4 32/8 0/4 0/8 " DATA, F,
     "tensor 0 at byte 24: name of 0 bytes, expected 1 to 63"},
    {"name of 64 bytes", HEAD(1, 0) "64/8 *64 1/4 32/8 0/4 0/8 " DATA, F,
     "tensor 0 at byte 24: name of 64 bytes, expected 1 to 63"},
    {"name of 64 KiB", HEAD(1, 0) "65536/8 *65536 1/4 32/8 0/4 0/8 " DATA, F,
     "tensor 0 at byte 24: name of 65536 bytes, expected 1 to 63"},
    {"name of 2^64-1 bytes", HEAD(1, 0) "0xffffffffffffffff/8 .64", F,
     "tensor 0 at byte 24: name of 18446744073709551615 bytes, expected 1 to 63"},
    {"NUL in a name", HEAD(1, 0) "3/8 =a .1 =b 1/4 32/8 0/4 0/8 " DATA, F,
     "tensor 0 at byte 24: the name contains a NUL byte"},
    {"name past the end", HEAD(1, 0) "40/8 *30", F,
     "tensor 0 at byte 24: the name runs past the end of the file"},
    {"duplicate name", HEAD(2, 0) ROW("a", 32, 0, 0) ROW("a", 32, 0, 128) DATA ".128", F,
     "tensors 0 and 1 have the same name a"},

    /* dimensions */
    {"0 dimensions", HEAD(1, 0) "$a 0/4 0/4 0/8 .32", F,
     "tensor 0 (a): 0 dimensions, expected 1 to 4"},
    {"5 dimensions", HEAD(1, 0) "$a 5/4 1/8 1/8 1/8 1/8 1/8 0/4 0/8 " DATA, F,
     "tensor 0 (a): 5 dimensions, expected 1 to 4"},
    {"10^6 dimensions", HEAD(1, 0) "$a 1000000/4 .64", F,
     "tensor 0 (a): 1000000 dimensions, expected 1 to 4"},
    {"2^32-1 dimensions", HEAD(1, 0) "$a 0xffffffff/4 .64", F,
     "tensor 0 (a): 4294967295 dimensions, expected 1 to 4"},
    {"dimension 0", HEAD(1, 0) ROW2("a", 0, 4, 0, 0) DATA, F, "tensor 0 (a): dimension 0 is 0"},
    {"dimension 1 is 0", HEAD(1, 0) ROW2("a", 4, 0, 26, 0) DATA, F,
     "tensor 0 (a): dimension 1 is 0"},
    {"an empty F32 tensor", HEAD(1, 0) ROW("a", 0, 0, 0) DATA, F, "tensor 0 (a): dimension 0 is 0"},
    {"negative dimension", HEAD(1, 0) ROW("a", 0xffffffffffffffff, 0, 0) DATA, F,
     "tensor 0 (a): dimension 0 is 18446744073709551615: the element count overflows"},
    {"[1152, 2^42+1]", HEAD(1, 0) ROW2("a", 1152, 0x40000000001, 0, 0) DATA, F,
     "tensor 0 (a): 20266198323171840 bytes at offset 0 run past the end of the data section "
     "(128 bytes)"},
    {"[2^63-1, 2]", HEAD(1, 0) ROW2("a", 0x7fffffffffffffff, 2, 0, 0) DATA, F,
     "tensor 0 (a): dimension 1 is 2: the element count overflows"},
    {"product wraps to 0", HEAD(1, 0) ROW2("a", 0x100000000, 0x100000000, 0, 0) DATA, F,
     "tensor 0 (a): dimension 1 is 4294967296: the element count overflows"},
    {"bytes wrap", HEAD(1, 0) ROW("a", 0x4000000000000000, 0, 0) DATA, F,
     "tensor 0 (a): 4611686018427387904 elements of F32: the size overflows"},
    {"bytes within 16 of 2^64", HEAD(1, 0) "$a 3/4 4/8 0x3fffffff/8 0x40000001/8 0/4 0/8 " DATA, F,
     "tensor 0 (a): 18446744073709551600 bytes at offset 0 run past the end of the data section "
     "(128 bytes)"},
    {"Q4_0 bytes wrap to 2", HEAD(1, 0) ROW("a", 0x71c71c71c71c71e0, 2, 0) DATA, F,
     "tensor 0 (a): 4611686018427387918 bytes at offset 0 run past the end of the data section "
     "(128 bytes)"},
    {"I64, bytes wrap", HEAD(1, 0) ROW("a", 0x2000000000000001, 27, 0) DATA, F,
     "tensor 0 (a): 2305843009213693953 elements of I64: the size overflows"},
    {"shape cut", HEAD(1, 0) "$aaaaaaaaaaaaaaaaaaaa 1/4 1/4", F,
     "tensor 0 (aaaaaaaaaaaaaaaaaaaa): file ends at byte 60 inside the tensor's shape"},
    {"row cut", HEAD(1, 0) "$aaaaaaaaaa 1/4 1/8 0/4", F,
     "tensor 0 (aaaaaaaaaa): file ends at byte 58 inside the tensor table"},

    /* offsets */
    {"unaligned offset", HEAD(1, 0) ROW("a", 32, 0, 16) DATA ".32", F,
     "tensor 0 (a): offset 16 is not a multiple of the alignment 32"},
    {"offset unaligned for 64",
     HEAD(1, 1) "$general.alignment 4/4 64/4 " ROW("a", 8, 0, 32) "@64 .64", F,
     "tensor 0 (a): offset 32 is not a multiple of the alignment 64"},
    {"overlap", HEAD(2, 0) ROW("a", 32, 0, 0) ROW("b", 32, 0, 96) DATA ".96", F,
     "tensor 1 (b) at offset 96 overlaps tensor 0 (a)"},
    {"the same offset", HEAD(2, 0) ROW("a", 32, 0, 0) ROW("b", 32, 0, 0) DATA, F,
     "tensor 1 (b) at offset 0 overlaps tensor 0 (a)"},
    {"overlap, descending", HEAD(2, 0) ROW("a", 32, 0, 64) ROW("b", 32, 0, 0) DATA ".64", F,
     "tensor 0 (a) at offset 64 overlaps tensor 1 (b)"},
    {"overlap with an empty tensor between",
     HEAD(3, 0) ROW("a", 32, 0, 0) ROW("b", 0, 26, 64) ROW("c", 8, 0, 96) DATA, F,
     "tensor 1 (b) at offset 64 overlaps tensor 0 (a)"},
    {"past the end", HEAD(1, 0) ROW("a", 32, 0, 32) DATA, F,
     "tensor 0 (a): 128 bytes at offset 32 run past the end of the data section (128 bytes)"},
    {"one byte is missing", HEAD(1, 0) ROW("a", 32, 0, 0) "@32 .127", F,
     "tensor 0 (a): 128 bytes at offset 0 run past the end of the data section (127 bytes)"},
    {"no data at all", HEAD(1, 0) ROW("a", 32, 0, 0), F,
     "tensor 0 (a): 128 bytes at offset 0 run past the end of the data section (0 bytes)"},
    {"offset wraps", HEAD(1, 0) ROW("a", 32, 0, 0xffffffffffffffe0) DATA, F,
     "tensor 0 (a): 128 bytes at offset 18446744073709551584 run past the end of the data section "
     "(128 bytes)"},
    {"offset wraps with the data's start", HEAD(1, 0) ROW("a", 32, 0, 0xffffffffffffff40) DATA, F,
     "tensor 0 (a): 128 bytes at offset 18446744073709551424 run past the end of the data section "
     "(128 bytes)"},
    {"an empty tensor far away", HEAD(1, 0) ROW("a", 0, 26, 0xffffffffffffffe0), F,
     "tensor 0 (a): offset 18446744073709551584 is past the end of the data section (0 bytes)"},

    /* types */
    {"type 40", HEAD(1, 0) ROW("a", 32, 40, 0) DATA, U, "tensor 0 (a): unknown tensor type 40"},
    {"type 4, removed", HEAD(1, 0) ROW("a", 32, 4, 0) DATA, U,
     "tensor 0 (a): unknown tensor type 4"},
    {"type 31, removed", HEAD(1, 0) ROW("a", 32, 31, 0) DATA, U,
     "tensor 0 (a): unknown tensor type 31"},
    {"type -1", HEAD(1, 0) ROW("a", 32, 0xffffffff, 0) DATA, U,
     "tensor 0 (a): unknown tensor type 4294967295"},
    {"type 18 of a GGUF file", HEAD(1, 0) ROW("a", 32, 18, 0) DATA, U,
     "tensor 0 (a): unknown tensor type 18"},
    {"31 elements of Q4_0", HEAD(1, 0) ROW("a", 31, 2, 0) DATA, F,
     "tensor 0 (a): row length 31 is not a multiple of 32, the block of Q4_0"},
    {"288 elements of Q6_K", HEAD(1, 0) ROW("a", 288, 14, 0) DATA ".128", F,
     "tensor 0 (a): row length 288 is not a multiple of 256, the block of Q6_K"},
    {"rows that divide only together", HEAD(1, 0) ROW2("a", 16, 2, 8, 0) DATA, F,
     "tensor 0 (a): row length 16 is not a multiple of 32, the block of Q8_0"},
};

static void rejects_broken_files(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bytes b = assemble(bad[i].text);
        hs_gguf *g = (hs_gguf *)1;
        hs_err err = {HS_OK, ""};
        const hs_status s = hs_gguf_parse(&g, b.p, b.n, &err);
        if (s != bad[i].status || err.code != s || strcmp(err.msg, bad[i].msg) != 0 || g) {
            print_error("%s: status %d, \"%s\"\nexpected %d, \"%s\"\n", bad[i].what, (int)s,
                        err.msg, (int)bad[i].status, bad[i].msg);
            failures++;
        }
        free(b.p);
    }
    assert_int_equal(failures, 0);
}

static void rejects_every_prefix(void **state)
{
    (void)state;
    bytes b = assemble(HEAD(2, 3) "$a 8/4 $text $b 9/4 8/4 2/8 $x $yz $c 7/4 1/1 " ROW(
        "a", 32, 0, 0) ROW("b", 8, 1, 128) "@32 .144");
    for (size_t n = 0; n <= b.n; n++) {
        uint8_t *p = malloc(n ? n : 1);
        assert_non_null(p);
        memcpy(p, b.p, n);
        hs_gguf *g;
        const hs_status s = hs_gguf_parse(&g, p, n, NULL);
        assert_int_equal(s == HS_OK, n == b.n);
        hs_gguf_free(g);
        free(p);
    }
    free(b.p);
}

static void rejects_a_truncated_model(void **state)
{
    (void)state;
    hs_map map;
    assert_int_equal(hs_map_open(&map, "tests/golden/m1.gguf", NULL), HS_OK);
    for (size_t k = 0; k <= 16; k++) {
        hs_gguf *g;
        hs_err err;
        const hs_status s = hs_gguf_parse(&g, map.data, map.size * k / 16, &err);
        assert_int_equal(s, k == 16 ? HS_OK : HS_ERR_FORMAT);
        hs_gguf_free(g);
    }
    hs_map_close(&map);
}

static void names_the_path(void **state)
{
    (void)state;
    hs_gguf *g;
    hs_err err;
    assert_int_equal(hs_gguf_open(&g, "tests/golden/none.gguf", &err), HS_ERR_INPUT);
    assert_string_equal(err.msg, "tests/golden/none.gguf: cannot open: No such file or directory");
    assert_int_equal(hs_gguf_open(&g, "Makefile", &err), HS_ERR_FORMAT);
    assert_memory_equal(err.msg, "Makefile: starts with bytes", 27);
    assert_null(g);
}

/* A file as long as a message must not make the message, or the time, grow. */
static void many_records_are_fast(void **state)
{
    (void)state;
    enum { N = 100000 };
    bytes b = assemble("=GGUF 3/4 0/8 100000/8");
    b.p = realloc(b.p, b.n + (size_t)N * 24);
    assert_non_null(b.p);
    for (uint32_t i = 0; i < N; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%05" PRIu32, i * 7919u % N); /* out of order, unique */
        uint8_t *p = b.p + b.n;
        memset(p, 0, 19);
        p[0] = 6;
        memcpy(p + 8, key, 6);
        b.n += 19;
    }
    hs_gguf *g;
    hs_err err;
    assert_int_equal(hs_gguf_parse(&g, b.p, b.n, &err), HS_OK);
    assert_non_null(hs_gguf_find(g, "k54321"));
    assert_null(hs_gguf_find(g, "k100000"));
    hs_gguf_free(g);
    free(b.p);
}

/* --- files that are fine ------------------------------------------------ */

static hs_gguf *accept(const char *text, bytes *b)
{
    *b = assemble(text);
    hs_gguf *g;
    hs_err err;
    if (hs_gguf_parse(&g, b->p, b->n, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return g;
}

static void reads_every_kv_type(void **state)
{
    (void)state;
    bytes b;
    hs_gguf *g = accept(
        HEAD(0, 17) "$u8 0/4 200/1 $i8 1/4 200/1 $u16 2/4 60000/2 $i16 3/4 60000/2 "
                    "$u32 4/4 4000000000/4 $i32 5/4 4000000000/4 $f32 6/4 0x3fc00000/4 "
                    "$bool 7/4 1/1 $str 8/4 $hello $u64 10/4 0xffffffffffffffff/8 "
                    "$i64 11/4 0xffffffffffffffff/8 $f64 12/4 0x3ff8000000000000/8 "
                    "$ai 9/4 3/4 2/8 1/2 0xffff/2 $as 9/4 8/4 3/8 $x 0/8 $yz $ab 9/4 7/4 2/8 "
                    "0/1 1/1 $none 9/4 6/4 0/8 $empty 8/4 0/8",
        &b);
    uint32_t u = 5;
    assert_int_equal(hs_gguf_u32(g, "u8", &u, NULL), HS_OK);
    assert_int_equal(u, 200);
    assert_int_equal(hs_gguf_u32(g, "u32", &u, NULL), HS_OK);
    assert_int_equal(u, 4000000000u);
    u = 5;
    assert_int_equal(hs_gguf_u32(g, "absent", &u, NULL), HS_OK);
    assert_int_equal(u, 5);
    uint64_t w = 0;
    assert_int_equal(hs_gguf_u64(g, "u64", &w, NULL), HS_OK);
    assert_true(w == UINT64_MAX);
    float f = 0;
    double d = 0;
    bool t = false;
    hs_str s = {NULL, 0};
    assert_int_equal(hs_gguf_f32(g, "f32", &f, NULL), HS_OK);
    assert_true(f == 1.5f);
    assert_int_equal(hs_gguf_f64(g, "f64", &d, NULL), HS_OK);
    assert_true(d == 1.5);
    assert_int_equal(hs_gguf_bool(g, "bool", &t, NULL), HS_OK);
    assert_true(t);
    assert_int_equal(hs_gguf_str(g, "str", &s, NULL), HS_OK);
    assert_true(hs_str_eq(s, "hello") && !hs_str_eq(s, "hell") && !hs_str_eq(s, "hello!"));
    assert_int_equal(hs_gguf_str(g, "empty", &s, NULL), HS_OK);
    assert_true(hs_str_eq(s, ""));
    assert_int_equal(hs_kv_int(hs_gguf_find(g, "i8"), 0), -56);
    assert_int_equal(hs_kv_int(hs_gguf_find(g, "i16"), 0), -5536);
    assert_int_equal(hs_kv_int(hs_gguf_find(g, "i32"), 0), -294967296);
    assert_int_equal(hs_kv_int(hs_gguf_find(g, "i64"), 0), -1);
    assert_true(hs_kv_real(hs_gguf_find(g, "u64"), 0) == 0x1p64);
    assert_true(hs_kv_real(hs_gguf_find(g, "i8"), 0) == -56);

    const hs_kv *a;
    assert_int_equal(hs_gguf_array(g, "ai", HS_KV_I16, &a, NULL), HS_OK);
    assert_int_equal(a->count, 2);
    assert_int_equal(hs_kv_int(a, 0), 1);
    assert_int_equal(hs_kv_int(a, 1), -1);
    assert_int_equal(hs_gguf_array(g, "ab", HS_KV_BOOL, &a, NULL), HS_OK);
    assert_int_equal(hs_kv_int(a, 1), 1);
    assert_int_equal(hs_gguf_array(g, "none", HS_KV_F32, &a, NULL), HS_OK);
    assert_int_equal(a->count, 0);
    assert_int_equal(hs_gguf_array(g, "absent", HS_KV_F32, &a, NULL), HS_OK);
    assert_null(a);
    assert_int_equal(hs_gguf_array(g, "as", HS_KV_STRING, &a, NULL), HS_OK);
    size_t pos = 0;
    assert_true(hs_str_eq(hs_kv_next_str(a, &pos), "x"));
    assert_true(hs_str_eq(hs_kv_next_str(a, &pos), ""));
    assert_true(hs_str_eq(hs_kv_next_str(a, &pos), "yz"));
    assert_int_equal(pos, a->raw_bytes);
    hs_gguf_free(g);
    free(b.p);
}

static void refuses_wrong_types_by_name(void **state)
{
    (void)state;
    bytes b;
    hs_gguf *g = accept(HEAD(0, 6) "$scores 9/4 0/4 4/8 1/4 $neg 5/4 0xffffffff/4 "
                                   "$big 10/4 0x100000000/8 $str 8/4 $x $f 6/4 0/4 $n 4/4 1/4",
                        &b);
    hs_err err;
    const hs_kv *a;
    uint32_t u = 7;
    uint64_t w = 7;
    float f;
    double d;
    bool t;
    hs_str s;
    assert_int_equal(hs_gguf_array(g, "scores", HS_KV_F32, &a, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "scores: expected array of f32, got array of u8");
    assert_int_equal(hs_gguf_array(g, "n", HS_KV_F32, &a, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "n: expected array of f32, got u32");
    assert_int_equal(hs_gguf_u32(g, "neg", &u, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "neg: expected u32, got -1");
    assert_int_equal(hs_gguf_u64(g, "neg", &w, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "neg: expected u64, got -1");
    assert_int_equal(hs_gguf_u32(g, "big", &u, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "big: expected u32, got 4294967296");
    assert_int_equal(hs_gguf_u32(g, "scores", &u, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "scores: expected u32, got array of u8");
    assert_int_equal(hs_gguf_u32(g, "f", &u, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "f: expected u32, got f32");
    assert_int_equal(u, 7);
    assert_int_equal(w, 7);
    assert_int_equal(hs_gguf_f32(g, "n", &f, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "n: expected f32, got u32");
    assert_int_equal(hs_gguf_f64(g, "str", &d, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "str: expected f64, got string");
    assert_int_equal(hs_gguf_bool(g, "n", &t, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "n: expected bool, got u32");
    assert_int_equal(hs_gguf_str(g, "n", &s, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "n: expected string, got u32");
    hs_gguf_free(g);
    free(b.p);
}

static void accepts_what_is_allowed(void **state)
{
    (void)state;
    static const char *const good[] = {
        ONE,
        HEAD(0, 0),
        HEAD(0, 0) "@32",
        "=GGUF 2/4 0/8 0/8",
        "=PWRI 2/4 0/8 0/8",
        HEAD(1, 0) ROW("a", 3, 0, 0) "@32 .12",                    /* without the last padding */
        HEAD(2, 0) ROW("a", 8, 0, 32) ROW("b", 8, 0, 0) "@32 .64", /* any order */
        HEAD(2, 0) ROW("a", 8, 0, 0) ROW("b", 8, 0, 64) "@32 .96", /* a hole */
        HEAD(3, 0) ROW("a", 0, 26, 0) ROW("b", 8, 0, 0) ROW("c", 0, 26, 32) "@32 .32",
        HEAD(1, 0) "63/8 *63 4/4 1/8 2/8 2/8 2/8 0/4 0/8 @32 .32",
        HEAD(1, 0) ROW("a", 8, 30, 0) "@32 .16",
        HEAD(0, 1) "65535/8 *65535 4/4 1/4",
        HEAD(0, 1) "$k 8/4 3/8 =a .1 =b", /* NUL in a value */
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        bytes b;
        hs_gguf *g = accept(good[i], &b);
        hs_gguf_free(g);
        free(b.p);
    }
    for (uint32_t a = 8; a <= 65536; a *= 2) {
        char text[200];
        snprintf(text, sizeof text,
                 HEAD(1, 1) "$general.alignment 4/4 %" PRIu32 "/4 " ROW("a", 1, 0, 0) "@%" PRIu32
                                                                                      " .4",
                 a, a);
        bytes b;
        hs_gguf *g = accept(text, &b);
        assert_int_equal(g->alignment, a);
        assert_int_equal(g->data_start % a, 0);
        assert_ptr_equal(g->tensors[0].data, b.p + g->data_start);
        hs_gguf_free(g);
        free(b.p);
    }
}

static void translates_the_old_i32(void **state)
{
    (void)state;
    bytes b;
    hs_gguf *g = accept("=PWRI 3/4 3/8 0/8 " ROW("a", 2, 18, 0) ROW("b", 2, 26, 32)
                            ROW("c", 8, 30, 64) "@32 7/4 8/4 .56 .16",
                        &b);
    assert_true(g->pwri);
    assert_int_equal(g->tensors[0].dtype, HS_I32);
    assert_int_equal(g->tensors[1].dtype, HS_I32);
    assert_int_equal(g->tensors[2].dtype, HS_BF16);
    assert_int_equal(g->tensors[0].bytes, 8);
    hs_gguf_free(g);
    free(b.p);
}

static void finds_tensors(void **state)
{
    (void)state;
    hs_gguf *g;
    hs_err err;
    assert_int_equal(hs_gguf_open(&g, "tests/golden/m1.gguf", &err), HS_OK);
    assert_true(g->pwri);
    assert_int_equal(g->n_tensors, 36);
    for (size_t i = 0; i < g->n_tensors; i++)
        assert_ptr_equal(hs_gguf_tensor_find(g, g->tensors[i].name), &g->tensors[i]);
    for (size_t i = 0; i < g->n_kv; i++) {
        char key[100];
        snprintf(key, sizeof key, "%.*s", (int)g->kv[i].key.n, g->kv[i].key.p);
        assert_ptr_equal(hs_gguf_find(g, key), &g->kv[i]);
    }
    assert_null(hs_gguf_tensor_find(g, "blk.0.ffn_down.weight"));
    const hs_gguf_tensor *t = hs_gguf_tensor_find(g, "blk.0.ffn_down_t.weight");
    assert_int_equal(t->ne[0], 128);
    assert_int_equal(t->bytes, t->ne[0] * t->ne[1] * 2);
    hs_gguf_free(g);
}

static void knows_kv_types(void **state)
{
    (void)state;
    assert_string_equal(hs_kv_type_name(HS_KV_F64), "f64");
    assert_string_equal(hs_kv_type_name(13), "?");
    assert_int_equal(hs_kv_type_bytes(HS_KV_I64), 8);
    assert_int_equal(hs_kv_type_bytes(HS_KV_STRING), 0);
    assert_int_equal(hs_kv_type_bytes(99), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejects_broken_files),
        cmocka_unit_test(rejects_every_prefix),
        cmocka_unit_test(rejects_a_truncated_model),
        cmocka_unit_test(names_the_path),
        cmocka_unit_test(many_records_are_fast),
        cmocka_unit_test(reads_every_kv_type),
        cmocka_unit_test(refuses_wrong_types_by_name),
        cmocka_unit_test(accepts_what_is_allowed),
        cmocka_unit_test(translates_the_old_i32),
        cmocka_unit_test(finds_tensors),
        cmocka_unit_test(knows_kv_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
