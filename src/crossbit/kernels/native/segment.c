#include "segment.h"

#include "places.h"

#include <limits.h>
#include <stdlib.h>

#define CAPSULE "crossbit.kernels.segment"
#define MAX_REST 48 /* bits of a code without the key of a table */

static void segment_free(Segment *segment)
{
    release(segment->arrays, segment->n_arrays);
    free(segment);
}

static void segment_delete(PyObject *capsule)
{
    segment_free(PyCapsule_GetPointer(capsule, CAPSULE));
}

/* Hold an array of `count` elements for the lifetime of the segment; NULL with an exception set. */
static const Array *hold(Segment *segment, PyObject *object, const char *name, const Type *type, size_t count)
{
    Array *array = &segment->arrays[segment->n_arrays++];
    return get_array(object, name, type, array) && has_count(array, count) ? array : NULL;
}

/* The bit after the last key. */
static int keys_end(const Tables *tables)
{
    if (tables->count == 0)
        return 0;
    const Table *last = &tables->table[tables->count - 1];
    return last->shift + last->width;
}

/* One table from a tuple (shift, width, starts, heads, tails, lows, uppers, samples). The keys of all tables are
 * consecutive bits from bit 0 on. The contents of the arrays are checked where they are read. */
static bool hold_table(Segment *segment, PyObject *item)
{
    Tables *tables = &segment->tables;
    Table *table = &tables->table[tables->count];
    size_t n = segment->rows.n;
    int n_bits = segment->rows.n_bits, begin = keys_end(tables);
    long long shift, width;
    if (!PyTuple_Check(item) || PyTuple_Size(item) != 2 + TABLE_ARRAYS) {
        PyErr_SetString(PyExc_TypeError,
                        "a table must be a tuple (shift, width, starts, heads, tails, lows, uppers, samples)");
        return false;
    }
    if (begin == n_bits) {
        PyErr_Format(PyExc_ValueError, "tables must divide the %d bits of a code, got a table beyond them", n_bits);
        return false;
    }
    int least = n_bits - MAX_REST > 1 ? n_bits - MAX_REST : 1, most = n_bits - begin < MAX_KEY ? n_bits - begin : MAX_KEY;
    if (!get_integer(PyTuple_GetItem(item, 0), "shift", begin, begin, &shift) ||
        !get_integer(PyTuple_GetItem(item, 1), "width", least, most, &width))
        return false;
    static const char *const names[TABLE_ARRAYS] = {"starts", "heads", "tails", "lows", "uppers", "samples"};
    const Type *types[TABLE_ARRAYS] = {&type_uint32, &type_uint32, &type_uint16, &type_uint8, &type_uint64, &type_uint32};
    size_t counts[TABLE_ARRAYS] = TABLE_COUNTS(n, (int)width);
    const void *data[TABLE_ARRAYS];
    for (int i = 0; i < TABLE_ARRAYS; i++) {
        const Array *array = hold(segment, PyTuple_GetItem(item, 2 + i), names[i], types[i], counts[i]);
        if (!array)
            return false;
        data[i] = array->view.buf;
    }
    *table = (Table){.starts = data[0], .heads = data[1], .tails = data[2], .lows = data[3], .uppers = data[4],
                     .samples = data[5], .shift = (int)shift, .width = (int)width};
    tables->count++;
    return true;
}

static bool hold_tables(Segment *segment, PyObject *tables)
{
    Py_ssize_t count = PyTuple_Check(tables) ? PyTuple_Size(tables) : -1;
    if (count < 0) {
        PyErr_SetString(PyExc_TypeError, "tables must be a tuple of tuples");
        return false;
    }
    if (count > 0 && (count > MAX_TABLES || segment->rows.n_bits > 64)) {
        PyErr_Format(PyExc_ValueError, "tables: expected at most %d for codes of at most 64 bits, got %zd for %d bits",
                     MAX_TABLES, count, segment->rows.n_bits);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!hold_table(segment, PyTuple_GetItem(tables, i)))
            return false;
    int end = keys_end(&segment->tables);
    if (count == 0 || end == segment->rows.n_bits)
        return true;
    PyErr_Format(PyExc_ValueError, "tables must divide all %d bits of a code, got keys of %d bits", segment->rows.n_bits, end);
    return false;
}

/* Lists around centers from a tuple (centers, outer, starts, words, rows). The contents of the arrays
 * are checked where they are read. */
static bool hold_rings(Segment *segment, PyObject *item)
{
    if (item == Py_None)
        return true;
    if (!PyTuple_Check(item) || PyTuple_Size(item) != RING_ARRAYS) {
        PyErr_SetString(PyExc_TypeError, "rings must be None or a tuple (centers, outer, starts, words, rows)");
        return false;
    }
    const size_t n = segment->rows.n, width = (size_t)segment->rows.width;
    Array *centers = &segment->arrays[segment->n_arrays++];
    size_t lists;
    if (!get_array(PyTuple_GetItem(item, 0), "centers", &type_uint64, centers) ||
        !get_lists(centers, width, &lists))
        return false;
    size_t rings = lists * ((size_t)segment->rows.n_bits + 1);
    const Array *outer = hold(segment, PyTuple_GetItem(item, 1), "outer", &type_uint16, lists);
    const Array *starts = outer ? hold(segment, PyTuple_GetItem(item, 2), "starts", &type_uint32, rings + 1) : NULL;
    const Array *words = starts ? hold(segment, PyTuple_GetItem(item, 3), "words", &type_uint64, times(n, width)) : NULL;
    const Array *rows = words ? hold(segment, PyTuple_GetItem(item, 4), "rows", &type_uint32, n) : NULL;
    if (!rows)
        return false;
    segment->rings = (Rings){.centers = centers->view.buf, .outer = outer->view.buf, .starts = starts->view.buf,
                             .words = words->view.buf, .rows = rows->view.buf, .lists = lists};
    return true;
}

/* Ids: an array, or the first of consecutive ids, or a tuple (first, differences to it). */
static bool hold_ids(Segment *segment, PyObject *ids)
{
    size_t n = segment->rows.n;
    if (!PyTuple_Check(ids) && !PyLong_Check(ids)) {
        const Array *array = hold(segment, ids, "ids", &type_int64, n);
        segment->ids = array ? array->view.buf : NULL;
        return array;
    }
    long long first;
    bool consecutive = PyLong_Check(ids);
    if (!consecutive && PyTuple_Size(ids) != 2) {
        PyErr_SetString(PyExc_TypeError, "ids must be an array, an integer or a tuple (first, differences)");
        return false;
    }
    if (!get_integer(consecutive ? ids : PyTuple_GetItem(ids, 0), "the first id", 0, LLONG_MAX - UINT32_MAX, &first))
        return false;
    segment->first_id = first;
    if (consecutive)
        return true;
    const Array *array = hold(segment, PyTuple_GetItem(ids, 1), "differences of ids", &type_uint32, n);
    segment->offsets = array ? array->view.buf : NULL;
    return array;
}

static bool hold_all(Segment *segment, PyObject *words, PyObject *ids, PyObject *alive, PyObject *tables, PyObject *rings)
{
    Rows *rows = &segment->rows;
    const Array *array = hold(segment, words, "words", &type_uint64, times(rows->n, (size_t)rows->width));
    if (!array)
        return false;
    rows->words = array->view.buf;
    if (!hold_ids(segment, ids))
        return false;
    if (alive != Py_None) {
        array = hold(segment, alive, "alive", &type_uint64, (rows->n + 63) / 64);
        if (!array)
            return false;
        rows->alive = array->view.buf;
    }
    return hold_tables(segment, tables) && hold_rings(segment, rings);
}

PyObject *segment_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    long long n, n_bits;
    if (!has_arguments("segment", 7, n_args) || !get_integer(args[0], "n", 0, UINT32_MAX, &n) ||
        !get_integer(args[1], "n_bits", 1, MAX_BITS, &n_bits))
        return NULL;
    Segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return PyErr_NoMemory();
    segment->rows = (Rows){.n = (size_t)n, .n_bits = (int)n_bits, .width = (int)(n_bits + 63) / 64};
    bool held = hold_all(segment, args[2], args[3], args[4], args[5], args[6]);
    PyObject *capsule = held ? PyCapsule_New(segment, CAPSULE, segment_delete) : NULL;
    if (!capsule)
        segment_free(segment);
    return capsule;
}

const Segment *segment_get(PyObject *handle)
{
    if (PyCapsule_IsValid(handle, CAPSULE))
        return PyCapsule_GetPointer(handle, CAPSULE);
    PyErr_SetString(PyExc_TypeError, "segment must be a result of the function segment");
    return NULL;
}
