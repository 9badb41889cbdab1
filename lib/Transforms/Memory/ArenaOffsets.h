//===- ArenaOffsets.h - a plan as index arithmetic ---------------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_MEMORY_ARENAOFFSETS_H
#define DISC_TRANSFORMS_MEMORY_ARENAOFFSETS_H

#include "lib/Transforms/Memory/ArenaPlanner.h"
#include "mlir/IR/Builders.h"

namespace mlir::disc {

/// Where the temporaries lie, as index values of the host flow.
struct ArenaOffsets {
  SmallVector<Value> offsets;
  Value bytes; // of the whole arena
};

/// Emits the plan's orders, and the choice between them if there are several. What the symbols' facts decide is decided
/// here: an offset that is one expression for all shapes costs no comparison at run time.
ArenaOffsets emitArenaOffsets(OpBuilder &b, Location loc, const ArenaPlanner::Plan &plan,
                              ArrayRef<ArenaPlanner::Temporary> temporaries, ShapeAnalysis &shapes);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_ARENAOFFSETS_H
