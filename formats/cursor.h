#ifndef HS_FORMATS_CURSOR_H
#define HS_FORMATS_CURSOR_H

/* Bounds-checked little-endian reads over a borrowed byte range.
 *
 * The cursor is sticky: after the first short read every later read returns 0
 * and `bad` stays set, so a parser reads a whole record and checks once. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_cursor {
    const uint8_t *base;
    size_t size, pos;
    bool bad;
} hs_cursor;

static inline const uint8_t *hs_cur_take(hs_cursor *c, uint64_t n)
{
    if (c->bad || n > c->size - c->pos) {
        c->bad = true;
        return NULL;
    }
    const uint8_t *p = c->base + c->pos;
    c->pos += (size_t)n;
    return p;
}

static inline uint8_t hs_cur_u8(hs_cursor *c)
{
    const uint8_t *p = hs_cur_take(c, 1);
    return p ? p[0] : 0;
}

static inline uint16_t hs_get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline uint32_t hs_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t hs_get_u64(const uint8_t *p)
{
    return (uint64_t)hs_get_u32(p) | (uint64_t)hs_get_u32(p + 4) << 32;
}

static inline float hs_get_f32(const uint8_t *p)
{
    const uint32_t u = hs_get_u32(p);
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline double hs_get_f64(const uint8_t *p)
{
    const uint64_t u = hs_get_u64(p);
    double f;
    memcpy(&f, &u, 8);
    return f;
}

static inline uint16_t hs_cur_u16(hs_cursor *c)
{
    const uint8_t *p = hs_cur_take(c, 2);
    return p ? hs_get_u16(p) : 0;
}

static inline uint32_t hs_cur_u32(hs_cursor *c)
{
    const uint8_t *p = hs_cur_take(c, 4);
    return p ? hs_get_u32(p) : 0;
}

static inline uint64_t hs_cur_u64(hs_cursor *c)
{
    const uint8_t *p = hs_cur_take(c, 8);
    return p ? hs_get_u64(p) : 0;
}

/* Checked arithmetic: every size, offset and count read from a file goes through these. */
static inline bool hs_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool hs_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Round `a` up to a multiple of `align` (a power of two); false when that overflows. */
static inline bool hs_align_up(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t t;
    if (!hs_add(a, align - 1, &t))
        return false;
    *out = t & ~(align - 1);
    return true;
}

#ifdef __cplusplus
}
#endif

#endif
