//===- HostFlow.h - the blocks of the host flow ------------------*- C++ -*-===//
//
// A function's own block, and those of the loops and branches in it. What lies in one of them runs in order; passes
// that decide within a block do so in each.
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
  func.walk([&](Operation *op) {
    if (isa<LoopOp, BranchOp>(op))
      for (Region &region : op->getRegions())
        blocks.push_back(&region.front());
  });
  blocks.push_back(&func.getBody().front());
  return blocks;
}

/// The symbols to which `op`, a part of the host flow, gives values for what comes after it.
inline SmallVector<StringRef> symbolsAfter(Operation *op) {
  SmallVector<StringRef> names;
  auto add = [&](ArrayAttr symbols) {
    for (auto symbol : symbols.getAsRange<FlatSymbolRefAttr>())
      names.push_back(symbol.getValue());
  };
  if (auto bind = dyn_cast<BindOp>(op))
    names.push_back(bind.getSymbol());
  if (auto branch = dyn_cast<BranchOp>(op))
    add(branch.getSymbols());
  if (auto invoke = dyn_cast<InvokeOp>(op))
    add(invoke.getSymbols());
  if (auto loop = dyn_cast<LoopOp>(op)) {
    add(loop.getLastSymbols());
    if (loop.getTrips())
      names.push_back(*loop.getTrips());
  }
  return names;
}

/// The symbols that have values in the body of a loop alone: its step, and what changes from step to step.
inline SmallVector<StringRef> symbolsInside(LoopOp loop) {
  SmallVector<StringRef> names = {loop.getIndex()};
  for (auto symbol : loop.getSymbols().getAsRange<FlatSymbolRefAttr>())
    names.push_back(symbol.getValue());
  return names;
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
