//===- ReductionPoints.h - reductions, point by point --------------*- C++ -*-===//
//
// What a plan's reductions and results are at points of its domain, whoever walks them in whatever order.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_COMMON_REDUCTIONPOINTS_H
#define DISC_LIB_TARGET_COMMON_REDUCTIONPOINTS_H

#include "lib/Target/Common/KernelAccess.h"
#include "lib/Transforms/Support/ReductionPlan.h"

namespace mlir::disc {

/// Records what all passes of the plan read and write, over the plan's domain.
void readReductions(KernelAccess &access, KernelFuncOp kernel, const ReductionPlan &plan, ShapeAnalysis &shapes);

/// The dimensions `dims` of the domain as runs; adjacent ones may be merged.
SmallVector<MergedDims> adjacentRuns(KernelAccess &access, ArrayRef<unsigned> dims);

/// The reduction's iterators at a point of the plan's domain.
SmallVector<Idx> itersAt(const ReductionPlan &plan, const PlannedReduction &reduction, ArrayRef<Idx> at);

/// The accumulators after one more point of the domain. The body's own combiner adds to them, whatever it is. Nothing,
/// with an error reported, if a value cannot be evaluated.
SmallVector<Value> reducePoint(PointEmitter &points, const ReductionPlan &plan, const PlannedReduction &reduction,
                               ArrayRef<Idx> at, Value mask, ArrayRef<Value> accumulators);

/// What a reduction's output holds before it starts, at a parallel point; null, with an error reported, if unknown.
Value initialOf(PointEmitter &points, const PlannedReduction &reduction, unsigned result, ArrayRef<Idx> parallel,
                Value mask = {});

/// The reduction's combiner on two accumulators.
Value combineValues(OpBuilder &b, Operation *combiner, Value x, Value y);

/// The coordinates of a result as it is stored, from those of what it is made from.
SmallVector<Idx> followViews(PointEmitter &points, const PlannedResult &result, ArrayRef<Idx> at);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_COMMON_REDUCTIONPOINTS_H
