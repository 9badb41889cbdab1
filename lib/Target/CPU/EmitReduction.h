//===- EmitReduction.h - kernels with reductions -------------------*- C++ -*-===//
//
// What row and column kernels share: passes over the reduced range, reductions that later passes read, values kept
// between passes. They differ in where the lanes run: along the innermost reduced dimension, or along the innermost
// parallel one.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_CPU_EMITREDUCTION_H
#define DISC_LIB_TARGET_CPU_EMITREDUCTION_H

#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/CPU/KernelAccess.h"
#include "lib/Transforms/Schedule/ReductionPlan.h"

namespace mlir::disc {

class ReductionEmitter {
public:
  ReductionEmitter(KernelEmission &e, ReductionPlan plan, bool lanesAreReduced);

  /// All passes at the parallel points given by `parallel` (coordinates of the domain's parallel dimensions, each
  /// with all its vectors of lanes: one unless the lanes are parallel), and the results there.
  LogicalResult emitPoints(ArrayRef<SmallVector<Idx>> parallel, Value mask);

  /// Runs `body` for each of the tasks [begin, end) with the coordinates it stands for under `extents`.
  LogicalResult forEachTask(ArrayRef<SymExpr> extents, function_ref<LogicalResult(ArrayRef<Value>)> body);

  PointEmitter points;
  const ReductionPlan plan;

private:
  /// The points of one step of a pass: one per accumulator, or per vector of parallel lanes.
  struct Step {
    SmallVector<SmallVector<Idx>> at; // coordinates of the domain
    SmallVector<unsigned> accumulator; // which set each point adds to
    Value mask;
    Value position; // of the first point in the reduced range, for values kept between passes
  };
  using StepBody = function_ref<SmallVector<Value>(const Step &, ValueRange)>;

  LogicalResult emitPass(unsigned pass);
  SmallVector<Value> emitStep(unsigned pass, const Step &step, ValueRange carried);
  SmallVector<Value> walkReduced(unsigned run, SmallVector<SmallVector<Idx>> at, Value position, ValueRange carried,
                                 StepBody body);
  SmallVector<Value> walkLanes(SmallVector<SmallVector<Idx>> at, Value position, ValueRange carried, StepBody body);
  LogicalResult emitSerial(const PlannedReduction &reduction);
  LogicalResult initial(const PlannedReduction &reduction, unsigned set, SmallVectorImpl<Value> &values);
  Value combine(Operation *combiner, Value a, Value b);
  Value combineLanes(Operation *combiner, Value v);
  LogicalResult storeStaged(unsigned pass, const Step &step);
  void bindStaged(unsigned pass, const Step &step);
  LogicalResult storeFull(const PlannedResult &result, ArrayRef<Idx> at, Value mask);
  LogicalResult storeParallel(const PlannedResult &result, ArrayRef<Idx> parallel, Value mask);
  bool isSerial(const PlannedReduction &reduction) { return lanesAreReduced && reduction.combiners.empty(); }

  KernelEmission &e;
  OpBuilder &b;
  Location loc;
  bool lanesAreReduced;
  unsigned accumulators;
  SmallVector<MergedDims> runs;     // of the reduced dimensions
  SmallVector<SymExpr> stagedStart; // bytes into the scratch memory
  SmallVector<SmallVector<Idx>> current; // the parallel points being emitted
  Value currentMask;
};

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_EMITREDUCTION_H
