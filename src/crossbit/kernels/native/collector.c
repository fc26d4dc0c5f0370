#include "collector.h"

#include <stdlib.h>
#include <string.h>

#define FEW 64 /* keys: with fewer, insertion sort is faster than counting sort */
#define KEY_BYTES 7 /* four of the row, three of the distance */

static size_t capacity_for(size_t k)
{
    return k + (k > FEW ? k : FEW);
}

size_t collector_bytes(size_t k, int largest)
{
    /* The histogram has largest + 2 counts, rounded up so that keys stay aligned to 8 bytes. */
    return capacity_for(k) * sizeof(uint64_t) + ((size_t)largest + 3) / 2 * 2 * sizeof(uint32_t);
}

void collectors_nearest(Collector *collectors, size_t n, size_t k, int largest, bool ties, void *memory)
{
    size_t bytes = collector_bytes(k, largest);
    for (size_t i = 0; i < n; i++) {
        uint64_t *keys = (uint64_t *)((char *)memory + i * bytes);
        uint32_t *histogram = (uint32_t *)(keys + capacity_for(k));
        memset(histogram, 0, ((size_t)largest + 2) * sizeof *histogram);
        collectors[i] = (Collector){.keys = keys, .histogram = histogram, .capacity = capacity_for(k), .k = k,
                                    .kth = largest + 1, .reach = largest, .ties = ties};
    }
}

void collector_within(Collector *collector, int radius)
{
    *collector = (Collector){.reach = radius};
}

void collector_free(Collector *collector)
{
    free(collector->keys);
    collector->keys = NULL;
}

void collector_settle(Collector *c)
{
    if (c->histogram) { /* drop keys beyond the k-th distance before sorting */
        size_t kept = 0;
        for (size_t i = 0; i < c->held; i++) {
            c->keys[kept] = c->keys[i];
            kept += (int)(c->keys[i] >> 32) <= c->kth;
        }
        c->held = kept;
    }
    if (!sort_keys(c->keys, c->held))
        c->failed = true;
    if (c->histogram && c->held > c->k)
        c->held = c->k; /* only counts at or above kth become stale; they are not read again */
}

bool collector_make_room(Collector *c)
{
    if (c->histogram) {
        collector_settle(c);
        return !c->failed;
    }
    size_t capacity = c->capacity ? 2 * c->capacity : FEW;
    uint64_t *keys = realloc(c->keys, capacity * sizeof *keys);
    if (!keys) {
        c->failed = true;
        return false;
    }
    c->keys = keys;
    c->capacity = capacity;
    return true;
}

static void insertion_sort(uint64_t *keys, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        size_t j = i;
        for (; j > 0 && keys[j - 1] > key; j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

/* Stable counting sort of keys by one byte; `counts` is the histogram of that byte. */
static void pass(const uint64_t *from, uint64_t *to, size_t n, int byte, const size_t *counts)
{
    size_t place[256];
    size_t sum = 0;
    for (int value = 0; value < 256; value++) {
        place[value] = sum;
        sum += counts[value];
    }
    for (size_t i = 0; i < n; i++)
        to[place[from[i] >> (8 * byte) & 255]++] = from[i];
}

bool sort_keys(uint64_t *keys, size_t n)
{
    if (n <= FEW) {
        insertion_sort(keys, n);
        return true;
    }
    uint64_t *other = malloc(n * sizeof *other);
    if (!other)
        return false;
    size_t counts[KEY_BYTES][256] = {{0}};
    bool ascending = true; /* rows offered in order need no passes over their bytes */
    for (size_t i = 0; i < n; i++) {
        for (int byte = 0; byte < KEY_BYTES; byte++)
            counts[byte][keys[i] >> (8 * byte) & 255]++;
        ascending = ascending && (i == 0 || (uint32_t)keys[i - 1] < (uint32_t)keys[i]);
    }
    uint64_t *from = keys, *to = other;
    for (int byte = ascending ? 4 : 0; byte < KEY_BYTES; byte++) {
        if (counts[byte][from[0] >> (8 * byte) & 255] == n)
            continue;
        pass(from, to, n, byte, counts[byte]);
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys)
        memcpy(keys, from, n * sizeof *keys);
    free(other);
    return true;
}
