//===- Requirements.h - What operations demand of extents -------*- C++ -*-===//

#ifndef DISC_TRANSFORMS_SHAPE_REQUIREMENTS_H
#define DISC_TRANSFORMS_SHAPE_REQUIREMENTS_H

#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

/// A relation between extents without which an operation has no meaning.
struct Requirement {
  Predicate predicate;
  SymExpr lhs, rhs;
  StringRef message;
};

/// What `op` demands of the extents of its operands and results, as far as it
/// is not proved.
SmallVector<Requirement> unprovedRequirements(Operation *op, ShapeAnalysis &shapes);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SHAPE_REQUIREMENTS_H
