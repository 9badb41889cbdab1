//===- ViewLayout.cpp - layouts of disc_tensor views ----------------------===//

#include "lib/Transforms/Support/ViewLayout.h"

using namespace mlir;
using namespace mlir::disc;

bool mlir::disc::isAbsorbed(PermuteOp permute) {
  auto attention = permute.getSource().getDefiningOp<AttentionOp>();
  return attention && attention->hasOneUse();
}

bool mlir::disc::isAddressedView(Operation *op) {
  auto permute = dyn_cast<PermuteOp>(op);
  return isView(op) && !(permute && isAbsorbed(permute));
}

Value mlir::disc::viewBase(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isAddressedView(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

bool mlir::disc::sameView(Value a, Value b) {
  if (a == b)
    return true;
  Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
  if (!x || !y || x->getName() != y->getName() || a.getType() != b.getType() ||
      x->getPropertiesAsAttribute() != y->getPropertiesAsAttribute() || x->getNumOperands() != y->getNumOperands())
    return false;
  if (!isAddressedView(x) && !isa<DimOp, ParameterOp>(x))
    return false;
  return llvm::all_of(llvm::zip(x->getOperands(), y->getOperands()),
                      [](auto pair) { return sameView(std::get<0>(pair), std::get<1>(pair)); });
}

std::optional<Layout> mlir::disc::viewLayout(Value value, ShapeAnalysis &shapes) {
  Operation *op = value.getDefiningOp();
  if (!op || !isAddressedView(op))
    return Layout::contiguous(shapes.dims(value));
  std::optional<Layout> source = viewLayout(op->getOperand(0), shapes);
  if (!source)
    return std::nullopt;
  if (auto permute = dyn_cast<PermuteOp>(op))
    return source->permute(permute.getPermutation());
  if (auto slice = dyn_cast<SliceOp>(op))
    return source->slice(slice.getDim(), shapes.expr(slice.getOffset()), slice.getStep());
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return source->reshape(shapes.dims(reshape.getSource()), shapes.dims(value));
  auto broadcast = cast<BroadcastOp>(op);
  auto from = cast<RankedTensorType>(broadcast.getSource().getType());
  SmallVector<bool> repeats;
  for (int64_t extent : from.getShape())
    repeats.push_back(extent == 1);
  return source->broadcast(cast<RankedTensorType>(value.getType()).getRank(), broadcast.getDims(), repeats);
}

std::optional<JoinedRows> mlir::disc::joinedRows(Value operand, ShapeAnalysis &shapes) {
  JoinedRows out;
  for (Operation *op = operand.getDefiningOp(); op; op = op->getOperand(0).getDefiningOp()) {
    if (auto concat = dyn_cast<ConcatOp>(op)) {
      out.concat = concat;
      std::reverse(out.views.begin(), out.views.end());
      return concat.getDim() + 2 == uint64_t(cast<RankedTensorType>(concat.getType()).getRank()) ? std::optional(out)
                                                                                                 : std::nullopt;
    }
    if (!isa<BroadcastOp, ReshapeOp>(op))
      break;
    SmallVector<SymExpr> from = shapes.dims(op->getOperand(0)), to = shapes.dims(op->getResult(0));
    for (size_t back : {1, 2})
      if (from.size() < 3 || to.size() < 3 || !shapes.equal(from[from.size() - back], to[to.size() - back]))
        return std::nullopt;
    out.views.push_back(op);
  }
  return std::nullopt;
}

std::optional<Layout> JoinedRows::through(Layout layout, const SymExpr &count, ShapeAnalysis &shapes) const {
  auto dimsOf = [&](Value v) {
    SmallVector<SymExpr> dims = shapes.dims(v);
    dims[dims.size() - 2] = count;
    return dims;
  };
  SmallVector<SymExpr> dims = dimsOf(ConcatOp(concat).getResult());
  for (Operation *op : views) {
    SmallVector<SymExpr> to = dimsOf(op->getResult(0));
    if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
      SmallVector<bool> repeats;
      for (int64_t extent : cast<RankedTensorType>(broadcast.getSource().getType()).getShape())
        repeats.push_back(extent == 1);
      layout = layout.broadcast(to.size(), broadcast.getDims(), repeats);
    } else {
      std::optional<Layout> reshaped = layout.reshape(dims, to);
      if (!reshaped)
        return std::nullopt;
      layout = *reshaped;
    }
    dims = to;
  }
  return layout;
}

/// The dimensions of `to` that dimension `dim` of `from`, the same elements in row-major order, becomes; nothing if it
/// shares them with others.
static std::optional<SmallVector<unsigned>> splitOf(RankedTensorType from, RankedTensorType to, unsigned dim) {
  if (from.getDimSize(dim) == 1)
    return SmallVector<unsigned>();
  if (!from.hasStaticShape() || !to.hasStaticShape() || from.getNumElements() == 0)
    return std::nullopt;
  int64_t before = 1, extent = from.getDimSize(dim);
  for (unsigned d = 0; d < dim; ++d)
    before *= from.getDimSize(d);
  SmallVector<unsigned> out;
  int64_t passed = 1, own = 1;
  for (unsigned d = 0; d < to.getRank() && own < extent; ++d) {
    int64_t size = to.getDimSize(d);
    if (size == 1)
      continue;
    if (passed < before) {
      passed *= size;
      continue;
    }
    own *= size;
    out.push_back(d);
  }
  return passed == before && own == extent ? std::optional(out) : std::nullopt;
}

std::optional<SmallVector<unsigned>> disc::dimsThroughViews(ArrayRef<Operation *> views, unsigned dim) {
  SmallVector<unsigned> dims{dim};
  for (Operation *view : llvm::reverse(views)) {
    SmallVector<unsigned> next;
    for (unsigned d : dims) {
      if (auto permute = dyn_cast<PermuteOp>(view)) {
        next.push_back(llvm::find(permute.getPermutation(), int64_t(d)) - permute.getPermutation().begin());
        continue;
      }
      auto reshape = dyn_cast<ReshapeOp>(view);
      auto split = reshape ? splitOf(cast<RankedTensorType>(reshape.getSource().getType()),
                                     cast<RankedTensorType>(reshape.getResult().getType()), d)
                           : std::nullopt;
      if (!split)
        return std::nullopt;
      next.append(*split);
    }
    dims = next;
  }
  return dims;
}
