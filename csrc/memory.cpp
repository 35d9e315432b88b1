// NumPy's side of the pool: a memory handler (NEP 49) and the functions of entrenar.kernels.memory.
#include "bindings.hpp"
#include "pool.hpp"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

namespace py = pybind11;
using entrenar::Pool;

namespace {

void* handler_malloc(void*, size_t size) { return Pool::instance().allocate(size, false); }

void* handler_calloc(void*, size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) return nullptr;
    return Pool::instance().allocate(count * size, true);
}

void* handler_realloc(void*, void* data, size_t size) { return Pool::instance().reallocate(data, size); }

// The size NumPy passes is what the array says now, not what was asked for; the block knows its own.
void handler_free(void*, void* data, size_t) { Pool::instance().release(data); }

PyDataMem_Handler handler = {
    "entrenar_pool", 1, {nullptr, handler_malloc, handler_calloc, handler_realloc, handler_free}};

PyObject* capsule = nullptr;  // of the handler; lives as long as the process, as arrays refer to both

// Bytes of an array, as a double: only good for telling large from small. Negative lengths are NumPy's to refuse.
bool worth_pooling(const PyArray_Dims& shape, PyArray_Descr* dtype) {
    double bytes = static_cast<double>(PyDataType_ELSIZE(dtype));
    for (int i = 0; i < shape.len; ++i) bytes *= static_cast<double>(shape.ptr[i]);
    return bytes >= static_cast<double>(entrenar::kPooled);
}

PyObject* empty(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "empty() takes 2 positional arguments, shape and dtype, but %zd were given",
                     count);
        return nullptr;
    }
    PyArray_Dims shape{nullptr, 0};
    PyArray_Descr* dtype = nullptr;
    if (!PyArray_DescrConverter(args[1], &dtype)) return nullptr;
    if (!PyArray_IntpConverter(args[0], &shape)) {
        Py_DECREF(dtype);
        return nullptr;
    }
    PyObject *array = nullptr, *previous = nullptr;
    const bool pooled = Pool::instance().enabled() && worth_pooling(shape, dtype);
    if (pooled && !(previous = PyDataMem_SetHandler(capsule))) {
        Py_DECREF(dtype);
    } else {
        array = PyArray_Empty(shape.len, shape.ptr, dtype, 0);  // takes over dtype
    }
    PyDimMem_FREE(shape.ptr);
    if (previous) {
        PyObject *type, *value, *trace;  // setting a context variable must not meet an error in flight
        PyErr_Fetch(&type, &value, &trace);
        PyObject* ours = PyDataMem_SetHandler(previous);
        Py_DECREF(previous);
        if (!ours) {
            Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
            Py_CLEAR(array);
            return nullptr;
        }
        Py_DECREF(ours);
        PyErr_Restore(type, value, trace);
    }
    return array;
}

PyMethodDef functions[] = {// not through pybind11, whose calls cost more than the allocation
                           {"empty", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(empty)), METH_FASTCALL,
                            "empty(shape, dtype, /)\n--\n\n"
                            "An array of unspecified content, C order; from the pool where it is large.\n\n"
                            "shape: an int or a tuple.  MemoryError names the size that could not be had."},
                           {nullptr, nullptr, 0, nullptr}};

py::object set_handler(py::handle wanted) {
    PyObject* previous = PyDataMem_SetHandler(wanted.ptr());
    if (!previous) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(previous);
}

}  // namespace

void bind_memory(py::module_& module) {
    if (PyArray_ImportNumPyAPI() < 0) throw py::error_already_set();
    capsule = PyCapsule_New(&handler, "mem_handler", nullptr);
    if (!capsule || PyModule_AddFunctions(module.ptr(), functions) < 0) throw py::error_already_set();
    module.attr("handler") = py::reinterpret_borrow<py::object>(capsule);
    module.def("set_handler", &set_handler, "Make a handler this context's; returns the one it replaces.");
    module.def("pool_counts", [] {
        const entrenar::Counts c = Pool::instance().counts();
        return py::make_tuple(c.live, c.idle, c.peak, c.limit, c.hits, c.misses);
    });
    module.def("pool_set_limit", [](size_t bytes) { Pool::instance().set_limit(bytes); });
    module.def("pool_trim", [] { Pool::instance().trim(); }, py::call_guard<py::gil_scoped_release>());
    module.def("pool_enable", [](bool on) { Pool::instance().enable(on); });
    module.def("pool_enabled", [] { return Pool::instance().enabled(); });
}
