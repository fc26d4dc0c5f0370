#define _POSIX_C_SOURCE 199309L /* for clock_gettime */

#include "rings.h"

#include <time.h>

#include "parallel.h"

#define PIECE 8192 /* rows per piece of an assignment */
#define SECOND 1000000000u

uint64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

typedef struct {
    const Level *level;
    const Assignment *assignment;
    size_t next;
} Task;

static void work(void *argument, size_t worker)
{
    (void)worker;
    Task *task = argument;
    size_t n = task->assignment->n;
    for (size_t begin; (begin = take(&task->next) * PIECE) < n;)
        task->level->assign(task->assignment, begin, begin + PIECE < n ? begin + PIECE : n);
}

void rings_assign(const Level *level, const Assignment *assignment, size_t threads)
{
    Task task = {.level = level, .assignment = assignment};
    size_t pieces = (assignment->n + PIECE - 1) / PIECE;
    parallel(work, &task, threads < pieces ? threads : pieces ? pieces : 1);
}

bool rings_fill(const Sorting *sorting)
{
    const size_t groups = (size_t)sorting->n_bits + 1, width = (size_t)sorting->width;
    const uint16_t *assigned = sorting->assigned, *radii = sorting->radii;
    uint32_t *starts = sorting->starts;
    for (size_t i = 0; i < sorting->n; i++)
        if (assigned[i] >= sorting->lists || radii[i] >= groups)
            return false;
    /* As in table_fill: starts[x + 1] is the position of the next row of ring x during the sort. */
    memset(starts, 0, (sorting->lists * groups + 1) * sizeof *starts);
    memset(sorting->outer, 0, sorting->lists * sizeof *sorting->outer);
    for (size_t i = 0; i < sorting->n; i++) {
        starts[assigned[i] * groups + radii[i] + 1]++;
        if (sorting->outer[assigned[i]] < radii[i])
            sorting->outer[assigned[i]] = radii[i];
    }
    uint32_t sum = 0;
    for (size_t x = 1; x <= sorting->lists * groups; x++) {
        uint32_t size = starts[x];
        starts[x] = sum;
        sum += size;
    }
    for (size_t i = 0; i < sorting->n; i++) {
        uint32_t place = starts[assigned[i] * groups + radii[i] + 1]++;
        sorting->rows[place] = (uint32_t)i;
        memcpy(sorting->sorted + place * width, sorting->words + i * width, width * sizeof *sorting->words);
    }
    return true;
}
