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

#ifdef SPLITS

/* Sums of the even and odd lanes of a and b: with two words per code, one sum per code, in any order. */
KERNEL INLINE V pair_sums(V a, V b)
{
    V parts[2];
    split_words(a, b, parts);
    return parts[0] + parts[1];
}

/* Sums of two `pair_sums`: with four words per code, one sum per code. */
KERNEL INLINE V quad_sums(V a, V b)
{
    V parts[2];
    split_pairs(a, b, parts);
    return parts[0] + parts[1];
}

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
#ifdef SPLITS
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

#define CACHE_LINE 64

#ifdef SPLITS

/* Sort the words of LANES codes of two or four words by their number in the code: sorted[w] has word w of all codes,
 * in the same order for every w. */
KERNEL INLINE void sort_codes(const uint64_t *words, const int width, V *sorted)
{
    if (width == 2) {
        split_words(load(words), load(words + LANES), sorted);
        return;
    }
    V first[2], second[2], pair[2];
    split_words(load(words), load(words + LANES), first);
    split_words(load(words + 2 * LANES), load(words + 3 * LANES), second);
    for (int i = 0; i < 2; i++) {
        split_pairs(first[i], second[i], pair);
        sorted[i] = pair[0];
        sorted[i + 2] = pair[1];
    }
}

/* The same for some steps of STEP rows: vector 4 w + i of a step has word w of LANES rows. */
KERNEL INLINE void sort_words(const uint64_t *words, size_t steps, const int width, V *planes)
{
    for (size_t part = 0; part < 4 * steps; part++, words += LANES * width) {
        V *out = planes + part / 4 * 4 * (size_t)width + part % 4, sorted[4];
        sort_codes(words, width, sorted);
        for (int w = 0; w < width; w++)
            out[4 * w] = sorted[w];
    }
}

/* As `scan_wide`, with sorted words: no lane is moved to add the counts of a code. Every step prefetches
 * `lines` cache lines from `ahead` on. */
KERNEL INLINE void scan_sorted(const Rows *rows, size_t row, size_t steps, const V *planes, const uint64_t *query,
                               const int width, const char *ahead, size_t lines, Collector *collector)
{
    V q[4];
    for (int w = 0; w < width; w++)
        q[w] = splat(query[w]);
    for (size_t step = 0; step < steps; step++, row += STEP, planes += 4 * width) {
        for (size_t line = 0; line < lines; line++, ahead += CACHE_LINE)
            __builtin_prefetch(ahead);
        V counts[4];
        for (int i = 0; i < 4; i++) {
            V sum = partial_count(planes[i] ^ q[0]);
            for (int w = 1; w < width; w++)
                sum += partial_count(planes[4 * w + i] ^ q[w]);
            counts[i] = complete_count(sum);
        }
        if (RARELY(within4(counts, collector->reach)))
            for (size_t i = row; i < row + STEP; i++)
                consider(rows, i, query, width, collector);
    }
}

KERNEL INLINE void scan_block_sorted(const Rows *rows, size_t begin, size_t end, const uint64_t *queries,
                                     size_t n_queries, const int width, Collector *collectors)
{
    V planes[BLOCK_WORDS / LANES];
    size_t steps = (end - begin) / STEP;
    sort_words(rows->words + begin * (size_t)width, steps, width, planes);
    /* Each query prefetches its share of the next block. */
    const char *ahead = (const char *)(rows->words + end * (size_t)width);
    size_t lines_per_step = STEP * (size_t)width * sizeof *rows->words / CACHE_LINE;
    size_t lines = (lines_per_step + n_queries - 1) / n_queries, fetched = 0;
    for (size_t i = 0; i < n_queries; i++) {
        const uint64_t *query = queries + i * (size_t)width;
        if (fetched >= steps * lines_per_step)
            lines = 0;
        scan_sorted(rows, begin, steps, planes, query, width, ahead + fetched * CACHE_LINE, lines, &collectors[i]);
        fetched += steps * lines;
        for (size_t row = begin + steps * STEP; row < end; row++)
            consider(rows, row, query, width, &collectors[i]);
    }
}

#define FEW_QUERIES 8

/* The same for at most FEW_QUERIES queries, without blocks: each code is read and sorted once, and compared with all
 * queries while the next ones arrive from memory, which bounds such searches. */
KERNEL INLINE void scan_few(const Rows *rows, size_t begin, size_t end, const uint64_t *queries, const int n_queries,
                            const int width, Collector *collectors)
{
    V q[FEW_QUERIES][4];
    for (int i = 0; i < n_queries; i++)
        for (int w = 0; w < width; w++)
            q[i][w] = splat(queries[i * width + w]);
    size_t row = begin;
    for (; row + STEP <= end; row += STEP) {
        const uint64_t *words = rows->words + row * (size_t)width;
        V counts[FEW_QUERIES][4];
        for (int part = 0; part < 4; part++, words += LANES * width) {
            V sorted[4];
            for (int w = 0; w < width; w++)
                __builtin_prefetch((const char *)(words + w * LANES) + SCAN_AHEAD);
            sort_codes(words, width, sorted);
            for (int i = 0; i < n_queries; i++) {
                V sum = partial_count(sorted[0] ^ q[i][0]);
                for (int w = 1; w < width; w++)
                    sum += partial_count(sorted[w] ^ q[i][w]);
                counts[i][part] = complete_count(sum);
            }
        }
        for (int i = 0; i < n_queries; i++)
            if (RARELY(within4(counts[i], collectors[i].reach)))
                for (size_t near = row; near < row + STEP; near++)
                    consider(rows, near, queries + i * width, width, &collectors[i]);
    }
    for (; row < end; row++)
        for (int i = 0; i < n_queries; i++)
            consider(rows, row, queries + i * width, width, &collectors[i]);
}

KERNEL INLINE void scan_wide_blocks(const Rows *rows, size_t begin, size_t end, const uint64_t *queries,
                                    size_t n_queries, const int width, Collector *collectors)
{
#define FEW(n)                                                                                                        \
    case n:                                                                                                           \
        scan_few(rows, begin, end, queries, n, width, collectors);                                                    \
        return;
    switch (n_queries) {
        FEW(2)
        FEW(3)
        FEW(4)
        FEW(5)
        FEW(6)
        FEW(7)
        FEW(FEW_QUERIES)
    }
    const size_t size = BLOCK_WORDS / (size_t)width;
    for (size_t first = begin; first < end; first += size)
        scan_block_sorted(rows, first, end - first < size ? end : first + size, queries, n_queries, width, collectors);
}

#endif

/* Offer the rows begin … end − 1 to the collectors of several queries, block by block. */
KERNEL static void scan_blocks(const Rows *rows, size_t begin, size_t end, const uint64_t *queries, size_t n_queries,
                               Collector *collectors)
{
#ifdef SPLITS
    if (rows->width == 2) {
        scan_wide_blocks(rows, begin, end, queries, n_queries, 2, collectors);
        return;
    }
    if (rows->width == 4) {
        scan_wide_blocks(rows, begin, end, queries, n_queries, 4, collectors);
        return;
    }
#endif
    size_t size = BLOCK_WORDS / (size_t)rows->width;
    for (size_t first = begin; first < end; first += size) {
        size_t last = end - first < size ? end : first + size;
        for (size_t i = 0; i < n_queries; i++)
            scan(rows, first, last, queries + i * (size_t)rows->width, &collectors[i]);
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
