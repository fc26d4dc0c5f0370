/* A segment as a Python object: codes, ids and tables, whose arrays it keeps alive. */
#ifndef CROSSBIT_SEGMENT_H
#define CROSSBIT_SEGMENT_H

#include "arguments.h"
#include "search.h"

#define RING_ARRAYS 5
#define TABLE_ARRAYS 6
#define MAX_KEY 30 /* bits of a table's key */

/* Pointers into arrays, whose buffers are held until the object is deleted. */
typedef struct {
    Rows rows;
    const int64_t *ids;           /* NULL: see offsets */
    const uint32_t *offsets;      /* ids minus first_id; NULL: ids are consecutive from first_id on */
    int64_t first_id;
    Tables tables;
    Rings rings;
    Array arrays[3 + TABLE_ARRAYS * MAX_TABLES + RING_ARRAYS];
    size_t n_arrays;
} Segment;

/* The id of a row. */
INLINE int64_t id_of(const Segment *segment, uint32_t row)
{
    if (segment->ids)
        return segment->ids[row];
    return segment->first_id + (segment->offsets ? segment->offsets[row] : row);
}

/* segment(n, n_bits, words, ids, alive, tables, rings) -> handle; ids are an array, or the first of
 * consecutive ids, or a tuple (first, differences to it) */
PyObject *segment_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args);

/* The segment of a handle; NULL with an exception set. */
const Segment *segment_get(PyObject *handle);

#endif
