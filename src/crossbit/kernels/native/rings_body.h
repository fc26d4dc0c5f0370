/* Exact search in lists around centers, and the assignment of codes to centers. Included once per
 * instruction set. */

#define CHUNK 4096       /* rows between two checks of the budget */
#define OFFER_COST 32    /* cost of offering one row, in compared rows */
#define LISTS_AHEAD 8    /* lists whose first rows are prefetched together */
#define ASSIGN_ROWS 4    /* rows that share the loads of a center */
#define CHECK_SHARE 64   /* the remaining cost is estimated after 1/64 of the rows */

/* Distances of a query to LANES centers: those of `part` of a block of CENTERS centers. */
KERNEL INLINE V center_distances(const uint64_t *block, int part, const uint64_t *query, int width)
{
    V sum = splat(0);
    for (int w = 0; w < width; w++)
        sum += popcount(load(block + w * CENTERS + part) ^ splat(query[w]));
    return sum;
}

/* The lists in ascending order of the distances of their centers. */
KERNEL static void order_lists(const Rings *rings, const Rows *rows, const uint64_t *query, uint16_t *far, uint16_t *order)
{
    uint32_t counts[MAX_BITS + 2] = {0};
    const size_t block_words = (size_t)rows->width * CENTERS;
    for (size_t first = 0; first < rings->lists; first += CENTERS)
        for (int part = 0; part < CENTERS; part += LANES) {
            V sum = center_distances(rings->centers + first / CENTERS * block_words, part, query, rows->width);
            for (int lane = 0; lane < LANES; lane++) {
                uint64_t d = sum[lane] < MAX_BITS ? sum[lane] : MAX_BITS;
                far[first + (size_t)(part + lane)] = (uint16_t)d;
                counts[d + 1]++;
            }
        }
    for (int d = 0; d < MAX_BITS; d++)
        counts[d + 1] += counts[d];
    for (size_t list = 0; list < rings->lists; list++)
        order[counts[far[list]]++] = (uint16_t)list;
}

/* The rows of a list that may be within `reach` of the query.
 *
 * By the triangle inequality a code at distance r from a center and at most `reach` from the query,
 * which is `far` from the center, has far − reach ≤ r ≤ far + reach: consecutive rings of the list.
 * Whatever `starts` holds, the result is within the n rows. */
INLINE Span ring_span(const Rings *rings, const Rows *rows, size_t list, int far, int reach)
{
    int first = far - reach > 0 ? far - reach : 0, last = far + reach < rows->n_bits ? far + reach : rows->n_bits;
    if (reach < 0 || first > rings->outer[list] || first > rows->n_bits)
        return (Span){0, 0};
    const uint32_t *starts = rings->starts + list * ((size_t)rows->n_bits + 1);
    size_t begin = starts[first], end = starts[last + 1];
    end = end < rows->n ? end : rows->n;
    return (Span){begin < end ? begin : end, end};
}

/* Offer the rows of a span; the cost so far is increased. False if it exceeds the budget. */
KERNEL static bool scan_span(const Rows *sorted, Span span, const uint64_t *query, Collector *collector, uint64_t budget,
                             uint64_t *cost)
{
    while (span.begin < span.end) {
        size_t end = span.end - span.begin > CHUNK ? span.begin + CHUNK : span.end;
        uint64_t offers = collector->offers;
        scan(sorted, span.begin, end, query, collector);
        *cost += end - span.begin + OFFER_COST * (collector->offers - offers);
        if (RARELY(*cost > budget))
            return false;
        span.begin = end;
    }
    return true;
}

/* Rows that the lists order[0] … order[n − 1] would compare at the present reach. */
static uint64_t remaining_rows(const Rings *rings, const Rows *rows, const uint16_t *far, const uint16_t *order, size_t n,
                               int reach)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        Span span = ring_span(rings, rows, order[i], far[order[i]], reach);
        total += span.end - span.begin;
    }
    return total;
}

/* Whether a search stops before a list at distance `far`. */
static bool is_beyond(const Limits *limits, uint64_t cost, uint64_t began, int far, int reach)
{
    return cost >= limits->rows || far - reach >= limits->gap ||
           (limits->nanoseconds < UINT64_MAX && nanoseconds() - began >= limits->nanoseconds);
}

/* The certificate of a search that did not read the n lists from order[0] on: by the triangle
 * inequality each of their rows is at least far − outer away. */
static Certificate certify(const Rings *rings, const uint16_t *far, const uint16_t *order, size_t n, int reach)
{
    int nearest = MAX_BITS;
    for (size_t i = 0; i < n; i++) {
        int least = far[order[i]] - rings->outer[order[i]];
        nearest = least < nearest ? least : nearest;
    }
    return (Certificate){.radius = nearest > 0 ? nearest - 1 : -1, .gap = far[order[0]] - reach};
}

/* Offer every row that can be among the nearest, or within the radius; false if that would exceed the
 * budget, in compared rows.
 *
 * Lists are read in the order of their centers' distances, so that the k-th distance falls early; of
 * each list only the rings that can hold a result are read. After a small share of the rows the cost
 * of the rest is known up to a further decrease of the k-th distance, and a query that would exceed
 * its budget is given up there. With limits (or NULL) the search ends at the first of them, and the
 * certificate tells what is proven.
 *
 * Reads lists, rows and query, which the caller owns; writes only the collector, which must accept
 * rows in any order. */
KERNEL static bool ring_search(const Rings *rings, const Rows *rows, const uint64_t *query, Collector *collector,
                               uint64_t budget, const Limits *limits, Certificate *certificate)
{
    const uint64_t began = limits && limits->nanoseconds < UINT64_MAX ? nanoseconds() : 0;
    uint16_t far[MAX_LISTS], order[MAX_LISTS];
    order_lists(rings, rows, query, far, order);
    Rows sorted = *rows;
    sorted.words = rings->words;
    sorted.numbers = rings->rows;
    uint64_t cost = 0;
    bool estimated = false;
    for (size_t first = 0; first < rings->lists; first += LISTS_AHEAD) {
        size_t end = first + LISTS_AHEAD < rings->lists ? first + LISTS_AHEAD : rings->lists;
        for (size_t i = first; i < end; i++) {
            Span span = ring_span(rings, rows, order[i], far[order[i]], collector->reach);
            if (span.begin < span.end)
                __builtin_prefetch(rings->words + span.begin * (size_t)rows->width);
        }
        for (size_t i = first; i < end; i++) {
            if (limits && i > 0 && is_beyond(limits, cost, began, far[order[i]], collector->reach)) {
                *certificate = certify(rings, far, order + i, rings->lists - i, collector->reach);
                return true;
            }
            Span span = ring_span(rings, rows, order[i], far[order[i]], collector->reach);
            if (!scan_span(&sorted, span, query, collector, budget, &cost))
                return false;
        }
        if (!estimated && cost > rows->n / CHECK_SHARE) {
            estimated = true;
            if (cost + remaining_rows(rings, rows, far, order + end, rings->lists - end, collector->reach) > budget)
                return false;
        }
    }
    if (certificate)
        *certificate = (Certificate){.radius = rows->n_bits, .gap = FINISHED};
    return true;
}

/* `assign` for codes of `width` words, a constant for the common widths. */
KERNEL INLINE void assign_rows(const Assignment *task, size_t begin, size_t end, const int width)
{
    for (size_t row = begin; row < end; row += ASSIGN_ROWS) {
        V best[ASSIGN_ROWS];
        const uint64_t *codes[ASSIGN_ROWS];
        for (size_t i = 0; i < ASSIGN_ROWS; i++) {
            best[i] = splat(UINT32_MAX);
            codes[i] = task->words + (row + i < end ? row + i : row) * (size_t)width;
        }
        for (size_t first = 0; first < task->lists; first += CENTERS)
            for (int part = 0; part < CENTERS; part += LANES) {
                const uint64_t *block = task->centers + first * (size_t)width;
                V numbers = splat(first + (size_t)part) + LANE_NUMBERS;
                for (int i = 0; i < ASSIGN_ROWS; i++)
                    best[i] = least(best[i], (center_distances(block, part, codes[i], width) << 16) + numbers);
            }
        for (size_t i = 0; i < ASSIGN_ROWS && row + i < end; i++) {
            uint64_t nearest = best[i][0];
            for (int lane = 1; lane < LANES; lane++)
                nearest = best[i][lane] < nearest ? best[i][lane] : nearest;
            task->assigned[row + i] = (uint16_t)nearest;
            task->radii[row + i] = (uint16_t)(nearest >> 16);
        }
    }
}

/* The nearest center of the rows begin … end − 1 and its distance; the first of equally near ones.
 *
 *     assigned[i] = argmin_l Σ_w popcount(words[i][w] ^ center[l][w])
 *
 * The caller owns all arrays, and may divide the rows among threads. */
KERNEL static void assign(const Assignment *task, size_t begin, size_t end)
{
    switch (task->width) {
    case 2:
        assign_rows(task, begin, end, 2);
        return;
    case 4:
        assign_rows(task, begin, end, 4);
        return;
    default:
        assign_rows(task, begin, end, task->width);
    }
}
