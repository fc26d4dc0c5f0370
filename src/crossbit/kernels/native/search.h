/* One search over one segment: choice of kernel, division of rows among threads. */
#ifndef CROSSBIT_SEARCH_H
#define CROSSBIT_SEARCH_H

#include "common.h"

typedef enum { PATH_SCAN, PATH_BLOCK, PATH_BITSLICE, PATH_MULTI, PATH_RINGS, PATH_WEIGHTED } Path;

/* What to search and how. The caller owns all memory it points to. */
typedef struct {
    const Level *level;
    Rows rows;
    const Tables *tables; /* for PATH_MULTI */
    const Rings *rings;   /* for PATH_RINGS */
    const uint64_t *queries;
    size_t n_queries;
    const Weights *weights; /* for PATH_WEIGHTED: one per query */
    size_t k; /* 0: all rows within `radius` */
    int radius;
    size_t threads;
    Path path;
    const Limits *limits; /* PATH_RINGS; NULL: none */
    Certificate *certificates; /* one per query, if there are limits */
    uint64_t budget; /* PATH_MULTI and PATH_RINGS: cost at which a query is given up */
} Plan;

/* Results: n[i] keys (distance << 32 | row) in ascending order for query i, or given_up[i]. */
typedef struct {
    uint64_t **keys;
    size_t *n;
    bool *given_up;
    void *memory[4];
    Collector *collectors;
    size_t n_collectors;
    bool grown; /* the collectors own their keys */
} Found;

/* The bit planes of n_bits weights. */
void weights_make(const uint8_t *values, int n_bits, Weights *weights);

/* Search; false if out of memory. Call `found_free` in either case. */
bool search(const Plan *plan, Found *found);
void found_free(Found *found);

/* Arrays of one table to be filled; see `Table`. */
typedef struct {
    uint32_t *starts;
    uint32_t *heads;
    uint16_t *tails;
    uint8_t *lows;
    uint64_t *uppers;
    uint32_t *samples;
} TableArrays;

/* Fill one table from the words of n codes; starts has 2^width + 1 elements, heads and tails n, the others
 * as many as places.h says. The caller owns all arrays. */
void table_fill(const uint64_t *words, size_t n, int shift, int width, const TableArrays *out);

#endif
