//===- FormKernels.cpp - computations into kernels ------------------------===//
//
//   %p = linalg.generic {...contraction...} ins(%x, %w) outs(%zero)
//   %y = linalg.generic {...addf, gelu...} ins(%p, %bias) outs(%e)
// becomes
//   %y = disc_plan.kernel contraction ins(%x, %w, %bias : ...) -> ... attributes {name = "linear_gelu", ...} {
//   ^bb0(%a, %b, %c):
//     ... both, with the extents, fills and empty tensors that they need ...
//     disc_plan.yield %y
//   }
//
// Which operations go together is KernelGroups' decision.
//
// Test: test/lit/Fusion/form-kernels.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Fusion/KernelGroups.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/StringExtras.h"

namespace mlir::disc {
#define GEN_PASS_DEF_FORMKERNELS
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// The first name in a location: what the frontend calls the operation.
static StringRef nameOf(Location loc) {
  StringRef name;
  loc->walk([&](Location nested) {
    if (auto named = dyn_cast<NameLoc>(nested)) {
      name = named.getName();
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return name;
}

/// "linear_add_gelu": the names of the operations, neighbours once, at most four.
static std::string kernelName(ArrayRef<Operation *> ops, KernelKind kind) {
  SmallVector<std::string> parts;
  for (Operation *op : ops) {
    std::string part;
    for (char c : nameOf(op->getLoc()).rsplit('.').second.empty() ? nameOf(op->getLoc())
                                                                  : nameOf(op->getLoc()).rsplit('.').second)
      part += llvm::isAlnum(c) ? c : '_';
    if (!part.empty() && (parts.empty() || parts.back() != part))
      parts.push_back(part);
  }
  if (parts.empty())
    return kind.getWord().str();
  if (parts.size() > 4)
    parts = {parts[0], parts[1], "etc", parts.back()};
  return llvm::join(parts, "_");
}

namespace {
struct FormKernels : disc::impl::FormKernelsBase<FormKernels> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block *block : hostBlocks(func))
        run(*block);
  }

  void run(Block &block) {
    ShapeAnalysis shapes(getOperation());
    KernelGroups groups(block, shapes, manyProducts, fuseConcats);
    groups.fuse();

    // Order groups and single operations by their data flow; merging may have moved uses before definitions.
    SmallVector<SmallVector<Operation *>> order;
    llvm::SmallPtrSet<Operation *, 32> placed;
    for (Operation &op : block.without_terminator())
      place(&op, groups, placed, order);

    Operation *terminator = block.getTerminator();
    for (SmallVector<Operation *> &item : order) {
      if (KernelGroup *group = groups.groupOf(item.front()))
        build(item, *group, terminator);
      else
        item.front()->moveBefore(terminator);
    }
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  static void place(Operation *op, KernelGroups &groups, llvm::SmallPtrSetImpl<Operation *> &placed,
                    SmallVectorImpl<SmallVector<Operation *>> &order) {
    if (placed.contains(op))
      return;
    SmallVector<Operation *> members{op};
    if (KernelGroup *group = groups.groupOf(op)) {
      members.assign(group->ops.begin(), group->ops.end());
      llvm::sort(members, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    }
    placed.insert(members.begin(), members.end());
    for (Operation *member : members)
      for (Operation *earlier : groups.before(member))
        place(earlier, groups, placed, order);
    for (Operation *member : members)
      member->walk([&](Operation *nested) {
        for (Value operand : nested->getOperands())
          if (Operation *def = operand.getDefiningOp(); def && def->getBlock() == op->getBlock())
            place(def, groups, placed, order);
      });
    order.push_back(std::move(members));
  }

  /// Clones what a kernel body needs of extents, constants, fills and empty tensors.
  static void cloneInto(Operation *def, OpBuilder &b, IRMapping &map) {
    if (map.contains(def->getResult(0)))
      return;
    for (Value operand : def->getOperands())
      if (Operation *inner = operand.getDefiningOp())
        cloneInto(inner, b, map);
    b.clone(*def, map);
  }

  static void build(ArrayRef<Operation *> members, KernelGroup &group, Operation *before) {
    llvm::SetVector<Value> inputs, outputs;
    // Equal views are one input: products that share their left operand are recognized by its argument.
    llvm::DenseMap<Value, Value> sameInput;
    auto addInput = [&](Value operand) {
      if (inputs.contains(operand) || sameInput.contains(operand))
        return;
      const Value *same = llvm::find_if(inputs.getArrayRef(), [&](Value v) { return sameView(v, operand); });
      if (same != inputs.getArrayRef().end())
        sameInput[operand] = *same;
      else
        inputs.insert(operand);
    };
    SmallVector<Operation *> cloned;
    llvm::SmallPtrSet<Operation *, 16> inside(members.begin(), members.end());
    for (Operation *op : members) {
      op->walk([&](Operation *nested) {
        for (Value operand : nested->getOperands()) {
          if (op->isAncestor(operand.getParentRegion()->getParentOp()))
            continue; // a block argument or a value of the operation's own region
          Operation *def = operand.getDefiningOp();
          if (def && inside.contains(def))
            continue;
          if (def && isCloned(def))
            cloned.push_back(def);
          else
            addInput(operand);
        }
      });
      // A function writes all of its results, wanted or not.
      if (isa<CallFunctionOp>(op))
        outputs.insert(op->result_begin(), op->result_end());
      for (Value result : op->getResults())
        for (Operation *user : result.getUsers())
          if (!inside.contains(op->getBlock()->findAncestorOpInBlock(*user)))
            outputs.insert(result);
    }

    OpBuilder b(before);
    SmallVector<Location> locs;
    for (Operation *op : members)
      locs.push_back(op->getLoc());
    Location loc = b.getFusedLoc(locs);
    SmallVector<Type> types;
    for (Value v : outputs)
      types.push_back(v.getType());
    std::string reason = llvm::join(group.reasons, "; with ");
    auto kernel =
        KernelOp::create(b, loc, types, inputs.getArrayRef(), cast<KernelKind>(group.kind),
                         b.getStringAttr(kernelName(members, cast<KernelKind>(group.kind))), b.getStringAttr(reason));
    Block *body = &kernel.getBody().emplaceBlock();
    IRMapping map;
    for (Value v : inputs)
      map.map(v, body->addArgument(v.getType(), v.getLoc()));
    for (auto [view, same] : sameInput)
      map.map(view, map.lookup(same));
    b.setInsertionPointToStart(body);
    for (Operation *def : cloned)
      cloneInto(def, b, map);
    for (Operation *op : members)
      b.clone(*op, map);
    SmallVector<Value> yielded;
    for (Value v : outputs)
      yielded.push_back(map.lookup(v));
    YieldOp::create(b, loc, yielded);
    for (auto [old, result] : llvm::zip(outputs, kernel.getOutputs()))
      Value(old).replaceAllUsesWith(result);
    for (Operation *op : llvm::reverse(members)) {
      op->dropAllUses();
      op->erase();
    }
  }
};
} // namespace
