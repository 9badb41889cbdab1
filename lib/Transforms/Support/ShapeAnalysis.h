//===- ShapeAnalysis.h - The one analysis of shapes -------------*- C++ -*-===//
//
// Whatever a pass decides from shapes, it decides by asking this: which
// expression an extent is, and what is known about expressions. It reads the
// declarations and guards of the module when it is made, and the IR when it is
// asked, so it stays right while a pass rewrites the IR, with one exception: a
// value that is not expressible gets a name of its own, `?n`, which a new value
// at the address of an erased one would inherit.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_SUPPORT_SHAPEANALYSIS_H
#define DISC_TRANSFORMS_SUPPORT_SHAPEANALYSIS_H

#include "dialects/Shape/ShapeDialect.h"
#include "lib/Transforms/Support/SymbolFacts.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::disc {

class ShapeAnalysis final : public DimsQuery {
public:
  using Range = SymbolFacts::Range;

  explicit ShapeAnalysis(ModuleOp module);

  /// The canonical expression of an index or integer; a fresh symbol `?n`
  /// where there is none.
  SymExpr expr(Value index) override;
  /// The canonical extents of a ranked tensor.
  SmallVector<SymExpr> dims(Value tensor) override;

  bool equal(const SymExpr &lhs, const SymExpr &rhs) const { return symbolFacts.equal(lhs, rhs); }
  bool lessEqual(const SymExpr &lhs, const SymExpr &rhs) const { return symbolFacts.lessEqual(lhs, rhs); }
  bool divisible(const SymExpr &expr, int64_t divisor) const { return symbolFacts.divisible(expr, divisor); }
  Range range(const SymExpr &expr) const { return symbolFacts.range(expr); }
  int64_t typical(const SymExpr &expr) const { return symbolFacts.typical(expr); }
  /// The normal form given the facts.
  SymExpr simplify(const SymExpr &expr) const { return symbolFacts.simplify(expr); }

  /// True unless the expression mentions a `?n`.
  static bool isExpressible(const SymExpr &expr);

  /// Steps of loops lie below their counts. Done for all loops of the module at first; again when more is known.
  void assumeLoops(ModuleOp module);

  /// True for a guard that is a fact about its symbols wherever they are used: a guard that stands in a loop or branch
  /// and has symbols from outside alone, or bounds them, may be true only there.
  static bool holdsEverywhere(GuardOp guard);

  /// Whether the relation holds whenever `op` runs: in the body of a loop, which has a step then, and behind the guards
  /// of its own block and those around it.
  bool provedAt(Operation *op, Predicate predicate, const SymExpr &lhs, const SymExpr &rhs);

  /// Facts found since the module was read are added here.
  SymbolFacts &facts() { return symbolFacts; }

private:
  SymExpr compute(Value index);
  std::optional<SymExpr> computeArith(Operation *op);
  std::optional<SymExpr> computeSelect(Value condition, Value ifTrue, Value ifFalse);
  std::optional<SmallVector<SymExpr>> resultDims(OpResult result);
  std::optional<SmallVector<SymExpr>> argumentDims(BlockArgument arg);
  SymExpr opaque(Value value, int64_t dim);

  SymbolFacts symbolFacts;
  /// Dimension -1 stands for the value itself.
  llvm::DenseMap<std::pair<Value, int64_t>, unsigned> opaques;
  /// Answers within one outermost query, while the IR cannot change.
  llvm::DenseMap<Value, SymExpr> memo;
  unsigned queryDepth = 0;
};

/// Decides `lhs predicate rhs` for integer comparisons; nothing if unknown.
std::optional<bool> decideCompare(ShapeAnalysis &shapes, Value compare);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_SHAPEANALYSIS_H
