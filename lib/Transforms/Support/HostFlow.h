//===- HostFlow.h - the blocks of the host flow ------------------*- C++ -*-===//
//
// A function's own block, and those of the loops in it. What lies in one of them runs in order; passes that decide
// within a block do so in each.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_TRANSFORMS_SUPPORT_HOSTFLOW_H
#define DISC_TRANSFORMS_SUPPORT_HOSTFLOW_H

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::disc {

/// The blocks of the function's host flow, inner ones first; empty for a declaration.
inline SmallVector<Block *> hostBlocks(func::FuncOp func) {
  SmallVector<Block *> blocks;
  if (func.isExternal())
    return blocks;
  func.walk([&](ScanOp scan) { blocks.push_back(&scan.getBody().front()); });
  blocks.push_back(&func.getBody().front());
  return blocks;
}

/// Erases what has no users, inner blocks first and each from its end.
inline void eraseDead(func::FuncOp func) {
  for (Block *block : hostBlocks(func))
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*block)))
      if (isOpTriviallyDead(&op))
        op.erase();
}

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_HOSTFLOW_H
