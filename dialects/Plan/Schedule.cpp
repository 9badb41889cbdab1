//===- Schedule.cpp - the numbers of a kernel's schedule ------------------===//
//
// Bounds are far beyond what lib/Transforms/Schedule chooses: they keep generated code and its buffers of a size that
// can be compiled.
//
// Test: test/lit/Plan/invalid.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Plan/Schedule.h"

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::disc;

#include "dialects/Plan/ScheduleInterface.cpp.inc"

namespace {
constexpr int64_t kMany = int64_t(1) << 40;

using EmitError = function_ref<InFlightDiagnostic()>;

/// What a schedule requires of its numbers; reports the first that does not hold.
class Checks {
public:
  explicit Checks(EmitError emitError) : emitError(emitError) {}

  Checks &within(StringRef name, int64_t value, int64_t min, int64_t max) {
    if (isValid && (value < min || value > max))
      error() << "'" << name << "' must be from " << min << " to " << max << ", not " << value << " (P8)";
    return *this;
  }
  /// Of 0, which says that there is no such number, nothing is required.
  Checks &mayBeWithin(StringRef name, int64_t value, int64_t min, int64_t max) {
    return value ? within(name, value, min, max) : *this;
  }
  /// An expression is defined, and within the bounds if it is constant.
  Checks &within(StringRef name, ExprAttr expr, int64_t min, int64_t max) {
    if (isValid && !expr.getValue().isDefined())
      error() << "'" << name << "' must be an expression (P8)";
    return isValid && expr.getValue().isConstant() ? within(name, expr.getValue().constant(), min, max) : *this;
  }
  Checks &mayBeWithin(StringRef name, ExprAttr expr, int64_t min, int64_t max) {
    return expr ? within(name, expr, min, max) : *this;
  }
  Checks &within(StringRef name, DenseI64ArrayAttr numbers, int64_t min, int64_t max) {
    for (int64_t each : numbers.asArrayRef())
      within(name, each, min, max);
    return *this;
  }
  Checks &offsets(ArrayRef<std::pair<StringRef, ExprAttr>> exprs) {
    for (auto [name, expr] : exprs)
      within(name, expr, 0, kMany);
    return *this;
  }
  /// `name` is a multiple of `divisor`.
  Checks &divides(StringRef name, int64_t value, int64_t divisor, StringRef what) {
    if (isValid && value % divisor)
      error() << "'" << name << "' is not a multiple of " << what << " (P8)";
    return *this;
  }
  Checks &holds(bool condition, const Twine &otherwise) {
    if (isValid && !condition)
      error() << otherwise << " (P8)";
    return *this;
  }
  operator LogicalResult() const { return success(isValid); }

private:
  InFlightDiagnostic error() {
    isValid = false;
    return emitError() << "schedule: ";
  }
  EmitError emitError;
  bool isValid = true;
};

/// An integer as an attribute that `getInt` accepts.
bool isNumber(Attribute attr) {
  auto number = dyn_cast<IntegerAttr>(attr);
  return number && number.getType().isSignlessInteger(64);
}
} // namespace

LogicalResult LoopScheduleAttr::verify(EmitError emitError, int64_t chunk, int64_t unroll) {
  return Checks(emitError).within("chunk", chunk, 1, kMany).within("unroll", unroll, 1, 64);
}

LogicalResult RowScheduleAttr::verify(EmitError emitError, int64_t accumulators, int64_t shortRows) {
  return Checks(emitError).within("accumulators", accumulators, 1, 64).within("short_rows", shortRows, 0, 4096);
}

LogicalResult ColumnScheduleAttr::verify(EmitError emitError, int64_t blocks) {
  return Checks(emitError).within("blocks", blocks, 1, 64);
}

LogicalResult ProductScheduleAttr::verify(EmitError emitError, int64_t rows, DenseI64ArrayAttr columns, int64_t kBlock,
                                          ExprAttr rowTiles, ExprAttr lhsScratch, ExprAttr rhsScratch,
                                          int64_t lhsPanel) {
  return Checks(emitError)
      .within("rows", rows, 1, 64)
      .holds(!columns.empty(), "'columns' must have a number for each part")
      .within("columns", columns, 1, 1024)
      .within("k_block", kBlock, 1, kMany)
      .within("row_tiles", rowTiles, 1, kMany)
      .offsets({{"lhs_scratch", lhsScratch}, {"rhs_scratch", rhsScratch}})
      .mayBeWithin("lhs_panel", lhsPanel, 1, 64);
}

LogicalResult FewQueriesAttr::verify(EmitError emitError, int64_t queries, DenseI64ArrayAttr sharedDims, int64_t keys,
                                     int64_t large, ExprAttr queryScratch, ExprAttr scoreScratch,
                                     ExprAttr resultScratch, ExprAttr statScratch) {
  return Checks(emitError)
      .within("queries", queries, 1, kMany)
      .within("shared_dims", sharedDims, 0, 64)
      .within("keys", keys, 1, kMany)
      .within("large", large, 0, kMany)
      .offsets({{"query_scratch", queryScratch},
                {"score_scratch", scoreScratch},
                {"result_scratch", resultScratch},
                {"stat_scratch", statScratch}});
}

LogicalResult AttentionScheduleAttr::verify(EmitError emitError, int64_t rows, int64_t keys, ExprAttr queryScratch,
                                            ExprAttr scoreScratch, ExprAttr outScratch, FewQueriesAttr few) {
  return Checks(emitError)
      .within("rows", rows, 1, 64)
      .within("keys", keys, 1, kMany)
      .offsets({{"query_scratch", queryScratch}, {"score_scratch", scoreScratch}, {"out_scratch", outScratch}});
}

LogicalResult ConvolutionScheduleAttr::verify(EmitError emitError, int64_t rows, int64_t columns, ExprAttr chunkImages,
                                              ExprAttr chunkRows, ExprAttr chunkTiles, ExprAttr inputScratch,
                                              LinesOfTiles lines) {
  return Checks(emitError)
      .within("rows", rows, 1, 64)
      .within("columns", columns, 1, 1024)
      .within("chunk_images", chunkImages, 1, kMany)
      .within("chunk_rows", chunkRows, 1, kMany)
      .within("chunk_tiles", chunkTiles, 1, kMany)
      .offsets({{"input_scratch", inputScratch}});
}

LogicalResult WinogradScheduleAttr::verify(EmitError emitError, int64_t rows, int64_t columns, ExprAttr chunkTiles,
                                           ExprAttr panelGroups, ExprAttr plane, int64_t sumsScratch) {
  return Checks(emitError)
      .within("rows", rows, 1, 64)
      .within("columns", columns, 1, 1024)
      .within("chunk_tiles", chunkTiles, 1, kMany)
      .within("panel_groups", panelGroups, 1, kMany)
      .offsets({{"plane", plane}})
      .within("sums_scratch", sumsScratch, 0, kMany);
}

/// By Winograd's sums or not, as the schedule.
static LogicalResult verifyWinograd(Operation *kernel, Block &body, bool wanted) {
  if (body.getOps<WinogradOp>().empty() != wanted)
    return success();
  return kernel->emitOpError() << "schedule: for convolutions " << (wanted ? "by" : "that are not by")
                               << " Winograd's sums (P8)";
}

LogicalResult ConvolutionScheduleAttr::verifyKernel(Operation *kernel, Block &body) const {
  return verifyWinograd(kernel, body, false);
}

LogicalResult WinogradScheduleAttr::verifyKernel(Operation *kernel, Block &body) const {
  return verifyWinograd(kernel, body, true);
}

static constexpr int64_t kMostThreads = 1024;

LogicalResult DevicePieceScheduleAttr::verify(EmitError emitError, int64_t threads) {
  return Checks(emitError).within("threads", threads, 1, kMostThreads);
}

LogicalResult DeviceLoopScheduleAttr::verify(EmitError emitError, int64_t threads, int64_t vector, int64_t points) {
  return Checks(emitError)
      .within("threads", threads, 1, kMostThreads)
      .within("vector", vector, 1, 16)
      .mayBeWithin("points", points, 1, 16);
}

LogicalResult DeviceSumScheduleAttr::verify(EmitError emitError, int64_t threads, int64_t lineThreads) {
  return Checks(emitError).within("threads", threads, 1, kMostThreads).within("line_threads", lineThreads, 1, 1024);
}

LogicalResult DeviceSumScheduleAttr::verifyKernel(Operation *kernel, Block &body) const {
  if (body.getOps<RunningSumOp>().empty())
    return kernel->emitOpError("schedule: for kernels with a running sum (P8)");
  return success();
}

LogicalResult DeviceRowScheduleAttr::verify(EmitError emitError, int64_t threads, int64_t group, int64_t vector,
                                            int64_t points, int64_t part) {
  Checks checks(emitError);
  checks.within("threads", threads, 1, kMostThreads)
      .mayBeWithin("group", group, 1, kMostThreads)
      .within("vector", vector, 1, 16)
      .mayBeWithin("points", points, 1, 16)
      .mayBeWithin("part", part, 1, kMany);
  if (!group)
    return checks.holds(points, "'group' or 'points' is missing").divides("threads", threads, 32, "32");
  // A part of a warp, or whole ones.
  return checks.divides("threads", threads, group, "'group'")
      .holds(group % 32 == 0 || llvm::isPowerOf2_64(uint64_t(group)),
             "'group' is neither a power of two nor a multiple of 32");
}

LogicalResult DeviceColumnScheduleAttr::verify(EmitError emitError, int64_t threads, int64_t columns, int64_t vector,
                                               int64_t part) {
  Checks checks(emitError);
  checks.within("threads", threads, 1, kMostThreads)
      .within("columns", columns, 1, kMostThreads)
      .mayBeWithin("vector", vector, 1, 16)
      .mayBeWithin("part", part, 1, kMany);
  if (failed(checks) || !vector)
    return checks.divides("threads", threads, std::max<int64_t>(columns, 1), "'columns'");
  return checks.divides("columns", columns, vector, "'vector'")
      .divides("threads", threads, std::max<int64_t>(columns / vector, 1), "'columns' / 'vector'");
}

LogicalResult DeviceProductScheduleAttr::verify(EmitError emitError, int64_t threads, int64_t tileRows,
                                                int64_t tileColumns, int64_t tileDepth, int64_t threadRows,
                                                int64_t threadColumns, ExprAttr library) {
  Checks checks(emitError);
  checks.within("threads", threads, 1, kMostThreads)
      .within("tile_rows", tileRows, 1, 256)
      .within("tile_columns", tileColumns, 1, 256)
      .within("tile_depth", tileDepth, 1, 64)
      .within("thread_rows", threadRows, 1, 16)
      .within("thread_columns", threadColumns, 1, 16)
      .mayBeWithin("library", library, -kMany, kMany);
  if (failed(checks))
    return failure();
  int64_t wanted = tileRows / threadRows * (tileColumns / threadColumns);
  return checks.divides("tile_rows", tileRows, threadRows, "'thread_rows'")
      .divides("tile_columns", tileColumns, threadColumns, "'thread_columns'")
      .holds(threads == wanted, "the tile takes " + Twine(wanted) + " 'threads'");
}

/// Warps of 32 threads divide the tile, or the steps along the sum if there are several slices.
LogicalResult DeviceMatrixScheduleAttr::verify(EmitError emitError, int64_t threads, int64_t tileRows,
                                               int64_t tileColumns, int64_t warpRows, int64_t warpColumns,
                                               int64_t stages, int64_t slices, ExprAttr library) {
  Checks checks(emitError);
  checks.within("threads", threads, 1, kMostThreads)
      .within("tile_rows", tileRows, 16, 256)
      .within("tile_columns", tileColumns, 8, 256)
      .within("warp_rows", warpRows, 16, 256)
      .within("warp_columns", warpColumns, 8, 256)
      .within("stages", stages, 2, 8)
      .within("slices", slices, 1, 32)
      .mayBeWithin("library", library, -kMany, kMany);
  if (failed(checks))
    return failure();
  int64_t tiles = tileRows / warpRows * (tileColumns / warpColumns);
  // Each warp has a queue of so many lines of columns.
  constexpr int64_t kLineBytes = 64, kMostShared = 48 << 10;
  bool fits = slices == 1 || stages <= 2 || stages * slices * tileColumns * kLineBytes <= kMostShared;
  return checks.divides("tile_rows", tileRows, warpRows, "'warp_rows'")
      .divides("tile_columns", tileColumns, warpColumns, "'warp_columns'")
      .divides("warp_rows", warpRows, 16, "16")
      .divides("warp_columns", warpColumns, 8, "8")
      .holds(slices == 1 || tiles == 1, "warps that share a tile do not divide it")
      .holds(fits, "the warps' columns take more than " + Twine(kMostShared) + " bytes")
      .holds(threads == 32 * tiles * slices, "the tile takes " + Twine(32 * tiles * slices) + " 'threads'");
}

LogicalResult DeviceAttentionScheduleAttr::verify(EmitError emitError, int64_t threads, int64_t queries, int64_t keys,
                                                  int64_t warpRows, ExprAttr parts, int64_t shared) {
  Checks checks(emitError);
  checks.within("threads", threads, 1, kMostThreads)
      .within("queries", queries, 1, 64)
      .within("keys", keys, 1, 1024)
      .mayBeWithin("warp_rows", warpRows, 16, 16)
      .mayBeWithin("parts", parts, 1, 1024)
      .mayBeWithin("shared", shared, 1, 16);
  if (failed(checks))
    return failure();
  if (warpRows)
    return checks.divides("keys", keys, 16, "16").holds(threads == 2 * queries, "a warp has 16 'queries'");
  // 32 threads share a query.
  return checks.divides("threads", threads, 32, "32")
      .divides("queries", queries, std::max<int64_t>(threads / 32, 1), "'threads' / 32");
}

LogicalResult DeviceAttentionScheduleAttr::verifyKernel(Operation *kernel, Block &body) const {
  for (AttentionOp op : body.getOps<AttentionOp>()) {
    int64_t heads = cast<RankedTensorType>(op.getQuery().getType()).getRank() - 2;
    if (getShared() > heads)
      return kernel->emitOpError("schedule: 'shared' is more than the ") << heads << " dimensions of heads (P8)";
  }
  auto yield = cast<YieldOp>(body.getTerminator());
  if (getParts() && llvm::none_of(yield.getValues(), [](Value y) { return isMemory(y); }))
    return kernel->emitOpError("schedule: 'parts' needs a result that is memory for them (P8)");
  return success();
}

bool disc::isMemory(Value yielded) { return bool(yielded.getDefiningOp<tensor::EmptyOp>()); }

LogicalResult disc::verifySchedule(Operation *kernel, KernelKind kind, Block &body, ScheduleAttrInterface schedule,
                                   ArrayAttr variants) {
  auto verifyOne = [&](ScheduleAttrInterface own) -> LogicalResult {
    if (!own.serves(kind))
      return kernel->emitOpError() << "schedule: " << own << " is not for kernels of kind '" << kind.getWord()
                                   << "' (P8)";
    return own.verifyKernel(kernel, body);
  };
  if (schedule && failed(verifyOne(schedule)))
    return failure();
  if (!variants)
    return success();
  if (!isDeviceSchedule(schedule))
    return kernel->emitOpError("schedule: only kernels of devices have variants (P8)");
  // For others the condition follows from their numbers.
  bool hasCondition = isMatrixSchedule(schedule) || isa<AttentionKindAttr>(kind);
  for (auto variant : variants.getAsRange<VariantAttr>()) {
    if (variant.getSchedule().getTypeID() != schedule.getTypeID() || bool(variant.getWhen()) != hasCondition ||
        bool(variant.getTasks()) != hasCondition)
      return kernel->emitOpError() << "schedule: " << variant << " is not a variant of " << schedule
                                   << (hasCondition ? " with a condition (P8)" : " without a condition (P8)");
    if (failed(verifyOne(variant.getSchedule())))
      return failure();
  }
  return success();
}

LogicalResult disc::verifyLaunch(Operation *kernel, ExprAttr tasks, ExprAttr scratch, ExprAttr cost) {
  for (auto [name, expr] : {std::pair<StringRef, ExprAttr>("tasks", tasks), {"scratch", scratch}, {"cost", cost}})
    if (expr && !expr.getValue().isDefined())
      return kernel->emitOpError() << "'" << name << "' must be an expression, not " << expr << " (P9)";
  return success();
}

LogicalResult TargetAttr::verify(EmitError emitError, StringRef, StringRef, StringRef, int64_t vectorBits,
                                 int64_t vectorRegisters, int64_t sveBits, int64_t l1dBytes, int64_t l1dWays,
                                 int64_t l2Bytes, int64_t l3Bytes, int64_t cores, bool, bool, bool, bool, bool, bool,
                                 bool, bool, StringRef, ArrayAttr arch, int64_t warp, bool) {
  struct Number {
    StringLiteral name;
    int64_t value, min, max;
    bool powerOf2 = false;
  };
  const Number numbers[] = {{"vector_bits", vectorBits, 64, 4096, true},
                            {"vector_registers", vectorRegisters, 0, 1024},
                            {"sve_bits", sveBits, 0, 2048},
                            {"l1d_bytes", l1dBytes, 1 << 10, kMany},
                            {"l1d_ways", l1dWays, 1, 1 << 10},
                            {"l2_bytes", l2Bytes, 1 << 10, kMany},
                            {"l3_bytes", l3Bytes, 0, kMany},
                            {"cores", cores, 1, 1 << 20},
                            {"warp", warp, 1, 1024, true}};
  for (const Number &number : numbers)
    if (number.value < number.min || number.value > number.max ||
        (number.powerOf2 && !llvm::isPowerOf2_64(uint64_t(number.value))))
      return emitError() << "target: '" << number.name << "' must be "
                         << (number.powerOf2 ? "a power of two" : "an integer") << " from " << number.min << " to "
                         << number.max << ", not " << number.value << " (P10)";
  if (arch && !llvm::all_of(arch, llvm::IsaPred<StringAttr>))
    return emitError() << "target: 'arch' must be a list of strings (P10)";
  return success();
}

TargetAttr TargetAttr::of(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  if (auto target = module ? module->getAttrOfType<TargetAttr>(attrName) : TargetAttr())
    return target;
  using D = TargetDefaults;
  return get(op->getContext(), "", "", "", D::vectorBits, /*vector_registers=*/0, /*sve_bits=*/0, D::l1dBytes,
             D::l1dWays, D::l2Bytes, D::l3Bytes, D::cores, /*fma=*/true, /*bf16_dot=*/false, /*i16_dot=*/false,
             /*i8_dot=*/false, /*i8_dot_mixed=*/false, /*i8_tiles=*/false, /*bf16_tiles=*/false, /*fetch_to_l2=*/false,
             "", {}, D::warp,
             /*matrix_unit=*/false);
}

TargetAttr TargetAttr::withDevice(StringRef device, ArrayAttr arch, int64_t warp, bool matrixUnit) {
  return get(getContext(), getTriple(), getCpu(), getFeatures(), getVectorBits(), getVectorRegisters(), getSveBits(),
             getL1dBytes(), getL1dWays(), getL2Bytes(), getL3Bytes(), getCores(), getFma(), getBf16Dot(), getI16Dot(),
             getI8Dot(), getI8DotMixed(), getI8Tiles(), getBf16Tiles(), getFetchToL2(), device, arch, warp, matrixUnit);
}

LogicalResult LibraryProductAttr::verify(EmitError emitError, DenseI64ArrayAttr operands, DimsAttr extents, int64_t,
                                         ExprAttr, bool, bool, bool, FlatSymbolRefAttr) {
  if ((operands.size() == 3 || operands.size() == 4) && extents.size() == 7)
    return success();
  return emitError() << "a product has three or four 'operands' and seven 'extents' (P11)";
}

template <typename Type> static bool isListOf(Attribute attr) {
  auto list = dyn_cast<ArrayAttr>(attr);
  return list && llvm::all_of(list, llvm::IsaPred<Type>);
}

LogicalResult disc::verifyDeviceLaunch(Operation *op, StringRef name, Attribute attr) {
  struct Rule {
    StringLiteral name, wanted;
    bool (*holds)(Attribute);
  };
  static constexpr Rule rules[] = {
      {"disc_plan.symbols", "a list of strings", isListOf<StringAttr>},
      {"disc_plan.texts", "a list of strings", isListOf<StringAttr>},
      {"disc_plan.next", "a kernel", [](Attribute attr) { return isa<FlatSymbolRefAttr>(attr); }},
      {"disc_plan.results", "a 64-bit integer", isNumber},
      {"disc_plan.buffer_bytes", "a list of expressions",
       [](Attribute attr) {
         auto bytes = dyn_cast<DimsAttr>(attr);
         return bytes && llvm::all_of(bytes.getDims(), [](const SymExpr &expr) { return expr.isDefined(); });
       }},
      {"disc_plan.variants", "a list of variants", isListOf<KernelVariantAttr>},
      {"disc_plan.order", "an order", [](Attribute attr) { return isa<OrderAttr>(attr); }},
      {"disc_plan.split", "a split", [](Attribute attr) { return isa<SplitAttr>(attr); }},
      {"disc_plan.update", "an update", [](Attribute attr) { return isa<UpdateAttr>(attr); }},
      {"disc_plan.library", "a product", [](Attribute attr) { return isa<LibraryProductAttr>(attr); }},
  };
  for (const Rule &rule : rules)
    if (rule.name == name && !rule.holds(attr))
      return op->emitOpError() << "'" << name << "' must be " << rule.wanted << " (P11)";
  return success();
}
