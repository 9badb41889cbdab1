//===- Discharge.cpp - disc-shape-discharge -------------------------------===//
//
// Before, with symbols B, S and T:
//
//   %0 = disc_shape.dim <S>
//   %1 = disc_shape.dim <T>
//   %2 = disc_shape.dim <B * T>
//   disc_shape.require eq %0, %1 "sizes of x and y differ"
//   disc_shape.require eq %0, %0 "sizes of x and z differ"
//
// After: T is S everywhere but in the guard and in the arguments.
//
//   disc_shape.guard <S> eq <T> "sizes of x and y differ"
//   %2 = disc_shape.dim <B * S>
//
// A requirement on a symbol that is bound on the way becomes a guard behind its disc_shape.bind. One inside a loop or a
// branch becomes a guard there: on entry nobody knows whether it will be run.
//
// Tests: test/lit/Shape/discharge.mlir, test/lit/Shape/bind.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Shape/Extents.h"
#include "lib/Transforms/Shape/Passes.h"
#include "lib/Transforms/Support/SymbolBindings.h"

namespace mlir::disc {
#define GEN_PASS_DEF_DISCHARGE
#include "lib/Transforms/Shape/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

static StringRef describe(Predicate predicate) {
  switch (predicate) {
  case Predicate::Eq:
    return " == ";
  case Predicate::Le:
    return " <= ";
  case Predicate::Divisible:
    return " divisible by ";
  }
  llvm_unreachable("unknown predicate");
}

static LogicalResult reject(RequireOp require, const SymExpr &lhs, const SymExpr &rhs, StringRef reason) {
  StringRef message = require.getMessage();
  InFlightDiagnostic diagnostic = emitError(require.getLoc());
  if (!message.empty())
    diagnostic << message << ": ";
  return diagnostic << "requires " << lhs.str() << describe(require.getPredicate()) << rhs.str() << ", which "
                    << reason;
}

/// The guard for a requirement, in an equivalent form that guards may have.
static GuardOp createGuard(OpBuilder &builder, RequireOp require, SymExpr lhs, SymExpr rhs) {
  Predicate predicate = require.getPredicate();
  if (predicate == Predicate::Divisible && !rhs.isConstant()) {
    lhs = SymExpr::mod(lhs, rhs);
    rhs = 0;
    predicate = Predicate::Eq;
  }
  MLIRContext *context = builder.getContext();
  return GuardOp::create(builder, require.getLoc(), ExprAttr::get(context, lhs), predicate, ExprAttr::get(context, rhs),
                         require.getMessage());
}

static LogicalResult discharge(RequireOp require, function_ref<OpBuilder &(Block *, ArrayRef<SymExpr>)> guardsFor,
                               ShapeAnalysis &shapes) {
  SymExpr lhs = shapes.expr(require.getLhs());
  SymExpr rhs = shapes.expr(require.getRhs());
  Predicate predicate = require.getPredicate();
  if (shapes.provedAt(require, predicate, lhs, rhs)) {
    require.erase();
    return success();
  }
  if (!ShapeAnalysis::isExpressible(lhs) || !ShapeAnalysis::isExpressible(rhs))
    return reject(require, lhs, rhs, "depends on data");
  if (shapes.facts().impossible(predicate, lhs, rhs))
    return reject(require, lhs, rhs, "never holds");
  if (!isa<FunctionOpInterface, LoopOp, BranchOp>(require->getParentOp()))
    return reject(require, lhs, rhs, "cannot be checked on entry");

  GuardOp guard = createGuard(guardsFor(require->getBlock(), {lhs, rhs}), require, lhs, rhs);
  if (ShapeAnalysis::holdsEverywhere(guard)) {
    shapes.facts().assume(guard.getPredicate(), guard.getLhs().getValue(), guard.getRhs().getValue());
    shapes.assumeLoops(guard->getParentOfType<ModuleOp>());
  }
  require.erase();
  return success();
}

/// Requirements of a composite hold for whoever compiles it, so they stand before it.
static void leaveComposites(RequireOp require) {
  Operation *outermost = nullptr;
  for (Operation *parent = require->getParentOp(); parent; parent = parent->getParentOp())
    if (isa<CompositeOp>(parent))
      outermost = parent;
  auto isOutside = [&](Value v) { return !outermost->isAncestor(v.getParentBlock()->getParentOp()); };
  if (outermost && llvm::all_of(require->getOperands(), isOutside))
    require->moveBefore(outermost);
}

namespace {
struct Discharge final : disc::impl::DischargeBase<Discharge> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    bool failed = false;
    for (auto function : getOperation().getOps<FunctionOpInterface>()) {
      if (function.isExternal())
        continue;
      SmallVector<RequireOp> requirements;
      function->walk([&](RequireOp require) { requirements.push_back(require); });
      // Guards stand first in their block, in the order of their requirements, or behind what gives the last of their
      // symbols its value.
      OpBuilder builder(&getContext());
      auto guardsFor = [&](Block *block, ArrayRef<SymExpr> sides) -> OpBuilder & {
        Operation *last = SymbolBindings(*block).lastOf(sides);
        Block::iterator at = last ? std::next(Block::iterator(last)) : block->begin();
        while (isa<GuardOp>(*at))
          ++at;
        builder.setInsertionPoint(block, at);
        return builder;
      };
      llvm::for_each(requirements, leaveComposites);
      for (RequireOp require : requirements)
        failed |= mlir::failed(discharge(require, guardsFor, shapes));
      // The guards are facts now, and extents may have become equal.
      Extents extents(function);
      canonicalizeExtents(function, extents, shapes);
    }
    if (failed)
      signalPassFailure();
  }
};
} // namespace
