/* Run one task on several threads. */
#ifndef CROSSBIT_PARALLEL_H
#define CROSSBIT_PARALLEL_H

#include <stddef.h>

#define MAX_THREADS 256 /* per call */

/* Call work(task, worker) for the workers 0 … workers − 1, each on its own thread; worker 0 runs on
 * the calling thread.
 *
 * A worker takes pieces of the task until none is left, and writes only memory that belongs to it or
 * to the piece; any worker may process any piece. If a thread cannot be started, the other workers
 * process its pieces. */
void parallel(void (*work)(void *task, size_t worker), void *task, size_t workers);

/* Number of the next piece: 0, 1, 2, … */
static inline size_t take(size_t *next)
{
    return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
}

#endif
