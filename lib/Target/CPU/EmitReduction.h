//===- EmitReduction.h - kernels with reductions -------------------*- C++ -*-===//
//
// What row and column kernels share: passes over the reduced range, reductions that later passes read, values kept
// between passes. They differ in where the lanes run: along the innermost reduced dimension, or along the innermost
// parallel one.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_CPU_EMITREDUCTION_H
#define DISC_LIB_TARGET_CPU_EMITREDUCTION_H

#include "lib/Target/CPU/CrossedTiles.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/Common/ReductionPoints.h"

namespace mlir::disc {

class ReductionEmitter {
public:
  ReductionEmitter(KernelEmission &e, ReductionPlan plan, bool lanesAreReduced);

  /// All passes at some parallel points, and the results there. A point has a coordinate per parallel dimension of
  /// the domain; there is one point, or, if the lanes are parallel, one per vector of lanes done together.
  LogicalResult emitPoints(ArrayRef<SmallVector<Idx>> parallelPoints, Value mask);

  /// For lanes that are parallel points of rows of up to `longest` elements: prepares to read and write V rows as
  /// tiles. False if the rows do not lie one way; the lanes then run along `parallelRuns.back()`.
  bool useTiles(int64_t longest);
  /// All passes at V rows, the first one at `at` (a coordinate per parallel run); `count` of them are there (null:
  /// all).
  LogicalResult emitRows(ValueRange at, Value count);

  SmallVector<MergedDims> parallelRuns; // of the parallel dimensions

  PointEmitter points;
  const ReductionPlan plan;

private:
  /// Where a pass evaluates something: a point of the domain, and where the values kept for it lie.
  struct Site {
    SmallVector<Idx> at;   // one per dimension of the domain
    Idx slot;              // element of a staged value's buffer
    unsigned parallel = 0; // of the parallel points
    unsigned set = 0;      // of accumulators
  };
  using SiteBody = function_ref<SmallVector<Value>(ArrayRef<Site>, Value mask, ValueRange carried)>;

  void eachTile(CrossedTiles::Place &place, function_ref<void()> body);
  LogicalResult emitPass(unsigned pass);
  void emitSerial(const PlannedReduction &reduction);
  SmallVector<Value> emitSites(unsigned pass, ArrayRef<Site> sites, Value mask, ValueRange carried);
  SmallVector<Value> walk(unsigned run, Value position, ArrayRef<Site> sites, bool lanes, ValueRange carried,
                          SiteBody body);
  SmallVector<Value> walkLanes(Value position, const Site &site, ValueRange carried, SiteBody body);
  SmallVector<Value> sumLoop(Value from, Value to, int64_t step, const SymExpr &extent, int64_t chain,
                             ValueRange carried, LoopBody body);
  SmallVector<Value> apart(ValueRange carried, function_ref<SmallVector<Value>(ValueRange)> body);
  int64_t chainSteps(unsigned run);
  SmallVector<Value> reduceAt(const PlannedReduction &reduction, const Site &site, Value mask, ArrayRef<Value> accs);

  Value initial(const PlannedReduction &reduction, unsigned result, unsigned parallel);
  Value combineLanes(Operation *combiner, Value v);
  void setResult(Value reductionResult, SmallVector<Value> perPoint);
  void bindStaged(unsigned i);
  /// Where the rows of a staged value lie in scratch memory.
  Value stagedBuffer(unsigned i);
  Value evalFull(const PlannedResult &result, const Site &site, Value mask);
  bool storeParallel(const PlannedResult &result, unsigned parallel, Value mask);
  bool storeViewed(const PlannedResult &result, SmallVector<Idx> coords, Value v, Value mask);
  Site siteAt(unsigned parallel);
  bool isSerial(const PlannedReduction &reduction) {
    return lanesAreReduced && (reduction.combiners.empty() || runs.empty());
  }

  KernelEmission &e;
  OpBuilder &b;
  Location loc;
  KernelAccess access;
  bool lanesAreReduced;
  std::optional<CrossedTiles> inputTiles, resultTiles;
  unsigned numSets;                 // of accumulators: independent chains of a long reduction
  SmallVector<MergedDims> runs;     // of the reduced dimensions
  SmallVector<Operation *> sums;    // of what a pass carries: the addition of floats, or null
  SmallVector<SymExpr> stagedStart; // of each staged value, in bytes of scratch memory
  SmallVector<SmallVector<Idx>> parallelPoints;
  Value parallelMask;
  DenseMap<Value, SmallVector<Value>> finals; // per reduction's result, its value at each parallel point
  Site current;                               // what bindings refer to
  bool ok = true;
};

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_EMITREDUCTION_H
