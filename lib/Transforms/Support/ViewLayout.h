//===- ViewLayout.h - layouts of disc_tensor views ---------------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_SUPPORT_VIEWLAYOUT_H
#define DISC_TRANSFORMS_SUPPORT_VIEWLAYOUT_H

#include "dialects/Plan/Layout.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

/// True for a permutation that costs no view: attention whose only use it is stores its result in that order.
bool isAbsorbed(PermuteOp permute);

/// True for views that are addressed, not stored: all but absorbed permutations.
bool isAddressedView(Operation *op);

/// The value that a chain of views starts from.
Value viewBase(Value value);

/// True if both are the same elements in the same order: one value, or equal views of one.
bool sameView(Value a, Value b);

/// The dimensions, outermost first and without those of one element, that dimension `dim` of what a chain of
/// permutations and reshapes starts from becomes at its end. `views`: last first. Nothing if it is mixed with others on
/// the way, or shapes are not static.
std::optional<SmallVector<unsigned>> dimsThroughViews(ArrayRef<Operation *> views, unsigned dim);

/// The layout of `value` over the buffer of viewBase(value), which is dense row-major; nothing if strides cannot
/// express a reshape on the way.
std::optional<Layout> viewLayout(Value value, ShapeAnalysis &shapes);

/// Keys or values of attention as rows put one after the other: a concatenation along their rows, and the views that
/// lead from it to the operand without touching rows or columns.
struct JoinedRows {
  ConcatOp concat;
  SmallVector<Operation *> views; // from the concatenation on

  /// The layout of the operand, with `count` rows, if `layout` were that of the concatenation.
  std::optional<Layout> through(Layout layout, const SymExpr &count, ShapeAnalysis &shapes) const;
};
std::optional<JoinedRows> joinedRows(Value operand, ShapeAnalysis &shapes);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_VIEWLAYOUT_H
