//===- KernelVariants.cpp - kernels for some shapes -------------------------===//
//
// Which code is best for a kernel with dynamic extents follows from their values: vectors of 16 bytes must not cross
// the ends of rows, and rows that are to stay in registers must not be too long. A kernel is emitted in several
// schedules, and the host chooses one at each launch by an expression of the symbols:
//
//   schedule = #disc_plan.device_row<threads = 256, group = 256, vector = 1>,
//   variants = [#disc_plan.variant<#disc_plan.device_row<threads = 256, group = 32, vector = 4, points = 8>>]
//
// for rows of S elements is two kernels, of which the second serves the shapes where
//
//   1 - (S mod 4) - max(S - 1024, 0) - max(1 - S, 0)
//
// is positive, and the first all others. Variants of products and of attention say their conditions.
//
// Lit test: test/lit/GPU/kept-rows.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Plan/Schedule.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/Common/ReductionPoints.h"
#include "lib/Target/GPU/DeviceKernel.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// What a schedule asks of the shapes.
class Conditions {
public:
  explicit Conditions(ShapeAnalysis &shapes) : shapes(shapes) {}

  void multiples(ArrayRef<SymExpr> exprs, int64_t divisor) {
    for (const SymExpr &e : exprs)
      if (!shapes.divisible(e, divisor))
        unless += SymExpr::mod(e, SymExpr(divisor));
  }
  void atMost(const SymExpr &e, const SymExpr &bound) {
    if (!shapes.lessEqual(e, bound))
      unless += SymExpr::max(e - bound, SymExpr(0));
  }
  /// Positive if all hold.
  SymExpr take() { return shapes.simplify(SymExpr(1) - unless); }

private:
  ShapeAnalysis &shapes;
  SymExpr unless;
};
} // namespace

/// The kernel's variants, best first.
static SmallVector<VariantAttr> variantsOf(KernelFuncOp kernel) {
  ArrayAttr variants = kernel.getVariantsAttr();
  return variants ? llvm::to_vector(variants.getAsRange<VariantAttr>()) : SmallVector<VariantAttr>();
}

KernelAccess disc::loopAccess(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  ValueRange results = kernel.getYield().getValues();
  SmallVector<SymExpr> domain = shapes.dims(results.front());
  KernelAccess access(kernel, shapes, domain);
  for (auto [i, v] : llvm::enumerate(results)) {
    auto at = access.reshape(access.identity(), domain, shapes.dims(v));
    access.read(v, at);
    access.write(i, at);
  }
  return access;
}

SmallVector<SymExpr> disc::concatenatedExtents(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  SmallVector<SymExpr> extents;
  for (auto concat : kernel.getBody().getOps<ConcatOp>()) {
    if (int64_t(concat.getDim()) + 1 != cast<RankedTensorType>(concat.getType()).getRank())
      continue;
    SymExpr end(0);
    for (Value input : concat.getInputs()) {
      SymExpr extent = shapes.dims(input).back();
      end += extent;
      for (const SymExpr &e : {extent, end})
        if (!llvm::is_contained(extents, e))
          extents.push_back(e);
    }
  }
  return extents;
}

/// A loop whose rows may or may not end with a vector: twice in the schedule that it has.
KernelVariants disc::loopVariants(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  ScheduleAttrInterface schedule = kernel.getScheduleAttr();
  SmallVector<KernelVariant> variants{{schedule, SymExpr(1), {}, {}}};
  auto loop = dyn_cast<DeviceLoopScheduleAttr>(schedule);
  if (!loop || loop.getVector() <= 1)
    return variants;
  int64_t width = loop.getVector();
  KernelAccess access = loopAccess(kernel, shapes);
  SmallVector<MergedDims> runs = access.mergedRuns(0, shapes.dims(kernel.getYield().getValues().front()).size());
  // A single run has one end, and a tail there.
  if (runs.size() < 2 || runs.back().extent.isConstant() || tiledRun(kernel, access, runs))
    return variants;
  auto others = llvm::map_to_vector(runs, [](const MergedDims &run) { return run.innermost; });
  SmallVector<SymExpr> multiples = access.vectorMultiples(runs.back().innermost, runs.back().extent, others);
  llvm::append_range(multiples, concatenatedExtents(kernel, shapes));
  Conditions conditions(shapes);
  conditions.multiples(multiples, width);
  KernelVariant vectors{schedule, conditions.take(), multiples, {}};
  if (vectors.when.isConstant(1))
    return SmallVector<KernelVariant>{vectors};
  variants.insert(variants.begin(), vectors);
  return variants;
}

KernelVariants disc::rowVariants(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  SmallVector<KernelVariant> variants;
  SmallVector<VariantAttr> list = variantsOf(kernel);
  if (!list.empty()) {
    FailureOr<ReductionPlan> plan = ReductionPlan::get(kernel, kernel.getBody().front(), shapes);
    if (failed(plan))
      return failure();
    KernelAccess access(kernel, shapes, plan->domain);
    readReductions(access, kernel, *plan, shapes);
    SmallVector<MergedDims> runs = adjacentRuns(access, plan->reduced);
    SmallVector<unsigned> others = plan->parallel;
    for (const MergedDims &run : runs)
      others.push_back(run.innermost);
    SymExpr length = plan->size(plan->reduced);
    for (VariantAttr each : list) {
      auto own = cast<DeviceRowScheduleAttr>(each.getSchedule());
      int64_t width = own.getVector(), count = own.getPoints(), group = own.getGroup();
      KernelVariant variant{own, SymExpr(1), {}, {}};
      Conditions conditions(shapes);
      if (width > 1) {
        if (runs.empty() || (runs.back().extent.isConstant() && runs.back().extent.constant() % width))
          continue;
        variant.multiples = access.vectorMultiples(runs.back().innermost, runs.back().extent, others);
        conditions.multiples(variant.multiples, width);
      }
      if (count) {
        // A value that is the same along a row is read at one of its points.
        conditions.atMost(SymExpr(1), length);
        conditions.atMost(length, SymExpr((group ? group : own.getThreads()) * width * count));
      }
      variant.when = conditions.take();
      variants.push_back(variant);
      if (variant.when.isConstant(1))
        return variants;
    }
  }
  variants.push_back({kernel.getScheduleAttr(), SymExpr(1), {}, {}});
  return variants;
}

/// Vectors must not cross the ends of rows of columns.
KernelVariants disc::columnVariants(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  SmallVector<KernelVariant> variants;
  SmallVector<VariantAttr> list = variantsOf(kernel);
  FailureOr<ReductionPlan> plan = ReductionPlan::get(kernel, kernel.getBody().front(), shapes);
  if (failed(plan))
    return failure();
  SymExpr outer(1), inner(1);
  for (unsigned d : plan->parallel)
    (d > plan->reduced.back() ? inner : outer) *= plan->domain[d];
  auto tasks = [&](DeviceColumnScheduleAttr own) {
    return shapes.simplify(outer * SymExpr::ceilDiv(inner, SymExpr(own.getColumns())));
  };
  for (VariantAttr each : list) {
    auto own = cast<DeviceColumnScheduleAttr>(each.getSchedule());
    unsigned innermost = plan->parallel.back();
    KernelAccess access(kernel, shapes, plan->domain);
    readReductions(access, kernel, *plan, shapes);
    SmallVector<unsigned> others(plan->reduced);
    llvm::append_range(others, plan->parallel);
    KernelVariant variant{own, SymExpr(1), {}, tasks(own)};
    variant.multiples = access.vectorMultiples(innermost, plan->domain[innermost], others);
    Conditions conditions(shapes);
    conditions.multiples(variant.multiples, own.getVector());
    // One that is not the last has more columns side by side than short rows have.
    if (each != list.back())
      conditions.atMost(SymExpr(own.getColumns()), inner);
    variant.when = conditions.take();
    variants.push_back(variant);
    if (variant.when.isConstant(1))
      return variants;
  }
  auto last = cast<DeviceColumnScheduleAttr>(kernel.getScheduleAttr());
  variants.push_back({last, SymExpr(1), {}, tasks(last)});
  return variants;
}

/// Each with a condition and tasks of its own.
KernelVariants disc::variantsWithTasks(KernelFuncOp kernel) {
  SmallVector<KernelVariant> variants;
  for (VariantAttr own : variantsOf(kernel))
    variants.push_back({own.getSchedule(), own.getWhen().getValue(), {}, own.getTasks().getValue()});
  variants.push_back({kernel.getScheduleAttr(), SymExpr(1), {}, {}});
  return variants;
}
