/* A segment as a Python object: codes, ids and tables, whose arrays it keeps alive. */
#ifndef CROSSBIT_SEGMENT_H
#define CROSSBIT_SEGMENT_H

#include "arguments.h"
#include "search.h"

#define RING_ARRAYS 5
#define MAX_KEY 30 /* bits of a table's key */

/* Pointers into arrays, whose buffers are held until the object is deleted. */
typedef struct {
    Rows rows;
    const int64_t *ids;
    Tables tables;
    Rings rings;
    Array arrays[3 + 4 * MAX_TABLES + RING_ARRAYS];
    size_t n_arrays;
} Segment;

/* segment(n, n_bits, words, ids, alive, tables, rings) -> handle */
PyObject *segment_py(PyObject *self, PyObject *const *args, Py_ssize_t n_args);

/* The segment of a handle; NULL with an exception set. */
const Segment *segment_get(PyObject *handle);

#endif
