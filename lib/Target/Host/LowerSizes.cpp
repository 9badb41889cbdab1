//===- LowerSizes.cpp - checks of sizes in the host flow -------------------===//
//
//   disc_rt.check_sizes %call [B * S * 4] of [B * S * 4] as ["a tensor of shape [B, S]"]
// becomes
//   %b = sitofp(max(%B, 1)) ; %s = sitofp(max(%S, 1)) ; %sum = %b * %s * 4.0
//   cf.cond_br (%sum <= 2^59), ^next, ^cold          // ^cold: disc_rt_size_failed
//
// Floating point cannot overflow here: products of 16 numbers of 64 bits fit. Its rounding does not matter, since the
// limit is far from what an int64 holds.
//
// Lit test: test/lit/Host/check-sizes.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Host/EntryLowering.h"

#include "lib/Target/Common/PointEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// Expressions as numbers of 64-bit floating point.
class FloatEmitter {
public:
  FloatEmitter(OpBuilder &b, Location loc, ShapeAnalysis &shapes, llvm::StringMap<Value> &symbols)
      : b(b), loc(loc), shapes(shapes), symbols(symbols) {}

  /// The value of an expression, but for rounding; with `atLeastOne`, every factor of its products counts as at
  /// least 1. Null if a symbol has no value.
  Value emit(const SymExpr &expr, bool atLeastOne);
  StringRef missingSymbol() const { return missing; }

  Value constant(double value) { return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(value)); }

private:
  Value emitAtom(const SymAtom &atom, bool atLeastOne);
  Value atLeast1(Value value) { return arith::MaxNumFOp::create(b, loc, value, constant(1)); }

  OpBuilder &b;
  Location loc;
  ShapeAnalysis &shapes;
  llvm::StringMap<Value> &symbols;
  std::map<std::pair<std::string, bool>, Value> emitted;
  std::string missing;
};
} // namespace

Value FloatEmitter::emit(const SymExpr &expr, bool atLeastOne) {
  Value sum;
  for (const SymTerm &term : expr.terms()) {
    Value product;
    for (const SymAtom &atom : term.factors) {
      Value factor = emitAtom(atom, atLeastOne);
      if (!factor)
        return {};
      product = product ? arith::MulFOp::create(b, loc, product, factor).getResult() : factor;
    }
    Value coefficient = product && term.coefficient == 1 ? Value() : constant(double(term.coefficient));
    if (!product)
      product = coefficient;
    else if (coefficient)
      product = arith::MulFOp::create(b, loc, product, coefficient);
    sum = sum ? arith::AddFOp::create(b, loc, sum, product).getResult() : product;
  }
  return sum ? sum : constant(0);
}

Value FloatEmitter::emitAtom(const SymAtom &atom, bool atLeastOne) {
  SymExpr self = SymExpr::atom(atom);
  Value &value = emitted[{self.str(), atLeastOne}];
  if (value)
    return value;
  bool positive = !atLeastOne || shapes.lessEqual(1, self);
  switch (atom.kind()) {
  case SymAtom::Kind::Symbol: {
    Value symbol = symbols.lookup(atom.name());
    if (!symbol) {
      missing = atom.name().str();
      return {};
    }
    if (!positive)
      symbol = arith::MaxSIOp::create(b, loc, symbol, arith::ConstantIndexOp::create(b, loc, 1));
    Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), symbol);
    return value = arith::SIToFPOp::create(b, loc, b.getF64Type(), number);
  }
  case SymAtom::Kind::FloorDiv: {
    Value numerator = emit(atom.args()[0], false);
    // A multiplication takes a quarter of the time of a division.
    if (numerator && atom.args()[1].isConstant() && atom.args()[1].constant() > 0) {
      value = arith::MulFOp::create(b, loc, numerator, constant(1.0 / double(atom.args()[1].constant())));
      break;
    }
    Value divisor = numerator ? emit(atom.args()[1], false) : Value();
    if (!divisor)
      return {};
    // A division by zero does not come to be: what needs it has no elements.
    if (!shapes.lessEqual(1, atom.args()[1]))
      divisor = atLeast1(divisor);
    value = arith::DivFOp::create(b, loc, numerator, divisor);
    break;
  }
  case SymAtom::Kind::Mod:
    value = emit(atom.args()[1], false);
    break;
  case SymAtom::Kind::Min:
  case SymAtom::Kind::Max: {
    Value chosen;
    for (const SymExpr &arg : atom.args()) {
      Value next = emit(arg, false);
      if (!next)
        return {};
      if (!chosen)
        chosen = next;
      else if (atom.kind() == SymAtom::Kind::Min)
        chosen = arith::MinNumFOp::create(b, loc, chosen, next);
      else
        chosen = arith::MaxNumFOp::create(b, loc, chosen, next);
    }
    value = chosen;
    break;
  }
  case SymAtom::Kind::Undefined:
    missing = "undefined";
    break;
  }
  if (value && !positive)
    value = atLeast1(value);
  return value;
}

LogicalResult EntryLowering::lowerCheckSizes(CheckSizesOp op) {
  Location loc = op.getLoc();
  FloatEmitter floats(b, loc, shapes, symbols);
  auto emit = [&](Attribute expr, bool atLeastOne) {
    Value value = floats.emit(cast<ExprAttr>(expr).getValue(), atLeastOne);
    if (!value)
      op.emitOpError() << "needs the value of symbol '" << floats.missingSymbol() << "', which is not bound here";
    return value;
  };
  // Comparisons are false for what is not a number.
  auto isAtMost = [&](Value value, double limit) -> Value {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLE, value, floats.constant(limit));
  };
  Value sum, ok;
  for (Attribute term : op.getTerms()) {
    Value value = emit(term, /*atLeastOne=*/true);
    if (!value)
      return failure();
    sum = sum ? arith::AddFOp::create(b, loc, sum, value).getResult() : value;
  }
  if (sum)
    ok = isAtMost(sum, double(int64_t(1) << 59));
  SmallVector<Value> numbers;
  for (Attribute number : op.getNumbers()) {
    Value value = emit(number, /*atLeastOne=*/false);
    if (!value)
      return failure();
    numbers.push_back(value);
    // The largest number below 2^63.
    constexpr double kMost = 0x1.fffffffffffffp62;
    Value fits =
        arith::AndIOp::create(b, loc, isAtMost(value, kMost),
                              arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, value, floats.constant(-kMost)));
    ok = ok ? arith::AndIOp::create(b, loc, ok, fits).getResult() : fits;
  }

  Block *here = b.getInsertionBlock(), *next = b.createBlock(exit), *cold = b.createBlock(exit->getParent());
  // Pairs of a text and a value: sizes, numbers, and the symbols that they depend on.
  SmallVector<std::pair<StringRef, Value>> pairs;
  for (auto [attr, text] : llvm::zip(op.getValues(), op.getTexts())) {
    Value value = emit(attr, /*atLeastOne=*/true);
    if (!value)
      return failure();
    pairs.push_back({cast<StringAttr>(text), value});
  }
  for (auto [value, text] : llvm::zip(numbers, op.getNumberTexts()))
    pairs.push_back({cast<StringAttr>(text), value});
  std::vector<std::string> mentioned;
  for (ArrayAttr list : {op.getValues(), op.getNumbers()})
    for (Attribute attr : list)
      llvm::append_range(mentioned, cast<ExprAttr>(attr).getValue().symbols());
  llvm::sort(mentioned);
  mentioned.erase(std::unique(mentioned.begin(), mentioned.end()), mentioned.end());
  for (const std::string &name : mentioned)
    pairs.push_back({name, toI64(loc, symbols.lookup(name))});
  Value array = slots(loc, 2 * pairs.size());
  for (auto [i, pair] : llvm::enumerate(pairs)) {
    store(loc, textAddress(b, loc, module, pair.first), array, 2 * i);
    store(loc, pair.second, array, 2 * i + 1);
  }
  Value status = runtime.call(b, loc, "disc_rt_size_failed", i32,
                              {call, constant64(loc, op.getValues().size()), constant64(loc, numbers.size()),
                               constant64(loc, mentioned.size()), array});
  cf::BranchOp::create(b, loc, exit, status);
  b.setInsertionPointToEnd(here);
  cf::CondBranchOp::create(b, loc, ok, next, cold);
  b.setInsertionPointToStart(next);
  return success();
}
