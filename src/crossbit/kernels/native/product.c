#include "product.h"

#include "parallel.h"

#define TILES 12 /* rows: a multiple of every TILE */
#define CACHED (1 << 17) /* numbers of x per piece of work; they stay in the cache for all panels */

typedef struct {
    const Level *level;
    const Product *product;
    size_t next;
    size_t piece; /* rows per piece */
    size_t bad;
} Task;

static void work(void *argument, size_t worker)
{
    (void)worker;
    Task *task = argument;
    size_t n = task->product->n, piece = task->piece;
    for (size_t begin; (begin = take(&task->next) * piece) < n;) {
        size_t end = begin + piece < n ? begin + piece : n;
        size_t bad = task->level->multiply(task->product, begin, end);
        size_t before = __atomic_load_n(&task->bad, __ATOMIC_RELAXED);
        while (bad < end && bad < before &&
               !__atomic_compare_exchange_n(&task->bad, &before, bad, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
    }
}

size_t product_run(const Level *level, const Product *product, size_t threads)
{
    size_t tiles = CACHED / TILES / (product->depth + 1);
    size_t piece = TILES * (tiles < 1 ? 1 : tiles > 20 ? 20 : tiles);
    Task task = {.level = level, .product = product, .piece = piece, .bad = product->n};
    size_t pieces = (product->n + piece - 1) / piece;
    if (product->words)
        memset(product->words, 0, product->n * product->width * sizeof *product->words);
    parallel(work, &task, threads < pieces ? threads : pieces ? pieces : 1);
    return task.bad;
}
