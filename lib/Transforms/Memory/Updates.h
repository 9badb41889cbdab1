//===- Updates.h - new values of arguments, in their own memory -*- C++ -*-===//

#ifndef DISC_TRANSFORMS_MEMORY_UPDATES_H
#define DISC_TRANSFORMS_MEMORY_UPDATES_H

#include "dialects/Plan/PlanDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <functional>

namespace mlir::disc {

/// The name of the parameter that an argument of `main` stands for (`disc_tensor.state`); null if it is an input.
StringAttr stateOf(BlockArgument argument);

/// The argument that result `index` is the new value of (`disc_tensor.updates`): nothing if it is an output, a null
/// argument if the number is wrong.
std::optional<BlockArgument> updatedBy(func::FuncOp func, unsigned index);

/// Finds out which values can be computed in the memory of an argument that they replace.
class UpdatePlacement {
public:
  /// `inPlace` tells of each result of a kernel in which operands' memory it may be written.
  UpdatePlacement(Block &body, std::function<ArrayRef<SmallVector<unsigned>>(CallOp)> inPlace);

  /// Whether `value` can be written to the memory of `argument` because nobody reads what was there afterwards. `chain`
  /// gets the values that are to lie there, one after the other: `value`, and what it is itself computed from in place.
  bool place(Value value, BlockArgument argument, SmallVectorImpl<Value> &chain);

private:
  int64_t lastUse(Value v) const;

  Block &body;
  std::function<ArrayRef<SmallVector<unsigned>>(CallOp)> inPlace;
  llvm::DenseMap<Operation *, int64_t> step;
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_UPDATES_H
