/* The one routine that accepts candidates, on every path, and so the one place where ties are decided. */
#ifndef CROSSBIT_COLLECTOR_H
#define CROSSBIT_COLLECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keeps the k smallest keys (distance << 32 | row) offered, or every key within a radius.
 *
 * A histogram of the distances held gives the k-th distance at once, without a heap: `kth` falls as soon as k items lie
 * below or at it. `reach` is the largest distance still worth offering: kth − 1 when rows come in ascending order (a
 * later row loses every tie), kth when they come in any order. When the buffer is full it is sorted and cut to k keys, so
 * an offer costs constant time on average and memory stays bounded however many ties there are.
 *
 * A collector belongs to one thread. The k smallest keys do not depend on the order or the grouping in which they are
 * offered: this is why neither path nor threads change an answer. */
typedef struct {
    uint64_t *keys;
    uint32_t *histogram; /* NULL: within a radius, no k */
    size_t held, capacity, k;
    size_t below; /* how many held items have a distance < kth */
    int kth;
    int reach;
    int ties;    /* 1 when rows may come in any order */
    bool failed; /* memory ran out */
} Collector;

/* How many bytes `collectors_nearest` needs for each collector. */
size_t collector_bytes(size_t k, int n_bits);

/* Set up n collectors of the k nearest in `memory`, which the caller owns and frees. */
void collectors_nearest(Collector *collectors, size_t n, size_t k, int n_bits, bool ties, void *memory);

/* Set up a collector of everything within a radius; its buffer grows, and is freed by `collector_free`. */
void collector_within(Collector *collector, int radius);
void collector_free(Collector *collector);

/* Sort what is held and cut it to k. */
void collector_settle(Collector *collector);

/* Sort keys in ascending order; false when memory ran out. */
bool sort_keys(uint64_t *keys, size_t n);

/* Make room for one more key; false when memory ran out. */
bool collector_make_room(Collector *collector);

/* Take a row at a distance ≤ reach. */
static inline __attribute__((always_inline, unused)) void collector_offer(Collector *c, int distance, uint32_t row)
{
    if (__builtin_expect(c->held == c->capacity, 0) && !collector_make_room(c))
        return;
    c->keys[c->held++] = (uint64_t)distance << 32 | row;
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

#endif
