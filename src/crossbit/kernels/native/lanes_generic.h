/* Two 64-bit lanes with portable vector extensions of the compiler. */
#define KERNEL
#define LANES 2
#define HEADS 4

typedef uint64_t V __attribute__((vector_size(16)));

INLINE V splat(uint64_t x)
{
    return (V){x, x};
}

INLINE V load(const uint64_t *p)
{
    return (V){p[0], p[1]};
}

/* Lane l is p[l * stride]. */
INLINE V gather(const uint64_t *p, size_t stride)
{
    return (V){p[0], p[stride]};
}

#define LANE_NUMBERS ((V){0, 1})

/* The smaller number of each lane; numbers are below 2⁶³. */
INLINE V least(V a, V b)
{
    return (V){a[0] < b[0] ? a[0] : b[0], a[1] < b[1] ? a[1] : b[1]};
}

INLINE V popcount(V x)
{
    x -= (x >> 1) & splat(0x5555555555555555u);
    x = (x & splat(0x3333333333333333u)) + ((x >> 2) & splat(0x3333333333333333u));
    x = (x + (x >> 4)) & splat(0x0f0f0f0f0f0f0f0fu);
    x += x >> 8;
    x += x >> 16;
    x += x >> 32;
    return x & splat(0x7f);
}

/* Sum of the lanes. */
INLINE int total(V x)
{
    return (int)(x[0] + x[1]);
}

INLINE V parity(V a, V b, V c)
{
    return a ^ b ^ c;
}

INLINE V majority(V a, V b, V c)
{
    return (a & b) | (c & (a ^ b));
}

INLINE bool all_ones(V x)
{
    return (x[0] & x[1]) == ~(uint64_t)0;
}

/* Bit i of the result is 1 if count i of d[0] … d[3] is at most `reach`, that is, if the
 * difference is negative. */
INLINE uint32_t within4(const V d[4], int reach)
{
    V limit = splat((uint64_t)reach + 1);
    V below[4] = {d[0] - limit, d[1] - limit, d[2] - limit, d[3] - limit};
    V any = below[0] | below[1] | below[2] | below[3];
    if (!((any[0] | any[1]) >> 63))
        return 0;
    uint32_t mask = 0;
    for (int i = 0; i < 4; i++)
        mask |= (uint32_t)(below[i][0] >> 63) << 2 * i | (uint32_t)(below[i][1] >> 63) << (2 * i + 1);
    return mask;
}

/* Bit i of the result is 1 if popcount(heads[i] ^ query) ≤ `most`, for HEADS heads. */
INLINE uint32_t heads_within(const uint32_t *heads, uint32_t query, int most)
{
    uint32_t mask = 0;
    for (int i = 0; i < HEADS; i++)
        mask |= (uint32_t)(__builtin_popcount(heads[i] ^ query) <= most) << i;
    return mask;
}

/* The same for whole rests: 32 bits in a head, up to 16 more in the tail. */
INLINE uint32_t codes_within(const uint32_t *heads, const uint16_t *tails, uint64_t query, int most)
{
    uint32_t mask = 0;
    for (int i = 0; i < HEADS; i++) {
        uint64_t difference = ((uint64_t)tails[i] << 32 | heads[i]) ^ query;
        mask |= (uint32_t)(__builtin_popcountll(difference) <= most) << i;
    }
    return mask;
}

#define FLOATS 4
#define TILE 4

typedef float F __attribute__((vector_size(16)));

INLINE F f_splat(float x)
{
    return (F){x, x, x, x};
}

INLINE F f_load(const float *p)
{
    F x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void f_store(float *p, F x)
{
    memcpy(p, &x, sizeof x);
}

INLINE F f_fma(F a, F b, F c)
{
    return a * b + c;
}

INLINE uint32_t f_signs(F x)
{
    return (uint32_t)(x[0] >= 0) | (uint32_t)(x[1] >= 0) << 1 | (uint32_t)(x[2] >= 0) << 2 | (uint32_t)(x[3] >= 0) << 3;
}

INLINE bool f_finite(F x)
{
    F zero = x - x;
    return zero[0] == 0 && zero[1] == 0 && zero[2] == 0 && zero[3] == 0;
}
