//===- Merge.cpp - operations that become one region -----------------------===//
//
//   %a = disc_tensor.composite ... {disc_plan.owner = #disc_plan.claim<"a", "linear", 0>}
//   %b = disc_tensor.composite ... {disc_plan.owner = #disc_plan.claim<"a", "linear", 1>}   // uses %a
//   %c = disc_tensor.composite ...                                                          // no owner, uses %a
//   %d = disc_tensor.composite ... {disc_plan.owner = #disc_plan.claim<"a", "add", 2>}      // uses %b and %c
// becomes, with merge=a,
//   %a = disc_tensor.composite ... {disc_plan.owner = ..., disc_plan.group = 0}
//   %b = disc_tensor.composite ... {disc_plan.owner = ..., disc_plan.group = 0}
//   %d = disc_tensor.composite ... {disc_plan.owner = ..., disc_plan.group = 1}
//
// A match is a group, and groups of one back end with an edge between them are one, unless a path through another
// operation leads from one to the other, as from %a through %c to %d: a region would wait for itself. What a match
// leaves and enters again is not a group, and its operations lose their owner. Order that no value shows, that of
// symbols and their `disc_shape.bind`, counts as an edge.
//
// Test: test/lit/Library/merge.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Library/ContractionGraph.h"
#include "lib/Transforms/Library/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/SymbolBindings.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::disc {
#define GEN_PASS_DEF_MERGE
#include "lib/Transforms/Library/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

static ClaimAttr ownerOf(Operation *op) { return op->getAttrOfType<ClaimAttr>(PlanDialect::getOwnerAttrName()); }

namespace {
class BlockMerge {
public:
  BlockMerge(Block &block) : ops(llvm::map_to_vector(block, [](Operation &op) { return &op; })), graph(ops.size()) {
    for (auto [i, op] : llvm::enumerate(ops))
      numbers[op] = i;
    SymbolBindings bindings(block);
    for (auto [i, op] : llvm::enumerate(ops)) {
      for (Operation *user : op->getUsers())
        connect(i, block.findAncestorOpInBlock(*user));
      for (Operation *later : bindings.after(op))
        connect(i, later);
    }
  }

  void mergeMatches() {
    llvm::MapVector<ClaimAttr, SmallVector<unsigned>> matches;
    for (auto [i, op] : llvm::enumerate(ops))
      if (ClaimAttr owner = ownerOf(op))
        matches[owner].push_back(i);
    for (auto &[claim, members] : matches) {
      // A contraction cannot be undone, so that a match with a way out and back is found before its first.
      if (!isConvex(members)) {
        for (unsigned i : members)
          drop(cast<CompositeOp>(ops[i]), claim);
        continue;
      }
      for (unsigned i : ArrayRef(members).drop_front())
        graph.contract(members.front(), i);
    }
  }

  void mergeGroups(ArrayRef<std::string> backends) {
    for (auto [i, op] : llvm::enumerate(ops)) {
      ClaimAttr owner = ownerOf(op);
      if (!owner || !llvm::is_contained(backends, owner.getBackend()))
        continue;
      for (Operation *user : op->getUsers()) {
        Operation *later = op->getBlock()->findAncestorOpInBlock(*user);
        ClaimAttr other = later ? ownerOf(later) : ClaimAttr();
        if (other && other.getBackend() == owner.getBackend())
          graph.contract(i, numbers.lookup(later));
      }
    }
  }

  /// Numbers the groups from `first`; the result is the next number.
  int64_t number(int64_t first) {
    llvm::DenseMap<unsigned, int64_t> groups;
    for (auto [i, op] : llvm::enumerate(ops)) {
      if (!ownerOf(op))
        continue;
      auto [it, isNew] = groups.try_emplace(graph.find(i), first);
      first += isNew;
      op->setAttr(PlanDialect::getGroupAttrName(), Builder(op->getContext()).getI64IntegerAttr(it->second));
    }
    return first;
  }

private:
  void connect(unsigned from, Operation *user) {
    if (unsigned to = user ? numbers.lookup(user) : 0; to > from)
      graph.addEdge(from, to);
  }

  /// Whether no path through an operation outside leads from one member to another. Groups of earlier matches are one
  /// node each.
  bool isConvex(ArrayRef<unsigned> members) {
    llvm::DenseSet<unsigned> inside;
    for (unsigned i : members)
      inside.insert(graph.find(i));
    SmallVector<unsigned> worklist;
    llvm::DenseSet<unsigned> seen;
    auto follow = [&](unsigned node) {
      for (unsigned later : graph.successors(node))
        if (!inside.contains(later) && graph.isBefore(later, members.back()) && seen.insert(later).second)
          worklist.push_back(later);
    };
    for (unsigned node : inside)
      follow(node);
    while (!worklist.empty()) {
      unsigned node = worklist.pop_back_val();
      if (llvm::any_of(graph.successors(node), [&](unsigned later) { return inside.contains(later); }))
        return false;
      follow(node);
    }
    return true;
  }

  static void drop(CompositeOp op, ClaimAttr claim) {
    SmallVector<Attribute> refusals;
    if (auto known = op->getAttrOfType<ArrayAttr>(PlanDialect::getRefusalsAttrName()))
      llvm::append_range(refusals, known);
    refusals.push_back(
        RefusalAttr::get(op.getContext(), claim.getBackend(), claim.getPattern(),
                         "an operation outside of the match uses one part of it and is used by another"));
    op->setAttr(PlanDialect::getRefusalsAttrName(), ArrayAttr::get(op.getContext(), refusals));
    op->removeAttr(PlanDialect::getOwnerAttrName());
  }

  SmallVector<Operation *> ops;
  llvm::DenseMap<Operation *, unsigned> numbers;
  ContractionGraph graph;
};

struct Merge : disc::impl::MergeBase<Merge> {
  using MergeBase::MergeBase;

  void runOnOperation() override {
    int64_t groups = 0;
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block *block : hostBlocks(func)) {
        if (llvm::none_of(*block, [](Operation &op) { return ownerOf(&op) != nullptr; }))
          continue;
        BlockMerge merge(*block);
        merge.mergeMatches();
        merge.mergeGroups(SmallVector<std::string>(backends.begin(), backends.end()));
        groups = merge.number(groups);
      }
  }
};
} // namespace
