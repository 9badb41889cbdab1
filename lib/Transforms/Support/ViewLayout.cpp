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
