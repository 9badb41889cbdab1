//===- FlowSteps.h - steps and epochs of the host flow -----------*- C++ -*-===//
//
// Steps number the operations of a function through the bodies of loops and branches:
//
//   %a = disc_plan.call @f(%x)             // step 0
//   %b = disc_tensor.loop ... {            // step 1, ends with step 3
//     %c = disc_plan.call @g(%a)           // step 2
//     disc_tensor.next %c                  // step 3
//   }
//   disc_shape.bind @u0, %b                // step 4; epoch 1 begins behind it
//   return %b                              // step 5
//
// An epoch begins where symbols get values: epoch 0 with the function, the others behind an operation that binds
// symbols or in the body of a loop. A copy (`disc_plan.copy`) is a part of the step of the operation behind it.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_MEMORY_FLOWSTEPS_H
#define DISC_TRANSFORMS_MEMORY_FLOWSTEPS_H

#include "dialects/Shape/SymExpr.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::disc {

/// Stays valid while operations are inserted; these have no steps.
class FlowSteps {
public:
  explicit FlowSteps(func::FuncOp func) { number(func.getBody().front()); }

  int64_t step(Operation *op) const { return steps.lookup(op).first; }
  /// The last step inside of a loop or branch; the step of any other operation.
  int64_t lastStep(Operation *op) const { return steps.lookup(op).last; }
  /// The last step that reads the result of an operation. A loop that reads a tensor needs it in every iteration, and
  /// may return its first carried tensors; a branch may return what it yields.
  int64_t lastUse(Value result) const;

  unsigned numEpochs() const { return epochs; }
  /// The epoch that begins behind the operation; 0 if it binds no symbols.
  unsigned epochAfter(Operation *op) const { return after.lookup(op); }
  /// The epoch that begins in a loop's body.
  unsigned epochInside(LoopOp loop) const { return inside.lookup(loop); }
  /// The epoch in which a block begins.
  unsigned epochBefore(Block *block) const { return before.lookup(block); }
  /// The first epoch in which these expressions have values at a step, or anywhere.
  unsigned epochOf(ArrayRef<SymExpr> exprs, std::optional<int64_t> at = std::nullopt) const;

private:
  void number(Block &block);

  struct Range {
    int64_t first, last;
  };
  /// From which epoch on a symbol has a value, and at which steps: several loops may have one name for their index.
  struct Known {
    Range at;
    unsigned epoch;
  };
  int64_t next = 0;
  unsigned epochs = 0;
  int64_t lastUse(Value result, llvm::DenseMap<Value, int64_t> &found) const;

  llvm::DenseMap<Operation *, Range> steps;
  llvm::DenseMap<Operation *, unsigned> after, inside;
  llvm::DenseMap<Block *, unsigned> before;
  llvm::StringMap<SmallVector<Known, 1>> known; // of the symbols that the flow binds
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_FLOWSTEPS_H
