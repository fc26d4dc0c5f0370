/* One search over one segment: which kernel, on which rows, by which thread. */
#ifndef CROSSBIT_SEARCH_H
#define CROSSBIT_SEARCH_H

#include "common.h"

typedef enum { PATH_SCAN, PATH_BLOCK, PATH_BITSLICE, PATH_MULTI } Path;

/* What to search and how. The caller owns everything it points to. */
typedef struct {
    const Level *level;
    Rows rows;
    const Tables *tables; /* for PATH_MULTI */
    const uint64_t *queries;
    size_t n_queries;
    size_t k;   /* 0: everything within `radius` */
    int radius;
    size_t threads;
    Path path;
    uint64_t budget; /* PATH_MULTI: what a query may cost before it is given up */
} Plan;

/* What was found: for query i, n[i] keys (distance << 32 | row) in ascending order, or given_up[i]. */
typedef struct {
    uint64_t **keys;
    size_t *n;
    bool *given_up;
    void *memory[4];
    Collector *collectors;
    size_t n_collectors;
    bool grown; /* the collectors own their keys */
} Found;

/* Search; false when memory ran out. `found_free` must follow in either case. */
bool search(const Plan *plan, Found *found);
void found_free(Found *found);

/* Fill one table from the words of n codes; starts has 2^width + 1 places, the others n, all owned by the caller. */
void table_fill(const uint64_t *words, size_t n, int shift, int width, uint32_t *starts, uint32_t *heads,
                uint16_t *tails, uint32_t *rows);

#endif
