//===- Layout.h - symbolic strided layouts -----------------------*- C++ -*-===//
//
// Where the elements of a tensor lie in its buffer, in elements, as expressions over symbols. Views change a layout and
// nothing else, so a view costs nothing at run time. The rules are those of PyTorch's strided tensors, decided on
// expressions: an equality that the normal form does not prove counts as false.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_PLAN_LAYOUT_H
#define DISC_DIALECTS_PLAN_LAYOUT_H

#include "dialects/Plan/PlanDialect.h"

namespace mlir::disc {

struct Layout {
  SymExpr offset;
  SmallVector<SymExpr> strides;

  /// Row-major over `dims`, from the start of the buffer.
  static Layout contiguous(ArrayRef<SymExpr> dims);
  static Layout get(LayoutAttr attr);
  LayoutAttr attr(MLIRContext *context) const;

  /// True if the elements lie row-major without gaps from the start of the buffer.
  bool isContiguous(ArrayRef<SymExpr> dims) const;

  Layout permute(ArrayRef<int64_t> permutation) const;
  Layout slice(int64_t dim, const SymExpr &first, int64_t step) const;
  /// `map[j]` is the result dimension of dimension j; `repeats[j]` tells whether its one element is repeated.
  Layout broadcast(int64_t rank, ArrayRef<int64_t> map, ArrayRef<bool> repeats) const;
  /// The same elements under other extents, or nothing when no strides can express it.
  std::optional<Layout> reshape(ArrayRef<SymExpr> from, ArrayRef<SymExpr> to) const;

  bool operator==(const Layout &other) const { return offset == other.offset && strides == other.strides; }
};

} // namespace mlir::disc

#endif // DISC_DIALECTS_PLAN_LAYOUT_H
