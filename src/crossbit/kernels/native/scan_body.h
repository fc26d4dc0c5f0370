/* Scans: distances of one query to many rows, and distance matrices. Included once per instruction
 * set. */

#define STEP (4 * LANES) /* rows per step */

/* One word per code: each lane is one row. The common case, no row near enough, costs one branch per
 * STEP rows. */
KERNEL static void scan_narrow(const Rows *rows, size_t begin, size_t end, const uint64_t *query, Collector *collector)
{
    const uint64_t *words = rows->words;
    const V q = splat(query[0]);
    size_t row = begin;
    for (; row + STEP <= end; row += STEP) {
        V d[4];
        for (int i = 0; i < 4; i++) {
            __builtin_prefetch((const char *)(words + row + i * LANES) + SCAN_AHEAD);
            d[i] = popcount(load(words + row + i * LANES) ^ q);
        }
        uint32_t near = within4(d, collector->reach);
        for (; RARELY(near); near &= near - 1)
            consider(rows, row + (size_t)__builtin_ctz(near), query, 1, collector);
    }
    for (; row < end; row++)
        consider(rows, row, query, 1, collector);
}

#ifdef WIDE_SUMS

/* Popcounts of STEP codes of two or four words, in any order. */
KERNEL INLINE void wide_counts(const uint64_t *words, V q, const int width, V counts[4])
{
    V d[16], pairs[8];
    for (int i = 0; i < 4 * width; i++) {
        __builtin_prefetch((const char *)(words + i * LANES) + SCAN_AHEAD);
        d[i] = popcount(load(words + i * LANES) ^ q);
    }
    for (int i = 0; i < 2 * width; i++)
        pairs[i] = pair_sums(d[2 * i], d[2 * i + 1]);
    for (int i = 0; i < 4; i++)
        counts[i] = width == 2 ? pairs[i] : quad_sums(pairs[2 * i], pairs[2 * i + 1]);
}

/* Two or four words per code: lanes hold words, whose popcounts are added; a step with a near row is
 * repeated row by row. */
KERNEL INLINE void scan_wide(const Rows *rows, size_t begin, size_t end, const uint64_t *query, const int width,
                             Collector *collector)
{
    V q = {0};
    for (int i = 0; i < LANES; i++)
        q[i] = query[i % width];
    size_t row = begin;
    for (; row + STEP <= end; row += STEP) {
        V counts[4];
        wide_counts(rows->words + row * (size_t)width, q, width, counts);
        if (RARELY(within4(counts, collector->reach)))
            for (size_t i = row; i < row + STEP; i++)
                consider(rows, i, query, width, collector);
    }
    for (; row < end; row++)
        consider(rows, row, query, width, collector);
}

#endif

/* Any number of words per code: whole vectors first, then the remaining words one by one. */
KERNEL static void scan_long(const Rows *rows, size_t begin, size_t end, const uint64_t *query, Collector *collector)
{
    const int width = rows->width, whole = width / LANES * LANES;
    for (size_t row = begin; row < end; row++) {
        const uint64_t *words = rows->words + row * (size_t)width;
        V counts = splat(0);
        for (int w = 0; w < whole; w += LANES) {
            __builtin_prefetch((const char *)(words + w) + SCAN_AHEAD);
            counts += popcount(load(words + w) ^ load(query + w));
        }
        int d = total(counts);
        for (int w = whole; w < width; w++)
            d += __builtin_popcountll(words[w] ^ query[w]);
        if (d <= collector->reach)
            offer_place(rows, row, d, collector);
    }
}

/* Offer the rows begin … end − 1 to the collector of one query.
 *
 *     d = Σ_w popcount(words[row][w] ^ query[w])
 *
 * Reads rows and query, which the caller owns, and writes only the collector. The same collector may
 * be used for further rows; other threads may process other rows with other collectors. */
KERNEL static void scan(const Rows *rows, size_t begin, size_t end, const uint64_t *query, Collector *collector)
{
    switch (rows->width) {
    case 1:
        scan_narrow(rows, begin, end, query, collector);
        return;
#ifdef WIDE_SUMS
    case 2:
        scan_wide(rows, begin, end, query, 2, collector);
        return;
    case 4:
        scan_wide(rows, begin, end, query, 4, collector);
        return;
#endif
    default:
        scan_long(rows, begin, end, query, collector);
    }
}

/* distances[i][j] = Σ_w popcount(a[i][w] ^ b[j][w]); the caller owns all arrays, and may divide the
 * rows of a among threads. */
KERNEL static void matrix(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, int width, uint16_t *distances)
{
    for (size_t i = 0; i < n_a; i++) {
        const uint64_t *code = a + i * (size_t)width;
        uint16_t *out = distances + i * n_b;
        if (width == 1)
            for (size_t j = 0; j < n_b; j++)
                out[j] = (uint16_t)__builtin_popcountll(code[0] ^ b[j]);
        else
            for (size_t j = 0; j < n_b; j++)
                out[j] = (uint16_t)distance(code, b + j * (size_t)width, width);
    }
}
