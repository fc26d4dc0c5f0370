/* Shared by all C files: rows of packed codes, and the table of kernels of one instruction set. */
#ifndef CROSSBIT_COMMON_H
#define CROSSBIT_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "collector.h"

#define INLINE static inline __attribute__((always_inline, unused))
#define RARELY(condition) __builtin_expect(!!(condition), 0)

#define MAX_BITS 1024
#define MAX_TABLES 8
#define MAX_LISTS 4096 /* lists around centers */
#define CENTERS 8 /* centers per block */
#define READ_AHEAD 16 /* readable entries of heads and tails beyond the last: kernels read up to 16 at a time */
#define BLOCK_WORDS 2048 /* words of a block, which stay in the L1 cache for all queries */
#define SCAN_AHEAD 4096 /* prefetch distance of scans in bytes: about memory latency times bandwidth */

/* n codes of n_bits bits, `width` words each, row-major, zero padding. Rows are in ascending order
 * of their ids, so ordering by row is ordering by id. A row whose bit in `alive` is 0 is deleted
 * (NULL: no row is deleted). If the words are in another order, `numbers` has the row of each place,
 * which is checked when it is read. */
typedef struct {
    const uint64_t *words;
    const uint64_t *alive;
    const uint32_t *numbers; /* NULL: place i holds row i */
    size_t n;
    int width;
    int n_bits;
} Rows;

/* One table of a multi-index: the codes grouped by their key, the bits shift … shift + width − 1.
 * Group x is starts[x] … starts[x + 1] − 1, in ascending order of rows. The rest of a code, its bits
 * without the key (at most 48), is stored with the low 32 bits in heads and the others in tails.
 * Both have READ_AHEAD readable entries beyond the last. The other arrays hold the rows, see places.h.
 * Kernels check numbers when they read them, so that a damaged table gives wrong results but no access
 * beyond an array. */
typedef struct {
    const uint32_t *starts;
    const uint32_t *heads;
    const uint16_t *tails;
    const uint8_t *lows;
    const uint64_t *uppers;
    const uint32_t *samples;
    int shift;
    int width;
} Table;

typedef struct {
    Table table[MAX_TABLES];
    int count;
} Tables;

/* Codes in lists around centers, sorted by (list, distance to its center, row); ring r of list l is
 * starts[l · (n_bits + 1) + r] up to the next start. `outer` is the largest radius of each list.
 * Centers come in blocks of CENTERS: word w of center c is centers[(c / CENTERS · width + w) · CENTERS
 * + c % CENTERS]. As with tables, damaged numbers give wrong results but no access beyond an array. */
typedef struct {
    const uint64_t *centers;
    const uint16_t *outer;
    const uint32_t *starts;
    const uint64_t *words;
    const uint32_t *rows;
    size_t lists; /* 0: there are no lists */
} Rings;

/* Places begin … end − 1 of sorted codes. */
typedef struct {
    size_t begin, end;
} Span;

/* Where a search in lists stops early: before a list once this many rows are compared, this much time
 * has passed, or the distance of the next center exceeds the k-th distance by `gap`. */
typedef struct {
    uint64_t rows;
    uint64_t nanoseconds;
    int gap;
} Limits;

/* What a search in lists proves: no row at a distance ≤ radius is missing that would rank before the
 * last result. `gap` is that of the first list that was not read; FINISHED: all were read. */
#define FINISHED INT32_MAX
typedef struct {
    int32_t radius;
    int32_t gap;
} Certificate;

/* n codes and the centers that they are assigned to; `lists` is a multiple of CENTERS. */
typedef struct {
    const uint64_t *words;
    const uint64_t *centers;
    uint16_t *assigned;
    uint16_t *radii;
    size_t n, lists;
    int width;
} Assignment;

/* Weights 0 … 255 of the bits of one query as bit planes: bit b of planes[p] is bit p of weight b. The
 * planes from `used` on are zero; used is at least HIGH_PLANES. */
#define WEIGHT_BITS 8
#define HIGH_PLANES 4 /* planes that bound a distance before it is computed */
typedef struct {
    uint64_t planes[WEIGHT_BITS][MAX_BITS / 64];
    int used;
    int total; /* sum of all weights: the largest distance */
} Weights;

/* n rows of `depth` numbers times a matrix of `columns` columns, plus a bias; see product_body.h.
 * Products go to `out`, their signs (bit 1 where ≥ 0) to `words`, which has `width` words per row;
 * either may be NULL. */
#define PANEL 32
typedef struct {
    const float *x;
    const float *panels;
    const float *bias;
    float *out;
    uint64_t *words;
    size_t n, depth, columns, width;
} Product;

/* The kernels of one instruction set. Each offers every living row of begin … end − 1 that is near
 * enough to a collector. They write only to collectors, so threads may share rows, tables and
 * queries. */
typedef struct {
    const char *name;
    void (*scan)(const Rows *rows, size_t begin, size_t end, const uint64_t *query, Collector *collector);
    void (*scan_blocks)(const Rows *rows, size_t begin, size_t end, const uint64_t *queries, size_t n_queries,
                        Collector *collectors);
    bool (*bitslice)(const Rows *rows, size_t begin, size_t end, const uint64_t *queries, size_t n_queries,
                     Collector *collectors);
    bool (*probe)(const Tables *tables, const Rows *rows, const uint64_t *query, Collector *collector, uint64_t budget);
    bool (*ring_search)(const Rings *rings, const Rows *rows, const uint64_t *query, Collector *collector, uint64_t budget,
                        const Limits *limits, Certificate *certificate);
    void (*assign)(const Assignment *task, size_t begin, size_t end);
    void (*weigh)(const Rows *rows, size_t begin, size_t end, const uint64_t *query, const Weights *weights,
                  Collector *collector);
    size_t (*multiply)(const Product *product, size_t begin, size_t end);
    void (*matrix)(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, int width, uint16_t *distances);
} Level;

extern const Level level_generic;
#if defined(__x86_64__)
extern const Level level_avx2;
extern const Level level_avx512;
#endif

/* Time of a clock that never goes back. */
uint64_t nanoseconds(void);

/* a · b, or SIZE_MAX, which no array and no allocation has, if that is too large. */
INLINE size_t times(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

INLINE bool is_alive(const Rows *rows, size_t row)
{
    return !rows->alive || (rows->alive[row >> 6] >> (row & 63) & 1);
}

/* Offer the row at a place whose distance is ≤ reach, if it is alive. */
INLINE void offer_place(const Rows *rows, size_t place, int distance, Collector *collector)
{
    size_t row = rows->numbers ? rows->numbers[place] : place;
    if (row < rows->n && is_alive(rows, row))
        collector_offer(collector, distance, (uint32_t)row);
}

/* popcount(a ^ b) over `width` words. */
INLINE int distance(const uint64_t *a, const uint64_t *b, int width)
{
    int total = 0;
    for (int w = 0; w < width; w++)
        total += __builtin_popcountll(a[w] ^ b[w]);
    return total;
}

/* Offer the row at one place if it is alive and near enough. */
INLINE void consider(const Rows *rows, size_t place, const uint64_t *query, int width, Collector *collector)
{
    int d = distance(rows->words + place * (size_t)width, query, width);
    if (d <= collector->reach)
        offer_place(rows, place, d, collector);
}

#endif
