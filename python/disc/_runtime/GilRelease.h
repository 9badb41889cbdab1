//===- GilRelease.h - a scope in which other Python threads run -*- C++ -*-===//
//
// nb::gil_scoped_release, but safe in a daemon thread while the process ends.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_PYTHON_RUNTIME_GILRELEASE_H
#define DISC_PYTHON_RUNTIME_GILRELEASE_H

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace disc::py {

/// Once Python ends, a daemon thread that takes the GIL again must not return to Python. Up to version 3.13 Python
/// calls pthread_exit, which unwinds the stack as an exception does: a destructor that may not throw then ends the
/// whole process with std::terminate. The thread sleeps instead until the process is gone, which Python 3.14 does
/// itself.
class GilRelease {
public:
  GilRelease() : state(PyEval_SaveThread()) {}
  GilRelease(const GilRelease &) = delete;
  GilRelease &operator=(const GilRelease &) = delete;
  ~GilRelease() {
#ifdef __GLIBCXX__
    try {
      PyEval_RestoreThread(state);
    } catch (abi::__forced_unwind &) {
      for (;;)
        pause();
    }
#else
    PyEval_RestoreThread(state);
#endif
  }

private:
  PyThreadState *state;
};

} // namespace disc::py

#endif // DISC_PYTHON_RUNTIME_GILRELEASE_H
