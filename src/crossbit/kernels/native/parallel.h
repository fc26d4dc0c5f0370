/* Running one task on a few threads. */
#ifndef CROSSBIT_PARALLEL_H
#define CROSSBIT_PARALLEL_H

#include <stddef.h>

/* Call work(task, worker) for the workers 0 … workers − 1, each on a thread of its own, worker 0 on the calling one.
 *
 * A worker takes pieces of the task until none is left, and writes only what belongs to it or to the piece; the task
 * must not care who does which piece. Where a thread cannot be started the other workers do its share. */
void parallel(void (*work)(void *task, size_t worker), void *task, size_t workers);

/* The number of the next piece that nobody took: 0, 1, 2, … */
static inline size_t take(size_t *next)
{
    return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
}

#endif
