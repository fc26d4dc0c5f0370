/* Python interface: unpacks buffers, checks all sizes, releases the GIL, calls kernels, packs results. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"
#include "search.h"

#define SEGMENT "crossbit.kernels.segment"
#define NO_BUDGET UINT64_MAX

/* A segment: pointers into arrays, which it keeps alive by holding their buffers. */
typedef struct {
    Rows rows;
    const int64_t *ids;
    Tables tables;
    Py_buffer buffers[3 + 4 * MAX_TABLES];
    int n_buffers;
} Segment;

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
static const Level *level_at(int place)
{
    const Level *const *level = levels();
    for (int i = 0; level[i]; i++)
        if (i == place)
            return level[i];
    PyErr_Format(PyExc_ValueError, "no level %d", place);
    return NULL;
}

static bool has_bytes(const Py_buffer *buffer, size_t bytes, const char *what)
{
    if ((size_t)buffer->len >= bytes)
        return true;
    PyErr_Format(PyExc_ValueError, "%s: %zu bytes expected, got %zd", what, bytes, buffer->len);
    return false;
}

static void segment_free(Segment *segment)
{
    for (int i = 0; i < segment->n_buffers; i++)
        PyBuffer_Release(&segment->buffers[i]);
    free(segment);
}

static void segment_delete(PyObject *capsule)
{
    segment_free(PyCapsule_GetPointer(capsule, SEGMENT));
}

/* Hold a buffer of at least `bytes` bytes for the lifetime of the segment; NULL with an exception
 * set. */
static const void *hold(Segment *segment, PyObject *object, size_t bytes, const char *what)
{
    Py_buffer *buffer = &segment->buffers[segment->n_buffers];
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    segment->n_buffers++;
    return has_bytes(buffer, bytes, what) ? buffer->buf : NULL;
}

/* One table from a tuple (shift, width, starts, heads, tails, rows). */
static bool hold_table(Segment *segment, PyObject *item, size_t n)
{
    PyObject *starts, *heads, *tails, *rows;
    Table *table = &segment->tables.table[segment->tables.count];
    if (segment->tables.count == MAX_TABLES || !PyTuple_Check(item)) {
        PyErr_SetString(PyExc_ValueError, "tables: a tuple of at most 8 tuples expected");
        return false;
    }
    if (!PyArg_ParseTuple(item, "iiOOOO", &table->shift, &table->width, &starts, &heads, &tails, &rows))
        return false;
    if (table->width < 1 || table->width > 30 || table->shift < 0 || table->shift + table->width > 64) {
        PyErr_SetString(PyExc_ValueError, "a table's key lies within 64 bits and has at most 30");
        return false;
    }
    table->starts = hold(segment, starts, (((size_t)1 << table->width) + 1) * sizeof *table->starts, "starts");
    table->heads = table->starts ? hold(segment, heads, (n + 16) * sizeof *table->heads, "heads") : NULL;
    table->tails = table->heads ? hold(segment, tails, (n + 16) * sizeof *table->tails, "tails") : NULL;
    table->rows = table->tails ? hold(segment, rows, n * sizeof *table->rows, "rows") : NULL;
    segment->tables.count++;
    return table->rows != NULL;
}

static bool hold_all(Segment *segment, PyObject *words, PyObject *ids, PyObject *alive, PyObject *tables)
{
    Rows *rows = &segment->rows;
    size_t n = rows->n;
    rows->words = hold(segment, words, n * (size_t)rows->width * sizeof *rows->words, "words");
    if (!rows->words || !(segment->ids = hold(segment, ids, n * sizeof *segment->ids, "ids")))
        return false;
    if (alive != Py_None && !(rows->alive = hold(segment, alive, (n + 63) / 64 * sizeof *rows->alive, "alive")))
        return false;
    Py_ssize_t count = PyTuple_Size(tables);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!hold_table(segment, PyTuple_GetItem(tables, i), n))
            return false;
    return count >= 0;
}

static PyObject *segment_py(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *words, *ids, *alive, *tables;
    Py_ssize_t n;
    int n_bits;
    if (!PyArg_ParseTuple(args, "niOOOO", &n, &n_bits, &words, &ids, &alive, &tables))
        return NULL;
    if (n < 0 || (uint64_t)n > UINT32_MAX || n_bits < 1 || n_bits > MAX_BITS)
        return PyErr_Format(PyExc_ValueError, "a segment has up to 2^32 - 1 codes of 1 to 1024 bits");
    Segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return PyErr_NoMemory();
    segment->rows = (Rows){.n = (size_t)n, .n_bits = n_bits, .width = (n_bits + 63) / 64};
    PyObject *capsule = hold_all(segment, words, ids, alive, tables) ? PyCapsule_New(segment, SEGMENT, segment_delete) : NULL;
    if (!capsule)
        segment_free(segment);
    return capsule;
}

/* Shared by search and within. */
typedef struct {
    const Segment *segment;
    Plan plan;
    Py_buffer queries;
    Found found;
} Call;

/* Check the arguments and run the plan without the GIL; false with an exception set. */
static bool run(Call *call, PyObject *capsule, int level, int threads, int path, unsigned long long budget)
{
    Plan *plan = &call->plan;
    call->segment = PyCapsule_GetPointer(capsule, SEGMENT);
    plan->level = call->segment ? level_at(level) : NULL;
    if (!plan->level)
        return false;
    plan->rows = call->segment->rows;
    plan->tables = &call->segment->tables;
    plan->path = (Path)path;
    if (threads < 1 || path < PATH_SCAN || path > PATH_MULTI ||
        (path == PATH_MULTI && (!plan->tables->count || plan->rows.n_bits > 64))) {
        PyErr_SetString(PyExc_ValueError, "threads ≥ 1 and a path that the segment is ready for expected");
        return false;
    }
    plan->threads = (size_t)threads;
    plan->budget = budget;
    plan->queries = call->queries.buf;
    plan->n_queries = (size_t)call->queries.len / ((size_t)plan->rows.width * sizeof *plan->queries);
    bool done;
    Py_BEGIN_ALLOW_THREADS
    done = search(plan, &call->found);
    Py_END_ALLOW_THREADS
    if (!done)
        PyErr_NoMemory();
    return done;
}

/* Write the result of a query: ids and distances of its n keys, padded with −1 up to k. */
static void write_matches(const Segment *segment, const uint64_t *keys, size_t n, size_t k, int64_t *ids, int32_t *distances)
{
    for (size_t j = 0; j < n; j++) {
        ids[j] = segment->ids[(uint32_t)keys[j]];
        distances[j] = (int32_t)(keys[j] >> 32);
    }
    for (size_t j = n; j < k; j++) {
        ids[j] = -1;
        distances[j] = -1;
    }
}

static PyObject *search_py(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule, *answer = NULL;
    Py_buffer ids, distances;
    Py_ssize_t k;
    int level, threads, path;
    unsigned long long budget;
    Call call = {0};
    if (!PyArg_ParseTuple(args, "Oiy*niiKw*w*", &capsule, &level, &call.queries, &k, &threads, &path, &budget, &ids, &distances))
        return NULL;
    call.plan.k = (size_t)k;
    if (k < 1)
        PyErr_SetString(PyExc_ValueError, "k ≥ 1 expected");
    else if (run(&call, capsule, level, threads, path, budget) &&
             has_bytes(&ids, call.plan.n_queries * (size_t)k * sizeof(int64_t), "ids") &&
             has_bytes(&distances, call.plan.n_queries * (size_t)k * sizeof(int32_t), "distances")) {
        Py_ssize_t given_up = 0;
        for (size_t i = 0; i < call.plan.n_queries; i++) {
            int32_t *own = (int32_t *)distances.buf + i * (size_t)k;
            write_matches(call.segment, call.found.keys[i], call.found.n[i], (size_t)k, (int64_t *)ids.buf + i * (size_t)k, own);
            if (call.found.given_up[i]) {
                own[0] = -2;
                given_up++;
            }
        }
        answer = PyLong_FromSsize_t(given_up);
    }
    found_free(&call.found);
    PyBuffer_Release(&call.queries);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&distances);
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

static PyObject *within_py(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule;
    int level, threads, path;
    unsigned long long budget;
    Call call = {0};
    if (!PyArg_ParseTuple(args, "Oiy*iiiK", &capsule, &level, &call.queries, &call.plan.radius, &threads, &path, &budget))
        return NULL;
    PyObject *answer = run(&call, capsule, level, threads, path, budget) ? pack_found(&call) : NULL;
    found_free(&call.found);
    PyBuffer_Release(&call.queries);
    return answer;
}

static PyObject *table_py(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer words, starts, heads, tails, rows;
    int shift, width;
    if (!PyArg_ParseTuple(args, "y*iiw*w*w*w*", &words, &shift, &width, &starts, &heads, &tails, &rows))
        return NULL;
    size_t n = (size_t)words.len / sizeof(uint64_t);
    bool fits = shift >= 0 && width >= 1 && width <= 30 && shift + width <= 64;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "a table's key lies within 64 bits and has at most 30");
    fits = fits && has_bytes(&starts, (((size_t)1 << width) + 1) * sizeof(uint32_t), "starts") &&
           has_bytes(&heads, (n + 16) * sizeof(uint32_t), "heads") && has_bytes(&tails, (n + 16) * sizeof(uint16_t), "tails") &&
           has_bytes(&rows, n * sizeof(uint32_t), "rows");
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        table_fill(words.buf, n, shift, width, starts.buf, heads.buf, tails.buf, rows.buf);
        Py_END_ALLOW_THREADS
    }
    Py_buffer *held[] = {&words, &starts, &heads, &tails, &rows};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        PyBuffer_Release(held[i]);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *matrix_py(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer a, b, distances;
    int place, width;
    if (!PyArg_ParseTuple(args, "iy*y*iw*", &place, &a, &b, &width, &distances))
        return NULL;
    const Level *level = level_at(place);
    size_t bytes = (size_t)(width > 0 ? width : 1) * sizeof(uint64_t), n_a = (size_t)a.len / bytes, n_b = (size_t)b.len / bytes;
    bool fits = level && width > 0 && has_bytes(&distances, n_a * n_b * sizeof(uint16_t), "distances");
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        level->matrix(a.buf, n_a, b.buf, n_b, width, distances.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    PyBuffer_Release(&distances);
    if (!fits) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "width ≥ 1 expected");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* An optional writable buffer. */
static bool get_writable(PyObject *object, Py_buffer *buffer, size_t bytes, const char *what)
{
    *buffer = (Py_buffer){0};
    if (object == Py_None)
        return true;
    return PyObject_GetBuffer(object, buffer, PyBUF_WRITABLE) == 0 && has_bytes(buffer, bytes, what);
}

static PyObject *product_py(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer x, panels, bias, out = {0}, words = {0};
    PyObject *out_object, *words_object;
    int place, threads;
    Py_ssize_t n, depth, columns;
    if (!PyArg_ParseTuple(args, "iinnny*y*y*OO", &place, &threads, &n, &depth, &columns, &x, &panels, &bias, &out_object,
                          &words_object))
        return NULL;
    const Level *level = level_at(place);
    bool fits = level && n >= 0 && depth >= 0 && columns > 0 && threads > 0;
    if (level && !fits)
        PyErr_SetString(PyExc_ValueError, "sizes ≥ 0, columns and threads ≥ 1 expected");
    size_t all = fits ? ((size_t)columns + PANEL - 1) / PANEL * PANEL : 0;
    Product product = {.n = (size_t)n, .depth = (size_t)depth, .columns = (size_t)columns, .width = ((size_t)columns + 63) / 64};
    fits = fits && has_bytes(&x, product.n * product.depth * sizeof(float), "x") &&
           has_bytes(&panels, all * product.depth * sizeof(float), "panels") &&
           has_bytes(&bias, all * sizeof(float), "bias") &&
           get_writable(out_object, &out, product.n * product.columns * sizeof(float), "out") &&
           get_writable(words_object, &words, product.n * product.width * sizeof(uint64_t), "words");
    size_t bad = 0;
    if (fits) {
        product.x = x.buf, product.panels = panels.buf, product.bias = bias.buf, product.out = out.buf, product.words = words.buf;
        Py_BEGIN_ALLOW_THREADS
        bad = product_run(level, &product, (size_t)threads);
        Py_END_ALLOW_THREADS
    }
    Py_buffer *held[] = {&x, &panels, &bias, &out, &words};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (held[i]->obj)
            PyBuffer_Release(held[i]);
    return fits ? PyLong_FromSize_t(bad) : NULL;
}

static PyMethodDef methods[] = {
    {"levels", levels_py, METH_NOARGS, "Names of the instruction sets of this processor, fastest first."},
    {"segment", segment_py, METH_VARARGS, "segment(n, n_bits, words, ids, alive, tables) -> handle"},
    {"search", search_py, METH_VARARGS,
     "search(segment, level, queries, k, threads, path, budget, ids, distances) -> queries given up"},
    {"within", within_py, METH_VARARGS,
     "within(segment, level, queries, radius, threads, path, budget) -> (given up, counts, ids, distances)"},
    {"table", table_py, METH_VARARGS, "table(words, shift, width, starts, heads, tails, rows): fill one table"},
    {"matrix", matrix_py, METH_VARARGS, "matrix(level, a, b, width, distances): fill all distances"},
    {"product", product_py, METH_VARARGS,
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
