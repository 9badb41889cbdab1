//===- Partition.cpp - groups to regions ------------------------------------===//
//
//   %a = disc_tensor.composite "aten.linear" 4 (%x, %w, %b) ... {disc_plan.owner = ..., disc_plan.group = 0}
//   %u = linalg.generic ... ins(%x)
//   %c = disc_tensor.composite "aten.gelu" 5 (%a) ... {disc_plan.owner = ..., disc_plan.group = 0}
// becomes
//   %u = linalg.generic ... ins(%x)
//   %c = disc_plan.region "a" 0 : (tensor<?x8xf32>) {
//     %a1 = disc_tensor.composite "aten.linear" 4 (%x, %w, %b) ...
//     %c1 = disc_tensor.composite "aten.gelu" 5 (%a1) ...
//     disc_plan.yield %c1 : tensor<?x8xf32>
//   }
//
// Results are the values that are used outside of the group. Operations between the members move before or after the
// region, as the data flow demands.
//
// Test: test/lit/Library/partition.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Library/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/SymbolBindings.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::disc {
#define GEN_PASS_DEF_PARTITION
#include "lib/Transforms/Library/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

static void makeRegion(int64_t id, ArrayRef<CompositeOp> members, ShapeAnalysis &shapes) {
  llvm::SmallPtrSet<Operation *, 8> inside;
  for (CompositeOp op : members)
    inside.insert(op);
  Block *block = members.front()->getBlock();
  SmallVector<Value> results;
  for (CompositeOp op : members)
    for (Value result : op.getOutputs())
      if (llvm::any_of(result.getUsers(),
                       [&](Operation *user) { return !inside.contains(block->findAncestorOpInBlock(*user)); }))
        results.push_back(result);

  MLIRContext *context = block->getParentOp()->getContext();
  SmallVector<Attribute> dims;
  bool isDynamic = false;
  for (Value result : results) {
    dims.push_back(DimsAttr::get(context, shapes.dims(result)));
    isDynamic |= !cast<RankedTensorType>(result.getType()).hasStaticShape();
  }
  OpBuilder b(members.back());
  auto locations = llvm::map_to_vector(members, [](CompositeOp op) { return op.getLoc(); });
  auto owner = members.front()->getAttrOfType<ClaimAttr>(PlanDialect::getOwnerAttrName());
  auto region = RegionOp::create(b, FusedLoc::get(context, locations), ValueRange(results).getTypes(),
                                 b.getStringAttr(owner.getBackend()), b.getI64IntegerAttr(id), StringAttr(),
                                 StringAttr(), StringAttr(), ArrayAttr(), ArrayAttr(), ArrayAttr());
  if (isDynamic)
    region->setAttr(ShapeDialect::getDimsAttrName(), b.getArrayAttr(dims));
  Block *body = &region.getBody().emplaceBlock();
  for (CompositeOp op : members) {
    op->moveBefore(body, body->end());
    op->removeAttr(PlanDialect::getGroupAttrName());
  }
  for (auto [result, output] : llvm::zip(results, region.getOutputs()))
    result.replaceUsesWithIf(output, [&](OpOperand &use) { return !region->isProperAncestor(use.getOwner()); });
  b.setInsertionPointToEnd(body);
  YieldOp::create(b, region.getLoc(), results);
}

namespace {
struct Partition : disc::impl::PartitionBase<Partition> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block *block : hostBlocks(func)) {
        llvm::MapVector<int64_t, SmallVector<CompositeOp>> groups;
        for (auto op : block->getOps<CompositeOp>())
          if (auto group = op->getAttrOfType<IntegerAttr>(PlanDialect::getGroupAttrName())) {
            if (!op->hasAttr(PlanDialect::getOwnerAttrName()))
              return op.emitError("is in a group, but has no owner"), signalPassFailure();
            groups[group.getInt()].push_back(op);
          }
        for (auto &[id, members] : groups)
          makeRegion(id, members, shapes);
        if (!groups.empty())
          sortByDataFlow(*block);
      }
  }
};
} // namespace
