//===- ExprEmitter.h - Symbolic expressions as index arithmetic -*- C++ -*-===//

#ifndef DISC_TARGET_COMMON_EXPREMITTER_H
#define DISC_TARGET_COMMON_EXPREMITTER_H

#include "dialects/Shape/SymExpr.h"
#include "mlir/IR/Builders.h"
#include <functional>
#include <map>
#include <string>

namespace mlir::disc {

class ShapeAnalysis;

/// Emits the value of symbolic expressions as `arith` on `index`. Equal
/// expressions, and equal parts of different ones, are emitted once: whoever
/// owns an emitter promises that what it emitted dominates what comes next.
class ExprEmitter {
public:
  /// The value of a symbol at the insertion point; null when it has none.
  using SymbolValue = std::function<Value(StringRef)>;

  ExprEmitter(OpBuilder &builder, ShapeAnalysis &shapes, SymbolValue symbolValue);

  /// Null when a symbol has no value; `missingSymbol` then names it.
  Value emit(const SymExpr &expr, Location loc);
  StringRef missingSymbol() const { return missing; }

  /// What is emitted while this lives is forgotten after: it need not dominate what comes then.
  class Scope {
  public:
    explicit Scope(ExprEmitter &emitter) : emitter(emitter), known(emitter.emitted) {}
    ~Scope() { emitter.emitted = std::move(known); }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    ExprEmitter &emitter;
    std::map<SymExpr, Value> known;
  };

private:
  Value emitTerm(const SymTerm &term, Location loc);
  Value emitProduct(ArrayRef<SymAtom> factors, Location loc);
  Value emitAtom(const SymAtom &atom, Location loc);
  Value emitDivision(const SymAtom &atom, Location loc);
  Value constant(int64_t value, Location loc);

  OpBuilder &builder;
  ShapeAnalysis &shapes;
  SymbolValue symbolValue;
  std::map<SymExpr, Value> emitted;
  std::string missing;
};

/// `value`, the value of `expr`, but 1 for 0: expressions are computed before the guards that refuse a divisor of 0, or
/// where there is no element that needs them, and the machine traps.
Value nonZeroDivisor(OpBuilder &b, Location loc, ShapeAnalysis &shapes, const SymExpr &expr, Value value);

} // namespace mlir::disc

#endif // DISC_TARGET_COMMON_EXPREMITTER_H
