//===- SymbolBindings.cpp - symbols whose values data decides -------------===//

#include "lib/Transforms/Support/SymbolBindings.h"

#include "lib/Transforms/Support/HostFlow.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace mlir::disc;

/// Calls `visit` with each expression in the attributes of `op`, of what is inside, and of what those operands are
/// computed from that are defined in blocks around `block`: their values are taken where `op` is.
static void walkExprs(Operation *op, Block *block, llvm::function_ref<void(const SymExpr &)> visit) {
  AttrTypeWalker walker;
  walker.addWalk([&](ExprAttr expr) { visit(expr.getValue()); });
  llvm::SmallPtrSet<Operation *, 8> outside;
  std::function<void(Operation *)> walk = [&](Operation *root) {
    root->walk([&](Operation *nested) {
      walker.walk(nested->getAttrDictionary());
      for (Value operand : nested->getOperands())
        if (Operation *def = operand.getDefiningOp())
          if (isMemoryEffectFree(def) && def->getNumRegions() == 0 && !block->findAncestorOpInBlock(*def) &&
              outside.insert(def).second)
            walk(def);
    });
  };
  walk(op);
}

SymbolBindings::SymbolBindings(Block &block) : block(&block) {
  for (Operation &op : block)
    for (StringRef name : symbolsAfter(&op))
      binds[name] = &op;
  if (binds.empty())
    return;
  for (auto bind : block.getOps<BindOp>())
    for (Value count : bind->getOperands())
      if (Operation *def = count.getDefiningOp(); def && def->getNumResults() > 1)
        counted[def].push_back(bind);
  for (auto guard : block.getOps<GuardOp>())
    if (Operation *last = lastOf({guard.getLhs().getValue(), guard.getRhs().getValue()}))
      guards[last].push_back(guard);
  for (Operation &op : block)
    for (Operation *earlier : before(&op))
      if (!isa<GuardOp>(earlier))
        users[earlier].push_back(&op);
}

bool SymbolBindings::mentions(const SymExpr &expr) const {
  return !binds.empty() && llvm::any_of(expr.symbols(), [&](StringRef name) { return binds.contains(name); });
}

Operation *SymbolBindings::lastOf(ArrayRef<SymExpr> exprs) const {
  Operation *last = nullptr;
  if (binds.empty())
    return last;
  for (const SymExpr &expr : exprs)
    for (const std::string &name : expr.symbols())
      if (Operation *bind = binds.lookup(name); bind && (!last || last->isBeforeInBlock(bind)))
        last = bind;
  return last;
}

SmallVector<Operation *> SymbolBindings::before(Operation *op) const {
  llvm::SetVector<Operation *> found;
  auto addBind = [&](Operation *bind) {
    if (!bind || bind == op)
      return;
    found.insert(bind);
    // A guard need not wait for itself.
    auto own = guards.find(bind);
    if (own != guards.end() && !isa<GuardOp>(op))
      found.insert(own->second.begin(), own->second.end());
  };
  if (!binds.empty())
    walkExprs(op, block, [&](const SymExpr &expr) {
      for (const std::string &name : expr.symbols())
        addBind(binds.lookup(name));
    });
  // How much of a result is written is known behind the guards on its count, also where an extent no longer names it.
  if (!counted.empty() && !isa<BindOp>(op))
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (auto it = counted.find(operand.getDefiningOp()); it != counted.end())
          for (Operation *bind : it->second)
            if (!llvm::is_contained(bind->getOperands(), operand))
              addBind(bind);
    });
  return found.takeVector();
}

ArrayRef<Operation *> SymbolBindings::after(Operation *bind) const {
  auto it = users.find(bind);
  return it == users.end() ? ArrayRef<Operation *>() : it->second;
}

void mlir::disc::sortByDataFlow(Block &block) {
  SymbolBindings bindings(block);
  SmallVector<Operation *> order;
  llvm::SmallPtrSet<Operation *, 32> placed;
  std::function<void(Operation *)> place = [&](Operation *op) {
    if (!placed.insert(op).second)
      return;
    for (Operation *earlier : bindings.before(op))
      place(earlier);
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (Operation *def = operand.getDefiningOp(); def && def->getBlock() == &block)
          place(def);
    });
    order.push_back(op);
  };
  for (Operation &op : block.without_terminator())
    place(&op);
  for (Operation *op : order)
    op->moveBefore(block.getTerminator());
}
