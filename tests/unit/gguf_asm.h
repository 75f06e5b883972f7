#ifndef HS_TESTS_GGUF_ASM_H
#define HS_TESTS_GGUF_ASM_H

/* Files spelled out in a line of text, for tables of hand-broken ones.  Words, by first byte:
 *   12/4   the number 12 in 4 little-endian bytes (1, 2, 4, 8)
 *   $abc   a string: its length in 8 bytes, then abc
 *   =abc   the bytes abc
 *   .20    20 zero bytes
 *   *20    20 bytes 'a'
 *   @32    zero bytes up to a multiple of 32 */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    uint8_t *p;
    size_t n;
} bytes;

static inline void add(bytes *b, const void *p, size_t n)
{
    b->p = realloc(b->p, b->n + n + 1);
    if (!b->p)
        abort();
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}

static inline void add_fill(bytes *b, int c, size_t n)
{
    void *p = malloc(n + 1);
    if (!p)
        abort();
    memset(p, c, n);
    add(b, p, n);
    free(p);
}

static inline void add_word(bytes *b, const char *w)
{
    const size_t n = strlen(w);
    if (w[0] == '$') {
        const uint64_t len = n - 1;
        add(b, &len, 8);
        add(b, w + 1, n - 1);
    } else if (w[0] == '=') {
        add(b, w + 1, n - 1);
    } else if (w[0] == '.') {
        add_fill(b, 0, strtoul(w + 1, NULL, 10));
    } else if (w[0] == '*') {
        add_fill(b, 'a', strtoul(w + 1, NULL, 10));
    } else if (w[0] == '@') {
        const size_t a = strtoul(w + 1, NULL, 10);
        add_fill(b, 0, (a - b->n % a) % a);
    } else {
        char *end;
        const uint64_t v = strtoull(w, &end, 0);
        if (*end != '/')
            abort();
        add(b, &v, strtoul(end + 1, NULL, 10));
    }
}

/* The caller frees .p; the block has no spare byte, so that sanitizers see a read past the end. */
static inline bytes assemble(const char *text)
{
    bytes b = {NULL, 0};
    char *copy = strdup(text), *save = NULL;
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        add_word(&b, w);
    free(copy);
    uint8_t *exact = malloc(b.n ? b.n : 1);
    if (!exact)
        abort();
    if (b.n)
        memcpy(exact, b.p, b.n);
    free(b.p);
    b.p = exact;
    return b;
}

/* Header; a tensor's row; a file of one tensor of 32 F32 elements, its data following. */
#define HEAD(n_tensors, n_kv)          "=GGUF 3/4 " #n_tensors "/8 " #n_kv "/8 "
#define ROW(name, ne, type, offset)    "$" name " 1/4 " #ne "/8 " #type "/4 " #offset "/8 "
#define ROW2(name, a, b, type, offset) "$" name " 2/4 " #a "/8 " #b "/8 " #type "/4 " #offset "/8 "
#define DATA                           "@32 .128 "
#define ONE                            HEAD(1, 0) ROW("a", 32, 0, 0) DATA

#endif
