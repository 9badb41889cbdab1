//===- ExprEmitter.cpp - Symbolic expressions as index arithmetic ---------===//

#include "lib/Target/Common/ExprEmitter.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;
using namespace mlir::disc;

ExprEmitter::ExprEmitter(OpBuilder &builder, ShapeAnalysis &shapes, SymbolValue symbolValue)
    : builder(builder), shapes(shapes), symbolValue(std::move(symbolValue)) {}

Value ExprEmitter::constant(int64_t value, Location loc) { return arith::ConstantIndexOp::create(builder, loc, value); }

Value ExprEmitter::emit(const SymExpr &expr, Location loc) {
  auto known = emitted.find(expr);
  if (known != emitted.end())
    return known->second;
  Value sum;
  for (const SymTerm &term : expr.terms()) {
    // `a - b` rather than `a + (-1) * b`.
    bool subtract = sum && term.coefficient < 0 && term.coefficient != std::numeric_limits<int64_t>::min();
    SymTerm positive = term;
    if (subtract)
      positive.coefficient = -term.coefficient;
    Value value = emitTerm(positive, loc);
    if (!value)
      return {};
    if (!sum)
      sum = value;
    else if (subtract)
      sum = arith::SubIOp::create(builder, loc, sum, value);
    else
      sum = arith::AddIOp::create(builder, loc, sum, value);
  }
  if (!sum)
    sum = constant(0, loc);
  emitted.emplace(expr, sum);
  return sum;
}

Value ExprEmitter::emitTerm(const SymTerm &term, Location loc) {
  if (term.factors.empty())
    return constant(term.coefficient, loc);
  Value product = emitProduct(term.factors, loc);
  if (!product || term.coefficient == 1)
    return product;
  return arith::MulIOp::create(builder, loc, product, constant(term.coefficient, loc));
}

/// Products are memoised by prefix: `B * S` serves `B * S * 384` and `B * S * H`.
Value ExprEmitter::emitProduct(ArrayRef<SymAtom> factors, Location loc) {
  if (factors.size() == 1)
    return emitAtom(factors.front(), loc);
  SymExpr key = SymExpr::fromTerms({SymTerm{1, SymMonomial(factors.begin(), factors.end())}});
  auto known = emitted.find(key);
  if (known != emitted.end())
    return known->second;
  Value head = emitProduct(factors.drop_back(), loc);
  Value last = head ? emitAtom(factors.back(), loc) : Value();
  if (!last)
    return {};
  Value product = arith::MulIOp::create(builder, loc, head, last);
  emitted.emplace(key, product);
  return product;
}

Value ExprEmitter::emitAtom(const SymAtom &atom, Location loc) {
  SymExpr key = SymExpr::atom(atom);
  auto known = emitted.find(key);
  if (known != emitted.end())
    return known->second;
  Value value;
  switch (atom.kind()) {
  case SymAtom::Kind::Symbol:
    // The owner's map is the memo: a symbol may be bound later than now.
    value = symbolValue(atom.name());
    if (!value)
      missing = atom.name().str();
    return value;
  case SymAtom::Kind::FloorDiv:
  case SymAtom::Kind::Mod:
    value = emitDivision(atom, loc);
    break;
  case SymAtom::Kind::Min:
  case SymAtom::Kind::Max:
    for (const SymExpr &argument : atom.args()) {
      Value next = emit(argument, loc);
      if (!next)
        return {};
      if (!value)
        value = next;
      else if (atom.kind() == SymAtom::Kind::Min)
        value = arith::MinSIOp::create(builder, loc, value, next);
      else
        value = arith::MaxSIOp::create(builder, loc, value, next);
    }
    break;
  case SymAtom::Kind::Undefined:
    missing = "undefined";
    return {};
  }
  if (value)
    emitted.emplace(key, value);
  return value;
}

Value mlir::disc::nonZeroDivisor(OpBuilder &b, Location loc, ShapeAnalysis &shapes, const SymExpr &expr, Value value) {
  if (shapes.lessEqual(SymExpr(1), expr) || shapes.lessEqual(expr, SymExpr(-1)))
    return value;
  Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
  Value isZero = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, value, zero);
  return arith::SelectOp::create(b, loc, isZero, one, value);
}

Value ExprEmitter::emitDivision(const SymAtom &atom, Location loc) {
  const SymExpr &lhs = atom.args()[0], &rhs = atom.args()[1];
  Value a = emit(lhs, loc), b = a ? emit(rhs, loc) : Value();
  if (!b)
    return {};
  bool isDiv = atom.kind() == SymAtom::Kind::FloorDiv;
  b = nonZeroDivisor(builder, loc, shapes, rhs, b);
  // Unsigned division by a constant is a shift or a multiplication; flooring
  // costs a sign fix-up, which extents never need.
  if (shapes.lessEqual(SymExpr(0), lhs) && shapes.lessEqual(SymExpr(1), rhs)) {
    if (isDiv)
      return arith::DivUIOp::create(builder, loc, a, b);
    return arith::RemUIOp::create(builder, loc, a, b);
  }
  Value quotient = arith::FloorDivSIOp::create(builder, loc, a, b);
  if (isDiv)
    return quotient;
  Value multiple = arith::MulIOp::create(builder, loc, quotient, b);
  return arith::SubIOp::create(builder, loc, a, multiple);
}
