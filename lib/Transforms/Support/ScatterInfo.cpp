//===- ScatterInfo.cpp - what a call of "scatter" does ----------------------===//

#include "lib/Transforms/Support/ScatterInfo.h"

using namespace mlir;
using namespace mlir::disc;

static int64_t rankOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getRank(); }

std::optional<ScatterInfo> ScatterInfo::get(CallFunctionOp op, ShapeAnalysis &shapes) {
  SmallVector<int64_t> numbers;
  for (Value v : op.getConfig()) {
    SymExpr e = shapes.expr(v);
    if (!e.isConstant())
      return std::nullopt;
    numbers.push_back(e.constant());
  }
  // dtype, operation, hasSelf, fill, wrap, parts, the numbers of loops and indices, then their dims.
  constexpr size_t fixed = 8;
  if (numbers.size() < fixed || op.getOutputs().empty())
    return std::nullopt;
  // An operand has a dim for each loop, the others an index for each dim of the target that they tell.
  ArrayRef<int64_t> dims = ArrayRef(numbers).drop_front(fixed);
  size_t values = numbers[kHasSelf] != 0 ? 1 : 0, loops = numbers[6], indices = numbers[7];
  if (loops > dims.size() || indices != dims.size() - loops || op.getInputs().size() != values + 1 + indices ||
      loops != size_t(rankOf(op.getInputs()[values])) ||
      llvm::any_of(op.getInputs().take_back(indices), [&](Value v) { return rankOf(v) != int64_t(loops); }))
    return std::nullopt;
  int64_t rank = rankOf(op.getOutputs()[0]);
  if (llvm::any_of(dims, [&](int64_t d) { return d >= rank || d < -1; }) ||
      llvm::is_contained(dims.drop_front(loops), -1))
    return std::nullopt;
  return ScatterInfo{numbers[0],
                     Operation(numbers[1]),
                     numbers[kHasSelf] != 0,
                     numbers[3],
                     numbers[4] != 0,
                     SmallVector<int64_t>(dims.take_front(numbers[6])),
                     SmallVector<int64_t>(dims.drop_front(numbers[6]))};
}
