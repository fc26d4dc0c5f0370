#include <string.h>

#include "search.h"

/* Counting sort of rows by the bits shift … shift + width − 1 of their codes (one word each).
 *
 * Rows stay in ascending order within a group. The caller owns all arrays. */
void table_fill(const uint64_t *words, size_t n, int shift, int width, uint32_t *starts, uint32_t *heads,
                uint16_t *tails, uint32_t *rows)
{
    size_t groups = (size_t)1 << width;
    uint64_t mask = groups - 1, low = ((uint64_t)1 << shift) - 1;
    int end = shift + width;
    /* During the sort starts[x + 1] is the position of the next row of group x; at the end it is the
     * start of group x + 1. */
    memset(starts, 0, (groups + 1) * sizeof *starts);
    for (size_t i = 0; i < n; i++)
        starts[(words[i] >> shift & mask) + 1]++;
    uint32_t sum = 0;
    for (size_t x = 1; x <= groups; x++) {
        uint32_t size = starts[x];
        starts[x] = sum;
        sum += size;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t place = starts[(words[i] >> shift & mask) + 1]++;
        uint64_t rest = (words[i] & low) | (end < 64 ? words[i] >> end << shift : 0);
        heads[place] = (uint32_t)rest;
        tails[place] = (uint16_t)(rest >> 32);
        rows[place] = (uint32_t)i;
    }
}
