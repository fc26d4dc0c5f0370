#include "search.h"

#include <stdlib.h>
#include <string.h>

#include "parallel.h"

#define PIECE_ROWS 16384  /* smallest piece of a worker */
#define ALIGN_ROWS 512    /* pieces start at block boundaries of every instruction set */

typedef struct {
    const Plan *plan;
    Found *found;
    size_t piece; /* rows */
    size_t next;
    bool failed;
} Task;

static void weigh_blocks(const Plan *plan, size_t begin, size_t end, Collector *collectors)
{
    size_t step = plan->n_queries == 1 ? end - begin : BLOCK_WORDS / (size_t)plan->rows.width;
    for (size_t block = begin; block < end; block += step)
        for (size_t i = 0; i < plan->n_queries; i++)
            plan->level->weigh(&plan->rows, block, block + step < end ? block + step : end,
                               plan->queries + i * (size_t)plan->rows.width, &plan->weights[i], &collectors[i]);
}

/* Process pieces of the rows in ascending order with the collectors of this worker. */
static void work_on_rows(void *argument, size_t worker)
{
    Task *task = argument;
    const Plan *plan = task->plan;
    const Rows *rows = &plan->rows;
    Collector *collectors = task->found->collectors + worker * plan->n_queries;
    for (size_t begin; (begin = take(&task->next) * task->piece) < rows->n;) {
        size_t end = begin + task->piece < rows->n ? begin + task->piece : rows->n;
        if (plan->path == PATH_BLOCK)
            plan->level->scan_blocks(rows, begin, end, plan->queries, plan->n_queries, collectors);
        else if (plan->path == PATH_WEIGHTED)
            weigh_blocks(plan, begin, end, collectors);
        else if (plan->path == PATH_BITSLICE) {
            if (!plan->level->bitslice(rows, begin, end, plan->queries, plan->n_queries, collectors))
                __atomic_store_n(&task->failed, true, __ATOMIC_RELAXED);
        } else
            for (size_t i = 0; i < plan->n_queries; i++)
                plan->level->scan(rows, begin, end, plan->queries + i * (size_t)rows->width, &collectors[i]);
    }
}

/* Whether a path processes one query after another, with rows in any order. */
static bool by_query(const Plan *plan)
{
    return plan->path == PATH_MULTI || plan->path == PATH_RINGS;
}

/* Process queries one by one with the multi-index or with lists. */
static void work_on_queries(void *argument, size_t worker)
{
    (void)worker;
    Task *task = argument;
    const Plan *plan = task->plan;
    for (size_t i; (i = take(&task->next)) < plan->n_queries;) {
        const uint64_t *query = plan->queries + i * (size_t)plan->rows.width;
        Collector *collector = &task->found->collectors[i];
        bool done = plan->path == PATH_MULTI
                        ? plan->level->probe(plan->tables, &plan->rows, query, collector, plan->budget)
                        : plan->level->ring_search(plan->rings, &plan->rows, query, collector, plan->budget,
                                                   plan->limits, plan->limits ? &plan->certificates[i] : NULL);
        task->found->given_up[i] = !done;
    }
}

/* The largest distance that a row can have to a query. */
static int largest_distance(const Plan *plan)
{
    if (plan->path != PATH_WEIGHTED)
        return plan->rows.n_bits;
    int largest = 0;
    for (size_t i = 0; i < plan->n_queries; i++)
        largest = plan->weights[i].total > largest ? plan->weights[i].total : largest;
    return largest;
}

void weights_make(const uint8_t *values, int n_bits, Weights *weights)
{
    memset(weights, 0, sizeof *weights);
    unsigned any = 0;
    for (int bit = 0; bit < n_bits; bit++) {
        unsigned value = values[bit];
        for (int p = 0; p < WEIGHT_BITS; p++)
            weights->planes[p][bit / 64] |= (uint64_t)(value >> p & 1) << bit % 64;
        weights->total += (int)value;
        any |= value;
    }
    weights->used = HIGH_PLANES;
    while (any >> weights->used)
        weights->used++;
}

static bool collectors_make(const Plan *plan, Found *found, size_t workers)
{
    size_t n = times(workers, plan->n_queries), k = plan->k < plan->rows.n ? plan->k : plan->rows.n;
    bool ties = by_query(plan);
    found->collectors = calloc(n, sizeof *found->collectors);
    found->memory[0] = found->collectors;
    if (!found->collectors)
        return false;
    found->n_collectors = n;
    if (plan->k == 0) {
        found->grown = true;
        for (size_t i = 0; i < n; i++)
            collector_within(&found->collectors[i], plan->radius < plan->rows.n_bits ? plan->radius : plan->rows.n_bits);
        return true;
    }
    int largest = largest_distance(plan);
    found->memory[1] = malloc(times(n, collector_bytes(k, largest)));
    if (!found->memory[1])
        return false;
    collectors_nearest(found->collectors, n, k, largest, ties, found->memory[1]);
    return true;
}

/* Merge the results of all workers for query i. Keys are ordered by (distance, row) and rows are
 * unique, so the result does not depend on how the rows were divided. */
static bool gather_keys(const Plan *plan, Found *found, size_t workers, size_t i)
{
    Collector *first = &found->collectors[i];
    size_t total = 0;
    for (size_t w = 0; w < workers; w++) {
        Collector *collector = first + w * plan->n_queries;
        collector_settle(collector);
        if (collector->failed)
            return false;
        total += collector->held;
    }
    found->keys[i] = first->keys;
    found->n[i] = first->held;
    if (total == first->held)
        return true;
    uint64_t *keys = malloc(total * sizeof *keys), *place = keys;
    if (!keys)
        return false;
    for (size_t w = 0; w < workers; w++) {
        Collector *collector = first + w * plan->n_queries;
        if (collector->held) /* otherwise keys may be NULL */
            memcpy(place, collector->keys, collector->held * sizeof *keys);
        place += collector->held;
    }
    bool sorted = sort_keys(keys, total);
    size_t kept = first->histogram && total > first->k ? first->k : total;
    if (sorted && first->histogram)
        memcpy(first->keys, keys, kept * sizeof *keys); /* there is always room for k keys */
    if (first->histogram)
        free(keys);
    else {
        free(first->keys);
        found->keys[i] = first->keys = keys;
    }
    found->n[i] = kept;
    return sorted;
}

/* Rows per piece: several pieces per thread, so that threads finish at about the same time. */
static size_t piece_rows(const Plan *plan)
{
    size_t piece = plan->rows.n / (8 * plan->threads);
    if (plan->threads == 1)
        return plan->rows.n;
    return piece < PIECE_ROWS ? PIECE_ROWS : piece / ALIGN_ROWS * ALIGN_ROWS;
}

bool search(const Plan *plan, Found *found)
{
    memset(found, 0, sizeof *found);
    size_t n_queries = plan->n_queries, n = plan->rows.n;
    bool one_by_one = by_query(plan);
    found->memory[2] = calloc(n_queries + 1, sizeof *found->keys + sizeof *found->n);
    found->memory[3] = calloc(n_queries + 1, sizeof *found->given_up);
    if (!found->memory[2] || !found->memory[3])
        return false;
    found->keys = found->memory[2];
    found->n = (size_t *)(found->keys + n_queries);
    found->given_up = found->memory[3];
    if (n == 0 || n_queries == 0)
        return true;
    Task task = {.plan = plan, .found = found, .piece = piece_rows(plan)};
    size_t pieces = one_by_one ? n_queries : (n + task.piece - 1) / task.piece;
    size_t workers = plan->threads < pieces ? plan->threads : pieces;
    size_t collectors = one_by_one ? 1 : workers; /* per query */
    if (!collectors_make(plan, found, collectors))
        return false;
    parallel(one_by_one ? work_on_queries : work_on_rows, &task, workers);
    for (size_t i = 0; i < n_queries && !task.failed; i++)
        if (!gather_keys(plan, found, collectors, i))
            return false;
    return !task.failed;
}

void found_free(Found *found)
{
    for (size_t i = 0; found->grown && i < found->n_collectors; i++)
        collector_free(&found->collectors[i]);
    for (size_t i = 0; i < sizeof found->memory / sizeof *found->memory; i++)
        free(found->memory[i]);
}
