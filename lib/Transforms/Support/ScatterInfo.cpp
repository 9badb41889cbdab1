//===- ScatterInfo.cpp - what a call of "scatter" does ----------------------===//

#include "lib/Transforms/Support/ScatterInfo.h"

using namespace mlir;
using namespace mlir::disc;

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
  if (numbers.size() < fixed || numbers.size() != fixed + size_t(numbers[6]) + size_t(numbers[7]))
    return std::nullopt;
  ArrayRef<int64_t> dims = ArrayRef(numbers).drop_front(fixed);
  return ScatterInfo{numbers[0],
                     Operation(numbers[1]),
                     numbers[kHasSelf] != 0,
                     numbers[3],
                     numbers[4] != 0,
                     SmallVector<int64_t>(dims.take_front(numbers[6])),
                     SmallVector<int64_t>(dims.drop_front(numbers[6]))};
}
