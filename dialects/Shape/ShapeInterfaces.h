//===- ShapeInterfaces.h - how operations tell their extents ----*- C++ -*-===//

#ifndef DISC_DIALECTS_SHAPE_SHAPEINTERFACES_H
#define DISC_DIALECTS_SHAPE_SHAPEINTERFACES_H

#include "dialects/Shape/SymExpr.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/Value.h"

namespace mlir::disc {

/// What an operation may ask about other values to tell its own extents.
class DimsQuery {
public:
  virtual ~DimsQuery() = default;
  /// One expression per dimension of a ranked tensor.
  virtual SmallVector<SymExpr> dims(Value tensor) = 0;
  /// The value of an index or integer.
  virtual SymExpr expr(Value index) = 0;
};

} // namespace mlir::disc

#include "dialects/Shape/ShapeInterfaces.h.inc"

#endif // DISC_DIALECTS_SHAPE_SHAPEINTERFACES_H
