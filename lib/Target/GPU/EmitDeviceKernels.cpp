//===- EmitDeviceKernels.cpp - kernels become functions of threads ----------===//
//
//   disc_plan.kernel_func loop @k attributes {layouts = [...], schedule = #disc_plan.device_loop<...>, symbols = ["B"]}
//   { ^bb0(%x: tensor<?xf32>):
//     %r = linalg.generic ... math.tanh ...
//     disc_plan.yield %r : tensor<?xf32>
//   }
//
// becomes
//
//   gpu.module @kernels {
//     gpu.func @k(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %B: i64) kernel attributes {known_block_size = ...} {
//       %u = block * 256 + thread ; scf.for ... { llvm.load : vector<4xf32>, math.tanh, llvm.store }
//     }
//   }
//   disc_rt.device_kernel @k threads 256 [reads, writes, number] {disc_plan.tasks = ..., disc_plan.symbols = ["B"],
//   ...}
//
// The code is the same for NVIDIA and AMD, except for the number of threads in a warp, which the target has. With
// `matrix_unit` each kernel begins with
//
//   nvvm.griddepcontrol launch_dependents     // the next kernel may start once all blocks of this one have started
//   nvvm.griddepcontrol wait                  // for the kernels before this one and what they wrote
//
// so that the launch overlaps with the kernel before it. Products of few rows load their first weights before they
// wait; those must be parameters that no kernel writes to (`disc_plan.constant` on the function's argument).
//
// Lit test: test/lit/GPU/emit-kernels.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/Passes.h"

#include "dialects/Plan/Schedule.h"
#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Target/GPU/DeviceAttention.h"
#include "lib/Target/GPU/DeviceEmission.h"
#include "lib/Target/GPU/DeviceFunctions.h"
#include "lib/Target/GPU/DeviceOrder.h"
#include "lib/Target/GPU/DeviceProduct.h"
#include "lib/Target/GPU/LibraryProduct.h"
#include "lib/Transforms/Support/ReductionPlan.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::disc {
#define GEN_PASS_DEF_GPUEMITKERNELS
#include "lib/Target/GPU/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

#include "lib/Target/GPU/Kinds.cpp.inc"

namespace {
/// The bytes of each of the kernel's buffers, from its start to the last element.
SmallVector<SymExpr> bufferBytes(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  SmallVector<SymExpr> bytes;
  for (auto [i, v] : llvm::enumerate(llvm::concat<Value>(SmallVector<Value>(kernel.getBody().getArguments()),
                                                         SmallVector<Value>(kernel.getYield().getValues())))) {
    LayoutAttr layout = kernel.getLayout(i);
    SymExpr end = layout.getOffset().getValue() + SymExpr(1), count(1);
    for (auto [extent, stride] : llvm::zip(shapes.dims(v), layout.getStrides().getDims())) {
      end += (extent - SymExpr(1)) * stride;
      count *= extent;
    }
    // A buffer without elements has no bytes, wherever its last element would be.
    SymExpr isThere = SymExpr::min(count, SymExpr(1));
    Type element = getElementTypeOrSelf(v.getType());
    int64_t width = element.isIndex() ? 8 : llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
    bytes.push_back(shapes.simplify(isThere * end * SymExpr(width)));
  }
  return bytes;
}

/// For each kernel, the operands that no launch of a call changes: parameters that are not updated, and values that
/// @init has computed.
llvm::StringMap<llvm::SmallBitVector> constantOperands(ModuleOp module) {
  llvm::StringSet<> updated;
  module.walk([&](RtParameterOp parameter) {
    if (parameter.getUpdated())
      updated.insert(parameter.getName());
  });
  llvm::StringMap<llvm::SmallBitVector> constants;
  module.walk([&](LaunchOp launch) {
    llvm::SmallBitVector own(launch.getBuffers().size());
    auto entry = launch->getParentOfType<EntryOp>(); // null: in a procedure
    bool isAtLoad = entry && entry.getSymName() == "init";
    for (auto [i, buffer] : llvm::enumerate(launch.getBuffers()))
      if (auto parameter = buffer.getDefiningOp<RtParameterOp>())
        own[i] = !updated.contains(parameter.getName());
      else if (buffer.getDefiningOp<RtGlobalOp>())
        own[i] = !isAtLoad;
    auto [known, isNew] = constants.try_emplace(launch.getKernel(), own);
    if (!isNew)
      known->second &= own;
  });
  return constants;
}

/// The runtime's functions run on the host, with copies of their operands. Stores how many bytes to copy.
void leaveOnHost(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  kernel->setAttr(kKernelBuffersAttr, DimsAttr::get(kernel.getContext(), bufferBytes(kernel, shapes)));
  kernel->setAttr(kKernelResultsAttr, Builder(kernel.getContext()).getI64IntegerAttr(kernel.getNumResults()));
}

/// What the name of a kernel in this schedule ends with, to tell it from those in others.
std::string suffixOf(ScheduleAttrInterface schedule) {
  std::string suffix;
  auto add = [&](StringRef letter, int64_t number) {
    if (number)
      suffix += ("_" + letter + Twine(number)).str();
  };
  llvm::TypeSwitch<ScheduleAttrInterface>(schedule)
      .Case([&](DeviceLoopScheduleAttr s) { add("v", s.getVector()), add("p", s.getPoints()); })
      .Case([&](DeviceRowScheduleAttr s) { add("v", s.getVector()), add("p", s.getPoints()); })
      .Case([&](DeviceColumnScheduleAttr s) { add("v", s.getVector()), add("c", s.getColumns()); })
      .Case([&](DeviceMatrixScheduleAttr s) {
        add("r", s.getTileRows()), add("c", s.getTileColumns()), add("s", s.getSlices());
      })
      .Case([&](DeviceAttentionScheduleAttr s) { suffix = s.getParts() ? "_parts" : ""; });
  return suffix;
}
} // namespace

FailureOr<DeviceKernelOp> DeviceEmission::add(KernelFuncOp kernel, const Twine &name,
                                              function_ref<LogicalResult(DeviceKernel &)> emit, ArrayRef<Type> extra) {
  Location loc = kernel.getLoc();
  SmallVector<StringRef> texts = checkTexts(kernel);
  unsigned buffers = kernel.getNumInputs() + kernel.getNumResults(), numSymbols = kernel.getSymbols().size();
  SmallVector<Type> types(buffers, LLVM::LLVMPointerType::get(b.getContext(), 1));
  types.append(numSymbols, b.getI64Type());
  SmallVector<Attribute> uses;
  auto use = [&](size_t count, ArgumentUse how) { uses.append(count, ArgumentUseAttr::get(b.getContext(), how)); };
  use(kernel.getNumInputs(), ArgumentUse::Reads);
  use(kernel.getNumResults(), ArgumentUse::Writes);
  use(numSymbols, ArgumentUse::Number);
  for (Type type : extra) {
    types.push_back(type);
    use(1, isa<LLVM::LLVMPointerType>(type) ? ArgumentUse::Writes : ArgumentUse::Number);
  }
  if (!texts.empty()) {
    types.push_back(LLVM::LLVMPointerType::get(b.getContext(), 1));
    types.append(texts.size(), b.getI64Type());
    use(1, ArgumentUse::Writes);
    use(texts.size(), ArgumentUse::Number);
  }
  int64_t threads = kernel.getScheduleAttr().getBlockThreads();

  b.setInsertionPointToEnd(device.getBody());
  auto function = gpu::GPUFuncOp::create(b, loc, name.str(), b.getFunctionType(types, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  function.setKnownBlockSizeAttr(b.getDenseI32ArrayAttr({int32_t(threads), 1, 1}));
  // For checks of accesses: in an arena, one buffer directly follows another.
  for (auto [i, bytes] : llvm::enumerate(bufferBytes(kernel, shapes)))
    if (llvm::all_of(bytes.symbols(), [&](StringRef name) {
          return llvm::is_contained(kernel.getSymbols().getAsValueRange<StringAttr>(), name);
        }))
      function.setArgAttr(i, "disc_plan.bytes", ExprAttr::get(b.getContext(), bytes));
  b.setInsertionPointToEnd(&function.getBody().front());
  auto end = gpu::ReturnOp::create(b, loc);
  b.setInsertionPoint(end);
  DeviceKernel k(b, kernel, function, shapes, warp);
  if (startsEarly) {
    k.setConstants(constants.lookup(kernel.getSymName()));
    k.startEarly();
    for (unsigned i = 0; i < buffers; ++i)
      if (k.isConstant(i))
        function.setArgAttr(i, kConstantAttr, b.getUnitAttr());
  }
  if (failed(emit(k)))
    return failure();

  b.setInsertionPoint(kernel);
  auto stub = DeviceKernelOp::create(b, loc, name.str(), threads, b.getArrayAttr(uses), FlatSymbolRefAttr());
  if (!texts.empty())
    stub->setAttr(kKernelTextsAttr, b.getStrArrayAttr(texts));
  copyLaunchAttrs(kernel, stub);
  return stub;
}

LogicalResult DeviceEmission::addCall(KernelFuncOp kernel, CallFunctionOp call) {
  FailureOr<std::unique_ptr<DeviceFunction>> function = DeviceFunction::get(call, shapes);
  if (failed(function))
    return failure();
  DeviceFunction &f = **function;
  kernel.setScheduleAttr(DevicePieceScheduleAttr::get(b.getContext(), DeviceFunction::kThreads));
  auto step = [&](const Twine &suffix, const SymExpr &blocks, function_ref<LogicalResult(DeviceKernel &)> emit,
                  ArrayRef<Type> extra = {}) {
    kernel.setTasksAttr(ExprAttr::get(b.getContext(), shapes.simplify(blocks)));
    return add(kernel, kernel.getSymName() + suffix, emit, extra);
  };
  auto nameOf = [](DeviceKernelOp stub) { return FlatSymbolRefAttr::get(stub.getSymNameAttr()); };
  auto emitLast = [&](DeviceKernel &k) { return f.emit(k); };
  FailureOr<DeviceKernelOp> first;
  if (std::optional<DeviceFunction::Order> order = f.order()) {
    // The runtime computes how many blocks these have.
    SmallVector<Type> extra(DeviceOrder::kExtra, b.getI64Type());
    first = step("", SymExpr(0), [&](DeviceKernel &k) { return f.emitTiles(k); }, extra);
    auto merge =
        step("_merge", SymExpr(0), [&](DeviceKernel &k) { return emitMerges(k, order->rows, order->length); }, extra);
    auto last = step("_last", f.blocks(), emitLast, extra);
    if (failed(first) || failed(merge) || failed(last))
      return failure();
    (*first)->setAttr(kKernelOrderAttr, OrderAttr::get(b.getContext(), nameOf(*merge), nameOf(*last), expr(order->rows),
                                                       expr(order->length)));
  } else if (failed(first = step("", f.blocks(), emitLast))) {
    return failure();
  }
  if (call.getInPlace()) {
    FlatSymbolRefAttr copyName;
    SmallVector<SymExpr> dims = shapes.dims(call.getOutputs()[0]);
    SymExpr elements = SymExpr::product(dims);
    SymExpr bytes = elements * SymExpr(byteSize(getElementTypeOrSelf(call.getOutputs()[0].getType())));
    auto isDense = [&](unsigned buffer) { return Layout::get(kernel.getLayout(buffer)).isContiguous(dims); };
    // Only a dense operand may share the result's memory; another one is copied element by element.
    if (!isDense(0) || !isDense(kernel.getNumInputs())) {
      auto copy = step("_copy", SymExpr::ceilDiv(elements, SymExpr(DeviceFunction::kThreads)), emitOperandCopy);
      if (failed(copy))
        return failure();
      copyName = nameOf(*copy);
    }
    (*first)->setAttr(kKernelUpdateAttr, UpdateAttr::get(b.getContext(), kernel.getNumInputs(), expr(bytes), copyName));
  }
  return success();
}

FailureOr<DeviceKernelOp>
DeviceEmission::addSchedules(KernelFuncOp kernel,
                             function_ref<FailureOr<DeviceKernelOp>(const KernelVariant &, const Twine &)> emit) {
  if (!isDeviceSchedule(kernel.getScheduleAttr()))
    return kernel.emitError("a kernel of a device needs a schedule for blocks of threads");
  KernelVariants variants = cast<DeviceKind>(kernel.getKind()).variants(kernel, shapes);
  if (failed(variants))
    return failure();
  SymExpr tasks = kernel.getTasksAttr() ? kernel.getTasksAttr().getValue() : SymExpr(0);
  SmallVector<Attribute> others;
  FailureOr<DeviceKernelOp> stub = failure();
  for (const KernelVariant &variant : *variants) {
    bool isLast = &variant == &variants->back();
    std::string name = kernel.getSymName().str();
    if (!isLast)
      name += suffixOf(variant.schedule);
    kernel.setScheduleAttr(variant.schedule);
    kernel.setTasksAttr(ExprAttr::get(b.getContext(), variant.tasks.value_or(tasks)));
    stub = emit(variant, name);
    if (failed(stub))
      return failure();
    if (isLast && !others.empty())
      (*stub)->setAttr(kKernelVariantsAttr, b.getArrayAttr(others));
    others.push_back(KernelVariantAttr::get(b.getContext(), FlatSymbolRefAttr::get(stub->getSymNameAttr()),
                                            ExprAttr::get(b.getContext(), variant.when)));
  }
  return stub;
}

FailureOr<DeviceKernelOp> DeviceEmission::addReduction(KernelFuncOp kernel) {
  bool isRow = isa<RowKindAttr>(kernel.getKind());
  FailureOr<ReductionPlan> plan = ReductionPlan::get(kernel, kernel.getBody().front(), shapes);
  if (failed(plan))
    return failure();
  auto emit = isRow ? emitDeviceRow : emitDeviceColumn;
  FailureOr<DeviceKernelOp> whole; // one kernel combines the parts of all schedules
  return addSchedules(kernel, [&](const KernelVariant &variant, const Twine &name) -> FailureOr<DeviceKernelOp> {
    auto row = dyn_cast<DeviceRowScheduleAttr>(variant.schedule);
    auto column = dyn_cast<DeviceColumnScheduleAttr>(variant.schedule);
    int64_t vector = row ? row.getVector() : column.getVector(), part = row ? row.getPart() : column.getPart();
    auto setTasks = [&](const SymExpr &tasks) { kernel.setTasksAttr(ExprAttr::get(b.getContext(), tasks)); };
    auto emitter = [&](bool inParts) {
      return [&, inParts](DeviceKernel &k) {
        if (vector)
          k.assumeMultiples(variant.multiples, vector);
        return emit(k, inParts);
      };
    };
    if (isRow)
      setTasks(shapes.simplify(rowBlocks(*plan, row, warp)));
    if (!part)
      return add(kernel, name, emitter(false));
    if (!plan->isSplittable())
      return kernel.emitError("has a schedule with parts, but cannot be split");
    // The memory of the parts' values, and how many parts there are.
    Type extra[] = {LLVM::LLVMPointerType::get(b.getContext(), 1), b.getI64Type()};
    static_assert(std::size(extra) == DISC_RT_SPLIT_ARGS);
    auto all = add(kernel, name, emitter(false), extra);
    // The runtime computes the number of blocks, so nothing may be derived from the kernel's own number.
    setTasks(SymExpr(0));
    auto parts = add(kernel, name + "_part", emitter(true), extra);
    SymExpr points = plan->size(plan->parallel);
    setTasks(SymExpr::ceilDiv(points, SymExpr(wholesOfBlock(kernel, warp))));
    if (failed(whole))
      whole = add(kernel, kernel.getSymName() + "_whole", emitDeviceWhole, extra);
    if (failed(all) || failed(parts) || failed(whole))
      return failure();
    int64_t values = 0;
    for (const PlannedReduction &reduction : plan->reductions)
      values += reduction.combiners.size();
    (*all)->setAttr(kKernelSplitAttr, SplitAttr::get(b.getContext(), FlatSymbolRefAttr::get(parts->getSymNameAttr()),
                                                     FlatSymbolRefAttr::get(whole->getSymNameAttr()),
                                                     expr(SymExpr::ceilDiv(plan->size(plan->reduced), SymExpr(part))),
                                                     expr(points * SymExpr(values))));
    return all;
  });
}

FailureOr<DeviceKernelOp> DeviceEmission::addLoop(KernelFuncOp kernel) {
  if (auto loop = dyn_cast_if_present<DeviceLoopScheduleAttr>(kernel.getScheduleAttr()); loop && loop.getPoints()) {
    KernelAccess access = loopAccess(kernel, shapes);
    SmallVector<SymExpr> domain = shapes.dims(kernel.getYield().getValues().front());
    // One block for each tile.
    if (tiledRun(kernel, access, access.mergedRuns(0, domain.size())))
      kernel.setTasksAttr(ExprAttr::get(b.getContext(), SymExpr::ceilDiv(SymExpr::product(domain), SymExpr(1024))));
  }
  return addSchedules(kernel, [&](const KernelVariant &variant, const Twine &name) {
    return add(kernel, name, [&](DeviceKernel &k) {
      if (auto loop = dyn_cast<DeviceLoopScheduleAttr>(variant.schedule))
        k.assumeMultiples(variant.multiples, loop.getVector());
      return emitDeviceLoop(k);
    });
  });
}

FailureOr<DeviceKernelOp> DeviceEmission::addAttention(KernelFuncOp kernel) {
  bool isBinary = isMatrixSchedule(kernel.getScheduleAttr());
  std::optional<SymExpr> parts;
  SymExpr when;
  FailureOr<DeviceKernelOp> stub = addSchedules(kernel, [&](const KernelVariant &variant, const Twine &name) {
    if (ExprAttr count = cast<DeviceAttentionScheduleAttr>(variant.schedule).getParts())
      parts = count.getValue(), when = variant.when;
    return add(kernel, name, emitDeviceAttention);
  });
  if (failed(stub) || !parts)
    return stub;
  AttentionOp op = *kernel.getBody().getOps<AttentionOp>().begin();
  constexpr int64_t threads = 128;
  kernel.setScheduleAttr(DeviceAttentionScheduleAttr::get(b.getContext(), threads, /*queries=*/threads / 32,
                                                          /*keys=*/1, /*warp_rows=*/0, {}, /*shared=*/0));
  SymExpr isDivided = SymExpr::min(SymExpr::max(when, SymExpr(0)), SymExpr(1));
  SymExpr blocks = SymExpr::ceilDiv(SymExpr::product(shapes.dims(op.getResult())), SymExpr(threads));
  kernel.setTasksAttr(ExprAttr::get(b.getContext(), shapes.simplify(isDivided * blocks)));
  auto whole = add(kernel, kernel.getSymName() + "_whole",
                   [&](DeviceKernel &k) { return emitAttentionWhole(k, op, *parts, isBinary); });
  if (failed(whole))
    return failure();
  (*stub)->setAttr(kKernelNextAttr, FlatSymbolRefAttr::get(whole->getSymNameAttr()));
  return stub;
}

LogicalResult DeviceEmission::addDecoding(KernelFuncOp kernel, DeviceKernelOp stub) {
  std::optional<unsigned> memory = memoryResult(kernel);
  if (!memory)
    return success();
  constexpr int64_t threads = 256;
  kernel.setScheduleAttr(DevicePieceScheduleAttr::get(b.getContext(), threads));
  SymExpr isThere = SymExpr::min(shapes.dims(kernel.getYield().getValues()[*memory])[0], SymExpr(1));
  SymExpr blocks = shapes.simplify(isThere * decodingBlocks(kernel, threads, shapes));
  kernel.setTasksAttr(ExprAttr::get(b.getContext(), blocks));
  auto decoding = add(kernel, kernel.getSymName() + "_decode", emitDeviceDecoding);
  if (failed(decoding))
    return failure();
  stub->setAttr(kKernelBeforeAttr, FlatSymbolRefAttr::get(decoding->getSymNameAttr()));
  return success();
}

LogicalResult DeviceEmission::addLibrary(KernelFuncOp kernel, DeviceKernelOp stub) {
  std::optional<LibraryProduct> product = libraryProduct(kernel, shapes);
  if (!product)
    return success();
  FlatSymbolRefAttr epilogue;
  if (!product->isWhole) {
    constexpr int64_t threads = 256, width = 4;
    kernel.setScheduleAttr(DeviceLoopScheduleAttr::get(b.getContext(), threads, width, /*points=*/0));
    SymExpr total = SymExpr::product(shapes.dims(product->origin));
    kernel.setTasksAttr(ExprAttr::get(b.getContext(), SymExpr::ceilDiv(total, SymExpr(threads * width))));
    FailureOr<DeviceKernelOp> rest = add(kernel, kernel.getSymName() + "_epilogue",
                                         [&](DeviceKernel &k) { return emitDeviceEpilogue(k, *product); });
    if (failed(rest))
      return failure();
    epilogue = FlatSymbolRefAttr::get(rest->getSymNameAttr());
  }
  stub->setAttr(kKernelLibraryAttr, product->attr(b.getContext(), epilogue));
  return success();
}

namespace {
/// A function of the runtime, which the device may have kernels for.
struct CallEmission : DeviceKind::ExternalModel<CallEmission, CallKindAttr> {
  LogicalResult emit(Attribute, DeviceEmission &emission, KernelFuncOp kernel) const {
    auto call = kernel.getYield().getValues().front().getDefiningOp<CallFunctionOp>();
    if (call && call.getOnDevice())
      return emission.addCall(kernel, call);
    leaveOnHost(kernel, emission.shapes);
    return success();
  }
};

struct LoopEmission : DeviceKind::ExternalModel<LoopEmission, LoopKindAttr> {
  LogicalResult emit(Attribute, DeviceEmission &emission, KernelFuncOp kernel) const {
    return success(succeeded(emission.addLoop(kernel)));
  }
  KernelVariants variants(Attribute, KernelFuncOp kernel, ShapeAnalysis &shapes) const {
    return loopVariants(kernel, shapes);
  }
};

template <typename Kind, auto schedules>
struct ReductionEmission : DeviceKind::ExternalModel<ReductionEmission<Kind, schedules>, Kind> {
  LogicalResult emit(Attribute, DeviceEmission &emission, KernelFuncOp kernel) const {
    return success(succeeded(emission.addReduction(kernel)));
  }
  KernelVariants variants(Attribute, KernelFuncOp kernel, ShapeAnalysis &shapes) const {
    return schedules(kernel, shapes);
  }
};

struct ContractionEmission : DeviceKind::ExternalModel<ContractionEmission, ContractionKindAttr> {
  LogicalResult emit(Attribute, DeviceEmission &emission, KernelFuncOp kernel) const {
    auto stub = emission.addSchedules(kernel, [&](const KernelVariant &, const Twine &name) {
      return emission.add(kernel, name, emitDeviceContraction);
    });
    if (failed(stub) || failed(emission.addLibrary(kernel, *stub)))
      return failure();
    return emission.addDecoding(kernel, *stub);
  }
};

struct ConvolutionEmission : DeviceKind::ExternalModel<ConvolutionEmission, ConvolutionKindAttr> {
  LogicalResult emit(Attribute, DeviceEmission &emission, KernelFuncOp kernel) const {
    auto stub = emission.addSchedules(kernel, [&](const KernelVariant &, const Twine &name) {
      return emission.add(kernel, name, emitDeviceConvolution);
    });
    return success(succeeded(stub));
  }
};

struct AttentionEmission : DeviceKind::ExternalModel<AttentionEmission, AttentionKindAttr> {
  LogicalResult emit(Attribute, DeviceEmission &emission, KernelFuncOp kernel) const {
    return success(succeeded(emission.addAttention(kernel)));
  }
};

struct GpuEmitKernels : disc::impl::GpuEmitKernelsBase<GpuEmitKernels> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    MLIRContext *context = &getContext();
    SmallVector<KernelFuncOp> kernels(module.getOps<KernelFuncOp>());
    TargetAttr target = TargetAttr::of(module);
    ShapeAnalysis shapes(module);
    OpBuilder b(context);
    module->setAttr(gpu::GPUDialect::getContainerModuleAttrName(), b.getUnitAttr());
    b.setInsertionPointToEnd(module.getBody());
    auto device = gpu::GPUModuleOp::create(b, module.getLoc(), "kernels");
    // Chips with NVIDIA's matrix unit also have its other operations. In images for chips without one it is removed.
    DeviceEmission emission{b, device, shapes, target.getWarp(), target.getMatrixUnit(), constantOperands(module)};
    for (KernelFuncOp kernel : kernels) {
      auto kind = dyn_cast<DeviceKind>(kernel.getKind());
      if (!kind) {
        kernel.emitError() << kernel.getKind().getWord() << " kernels do not run on devices";
        return signalPassFailure();
      }
      if (failed(kind.emit(emission, kernel)))
        return signalPassFailure();
      // What stays on the host stays a kernel.
      if (!kernel->hasAttr(kKernelBuffersAttr))
        kernel.erase();
    }
  }
};
} // namespace

void disc::registerDeviceKinds(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, PlanDialect *) {
    LoopKindAttr::attachInterface<LoopEmission>(*context);
    RowKindAttr::attachInterface<ReductionEmission<RowKindAttr, rowVariants>>(*context);
    ColumnKindAttr::attachInterface<ReductionEmission<ColumnKindAttr, columnVariants>>(*context);
    ContractionKindAttr::attachInterface<ContractionEmission>(*context);
    ConvolutionKindAttr::attachInterface<ConvolutionEmission>(*context);
    AttentionKindAttr::attachInterface<AttentionEmission>(*context);
    CallKindAttr::attachInterface<CallEmission>(*context);
  });
}
