#include <string.h>

#include "places.h"
#include "search.h"

/* Store the row of a place; rows come in ascending order, and all bits were 0 before. */
static void put_row(const TableArrays *out, size_t n, int width, size_t key, size_t place, size_t row)
{
    int bits = low_bits(width);
    size_t at = place * (size_t)bits, upper = row >> width, one = place + key * steps_of(n, width) + upper;
    uint64_t low = row >> block_bits(width) & (((uint64_t)1 << bits) - 1), loaded;
    memcpy(&loaded, out->lows + at / 8, sizeof loaded);
    loaded |= low << at % 8;
    memcpy(out->lows + at / 8, &loaded, sizeof loaded);
    out->uppers[one / 64] |= (uint64_t)1 << one % 64;
    if (place % SAMPLE == 0)
        out->samples[place / SAMPLE] = (uint32_t)upper;
}

/* Counting sort of rows by the bits shift … shift + width − 1 of their codes (one word each).
 *
 * Rows stay in ascending order within a group. The caller owns all arrays. */
void table_fill(const uint64_t *words, size_t n, int shift, int width, const TableArrays *out)
{
    size_t groups = (size_t)1 << width;
    uint64_t mask = groups - 1, low = ((uint64_t)1 << shift) - 1;
    int end = shift + width;
    uint32_t *starts = out->starts;
    memset(out->lows, 0, lows_count(n, width));
    memset(out->uppers, 0, uppers_count(n, width) * sizeof *out->uppers);
    memset(out->samples, 0, samples_count(n) * sizeof *out->samples);
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
        size_t key = words[i] >> shift & mask;
        uint32_t place = starts[key + 1]++;
        uint64_t rest = (words[i] & low) | (end < 64 ? words[i] >> end << shift : 0);
        out->heads[place] = (uint32_t)rest;
        out->tails[place] = (uint16_t)(rest >> 32);
        put_row(out, n, width, key, place, i);
    }
}
