/* Bit-sliced search: many queries against blocks of rows whose bits are transposed into planes.
 * Included once per instruction set, after slices_body.h. */

/* Offer the rows of a block that are near enough, in ascending order. */
KERNEL static __attribute__((noinline)) void offer_block(const Rows *rows, size_t block, V far, const int *lanes,
                                                         const uint64_t *query, Collector *collector)
{
    uint64_t any = 0;
    for (int lane = 0; lane < LANES; lane++)
        any |= ~far[lane];
    for (; any; any &= any - 1) {
        int j = __builtin_ctzll(any);
        for (int i = 0; i < LANES; i++)
            if (!(far[lanes[i]] >> j & 1))
                consider(rows, block + (size_t)(j * LANES + i), query, rows->width, collector);
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
    const int sixes = many ? SIXES(bits) : 0, planes = ODD(many ? sixes : bits);
    const int top = bits ? __builtin_ctz((unsigned)bits) : MAX_LEVELS;
    const size_t size = bits ? (size_t)(2 + GROUPS(planes) + sixes) : slices->size;
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
            V far = bits ? at_least(slices->sums, slices->wide, entries + 1, bias, planes, sixes, low ? top - 2 : top)
                         : at_least_long(slices->sums, entries + 1, bias, slices->chunks);
            if (!RARELY(!all_ones(far)))
                continue;
            offer_block(rows, work->block, far, slices->lanes, query, &work->collectors[i]);
        }
        entries[0] = (uint16_t)(work->collectors[i].reach + 1);
    }
    return i;
}

/* A function each, because the compiler gives up unrolling where a function has two adder trees. */
typedef size_t Slicer(const Work *work, size_t i);
#define SLICER(name, ...)                                                                                             \
    KERNEL static __attribute__((noinline)) size_t name(const Work *work, size_t i)                                   \
    {                                                                                                                 \
        return slice_block(work, i, __VA_ARGS__);                                                                     \
    }
#if HAS_SIXES
#define SLICERS(bits)                                                                                                  \
    SLICER(slice_##bits, bits, false, false)                                                                           \
    SLICER(slice_##bits##_low, bits, false, true)                                                                      \
    SLICER(slice_##bits##_many, bits, true, false)                                                                     \
    SLICER(slice_##bits##_many_low, bits, true, true)
#define NAMES(bits) {{slice_##bits, slice_##bits##_low}, {slice_##bits##_many, slice_##bits##_many_low}}
#else
#define SLICERS(bits)                                                                                                  \
    SLICER(slice_##bits, bits, false, false)                                                                           \
    SLICER(slice_##bits##_low, bits, false, true)
#define NAMES(bits) {{slice_##bits, slice_##bits##_low}}
#endif
SLICERS(32)
SLICERS(64)
SLICERS(128)
SLICERS(256)
SLICER(slice_long, 0, false, false)

/* Compare one block with all queries. */
static void slice_queries(const Work *work)
{
    static Slicer *const slicers[4][2][2] = {NAMES(32), NAMES(64), NAMES(128), NAMES(256)};
    const Slices *slices = work->slices;
    for (size_t i = 0; i < work->n_queries;) {
        bool low = IS_LOW(slices->entries[i * slices->size], slices->bits);
        i = (slices->chunks > 1 ? slice_long : slicers[slices->top - 5][slices->sixes > 0][low])(work, i);
    }
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
    const size_t block_words = BLOCK * (size_t)rows->width;
    size_t block = begin;
    for (; block + BLOCK <= end; block += BLOCK) {
        const uint64_t *words = rows->words + block * (size_t)rows->width;
        slices_fill(&slices, words, rows->width);
        for (size_t w = 0; w < block_words; w += CACHE_LINE / sizeof *words)
            __builtin_prefetch(words + block_words + w, 0, 2);
        slice_queries(&(Work){&slices, rows, block, queries, n_queries, collectors});
    }
    for (size_t i = 0; i < n_queries; i++)
        scan(rows, block, end, queries + i * (size_t)rows->width, &collectors[i]);
    free(slices.memory);
    return true;
}
