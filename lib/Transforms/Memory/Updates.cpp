//===- Updates.cpp - new values of arguments, in their own memory ---------===//

#include "lib/Transforms/Memory/Updates.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/InPlace.h"

using namespace mlir;
using namespace mlir::disc;

StringAttr mlir::disc::stateOf(BlockArgument argument) {
  auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "disc_tensor.state");
}

std::optional<BlockArgument> mlir::disc::updatedBy(func::FuncOp func, unsigned index) {
  auto number = func.getResultAttrOfType<IntegerAttr>(index, "disc_tensor.updates");
  if (!number)
    return std::nullopt;
  if (number.getInt() < 0 || number.getInt() >= func.getNumArguments())
    return BlockArgument();
  return func.getArgument(number.getInt());
}

UpdatePlacement::UpdatePlacement(Block &body, std::function<ArrayRef<SmallVector<unsigned>>(CallOp)> inPlace)
    : body(body), inPlace(std::move(inPlace)) {
  int64_t steps = 0;
  for (Operation &op : body)
    step[&op] = steps++;
}

int64_t UpdatePlacement::lastUse(Value v) const {
  int64_t last = -1;
  for (Operation *user : v.getUsers()) {
    if (isView(user))
      last = std::max(last, lastUse(user->getResult(0)));
    else // in the flow itself, or in a loop there
      last = std::max(last, step.lookup(body.findAncestorOpInBlock(*user)));
  }
  return last;
}

bool UpdatePlacement::place(Value value, BlockArgument argument, SmallVectorImpl<Value> &chain) {
  auto kernel = value.getDefiningOp<CallOp>();
  if (!kernel || kernel->getBlock() != &body || lastUse(argument) > step.lookup(kernel))
    return false;
  unsigned result = cast<OpResult>(value).getResultNumber();
  ArrayRef<SmallVector<unsigned>> results = inPlace(kernel);
  ArrayRef<unsigned> operands = result < results.size() ? ArrayRef<unsigned>(results[result]) : ArrayRef<unsigned>();
  auto safe = [&](Value operand) { return InPlaceKernels::covers(kernel, operand, operands); };
  if (llvm::is_contained(kernel.getInputs(), argument)) {
    if (!safe(argument))
      return false;
    chain.push_back(value);
    return true;
  }
  for (unsigned i : operands) {
    Value operand = kernel.getInputs()[i];
    size_t length = chain.size();
    chain.push_back(value);
    if (operand.getType() == value.getType() && lastUse(operand) == step.lookup(kernel) && safe(operand) &&
        place(operand, argument, chain))
      return true;
    chain.resize(length);
  }
  chain.push_back(value);
  return true;
}
