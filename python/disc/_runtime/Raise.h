//===- Raise.h - errors of the runtime as Python exceptions -----*- C++ -*-===//
//
// Shared by disc._native and disc._runtime.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_PYTHON_RUNTIME_RAISE_H
#define DISC_PYTHON_RUNTIME_RAISE_H

#include "lib/Runtime/disc.h"

#include <cstring>
#include <nanobind/nanobind.h>
#include <string>

namespace disc::py {

namespace nb = nanobind;

/// Raises `type` with a message.
[[noreturn]] void raise(PyObject *type, const std::string &message);

/// Whether this is the process's first thread, which is Python's main thread as a rule: signals are handled there.
bool isMainThread();

/// disc_options.interrupted: 1 if a signal handler of Python's raised an exception, which is then set. Without the GIL.
int checkSignals(void *);

/// Clears the Python error that is set, and gives its first line: torch appends a trace of its C++ frames.
std::string takeErrorText();

/// Raises the exception that the status stands for, those of disc.errors with its fields.
[[noreturn]] void raiseError(const disc_error &error);

} // namespace disc::py

#endif // DISC_PYTHON_RUNTIME_RAISE_H
