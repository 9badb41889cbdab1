//===- Bindings.cpp - the native module of the package disc ---------------===//
//
// Thin: the compiler is lib/Target/Driver, the runtime lib/Runtime. Its types are in
// python/disc/_native.pyi, checked in; test/python/unit/test_native.py keeps them true.
//
//===----------------------------------------------------------------------===//

#include "python/disc/_native/Bindings.h"

NB_MODULE(_native, m) {
  m.doc() = "The native part of disc: MLIR modules, code generation, execution.";
  // Dynamo keeps compiled functions to the end of the process; nanobind reports them on stderr as leaked.
  nanobind::set_leak_warnings(false);
  disc::py::bindErrors(m);
  disc::py::bindModule(m);
  disc::py::bindExecutable(m);
  disc::py::bindArtifact(m);
  disc::py::bindDescriptor(m);
}
