//===- Propagate.cpp - disc-shape-propagate -------------------------------===//
//
// Before, with x : tensor<?x?x64xf32> {disc_shape.dims = <[B, S, 64]>}:
//
//   %b = tensor.dim %x, %c0
//   %s = tensor.dim %x, %c1
//   %n = arith.muli %b, %s
//   %y = disc_tensor.reshape %x (%n) : ... -> tensor<?x64xf32>
//
// After:
//
//   %n = disc_shape.dim <B * S>
//   %y = disc_tensor.reshape %x (%n) {disc_shape.dims = [<[B * S, 64]>]} : ...
//
// A requirement of an operation that is not proved, such as the number of
// elements of a reshape, stands before it as a disc_shape.require.
//
// Test: test/lit/Shape/propagate.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Shape/Extents.h"
#include "lib/Transforms/Shape/Passes.h"
#include "lib/Transforms/Shape/Requirements.h"

namespace mlir::disc {
#define GEN_PASS_DEF_PROPAGATE
#include "lib/Transforms/Shape/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// Writes what the operations of the function demand and is not proved. Those
/// about data are left to the operation that reads it.
static void writeRequirements(FunctionOpInterface function, Extents &extents, ShapeAnalysis &shapes) {
  function->walk([&](Operation *op) {
    OpBuilder builder(op);
    for (const Requirement &needed : unprovedRequirements(op, shapes)) {
      if (!ShapeAnalysis::isExpressible(needed.lhs) || !ShapeAnalysis::isExpressible(needed.rhs))
        continue;
      Value lhs = extents.get(needed.lhs, op->getLoc());
      Value rhs = extents.get(needed.rhs, op->getLoc());
      RequireOp::create(builder, op->getLoc(), lhs, rhs, needed.predicate, needed.message);
    }
  });
}

namespace {
struct Propagate final : disc::impl::PropagateBase<Propagate> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    for (auto function : getOperation().getOps<FunctionOpInterface>()) {
      if (function.isExternal())
        continue;
      Extents extents(function);
      canonicalizeExtents(function, extents, shapes);
      writeRequirements(function, extents, shapes);
    }
  }
};
} // namespace
