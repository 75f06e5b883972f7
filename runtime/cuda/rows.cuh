#ifndef HS_RUNTIME_CUDA_ROWS_CUH
#define HS_RUNTIME_CUDA_ROWS_CUH

/* Part of common.cuh: rows of every type of weight, as the kernels read them.  The bytes are
 * drawn in runtime/kernels_block.h. */

template <hs_dtype T> struct hs_row;

/* For t < tokens <= N, unrolled so that each token's sum has a register of its own. */
#ifdef HS_CUDA_EMU
#define HS_EACH_TOKEN(t, N, tokens, ...)                     \
    for (unsigned t = 0; t < (N == 1 ? 1 : (tokens)); t++) { \
        __VA_ARGS__;                                         \
    }
#else
#define HS_EACH_TOKEN(t, N, tokens, ...) \
    _Pragma("unroll") for (unsigned t = 0; t < N; t++) if (N == 1 || t < (tokens)) { __VA_ARGS__; }
#endif

/* Float rows: lane j of 32 adds w[i] * x[i] for i = j, j + 32, …  A warp reads 128 (F32) or 64
 * bytes in one piece. */
template <class E> struct hs_float_row {
    static constexpr unsigned lanes = 32;
    template <int N>
    static __device__ __forceinline__ void partial(const uint8_t *row, const hs_dev_act &a,
                                                   uint32_t n, unsigned lane, unsigned tokens,
                                                   float *sum)
    {
        for (uint32_t i = lane; i < n; i += 32) {
            const float w = value(row, i);
            const float *x = a.x + i;
            HS_EACH_TOKEN(t, N, tokens, sum[t] = hs_addf(sum[t], hs_mulf(w, x[t * a.ldx])));
        }
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        return E::widen(reinterpret_cast<const typename E::type *>(row)[i]);
    }
};

struct hs_elem_f32 {
    typedef float type;
    static __device__ __forceinline__ float widen(float f) { return f; }
};
struct hs_elem_f16 {
    typedef uint16_t type;
    static __device__ __forceinline__ float widen(uint16_t h) { return hs_dev_f16(h); }
};
struct hs_elem_bf16 {
    typedef uint16_t type;
    static __device__ __forceinline__ float widen(uint16_t h)
    {
        hs_f32_bits v;
        v.u = (uint32_t)h << 16;
        return v.f;
    }
};

template <> struct hs_row<HS_F32> : hs_float_row<hs_elem_f32> {
};
template <> struct hs_row<HS_F16> : hs_float_row<hs_elem_f16> {
};
template <> struct hs_row<HS_BF16> : hs_float_row<hs_elem_bf16> {
};

/* Quantized rows: lane g & 15 of 16 owns group g, 32 elements or, where B::halves, 16.
 * B::dot gives four neighbouring centred weights (4s … 4s+3 of block b of 32) times their
 * activations, and their scale; B::min, where B::has_min, what the sum of the activations is
 * multiplied with. */
static constexpr int HS_ONES = 0x01010101;

template <class B> struct hs_quant_row {
    static constexpr unsigned lanes = 16;
    template <int N>
    static __device__ __forceinline__ void partial(const uint8_t *row, const hs_dev_act &a,
                                                   uint32_t n, unsigned lane, unsigned tokens,
                                                   float *sum)
    {
        for (uint32_t g = lane; g < n / (4 * fours); g += 16) {
            const uint32_t b = B::halves ? g / 2 : g;
            const int8_t *q = a.q + 32 * (size_t)b;
            const float *d = a.d + b;
            HS_EACH_TOKEN(t, N, tokens,
                          one(row, b, B::halves ? g % 2 * 4 : 0,
                              reinterpret_cast<const int *>(q + (size_t)t * a.ldq),
                              d[t * (a.ldq / 32)], &sum[t]));
        }
    }
    static constexpr unsigned fours = B::halves ? 4 : 8; /* of a group */
    static __device__ __forceinline__ void one(const uint8_t *row, uint32_t b, unsigned first,
                                               const int *x, float dq, float *sum)
    {
        float d = 0;
        int p = 0, ones = 0;
        for (unsigned s = first; s < first + fours; s++) {
            p += B::dot(row, b, s, x[s], &d);
            if (B::has_min)
                ones = __dp4a(HS_ONES, x[s], ones);
        }
        *sum = hs_addf(*sum, hs_mulf((float)p, hs_mulf(d, dq)));
        if (B::has_min)
            *sum = hs_addf(*sum, hs_mulf((float)ones, hs_mulf(B::min(row, b, first), dq)));
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        return B::value(row, i);
    }
};

/* Groups of 32; Q2_K, Q3_K and Q6_K say otherwise. */
struct hs_block_whole {
    static constexpr bool halves = false;
};

struct hs_block_signed : hs_block_whole {
    static constexpr bool has_min = false;
    static __device__ __forceinline__ float min(const uint8_t *, uint32_t, unsigned) { return 0; }
};

/* f16 d, i8 q[32] */
struct hs_block_q8_0 : hs_block_signed {
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + 34 * (size_t)b;
        *d = hs_dev_load_f16(p);
        return __dp4a((int)hs_dev_load_u32(p + 2 + 4 * s), q, 0);
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + 34 * (size_t)(i / 32);
        return hs_mulf(hs_dev_load_f16(p), (float)(int8_t)p[2 + i % 32]);
    }
};

/* f16 d, u8 q[16]: element e < 16 in the low half of byte e, e >= 16 in the high half of e - 16.
 * sum (w - 8) q = sum w q - 8 sum q, all in integers. */
struct hs_block_q4_0 : hs_block_signed {
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + 18 * (size_t)b;
        const uint32_t w = hs_dev_load_u32(p + 2 + 4 * (s & 3)) >> (s & 4) & 0x0f0f0f0fu;
        *d = hs_dev_load_f16(p);
        return __dp4a((int)w, q, -8 * __dp4a(HS_ONES, q, 0));
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + 18 * (size_t)(i / 32);
        const int w = p[2 + i % 16] >> (i % 32 / 16 * 4) & 15;
        return hs_mulf(hs_dev_load_f16(p), (float)(w - 8));
    }
};

/* f16 d, u32 high (bit e is bit 4 of element e), u8 q[16] as in Q4_0 */
struct hs_block_q5_0 : hs_block_signed {
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + 22 * (size_t)b;
        const uint32_t h = hs_dev_load_u32(p + 2) >> (4 * s);
        const uint32_t w = (hs_dev_load_u32(p + 6 + 4 * (s & 3)) >> (s & 4) & 0x0f0f0f0fu) |
                           (h & 1) << 4 | (h & 2) << 11 | (h & 4) << 18 | (h & 8) << 25;
        *d = hs_dev_load_f16(p);
        return __dp4a((int)w, q, -16 * __dp4a(HS_ONES, q, 0));
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + 22 * (size_t)(i / 32);
        const unsigned e = i % 32;
        const int high = (int)(hs_dev_load_u32(p + 2) >> e & 1) << 4;
        const int w = (p[6 + e % 16] >> (e / 16 * 4) & 15) | high;
        return hs_mulf(hs_dev_load_f16(p), (float)(w - 16));
    }
};

/* 256 elements: u8 low[128], u8 high[64], i8 scale[16], f16 d.  Block j of 32 is quarter j % 4 of
 * half j / 4: its low four bits lie in low[64 half + 32 (quarter & 1) + e], lower nibbles for
 * quarters 0 and 1; its high two bits in bits 2 quarter … of high[32 half + e]. */
struct hs_block_q6_k : hs_block_signed {
    static constexpr bool halves = true;
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + 210 * (size_t)(b / 8);
        const unsigned half = b % 8 / 4, quarter = b % 4;
        const uint32_t low = hs_dev_load_u32(p + 64 * half + 32 * (quarter & 1) + 4 * s);
        const uint32_t high = hs_dev_load_u32(p + 128 + 32 * half + 4 * s) >> (2 * quarter);
        const uint32_t w = (low >> (quarter / 2 * 4) & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;
        *d = hs_mulf(hs_dev_load_f16(p + 208), (float)(int8_t)p[192 + b % 8 * 2 + s / 4]);
        return __dp4a((int)w, q, -32 * __dp4a(HS_ONES, q, 0));
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + 210 * (size_t)(i / 256);
        const unsigned half = i % 256 / 128, quarter = i % 128 / 32, e = i % 32;
        const int low = p[64 * half + 32 * (quarter & 1) + e] >> (quarter / 2 * 4) & 15;
        const int high = p[128 + 32 * half + e] >> (2 * quarter) & 3;
        const float d = hs_mulf(hs_dev_load_f16(p + 208), (float)(int8_t)p[192 + i % 256 / 16]);
        return hs_mulf(d, (float)((low | high << 4) - 32));
    }
};

/* Bits of four neighbouring levels: bits at…at + 1 of the bytes of v. */
static __device__ __forceinline__ uint32_t hs_dev_two_bits(uint32_t v, unsigned at)
{
    return v >> at & 0x03030303u;
}

/* Bit `at` of the bytes of v, moved to bit `to`. */
static __device__ __forceinline__ uint32_t hs_dev_bit(uint32_t v, unsigned at, unsigned to)
{
    return (v >> at & 0x01010101u) << to;
}

/* Four bits of h from bit 4s on become the fifth bits of four bytes. */
static __device__ __forceinline__ uint32_t hs_dev_fifth_bits(uint32_t h, unsigned s)
{
    h >>= 4 * s;
    return (h & 1) << 4 | (h & 2) << 11 | (h & 4) << 18 | (h & 8) << 25;
}

/* f16 d, f16 m, [u32 high,] u8 q[16] as in Q4_0 and Q5_0; d q + m */
template <bool five> struct hs_block_1 : hs_block_whole {
    static constexpr bool has_min = true;
    static constexpr unsigned bytes = five ? 24 : 20, at = five ? 8 : 4;
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + bytes * (size_t)b;
        uint32_t w = hs_dev_load_u32(p + at + 4 * (s & 3)) >> (s & 4) & 0x0f0f0f0fu;
        if (five)
            w |= hs_dev_fifth_bits(hs_dev_load_u32(p + 4), s);
        *d = hs_dev_load_f16(p);
        return __dp4a((int)w, q, 0);
    }
    static __device__ __forceinline__ float min(const uint8_t *row, uint32_t b, unsigned)
    {
        return hs_dev_load_f16(row + bytes * (size_t)b + 2);
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + bytes * (size_t)(i / 32);
        const unsigned e = i % 32;
        int w = p[at + e % 16] >> (e / 16 * 4) & 15;
        if (five)
            w |= (int)(hs_dev_load_u32(p + 4) >> e & 1) << 4;
        return hs_addf(hs_mulf(hs_dev_load_f16(p), (float)w), hs_dev_load_f16(p + 2));
    }
};

/* u8 scale | min << 4 [16], u8 q[64], f16 d, f16 dmin; two bits a level, block j of 32 in bits
 * 2 (j % 4) … of 32 (j / 4) + e */
struct hs_block_q2_k {
    static constexpr bool halves = true;
    static constexpr bool has_min = true;
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + 84 * (size_t)(b / 8);
        const unsigned j = b % 8;
        const uint32_t v = hs_dev_load_u32(p + 16 + j / 4 * 32 + 4 * s);
        *d = hs_mulf(hs_dev_load_f16(p + 80), (float)(p[2 * j + s / 4] & 15));
        return __dp4a((int)hs_dev_two_bits(v, j % 4 * 2), q, 0);
    }
    static __device__ __forceinline__ float min(const uint8_t *row, uint32_t b, unsigned s)
    {
        const uint8_t *p = row + 84 * (size_t)(b / 8);
        return -hs_mulf(hs_dev_load_f16(p + 82), (float)(p[b % 8 * 2 + s / 4] >> 4));
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + 84 * (size_t)(i / 256);
        const unsigned e = i % 256;
        const int w = p[16 + e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
        const float d = hs_mulf(hs_dev_load_f16(p + 80), (float)(p[e / 16] & 15));
        return hs_addf(hs_mulf(d, (float)w), min(row, i / 32, i % 32 / 4));
    }
};

/* u8 high[32], u8 q[64] as in Q2_K, 12 bytes of scales, f16 d; bit j of high[e] is the third bit
 * of element e of block j */
struct hs_block_q3_k : hs_block_signed {
    static constexpr bool halves = true;
    static __device__ __forceinline__ float scale(const uint8_t *p, unsigned i)
    {
        const int low = p[96 + i % 8] >> (i / 8 * 4) & 15, high = p[104 + i % 4] >> (i / 4 * 2) & 3;
        return hs_mulf(hs_dev_load_f16(p + 108), (float)((low | high << 4) - 32));
    }
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + 110 * (size_t)(b / 8);
        const unsigned j = b % 8;
        const uint32_t low = hs_dev_load_u32(p + 32 + j / 4 * 32 + 4 * s);
        const uint32_t high = hs_dev_load_u32(p + 4 * s);
        *d = scale(p, 2 * j + s / 4);
        return __dp4a((int)(hs_dev_two_bits(low, j % 4 * 2) | hs_dev_bit(high, j, 2)), q,
                      -4 * __dp4a(HS_ONES, q, 0));
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + 110 * (size_t)(i / 256);
        const unsigned e = i % 256;
        const int low = p[32 + e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
        const int high = p[e % 32] >> (e / 32) & 1;
        return hs_mulf(scale(p, e / 16), (float)((low | high << 2) - 4));
    }
};

/* f16 d, f16 dmin, 12 bytes of scales and minima, [u8 high[32],] u8 q[128]: block j of 32 is
 * nibble j & 1 of q[32 (j / 2) + e], its fifth bit bit j of high[e] */
template <bool five> struct hs_block_k4 : hs_block_whole {
    static constexpr bool has_min = true;
    static constexpr unsigned bytes = five ? 176 : 144, at = five ? 48 : 16;
    static __device__ __forceinline__ float scale(const uint8_t *p, unsigned j)
    {
        const int s = j < 4 ? p[4 + j] & 63 : (p[8 + j] & 15) | p[j] >> 6 << 4;
        return hs_mulf(hs_dev_load_f16(p), (float)s);
    }
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + bytes * (size_t)(b / 8);
        const unsigned j = b % 8;
        uint32_t w = hs_dev_load_u32(p + at + j / 2 * 32 + 4 * s) >> (j % 2 * 4) & 0x0f0f0f0fu;
        if (five)
            w |= hs_dev_bit(hs_dev_load_u32(p + 16 + 4 * s), j, 4);
        *d = scale(p, j);
        return __dp4a((int)w, q, 0);
    }
    static __device__ __forceinline__ float min(const uint8_t *row, uint32_t b, unsigned)
    {
        const uint8_t *p = row + bytes * (size_t)(b / 8);
        const unsigned j = b % 8;
        const int m = j < 4 ? p[8 + j] & 63 : p[8 + j] >> 4 | p[4 + j] >> 6 << 4;
        return -hs_mulf(hs_dev_load_f16(p + 2), (float)m);
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + bytes * (size_t)(i / 256);
        const unsigned j = i % 256 / 32, e = i % 32;
        int w = p[at + j / 2 * 32 + e] >> (j % 2 * 4) & 15;
        if (five)
            w |= (p[16 + e] >> j & 1) << 4;
        return hs_addf(hs_mulf(scale(p, j), (float)w), min(row, i / 32, 0));
    }
};

/* Level q of IQ4: byte q of two words. */
static __device__ __forceinline__ int hs_dev_iq4(unsigned q)
{
    const uint64_t low = 0xf6eaddcfbfad9881u, high = 0x7159453526190d01u;
    return (int8_t)((q < 8 ? low : high) >> (q % 8 * 8));
}

/* Four neighbouring levels of IQ4 out of nibbles in bytes. */
static __device__ __forceinline__ int hs_dev_iq4x4(uint32_t w)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)(uint8_t)hs_dev_iq4(w >> (8 * i) & 15) << (8 * i);
    return (int)v;
}

/* f16 d, u8 q[16] as in Q4_0 */
struct hs_block_iq4_nl : hs_block_signed {
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + 18 * (size_t)b;
        *d = hs_dev_load_f16(p);
        return __dp4a(hs_dev_iq4x4(hs_dev_load_u32(p + 2 + 4 * (s & 3)) >> (s & 4)), q, 0);
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + 18 * (size_t)(i / 32);
        const unsigned w = p[2 + i % 16] >> (i % 32 / 16 * 4) & 15u;
        return hs_mulf(hs_dev_load_f16(p), (float)hs_dev_iq4(w));
    }
};

/* f16 d, u16 high, u8 low[4], u8 q[8][16], each as in Q4_0 */
struct hs_block_iq4_xs : hs_block_signed {
    static __device__ __forceinline__ float scale(const uint8_t *p, unsigned j)
    {
        const int low = p[4 + j / 2] >> (j % 2 * 4) & 15, high = p[2 + j / 4] >> (j % 4 * 2) & 3;
        return hs_mulf(hs_dev_load_f16(p), (float)((low | high << 4) - 32));
    }
    static __device__ __forceinline__ int dot(const uint8_t *row, uint32_t b, unsigned s, int q,
                                              float *d)
    {
        const uint8_t *p = row + 136 * (size_t)(b / 8);
        const uint32_t v = hs_dev_load_u32(p + 8 + b % 8 * 16 + 4 * (s & 3));
        *d = scale(p, b % 8);
        return __dp4a(hs_dev_iq4x4(v >> (s & 4)), q, 0);
    }
    static __device__ __forceinline__ float value(const uint8_t *row, uint32_t i)
    {
        const uint8_t *p = row + 136 * (size_t)(i / 256);
        const unsigned j = i % 256 / 32;
        const unsigned w = p[8 + 16 * j + i % 16] >> (i % 32 / 16 * 4) & 15u;
        return hs_mulf(scale(p, j), (float)hs_dev_iq4(w));
    }
};

template <> struct hs_row<HS_Q8_0> : hs_quant_row<hs_block_q8_0> {
};
template <> struct hs_row<HS_Q5_0> : hs_quant_row<hs_block_q5_0> {
};
template <> struct hs_row<HS_Q4_0> : hs_quant_row<hs_block_q4_0> {
};
template <> struct hs_row<HS_Q6_K> : hs_quant_row<hs_block_q6_k> {
};

template <> struct hs_row<HS_Q4_1> : hs_quant_row<hs_block_1<false>> {
};
template <> struct hs_row<HS_Q5_1> : hs_quant_row<hs_block_1<true>> {
};
template <> struct hs_row<HS_Q2_K> : hs_quant_row<hs_block_q2_k> {
};
template <> struct hs_row<HS_Q3_K> : hs_quant_row<hs_block_q3_k> {
};
template <> struct hs_row<HS_Q4_K> : hs_quant_row<hs_block_k4<false>> {
};
template <> struct hs_row<HS_Q5_K> : hs_quant_row<hs_block_k4<true>> {
};
template <> struct hs_row<HS_IQ4_NL> : hs_quant_row<hs_block_iq4_nl> {
};
template <> struct hs_row<HS_IQ4_XS> : hs_quant_row<hs_block_iq4_xs> {
};

#endif
