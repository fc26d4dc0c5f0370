/* Python interface: checks all arguments, releases the GIL, calls kernels, packs results. */
#include "arguments.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "parallel.h"
#include "places.h"
#include "product.h"
#include "rings.h"
#include "segment.h"

/* The levels that this processor can run, fastest first, then NULL. */
static const Level *const *levels(void)
{
    static const Level *usable[4];
    if (usable[0])
        return usable;
    int n = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("popcnt"))
        usable[n++] = &level_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi"))
        usable[n++] = &level_avx2;
#endif
    usable[n] = &level_generic;
    return usable;
}

static PyObject *levels_py(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *names = PyList_New(0);
    for (const Level *const *level = levels(); names && *level; level++) {
        PyObject *name = PyUnicode_FromString((*level)->name);
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

/* Kernels of a level by its index in levels(); NULL with an exception set. */
static const Level *get_level(PyObject *object)
{
    int count = 0;
    while (levels()[count])
        count++;
    long long index;
    return get_integer(object, "level", 0, count - 1, &index) ? levels()[index] : NULL;
}

/* The number of threads; more than MAX_THREADS are never started. */
static bool get_threads(PyObject *object, size_t *threads)
{
    long long most;
    if (!get_integer(object, "threads", 1, LLONG_MAX, &most))
        return false;
    *threads = most < MAX_THREADS ? (size_t)most : MAX_THREADS;
    return true;
}

/* Shared by search and within: (segment, level, queries, k or radius, threads, path, budget). */
typedef struct {
    const Segment *segment;
    Plan plan;
    Array arrays[5]; /* queries, outputs, and what a function adds */
    Found found;
} Call;

/* Segment, level and queries: the first arguments. */
static bool call_queries(Call *call, PyObject *const *args)
{
    Plan *plan = &call->plan;
    Array *queries = &call->arrays[0];
    call->segment = segment_get(args[0]);
    if (!call->segment)
        return false;
    plan->rows = call->segment->rows;
    plan->tables = &call->segment->tables;
    plan->rings = &call->segment->rings;
    plan->level = get_level(args[1]);
    if (!plan->level || !get_array(args[2], "queries", &type_uint64, queries) ||
        !get_rows(queries, (size_t)plan->rows.width, &plan->n_queries))
        return false;
    plan->queries = queries->view.buf;
    return true;
}

static bool call_prepare(Call *call, PyObject *const *args)
{
    Plan *plan = &call->plan;
    long long path, budget;
    if (!call_queries(call, args) || !get_threads(args[4], &plan->threads) || !get_integer(args[5], "path", PATH_SCAN, PATH_RINGS, &path) ||
        !get_integer(args[6], "budget", 0, LLONG_MAX, &budget))
        return false;
    if (path == PATH_MULTI && !plan->tables->count) {
        PyErr_Format(PyExc_ValueError, "path %d needs a segment with tables, got none", PATH_MULTI);
        return false;
    }
    if (path == PATH_RINGS && !plan->rings->lists) {
        PyErr_Format(PyExc_ValueError, "path %d needs a segment with rings, got none", PATH_RINGS);
        return false;
    }
    plan->path = (Path)path;
    plan->budget = (uint64_t)budget;
    return true;
}

/* Run the plan without the GIL; false with an exception set. */
static bool call_run(Call *call)
{
    bool done;
    Py_BEGIN_ALLOW_THREADS
    done = search(&call->plan, &call->found);
    Py_END_ALLOW_THREADS
    if (!done)
        PyErr_NoMemory();
    return done;
}

static void call_free(Call *call)
{
    found_free(&call->found);
    release(call->arrays, sizeof call->arrays / sizeof *call->arrays);
}

/* Write the result of a query: ids and distances of its n keys, padded with −1 up to k. */
static void write_matches(const Segment *segment, const uint64_t *keys, size_t n, size_t k, int64_t *ids, int32_t *distances)
{
    for (size_t j = 0; j < n; j++) {
        ids[j] = id_of(segment, (uint32_t)keys[j]);
        distances[j] = (int32_t)(keys[j] >> 32);
    }
    for (size_t j = n; j < k; j++) {
        ids[j] = -1;
        distances[j] = -1;
    }
}

/* Hold the outputs of a search: n_queries · k elements each, apart from everything that is read. */
static bool search_outputs(Call *call, PyObject *ids_object, PyObject *distances_object)
{
    const Array *queries = &call->arrays[0];
    Array *ids = &call->arrays[1], *distances = &call->arrays[2];
    size_t count = times(call->plan.n_queries, call->plan.k);
    if (!get_output(ids_object, "ids", &type_int64, ids) || !has_count(ids, count) ||
        !get_output(distances_object, "distances", &type_int32, distances) || !has_count(distances, count))
        return false;
    const Segment *segment = call->segment;
    return is_separate(ids, queries, 1) && is_separate(distances, queries, 2) &&
           is_separate(ids, segment->arrays, segment->n_arrays) && is_separate(distances, segment->arrays, segment->n_arrays);
}

static PyObject *search_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("search", 9, n_args))
        return NULL;
    PyObject *answer = NULL;
    long long k;
    Call call = {0};
    if (call_prepare(&call, args) && get_integer(args[3], "k", 1, PY_SSIZE_T_MAX, &k)) {
        call.plan.k = (size_t)k;
        if (search_outputs(&call, args[7], args[8]) && call_run(&call)) {
            int64_t *ids = call.arrays[1].view.buf;
            int32_t *distances = call.arrays[2].view.buf;
            Py_ssize_t given_up = 0;
            for (size_t i = 0; i < call.plan.n_queries; i++, ids += k, distances += k) {
                write_matches(call.segment, call.found.keys[i], call.found.n[i], (size_t)k, ids, distances);
                if (call.found.given_up[i]) {
                    distances[0] = -2;
                    given_up++;
                }
            }
            answer = PyLong_FromSsize_t(given_up);
        }
    }
    call_free(&call);
    return answer;
}

/* Limits of 0 … 2⁶³ − 1, where the last means none. */
static bool get_limit(PyObject *object, const char *name, uint64_t *limit)
{
    long long value;
    if (!get_integer(object, name, 0, LLONG_MAX, &value))
        return false;
    *limit = value == LLONG_MAX ? UINT64_MAX : (uint64_t)value;
    return true;
}

/* Hold the outputs radii and gaps, one element per query each. */
static bool certified_outputs(Call *call, PyObject *radii_object, PyObject *gaps_object)
{
    Array *radii = &call->arrays[3], *gaps = &call->arrays[4];
    const Segment *segment = call->segment;
    return get_output(radii_object, "radii", &type_int32, radii) && has_count(radii, call->plan.n_queries) &&
           get_output(gaps_object, "gaps", &type_int32, gaps) && has_count(gaps, call->plan.n_queries) &&
           is_separate(radii, call->arrays, 3) && is_separate(gaps, call->arrays, 4) &&
           is_separate(radii, segment->arrays, segment->n_arrays) && is_separate(gaps, segment->arrays, segment->n_arrays);
}

/* certified(segment, level, queries, k, threads, rows, nanoseconds, gap, ids, distances, radii, gaps) */
static PyObject *certified_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("certified", 12, n_args))
        return NULL;
    PyObject *answer = NULL;
    Certificate *certificates = NULL;
    Limits limits;
    long long k, gap;
    Call call = {.plan = {.path = PATH_RINGS, .budget = UINT64_MAX, .limits = &limits}};
    bool valid = call_queries(&call, args) && get_integer(args[3], "k", 1, PY_SSIZE_T_MAX, &k) &&
                 get_threads(args[4], &call.plan.threads) && get_limit(args[5], "rows", &limits.rows) &&
                 get_limit(args[6], "nanoseconds", &limits.nanoseconds) &&
                 get_integer(args[7], "gap", -MAX_BITS, FINISHED, &gap);
    if (valid && !call.plan.rings->lists) {
        PyErr_SetString(PyExc_ValueError, "certified needs a segment with rings, got none");
        valid = false;
    }
    if (valid) {
        call.plan.k = (size_t)k;
        limits.gap = (int)gap;
        valid = search_outputs(&call, args[8], args[9]) && certified_outputs(&call, args[10], args[11]);
    }
    if (valid) {
        size_t n = call.plan.n_queries;
        int64_t *ids = call.arrays[1].view.buf;
        int32_t *distances = call.arrays[2].view.buf, *radii = call.arrays[3].view.buf, *gaps = call.arrays[4].view.buf;
        call.plan.certificates = certificates = malloc(times(n + 1, sizeof *certificates));
        for (size_t i = 0; certificates && i < n; i++) /* they stay if there are no rows */
            certificates[i] = (Certificate){.radius = call.plan.rows.n_bits, .gap = FINISHED};
        if (!certificates)
            PyErr_NoMemory();
        else if (call_run(&call)) {
            for (size_t i = 0; i < n; i++, ids += k, distances += k) {
                write_matches(call.segment, call.found.keys[i], call.found.n[i], (size_t)k, ids, distances);
                radii[i] = certificates[i].radius;
                gaps[i] = certificates[i].gap;
            }
            answer = Py_NewRef(Py_None);
        }
    }
    call_free(&call);
    free(certificates);
    return answer;
}

/* The planes of all weights; false with an exception set. */
static bool call_weights(Call *call, PyObject *object, Weights **weights)
{
    Array *values = &call->arrays[3];
    size_t n = call->plan.n_queries, n_bits = (size_t)call->plan.rows.n_bits;
    if (!get_array(object, "weights", &type_uint8, values) || !has_count(values, times(n, n_bits)))
        return false;
    *weights = malloc(times(n + 1, sizeof **weights));
    if (!*weights) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < n; i++)
        weights_make((const uint8_t *)values->view.buf + i * n_bits, (int)n_bits, &(*weights)[i]);
    call->plan.weights = *weights;
    return true;
}

static PyObject *weighted_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("weighted", 8, n_args))
        return NULL;
    PyObject *answer = NULL;
    Weights *weights = NULL;
    long long k;
    Call call = {.plan = {.path = PATH_WEIGHTED}};
    if (call_queries(&call, args) && get_integer(args[4], "k", 1, PY_SSIZE_T_MAX, &k) &&
        get_threads(args[5], &call.plan.threads)) {
        call.plan.k = (size_t)k;
        if (search_outputs(&call, args[6], args[7]) && call_weights(&call, args[3], &weights) &&
            is_separate(&call.arrays[1], &call.arrays[3], 1) && is_separate(&call.arrays[2], &call.arrays[3], 1) &&
            call_run(&call)) {
            int64_t *ids = call.arrays[1].view.buf;
            int32_t *distances = call.arrays[2].view.buf;
            for (size_t i = 0; i < call.plan.n_queries; i++, ids += k, distances += k)
                write_matches(call.segment, call.found.keys[i], call.found.n[i], (size_t)k, ids, distances);
            answer = Py_NewRef(Py_None);
        }
    }
    call_free(&call);
    free(weights);
    return answer;
}

/* Return (given up, counts, ids, distances): the number of matches per query, and the concatenated
 * matches of all queries. */
static PyObject *pack_found(const Call *call)
{
    size_t n_queries = call->plan.n_queries, total = 0;
    Py_ssize_t given_up = 0;
    for (size_t i = 0; i < n_queries; i++) {
        total += call->found.n[i];
        given_up += call->found.given_up[i];
    }
    PyObject *counts = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(n_queries * sizeof(int64_t)));
    PyObject *ids = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(total * sizeof(int64_t)));
    PyObject *distances = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(total * sizeof(int32_t)));
    if (counts && ids && distances) {
        int64_t *count = (int64_t *)(void *)PyByteArray_AsString(counts), *id = (int64_t *)(void *)PyByteArray_AsString(ids);
        int32_t *distance = (int32_t *)(void *)PyByteArray_AsString(distances);
        for (size_t i = 0; i < n_queries; i++) {
            size_t n = call->found.n[i];
            count[i] = (int64_t)n;
            write_matches(call->segment, call->found.keys[i], n, n, id, distance);
            id += n;
            distance += n;
        }
    }
    PyObject *answer = counts && ids && distances ? Py_BuildValue("nOOO", given_up, counts, ids, distances) : NULL;
    Py_XDECREF(counts);
    Py_XDECREF(ids);
    Py_XDECREF(distances);
    return answer;
}

static PyObject *within_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("within", 7, n_args))
        return NULL;
    PyObject *answer = NULL;
    long long radius;
    Call call = {0};
    if (call_prepare(&call, args) && get_integer(args[3], "radius", 0, LLONG_MAX, &radius)) {
        call.plan.radius = radius < MAX_BITS ? (int)radius : MAX_BITS;
        answer = call_run(&call) ? pack_found(&call) : NULL;
    }
    call_free(&call);
    return answer;
}

static bool table_checked(PyObject *const *args, Array arrays[1 + TABLE_ARRAYS], int *shift, int *width)
{
    static const char *const names[] = {"starts", "heads", "tails", "lows", "uppers", "samples"};
    const Type *types[] = {&type_uint32, &type_uint32, &type_uint16, &type_uint8, &type_uint64, &type_uint32};
    long long first, bits;
    if (!get_array(args[0], "words", &type_uint64, &arrays[0]) || !get_integer(args[1], "shift", 0, 63, &first) ||
        !get_integer(args[2], "width", 1, 64 - first < MAX_KEY ? 64 - first : MAX_KEY, &bits))
        return false;
    size_t n = arrays[0].count;
    if (n > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "words must have at most %lld elements, got %zu", (long long)UINT32_MAX, n);
        return false;
    }
    const size_t counts[TABLE_ARRAYS] = TABLE_COUNTS(n, (int)bits);
    for (size_t i = 0; i < TABLE_ARRAYS; i++)
        if (!get_output(args[3 + i], names[i], types[i], &arrays[1 + i]) || !has_count(&arrays[1 + i], counts[i]) ||
            !is_separate(&arrays[1 + i], arrays, 1 + i))
            return false;
    *shift = (int)first;
    *width = (int)bits;
    return true;
}

static PyObject *table_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("table", 3 + TABLE_ARRAYS, n_args))
        return NULL;
    Array arrays[1 + TABLE_ARRAYS] = {{0}};
    int shift, width;
    bool valid = table_checked(args, arrays, &shift, &width);
    if (valid) {
        const TableArrays out = {.starts = arrays[1].view.buf, .heads = arrays[2].view.buf, .tails = arrays[3].view.buf,
                                 .lows = arrays[4].view.buf, .uppers = arrays[5].view.buf, .samples = arrays[6].view.buf};
        Py_BEGIN_ALLOW_THREADS
        table_fill(arrays[0].view.buf, arrays[0].count, shift, width, &out);
        Py_END_ALLOW_THREADS
    }
    release(arrays, 1 + TABLE_ARRAYS);
    return valid ? Py_NewRef(Py_None) : NULL;
}

/* assign(level, threads, words, width, centers, lists, radii) */
static PyObject *assign_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("assign", 7, n_args))
        return NULL;
    Array arrays[4] = {{0}};
    Array *words = &arrays[0], *centers = &arrays[1], *lists = &arrays[2], *radii = &arrays[3];
    long long width;
    Assignment task = {0};
    size_t threads;
    const Level *level = get_level(args[0]);
    bool valid = level && get_threads(args[1], &threads) && get_array(args[2], "words", &type_uint64, words) &&
                 get_integer(args[3], "width", 1, MAX_BITS / 64, &width) && get_rows(words, (size_t)width, &task.n) &&
                 get_array(args[4], "centers", &type_uint64, centers) && get_lists(centers, (size_t)width, &task.lists) &&
                 get_output(args[5], "lists", &type_uint16, lists) && has_count(lists, task.n) &&
                 get_output(args[6], "radii", &type_uint16, radii) && has_count(radii, task.n) &&
                 is_separate(lists, arrays, 2) && is_separate(radii, arrays, 3);
    if (valid) {
        task.words = words->view.buf;
        task.centers = centers->view.buf;
        task.assigned = lists->view.buf;
        task.radii = radii->view.buf;
        task.width = (int)width;
        Py_BEGIN_ALLOW_THREADS
        rings_assign(level, &task, threads);
        Py_END_ALLOW_THREADS
    }
    release(arrays, 4);
    return valid ? Py_NewRef(Py_None) : NULL;
}

/* Check (words, n_bits, lists, radii, outer, starts, rows, sorted) and fill the task. */
static bool rings_checked(PyObject *const *args, Array arrays[7], Sorting *sorting)
{
    static const char *const names[] = {"words", "lists", "radii", "outer", "starts", "rows", "sorted"};
    const Type *types[] = {&type_uint64, &type_uint16, &type_uint16, &type_uint16, &type_uint32, &type_uint32, &type_uint64};
    long long n_bits;
    if (!get_array(args[0], names[0], types[0], &arrays[0]) || !get_integer(args[1], "n_bits", 1, MAX_BITS, &n_bits))
        return false;
    sorting->n_bits = (int)n_bits;
    sorting->width = (int)(n_bits + 63) / 64;
    if (!get_rows(&arrays[0], (size_t)sorting->width, &sorting->n))
        return false;
    if (sorting->n > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "words must have at most %lld rows, got %zu", (long long)UINT32_MAX, sorting->n);
        return false;
    }
    for (int i = 1; i < 7; i++)
        if (!(i < 3 ? get_array : get_output)(args[1 + i], names[i], types[i], &arrays[i]))
            return false;
    size_t n = sorting->n, lists = arrays[3].count;
    const size_t counts[] = {arrays[0].count, n, n, lists, times(lists, (size_t)n_bits + 1) + 1, n, arrays[0].count};
    for (int i = 1; i < 7; i++)
        if (!has_count(&arrays[i], counts[i]) || (i > 2 && !is_separate(&arrays[i], arrays, (size_t)i)))
            return false;
    sorting->lists = lists;
    sorting->words = arrays[0].view.buf;
    sorting->assigned = arrays[1].view.buf;
    sorting->radii = arrays[2].view.buf;
    sorting->outer = arrays[3].view.buf;
    sorting->starts = arrays[4].view.buf;
    sorting->rows = arrays[5].view.buf;
    sorting->sorted = arrays[6].view.buf;
    return true;
}

static PyObject *rings_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("rings", 8, n_args))
        return NULL;
    Array arrays[7] = {{0}};
    Sorting sorting;
    bool valid = rings_checked(args, arrays, &sorting), filled = true;
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        filled = rings_fill(&sorting);
        Py_END_ALLOW_THREADS
    }
    if (!filled)
        PyErr_Format(PyExc_ValueError, "lists must be below %zu and radii at most %d", sorting.lists, sorting.n_bits);
    release(arrays, 7);
    return valid && filled ? Py_NewRef(Py_None) : NULL;
}

static PyObject *matrix_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("matrix", 5, n_args))
        return NULL;
    Array arrays[3] = {{0}};
    Array *a = &arrays[0], *b = &arrays[1], *distances = &arrays[2];
    long long width;
    size_t n_a, n_b;
    const Level *level = get_level(args[0]);
    bool valid = level && get_array(args[1], "a", &type_uint64, a) && get_array(args[2], "b", &type_uint64, b) &&
                 get_integer(args[3], "width", 1, MAX_BITS / 64, &width) && get_rows(a, (size_t)width, &n_a) &&
                 get_rows(b, (size_t)width, &n_b) && get_output(args[4], "distances", &type_uint16, distances) &&
                 has_count(distances, times(n_a, n_b)) && is_separate(distances, arrays, 2);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        level->matrix(a->view.buf, n_a, b->view.buf, n_b, (int)width, distances->view.buf);
        Py_END_ALLOW_THREADS
    }
    release(arrays, 3);
    return valid ? Py_NewRef(Py_None) : NULL;
}

/* An output of a product, which may be None. */
static bool product_output(PyObject *object, const char *name, const Type *type, size_t count, Array *output)
{
    return object == Py_None || (get_output(object, name, type, output) && has_count(output, count));
}

/* Check (n, depth, columns, x, panels, bias, out, words) and fill the product. */
static bool product_checked(PyObject *const *args, Array arrays[5], Product *product)
{
    Array *x = &arrays[0], *panels = &arrays[1], *bias = &arrays[2], *out = &arrays[3], *words = &arrays[4];
    long long n, depth, columns;
    if (!get_integer(args[0], "n", 0, PY_SSIZE_T_MAX, &n) || !get_integer(args[1], "depth", 0, PY_SSIZE_T_MAX, &depth) ||
        !get_integer(args[2], "columns", 1, PY_SSIZE_T_MAX, &columns))
        return false;
    *product = (Product){.n = (size_t)n, .depth = (size_t)depth, .columns = (size_t)columns, .width = ((size_t)columns + 63) / 64};
    size_t padded = ((size_t)columns + PANEL - 1) / PANEL * PANEL;
    if (!get_array(args[3], "x", &type_float32, x) || !has_count(x, times(product->n, product->depth)) ||
        !get_array(args[4], "panels", &type_float32, panels) || !has_count(panels, times(padded, product->depth)) ||
        !get_array(args[5], "bias", &type_float32, bias) || !has_count(bias, padded) ||
        !product_output(args[6], "out", &type_float32, times(product->n, product->columns), out) ||
        !product_output(args[7], "words", &type_uint64, times(product->n, product->width), words))
        return false;
    if (args[6] == Py_None && args[7] == Py_None) { /* the size of an output also bounds n */
        PyErr_SetString(PyExc_TypeError, "out or words must be an array, got None for both");
        return false;
    }
    product->x = x->view.buf;
    product->panels = panels->view.buf;
    product->bias = bias->view.buf;
    product->out = out->view.buf;
    product->words = words->view.buf;
    return is_separate(out, arrays, 3) && is_separate(words, arrays, 4);
}

static PyObject *product_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    if (!has_arguments("product", 10, n_args))
        return NULL;
    Array arrays[5] = {{0}};
    Product product;
    size_t threads, bad = 0;
    const Level *level = get_level(args[0]);
    bool valid = level && get_threads(args[1], &threads) && product_checked(args + 2, arrays, &product);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        bad = product_run(level, &product, threads);
        Py_END_ALLOW_THREADS
    }
    release(arrays, 5);
    return valid ? PyLong_FromSize_t(bad) : NULL;
}

#define FUNCTION(name) #name, (PyCFunction)(void (*)(void))name##_py, METH_FASTCALL

static PyMethodDef methods[] = {
    {"levels", levels_py, METH_NOARGS, "Names of the instruction sets of this processor, fastest first."},
    {FUNCTION(segment), "segment(n, n_bits, words, ids, alive, tables, rings) -> handle"},
    {FUNCTION(search), "search(segment, level, queries, k, threads, path, budget, ids, distances) -> queries given up"},
    {FUNCTION(within),
     "within(segment, level, queries, radius, threads, path, budget) -> (given up, counts, ids, distances)"},
    {FUNCTION(weighted), "weighted(segment, level, queries, weights, k, threads, ids, distances): search by weighted distance"},
    {FUNCTION(certified), "certified(segment, level, queries, k, threads, rows, nanoseconds, gap, ids, distances, radii, gaps):"
                          " search lists up to limits"},
    {FUNCTION(table), "table(words, shift, width, starts, heads, tails, lows, uppers, samples): fill one table"},
    {FUNCTION(assign), "assign(level, threads, words, width, centers, lists, radii): find the nearest center of every code"},
    {FUNCTION(rings), "rings(words, n_bits, lists, radii, outer, starts, rows, sorted): sort codes by list and radius"},
    {FUNCTION(matrix), "matrix(level, a, b, width, distances): fill all distances"},
    {FUNCTION(product),
     "product(level, threads, n, depth, columns, x, panels, bias, out, words) -> first row that is not finite, or n"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "crossbit.kernels._native",
    .m_doc = "Compiled kernels over packed bits.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module);
}
