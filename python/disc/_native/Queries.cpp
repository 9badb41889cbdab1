//===- Queries.cpp - What viewers ask of a module -------------------------===//

#include "dialects/Rt/RtDialect.h"
#include "dialects/Shape/ShapeDialect.h"
#include "lib/Transforms/Support/KernelWork.h"
#include "lib/Transforms/Support/SourceLine.h"
#include "python/disc/_native/Module.h"
#include "llvm/ADT/MapVector.h"

#include <map>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

using namespace disc::py;
using namespace mlir::disc;

/// (name, kind, reason, sources, launches by entry, operations, bytes read, bytes written) of each kernel.
static nb::list kernels(Module &module, const std::map<std::string, int64_t> &symbols) {
  llvm::StringMap<llvm::MapVector<llvm::StringRef, int64_t>> launches;
  for (auto entry : module.op->getOps<EntryOp>())
    entry->walk([&](LaunchOp launch) { ++launches[launch.getKernel()][entry.getSymName()]; });
  ShapeAnalysis shapes(*module.op);
  auto value = [&](llvm::StringRef name) -> std::optional<int64_t> {
    auto it = symbols.find(name.str());
    return it == symbols.end() ? std::nullopt : std::optional<int64_t>(it->second);
  };
  nb::list result;
  module.op->walk([&](KernelFuncOp kernel) {
    nb::list sources;
    for (const std::string &line : sourceLines(kernel))
      sources.append(line);
    nb::dict counts;
    for (auto [entry, count] : launches.lookup(kernel.getSymName()))
      counts[entry.str().c_str()] = count;
    KernelWork work = measureWork(kernel, shapes, value);
    result.append(nb::make_tuple(kernel.getSymName().str(), kernel.getKind().getWord().str(),
                                 kernel.getReason().value_or("").str(), nb::tuple(sources), counts, work.operations,
                                 work.readBytes, work.writtenBytes));
  });
  return result;
}

/// (left side, relation, right side, message, source) of each guard.
static nb::list guards(Module &module) {
  nb::list result;
  module.op->walk([&](GuardOp guard) {
    std::string source;
    if (mlir::FileLineColLoc place = sourcePlace(guard.getLoc()))
      source = place.getFilename().str() + ":" + std::to_string(place.getLine());
    result.append(nb::make_tuple(guard.getLhs().getValue().str(), stringifyPredicate(guard.getPredicate()).str(),
                                 guard.getRhs().getValue().str(), guard.getMessage().str(), source));
  });
  return result;
}

void disc::py::bindQueries(nb::class_<Module> &m) {
  m.def("kernels", &kernels, nb::arg("symbols"),
        "The kernels after the memory stage, in program order: tuples (name, kind, reason, \"file:line\" of all "
        "operations, launches by entry, scalar operations, bytes read, bytes written), at some values of the symbols. "
        "Numbers that depend on a symbol without a value are None.");
  m.def("guards", &guards,
        "The guards after the shape stage: tuples (left side, relation, right side, message, \"file:line\"); relations "
        "are \"eq\", \"ne\", \"le\", \"lt\", \"ge\", \"gt\" and \"divisible\".");
}
