/* Eight 64-bit lanes with AVX-512: popcount by VPOPCNTDQ, three-input gates in one instruction. */
#include <immintrin.h>

#define KERNEL __attribute__((target("avx512f,avx512bw,avx512vpopcntdq,popcnt,bmi")))
#define LANES 8
#define HEADS 16

typedef uint64_t V __attribute__((vector_size(64)));

KERNEL INLINE V splat(uint64_t x)
{
    return (V)_mm512_set1_epi64((long long)x);
}

KERNEL INLINE V load(const uint64_t *p)
{
    return (V)_mm512_loadu_si512(p);
}

/* Lane l is p[l * stride]. */
KERNEL INLINE V gather(const uint64_t *p, size_t stride)
{
    const V lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    return (V)_mm512_i64gather_epi64((__m512i)(lanes * stride), p, 8);
}

#define LANE_NUMBERS ((V){0, 1, 2, 3, 4, 5, 6, 7})

/* The smaller number of each lane; numbers are below 2⁶³. */
KERNEL INLINE V least(V a, V b)
{
    return (V)_mm512_min_epu64((__m512i)a, (__m512i)b);
}

KERNEL INLINE V popcount(V x)
{
    return (V)_mm512_popcnt_epi64((__m512i)x);
}

/* Sum of the lanes. */
KERNEL INLINE int total(V x)
{
    return (int)_mm512_reduce_add_epi64((__m512i)x);
}

KERNEL INLINE V parity(V a, V b, V c)
{
    return (V)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
}

KERNEL INLINE V majority(V a, V b, V c)
{
    return (V)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0xE8);
}

KERNEL INLINE bool all_ones(V x)
{
    return _mm512_cmpneq_epi64_mask((__m512i)x, _mm512_set1_epi64(-1)) == 0;
}

/* Bit i of the result is 1 if count i of d[0] … d[3] is at most `reach`. */
KERNEL INLINE uint32_t within4(const V d[4], int reach)
{
    __m512i most = _mm512_set1_epi64(reach);
    __m512i first = _mm512_min_epu64((__m512i)d[0], (__m512i)d[1]), last = _mm512_min_epu64((__m512i)d[2], (__m512i)d[3]);
    if (__builtin_expect(!_mm512_cmple_epi64_mask(_mm512_min_epu64(first, last), most), 1))
        return 0;
    uint32_t mask = 0;
    for (int i = 0; i < 4; i++)
        mask |= (uint32_t)_mm512_cmple_epi64_mask((__m512i)d[i], most) << 8 * i;
    return mask;
}

/* Separate even and odd lanes of a and b: with two words per code, first and second words, of the codes
 * in any order. */
KERNEL INLINE void split_words(V a, V b, V out[2])
{
    out[0] = (V)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b);
    out[1] = (V)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b);
}

/* The same for even and odd pairs of lanes: with four words per code, after `split_words`. */
KERNEL INLINE void split_pairs(V a, V b, V out[2])
{
    out[0] = (V)_mm512_shuffle_i64x2((__m512i)a, (__m512i)b, 0x88);
    out[1] = (V)_mm512_shuffle_i64x2((__m512i)a, (__m512i)b, 0xDD);
}
#define SPLITS

/* Popcounts of words that are added before they are complete. */
KERNEL INLINE V partial_count(V x)
{
    return popcount(x);
}

KERNEL INLINE V complete_count(V sum)
{
    return sum;
}

/* A comparison mask as an integer, bits 16 to 31 zero. gcc 12 at -O1 and -Os spills such a mask with kmovw (two bytes)
 * and reads four back, also through _cvtmask16_u32; the move is therefore spelled out. */
KERNEL INLINE uint32_t mask_bits(__mmask16 mask)
{
    uint32_t bits;
    __asm__("kmovw %1, %0" : "=r"(bits) : "k"(mask));
    return bits;
}

/* Bit i of the result is 1 if popcount(heads[i] ^ query) ≤ `most`, for HEADS heads. */
KERNEL INLINE uint32_t heads_within(const uint32_t *heads, uint32_t query, int most)
{
    __m512i x = _mm512_xor_si512(_mm512_loadu_si512(heads), _mm512_set1_epi32((int)query));
    return mask_bits(_mm512_cmple_epi32_mask(_mm512_popcnt_epi32(x), _mm512_set1_epi32(most)));
}

/* The same for whole rests: 32 bits in a head, up to 16 more in the tail. */
KERNEL INLINE uint32_t codes_within(const uint32_t *heads, const uint16_t *tails, uint64_t query, int most)
{
    __m512i low = _mm512_xor_si512(_mm512_loadu_si512(heads), _mm512_set1_epi32((int)query));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)tails));
    high = _mm512_xor_si512(high, _mm512_set1_epi32((int)(query >> 32)));
    __m512i counts = _mm512_add_epi32(_mm512_popcnt_epi32(low), _mm512_popcnt_epi32(high));
    return mask_bits(_mm512_cmple_epi32_mask(counts, _mm512_set1_epi32(most)));
}

#define FLOATS 16
#define TILE 12

typedef __m512 F;

KERNEL INLINE F f_splat(float x)
{
    return _mm512_set1_ps(x);
}

KERNEL INLINE F f_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

KERNEL INLINE void f_store(float *p, F x)
{
    _mm512_storeu_ps(p, x);
}

KERNEL INLINE F f_fma(F a, F b, F c)
{
    return _mm512_fmadd_ps(a, b, c);
}

KERNEL INLINE uint32_t f_signs(F x)
{
    return mask_bits(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ));
}

KERNEL INLINE bool f_finite(F x)
{
    return _mm512_cmp_ps_mask(x - x, _mm512_setzero_ps(), _CMP_EQ_OQ) == 0xffff;
}
