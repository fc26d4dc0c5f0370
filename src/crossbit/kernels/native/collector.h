/* Collects candidates for every search method, and is therefore the only place that decides ties. */
#ifndef CROSSBIT_COLLECTOR_H
#define CROSSBIT_COLLECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keeps the k smallest keys (distance << 32 | row) offered, or every key within a radius.
 *
 * A histogram of the held distances gives the k-th distance in constant time, without a heap: `kth`
 * decreases as soon as k items are at or below it. `reach` is the largest distance worth offering:
 * kth − 1 if rows are offered in ascending order (a later row loses every tie), kth if they are
 * offered in any order. A full buffer is sorted and truncated to k keys, so an offer takes constant
 * amortized time and memory is bounded for any number of ties.
 *
 * A collector belongs to one thread. The k smallest keys do not depend on the order or grouping of
 * the offers; therefore neither the search method nor the number of threads changes a result. */
typedef struct {
    uint64_t *keys;
    uint32_t *histogram; /* NULL: radius search, no k */
    size_t held, capacity, k;
    uint64_t offers; /* so far */
    size_t below; /* number of held items with a distance < kth */
    int kth;
    int reach;
    int ties;    /* 1 if rows may be offered in any order */
    bool failed; /* out of memory */
} Collector;

/* Bytes that `collectors_nearest` needs per collector, for distances up to `largest`. */
size_t collector_bytes(size_t k, int largest);

/* Initialize n collectors of the k nearest in `memory`, which the caller owns and frees. */
void collectors_nearest(Collector *collectors, size_t n, size_t k, int largest, bool ties, void *memory);

/* Initialize a collector for a radius search; its buffer grows, and `collector_free` frees it. */
void collector_within(Collector *collector, int radius);
void collector_free(Collector *collector);

/* Sort the held keys and truncate them to k. */
void collector_settle(Collector *collector);

/* Sort keys in ascending order; false if out of memory. */
bool sort_keys(uint64_t *keys, size_t n);

/* Make room for one more key; false if out of memory. */
bool collector_make_room(Collector *collector);

/* Hold a row that is, or will be, counted. */
static inline __attribute__((always_inline, unused)) void collector_hold(Collector *c, int distance, uint32_t row)
{
    if (__builtin_expect(c->held == c->capacity, 0) && !collector_make_room(c))
        return;
    c->keys[c->held++] = (uint64_t)distance << 32 | row;
}

/* Count a row at a distance ≤ reach that is, or will be, held. */
static inline __attribute__((always_inline, unused)) void collector_count(Collector *c, int distance)
{
    c->offers++;
    if (!c->histogram)
        return;
    c->histogram[distance]++;
    if (distance < c->kth) {
        c->below++;
        while (c->below >= c->k)
            c->below -= c->histogram[--c->kth];
        if (c->reach >= c->kth)
            c->reach = c->kth - 1 + c->ties;
    }
}

/* Add a row at a distance ≤ reach. */
static inline __attribute__((always_inline, unused)) void collector_offer(Collector *c, int distance, uint32_t row)
{
    collector_hold(c, distance, row);
    if (!c->failed)
        collector_count(c, distance);
}

#endif
