//===- HoistUpdates.cpp - updates of state right after what they need -----===//
//
//   %g0 = disc_plan.call @gradient0(...)
//   %g1 = disc_plan.call @gradient1(...)            // %g0 is alive
//   %w0 = disc_plan.call @update(%weight0, %g0)     // the new value of an argument
//   %w1 = disc_plan.call @update(%weight1, %g1)
// becomes
//   %g0 = disc_plan.call @gradient0(...)
//   %w0 = disc_plan.call @update(%weight0, %g0)
//   %g1 = disc_plan.call @gradient1(...)
//   %w1 = disc_plan.call @update(%weight1, %g1)
//
// Otherwise all gradients would be alive until the optimizer's part at the end. An update that precedes the last reader
// of the old value moves behind that reader, because only there it can be computed in place.
//
// An update does not move up past a reader of the old value. It does not move up past a kernel that can fail either, so
// that the state is unchanged if the call fails there. A kernel that checks indices counts as one that cannot fail if
// an earlier kernel reads the same indices: the gradient of a lookup has those that the lookup has checked.
//
// Test: test/lit/Memory/hoist-updates.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/TensorBytes.h"
#include "lib/Transforms/Memory/Updates.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::disc {
#define GEN_PASS_DEF_HOISTUPDATES
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
/// Moves the updates of one function.
class Hoister {
public:
  Hoister(func::FuncOp func, ShapeAnalysis &shapes)
      : func(func), block(func.getBody().front()), shapes(shapes), module(func->getParentOfType<ModuleOp>()) {}

  void run();

private:
  void sink(CallOp update);
  void hoist(CallOp update);
  enum class Failure { none, checks, function };
  Failure failure(CallOp kernel);
  bool stays(Operation *op, Operation *target);
  bool isLarge(Value tensor);
  void addReaders(Value tensor, llvm::SmallPtrSetImpl<Operation *> &readers);

  func::FuncOp func;
  Block &block;
  ShapeAnalysis &shapes;
  ModuleOp module;
  llvm::MapVector<Operation *, SmallVector<BlockArgument>> updates; // kernels, and the arguments with new values
  llvm::DenseMap<StringRef, Failure> failures;                      // by the kernel's name
};
} // namespace

/// How a kernel can fail: by a check of an index, or in a function that it calls.
Hoister::Failure Hoister::failure(CallOp kernel) {
  auto [known, isNew] = failures.try_emplace(kernel.getCallee(), Failure::function);
  auto callee = module.lookupSymbol<KernelFuncOp>(kernel.getCallee());
  if (!isNew || !callee)
    return known->second;
  Failure found = Failure::none;
  callee.walk([&](Operation *op) {
    if (isa<CheckIndexOp>(op))
      found = Failure::checks;
    else if (isa<CallFunctionOp, ExternCallOp>(op) && found == Failure::none)
      found = Failure::function;
  });
  return known->second = found;
}

/// Updates do not move past loops, branches, operations that bind symbols, and kernels that can be the first to fail.
bool Hoister::stays(Operation *op, Operation *target) {
  auto kernel = dyn_cast<CallOp>(op);
  if (!kernel || failure(kernel) == Failure::none)
    return !kernel && !isPure(op);
  auto isIndex = [](Value operand) { return cast<RankedTensorType>(operand.getType()).getElementType().isInteger(); };
  if (failure(kernel) == Failure::checks && llvm::none_of(kernel.getInputs(), isIndex))
    return true; // it computes the indices
  return llvm::any_of(kernel.getInputs(), [&](Value operand) {
    Value base = viewBase(operand);
    if (!isIndex(base))
      return false;
    llvm::SmallPtrSet<Operation *, 8> readers;
    addReaders(base, readers);
    return llvm::none_of(readers, [&](Operation *reader) { return reader->isBeforeInBlock(target); });
  });
}

/// Whether it is worth freeing the tensor early.
bool Hoister::isLarge(Value tensor) {
  constexpr int64_t kLarge = 4096;
  SymExpr bytes = SymExpr::product(shapes.dims(tensor)) * SymExpr(elementBytes(tensor.getType()));
  return !bytes.isConstant() || bytes.constant() >= kLarge;
}

/// The operations of the block that read the tensor, through views and in regions too.
void Hoister::addReaders(Value tensor, llvm::SmallPtrSetImpl<Operation *> &readers) {
  for (Operation *user : tensor.getUsers()) {
    if (isView(user))
      addReaders(user->getResult(0), readers);
    else if (Operation *here = block.findAncestorOpInBlock(*user))
      readers.insert(here);
  }
}

void Hoister::hoist(CallOp update) {
  Operation *target = nullptr; // the new predecessor
  auto notBefore = [&](Operation *op) {
    if (op && op->getBlock() == &block && (!target || target->isBeforeInBlock(op)))
      target = op;
  };
  for (Value operand : update.getInputs()) {
    Value base = viewBase(operand);
    if (isa_and_nonnull<CallOp, LoopOp, BranchOp>(base.getDefiningOp()) && isLarge(base))
      notBefore(base.getDefiningOp());
  }
  if (!target)
    return;
  llvm::SmallPtrSet<Operation *, 8> readers;
  auto addArguments = [&](Operation *op) {
    for (BlockArgument argument : updates.lookup(op))
      addReaders(argument, readers);
  };
  addArguments(update);
  for (Operation *op = update->getPrevNode(); op && op != target; op = op->getPrevNode())
    if (readers.contains(op) || stays(op, target)) {
      target = op;
      break;
    }
  // Later definitions of its operands move too: views, the number of the step.
  llvm::SetVector<Operation *> moving;
  moving.insert(update);
  for (unsigned i = 0; i < moving.size(); ++i)
    for (Value operand : moving[i]->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (def && def->getBlock() == &block && target->isBeforeInBlock(def) && moving.insert(def))
        addArguments(def);
    }
  SmallVector<Operation *> ordered;
  for (Operation *op = target->getNextNode(); op; op = op->getNextNode()) {
    if (moving.contains(op))
      ordered.push_back(op);
    else if (readers.contains(op) && op->isBeforeInBlock(update))
      return; // reads an argument that one of these updates
    if (op == update)
      break;
  }
  for (Operation *op : ordered) {
    op->moveAfter(target);
    target = op;
  }
}

/// Moves an update behind the last reader of the old value. Before that reader, the new value would need memory of its
/// own until the end of the call, and a copy.
void Hoister::sink(CallOp update) {
  llvm::SmallPtrSet<Operation *, 8> readers, users;
  for (BlockArgument argument : updates.lookup(update))
    addReaders(argument, readers);
  for (Value result : update.getOutputs())
    addReaders(result, users);
  Operation *last = nullptr;
  for (Operation *op = update->getNextNode(); op && !users.contains(op); op = op->getNextNode())
    if (readers.contains(op))
      last = op;
  if (last && llvm::none_of(readers, [&](Operation *reader) { return last->isBeforeInBlock(reader); }))
    update->moveAfter(last);
}

void Hoister::run() {
  for (auto [i, operand] : llvm::enumerate(block.getTerminator()->getOperands())) {
    std::optional<BlockArgument> argument = updatedBy(func, i);
    auto kernel = viewBase(operand).getDefiningOp<CallOp>();
    if (argument && *argument && kernel && kernel->getBlock() == &block)
      updates[kernel].push_back(*argument);
  }
  SmallVector<CallOp> inOrder;
  for (auto kernel : block.getOps<CallOp>())
    if (updates.contains(kernel) && failure(kernel) == Failure::none)
      inOrder.push_back(kernel);
  for (CallOp kernel : llvm::reverse(inOrder))
    sink(kernel);
  for (CallOp kernel : inOrder)
    hoist(kernel);
}

namespace {
struct HoistUpdates : disc::impl::HoistUpdatesBase<HoistUpdates> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal())
        Hoister(func, shapes).run();
  }
};
} // namespace
