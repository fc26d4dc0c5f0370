/* Blocks of rows whose bits are transposed into planes, and counted with tables and an adder tree. Included once per
 * instruction set. */

#include <stdlib.h>

#define BLOCK (64 * LANES) /* rows per block: one bit of a plane each */
#define MAX_LEVELS 11      /* bits of a count up to 1024 */
#define CHUNK_BITS 128     /* codes over 256 bits are counted in chunks */

/* A tree counts an odd number of planes: groups of three become one plane, their parity, until one is left. */
#define ODD(planes) ((planes) | 1)
#define GROUPS(planes) ((planes) / 2)
#define CHUNK_PLANES (ODD(CHUNK_BITS) + GROUPS(CHUNK_BITS)) /* with the parities */
#define SIXES(bits) (((bits) + 5) / 6)

/* Where two vectors fit a cache line, groups of six planes pay off for many queries: their tables exceed the L1
 * cache, but an entry is in one line. With wider vectors the L2 cache is too slow. */
#define HAS_SIXES (LANES < 8)
#define MANY_QUERIES 200

/* Number of bits that the adder tree counts; codes are padded with zeros to it. */
static int tree_bits(int n_bits)
{
    if (n_bits > 256)
        return (n_bits + CHUNK_BITS - 1) / CHUNK_BITS * CHUNK_BITS;
    return n_bits <= 32 ? 32 : n_bits <= 64 ? 64 : n_bits <= 128 ? 128 : 256;
}

/* Plane of a bit. */
INLINE int plane_of(int bit, int bits)
{
    return bits > 256 ? bit / CHUNK_BITS * CHUNK_PLANES + bit % CHUNK_BITS : bit;
}

/* Lane l of loaded[w] is word w of one of LANES codes; those of two and four words are in another order. */
KERNEL INLINE void load_words(const uint64_t *words, const int width, V *loaded)
{
#ifdef SPLITS
    if (width == 2 || width == 4) {
        sort_codes(words, width, loaded);
        return;
    }
#endif
    for (int w = 0; w < width; w++)
        loaded[w] = width == 1 ? load(words) : gather(words + w, (size_t)width);
}

/* Read LANES codes into vector j of the planes of each word. */
KERNEL INLINE void load_codes(const uint64_t *words, const int width, V *planes, int bits)
{
    for (int j = 0; j < 64; j++, words += LANES * width) {
        V loaded[MAX_BITS / 64];
        load_words(words, width, loaded);
        for (int w = 0; w < width; w++)
            planes[plane_of(64 * w, bits) + j] = loaded[w];
    }
}

/* Three steps of a transposition on eight rows, `stride` apart: in squares of 2 size × 2 size bits swap the upper right
 * with the lower left quarter, for sizes of 4, 2 and 1 times the stride. */
KERNEL INLINE void swap_quarters(V *rows, const int stride)
{
    static const uint64_t halves[6] = {0x5555555555555555u, 0x3333333333333333u, 0x0F0F0F0F0F0F0F0Fu,
                                       0x00FF00FF00FF00FFu, 0x0000FFFF0000FFFFu, 0x00000000FFFFFFFFu};
    V x[8];
    for (int i = 0; i < 8; i++)
        x[i] = rows[i * stride];
#pragma GCC unroll 3
    for (int step = 2; step >= 0; step--) {
        const int near = 1 << step, size = near * stride;
        const V half = splat(halves[step + (stride == 8 ? 3 : 0)]);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            if (!(i & near)) {
                V swap = ((x[i] >> size) ^ x[i + near]) & half;
                x[i + near] ^= swap;
                x[i] ^= swap << size;
            }
    }
    for (int i = 0; i < 8; i++)
        rows[i * stride] = x[i];
}

/* Transpose 64 × 64 bits in every lane at once: bit b of the code in lane l of vector j becomes bit j of lane l of
 * plane b. */
KERNEL static void transpose(V planes[64])
{
    for (int i = 0; i < 8; i++)
        swap_quarters(planes + i, 8);
    for (int i = 0; i < 64; i += 8)
        swap_quarters(planes + i, 1);
}

/* Tabulate the counts of groups of three planes for each value of the query's three bits. Group g has the planes
 * 3 g … 3 g + 2. The number of bits that differ has two binary digits. That of weight 1, the parity, depends only on
 * the parity of the query's bits: it becomes plane n + g, which is a member of a later group, so that plane
 * n + groups − 1 is the parity of all. That of weight 2 becomes entry (g, v), sums[8 g + v]. The last plane and its
 * complement follow. */
KERNEL static void tabulate(V *planes, int n, V *sums)
{
    V *parities = planes + n;
    for (const V *last = parities + GROUPS(n); parities < last; planes += 3, sums += 8) {
        V a = planes[0], b = planes[1], c = planes[2];
        *parities++ = parity(a, b, c);
        V entries[4] = {majority(a, b, c), majority(~a, b, c), majority(a, ~b, c), majority(~a, ~b, c)};
        for (int v = 0; v < 4; v++) {
            sums[v] = entries[v];
            sums[7 - v] = ~entries[v];
        }
    }
    sums[0] = parities[-1];
    sums[1] = ~parities[-1];
}

#if HAS_SIXES

/* The same for groups of six planes: the parities are planes of groups of three, and the two other digits become entry
 * (g, v), wide[128 g + 2 v] (weight 2) and the next (weight 4). */
KERNEL static void tabulate_six(const V *planes, int groups, V *parities, V *wide)
{
    for (int g = 0; g < groups; g++, planes += 6, wide += 128) {
        V three[2][8][2]; /* the digits of the first and of the last three planes */
        for (int half = 0; half < 2; half++)
            for (int v = 0; v < 8; v++) {
                V a = planes[3 * half] ^ splat(-(uint64_t)(v & 1));
                V b = planes[3 * half + 1] ^ splat(-(uint64_t)(v >> 1 & 1));
                V c = planes[3 * half + 2] ^ splat(-(uint64_t)(v >> 2 & 1));
                three[half][v][0] = parity(a, b, c);
                three[half][v][1] = majority(a, b, c);
            }
        parities[g] = three[0][0][0] ^ three[1][0][0];
        for (int v = 0; v < 64; v++) {
            const V *first = three[0][v & 7], *last = three[1][v >> 3];
            V carry = first[0] & last[0];
            wide[2 * v] = parity(first[1], last[1], carry);
            wide[2 * v + 1] = majority(first[1], last[1], carry);
        }
    }
}

#endif

/* A carry-save adder: up to three bits are pending at each weight 2^level; three of them become one
 * at that level and one above. Bits of weight 2^top only say that the sum has reached 2^top. */
typedef struct {
    V waiting[MAX_LEVELS][3];
    int count[MAX_LEVELS];
    V reached;
} Sum;

KERNEL INLINE void add(Sum *sum, int level, const int top, V bit)
{
#pragma GCC unroll 12
    for (; level < top; level++) {
        V *waiting = sum->waiting[level];
        waiting[sum->count[level]++] = bit;
        if (sum->count[level] < 3)
            return;
        V a = waiting[0], b = waiting[1], c = waiting[2];
        waiting[0] = parity(a, b, c);
        sum->count[level] = 1;
        bit = majority(a, b, c);
    }
    sum->reached |= bit;
}

/* Start from the number with the binary digits `bias`, each a word of all zeros or all ones. Nothing waits at weight 1:
 * tables leave one bit of it, which `settle` adds. */
KERNEL INLINE void start(Sum *sum, const uint64_t *bias, const int top)
{
#pragma GCC unroll 12
    for (int level = 1; level < top; level++) {
        sum->waiting[level][0] = splat(bias[level]);
        sum->count[level] = 1;
    }
    sum->reached = splat(0);
}

KERNEL INLINE V entry(const V *sums, uint16_t offset)
{
    return *(const V *)((const char *)sums + offset);
}

/* Add the digits of `groups` groups of three planes; offsets[g] is the byte offset of the query's entry in group g. */
KERNEL INLINE void add_groups(Sum *sum, const V *sums, const uint16_t *offsets, const int groups, const int top)
{
#pragma GCC unroll 150
    for (int g = 0; g < groups; g++)
        add(sum, 1, top, entry(sums + 8 * g, offsets[g]));
}

/* The same for groups of six. */
KERNEL INLINE void add_sixes(Sum *sum, const V *wide, const uint16_t *offsets, const int sixes, const int top)
{
#pragma GCC unroll 50
    for (int g = 0; g < sixes; g++) {
        add(sum, 1, top, entry(wide + 128 * g, offsets[g]));
        add(sum, 2, top, entry(wide + 128 * g + 1, offsets[g]));
    }
}

/* Reduce the pending bits to one digit per weight from 2 on, given the carry into it; returns the carry out of the
 * top. */
KERNEL INLINE V settle(const Sum *sum, V carry, const int top, V *digits)
{
#pragma GCC unroll 12
    for (int level = 1; level < top; level++) {
        V one = sum->waiting[level][0], two = sum->count[level] == 2 ? sum->waiting[level][1] : splat(0);
        if (digits)
            digits[level] = parity(one, two, carry);
        carry = majority(one, two, carry);
    }
    return carry;
}

/* Rows of a block with a distance ≥ limit, where bias = 2^top − limit: the count starts at the bias,
 * so that reaching the limit produces a carry into weight 2^top. `sums` are tables of `planes` planes in groups of
 * three; `wide` are those of `sixes` groups of six, whose offsets follow.
 *
 * With constant arguments the compiler unrolls everything and keeps the sum in registers: an adder
 * tree in which every node is two three-input gates. */
KERNEL INLINE V at_least(const V *sums, const V *wide, const uint16_t *offsets, const uint64_t *bias, const int planes,
                         const int sixes, const int top)
{
    const int groups = GROUPS(planes);
    Sum sum;
    start(&sum, bias, top);
    add_groups(&sum, sums, offsets, groups, top);
    add_sixes(&sum, wide, offsets + groups + 1, sixes, top);
    return sum.reached | settle(&sum, entry(sums + 8 * groups, offsets[groups]) & splat(bias[0]), top, NULL);
}

/* The digits of the count of a chunk, 0 … 128. */
KERNEL static void count_chunk(const V *sums, const uint16_t *offsets, V digits[8])
{
    static const uint64_t nothing[8];
    const int groups = GROUPS(CHUNK_BITS);
    Sum sum;
    start(&sum, nothing, 8);
    add_groups(&sum, sums, offsets, groups, 8);
    digits[0] = entry(sums + 8 * groups, offsets[groups]);
    settle(&sum, splat(0), 8, digits);
}

/* The same as `at_least` for long codes: adds the counts of their chunks. */
KERNEL static V at_least_long(const V *sums, const uint16_t *offsets, const uint64_t *bias, int chunks)
{
    const int groups = GROUPS(CHUNK_BITS);
    V total[MAX_LEVELS], digits[8], reached = splat(0);
    for (int level = 0; level < MAX_LEVELS; level++)
        total[level] = splat(bias[level]);
    for (int chunk = 0; chunk < chunks; chunk++) {
        count_chunk(sums + chunk * (8 * groups + 2), offsets + chunk * (groups + 1), digits);
        V carry = splat(0);
        for (int level = 0; level < MAX_LEVELS; level++) {
            V one = total[level], two = level < 8 ? digits[level] : splat(0);
            total[level] = parity(one, two, carry);
            carry = majority(one, two, carry);
        }
        reached |= carry;
    }
    return reached;
}

/* Working memory of one call, used for every block. Codes of up to 256 bits are one chunk. */
typedef struct {
    int bits, chunks, top;
    int sixes;         /* groups of six planes, whose parities are counted in groups of three; 0: all planes are */
    int counted;       /* planes per chunk that are counted in groups of three */
    V *planes;         /* those beyond the last bit stay zero */
    V *parities;       /* one per group of six; the parities of groups of three follow them or the planes */
    V *sums;           /* the tables of each chunk */
    V *wide;           /* 128 per group of six */
    uint64_t *bias;    /* `top` digits for each limit 0 … n_bits */
    uint16_t *entries; /* for each query its limit, reach + 1, and its offsets in the tables */
    size_t size;       /* entries per query */
    int lanes[LANES];  /* the lane of each of LANES successive rows */
    void *memory;
} Slices;

/* Where the entries of one query are in the tables. */
static void locate_entries(const Slices *slices, const uint64_t *query, int n_bits, uint16_t *offsets)
{
    const int n = slices->counted, groups = GROUPS(n);
    for (int chunk = 0; chunk < slices->chunks; chunk++, offsets += groups + 1) {
        uint8_t values[ODD(256) + GROUPS(256)] = {0}; /* of the query on each plane */
        int first = chunk * CHUNK_BITS, left = n_bits - first;
        for (int i = 0; i < (slices->chunks > 1 && left > CHUNK_BITS ? CHUNK_BITS : left); i++) {
            int bit = first + i, value = (int)(query[bit / 64] >> bit % 64 & 1);
            values[slices->sixes ? i / 6 : i] ^= (uint8_t)value;
            if (slices->sixes)
                offsets[groups + 1 + i / 6] += (uint16_t)(value * (int)(2 * sizeof(V)) << i % 6);
        }
        for (int g = 0; g < groups; g++) {
            const uint8_t *three = values + 3 * g;
            values[n + g] = three[0] ^ three[1] ^ three[2];
            offsets[g] = (uint16_t)((three[0] | three[1] << 1 | three[2] << 2) * (int)sizeof(V));
        }
        offsets[groups] = (uint16_t)(values[n + groups - 1] * sizeof(V));
    }
}

/* Find the lanes by loading codes whose words are the numbers of their rows. */
KERNEL static void order_lanes(int width, int *lanes)
{
    uint64_t words[LANES * MAX_BITS / 64];
    V loaded[MAX_BITS / 64];
    for (int i = 0; i < LANES * width; i++)
        words[i] = (uint64_t)(i / width);
    load_words(words, width, loaded);
    for (int lane = 0; lane < LANES; lane++)
        lanes[loaded[0][lane]] = lane;
}

static bool slices_make(Slices *slices, int n_bits, const uint64_t *queries, size_t n_queries, int width,
                        const Collector *collectors)
{
    int bits = tree_bits(n_bits), chunks = bits > 256 ? bits / CHUNK_BITS : 1;
    int top = chunks > 1 ? MAX_LEVELS : __builtin_ctz((unsigned)bits);
    int sixes = HAS_SIXES && chunks == 1 && n_queries >= MANY_QUERIES ? SIXES(bits) : 0;
    int counted = ODD(sixes ? sixes : bits / chunks), groups = GROUPS(counted);
    /* Planes are written 64 per word, which may extend beyond the last bit; parities overwrite them. */
    size_t planes = (size_t)(chunks > 1 ? chunks * CHUNK_PLANES : bits + 6 + groups) + 64;
    size_t parities = sixes ? (size_t)(counted + groups) : 0, sums = (size_t)(chunks * (8 * groups + 2));
    size_t wide = 128 * (size_t)sixes, biases = ((size_t)n_bits + 1) * (size_t)top;
    size_t size = (size_t)(1 + chunks * (groups + 1) + sixes);
    char *memory = calloc(1, CACHE_LINE + (wide + planes + parities + sums) * sizeof(V) + biases * sizeof(uint64_t) +
                                 n_queries * size * sizeof(uint16_t));
    if (!memory)
        return false;
    *slices = (Slices){.bits = bits, .chunks = chunks, .top = top, .sixes = sixes, .counted = counted, .size = size,
                       .memory = memory};
    slices->wide = (V *)(((uintptr_t)memory + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    slices->planes = slices->wide + wide;
    slices->parities = slices->planes + planes;
    slices->sums = slices->parities + parities;
    slices->bias = (uint64_t *)(slices->sums + sums);
    slices->entries = (uint16_t *)(slices->bias + biases);
    order_lanes(width, slices->lanes);
    for (int limit = 0; limit <= n_bits; limit++)
        for (int level = 0; level < top; level++)
            slices->bias[limit * top + level] = -(uint64_t)(((1 << top) - limit) >> level & 1);
    for (size_t i = 0; i < n_queries; i++) {
        slices->entries[i * size] = (uint16_t)(collectors[i].reach + 1);
        locate_entries(slices, queries + i * (size_t)width, n_bits, slices->entries + i * size + 1);
    }
    return true;
}

/* Transpose a block and fill the tables. */
KERNEL static void slices_fill(const Slices *slices, const uint64_t *words, int width)
{
    switch (width) {
    case 1:
        load_codes(words, 1, slices->planes, slices->bits);
        break;
    case 2:
        load_codes(words, 2, slices->planes, slices->bits);
        break;
    case 4:
        load_codes(words, 4, slices->planes, slices->bits);
        break;
    default:
        load_codes(words, width, slices->planes, slices->bits);
    }
    for (int w = 0; w < width; w++)
        transpose(slices->planes + plane_of(64 * w, slices->bits));
#if HAS_SIXES
    if (slices->sixes) {
        tabulate_six(slices->planes, slices->sixes, slices->parities, slices->wide);
        tabulate(slices->parities, slices->counted, slices->sums);
        return;
    }
#endif
    for (int chunk = 0; chunk < slices->chunks; chunk++)
        tabulate(slices->planes + chunk * CHUNK_PLANES, slices->counted,
                 slices->sums + chunk * (8 * GROUPS(slices->counted) + 2));
}
