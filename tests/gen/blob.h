#ifndef HS_TESTS_GEN_BLOB_H
#define HS_TESTS_GEN_BLOB_H

/* Little-endian bytes under construction, for the generators of test files.  A generator that
 * runs out of memory or disk exits. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct blob {
    uint8_t *p;
    size_t n, cap;
} blob;

static inline void put(blob *b, const void *data, size_t n)
{
    if (n > b->cap - b->n) {
        b->cap = (b->n + n) * 2;
        b->p = realloc(b->p, b->cap);
        if (!b->p)
            exit(1);
    }
    if (n)
        memcpy(b->p + b->n, data, n);
    b->n += n;
}

static inline void put_uint(blob *b, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        const uint8_t byte = (uint8_t)(v >> 8 * i);
        put(b, &byte, 1);
    }
}

static inline void put_u32(blob *b, uint32_t v) { put_uint(b, v, 4); }
static inline void put_u64(blob *b, uint64_t v) { put_uint(b, v, 8); }

static inline void put_f32(blob *b, float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    put_u32(b, u);
}

static inline void put_str(blob *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static inline void make_dir(const char *path)
{
    mkdir(path, 0777); /* may exist; a failure shows when a file is written */
}

static inline void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || (n && fwrite(data, 1, n, f) != n) || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

#endif
