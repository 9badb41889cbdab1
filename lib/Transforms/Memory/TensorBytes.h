//===- TensorBytes.h - the sizes of tensors in memory ------------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_MEMORY_TENSORBYTES_H
#define DISC_TRANSFORMS_MEMORY_TENSORBYTES_H

#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::disc {

/// Bytes of an element in memory; a boolean takes one.
inline int64_t elementBytes(Type type) {
  return llvm::divideCeil(cast<RankedTensorType>(type).getElementType().getIntOrFloatBitWidth(), 8);
}

inline SymExpr notNegative(const SymExpr &expr, ShapeAnalysis &shapes) {
  return shapes.lessEqual(SymExpr(0), expr) ? expr : SymExpr::max(expr, SymExpr(0));
}

/// The size of a tensor. An extent is negative at most for sizes at which its branch is not taken: it counts as 0, as
/// the arena is laid out for all branches.
inline SymExpr tensorBytes(Value tensor, ShapeAnalysis &shapes) {
  SymExpr bytes(elementBytes(tensor.getType()));
  for (const SymExpr &extent : shapes.dims(tensor))
    bytes = bytes * notNegative(extent, shapes);
  return bytes;
}

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_TENSORBYTES_H
