//===- ContractionInfo.h - the parts of a contraction kernel -------*- C++ -*-===//
//
// A contraction is a product of two tensors summed over some dimensions, of any rank. Its schedule and its code see it
// as a batch of matrix products: rows from the left operand, columns from the right one, a depth that is summed. A
// kernel holds one or several with the same left operand.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TRANSFORMS_SCHEDULE_CONTRACTIONINFO_H
#define DISC_LIB_TRANSFORMS_SCHEDULE_CONTRACTIONINFO_H

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::disc {

struct ContractionInfo {
  linalg::GenericOp op;
  unsigned lhs = 0, rhs = 1; // which input gives the rows, which the columns
  /// Iteration dimensions by role, outermost first. `batch` are those of both operands (or of neither).
  SmallVector<unsigned> batch, rows, columns, depth;
  SmallVector<SymExpr> sizes; // of every iteration dimension
  /// Panels that the right operand lies in already; null if the kernel must form them.
  UnpackOp panels;
  Type lhsElement, rhsElement, accumulator;      // rhsElement: as it lies in memory, in panels if it does
  bool lhsUnsigned = false, rhsUnsigned = false; // the integers are

  /// The elements that the product reads of the left operand: in pairs, integers are widened before.
  Type lhsRead() const;
  /// The element type of panels that are packed when the product runs, or were packed at load.
  Type rhsRead() const;
  /// Whether tasks of many rows widen the floats of a packed panel once, and not for each tile of rows.
  bool widensPanels() const;
  /// Whether `lhsRead` is not what is in memory: wider, or shifted to the other sign.
  bool changesLhs() const { return lhsRead() != lhsElement || lhsShift() != 0; }
  /// What is added to bytes of the left operand before they are multiplied, modulo 256.
  int64_t lhsShift() const { return UnpackOp(panels) ? UnpackOp(panels).getLeftShift() : 0; }
  /// Values of k side by side in a panel, which the product reads so of the left operand, too.
  int64_t together() const { return UnpackOp(panels) ? UnpackOp(panels).getTogether() : 1; }
  /// Whether codes are made pairs of bf16 where rows are many: the left operand is of bf16, too.
  bool asHalves() const { return UnpackOp(panels) && UnpackOp(panels).getAsHalves(); }

  SymExpr size(ArrayRef<unsigned> dims) const;
  Value left() { return op.getDpsInputOperand(lhs)->get(); }
  Value right() { return op.getDpsInputOperand(rhs)->get(); }
  AffineMap lhsMap() { return op.getMatchingIndexingMap(op.getDpsInputOperand(lhs)); }
  AffineMap rhsMap() { return op.getMatchingIndexingMap(op.getDpsInputOperand(rhs)); }
  /// True if the left operand's last dimension is that of the rows, of which there is one.
  bool rowsContiguous() const;
  AffineMap resultMap() { return op.getMatchingIndexingMap(op.getDpsInitOperand(0)); }

  /// Fails, with an error at the operation, if it is no sum of products.
  static FailureOr<ContractionInfo> get(linalg::GenericOp op, ShapeAnalysis &shapes);
};

/// Products over the same rows, columns and depth, and the results of the kernel that follow from them point by point.
struct ContractionPart {
  std::vector<ContractionInfo> products; // at least one
  SmallVector<unsigned> results;         // operands of the kernel's yield

  const ContractionInfo &first() const { return products.front(); }
  SymExpr columns() const { return first().size(first().columns); }
};

/// The parts of a contraction kernel, at least one. All products of a kernel have one left operand, read in one way, so
/// that they agree in batch, rows and depth; columns are a part's own. Fails with an error.
FailureOr<std::vector<ContractionPart>> contractionParts(Operation *kernel, Block &body, ShapeAnalysis &shapes);

/// True if `generic` sums products of two inputs, perhaps widened first; then so does ContractionInfo::get succeed.
bool isSumOfProducts(linalg::GenericOp generic);

} // namespace mlir::disc

#endif // DISC_LIB_TRANSFORMS_SCHEDULE_CONTRACTIONINFO_H
