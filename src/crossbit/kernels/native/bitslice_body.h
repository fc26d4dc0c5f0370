/* Bit-sliced search: many queries against blocks of rows whose bits are transposed into planes.
 * Included once per instruction set. */

#include <stdlib.h>

#define BLOCK (64 * LANES) /* rows per block: one bit of a plane each */
#define MAX_LEVELS 11      /* bits of a count up to 1024 */
#define MANY_QUERIES 200   /* from here on groups of six planes pay off */
#define CHUNK_GROUPS 43    /* groups of three planes per 128 bits; codes over 256 bits are counted in chunks of 128 */

/* Bit j of lane l of plane b is bit b of row j LANES + l of the block: rows are read in order.
 * Transposes 64 × 64 bits in every lane at once; each step halves the size of the swapped squares. */
KERNEL static void transpose(const uint64_t *block, size_t width, V planes[64])
{
    static const uint64_t halves[6] = {0x00000000FFFFFFFFu, 0x0000FFFF0000FFFFu, 0x00FF00FF00FF00FFu,
                                       0x0F0F0F0F0F0F0F0Fu, 0x3333333333333333u, 0x5555555555555555u};
    for (size_t j = 0; j < 64; j++)
        planes[j] = width == 1 ? load(block + j * LANES) : gather(block + j * LANES * width, width);
    for (int step = 0, size = 32; step < 6; step++, size /= 2) {
        V half = splat(halves[step]);
        for (int square = 0; square < 64; square += 2 * size)
            for (int i = square; i < square + size; i++) {
                V swap = ((planes[i] >> size) ^ planes[i + size]) & half;
                planes[i + size] ^= swap;
                planes[i] ^= swap << size;
            }
    }
}

/* For each group of three planes and each value of the query's three bits: the number of bits that
 * differ, as two binary digits. Entry (g, v) is sums[16 g + 2 v] (weight 1) and the next (weight 2). */
KERNEL static void tabulate(const V *planes, int groups, V *sums)
{
    for (int g = 0; g < groups; g++)
        for (int v = 0; v < 8; v++) {
            V a = planes[3 * g] ^ splat(-(uint64_t)(v & 1));
            V b = planes[3 * g + 1] ^ splat(-(uint64_t)(v >> 1 & 1));
            V c = planes[3 * g + 2] ^ splat(-(uint64_t)(v >> 2 & 1));
            sums[16 * g + 2 * v] = parity(a, b, c);
            sums[16 * g + 2 * v + 1] = majority(a, b, c);
        }
}

/* The same for groups of six planes, whose counts have three digits. The digit of weight 1, the parity, depends only on
 * the parity of the query's bits: it goes to `parities`, which are planes of their own. The other two digits become entry
 * (g, v), wide[128 g + 2 v] (weight 2) and the next (weight 4). */
KERNEL static void tabulate_six(const V *planes, int groups, V *parities, V *wide)
{
    for (int g = 0; g < groups; g++, planes += 6, wide += 128) {
        V three[32]; /* the digits of the first and of the last three planes */
        tabulate(planes, 2, three);
        parities[g] = three[0] ^ three[16];
        for (int last = 0; last < 8; last++)
            for (int first = 0; first < 8; first++) {
                const V *a = three + 2 * first, *b = three + 16 + 2 * last;
                V carry = a[0] & b[0];
                wide[16 * last + 2 * first] = parity(a[1], b[1], carry);
                wide[16 * last + 2 * first + 1] = majority(a[1], b[1], carry);
            }
    }
}

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

/* Start from the number with the binary digits `bias`, each a word of all zeros or all ones. */
KERNEL INLINE void start(Sum *sum, const uint64_t *bias, const int top)
{
#pragma GCC unroll 12
    for (int level = 0; level < top; level++) {
        sum->waiting[level][0] = splat(bias[level]);
        sum->count[level] = 1;
    }
    sum->reached = splat(0);
}

/* Add the digits of `groups` groups of `size` vectors each, of weights 2^level and 2^(level + 1); offsets[g] is the
 * byte offset of the query's entry in group g. */
KERNEL INLINE void add_groups(Sum *sum, const V *sums, const int size, const uint16_t *offsets, const int groups,
                              const int level, const int top)
{
#pragma GCC unroll 100
    for (int g = 0; g < groups; g++) {
        const V *entry = (const V *)((const char *)(sums + size * g) + offsets[g]);
        add(sum, level, top, entry[0]);
        add(sum, level + 1, top, entry[1]);
    }
}

/* Reduce the pending bits to one digit per weight; returns the carry out of the top. */
KERNEL INLINE V settle(const Sum *sum, const int top, V *digits)
{
    V carry = splat(0);
#pragma GCC unroll 12
    for (int level = 0; level < top; level++) {
        V one = sum->waiting[level][0], two = sum->count[level] == 2 ? sum->waiting[level][1] : splat(0);
        if (digits)
            digits[level] = parity(one, two, carry);
        carry = majority(one, two, carry);
    }
    return carry;
}

/* Rows of a block with a distance ≥ limit, where bias = 2^top − limit: the count starts at the bias,
 * so that reaching the limit produces a carry into weight 2^top. `sums` are tables of `groups` groups of three planes;
 * `wide` are those of `sixes` groups of six, whose offsets follow.
 *
 * With constant arguments the compiler unrolls everything and keeps the sum in registers: an adder
 * tree in which every node is two three-input gates. */
KERNEL INLINE V at_least(const V *sums, const V *wide, const uint16_t *offsets, const uint64_t *bias, const int groups,
                         const int sixes, const int top)
{
    Sum sum;
    start(&sum, bias, top);
    add_groups(&sum, sums, 16, offsets, groups, 0, top);
    add_groups(&sum, wide, 128, offsets + groups, sixes, 1, top);
    return sum.reached | settle(&sum, top, NULL);
}

/* The digits of the count of a chunk, 0 … 129 including the padding of its last group. */
KERNEL static void count_chunk(const V *sums, const uint16_t *offsets, V digits[8])
{
    static const uint64_t nothing[8];
    Sum sum;
    start(&sum, nothing, 8);
    add_groups(&sum, sums, 16, offsets, CHUNK_GROUPS, 0, 8);
    settle(&sum, 8, digits);
}

/* The same as `at_least` for long codes: adds the counts of their chunks. */
KERNEL static V at_least_long(const V *sums, const uint16_t *offsets, const uint64_t *bias, int groups)
{
    V total[MAX_LEVELS], digits[8], reached = splat(0);
    for (int level = 0; level < MAX_LEVELS; level++)
        total[level] = splat(bias[level]);
    for (int g = 0; g < groups; g += CHUNK_GROUPS) {
        count_chunk(sums + 16 * g, offsets + g, digits);
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

/* Working memory of one call, used for every block. With many queries, planes are counted in groups of six, and their
 * parities in groups of three; otherwise the planes are. */
typedef struct {
    int bits, groups, sixes, top;
    V *planes;         /* three or six per group; those beyond the last bit stay zero */
    V *parities;       /* one per group of six, padded with zeros to groups of three */
    V *sums;           /* sixteen per group of three */
    V *wide;           /* 128 per group of six */
    uint16_t *entries; /* for each query its limit, reach + 1, and `groups` + `sixes` offsets */
    uint64_t *bias;    /* `top` digits for each limit 0 … n_bits */
    void *memory;
} Slices;

/* Number of bits that the adder tree counts; codes are padded with zeros to it. */
static int tree_bits(int n_bits)
{
    if (n_bits > 256)
        return (n_bits + 127) / 128 * 128;
    return n_bits <= 32 ? 32 : n_bits <= 64 ? 64 : n_bits <= 128 ? 128 : 256;
}

#define SIXES(bits) (((bits) + 5) / 6)
#define THREES(planes) (((planes) + 2) / 3)

/* Plane of a bit; each chunk of a long code starts with a new group. */
INLINE int plane_of(int bit, int bits)
{
    return bits > 256 ? bit / 128 * 3 * CHUNK_GROUPS + bit % 128 : bit;
}

/* Where the entries of one query are in the tables. */
static void locate_entries(const Slices *slices, const uint64_t *query, int n_bits, uint16_t *offsets)
{
    const unsigned step = 2 * sizeof(V);
    for (int bit = 0; bit < n_bits; bit++) {
        if (!(query[bit / 64] >> bit % 64 & 1))
            continue;
        int plane = plane_of(bit, slices->bits);
        if (slices->sixes) {
            offsets[slices->groups + plane / 6] += (uint16_t)(step << plane % 6);
            plane /= 6;
        }
        offsets[plane / 3] ^= (uint16_t)(step << plane % 3); /* of a group of six, the parity */
    }
}

static bool slices_make(Slices *slices, int n_bits, const uint64_t *queries, size_t n_queries, int width,
                        const Collector *collectors)
{
    int bits = tree_bits(n_bits), top = bits > 256 ? MAX_LEVELS : __builtin_ctz((unsigned)bits);
    int sixes = bits <= 256 && n_queries >= MANY_QUERIES ? SIXES(bits) : 0;
    int groups = bits > 256 ? bits / 128 * CHUNK_GROUPS : THREES(sixes ? sixes : bits);
    int counted = sixes ? 6 * sixes : 3 * groups;
    /* Planes are written 64 per word, which may extend beyond the last group. */
    size_t planes = (size_t)(counted > 64 * width ? counted : 64 * width), parities = sixes ? 3 * (size_t)groups : 0;
    size_t sums = 16 * (size_t)groups, wide = 128 * (size_t)sixes;
    size_t biases = ((size_t)n_bits + 1) * (size_t)top, entries = (size_t)(1 + groups + sixes);
    char *memory = calloc(1, (planes + parities + sums + wide + 1) * sizeof(V) + biases * sizeof(uint64_t) +
                                 n_queries * entries * sizeof(uint16_t));
    if (!memory)
        return false;
    *slices = (Slices){.bits = bits, .groups = groups, .sixes = sixes, .top = top, .memory = memory};
    slices->planes = (V *)(((uintptr_t)memory + sizeof(V) - 1) / sizeof(V) * sizeof(V));
    slices->parities = slices->planes + planes;
    slices->sums = slices->parities + parities;
    slices->wide = slices->sums + sums;
    slices->bias = (uint64_t *)(slices->wide + wide);
    slices->entries = (uint16_t *)(slices->bias + biases);
    for (int limit = 0; limit <= n_bits; limit++)
        for (int level = 0; level < top; level++)
            slices->bias[limit * top + level] = -(uint64_t)(((1 << top) - limit) >> level & 1);
    for (size_t i = 0; i < n_queries; i++) {
        slices->entries[i * entries] = (uint16_t)(collectors[i].reach + 1);
        locate_entries(slices, queries + i * (size_t)width, n_bits, slices->entries + i * entries + 1);
    }
    return true;
}

/* Offer the rows of a block that are near enough, in ascending order. */
KERNEL static __attribute__((noinline)) void offer_block(const Rows *rows, size_t block, V far, const uint64_t *query,
                                                         Collector *collector)
{
    uint64_t any = 0;
    for (int lane = 0; lane < LANES; lane++)
        any |= ~far[lane];
    for (; any; any &= any - 1) {
        int j = __builtin_ctzll(any);
        for (int lane = 0; lane < LANES; lane++)
            if (!(far[lane] >> j & 1))
                consider(rows, block + (size_t)(j * LANES + lane), query, rows->width, collector);
    }
}

/* A block of rows, and the queries to compare it with. */
typedef struct {
    const Slices *slices;
    const Rows *rows;
    size_t block;
    const uint64_t *queries;
    size_t n_queries;
    Collector *collectors;
} Work;

/* Limits up to a quarter of the bits need fewer digits. */
#define IS_LOW(limit, bits) ((limit) <= (bits) / 4)

/* Compare one block with the queries from i on, up to the first whose limit is low if `low` is false, or the other way
 * round; returns its number. bits = 0: more than 256. A query with fewer than k items, or with k items at distance 0,
 * needs no planes. */
KERNEL INLINE size_t slice_block(const Work *work, size_t i, const int bits, const bool many, const bool low)
{
    const Slices *slices = work->slices;
    const Rows *rows = work->rows;
    const int sixes = many ? SIXES(bits) : 0, groups = THREES(many ? sixes : bits);
    const int top = bits ? __builtin_ctz((unsigned)bits) : MAX_LEVELS;
    const size_t size = 1 + (size_t)(bits ? groups + sixes : slices->groups);
    uint16_t *entries = slices->entries + i * size;
    for (; i < work->n_queries; i++, entries += size) {
        const int limit = entries[0];
        if (bits && IS_LOW(limit, bits) != low)
            break;
        const uint64_t *query = work->queries + i * (size_t)rows->width;
        if (RARELY(limit > rows->n_bits || limit == 0)) {
            if (limit)
                scan(rows, work->block, work->block + BLOCK, query, &work->collectors[i]);
        } else {
            const uint64_t *bias = slices->bias + limit * top;
            V far = bits ? at_least(slices->sums, slices->wide, entries + 1, bias, groups, sixes, low ? top - 2 : top)
                         : at_least_long(slices->sums, entries + 1, bias, slices->groups);
            if (!RARELY(!all_ones(far)))
                continue;
            offer_block(rows, work->block, far, query, &work->collectors[i]);
        }
        entries[0] = (uint16_t)(work->collectors[i].reach + 1);
    }
    return i;
}

/* A function each, because the compiler gives up unrolling where a function has two adder trees. */
typedef size_t Slicer(const Work *work, size_t i);
#define SLICER(name, ...)                                                                                               \
    KERNEL static __attribute__((noinline)) size_t name(const Work *work, size_t i)                                     \
    {                                                                                                                  \
        return slice_block(work, i, __VA_ARGS__);                                                                      \
    }
#define SLICERS(bits)                                                                                                  \
    SLICER(slice_##bits, bits, false, false)                                                                           \
    SLICER(slice_##bits##_low, bits, false, true)                                                                      \
    SLICER(slice_##bits##_many, bits, true, false)                                                                     \
    SLICER(slice_##bits##_many_low, bits, true, true)
SLICERS(32)
SLICERS(64)
SLICERS(128)
SLICERS(256)
SLICER(slice_long, 0, false, false)

/* Compare one block with all queries. */
static void slice_queries(const Work *work)
{
    static Slicer *const slicers[4][2][2] = {
        {{slice_32, slice_32_low}, {slice_32_many, slice_32_many_low}},
        {{slice_64, slice_64_low}, {slice_64_many, slice_64_many_low}},
        {{slice_128, slice_128_low}, {slice_128_many, slice_128_many_low}},
        {{slice_256, slice_256_low}, {slice_256_many, slice_256_many_low}},
    };
    const Slices *slices = work->slices;
    const size_t size = (size_t)(1 + slices->groups + slices->sixes);
    for (size_t i = 0; i < work->n_queries;)
        if (slices->bits > 256)
            i = slice_long(work, i);
        else
            i = slicers[slices->top - 5][slices->sixes > 0][IS_LOW(slices->entries[i * size], slices->bits)](work, i);
}

/* Offer the rows begin … end − 1 to the collectors of all queries; false if out of memory.
 *
 *     far = carry into 2^top of (2^top − limit + Σ_b (plane_b ^ query_b)),   limit = reach + 1
 *
 * Reads rows and queries, which the caller owns; allocates the planes and tables of a block itself.
 * Other threads may process other rows with other collectors. */
KERNEL static bool bitslice(const Rows *rows, size_t begin, size_t end, const uint64_t *queries, size_t n_queries,
                            Collector *collectors)
{
    Slices slices;
    if (!slices_make(&slices, rows->n_bits, queries, n_queries, rows->width, collectors))
        return false;
    const bool many = slices.sixes > 0;
    size_t block = begin, block_words = BLOCK * (size_t)rows->width;
    for (; block + BLOCK <= end; block += BLOCK) {
        const char *next = (const char *)(rows->words + block * (size_t)rows->width + block_words);
        for (int w = 0; w < rows->width; w++)
            transpose(rows->words + block * (size_t)rows->width + w, (size_t)rows->width,
                      slices.planes + plane_of(64 * w, slices.bits));
        for (size_t byte = 0; byte < block_words * sizeof *rows->words; byte += CACHE_LINE)
            __builtin_prefetch(next + byte, 0, 2);
        if (many)
            tabulate_six(slices.planes, slices.sixes, slices.parities, slices.wide);
        tabulate(many ? slices.parities : slices.planes, slices.groups, slices.sums);
        slice_queries(&(Work){&slices, rows, block, queries, n_queries, collectors});
    }
    for (size_t i = 0; i < n_queries; i++)
        scan(rows, block, end, queries + i * (size_t)rows->width, &collectors[i]);
    free(slices.memory);
    return true;
}
