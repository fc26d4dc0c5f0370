/* Lists around centers: assignment of codes to centers, and their order by list and radius. */
#ifndef CROSSBIT_RINGS_H
#define CROSSBIT_RINGS_H

#include "common.h"

/* Find the nearest center of every row; see `assign` in rings_body.h. */
void rings_assign(const Level *level, const Assignment *assignment, size_t threads);

/* Rows to sort by (list, radius, row). `assigned` and `radii` come from an assignment; `outer` has one
 * element per list, `starts` lists · (n_bits + 1) + 1, `rows` n, `sorted` n · width. The caller owns
 * all arrays. */
typedef struct {
    const uint64_t *words;
    const uint16_t *assigned;
    const uint16_t *radii;
    uint16_t *outer;
    uint32_t *starts;
    uint32_t *rows;
    uint64_t *sorted;
    size_t n, lists;
    int width, n_bits;
} Sorting;

/* Fill outer, starts, rows and sorted; false, with nothing written, if a row has a list or a radius
 * that does not exist. */
bool rings_fill(const Sorting *sorting);

#endif
