//===- FlowSteps.cpp - steps and epochs of the host flow ------------------===//

#include "lib/Transforms/Memory/FlowSteps.h"

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/HostFlow.h"

using namespace mlir;
using namespace mlir::disc;

void FlowSteps::number(Block &block) {
  before[&block] = epochs;
  auto begin = [&](llvm::DenseMap<Operation *, unsigned> &epochAt, Operation *op, ArrayRef<StringRef> symbols) {
    if (symbols.empty())
      return;
    epochAt[op] = ++epochs;
    for (StringRef name : symbols)
      known[name].push_back({{step(op), std::numeric_limits<int64_t>::max()}, epochs});
  };
  for (Operation &op : block) {
    if (isa<CopyTensorOp>(op)) {
      steps[&op] = {next, next};
      continue;
    }
    int64_t first = next++;
    steps[&op] = {first, first};
    auto loop = dyn_cast<LoopOp>(op);
    if (loop)
      begin(inside, loop, symbolsInside(loop));
    if (isa<LoopOp, BranchOp>(op))
      for (Region &region : op.getRegions())
        number(region.front());
    if (loop)
      for (StringRef name : symbolsInside(loop))
        known[name].back().at.last = next - 1;
    begin(after, &op, symbolsAfter(&op));
    steps[&op].last = next - 1;
  }
}

int64_t FlowSteps::lastUse(Value result) const {
  llvm::DenseMap<Value, int64_t> found;
  return lastUse(result, found);
}

/// Many paths lead through a chain of branches that give back what they are given.
int64_t FlowSteps::lastUse(Value result, llvm::DenseMap<Value, int64_t> &found) const {
  if (auto known = found.find(result); known != found.end())
    return known->second;
  Operation *def = result.getDefiningOp();
  int64_t last = lastStep(def);
  for (OpOperand &use : result.getUses()) {
    Operation *user = use.getOwner();
    int64_t at = lastStep(user);
    for (Operation *around = user->getParentOp(); around && around != def->getParentOp();
         around = around->getParentOp())
      if (isa<LoopOp>(around))
        at = lastStep(around);
    last = std::max(last, at);
    // Conservative for copies: their source counts as read as long as they are.
    if (isView(user) || isa<CopyTensorOp>(user))
      last = std::max(last, lastUse(user->getResult(0), found));
    if (auto yield = dyn_cast<TensorYieldOp>(user))
      last = std::max(last, lastUse(user->getParentOp()->getResult(use.getOperandNumber()), found));
    if (auto loop = dyn_cast<LoopOp>(user); loop && user != def)
      for (OpOperand &init : loop.getInitsMutable())
        if (&init == &use)
          last = std::max(last, lastUse(loop.getOutputs()[&init - loop.getInitsMutable().begin()], found));
  }
  return found[result] = last;
}

unsigned FlowSteps::epochOf(ArrayRef<SymExpr> exprs, std::optional<int64_t> at) const {
  unsigned epoch = 0;
  for (const SymExpr &expr : exprs)
    for (const std::string &name : expr.symbols())
      if (auto found = known.find(name); found != known.end())
        for (const Known &one : found->second)
          if (!at || (one.at.first <= *at && *at <= one.at.last))
            epoch = std::max(epoch, one.epoch);
  return epoch;
}
