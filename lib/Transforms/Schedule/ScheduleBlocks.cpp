//===- ScheduleBlocks.cpp - kernels mapped to blocks of threads -------------===//
//
//   disc_plan.kernel row ins(%x) -> tensor<?x?x384xf32> attributes {reason = ...} {...}
// becomes
//   disc_plan.kernel row ins(%x) -> tensor<?x?x384xf32> attributes {reason = ...,
//     schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 4>, tasks = (B * S + 7) floordiv 8, ...}
//     {...}
//
// A task is a block of `threads` threads. What one does:
//   loop         `threads * vector * points` elements of the domain, in row-major order
//   row          rows, each by `group` neighbouring threads, or without `group` by as many warps as its length needs;
//                with `points`, a thread keeps so many vectors of its row in registers. `variants` are schedules for
//                some lengths, best first
//   column       `columns` neighbouring columns, each by `threads / columns` threads, or with `vector` by as many
//                times more, in vectors of columns. `variants` are schedules for some shapes
//                both: with `part`, where there are few tasks, `part` or more elements of the reduced range
//   contraction, convolution   a tile of `tile_rows` x `tile_columns` results, over steps of `tile_depth`; on a matrix
//                unit with copies `stages` steps ahead, or by `slices` warps that share the steps
//   attention    `queries` queries of one head, over steps of `keys` keys; with `parts`, which is an expression, over
//                one of so many parts of the keys. A variant for shapes with few queries and many keys has it, and
//                `shared`: of so many dimensions before that of the queries keys are the same
//
// Nothing here depends on how many multiprocessors there are, so neither does the order of any sum.
//
// Test: test/lit/Schedule/blocks.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Passes.h"

#include "dialects/Plan/Schedule.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Schedule/ContractionInfo.h"
#include "lib/Transforms/Schedule/ConvolutionInfo.h"
#include "lib/Transforms/Schedule/Kinds.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include "lib/Transforms/Support/ReductionPlan.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::disc {
#define GEN_PASS_DEF_SCHEDULEBLOCKS
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
constexpr int64_t kThreads = 256;

class BlockScheduler {
public:
  BlockScheduler(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target)
      : kernel(kernel), context(kernel.getContext()), body(kernel.getBody().front()), shapes(shapes), target(target),
        warp(target.warp) {}

  LogicalResult loop();
  LogicalResult row();
  LogicalResult column();
  LogicalResult contraction();
  LogicalResult convolution();
  LogicalResult attention();
  /// The kernel, or the one that is in its place.
  KernelOp getKernel() const { return replacement ? replacement : kernel; }

private:
  LogicalResult runningSum(RunningSumOp op);
  int64_t loopPoints();
  int64_t columnVector(const ReductionPlan &plan);
  /// A batch of products of matrices of `element`, or of elements of different types.
  struct Product {
    SymExpr batches, rows;
    SmallVector<SymExpr> columns; ///< Of each part: the blocks of one come behind those of another.
    SymExpr depth;
    Type element, accumulator;
    bool isDense;                 ///< Lines along the sum are pieces of memory, of a multiple of 16 bytes.
    bool hasDenseColumns;         ///< The right operand's are, or codes in fragments.
    bool hasCodes;                ///< Of one of the right operands.
    SymExpr decoded = SymExpr(0); ///< Elements of the right operands, if all are codes, and of lines of whole chunks.
  };
  SymExpr tiles(const Product &p, int64_t rows, int64_t columns);
  LogicalResult product(const Product &p);
  LogicalResult matrixProduct(const Product &p);
  void decode(const Product &p, int64_t fewRows);
  void divideKeys(AttentionOp op);
  int64_t sharedDims(AttentionOp op);
  void addResult(const SymExpr &extent, Type element);
  /// Elements that make 16 bytes of the widest of the kernel's buffers, of those that have not one element for each of
  /// `uniform` rows.
  int64_t vector(std::optional<SymExpr> uniform = {});
  /// Where few blocks would reduce much, parts of so many elements may have a block each; 0 where they may not.
  int64_t partOf(const ReductionPlan &plan, int64_t elements);
  using Rows = SmallVector<DeviceRowScheduleAttr>;
  DeviceRowScheduleAttr keptRow(const ReductionPlan &plan, int64_t width);
  Rows keptRows(const ReductionPlan &plan, int64_t width, int64_t shortest, int64_t longest, int64_t part);
  ExprAttr expr(const SymExpr &e) { return ExprAttr::get(context, shapes.simplify(e)); }
  void set(const SymExpr &tasks, ScheduleAttrInterface schedule);
  /// For some shapes, best first.
  void setVariants(ArrayRef<VariantAttr> variants);

  KernelOp kernel, replacement;
  MLIRContext *context;
  Block &body;
  ShapeAnalysis &shapes;
  const TargetInfo &target;
  const int64_t warp;
};

struct ScheduleBlocks : disc::impl::ScheduleBlocksBase<ScheduleBlocks> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    TargetInfo target = TargetInfo::get(getOperation());
    // They stay until the end: the analysis knows their results by their addresses.
    SmallVector<KernelOp> replaced;
    WalkResult result = getOperation().walk([&](KernelOp kernel) {
      auto kind = dyn_cast<ScheduledKind>(kernel.getKind());
      if (!kind) {
        kernel.emitError() << "no schedule for this " << kernel.getKind().getWord() << " kernel";
        return WalkResult::interrupt();
      }
      FailureOr<KernelOp> scheduled = kind.scheduleBlocks(kernel, shapes, target);
      if (failed(scheduled))
        return WalkResult::interrupt();
      if (*scheduled != kernel)
        replaced.push_back(kernel);
      return WalkResult::advance();
    });
    for (KernelOp dead : replaced)
      dead.erase();
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace

void BlockScheduler::setVariants(ArrayRef<VariantAttr> variants) {
  SmallVector<Attribute> list(variants.begin(), variants.end());
  if (!list.empty())
    kernel.setVariantsAttr(ArrayAttr::get(context, list));
}

void BlockScheduler::set(const SymExpr &tasks, ScheduleAttrInterface schedule) {
  kernel.setScheduleAttr(schedule);
  kernel.setTasksAttr(ExprAttr::get(context, tasks));
  // Blocks have memory of their own, and the host does not divide their work.
  kernel.setScratchAttr(ExprAttr::get(context, SymExpr(0)));
  kernel.setCostAttr(ExprAttr::get(context, SymExpr(0)));
}

int64_t BlockScheduler::partOf(const ReductionPlan &plan, int64_t elements) {
  bool isLong = shapes.range(plan.size(plan.reduced)).max.value_or(INT64_MAX) > elements;
  return plan.isSplittable() && isLong ? elements : 0;
}

/// One whose conditions follow from the layouts of buffers.
static VariantAttr withoutCondition(ScheduleAttrInterface schedule) {
  return VariantAttr::get(schedule.getContext(), schedule, ExprAttr(), ExprAttr());
}

int64_t BlockScheduler::vector(std::optional<SymExpr> uniform) {
  int64_t bits = 8;
  auto widen = [&](Value v) {
    if (uniform && shapes.equal(SymExpr::product(shapes.dims(v)), *uniform))
      return;
    Type element = getElementTypeOrSelf(v.getType());
    bits = std::max<int64_t>(bits, element.isIndex() ? 64 : element.getIntOrFloatBitWidth());
  };
  for (BlockArgument arg : body.getArguments())
    widen(arg);
  for (Value v : kernel.getYield().getValues())
    widen(v);
  return std::min<int64_t>(std::max<int64_t>(128 / bits, 1), 4);
}

LogicalResult BlockScheduler::loop() {
  if (auto sum = kernel.getYield().getValues().front().getDefiningOp<RunningSumOp>())
    return runningSum(sum);
  int64_t width = vector(), points = loopPoints();
  SymExpr total = SymExpr::product(shapes.dims(kernel.getYield().getValues().front()));
  set(SymExpr::ceilDiv(total, SymExpr(kThreads * width * points)),
      DeviceLoopScheduleAttr::get(context, kThreads, width, points));
  return success();
}

LogicalResult BlockScheduler::contraction() {
  FailureOr<std::vector<ContractionPart>> parts = contractionParts(kernel, body, shapes);
  if (failed(parts))
    return failure();
  const ContractionInfo &info = parts->front().first();
  bool dense = true, denseColumns = true, isAlike = true, hasCodes = false, canDecode = true;
  SymExpr decoded(0);
  SmallVector<SymExpr> columns;
  for (ContractionPart &part : *parts) {
    if (part.products.size() != 1)
      return kernel.emitError("parts of several products are not mapped to blocks of threads");
    ContractionInfo &own = part.products.front();
    auto isDense = [&](Value operand, AffineMap map) {
      // The depth is the last dimension of an operand that is in memory as it is.
      auto dims = dyn_cast<AffineDimExpr>(map.getResults().back());
      return isa<BlockArgument>(operand) && own.depth.size() == 1 && dims && dims.getPosition() == own.depth[0] &&
             own.size(own.depth).content() * int64_t(own.lhsElement.getIntOrFloatBitWidth()) % 128 == 0;
    };
    bool isCoded = own.right().getDefiningOp<UnpackFragmentsOp>() != nullptr;
    hasCodes |= isCoded;
    canDecode &= isCoded && own.size(own.depth).content() % 8 == 0;
    decoded += own.size(own.batch) * part.columns() * own.size(own.depth);
    denseColumns &= isCoded || isDense(own.right(), own.rhsMap());
    dense &= isDense(own.left(), own.lhsMap()) && denseColumns;
    isAlike &= own.lhsElement == own.rhsElement && own.lhsElement == info.lhsElement;
    columns.push_back(part.columns());
  }
  return product({info.size(info.batch), info.size(info.rows), columns, info.size(info.depth),
                  isAlike ? info.lhsElement : Type(), info.accumulator, dense, denseColumns, hasCodes,
                  canDecode ? decoded : SymExpr(0)});
}

LogicalResult BlockScheduler::convolution() {
  FailureOr<ConvolutionInfo> info = ConvolutionInfo::get(kernel, body, shapes);
  if (failed(info))
    return failure();
  SymExpr rows = info->batch;
  for (const ConvolutionInfo::Axis &axis : info->axes)
    rows *= axis.output;
  SymExpr depth = info->groupInputs;
  for (const ConvolutionInfo::Axis &axis : info->axes)
    depth *= axis.kernel;
  Type element = info->inputElement == info->weightElement ? info->inputElement : Type();
  Type accumulator =
      element && (element.isF16() || element.isBF16()) ? Float32Type::get(kernel.getContext()) : info->accumulator;
  return product({info->groups, rows, {info->groupOutputs}, depth, element, accumulator, false, false, false});
}

/// Where little is computed, a thread reads several vectors at a time: as many bytes are on their way as memory needs.
int64_t BlockScheduler::loopPoints() {
  double work = 0;
  for (auto op : body.getOps<linalg::GenericOp>())
    work += scalarWork(op.getRegion());
  constexpr double little = 24;
  return work > little ? 1 : body.getNumArguments() > 2 ? 2 : 4;
}

LogicalResult BlockScheduler::runningSum(RunningSumOp op) {
  SmallVector<SymExpr> dims = shapes.dims(op.getResult());
  SymExpr inner = SymExpr::product(ArrayRef(dims).drop_front(op.getDim() + 1));
  SymExpr lines = SymExpr::product(ArrayRef(dims).take_front(op.getDim())) * inner;
  // Lines side by side are read side by side, if there are as many as a warp has threads.
  if (shapes.typical(inner) >= warp)
    set(SymExpr::ceilDiv(lines, SymExpr(kThreads)), DeviceSumScheduleAttr::get(context, kThreads, 1));
  else
    set(lines, DeviceSumScheduleAttr::get(context, kThreads, kThreads));
  return success();
}

/// Where a pass computes what a later one needs, rows stay in registers: each thread has `points` vectors of its row.
LogicalResult BlockScheduler::row() {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(kernel, body, shapes);
  if (failed(plan))
    return failure();
  SymExpr length = plan->size(plan->reduced), rows = plan->size(plan->parallel);
  bool keeps = plan->numPasses > 1 && plan->hasCombiners() && !length.isConstant(1);
  int64_t shortest = shapes.range(length).min.value_or(0), longest = shapes.range(length).max.value_or(INT64_MAX);
  // Vectors must not cross the ends of rows.
  SymExpr inner = plan->domain[plan->reduced.back()];
  int64_t widest = vector(rows), width = std::gcd(widest, std::max<int64_t>(inner.content(), 1));
  if (keeps && length.isConstant())
    if (DeviceRowScheduleAttr schedule = keptRow(*plan, width)) {
      set(SymExpr::ceilDiv(rows, SymExpr(schedule.getThreads() / schedule.getGroup())), schedule);
      return success();
    }

  // As many threads as have something to do: a whole block for long rows, a part of a warp for short ones.
  int64_t typical = shapes.typical(length), group = kThreads;
  // Of rows that are kept, only those that are too long are left.
  if (typical <= 8 * warp * width && !keeps)
    group = std::min<int64_t>(warp, llvm::PowerOf2Ceil(std::max<int64_t>(std::min(longest, INT64_MAX / 2) / width, 1)));
  int64_t part = partOf(*plan, 16384);
  Rows variants;
  bool mayBeVectors = width > 1 || !inner.isConstant();
  for (int64_t lanes : mayBeVectors &&widest > 1 ? SmallVector<int64_t>{widest, 1} : SmallVector<int64_t>{1}) {
    if (lanes < width)
      break; // all rows are vectors of more
    if (keeps)
      variants.append(keptRows(*plan, lanes, shortest, longest, part));
    if (lanes > width)
      variants.push_back(DeviceRowScheduleAttr::get(context, kThreads, group, lanes, 0, part));
  }
  set(SymExpr::ceilDiv(rows, SymExpr(kThreads / group)),
      DeviceRowScheduleAttr::get(context, kThreads, group, width, 0, part));
  setVariants(llvm::map_to_vector(variants, withoutCondition));
  return success();
}

/// The most vectors that a thread can keep in so many registers beside what it computes with.
static int64_t keptPoints(const ReductionPlan &plan, int64_t width, int64_t registers) {
  return std::min<int64_t>(registers / std::max<int64_t>(plan.kept * width, 1), width > 1 ? 8 : 16);
}

/// Rows of a known length: as few warps as can keep one, since those of several wait for each other. Null if it is too
/// long.
DeviceRowScheduleAttr BlockScheduler::keptRow(const ReductionPlan &plan, int64_t width) {
  int64_t vectors = plan.size(plan.reduced).constant() / width;
  if (vectors < warp) {
    int64_t group = llvm::PowerOf2Ceil(std::max<int64_t>(vectors, 1));
    return DeviceRowScheduleAttr::get(context, kThreads, group, width, /*points=*/1, /*part=*/0);
  }
  for (int64_t warps = 1; warps * warp <= 1024; ++warps) {
    // 1024 threads have 64 registers each.
    int64_t points = llvm::divideCeil(vectors, warps * warp);
    if (points > keptPoints(plan, width, warps * warp <= 512 ? 64 : 28))
      continue;
    // Blocks of several warps have one row.
    int64_t group = warps * warp;
    return DeviceRowScheduleAttr::get(context, warps > 1 ? group : kThreads, group, width, points, /*part=*/0);
  }
  return {};
}

/// Rows of lengths that are known at run time. Two kernels for them: few vectors for each thread of a warp, and as many
/// as it can keep, in as many warps as the row needs.
BlockScheduler::Rows BlockScheduler::keptRows(const ReductionPlan &plan, int64_t width, int64_t shortest,
                                              int64_t longest, int64_t part) {
  Rows variants;
  int64_t most = keptPoints(plan, width, 48);
  constexpr int64_t few = 2, threads = 512; // with 128 registers each
  if (most < 1 || shortest > threads * width * most)
    return variants;
  if (most > few && shortest <= few * width * warp)
    variants.push_back(DeviceRowScheduleAttr::get(context, kThreads, warp, width, few, part));
  if (longest <= few * width * warp && !variants.empty())
    return variants;
  int64_t warps = llvm::divideCeil(std::min(longest, int64_t(1) << 30), most * width * warp);
  if (warps == 1) {
    int64_t points = llvm::divideCeil(longest, width * warp);
    variants.push_back(DeviceRowScheduleAttr::get(context, kThreads, warp, width, points, part));
  } else {
    variants.push_back(DeviceRowScheduleAttr::get(context, threads, /*group=*/0, width, most, part));
  }
  return variants;
}

LogicalResult BlockScheduler::column() {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(kernel, body, shapes);
  if (failed(plan))
    return failure();
  SymExpr outer(1), inner(1);
  for (unsigned d : plan->parallel)
    (d > plan->reduced.back() ? inner : outer) *= plan->domain[d];
  // Neighbouring threads read neighbouring columns: 32 of them are whole cache lines.
  constexpr int64_t columns = 32;
  int64_t part = partOf(*plan, 256);
  set(outer * SymExpr::ceilDiv(inner, SymExpr(columns)),
      DeviceColumnScheduleAttr::get(context, kThreads, columns, /*vector=*/0, part));
  if (int64_t width = columnVector(*plan); width > 1) {
    // Eight threads share a column, and a warp reads a line of a row, or lines of several where rows are short. What
    // can't be done in parts has few blocks: they are as many as without vectors, and have more threads for each
    // column.
    constexpr int64_t wide = 32, narrow = 8;
    auto variant = [&](int64_t side, int64_t threads) {
      return withoutCondition(DeviceColumnScheduleAttr::get(context, threads, side * width, width, part));
    };
    ShapeAnalysis::Range range = shapes.range(inner);
    SmallVector<VariantAttr> variants;
    if (plan->isSplittable() && range.max.value_or(INT64_MAX) >= wide * width)
      variants.push_back(variant(wide, 8 * wide));
    if (range.min.value_or(0) < wide * width || !plan->isSplittable())
      variants.push_back(variant(narrow, plan->isSplittable() ? 8 * narrow : kThreads));
    setVariants(variants);
  }
  return success();
}

/// Neighbouring columns that are 16 bytes of the widest operand; 1 if there are no such vectors.
int64_t BlockScheduler::columnVector(const ReductionPlan &plan) {
  int64_t bits = 8;
  for (BlockArgument arg : body.getArguments()) {
    Type element = getElementTypeOrSelf(arg.getType());
    bits = std::max<int64_t>(bits, element.isIndex() ? 64 : element.getIntOrFloatBitWidth());
  }
  int64_t width = std::min<int64_t>(128 / bits, 8);
  if (!plan.hasCombiners() || plan.parallel.empty() || plan.parallel.back() < plan.reduced.back())
    return 1;
  // Threads exchange vectors of all sums in memory of the block.
  int64_t sums = 0;
  for (const PlannedReduction &reduction : plan.reductions)
    sums += int64_t(reduction.combiners.size());
  while (width > 1 && sums * width * kThreads * 4 > (32 << 10))
    width /= 2;
  const SymExpr &innermost = plan.domain[plan.parallel.back()];
  return innermost.isConstant() ? std::gcd(width, std::max<int64_t>(innermost.constant(), 1)) : width;
}

SymExpr BlockScheduler::tiles(const Product &p, int64_t rows, int64_t columns) {
  SymExpr across(0);
  for (const SymExpr &e : p.columns)
    across += SymExpr::ceilDiv(e, SymExpr(columns));
  return shapes.simplify(p.batches * SymExpr::ceilDiv(p.rows, SymExpr(rows)) * across);
}

LogicalResult BlockScheduler::matrixProduct(const Product &p) {
  struct Tile {
    int64_t rows, columns, warpRows, warpColumns, stages, slices;
  };
  auto tasksOf = [&](const Tile &tile) { return tiles(p, tile.rows, tile.columns); };
  auto scheduleOf = [&](const Tile &tile, ExprAttr library) {
    int64_t warps = tile.rows / tile.warpRows * (tile.columns / tile.warpColumns) * tile.slices;
    return DeviceMatrixScheduleAttr::get(context, 32 * warps, tile.rows, tile.columns, tile.warpRows, tile.warpColumns,
                                         tile.stages, tile.slices, library);
  };
  // Small tiles, along whose sum many warps work, where larger ones would leave most of a device idle; and larger parts
  // for each warp where there is enough for all. The numbers of blocks were measured on an H200, of 132 multiprocessors
  // (bench/results/gpu); they are the same for all devices, so that results are.
  constexpr Tile tiny{16, 32, 16, 32, 2, 16}, small{32, 32, 32, 32, 2, 8}, middle{64, 64, 32, 32, 4, 1},
      large{64, 64, 32, 64, 4, 1};
  constexpr int64_t kFewSmall = 96, kFewMiddle = 224, kManyLarge = 800;
  // Few rows take as long as the columns take to be read. Every thread copies chunks of columns six steps ahead: 48 KiB
  // for each block. Wide tiles read the rows less often, where there are as many of them as multiprocessors.
  constexpr Tile narrow{16, 16, 16, 16, 6, 8}, wide{16, 32, 16, 32, 6, 4};
  constexpr int64_t kFewRows = 16, kManyWide = 128;
  // Of codes, up to two tiles of 32 rows take less time than to write the numbers first.
  constexpr Tile narrowCodes{32, 16, 32, 16, 6, 8}, wideCodes{32, 32, 32, 32, 6, 4};
  int64_t fewCodes = p.hasCodes ? 64 : kFewRows;
  Tile last = middle; // where no condition holds
  bool isLast = false;
  SmallVector<VariantAttr> variants;
  auto add = [&](const Tile &tile, const SymExpr &when) {
    ShapeAnalysis::Range range = shapes.range(when);
    if (isLast || range.max.value_or(1) <= 0)
      return;
    if (range.min.value_or(0) > 0) {
      last = tile;
      isLast = true;
      return;
    }
    variants.push_back(VariantAttr::get(context, scheduleOf(tile, {}), ExprAttr::get(context, when),
                                        ExprAttr::get(context, tasksOf(tile))));
  };
  auto addFew = [&](const Tile &wide, const Tile &narrow, int64_t rows) {
    Product few = p;
    few.rows = SymExpr(1);
    SymExpr when = SymExpr(rows + 1) - p.rows, enough = tiles(few, wide.rows, wide.columns) - SymExpr(kManyWide - 1);
    // Those of f32 would be too many registers.
    bool fits = !p.element.isF32() || wide.rows == kFewRows;
    ShapeAnalysis::Range range = shapes.range(enough);
    if (fits && range.min.value_or(0) > 0)
      add(wide, when);
    else if (fits && range.max.value_or(1) > 0)
      add(wide, SymExpr::min(when, enough));
    add(narrow, when);
  };
  if (p.hasDenseColumns)
    addFew(wide, narrow, kFewRows);
  if (p.hasCodes)
    addFew(wideCodes, narrowCodes, fewCodes);
  add(tiny, SymExpr(kFewSmall) - tasksOf(small));
  add(small, SymExpr(kFewMiddle) - tasksOf(middle));
  add(large, tasksOf(large) - SymExpr(kManyLarge - 1));
  ExprAttr library;
  // For f32 a library uses no matrix unit. For half floats it knows its device better, if there is much to do. Several
  // products are one launch, which no library has.
  bool isDecoded = !p.decoded.isConstant(0);
  if (p.columns.size() == 1 && (!p.hasCodes || isDecoded) && (!p.element.isF32() || !p.isDense)) {
    constexpr int64_t kMuch = int64_t(1) << 27;
    SymExpr when = p.batches * p.rows * p.columns.front() * p.depth - SymExpr(kMuch - 1);
    if (!p.element.isF32())
      when = SymExpr::min(when, p.rows - SymExpr(fewCodes));
    else if (p.hasDenseColumns)
      when = SymExpr::min(when, p.rows - SymExpr(fewCodes));
    library = ExprAttr::get(context, when);
  }
  set(tasksOf(last), scheduleOf(last, library));
  setVariants(variants);
  if (isDecoded)
    decode(p, fewCodes);
  return success();
}

/// Tiles of more rows than those whose kernels read codes multiply what the codes stand for, as do libraries: it is
/// computed anew in each call, into memory for this launch alone, and for few rows of size 0.
void BlockScheduler::decode(const Product &p, int64_t fewRows) {
  SymExpr isMany = SymExpr::min(SymExpr::floorDiv(p.rows, SymExpr(fewRows + 1)), SymExpr(1));
  if (shapes.range(isMany).max.value_or(1) <= 0)
    return;
  addResult(shapes.simplify(isMany * p.decoded), p.element);
}

LogicalResult BlockScheduler::product(const Product &p) {
  if (target.matrixUnit && p.element && (p.element.isF32() || p.element.isF16() || p.element.isBF16()) &&
      p.accumulator.isF32())
    return matrixProduct(p);
  struct Tile {
    int64_t rows, columns, depth, threadRows, threadColumns;
  };
  // The largest tile that the extents fill; small ones where that leaves few blocks.
  int64_t m = shapes.typical(p.rows), n = shapes.typical(p.columns.front());
  auto most = [&](const SymExpr &e) { return shapes.range(e).max.value_or(INT64_MAX); };
  Tile tile{64, 64, 16, 4, 4};
  if (most(p.rows) <= 16)
    tile = {16, 64, 16, 1, 4};
  else if (llvm::all_of(p.columns, [&](const SymExpr &e) { return most(e) <= 16; }))
    tile = {64, 16, 16, 4, 1};
  else if (m >= 1024 && n >= 1024)
    tile = {128, 128, 8, 8, 8};
  int64_t threads = tile.rows / tile.threadRows * (tile.columns / tile.threadColumns);
  // Below as many multiplications a call of the library takes longer than the kernel.
  constexpr int64_t kLarge = 1 << 20;
  ExprAttr library;
  if (p.columns.size() == 1)
    library = ExprAttr::get(context, p.batches * p.rows * p.columns.front() * p.depth - SymExpr(kLarge - 1));
  set(tiles(p, tile.rows, tile.columns),
      DeviceProductScheduleAttr::get(context, threads, tile.rows, tile.columns, tile.depth, tile.threadRows,
                                     tile.threadColumns, library));
  return success();
}

LogicalResult BlockScheduler::attention() {
  auto ops = body.getOps<AttentionOp>();
  if (ops.empty())
    return kernel.emitError("an attention kernel holds no attention");
  AttentionOp op = *ops.begin();
  SmallVector<SymExpr> dims = shapes.dims(op.getQuery());
  SymExpr heads = SymExpr::product(ArrayRef<SymExpr>(dims).drop_back(2));
  // On a matrix unit, where the sizes of heads are known and rows fit its registers.
  SymExpr valueSize = shapes.dims(op.getValue()).back();
  Type element = getElementTypeOrSelf(op.getQuery().getType());
  bool isHalf = element.isF16() || element.isBF16();
  auto fits = [&](const SymExpr &e) { return e.isConstant() && e.constant() >= 1 && e.constant() <= 128; };
  auto hasElement = [&](Value v) { return getElementTypeOrSelf(v.getType()) == element; };
  if (target.matrixUnit && (isHalf || element.isF32()) && fits(dims.back()) && fits(valueSize) &&
      valueSize.constant() % 16 == 0 && hasElement(op.getKey()) && hasElement(op.getValue())) {
    constexpr int64_t warpRows = 16, warps = 4, queries = warps * warpRows;
    // As many keys as fit in memory of the block, twice, and their scores in registers.
    int64_t widest = std::max(dims.back().constant(), valueSize.constant()), bytes = isHalf ? 2 : 4;
    int64_t keys = std::min<int64_t>((8 << 10) / (int64_t(llvm::PowerOf2Ceil(widest)) * bytes), isHalf ? 64 : 32);
    set(heads * SymExpr::ceilDiv(dims[dims.size() - 2], SymExpr(queries)),
        DeviceAttentionScheduleAttr::get(context, 32 * warps, queries, keys, warpRows, {}, 0));
  } else {
    constexpr int64_t queries = 16, keys = 32;
    set(heads * SymExpr::ceilDiv(dims[dims.size() - 2], SymExpr(queries)),
        DeviceAttentionScheduleAttr::get(context, 128, queries, keys, /*warp_rows=*/0, {}, 0));
  }
  divideKeys(op);
  return success();
}

/// Where few blocks would walk many keys, each of them becomes several, which have a part of the keys each and leave
/// their maxima, sums and results in memory; a second kernel combines them. That memory is one more result. Queries of
/// heads that share keys and values are queries of one head then.
void BlockScheduler::divideKeys(AttentionOp op) {
  // Two blocks for each multiprocessor of an H100 or H200; the same for all devices, so that results are.
  constexpr int64_t kEnough = 2 * 132, kMostParts = 64, kPartKeys = 64, kManyKeys = 256;
  Builder b(kernel.getContext());
  SmallVector<SymExpr> dims = shapes.dims(op.getQuery());
  SymExpr keys = shapes.dims(op.getKey())[dims.size() - 2], size = shapes.dims(op.getValue()).back();
  int64_t shared = sharedDims(op);
  SymExpr heads = SymExpr::product(ArrayRef<SymExpr>(dims).drop_back(2 + shared)),
          length = SymExpr::product(ArrayRef<SymExpr>(dims).drop_back().take_back(1 + shared));
  auto schedule = cast<DeviceAttentionScheduleAttr>(kernel.getScheduleAttr());
  SymExpr queries(schedule.getQueries());
  SymExpr tasks = heads * SymExpr::ceilDiv(length, queries);
  SymExpr room = SymExpr::floorDiv(SymExpr(kEnough), SymExpr::max(tasks, SymExpr(1)));
  SymExpr most = SymExpr::min(SymExpr::floorDiv(keys, SymExpr(kPartKeys)), SymExpr(kMostParts));
  SymExpr parts = shapes.simplify(SymExpr::min(room, most));
  SymExpr when = shapes.simplify(SymExpr::min(parts - SymExpr(1), keys - SymExpr(kManyKeys - 1)));
  ShapeAnalysis::Range range = shapes.range(when);
  if (range.max.value_or(1) <= 0)
    return;
  auto divided = DeviceAttentionScheduleAttr::get(context, schedule.getThreads(), schedule.getQueries(),
                                                  schedule.getKeys(), schedule.getWarpRows(), expr(parts), shared);
  SymExpr isDivided(1);
  if (range.min.value_or(0) > 0) {
    kernel.setScheduleAttr(divided);
    kernel.setTasksAttr(expr(tasks * parts));
  } else {
    setVariants(VariantAttr::get(context, divided, expr(when), expr(tasks * parts)));
    isDivided = SymExpr::min(SymExpr::max(when, SymExpr(0)), SymExpr(1));
  }
  addResult(isDivided * SymExpr::product(ArrayRef(dims).drop_back()) * parts * (size + SymExpr(2)),
            getElementTypeOrSelf(op.getQuery().getType()).isF64() ? b.getF64Type() : Type(b.getF32Type()));
}

/// How many dimensions before that of the queries there are along which keys and values are repeated.
int64_t BlockScheduler::sharedDims(AttentionOp op) {
  auto keys = operandLayout(kernel, op.getKey(), shapes), values = operandLayout(kernel, op.getValue(), shapes);
  int64_t rank = cast<RankedTensorType>(op.getQuery().getType()).getRank(), shared = 0;
  auto isRepeated = [&](int64_t d) { return keys->strides[d].isConstant(0) && values->strides[d].isConstant(0); };
  while (keys && values && shared < rank - 2 && isRepeated(rank - 3 - shared))
    ++shared;
  return shared;
}

/// One more result, which is memory for so many elements.
void BlockScheduler::addResult(const SymExpr &extent, Type element) {
  OpBuilder b(kernel);
  auto type = RankedTensorType::get({ShapedType::kDynamic}, element);
  SmallVector<Type> types(kernel.getResultTypes());
  types.push_back(type);
  auto other = KernelOp::create(b, kernel.getLoc(), types, kernel.getInputs(), kernel->getAttrs());
  other.getBody().takeBody(kernel.getBody());
  YieldOp yield = other.getYield();
  b.setInsertionPoint(yield);
  Value size = DimOp::create(b, kernel.getLoc(), shapes.simplify(extent));
  yield.getValuesMutable().append(tensor::EmptyOp::create(b, kernel.getLoc(), type, size).getResult());
  for (auto [from, to] : llvm::zip(kernel.getResults(), other.getResults()))
    from.replaceAllUsesWith(to);
  replacement = other;
}

using Method = LogicalResult (BlockScheduler::*)();

template <Method method>
static FailureOr<KernelOp> scheduleBy(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  BlockScheduler scheduler(kernel, shapes, target);
  if (failed((scheduler.*method)()))
    return failure();
  return scheduler.getKernel();
}

FailureOr<KernelOp> disc::scheduleLoopBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  return scheduleBy<&BlockScheduler::loop>(kernel, shapes, target);
}
FailureOr<KernelOp> disc::scheduleRowBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  return scheduleBy<&BlockScheduler::row>(kernel, shapes, target);
}
FailureOr<KernelOp> disc::scheduleColumnBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  return scheduleBy<&BlockScheduler::column>(kernel, shapes, target);
}
FailureOr<KernelOp> disc::scheduleContractionBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  return scheduleBy<&BlockScheduler::contraction>(kernel, shapes, target);
}
FailureOr<KernelOp> disc::scheduleConvolutionBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  return scheduleBy<&BlockScheduler::convolution>(kernel, shapes, target);
}
FailureOr<KernelOp> disc::scheduleAttentionBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  return scheduleBy<&BlockScheduler::attention>(kernel, shapes, target);
}
