/* The type table.  Types without a decoder are known by their size alone, so that files that
 * hold them can be listed and copied. */
#include "formats/dtype.h"

#include "formats/cursor.h"
#include "formats/quant.h"

#include <strings.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "file bytes are used in place");

/* clang-format off */
#define PLAIN(type)  hs_##type##_decode, hs_##type##_encode, NULL
#define BLOCKS(type) hs_##type##_decode, hs_##type##_encode, hs_##type##_encode_weighted
static const hs_dtype_info table[HS_DTYPE_LIMIT] = {
    [HS_F32]    = {HS_F32,    "F32",    1,   4,   0,  PLAIN(f32), hs_f32_encode},
    [HS_F16]    = {HS_F16,    "F16",    1,   2,   1,  PLAIN(f16), hs_f16_encode},
    [HS_Q4_0]   = {HS_Q4_0,   "Q4_0",   32,  18,  2,  BLOCKS(q4_0), hs_q4_0_encode_powerinfer},
    [HS_Q4_1]   = {HS_Q4_1,   "Q4_1",   32,  20,  3,  BLOCKS(q4_1), NULL},
    [HS_Q5_0]   = {HS_Q5_0,   "Q5_0",   32,  22,  8,  BLOCKS(q5_0), hs_q5_0_encode_powerinfer},
    [HS_Q5_1]   = {HS_Q5_1,   "Q5_1",   32,  24,  9,  BLOCKS(q5_1), NULL},
    [HS_Q8_0]   = {HS_Q8_0,   "Q8_0",   32,  34,  7,  PLAIN(q8_0), hs_q8_0_encode},
    [HS_Q2_K]   = {HS_Q2_K,   "Q2_K",   256, 84,  10, BLOCKS(q2_k), NULL},
    [HS_Q3_K]   = {HS_Q3_K,   "Q3_K",   256, 110, 12, BLOCKS(q3_k), NULL},
    [HS_Q4_K]   = {HS_Q4_K,   "Q4_K",   256, 144, 15, BLOCKS(q4_k), NULL},
    [HS_Q5_K]   = {HS_Q5_K,   "Q5_K",   256, 176, 17, BLOCKS(q5_k), NULL},
    [HS_Q6_K]   = {HS_Q6_K,   "Q6_K",   256, 210, 18, BLOCKS(q6_k), hs_q6_k_encode_powerinfer},
    [HS_IQ4_NL] = {HS_IQ4_NL, "IQ4_NL", 32,  18,  25, BLOCKS(iq4_nl), NULL},
    [HS_IQ4_XS] = {HS_IQ4_XS, "IQ4_XS", 256, 136, 30, BLOCKS(iq4_xs), NULL},
    [HS_I8]     = {HS_I8,     "I8",     1,   1,   -1, NULL, NULL, NULL, NULL},
    [HS_I16]    = {HS_I16,    "I16",    1,   2,   -1, NULL, NULL, NULL, NULL},
    [HS_I32]    = {HS_I32,    "I32",    1,   4,   -1, NULL, NULL, NULL, NULL},
    [HS_I64]    = {HS_I64,    "I64",    1,   8,   -1, NULL, NULL, NULL, NULL},
    [HS_F64]    = {HS_F64,    "F64",    1,   8,   -1, NULL, NULL, NULL, NULL},
    [HS_BF16]   = {HS_BF16,   "BF16",   1,   2,   32, PLAIN(bf16), NULL},
};
/* clang-format on */

const hs_dtype_info *hs_dtype_get(uint32_t id)
{
    return id < HS_DTYPE_LIMIT && table[id].name ? &table[id] : NULL;
}

const hs_dtype_info *hs_dtype_by_name(const char *name)
{
    for (size_t i = 0; i < HS_DTYPE_LIMIT; i++)
        if (table[i].name && strcasecmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

const char *hs_dtype_name(uint32_t id)
{
    const hs_dtype_info *t = hs_dtype_get(id);
    return t ? t->name : "?";
}

bool hs_dtype_row_bytes(uint32_t id, uint64_t n, uint64_t *bytes)
{
    const hs_dtype_info *t = hs_dtype_get(id);
    return t && n % t->block_elems == 0 && hs_mul(n / t->block_elems, t->block_bytes, bytes);
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t hs_f32_to_f16(float f)
{
    const uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) /* NaN: quiet, with what fits of the payload */
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x47800000) /* 65536; what lies between the largest half and this rounds below */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) /* under 2^-14: adding 0.5 leaves units of 2^-24, rounded as we need */
        return (uint16_t)(sign | (bits_of(float_of(a) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((a + 0xfff + (a >> 13 & 1) - (112u << 23)) >> 13));
}

float hs_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16, a = (h & 0x7fffu) << 13;
    if (a >= 0x0f800000)
        return float_of(sign | 0x7f800000 | (a & 0x007fffff) | (a > 0x0f800000 ? 0x400000u : 0));
    if (a < 0x00800000) { /* subnormal: 2^-14 (1 + m) - 2^-14, no subnormal float on the way */
        const float v = float_of(a + (113u << 23)) - 0x1p-14f;
        return sign ? -v : v;
    }
    return float_of(sign | (a + (112u << 23)));
}

uint16_t hs_f32_to_bf16(float f)
{
    const uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
