//===- Annotate.cpp - which back end takes an operation --------------------===//
//
//   %a = disc_tensor.composite "aten.linear" 4 ... {disc_plan.claims = [#disc_plan.claim<"b", "linear", 1>,
//                                                                       #disc_plan.claim<"a", "linear_gelu", 0>]}
//   %c = disc_tensor.composite "aten.gelu" 5 ... {disc_plan.claims = [#disc_plan.claim<"a", "linear_gelu", 0>]}
// becomes, with backends=a,b,
//   %a = disc_tensor.composite "aten.linear" 4 ... {disc_plan.owner = #disc_plan.claim<"a", "linear_gelu", 0>,
//                                                   disc_plan.refusals = [#disc_plan.refusal<"b", "linear", "...">]}
//   %c = disc_tensor.composite "aten.gelu" 5 ... {disc_plan.owner = #disc_plan.claim<"a", "linear_gelu", 0>}
//
// Back ends choose in the order of `backends`; of one back end's matches the larger ones come first, then the earlier
// ones. A match is taken as a whole, in one block of the host flow.
//
// Test: test/lit/Library/annotate.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Library/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace mlir::disc {
#define GEN_PASS_DEF_ANNOTATE
#include "lib/Transforms/Library/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

static void refuse(CompositeOp op, ClaimAttr claim, const Twine &reason) {
  SmallVector<Attribute> refusals;
  if (auto known = op->getAttrOfType<ArrayAttr>(PlanDialect::getRefusalsAttrName()))
    llvm::append_range(refusals, known);
  refusals.push_back(RefusalAttr::get(op.getContext(), claim.getBackend(), claim.getPattern(), reason.str()));
  op->setAttr(PlanDialect::getRefusalsAttrName(), ArrayAttr::get(op.getContext(), refusals));
}

namespace {
struct Annotate : disc::impl::AnnotateBase<Annotate> {
  using AnnotateBase::AnnotateBase;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block *block : hostBlocks(func))
        annotate(*block);
  }

  void annotate(Block &block) {
    using Match = std::pair<ClaimAttr, SmallVector<CompositeOp>>;
    llvm::StringMap<llvm::MapVector<int64_t, Match>> matches;
    for (auto op : block.getOps<CompositeOp>())
      for (ClaimAttr claim : claimsOf(op)) {
        Match &match = matches[claim.getBackend()][claim.getMatch()];
        match.first = claim;
        match.second.push_back(op);
      }
    StringRef ownerName = PlanDialect::getOwnerAttrName();
    for (const std::string &backend : backends) {
      // By falling size, and for one size in the order of the block.
      std::multimap<size_t, Match, std::greater<size_t>> candidates;
      for (auto &[number, match] : matches[backend])
        candidates.emplace(match.second.size(), match);
      for (auto &[size, match] : candidates) {
        auto &[claim, ops] = match;
        if (llvm::any_of(ops, [&](CompositeOp op) { return op->hasAttr(ownerName); }))
          continue;
        for (CompositeOp op : ops)
          op->setAttr(ownerName, claim);
      }
    }
    for (auto op : block.getOps<CompositeOp>()) {
      auto owner = op->getAttrOfType<ClaimAttr>(ownerName);
      for (ClaimAttr claim : claimsOf(op)) {
        if (claim == owner || (owner && claim.getBackend() == owner.getBackend()))
          continue;
        if (!llvm::is_contained(backends, claim.getBackend()))
          refuse(op, claim, "the back end is not in use");
        else if (owner)
          refuse(op, claim, "back end '" + owner.getBackend() + "' takes it with pattern '" + owner.getPattern() + "'");
        else
          refuse(op, claim, "another match takes a part of this one");
      }
      op->removeAttr(PlanDialect::getClaimsAttrName());
    }
  }

  static SmallVector<ClaimAttr> claimsOf(CompositeOp op) {
    auto claims = op->getAttrOfType<ArrayAttr>(PlanDialect::getClaimsAttrName());
    return claims ? llvm::to_vector(claims.getAsRange<ClaimAttr>()) : SmallVector<ClaimAttr>();
  }
};
} // namespace
