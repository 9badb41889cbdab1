//===- ArenaPlanner.h - places for temporaries of symbolic size --*- C++ -*-===//
//
// Lifetimes are known at compile time, sizes only as expressions. A plan is therefore an *order*: each temporary lies
// on top of the highest of those before it in the order that are alive at some time it is. Whatever the sizes turn out
// to be, no two live temporaries overlap; and every packing of boxes can be pushed down to such an order, so that the
// best packing at any one shape is an order too. Orders are searched for at sample shapes (the ends of the symbols'
// ranges and typical values); where no single one is near the largest live set at all of them, a plan has up to three,
// and the host flow takes the one that needs least at the sizes of the call.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_MEMORY_ARENAPLANNER_H
#define DISC_TRANSFORMS_MEMORY_ARENAPLANNER_H

#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

/// Temporaries and their lifetimes, and the numbers that follow from sizes.
class ArenaLayout {
public:
  struct Lifetime {
    int64_t first, last; // steps, both included
  };
  using Order = SmallVector<unsigned>;

  explicit ArenaLayout(ArrayRef<Lifetime> lifetimes);

  size_t size() const { return lifetimes.size(); }
  /// Those that are alive at some time when `i` is.
  ArrayRef<unsigned> neighbours(unsigned i) const { return adjacent[i]; }
  /// Where each temporary lies if placed in this order.
  SmallVector<int64_t> offsets(ArrayRef<int64_t> sizes, ArrayRef<unsigned> order) const;
  /// Bytes that these offsets take in all.
  static int64_t bytes(ArrayRef<int64_t> sizes, ArrayRef<int64_t> offsets);
  /// The largest sum of sizes alive at one step: no plan takes less.
  int64_t largestLive(ArrayRef<int64_t> sizes) const;
  /// A packing: temporaries in order of `priority`, highest first, each in the lowest gap that holds it; as an order.
  Order pack(ArrayRef<int64_t> sizes, ArrayRef<int64_t> priority) const;

private:
  SmallVector<Lifetime> lifetimes;
  SmallVector<SmallVector<unsigned>> adjacent;
};

class ArenaPlanner {
public:
  struct Temporary {
    SymExpr bytes; // aligned
    ArenaLayout::Lifetime life;
  };
  struct Plan {
    ArenaLayout layout;
    SmallVector<ArenaLayout::Order> orders;
  };

  explicit ArenaPlanner(ShapeAnalysis &shapes) : shapes(shapes) {}
  Plan plan(ArrayRef<Temporary> temporaries);

  /// Every offset is a multiple of this: a cache line, and the widest vector.
  static constexpr int64_t alignment = 64;
  static SymExpr align(const SymExpr &bytes, const ShapeAnalysis &shapes);

private:
  SmallVector<SmallVector<int64_t>> sampleSizes(ArrayRef<Temporary> temporaries);
  ShapeAnalysis &shapes;
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_ARENAPLANNER_H
