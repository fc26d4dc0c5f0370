/* Arguments of the Python functions: integers and arrays, checked before a kernel reads them. */
#ifndef CROSSBIT_ARGUMENTS_H
#define CROSSBIT_ARGUMENTS_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element type of an array: its name in NumPy, the codes of the struct module, its size in bytes. */
typedef struct {
    const char *name;
    const char *codes;
    Py_ssize_t size;
} Type;

extern const Type type_uint8, type_uint64, type_int64, type_uint32, type_int32, type_uint16, type_float32;

/* An array argument. Holding its buffer keeps the memory in place while the GIL is released. */
typedef struct {
    const char *name;
    Py_buffer view;
    size_t count; /* elements */
} Array;

/* All functions that return bool return false with a TypeError or ValueError set, which names the
 * argument, what was expected and what was given. */

bool has_arguments(const char *function, Py_ssize_t expected, Py_ssize_t given);

bool get_integer(PyObject *object, const char *name, long long least, long long most, long long *value);

/* Hold the buffer of a C-contiguous array of one type in native byte order, aligned for that type.
 * Pass the array to `release` in either case. */
bool get_array(PyObject *object, const char *name, const Type *type, Array *array);

/* The same for an array that the function writes. */
bool get_output(PyObject *object, const char *name, const Type *type, Array *array);

bool has_count(const Array *array, size_t count);

/* The number of rows of `width` elements, which must divide the array. */
bool get_rows(const Array *array, size_t width, size_t *rows);

/* The number of centers of `width` words: a multiple of CENTERS, at most MAX_LISTS. */
bool get_lists(const Array *centers, size_t width, size_t *lists);

/* Whether an output shares no byte with other arrays. */
bool is_separate(const Array *output, const Array *others, size_t n_others);

/* Release the buffers that are held. */
void release(Array *arrays, size_t n);

#endif
