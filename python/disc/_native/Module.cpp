//===- Module.cpp - parse, run pipelines, print ---------------------------===//

#include "python/disc/_native/Module.h"
#include "lib/Target/Driver/Driver.h"
#include "python/disc/_native/Errors.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

using namespace disc::py;
using namespace mlir::disc;

static const mlir::DialectRegistry &registry() {
  static const mlir::DialectRegistry *registry = [] {
    registerPasses();
    auto *registry = new mlir::DialectRegistry;
    registerDialects(*registry);
    return registry;
  }();
  return *registry;
}

static std::unique_ptr<Module> parse(const std::string &text) {
  auto result = std::make_unique<Module>();
  PipelineDiagnostics diagnostics;
  {
    nb::gil_scoped_release release;
    result->context = std::make_unique<mlir::MLIRContext>(registry());
    result->op = parseModule(text, *result->context, diagnostics);
  }
  if (!result->op)
    raisePipelineError(diagnostics);
  return result;
}

static void run(Module &module, const std::string &pipeline) {
  PipelineDiagnostics diagnostics;
  bool failed;
  {
    nb::gil_scoped_release release;
    failed = mlir::failed(runPipeline(*module.op, pipeline, diagnostics));
  }
  if (failed)
    raisePipelineError(diagnostics);
}

static std::string text(Module &module, bool generic, bool locations) {
  std::string result;
  nb::gil_scoped_release release;
  mlir::OpPrintingFlags flags;
  if (generic)
    flags.printGenericOpForm();
  if (locations)
    flags.enableDebugInfo();
  llvm::raw_string_ostream os(result);
  module.op->print(os, flags);
  os << '\n';
  return result;
}

static void setTarget(Module &module, const std::string &cpu) {
  if (cpu.empty())
    return setHostTarget(*module.op, HostTarget::detect());
  llvm::Expected<HostTarget> target = HostTarget::detectAs(cpu);
  if (!target)
    raise(PyExc_ValueError, llvm::toString(target.takeError()));
  setHostTarget(*module.op, *target);
}

static nb::dict hostTarget() {
  HostTarget target = HostTarget::detect();
  nb::dict result;
  result["triple"] = target.triple.c_str();
  result["cpu"] = target.cpu.c_str();
  result["features"] = target.features.c_str();
  result["vector_bits"] = target.vectorBits;
  result["l1d_bytes"] = target.l1dBytes;
  result["l2_bytes"] = target.l2Bytes;
  result["l3_bytes"] = target.l3Bytes;
  result["cores"] = target.cores;
  return result;
}

void disc::py::bindModule(nb::module_ &m) {
  nb::class_<Module>(m, "Module", "An MLIR module in a context of its own.")
      .def_static("parse", &parse, nb::arg("text"), "Parses MLIR text; raises PipelineError.")
      .def("run", &run, nb::arg("pipeline"), "Runs a textual pass pipeline in place; raises PipelineError.")
      .def("text", &text, nb::kw_only(), nb::arg("generic") = false, nb::arg("locations") = false, "Prints the module.")
      .def(
          "set_host_target", &setTarget, nb::arg("cpu") = "",
          "Sets `disc_plan.target` to the machine this process runs on, or to that machine as if it were only a `cpu`; "
          "raises ValueError for one that it is not.");
  m.def("host_target", &hostTarget, "The machine this process runs on, as the driver describes it.");
}
