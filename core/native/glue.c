/* The interface between Python and the kernels' machine code: an extension module of the stable ABI.

   A call is checked against its kernel's parameters (kernels.h, written by `glue.py`) before any code runs:

   1. an array must have exactly the expected dtype and dimensions, and contiguous, aligned items; it must be writable
      if the kernel writes it; a column may have any stride;
   2. a number must be an integer of 64 bits;
   3. anything else raises a TypeError (OverflowError for a number) that names kernel and parameter.

   Then addresses and counts go to the kernel as words, without the GIL; the buffers are held until it is done. The
   kernel and its caller are responsible for counts and positions that fit each other.

   Python's headers are not needed: the part of the stable ABI (3.11) that is used is declared below. */

#include <stddef.h>
#include <stdint.h>

typedef intptr_t Py_ssize_t;
typedef struct _object PyObject;
typedef struct {
  void *buf;
  PyObject *obj;
  Py_ssize_t len, itemsize;
  int readonly, ndim;
  char *format;
  Py_ssize_t *shape, *strides, *suboffsets;
  void *internal;
} Py_buffer;
typedef struct {
  const char *name;
  PyObject *(*call)(PyObject *, PyObject *const *, Py_ssize_t);
  int flags;
  const char *documentation;
} PyMethodDef;
typedef struct {
  struct { Py_ssize_t references; void *type; } head;
  void *init;
  Py_ssize_t index;
  PyObject *copy;
} PyModuleDef_Base;
typedef struct {
  PyModuleDef_Base base;
  const char *name, *documentation;
  Py_ssize_t size;
  PyMethodDef *methods;
  void *slots, *traverse, *clear, *free;
} PyModuleDef;

extern PyObject *PyExc_ImportError, *PyExc_OverflowError, *PyExc_RuntimeError, *PyExc_TypeError;
extern PyObject _Py_NoneStruct, _Py_TrueStruct, _Py_FalseStruct;

extern PyObject *PyBool_FromLong(long);
extern void PyBuffer_Release(Py_buffer *);
extern void PyErr_Clear(void);
extern int PyErr_ExceptionMatches(PyObject *);
extern PyObject *PyErr_Format(PyObject *, const char *, ...);
extern PyObject *PyErr_Occurred(void);
extern void PyEval_RestoreThread(void *);
extern void *PyEval_SaveThread(void);
extern PyObject *PyLong_FromLongLong(long long);
extern long long PyLong_AsLongLong(PyObject *);
extern int PyModule_AddObjectRef(PyObject *, const char *, PyObject *);
extern int PyModule_AddStringConstant(PyObject *, const char *, const char *);
extern PyObject *PyModule_Create2(PyModuleDef *, int);
extern PyObject *PyObject_GetAttr(PyObject *, PyObject *);
extern int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
extern int PyObject_IsTrue(PyObject *);
extern int PyObject_RichCompareBool(PyObject *, PyObject *, int);
extern PyObject *PyObject_Type(PyObject *);
extern PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
extern PyObject *PyTuple_New(Py_ssize_t);
extern int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
extern Py_ssize_t PyTuple_Size(PyObject *);
extern PyObject *PyUnicode_InternFromString(const char *);
extern void Py_DecRef(PyObject *);
extern void Py_IncRef(PyObject *);

#define PyBUF_SIMPLE 0
#define PyBUF_STRIDES 0x18
#define METH_FASTCALL 0x80
#define Py_EQ 2
#define PYTHON_API_VERSION 1013

enum Kind { NUMBER, TRUTH, VECTOR, COLUMN, TABLE, ROW, TUPLE };

typedef struct {
  const char *name;
  enum Kind kind;
  int item;     /* place in ITEM_NAMES */
  int writable;
  int width;    /* columns of a table, parts of a tuple (their rows follow) */
} Parameter;

typedef struct {
  const char *name;
  int32_t (*code)(const int64_t *words, int64_t *results);
  int count; /* parameters, a tuple being one */
  const Parameter *parameters;
  const char *results; /* v nothing, i number, b truth, ( and then each of a tuple */
} Kernel;

static PyObject *call(const Kernel *, PyObject *const *, Py_ssize_t);
static PyObject *bind(PyObject *, PyObject *const *, Py_ssize_t);

#include "kernels.h"

enum { MOST_PARAMETERS = 64, MOST_WORDS = 3 * MOST_ARRAYS + MOST_PARAMETERS, MOST_RESULTS = 16 };

/* The state of a call. */
typedef struct {
  const Kernel *kernel;
  int words, views;
  int64_t word[MOST_WORDS];
  Py_buffer view[MOST_ARRAYS];
} Call;

static PyObject *types[ITEMS];      /* dtypes, set by `bind` */
static Py_ssize_t item_bytes[ITEMS];
static Py_ssize_t alignments[ITEMS];
static PyObject *name_of_dtype, *name_of_flags, *name_of_writeable, *name_of_itemsize, *name_of_alignment, *name_of_name;

/* Raises "KERNEL: PARAMETER: REASON"; %s in the reason stands for the name of `object`'s type. */
static int refuse(const Call *c, const Parameter *p, const char *reason, PyObject *object) {
  PyErr_Clear();
  if (object) {
    PyObject *type = PyObject_Type(object), *name = type ? PyObject_GetAttr(type, name_of_name) : 0;
    if (name) PyErr_Format(PyExc_TypeError, "%s: %s: %s, not %U", c->kernel->name, p->name, reason, name);
    if (name) Py_DecRef(name);
    if (type) Py_DecRef(type);
  } else {
    PyErr_Format(PyExc_TypeError, "%s: %s: %s", c->kernel->name, p->name, reason);
  }
  return 0;
}

static int take_number(Call *c, const Parameter *p, PyObject *given) {
  long long number = PyLong_AsLongLong(given);
  if (number == -1 && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return refuse(c, p, "a whole number is wanted", given);
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s: %s: the number does not fit 64 bits", c->kernel->name, p->name);
    return 0;
  }
  c->word[c->words++] = number;
  return 1;
}

static int take_truth(Call *c, const Parameter *p, PyObject *given) {
  int truth;
  if (given == &_Py_TrueStruct || given == &_Py_FalseStruct) {
    truth = given == &_Py_TrueStruct;
  } else {
    /* a number, or NumPy's bool, which has a dtype and is not a number */
    long long number = PyLong_AsLongLong(given);
    truth = number != 0;
    if (number == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      PyObject *dtype = PyObject_GetAttr(given, name_of_dtype);
      truth = dtype ? PyObject_IsTrue(given) : -1;
      if (dtype) Py_DecRef(dtype);
      if (truth < 0) return refuse(c, p, "a truth value is wanted", given);
    }
  }
  c->word[c->words++] = truth;
  return 1;
}

/* Returns whether `given` is an array, or a row, of the expected dtype. */
static int has_type(Call *c, const Parameter *p, PyObject *given) {
  PyObject *wanted = types[p->item], *found = PyObject_GetAttr(given, name_of_dtype);
  int same = found == wanted;
  if (found && !same) same = PyObject_RichCompareBool(found, wanted, Py_EQ) == 1;
  if (found && !same) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: %s: items are %s, not %S", c->kernel->name, p->name, ITEM_NAMES[p->item], found);
  }
  if (!found) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: %s: a NumPy array of %s is wanted", c->kernel->name, p->name, ITEM_NAMES[p->item]);
  }
  if (found) Py_DecRef(found);
  return same;
}

static Py_buffer *view_of(Call *c, const Parameter *p, PyObject *given, int flags) {
  Py_buffer *view = &c->view[c->views];
  if (PyObject_GetBuffer(given, view, flags)) {
    refuse(c, p, "the buffer cannot be had", given);
    return 0;
  }
  c->views++;
  return view;
}

static int is_aligned(const Parameter *p, const void *address, Py_ssize_t stride) {
  return (((uintptr_t)address | (uintptr_t)stride) & (uintptr_t)(alignments[p->item] - 1)) == 0;
}

static int take_row(Call *c, const Parameter *p, PyObject *given) {
  if (!has_type(c, p, given)) return 0;
  Py_buffer *view = view_of(c, p, given, PyBUF_SIMPLE);
  if (!view) return 0;
  if (view->ndim > 0 && view->len != item_bytes[p->item]) return refuse(c, p, "one row is wanted", 0);
  if (view->len != item_bytes[p->item]) return refuse(c, p, "items have another size", 0);
  if (!is_aligned(p, view->buf, 0)) return refuse(c, p, "the row is not aligned", 0);
  if (p->writable) { /* a row of a table is writable, although its buffer says otherwise */
    PyObject *flags = PyObject_GetAttr(given, name_of_flags);
    PyObject *writable = flags ? PyObject_GetAttr(flags, name_of_writeable) : 0;
    int can = writable ? PyObject_IsTrue(writable) : 0;
    if (writable) Py_DecRef(writable);
    if (flags) Py_DecRef(flags);
    if (can != 1) return refuse(c, p, "the kernel writes this row, which is read-only", 0);
  }
  c->word[c->words++] = (int64_t)(intptr_t)view->buf;
  return 1;
}

static int take_array(Call *c, const Parameter *p, PyObject *given) {
  if (!has_type(c, p, given)) return 0;
  Py_buffer *view = view_of(c, p, given, PyBUF_STRIDES);
  if (!view) return 0;
  Py_ssize_t size = item_bytes[p->item];
  int dimensions = p->kind == TABLE ? 2 : 1;
  if (view->ndim != dimensions)
    return refuse(c, p, dimensions == 1 ? "one dimension is wanted" : "two dimensions are wanted", 0);
  if (view->itemsize != size) return refuse(c, p, "items have another size", 0);
  if (p->writable && view->readonly) return refuse(c, p, "the kernel writes this array, which is read-only", 0);
  if (dimensions == 2 && view->shape[1] != p->width) return refuse(c, p, "rows have another number of columns", 0);
  Py_ssize_t count = view->shape[0], stride = view->strides[0], side_by_side = size * (dimensions == 2 ? p->width : 1);
  if (p->kind != COLUMN && count > 1 && stride != side_by_side) return refuse(c, p, "items do not lie side by side", 0);
  if (dimensions == 2 && count > 0 && view->strides[1] != size)
    return refuse(c, p, "items do not lie side by side", 0);
  if (count > 0 && !is_aligned(p, view->buf, count > 1 ? stride : 0)) return refuse(c, p, "items are not aligned", 0);
  c->word[c->words++] = (int64_t)(intptr_t)view->buf;
  c->word[c->words++] = count;
  if (p->kind == COLUMN) c->word[c->words++] = stride;
  return 1;
}

static int take_one(Call *c, const Parameter *p, PyObject *given) {
  switch (p->kind) {
    case NUMBER: return take_number(c, p, given);
    case TRUTH: return take_truth(c, p, given);
    case ROW: return take_row(c, p, given);
    default: return take_array(c, p, given);
  }
}

/* Handles one parameter; returns the next one, or 0 with an exception set. */
static const Parameter *take(Call *c, const Parameter *p, PyObject *given) {
  if (p->kind != TUPLE) return take_one(c, p, given) ? p + 1 : 0;
  if (PyTuple_Size(given) != p->width) {
    refuse(c, p, "a tuple of as many arrays as the kernel takes is wanted", given);
    return 0;
  }
  for (int i = 0; i < p->width; i++)
    if (!take_one(c, p + 1 + i, PyTuple_GetItem(given, i))) return 0;
  return p + 1 + p->width;
}

static PyObject *one_result(char kind, int64_t value) {
  return kind == 'b' ? PyBool_FromLong((long)value) : PyLong_FromLongLong(value);
}

static PyObject *results_of(const char *kinds, const int64_t *results) {
  if (*kinds == 'v') {
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
  }
  if (*kinds != '(') return one_result(*kinds, results[0]);
  Py_ssize_t size = 0;
  while (kinds[1 + size]) size++;
  PyObject *tuple = PyTuple_New(size);
  for (Py_ssize_t i = 0; tuple && i < size; i++) {
    PyObject *one = one_result(kinds[1 + i], results[i]);
    if (!one || PyTuple_SetItem(tuple, i, one)) {
      Py_DecRef(tuple);
      return 0;
    }
  }
  return tuple;
}

static PyObject *call(const Kernel *kernel, PyObject *const *given, Py_ssize_t count) {
  Call c;
  c.kernel = kernel;
  c.words = c.views = 0;
  if (!types[0]) return PyErr_Format(PyExc_RuntimeError, "%s: the library is not bound", kernel->name);
  if (count != kernel->count)
    return PyErr_Format(PyExc_TypeError, "%s: %d arguments are wanted, not %zd", kernel->name, kernel->count, count);
  PyObject *result = 0;
  const Parameter *parameter = kernel->parameters;
  for (Py_ssize_t i = 0; i < count && parameter; i++) parameter = take(&c, parameter, given[i]);
  if (parameter) {
    int64_t results[MOST_RESULTS];
    void *thread = PyEval_SaveThread();
    int32_t status = kernel->code(c.word, results);
    PyEval_RestoreThread(thread);
    result = status ? PyErr_Format(PyExc_RuntimeError, "%s failed", kernel->name) : results_of(kernel->results, results);
  }
  while (c.views) PyBuffer_Release(&c.view[--c.views]);
  return result;
}

static Py_ssize_t size_attribute(PyObject *object, PyObject *name) {
  PyObject *value = PyObject_GetAttr(object, name);
  Py_ssize_t size = value ? (Py_ssize_t)PyLong_AsLongLong(value) : -1;
  if (value) Py_DecRef(value);
  return size;
}

static PyObject *bind(PyObject *module, PyObject *const *given, Py_ssize_t count) {
  (void)module;
  if (count != 1 || PyTuple_Size(given[0]) != ITEMS) {
    PyErr_Clear();
    return PyErr_Format(PyExc_TypeError, "bind: a tuple of the %d dtypes in ITEMS is wanted", ITEMS);
  }
  for (int i = 0; i < ITEMS; i++) {
    PyObject *type = PyTuple_GetItem(given[0], i);
    item_bytes[i] = size_attribute(type, name_of_itemsize);
    alignments[i] = size_attribute(type, name_of_alignment);
    if (PyErr_Occurred()) return 0;
    Py_IncRef(type);
    if (types[i]) Py_DecRef(types[i]);
    types[i] = type;
  }
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

/* Returns a feature that kernels need and the processor lacks, or 0. */
static const char *lacking(void) {
#if defined(__x86_64__)
  uint32_t a = 1, b, c = 0, d;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const uint32_t wanted = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23;
  if ((c & wanted) != wanted) return "SSE4.2 or POPCNT";
#elif defined(__aarch64__) && defined(__linux__)
  extern unsigned long getauxval(unsigned long);
  if (!(getauxval(16) & 1ul << 7)) return "the instructions for CRC-32C"; /* AT_HWCAP, HWCAP_CRC32 */
#endif
  return 0;
}

static int fill(PyObject *module) {
  PyObject *items = PyTuple_New(ITEMS);
  if (!items) return -1;
  for (int i = 0; i < ITEMS; i++) {
    PyObject *name = PyUnicode_InternFromString(ITEM_NAMES[i]);
    if (!name || PyTuple_SetItem(items, i, name)) return -1;
  }
  int failed = PyModule_AddObjectRef(module, "ITEMS", items);
  Py_DecRef(items);
  return failed || PyModule_AddStringConstant(module, "SOURCES", SOURCES) ||
         PyModule_AddStringConstant(module, "STAMP", STAMP);
}

static PyModuleDef MODULE = {
    {{1, 0}, 0, 0, 0}, "_native", "Kernels compiled ahead of time.", -1, METHODS, 0, 0, 0, 0};

__attribute__((visibility("default"))) PyObject *PyInit__native(void) {
  const char *missing = lacking();
  if (missing) return PyErr_Format(PyExc_ImportError, "the processor lacks %s", missing);
  const struct { PyObject **place; const char *name; } names[] = {
      {&name_of_dtype, "dtype"},       {&name_of_flags, "flags"},         {&name_of_writeable, "writeable"},
      {&name_of_itemsize, "itemsize"}, {&name_of_alignment, "alignment"}, {&name_of_name, "__name__"},
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (!(*names[i].place = PyUnicode_InternFromString(names[i].name))) return 0;
  PyObject *module = PyModule_Create2(&MODULE, PYTHON_API_VERSION);
  if (module && fill(module)) {
    Py_DecRef(module);
    return 0;
  }
  return module;
}
