//===- Artifact.cpp - ahead-of-time libraries -----------------------------===//

#include "lib/Target/Driver/Driver.h"
#include "python/disc/_native/Errors.h"
#include "python/disc/_native/Interruptible.h"
#include "python/disc/_native/Module.h"
#include "python/disc/_runtime/GilRelease.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

using namespace disc::py;
using namespace mlir::disc;

static void raiseIf(llvm::Error error) {
  if (error)
    raise(PyExc_RuntimeError, llvm::toString(std::move(error)));
}

static nb::dict addVariant(nb::handle_t<ArtifactBuilder> self, nb::handle_t<Module> code, const std::string &cpu,
                           const std::string &kind, int optLevel, const std::string &dumpPrefix,
                           const std::string &cacheFolder, uint64_t cacheLimit) {
  CodegenOptions options;
  options.kind = kind == "asm" ? CodeKind::Assembly : kind == "llvm" ? CodeKind::LLVMIR : CodeKind::Object;
  options.optLevel = optLevel;
  options.dumpPrefix = dumpPrefix;
  options.cacheFolder = cacheFolder;
  options.cacheLimit = cacheLimit;
  struct Outcome {
    CodegenTimes times;
    std::string message;
  };
  auto outcome = std::make_shared<Outcome>();
  auto &builder = nb::cast<ArtifactBuilder &>(self);
  auto &module = nb::cast<Module &>(code);
  runInterruptibly(nb::make_tuple(self, code), [=, &builder, &module](const std::atomic<bool> &cancelled) {
    CodegenOptions own = options;
    own.cancelled = &cancelled;
    if (llvm::Error error = builder.addVariant(*module.op, cpu, own, &outcome->times))
      outcome->message = llvm::toString(std::move(error));
  });
  if (!outcome->message.empty())
    raise(PyExc_RuntimeError, outcome->message);
  const CodegenTimes &times = outcome->times;
  nb::dict result;
  result["translate"] = times.translate;
  result["optimize"] = times.optimize;
  result["emit"] = times.emit;
  return result;
}

static std::string text(ArtifactBuilder &builder, size_t variant) {
  if (variant >= builder.numVariants())
    raise(PyExc_IndexError, "no variant " + std::to_string(variant));
  std::string result;
  for (const std::unique_ptr<llvm::MemoryBuffer> &part : builder.code(variant))
    result += part->getBuffer().str();
  return result;
}

static void writeArtifact(ArtifactBuilder &builder, const std::string &output, const std::string &kind,
                          std::vector<std::string> runtime, const std::string &weights, const std::string &weightsFile,
                          std::vector<std::string> objects, std::vector<std::string> libraries) {
  ArtifactOptions options;
  options.objects = std::move(objects);
  options.libraries = std::move(libraries);
  if (kind == "static")
    options.kind = ArtifactKind::Static;
  else if (kind == "obj")
    options.kind = ArtifactKind::Object;
  options.runtime = std::move(runtime);
  options.weights = weights;
  options.weightsFile = weightsFile;
  llvm::Error error = llvm::Error::success();
  {
    GilRelease release;
    error = builder.write(output, options);
  }
  raiseIf(std::move(error));
}

void disc::py::bindArtifact(nb::module_ &m) {
  nb::class_<ArtifactBuilder>(m, "ArtifactBuilder", "Gathers the parts of an ahead-of-time library.")
      .def(nb::init<std::string>(), nb::arg("name"))
      .def("add_variant", &addVariant, nb::arg("module"), nb::arg("cpu"), nb::kw_only(), nb::arg("kind") = "object",
           nb::arg("opt_level") = 3, nb::arg("dump_prefix") = "", nb::arg("cache_folder") = "",
           nb::arg("cache_limit") = 0,
           "Compiles a module that is in the LLVM dialect, as the code for `cpu`, to an \"object\", \"asm\" or "
           "\"llvm\"; "
           "returns the seconds by step. The variants added first are preferred.")
      .def("text", &text, nb::arg("variant"), "The assembly or LLVM IR of a variant.")
      .def(
          "set_packed", [](ArtifactBuilder &builder, size_t variant) { builder.setPacked(variant); },
          nb::arg("variant"), "Says that the weights hold what the variant's init would compute.")
      .def("write", &writeArtifact, nb::arg("output"), nb::kw_only(), nb::arg("kind"), nb::arg("runtime"),
           nb::arg("weights") = "", nb::arg("weights_file") = "", nb::arg("objects") = nb::list(),
           nb::arg("libraries") = nb::list(),
           "Links a \"shared\" or \"static\" library or an \"obj\", with the archives of the runtime. `weights` is a "
           "safetensors file, which goes into the library unless `weights_file` names it as one beside it. "
           "`objects` and `libraries` are files of back ends.");
}
