/* Weighted scans: every bit of a query has a weight of its own. Included once per instruction set. */

/* Weights of one query, spread over the lanes of a vector of words. */
typedef struct {
    V query;
    V planes[WEIGHT_BITS]; /* least significant first */
    V high[HIGH_PLANES];   /* the most significant planes that are used, highest first */
    int shift;             /* weight of the last of them, as a power of two */
} Spread;

KERNEL INLINE void spread(const Weights *weights, const uint64_t *query, const int width, Spread *out)
{
    for (int lane = 0; lane < LANES; lane++) {
        out->query[lane] = query[lane % width];
        for (int p = 0; p < WEIGHT_BITS; p++)
            out->planes[p][lane] = weights->planes[p][lane % width];
    }
    for (int i = 0; i < HIGH_PLANES; i++)
        out->high[i] = out->planes[weights->used - 1 - i];
    out->shift = weights->used - HIGH_PLANES;
}

/* A lower bound of the weight of the bits of each lane, from the most significant planes. */
KERNEL INLINE V least_weight(const Spread *s, V x)
{
    V sum = popcount(x & s->high[0]);
    for (int i = 1; i < HIGH_PLANES; i++)
        sum = sum + sum + popcount(x & s->high[i]);
    return sum << s->shift;
}

/* Σ_p 2^p popcount(x & plane p) in each lane. */
KERNEL INLINE V weight_of(const Spread *s, V x)
{
    V sum = popcount(x & s->planes[WEIGHT_BITS - 1]);
    for (int p = WEIGHT_BITS - 2; p >= 0; p--)
        sum = sum + sum + popcount(x & s->planes[p]);
    return sum;
}

/* Weighted distances of STEP codes of one, two or four words, or lower bounds of them; in any order
 * for two and four. */
KERNEL INLINE void step_weights(const Spread *s, const uint64_t *words, const int width, const bool bounds, V sums[4])
{
    V d[16], pairs[8];
    for (int i = 0; i < 4 * width; i++) {
        __builtin_prefetch((const char *)(words + i * LANES) + SCAN_AHEAD);
        V x = load(words + i * LANES) ^ s->query;
        d[i] = bounds ? least_weight(s, x) : weight_of(s, x);
    }
    if (width == 1) {
        memcpy(sums, d, 4 * sizeof *d);
        return;
    }
#ifdef SPLITS
    for (int i = 0; i < 2 * width; i++)
        pairs[i] = pair_sums(d[2 * i], d[2 * i + 1]);
    for (int i = 0; i < 4; i++)
        sums[i] = width == 2 ? pairs[i] : quad_sums(pairs[2 * i], pairs[2 * i + 1]);
#else
    (void)pairs;
#endif
}

/* Offer one row if its weighted distance is small enough; the most significant planes decide first.
 * A width that is known when this is compiled unrolls the inner loop. */
KERNEL INLINE void weigh_row(const Rows *rows, size_t row, const uint64_t *query, const Weights *weights, const int width,
                             Collector *collector)
{
    const uint64_t *words = rows->words + row * (size_t)width;
    int d = 0;
    for (int p = weights->used - 1; p >= 0; p--) {
        int count = 0;
        for (int w = 0; w < width; w++)
            count += __builtin_popcountll((words[w] ^ query[w]) & weights->planes[p][w]);
        d += count << p;
        if (d > collector->reach)
            return;
    }
    offer_place(rows, row, d, collector);
}

/* Codes of one, two or four words: bounds first, then distances, then row by row. */
KERNEL INLINE void weigh_wide(const Rows *rows, size_t begin, size_t end, const uint64_t *query, const Weights *weights,
                              const int width, Collector *collector)
{
    Spread s = {.shift = 0};
    spread(weights, query, width, &s);
    size_t row = begin;
    for (; row + STEP <= end; row += STEP) {
        const uint64_t *words = rows->words + row * (size_t)width;
        V sums[4];
        step_weights(&s, words, width, true, sums);
        if (!RARELY(within4(sums, collector->reach)))
            continue;
        step_weights(&s, words, width, false, sums);
        if (within4(sums, collector->reach))
            for (size_t i = row; i < row + STEP; i++)
                weigh_row(rows, i, query, weights, width, collector);
    }
    for (; row < end; row++)
        weigh_row(rows, row, query, weights, width, collector);
}

/* Offer the rows begin … end − 1 to the collector of one query, by weighted distance:
 *
 *     d = Σ_b weight_b [bit b of the code differs from the query's] = Σ_p 2^p popcount((code ^ query) & plane p)
 *
 * where bit b of plane p is bit p of weight_b. Reads rows, query and weights, which the caller owns,
 * and writes only the collector. Other threads may process other rows with other collectors. */
KERNEL static void weigh(const Rows *rows, size_t begin, size_t end, const uint64_t *query, const Weights *weights,
                         Collector *collector)
{
    switch (rows->width) {
    case 1:
        weigh_wide(rows, begin, end, query, weights, 1, collector);
        return;
#ifdef SPLITS
    case 2:
        weigh_wide(rows, begin, end, query, weights, 2, collector);
        return;
    case 4:
        weigh_wide(rows, begin, end, query, weights, 4, collector);
        return;
#endif
    case 3:
        for (size_t row = begin; row < end; row++)
            weigh_row(rows, row, query, weights, 3, collector);
        return;
    default:
        for (size_t row = begin; row < end; row++)
            weigh_row(rows, row, query, weights, rows->width, collector);
    }
}
