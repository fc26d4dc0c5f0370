/* Four 64-bit lanes with AVX2; popcount uses a lookup table of nibbles. */
#include <immintrin.h>

#define KERNEL __attribute__((target("avx2,fma,popcnt,bmi")))
#define LANES 4
#define HEADS 8

typedef uint64_t V __attribute__((vector_size(32)));

KERNEL INLINE V splat(uint64_t x)
{
    return (V)_mm256_set1_epi64x((long long)x);
}

KERNEL INLINE V load(const uint64_t *p)
{
    return (V)_mm256_loadu_si256((const void *)p);
}

/* Lane l is p[l * stride]. */
KERNEL INLINE V gather(const uint64_t *p, size_t stride)
{
    return (V){p[0], p[stride], p[2 * stride], p[3 * stride]};
}

/* Popcount of each byte. */
KERNEL INLINE __m256i count_bytes(__m256i x)
{
    const __m256i ones = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
                                          0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i low = _mm256_shuffle_epi8(ones, _mm256_and_si256(x, nibble));
    __m256i high = _mm256_shuffle_epi8(ones, _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble));
    return _mm256_add_epi8(low, high);
}

#define LANE_NUMBERS ((V){0, 1, 2, 3})

/* The smaller number of each lane; numbers are below 2⁶³. */
KERNEL INLINE V least(V a, V b)
{
    return (V)_mm256_blendv_epi8((__m256i)a, (__m256i)b, _mm256_cmpgt_epi64((__m256i)a, (__m256i)b));
}

KERNEL INLINE V popcount(V x)
{
    return (V)_mm256_sad_epu8(count_bytes((__m256i)x), _mm256_setzero_si256());
}

/* Sum of the lanes. */
KERNEL INLINE int total(V x)
{
    return (int)(x[0] + x[1] + x[2] + x[3]);
}

KERNEL INLINE V parity(V a, V b, V c)
{
    return a ^ b ^ c;
}

KERNEL INLINE V majority(V a, V b, V c)
{
    return (a & b) | (c & (a ^ b));
}

KERNEL INLINE bool all_ones(V x)
{
    return _mm256_testc_si256((__m256i)x, _mm256_set1_epi8(-1));
}

/* Bit i of the result is 1 if count i of d[0] … d[3] is at most `reach`, that is, if the
 * difference is negative. */
KERNEL INLINE uint32_t within4(const V d[4], int reach)
{
    V limit = splat((uint64_t)reach + 1);
    V below[4] = {d[0] - limit, d[1] - limit, d[2] - limit, d[3] - limit};
    if (!_mm256_movemask_pd((__m256d)(below[0] | below[1] | below[2] | below[3])))
        return 0;
    uint32_t mask = 0;
    for (int i = 0; i < 4; i++)
        mask |= (uint32_t)_mm256_movemask_pd((__m256d)below[i]) << 4 * i;
    return mask;
}

/* Separate even and odd lanes of a and b: with two words per code, first and second words, of the codes
 * in any order. */
KERNEL INLINE void split_words(V a, V b, V out[2])
{
    out[0] = (V)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
    out[1] = (V)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}

/* The same for even and odd pairs of lanes: with four words per code, after `split_words`. */
KERNEL INLINE void split_pairs(V a, V b, V out[2])
{
    out[0] = (V)_mm256_permute2x128_si256((__m256i)a, (__m256i)b, 0x20);
    out[1] = (V)_mm256_permute2x128_si256((__m256i)a, (__m256i)b, 0x31);
}
#define SPLITS

/* Popcounts of words that are added before they are complete: of bytes, so of up to 31 words. */
KERNEL INLINE V partial_count(V x)
{
    return (V)count_bytes((__m256i)x);
}

KERNEL INLINE V complete_count(V sum)
{
    return (V)_mm256_sad_epu8((__m256i)sum, _mm256_setzero_si256());
}

/* Popcount of each 32-bit lane. */
KERNEL INLINE __m256i count_words(__m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(count_bytes(x), _mm256_set1_epi8(1));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Bit i of the result is 1 if popcount(heads[i] ^ query) ≤ `most`, for HEADS heads. */
KERNEL INLINE uint32_t heads_within(const uint32_t *heads, uint32_t query, int most)
{
    __m256i x = _mm256_xor_si256(_mm256_loadu_si256((const void *)heads), _mm256_set1_epi32((int)query));
    __m256i above = _mm256_cmpgt_epi32(count_words(x), _mm256_set1_epi32(most));
    return ~(uint32_t)_mm256_movemask_ps((__m256)above) & 255;
}

/* The same for whole rests: 32 bits in a head, up to 16 more in the tail. */
KERNEL INLINE uint32_t codes_within(const uint32_t *heads, const uint16_t *tails, uint64_t query, int most)
{
    __m256i low = _mm256_xor_si256(_mm256_loadu_si256((const void *)heads), _mm256_set1_epi32((int)query));
    __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)tails));
    high = _mm256_xor_si256(high, _mm256_set1_epi32((int)(query >> 32)));
    __m256i counts = _mm256_add_epi32(count_words(low), count_words(high));
    __m256i above = _mm256_cmpgt_epi32(counts, _mm256_set1_epi32(most));
    return ~(uint32_t)_mm256_movemask_ps((__m256)above) & 255;
}

#define FLOATS 8
#define TILE 6

typedef __m256 F;

KERNEL INLINE F f_splat(float x)
{
    return _mm256_set1_ps(x);
}

KERNEL INLINE F f_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

KERNEL INLINE void f_store(float *p, F x)
{
    _mm256_storeu_ps(p, x);
}

KERNEL INLINE F f_fma(F a, F b, F c)
{
    return _mm256_fmadd_ps(a, b, c);
}

KERNEL INLINE uint32_t f_signs(F x)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GE_OQ));
}

KERNEL INLINE bool f_finite(F x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x - x, _mm256_setzero_ps(), _CMP_EQ_OQ)) == 0xff;
}
