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
#define SCAN_AHEAD 4096 /* prefetch distance of scans in bytes: about memory latency times bandwidth */

/* n codes of n_bits bits, `width` words each, row-major, zero padding. Rows are in ascending order
 * of their ids, so ordering by row is ordering by id. A row whose bit in `alive` is 0 is deleted
 * (NULL: no row is deleted). */
typedef struct {
    const uint64_t *words;
    const uint64_t *alive;
    size_t n;
    int width;
    int n_bits;
} Rows;

/* One table of a multi-index: the codes grouped by their key, the bits shift … shift + width − 1.
 * Group x is starts[x] … starts[x + 1] − 1, in ascending order of rows. The rest of a code, its bits
 * without the key (at most 48), is stored with the low 32 bits in heads and the others in tails.
 * Both have 16 readable entries beyond the last. */
typedef struct {
    const uint32_t *starts;
    const uint32_t *heads;
    const uint16_t *tails;
    const uint32_t *rows;
    int shift;
    int width;
} Table;

typedef struct {
    Table table[MAX_TABLES];
    int count;
} Tables;

/* n rows of `depth` numbers times a matrix of `columns` columns, plus a bias; see product_body.h.
 * Products go to `out`, their signs (bit 1 where ≥ 0) to `words`, which must be zero on entry and
 * has `width` words per row; either may be NULL. */
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
    bool (*bitslice)(const Rows *rows, size_t begin, size_t end, const uint64_t *queries, size_t n_queries,
                     Collector *collectors);
    bool (*probe)(const Tables *tables, const Rows *rows, const uint64_t *query, Collector *collector, uint64_t budget);
    size_t (*multiply)(const Product *product, size_t begin, size_t end);
    void (*matrix)(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, int width, uint16_t *distances);
} Level;

extern const Level level_generic;
#if defined(__x86_64__)
extern const Level level_avx2;
extern const Level level_avx512;
#endif

INLINE bool is_alive(const Rows *rows, size_t row)
{
    return !rows->alive || (rows->alive[row >> 6] >> (row & 63) & 1);
}

/* popcount(a ^ b) over `width` words. */
INLINE int distance(const uint64_t *a, const uint64_t *b, int width)
{
    int total = 0;
    for (int w = 0; w < width; w++)
        total += __builtin_popcountll(a[w] ^ b[w]);
    return total;
}

/* Offer one row if it is alive and near enough. */
INLINE void consider(const Rows *rows, size_t row, const uint64_t *query, int width, Collector *collector)
{
    int d = distance(rows->words + row * (size_t)width, query, width);
    if (d <= collector->reach && is_alive(rows, row))
        collector_offer(collector, d, (uint32_t)row);
}

#endif
