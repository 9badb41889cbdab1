//===- Bindings.cpp - the native module of the package disc ---------------===//
//
// Thin: the compiler is lib/Target/Driver, the runtime lib/Runtime. Its types are in
// python/disc/_native.pyi, checked in; test/python/unit/test_native.py keeps them true.
//
//===----------------------------------------------------------------------===//

#include "python/disc/_native/Bindings.h"
#include "python/disc/_runtime/GilRelease.h"

#include "lib/Runtime/disc.h"
#include "lib/Target/Driver/Opt.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string>
#include <vector>

static int opt(std::vector<std::string> arguments) {
  std::vector<char *> argv;
  for (std::string &argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  disc::py::GilRelease release;
  return mlir::disc::runOpt(int(arguments.size()), argv.data());
}

NB_MODULE(_native, m) {
  m.doc() = "The native part of disc: MLIR modules, code generation, execution.";
  // Dynamo keeps compiled functions to the end of the process; nanobind reports them on stderr as leaked.
  nanobind::set_leak_warnings(false);
  disc::py::bindErrors(m);
  disc::py::bindModule(m);
  disc::py::bindExecutable(m);
  disc::py::bindArtifact(m);
  disc::py::bindDescriptor(m);
  m.attr("version") = nanobind::int_(disc_version());
  m.def("opt", &opt, nanobind::arg("arguments"),
        "Runs disc-opt with these arguments, the program's name first; returns its exit status. Once per process.");
}
