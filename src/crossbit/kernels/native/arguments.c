#include "arguments.h"

#include <string.h>

#include "common.h"

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE_ORDER '<'
#else
#define NATIVE_ORDER '>'
#endif

const Type type_uint8 = {"uint8", "B", 1}, type_uint64 = {"uint64", "LQ", 8}, type_int64 = {"int64", "lq", 8}, type_uint32 = {"uint32", "IL", 4},
           type_int32 = {"int32", "il", 4}, type_uint16 = {"uint16", "H", 2}, type_float32 = {"float32", "f", 4};

bool has_arguments(const char *function, Py_ssize_t expected, Py_ssize_t given)
{
    if (given == expected)
        return true;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", function, expected, given);
    return false;
}

/* TypeError: "NAME must be EXPECTED, got TYPE". */
static void wrong_type(PyObject *object, const char *name, const char *prefix, const char *expected)
{
    PyObject *given = PyType_GetName(Py_TYPE(object));
    if (given)
        PyErr_Format(PyExc_TypeError, "%s must be %s%s, got %U", name, prefix, expected, given);
    Py_XDECREF(given);
}

bool get_integer(PyObject *object, const char *name, long long least, long long most, long long *value)
{
    if (!PyIndex_Check(object)) {
        wrong_type(object, name, "an ", "integer");
        return false;
    }
    PyObject *index = PyNumber_Index(object);
    if (!index)
        return false;
    int overflow;
    *value = PyLong_AsLongLongAndOverflow(index, &overflow);
    bool valid = !overflow && !PyErr_Occurred() && *value >= least && *value <= most;
    if (!valid && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%s must be an integer from %lld to %lld, got %R", name, least, most, index);
    Py_DECREF(index);
    return valid;
}

static bool has_type(const Py_buffer *view, const Type *type)
{
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=' || *format == NATIVE_ORDER)
        format++;
    return *format && !format[1] && strchr(type->codes, *format) && view->itemsize == type->size;
}

bool get_array(PyObject *object, const char *name, const Type *type, Array *array)
{
    Py_buffer *view = &array->view;
    if (PyObject_GetBuffer(object, view, PyBUF_RECORDS_RO) < 0) {
        PyErr_Clear();
        view->obj = NULL;
        wrong_type(object, name, "an array of ", type->name);
        return false;
    }
    array->name = name;
    if (!has_type(view, type))
        PyErr_Format(PyExc_TypeError, "%s must be an array of %s, got elements of %zd bytes with format '%s'", name,
                     type->name, view->itemsize, view->format ? view->format : "B");
    else if (!PyBuffer_IsContiguous(view, 'C'))
        PyErr_Format(PyExc_ValueError, "%s must be C-contiguous, got a strided array", name);
    else if (view->len && (uintptr_t)view->buf % (uintptr_t)type->size)
        PyErr_Format(PyExc_ValueError, "%s must be aligned to %zd bytes, got a misaligned array", name, type->size);
    else {
        array->count = (size_t)(view->len / type->size);
        return true;
    }
    return false;
}

bool get_output(PyObject *object, const char *name, const Type *type, Array *array)
{
    if (!get_array(object, name, type, array))
        return false;
    if (!array->view.readonly)
        return true;
    PyErr_Format(PyExc_ValueError, "%s must be writable, got a read-only array", name);
    return false;
}

bool has_count(const Array *array, size_t count)
{
    if (array->count == count)
        return true;
    if (count == SIZE_MAX)
        PyErr_Format(PyExc_ValueError, "%s would need more elements than memory can hold, got %zu", array->name, array->count);
    else
        PyErr_Format(PyExc_ValueError, "%s must have %zu elements, got %zu", array->name, count, array->count);
    return false;
}

bool get_rows(const Array *array, size_t width, size_t *rows)
{
    *rows = array->count / width;
    if (*rows * width == array->count)
        return true;
    PyErr_Format(PyExc_ValueError, "%s must have rows of %zu elements, got %zu elements", array->name, width, array->count);
    return false;
}

bool get_lists(const Array *centers, size_t width, size_t *lists)
{
    if (!get_rows(centers, width, lists))
        return false;
    if (*lists > 0 && *lists <= MAX_LISTS && *lists % CENTERS == 0)
        return true;
    PyErr_Format(PyExc_ValueError, "%s must have a multiple of %d rows, from %d to %d, got %zu", centers->name, CENTERS,
                 CENTERS, MAX_LISTS, *lists);
    return false;
}

/* Whether two buffers share a byte. */
static bool overlap(const Py_buffer *a, const Py_buffer *b)
{
    uintptr_t begin_a = (uintptr_t)a->buf, begin_b = (uintptr_t)b->buf;
    return a->len && b->len && begin_a < begin_b + (uintptr_t)b->len && begin_b < begin_a + (uintptr_t)a->len;
}

bool is_separate(const Array *output, const Array *others, size_t n_others)
{
    for (size_t i = 0; i < n_others; i++)
        if (overlap(&output->view, &others[i].view)) {
            PyErr_Format(PyExc_ValueError, "%s must not share memory with %s", output->name, others[i].name);
            return false;
        }
    return true;
}

void release(Array *arrays, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (arrays[i].view.obj)
            PyBuffer_Release(&arrays[i].view);
}
