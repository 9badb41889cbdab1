//===- ArenaPlanner.cpp - offsets for temporaries of symbolic size --------===//

#include "lib/Transforms/Memory/ArenaPlanner.h"

using namespace mlir;
using namespace mlir::disc;

SymExpr ArenaPlanner::align(const SymExpr &bytes) {
  if (shapes.divisible(bytes, alignment))
    return bytes;
  return SymExpr::ceilDiv(bytes, SymExpr(alignment)) * SymExpr(alignment);
}

ArenaPlanner::Plan ArenaPlanner::plan(ArrayRef<Temporary> temporaries) {
  SmallVector<Slot> slots;
  SmallVector<size_t> slotOf;
  for (const Temporary &t : temporaries) {
    SymExpr bytes = align(t.bytes);
    // The free slot that changes the arena least at typical sizes: one that holds the temporary wastes the difference,
    // one that must grow costs it, and wasting up to the temporary's own size is better than a new slot.
    std::optional<size_t> best;
    int64_t bestChange = 0, typical = shapes.typical(bytes);
    for (auto [i, slot] : llvm::enumerate(slots)) {
      if (slot.freeAfter >= t.first)
        continue;
      int64_t change = std::abs(shapes.typical(slot.bytes) - typical);
      if (change <= typical && (!best || change < bestChange)) {
        best = i;
        bestChange = change;
      }
    }
    if (!best) {
      slotOf.push_back(slots.size());
      slots.push_back({bytes, t.last});
      continue;
    }
    Slot &slot = slots[*best];
    if (shapes.lessEqual(slot.bytes, bytes))
      slot.bytes = bytes;
    else if (!shapes.lessEqual(bytes, slot.bytes))
      slot.bytes = SymExpr::max(slot.bytes, bytes);
    slot.freeAfter = t.last;
    slotOf.push_back(*best);
  }

  Plan plan;
  SmallVector<SymExpr> offsets;
  for (const Slot &slot : slots) {
    offsets.push_back(plan.bytes);
    plan.bytes += slot.bytes;
  }
  for (size_t slot : slotOf)
    plan.offsets.push_back(offsets[slot]);
  return plan;
}
