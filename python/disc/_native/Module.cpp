//===- Module.cpp - parse, run pipelines, print ---------------------------===//

#include "python/disc/_native/Module.h"
#include "dialects/Plan/PlanDialect.h"
#include "dialects/Rt/RtDialect.h"
#include "dialects/Shape/ShapeDialect.h"
#include "lib/Runtime/Core/Allocator.h"
#include "lib/Runtime/Core/Cpu.h"
#include "lib/Runtime/Core/Outputs.h"
#include "lib/Runtime/Core/Tensor.h"
#include "lib/Target/Driver/Driver.h"
#include "lib/Target/Host/EmitModelInfo.h"
#include "lib/Transforms/Memory/ArenaPlanner.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/LLVMIR/ROCDLDialect.h"
#include "python/disc/_native/Errors.h"
#include "python/disc/_native/Interruptible.h"
#include "python/disc/_runtime/GilRelease.h"

#include <map>
#include <nanobind/stl/map.h>
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
  struct Parsed {
    std::unique_ptr<Module> module = std::make_unique<Module>();
    PipelineDiagnostics diagnostics;
  };
  auto parsed = std::make_shared<Parsed>();
  runInterruptibly(nb::none(), [parsed, text](const std::atomic<bool> &) {
    Module &module = *parsed->module;
    module.context = std::make_unique<mlir::MLIRContext>(registry(), mlir::MLIRContext::Threading::DISABLED);
    module.context->setThreadPool(*module.threads);
    module.op = parseModule(text, *module.context, parsed->diagnostics);
  });
  if (!parsed->module->op)
    raisePipelineError(parsed->diagnostics);
  return std::move(parsed->module);
}

static void run(nb::handle_t<Module> self, const std::string &pipeline, bool verifyEach) {
  struct Outcome {
    PipelineDiagnostics diagnostics;
    bool failed = false;
  };
  auto outcome = std::make_shared<Outcome>();
  auto &module = nb::cast<Module &>(self);
  runInterruptibly(nb::borrow(self), [outcome, pipeline, verifyEach, &module](const std::atomic<bool> &cancelled) {
    PipelineOptions options;
    options.verifyEach = verifyEach;
    options.cancelled = &cancelled;
    outcome->failed = mlir::failed(runPipeline(*module.op, pipeline, outcome->diagnostics, options));
  });
  if (outcome->failed)
    raisePipelineError(outcome->diagnostics);
}

static std::string text(Module &module, bool generic, bool locations) {
  std::string result;
  GilRelease release;
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

/// The temporaries of a function at some values of the symbols, from the plan on its arena.
static nb::dict arena(Module &module, const std::string &function, const std::map<std::string, int64_t> &symbols) {
  nb::dict result;
  nb::list temporaries;
  int64_t total = 0, live = 0, inPlace = 0;
  mlir::Operation *entry = module.op->lookupSymbol(function);
  if (!mlir::isa_and_nonnull<EntryOp, ProcedureOp>(entry))
    raise(PyExc_ValueError, "no entry '" + function + "': the module has not been through the memory stage");
  entry->walk([&](ArenaOp op) {
    ArenaPlanAttr plan = op.getPlanAttr();
    if (!plan)
      raise(PyExc_ValueError, "the arena of '" + function + "' does not list its contents");
    mlir::DenseI64ArrayAttr first = plan.getFirst(), last = plan.getLast();
    llvm::SmallVector<ArenaLayout::Lifetime> lives;
    for (auto [f, l] : llvm::zip(first.asArrayRef(), last.asArrayRef()))
      lives.push_back({f, l});
    llvm::SmallVector<int64_t> sizes;
    for (const SymExpr &expr : plan.getBytes().getDims()) {
      auto value = expr.evaluate([&](llvm::StringRef name) -> std::optional<int64_t> {
        auto it = symbols.find(name.str());
        return it == symbols.end() ? std::nullopt : std::optional<int64_t>(it->second);
      });
      if (!value)
        raise(PyExc_ValueError, "the size " + expr.str() + " needs the value of every symbol in it");
      sizes.push_back(*value);
    }
    ArenaLayout layout(lives);
    // Parts are apart, also where their temporaries do not meet.
    int64_t bytes = 0;
    live += layout.largestLive(sizes);
    inPlace += plan.getInPlace();
    std::optional<llvm::SmallVector<int64_t>> best;
    for (mlir::Attribute attr : plan.getOrders()) {
      ArenaLayout::Order order(llvm::cast<mlir::DenseI64ArrayAttr>(attr).asArrayRef());
      llvm::SmallVector<int64_t> offsets = layout.offsets(sizes, order);
      if (!best || ArenaLayout::bytes(sizes, offsets) < bytes) {
        bytes = ArenaLayout::bytes(sizes, offsets);
        best = offsets;
      }
    }
    for (auto [offset, size, life] : llvm::zip(*best, sizes, lives))
      temporaries.append(nb::make_tuple(total + offset, size, life.first, life.last));
    total += bytes;
  });
  result["arena"] = total;
  result["live"] = live;
  result["in_place"] = inPlace;
  result["temporaries"] = temporaries;
  return result;
}

/// What an allocation takes: whole pages or cache lines; a device's memory is never empty.
static int64_t taken(int64_t bytes, bool onDevice) {
  if (onDevice)
    return std::max<int64_t>(llvm::alignTo(bytes, disc::rt::kAlignment), disc::rt::kAlignment);
  return bytes == 0 ? 0 : int64_t(disc::rt::Allocator::standard().taken(size_t(bytes), disc::rt::Use::Lasting));
}

/// The plans of the entry `main`, its own first, and what all of them need beside temporaries.
static nb::dict plans(Module &module, const std::map<std::string, int64_t> &symbols) {
  bool onDevice = bool(deviceOf(*module.op));
  auto value = [&](mlir::Attribute expr) -> int64_t {
    auto known = mlir::dyn_cast_or_null<ExprAttr>(expr);
    if (!known)
      return 0;
    return known.getValue()
        .evaluate([&](llvm::StringRef name) -> std::optional<int64_t> {
          auto it = symbols.find(name.str());
          return it == symbols.end() ? std::nullopt : std::optional<int64_t>(it->second);
        })
        .value_or(0);
  };
  nb::list found;
  found.append(nb::make_tuple("main", 0));
  int64_t results = 0, scratch = 0, cost = 0;
  auto main = module.op->lookupSymbol<EntryOp>("main");
  if (!main)
    raise(PyExc_ValueError, "no entry 'main': the module has not been through the memory stage");
  for (auto fit : main.getBody().getOps<FitOp>()) {
    for (mlir::Attribute output : fit.getOutputs())
      results +=
          onDevice ? taken(value(output), true) : int64_t(disc::rt::OutputPool::capacityFor(size_t(value(output))));
    for (mlir::Attribute needed : fit.getScratch())
      scratch = std::max<int64_t>(scratch, llvm::alignTo(value(needed), ArenaPlanner::alignment));
    cost = value(fit.getCostAttr());
    for (auto name : fit.getPlans().getAsRange<mlir::FlatSymbolRefAttr>())
      if (auto plan = module.op->lookupSymbol<ProcedureOp>(name.getAttr()))
        found.append(nb::make_tuple(name.getValue().str(), value(plan.getExtraCostAttr())));
  }
  nb::dict result;
  result["plans"] = found;
  result["results"] = results;
  result["scratch"] = scratch;
  result["cost"] = cost;
  result["on_device"] = onDevice;
  return result;
}

/// (name, dtype, dims, whether it is updated) of each entry of `interface`.
static nb::list tensors(EntryOp main, mlir::ArrayAttr interface) {
  nb::list result;
  for (mlir::Attribute entry : interface) {
    auto tensor = llvm::cast<InterfaceTensorAttr>(entry);
    std::string name = tensor.getName().str();
    auto dtype = interfaceDtype(tensor.getType().getElementType(), tensor.getIsUnsigned());
    if (!dtype)
      raise(PyExc_ValueError, "'" + name + "' has an element type that can't cross the interface");
    nb::list dims;
    for (const SymExpr &expr : tensor.getDims().getDims())
      dims.append(expr.str());
    result.append(nb::make_tuple(name, disc::rt::dtypeName(*dtype), nb::tuple(dims), tensor.getUpdated()));
  }
  return result;
}

/// The names of the parameters that `init` reads, or everything else: `main` and the procedures, which only it invokes.
static nb::list parameters(Module &module, bool inInit) {
  nb::list result;
  for (mlir::Operation &op : *module.op->getBody()) {
    auto entry = llvm::dyn_cast<EntryOp>(op);
    if ((entry && entry.getSymName() == "init") == inInit)
      op.walk([&](RtParameterOp parameter) { result.append(parameter.getName().str()); });
    // Back ends may keep references to their constants.
    if (auto region = llvm::dyn_cast<ExternOp>(op); region && !inInit)
      for (auto name : region.getConstants().getAsRange<mlir::StringAttr>())
        result.append(name.str());
  }
  return result;
}

static nb::object interface(Module &module) {
  auto main = module.op->lookupSymbol<EntryOp>("main");
  if (!main)
    return nb::none();
  nb::dict result;
  result["inputs"] = tensors(main, main.getInputs());
  result["outputs"] = tensors(main, main.getOutputs());
  nb::list symbols;
  for (auto symbol : module.op->getOps<SymbolOp>()) {
    std::optional<uint64_t> max = symbol.getMax();
    symbols.append(nb::make_tuple(symbol.getSymName().str(), symbol.getMin(),
                                  max ? nb::object(nb::int_(*max)) : nb::none(), symbol.getDivisor()));
  }
  result["symbols"] = symbols;
  result["init"] = parameters(module, /*inInit=*/true);
  result["main"] = parameters(module, /*inInit=*/false);
  return result;
}

/// (chip, format, bytes, what each kernel needs) of each image for a device.
static nb::list images(Module &module) {
  nb::list result;
  for (auto binary : module.op->getOps<mlir::gpu::BinaryOp>()) {
    for (auto object : binary.getObjects().getAsRange<mlir::gpu::ObjectAttr>()) {
      nb::dict kernels;
      if (mlir::gpu::KernelTableAttr table = object.getKernels())
        for (mlir::gpu::KernelMetadataAttr kernel : table) {
          nb::dict needs;
          if (kernel.getMetadata())
            for (mlir::NamedAttribute need : kernel.getMetadata())
              needs[need.getName().str().c_str()] = llvm::cast<mlir::IntegerAttr>(need.getValue()).getInt();
          kernels[kernel.getName().str().c_str()] = needs;
        }
      std::string chip;
      if (auto nvvm = llvm::dyn_cast<mlir::NVVM::NVVMTargetAttr>(object.getTarget()))
        chip = nvvm.getChip().str();
      else if (auto rocdl = llvm::dyn_cast<mlir::ROCDL::ROCDLTargetAttr>(object.getTarget()))
        chip = rocdl.getChip().str();
      llvm::StringRef content = object.getObject().getValue();
      bool isText = object.getFormat() == mlir::gpu::CompilationTarget::Assembly;
      result.append(
          nb::make_tuple(chip, isText ? "text" : "binary", nb::bytes(content.data(), content.size()), kernels));
    }
  }
  return result;
}

static void describeTarget(Module &module, const std::string &cpu, const std::string &machine) {
  llvm::Expected<HostTarget> target = HostTarget::describe(cpu, machine);
  if (!target)
    raise(PyExc_ValueError, llvm::toString(target.takeError()));
  setHostTarget(*module.op, *target);
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
  result["machine"] = target.machine().str();
  result["cpu"] = target.cpu.c_str();
  result["features"] = target.features.c_str();
  result["vector_bits"] = target.vectorBits;
  result["l1d_bytes"] = target.l1dBytes;
  result["l1d_ways"] = target.l1dWays;
  result["l2_bytes"] = target.l2Bytes;
  result["l3_bytes"] = target.l3Bytes;
  result["cores"] = target.cores;
  result["vector_registers"] = target.vectorRegisters;
  result["fma"] = target.fma;
  result["bf16_dot"] = target.bf16Dot;
  result["i16_dot"] = target.i16Dot;
  result["i8_dot"] = target.i8Dot;
  result["i8_dot_mixed"] = target.i8DotMixed;
  result["i8_tiles"] = target.i8Tiles;
  result["bf16_tiles"] = target.bf16Tiles;
  result["fetch_to_l2"] = target.fetchToL2;
  return result;
}

/// What a machine needs to run the module's code.
static nb::dict needs(Module &module) {
  HostTarget target = getHostTarget(*module.op);
  llvm::Expected<std::string> features = requiredFeatures(target);
  if (!features)
    raise(PyExc_ValueError, llvm::toString(features.takeError()));
  nb::dict result;
  result["machine"] = target.machine().str();
  result["cpu"] = target.cpu.c_str();
  result["features"] = *features;
  return result;
}

void disc::py::bindModule(nb::module_ &m) {
  nb::class_<Module> type(m, "Module", "An MLIR module in a context of its own.");
  bindQueries(type);
  bindRegions(type);
  type.def_static("parse", &parse, nb::arg("text"), "Parses MLIR text; raises PipelineError.")
      .def("run", &run, nb::arg("pipeline"), nb::kw_only(), nb::arg("verify_each") = false,
           "Runs a textual pass pipeline in place, verified after each pass or at the end; raises PipelineError.")
      .def("text", &text, nb::kw_only(), nb::arg("generic") = false, nb::arg("locations") = false, "Prints the module.")
      .def("plans", &plans, nb::arg("symbols"),
           "The plans of the entry main at some values of the symbols: (function, nanoseconds more than the first) of "
           "each (`plans`), the first one's nanoseconds (`cost`), bytes of results whose sizes are known before the "
           "call (`results`), of the scratch of one thread (`scratch`), and whether buffers are a device's "
           "(`on_device`).")
      .def(
          "arena", &arena, nb::arg("function"), nb::arg("symbols"),
          "What an entry's arena holds at some values of the symbols: bytes in all (`arena`), the largest set alive at "
          "one time (`live`), how many results were computed `in_place`, and (offset, bytes, first step, last step) of "
          "each of the `temporaries`. Raises ValueError if a symbol is missing.")
      .def("interface", &interface,
           "The inputs and outputs of the model, after the memory stage, else None: `inputs` and `outputs` (name, "
           "dtype, "
           "dims as texts), `symbols` (name, min, max or None, divisor), and the names of the parameters that `init` "
           "and `main` read.")
      .def(
          "images", &images,
          "The images for a device, once there are some: tuples (chip, \"binary\" or \"text\", bytes, what each kernel "
          "needs of the chip by the kernel's name).")
      .def("needs", &needs,
           "What a machine needs to run the module's code: `machine`, `cpu`, and the `features` that it must have.")
      .def(
          "set_target", &describeTarget, nb::arg("cpu"), nb::arg("machine") = "",
          "Sets `disc_plan.target` to one of the machines(), of which only the kind of CPU is known; \"\" is a machine "
          "like this one, of which \"host\" is this very CPU. Raises ValueError for an unknown name.")
      .def(
          "set_host_target", &setTarget, nb::arg("cpu") = "",
          "Sets `disc_plan.target` to the machine this process runs on, or to that machine as if it were only a `cpu`; "
          "raises ValueError for one that it is not.");
  m.def(
      "missing_features", [](const std::string &features) { return disc::rt::missingFeatures(features.c_str()); },
      nb::arg("features"), "Those of a list of CPU features, \"avx,avx2\", that this machine lacks.");
  m.def("memory_taken", &taken, nb::arg("bytes"), nb::arg("on_device"),
        "How much an allocation of the runtime's takes, in whole pages or cache lines.");
  m.def("host_target", &hostTarget, "The machine this process runs on, as the driver describes it.");
}
