//===- Layout.cpp - symbolic strided layouts ------------------------------===//

#include "dialects/Plan/Layout.h"

using namespace mlir;
using namespace mlir::disc;

Layout Layout::contiguous(ArrayRef<SymExpr> dims) {
  Layout layout;
  layout.strides.resize(dims.size());
  SymExpr stride(1);
  for (int64_t i = static_cast<int64_t>(dims.size()) - 1; i >= 0; --i) {
    layout.strides[i] = stride;
    stride *= dims[i];
  }
  return layout;
}

Layout Layout::get(LayoutAttr attr) {
  Layout layout;
  layout.offset = attr.getOffset().getValue();
  layout.strides = attr.getStrides().getDims();
  return layout;
}

LayoutAttr Layout::attr(MLIRContext *context) const {
  return LayoutAttr::get(context, ExprAttr::get(context, offset), DimsAttr::get(context, strides));
}

bool Layout::isContiguous(ArrayRef<SymExpr> dims) const {
  if (!offset.isConstant(0))
    return false;
  Layout dense = contiguous(dims);
  for (size_t i = 0; i < dims.size(); ++i)
    if (!dims[i].isConstant(1) && strides[i] != dense.strides[i])
      return false;
  return true;
}

Layout Layout::permute(ArrayRef<int64_t> permutation) const {
  Layout layout;
  layout.offset = offset;
  for (int64_t p : permutation)
    layout.strides.push_back(strides[p]);
  return layout;
}

Layout Layout::slice(int64_t dim, const SymExpr &first, int64_t step) const {
  Layout layout = *this;
  layout.offset += first * strides[dim];
  layout.strides[dim] *= SymExpr(step);
  return layout;
}

Layout Layout::broadcast(int64_t rank, ArrayRef<int64_t> map, ArrayRef<bool> repeats) const {
  Layout layout;
  layout.offset = offset;
  layout.strides.assign(rank, SymExpr(0));
  for (auto [j, d] : llvm::enumerate(map))
    if (!repeats[j])
      layout.strides[d] = strides[j];
  return layout;
}

std::optional<Layout> Layout::reshape(ArrayRef<SymExpr> from, ArrayRef<SymExpr> to) const {
  Layout layout;
  layout.offset = offset;
  layout.strides.assign(to.size(), SymExpr(1));

  // Walk both shapes from the left; wherever the products so far agree, the dimensions since the last such place form
  // a chunk that is split or merged on its own.
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    size_t endI = i, endJ = j;
    bool found = false;
    SymExpr left(1);
    // The smallest chunk: unit dimensions on either side close at once.
    for (size_t a = i; a <= from.size() && !found; ++a) {
      if (a > i)
        left *= from[a - 1];
      SymExpr right(1);
      for (size_t b = j; b <= to.size() && !found; ++b) {
        if (b > j)
          right *= to[b - 1];
        if ((a > i || b > j) && left == right) {
          endI = a;
          endJ = b;
          found = true;
        }
      }
    }
    // What is left has as many elements on both sides, though only a guard may know it: (S floordiv 2) * 2 and S.
    if (!found) {
      endI = from.size();
      endJ = to.size();
    }
    // Inside a chunk the source must be dense: each stride is the next one times the next extent.
    std::optional<SymExpr> innermost;
    SymExpr dense;
    for (size_t d = endI; d-- > i;) {
      if (from[d].isConstant(1))
        continue;
      if (!innermost)
        innermost = strides[d];
      else if (strides[d] != dense)
        return std::nullopt;
      dense = strides[d] * from[d];
    }
    SymExpr stride = innermost.value_or(SymExpr(1));
    for (size_t d = endJ; d-- > j;) {
      layout.strides[d] = stride;
      stride *= to[d];
    }
    i = endI;
    j = endJ;
  }
  return layout;
}
