//===- ArenaOffsets.cpp - a plan as index arithmetic ----------------------===//
//
// Three temporaries in the order a, b, c, of which c lives with both others and those two do not meet:
//
//   a at 0 ; b at 0 ; c at max(bytes(a), bytes(b)) ; in all: c's end
//
// The maximum is one expression if one size is proved the larger, else `arith.maxsi`.
//
// Test: test/lit/Memory/plan-arena.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/ArenaOffsets.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// A distance from the arena's start: an expression, or a value if no expression is known to be it.
struct Height {
  std::optional<SymExpr> expr;
  Value value;
};

class OffsetEmitter {
public:
  OffsetEmitter(OpBuilder &b, Location loc, const ArenaLayout &layout, ArrayRef<ArenaPlanner::Temporary> temporaries,
                ShapeAnalysis &shapes)
      : b(b), loc(loc), layout(layout), temporaries(temporaries), shapes(shapes) {}

  ArenaOffsets emit(ArrayRef<unsigned> order);

private:
  Value valueOf(Height &height) {
    if (!height.value)
      height.value = DimOp::create(b, loc, *height.expr);
    return height.value;
  }
  Height highest(SmallVector<Height *> heights);

  OpBuilder &b;
  Location loc;
  const ArenaLayout &layout;
  ArrayRef<ArenaPlanner::Temporary> temporaries;
  ShapeAnalysis &shapes;
};
} // namespace

Height OffsetEmitter::highest(SmallVector<Height *> heights) {
  SmallVector<Height *> kept;
  for (Height *h : heights) {
    auto covers = [&](Height *above, Height *below) {
      return above->expr && below->expr && shapes.lessEqual(*below->expr, *above->expr);
    };
    if (llvm::any_of(kept, [&](Height *k) { return covers(k, h); }))
      continue;
    llvm::erase_if(kept, [&](Height *k) { return covers(h, k); });
    kept.push_back(h);
  }
  if (kept.empty())
    return {SymExpr(0), {}};
  if (kept.size() == 1)
    return *kept.front();
  Value top = valueOf(*kept.front());
  for (Height *h : ArrayRef(kept).drop_front())
    top = arith::MaxSIOp::create(b, loc, top, valueOf(*h));
  return {std::nullopt, top};
}

ArenaOffsets OffsetEmitter::emit(ArrayRef<unsigned> order) {
  size_t n = layout.size();
  SmallVector<Height> begins(n), ends(n);
  SmallVector<llvm::BitVector> below(n, llvm::BitVector(n)); // what a temporary rests on, directly or not
  llvm::BitVector placed(n), covered(n);
  // Placed last comes first: it covers most of what is under it.
  auto uncovered = [&](SmallVector<unsigned> candidates, llvm::BitVector &under) {
    SmallVector<Height *> heights;
    for (unsigned i : llvm::reverse(order))
      if (llvm::is_contained(candidates, i) && !under.test(i)) {
        heights.push_back(&ends[i]);
        under |= below[i];
        under.set(i);
      }
    return heights;
  };
  for (unsigned i : order) {
    SmallVector<unsigned> candidates;
    for (unsigned j : layout.neighbours(i))
      if (placed.test(j))
        candidates.push_back(j);
    begins[i] = highest(uncovered(candidates, below[i]));
    const SymExpr &bytes = temporaries[i].bytes;
    if (begins[i].expr)
      ends[i].expr = *begins[i].expr + bytes;
    else
      ends[i].value = arith::AddIOp::create(b, loc, begins[i].value, DimOp::create(b, loc, bytes));
    placed.set(i);
  }
  ArenaOffsets out;
  Height top = highest(uncovered(SmallVector<unsigned>(order), covered));
  out.bytes = valueOf(top);
  for (Height &begin : begins)
    out.offsets.push_back(valueOf(begin));
  return out;
}

ArenaOffsets mlir::disc::emitArenaOffsets(OpBuilder &b, Location loc, const ArenaPlanner::Plan &plan,
                                          ArrayRef<ArenaPlanner::Temporary> temporaries, ShapeAnalysis &shapes) {
  OffsetEmitter emitter(b, loc, plan.layout, temporaries, shapes);
  ArenaOffsets best = emitter.emit(plan.orders.front());
  for (ArrayRef<unsigned> order : ArrayRef(plan.orders).drop_front()) {
    ArenaOffsets other = emitter.emit(order);
    Value less = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, other.bytes, best.bytes);
    auto choose = [&](Value x, Value y) {
      return x == y ? x : arith::SelectOp::create(b, loc, less, x, y).getResult();
    };
    best.bytes = choose(other.bytes, best.bytes);
    for (auto [x, y] : llvm::zip(other.offsets, best.offsets))
      y = choose(x, y);
  }
  return best;
}
