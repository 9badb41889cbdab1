//===- Raise.cpp - errors of the runtime as Python exceptions -------------===//

#include "python/disc/_runtime/Raise.h"

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace disc::py;

bool disc::py::isMainThread() {
#ifdef __linux__
  return syscall(SYS_gettid) == getpid();
#else
  return true; // Python itself knows, too
#endif
}

int disc::py::checkSignals(void *) {
  if (!isMainThread())
    return 0;
  nb::gil_scoped_acquire held;
  return PyErr_CheckSignals() != 0;
}

/// Text from a file may be anything.
static nb::object decode(const char *text) {
  return nb::steal(PyUnicode_DecodeUTF8(text, Py_ssize_t(strlen(text)), "replace"));
}

void disc::py::raise(PyObject *type, const std::string &message) {
  PyErr_SetObject(type, decode(message.c_str()).ptr());
  throw nb::python_error();
}

std::string disc::py::takeErrorText() {
  nb::python_error error;
  std::string text = nb::str(error.value()).c_str();
  return text.substr(0, text.find('\n'));
}

[[noreturn]] static void raiseInstance(const nb::object &instance) {
  PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(instance.ptr())), instance.ptr());
  throw nb::python_error();
}

static nb::object errorType(const char *name) { return nb::module_::import_("disc.errors").attr(name); }

[[noreturn]] static void raiseShapeError(const disc_error &error) {
  auto orNone = [](const char *text) { return *text ? decode(text) : nb::none(); };
  nb::object dim = error.dim < 0 ? nb::none() : nb::object(nb::int_(error.dim));
  raiseInstance(errorType("ShapeError")(decode(error.message), nb::arg("input") = orNone(error.input),
                                        nb::arg("dim") = dim, nb::arg("symbol") = orNone(error.symbol),
                                        nb::arg("expected") = orNone(error.expected),
                                        nb::arg("got") = orNone(error.got)));
}

void disc::py::raiseError(const disc_error &error) {
  auto libraryError = [&](const char *reason) {
    raiseInstance(errorType("LibraryError")(decode(error.message), nb::arg("reason") = reason));
  };
  switch (error.status) {
  case DISC_ERROR_TYPE:
    raise(PyExc_TypeError, error.message);
  case DISC_ERROR_SHAPE:
    raiseShapeError(error);
  case DISC_ERROR_MEMORY:
    raise(PyExc_MemoryError, error.message);
  case DISC_ERROR_INVALID:
    raise(PyExc_ValueError, error.message);
  case DISC_ERROR_INDEX:
    raise(PyExc_IndexError, error.message);
  case DISC_ERROR_FILE:
    libraryError("file");
    break;
  case DISC_ERROR_VERSION:
    libraryError("version");
    break;
  case DISC_ERROR_TARGET:
    libraryError("target");
    break;
  case DISC_ERROR_WEIGHTS:
    raiseInstance(errorType("WeightsError")(decode(error.message)));
  case DISC_ERROR_CANCELLED:
    if (PyErr_Occurred()) // what a signal handler raised, KeyboardInterrupt as a rule
      throw nb::python_error();
    break;
  case DISC_ERROR_SANITIZER:
    raiseInstance(errorType("SanitizerError")(decode(error.message)));
  case DISC_ERROR_DEVICE:
  case DISC_OK:
    break;
  }
  raise(PyExc_RuntimeError, error.message);
}
