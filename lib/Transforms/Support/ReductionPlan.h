//===- ReductionPlan.h - how a kernel with reductions is staged ----*- C++ -*-===//
//
// A row or column kernel walks its reduced range several times: softmax needs the maximum before it can sum the
// exponentials, and the sum before it can divide. The plan says what each pass computes, and which values one pass
// keeps for later ones instead of computing them again. The schedule stage sizes scratch memory by it, the target
// emits code from it; both derive it from the kernel's region alone.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TRANSFORMS_SUPPORT_REDUCTIONPLAN_H
#define DISC_LIB_TRANSFORMS_SUPPORT_REDUCTIONPLAN_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::disc {

struct PlannedReduction {
  linalg::GenericOp op;
  SmallVector<unsigned> parallel, reduced; // its iterators
  unsigned pass;                           // 1 for reductions of the inputs, 2 for those that need such, ...
  SmallVector<Operation *> combiners;      // one per result, in the body; empty if some result has no single one
};

/// What a result is made from: `base`, seen through `views` (the first one's source is `base`).
struct PlannedResult {
  unsigned number;
  Value base;
  SmallVector<Operation *> views;
  bool isFull;   // one value per point of the domain; else one per parallel point
  unsigned pass; // of a full result: in which it is stored
};

/// A value over the full domain that pass `pass` computes and later passes read back.
struct StagedValue {
  Value value;
  unsigned pass;
};

struct ReductionPlan {
  SmallVector<SymExpr> domain;             // in the iteration order of the first reduction
  SmallVector<unsigned> parallel, reduced; // dimensions of the domain
  SmallVector<PlannedReduction> reductions;
  SmallVector<PlannedResult> results;
  SmallVector<StagedValue> staged;
  unsigned numPasses = 0;
  /// Registers of 32 bits that a point needs to keep all values from the pass that computes or loads them to the last
  /// one that uses them, after the pass where this is most.
  int64_t kept = 0;
  double work = 0; // rough cost of all passes at one point of the domain; 1 = a load or an addition

  SmallVector<SymExpr> extents(ArrayRef<unsigned> dims) const;
  SymExpr size(ArrayRef<unsigned> dims) const { return SymExpr::product(extents(dims)); }
  /// True if the results are one value per parallel point each, whose reductions may be combined from parts.
  bool isSplittable() const;
  /// True if every reduction has an operation that combines parts.
  bool hasCombiners() const;
  /// Bytes that a staged value takes for `points` points, rounded to cache lines.
  static SymExpr stagedBytes(const StagedValue &staged, const SymExpr &points);

  /// The plan of a kernel's region; null, with an error at `kernel`, if its reductions do not share a domain.
  static FailureOr<ReductionPlan> get(Operation *kernel, Block &body, ShapeAnalysis &shapes);
};

/// Rough cost of the scalar operations of a region at one point; transcendental functions count most.
double scalarWork(Region &body);

} // namespace mlir::disc

#endif // DISC_LIB_TRANSFORMS_SUPPORT_REDUCTIONPLAN_H
