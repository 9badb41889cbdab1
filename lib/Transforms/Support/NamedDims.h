//===- NamedDims.h - the sizes of a new operation's result ---------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_SUPPORT_NAMEDDIMS_H
#define DISC_TRANSFORMS_SUPPORT_NAMEDDIMS_H

#include "dialects/Shape/ShapeDialect.h"
#include "mlir/IR/Builders.h"

namespace mlir::disc {

/// Records the symbolic sizes of a new operation's only result on the operation, as the shape stage does.
inline void setDims(Operation *op, ArrayRef<SymExpr> dims) {
  Builder b(op->getContext());
  op->setAttr(ShapeDialect::getDimsAttrName(), b.getArrayAttr({DimsAttr::get(op->getContext(), dims)}));
}

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_NAMEDDIMS_H
