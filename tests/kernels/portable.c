/* The portable kernels without Python: every search path against its definition.
 *
 * `test_portable.py` compiles this with the sources that do not include Python.h, for this machine
 * and, where the tools are installed, for 64-bit ARM. Prints "clean" if all answers are right. */
#include <stdio.h>
#include <stdlib.h>

#include "rings.h"
#include "search.h"

#define MOST_ROWS 600
#define MOST_WORDS (MAX_BITS / 64)
#define N_QUERIES 3
#define K 9
#define LISTS 16

static uint64_t state = 1;

static uint64_t next_random(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) ^ state << 29;
}

static uint64_t words[MOST_ROWS * MOST_WORDS], queries[N_QUERIES * MOST_WORDS], centers[LISTS * MOST_WORDS];
static uint64_t sorted[MOST_ROWS * MOST_WORDS], alive[MOST_ROWS / 64 + 1];
static uint16_t assigned[MOST_ROWS], radii[MOST_ROWS], outer[LISTS];
static uint32_t starts[LISTS * (MAX_BITS + 1) + 1], ring_rows[MOST_ROWS];
static uint8_t values[N_QUERIES][MAX_BITS];
static Weights weights[N_QUERIES];
static uint64_t expected[MOST_ROWS];

/* Few distinct codes, so that there are many ties. */
static void fill(uint64_t *codes, size_t n, int n_bits)
{
    int width = (n_bits + 63) / 64;
    for (size_t i = 0; i < n * (size_t)width; i++)
        codes[i] = next_random() & next_random() & next_random();
    for (size_t i = 0; i < n; i++)
        if (n_bits % 64)
            codes[(i + 1) * (size_t)width - 1] &= ((uint64_t)1 << n_bits % 64) - 1;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The keys (distance << 32 | row) of all living rows in ascending order; returns their number. */
static size_t define(const Rows *rows, const uint64_t *query, const uint8_t *weight)
{
    size_t n = 0;
    for (size_t row = 0; row < rows->n; row++) {
        uint64_t d = 0;
        for (int bit = 0; bit < rows->n_bits; bit++)
            if ((rows->words[row * (size_t)rows->width + (size_t)bit / 64] ^ query[bit / 64]) >> bit % 64 & 1)
                d += weight ? weight[bit] : 1;
        if (rows->alive[row / 64] >> row % 64 & 1)
            expected[n++] = d << 32 | row;
    }
    qsort(expected, n, sizeof *expected, ascending);
    return n;
}

static void check(const Plan *plan)
{
    Found found;
    if (!search(plan, &found))
        exit(2);
    for (size_t i = 0; i < plan->n_queries; i++) {
        const uint64_t *query = plan->queries + i * (size_t)plan->rows.width;
        size_t n = define(&plan->rows, query, plan->path == PATH_WEIGHTED ? values[i] : NULL), count = 0;
        while (count < n && (plan->k ? count < plan->k : (int)(expected[count] >> 32) <= plan->radius))
            count++;
        if (found.given_up[i] || found.n[i] != count || memcmp(found.keys[i], expected, count * sizeof *expected) != 0) {
            printf("%d bits, %zu rows, path %d: query %zu differs\n", plan->rows.n_bits, plan->rows.n, (int)plan->path, i);
            exit(1);
        }
    }
    found_free(&found);
}

static Rings make_rings(const Rows *rows)
{
    Assignment assignment = {.words = words, .centers = centers, .assigned = assigned, .radii = radii, .n = rows->n,
                             .lists = LISTS, .width = rows->width};
    Sorting sorting = {.words = words, .assigned = assigned, .radii = radii, .outer = outer, .starts = starts,
                       .rows = ring_rows, .sorted = sorted, .n = rows->n, .lists = LISTS, .width = rows->width,
                       .n_bits = rows->n_bits};
    rings_assign(&level_generic, &assignment, 2);
    if (!rings_fill(&sorting))
        exit(3);
    return (Rings){.centers = centers, .outer = outer, .starts = starts, .words = sorted, .rows = ring_rows, .lists = LISTS};
}

static void check_all(int n_bits, size_t n)
{
    Rows rows = {.words = words, .alive = alive, .n = n, .width = (n_bits + 63) / 64, .n_bits = n_bits};
    fill(words, n, n_bits);
    fill(queries, N_QUERIES, n_bits);
    fill(centers, LISTS, n_bits);
    for (size_t i = 0; i < sizeof alive / sizeof *alive; i++)
        alive[i] = next_random() | next_random();
    for (size_t i = 0; i < N_QUERIES; i++) {
        for (int bit = 0; bit < n_bits; bit++)
            values[i][bit] = (uint8_t)next_random();
        weights_make(values[i], n_bits, &weights[i]);
    }
    Rings rings = make_rings(&rows);
    for (int path = PATH_SCAN; path <= PATH_WEIGHTED; path++) {
        if (path == PATH_MULTI)
            continue;
        Plan plan = {.level = &level_generic, .rows = rows, .rings = &rings, .queries = queries, .n_queries = N_QUERIES,
                     .weights = weights, .k = K, .threads = 2, .path = (Path)path, .budget = UINT64_MAX};
        check(&plan);
        plan.k = 0;
        plan.radius = n_bits / 6;
        if (path != PATH_WEIGHTED)
            check(&plan);
    }
}

int main(void)
{
    static const int widths[] = {1, 20, 63, 64, 65, 128, 192, 256, 300, 1024};
    static const size_t sizes[] = {0, 1, 130, MOST_ROWS};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
            check_all(widths[i], sizes[j]);
    puts("clean");
    return 0;
}
