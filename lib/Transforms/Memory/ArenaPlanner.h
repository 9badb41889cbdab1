//===- ArenaPlanner.h - offsets for temporaries of symbolic size -*- C++ -*-===//
//
// Temporaries with disjoint lifetimes share a slot of one arena. Sizes are expressions, so "fits" means proved for
// every value of the symbols; a slot may also grow to the larger of two sizes, which is then a `max` expression.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_MEMORY_ARENAPLANNER_H
#define DISC_TRANSFORMS_MEMORY_ARENAPLANNER_H

#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

class ArenaPlanner {
public:
  /// A temporary alive from step `first` to step `last`, both included.
  struct Temporary {
    SymExpr bytes;
    int64_t first, last;
  };
  struct Plan {
    SmallVector<SymExpr> offsets; // one per temporary
    SymExpr bytes;                // of the whole arena
  };

  explicit ArenaPlanner(ShapeAnalysis &shapes) : shapes(shapes) {}
  /// `temporaries` in the order of `first`.
  Plan plan(ArrayRef<Temporary> temporaries);

  /// Every offset is a multiple of this: a cache line, and the widest vector.
  static constexpr int64_t alignment = 64;
  SymExpr align(const SymExpr &bytes);

private:
  struct Slot {
    SymExpr bytes;
    int64_t freeAfter;
  };
  ShapeAnalysis &shapes;
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_ARENAPLANNER_H
