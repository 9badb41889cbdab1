//===- ShapeAnalysis.cpp - Expressions of values, extents of tensors ------===//
//
//   %d = tensor.dim %x, %c1              expr(%d)  = S
//   %n = arith.muli %b, %d               expr(%n)  = B * S
//   %r = disc_tensor.reshape %x (%n)     dims(%r)  = [B * S, 384]
//
// Index arithmetic is taken not to overflow: `disc-memory-check-sizes` has it
// checked at run time where ranges do not prove it.
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

ShapeAnalysis::ShapeAnalysis(ModuleOp module) {
  for (auto symbol : module.getOps<SymbolOp>())
    symbolFacts.declare(symbol);
  module.walk([&](Operation *op) {
    for (StringRef name : symbolsAfter(op))
      symbolFacts.bind(name);
    if (auto loop = dyn_cast<LoopOp>(op))
      for (StringRef name : symbolsInside(loop))
        symbolFacts.bind(name);
  });
  module.walk([&](GuardOp guard) {
    if (holdsEverywhere(guard))
      symbolFacts.assume(guard.getPredicate(), guard.getLhs().getValue(), guard.getRhs().getValue());
  });
  assumeLoops(module);
}

void ShapeAnalysis::assumeLoops(ModuleOp module) {
  module.walk([&](LoopOp loop) {
    if (!loop.getCount())
      return;
    SymExpr count = expr(loop.getCount());
    // Facts hold everywhere, not in the body alone: of a loop without steps they must say something true.
    if (isExpressible(count))
      symbolFacts.assume(Predicate::Le, loop.getIndexExpr() + SymExpr(1),
                         symbolFacts.simplify(SymExpr::max(count, SymExpr(1))));
  });
}

bool ShapeAnalysis::holdsEverywhere(GuardOp guard) {
  if (!isa<LoopOp, BranchOp>(guard->getParentOp()))
    return true;
  llvm::StringSet<> own;
  for (Operation &op : *guard->getBlock())
    for (StringRef name : symbolsAfter(&op))
      own.insert(name);
  if (auto loop = dyn_cast<LoopOp>(guard->getParentOp()))
    for (StringRef name : symbolsInside(loop))
      own.insert(name);
  bool ofOwn = false, ofOthers = false;
  for (const SymExpr &side : {guard.getLhs().getValue(), guard.getRhs().getValue()})
    for (StringRef name : side.symbols())
      (own.contains(name) ? ofOwn : ofOthers) = true;
  // An equality says what a symbol from inside is. A bound may say something of those from outside, too: 2 * i < B has
  // B >= 1, which is true if there is a step.
  return ofOwn && (!ofOthers || guard.getPredicate() == Predicate::Eq);
}

bool ShapeAnalysis::provedAt(Operation *op, Predicate predicate, const SymExpr &lhs, const SymExpr &rhs) {
  if (symbolFacts.proved(predicate, lhs, rhs))
    return true;
  if (!isa_and_nonnull<LoopOp, BranchOp>(op->getParentOp()))
    return false; // Nothing more is known here.
  SymbolFacts inside = symbolFacts;
  SymExpr slack = rhs - lhs;
  for (; isa_and_nonnull<LoopOp, BranchOp>(op->getParentOp()); op = op->getParentOp()) {
    for (auto guard : op->getBlock()->getOps<GuardOp>())
      if (!holdsEverywhere(guard) && guard->isBeforeInBlock(op))
        inside.assume(guard.getPredicate(), guard.getLhs().getValue(), guard.getRhs().getValue());
    auto loop = dyn_cast<LoopOp>(op->getParentOp());
    if (!loop || !loop.getCount())
      continue;
    SymExpr count = expr(loop.getCount());
    if (!isExpressible(count))
      continue;
    SymExpr index = loop.getIndexExpr();
    inside.assume(Predicate::Le, index + SymExpr(1), count);
    // What is left when this index, and those inside, are as large as they can be.
    for (const SymTerm &term : slack.terms())
      if (term.coefficient < 0 && SymExpr::fromTerms(SymTerm{1, term.factors}) == index) {
        slack += SymExpr(term.coefficient) * (count - index - SymExpr(1));
        break;
      }
    if (predicate == Predicate::Le && inside.lessEqual(0, slack))
      return true;
  }
  return inside.proved(predicate, lhs, rhs);
}

SymExpr ShapeAnalysis::opaque(Value value, int64_t dim) {
  auto [it, inserted] = opaques.try_emplace({value, dim}, opaques.size());
  return SymExpr::symbol("?" + std::to_string(it->second));
}

bool ShapeAnalysis::isExpressible(const SymExpr &expr) {
  return expr.isDefined() && llvm::none_of(expr.symbols(), [](StringRef name) { return name.starts_with("?"); });
}

//===----------------------------------------------------------------------===//
// Expressions of values
//===----------------------------------------------------------------------===//

SymExpr ShapeAnalysis::expr(Value index) {
  auto it = memo.find(index);
  if (it != memo.end())
    return it->second;
  ++queryDepth;
  SymExpr result = symbolFacts.simplify(compute(index));
  if (!result.isDefined())
    result = opaque(index, -1);
  memo[index] = result;
  if (--queryDepth == 0)
    memo.clear();
  return result;
}

SymExpr ShapeAnalysis::compute(Value index) {
  Operation *op = index.getDefiningOp();
  APInt constant;
  if (op && matchPattern(index, m_ConstantInt(&constant)) && constant.getSignificantBits() <= 64)
    return constant.getSExtValue();
  if (auto dim = dyn_cast_or_null<DimOp>(op))
    return dim.getExpr().getValue();
  if (auto bind = dyn_cast_or_null<BindOp>(op))
    return SymExpr::symbol(bind.getSymbol().str());
  if (auto dim = dyn_cast_or_null<tensor::DimOp>(op)) {
    std::optional<int64_t> position = dim.getConstantIndex();
    auto type = dyn_cast<RankedTensorType>(dim.getSource().getType());
    if (position && type && *position >= 0 && *position < type.getRank())
      return dims(dim.getSource())[*position];
  }
  if (op)
    if (std::optional<SymExpr> result = computeArith(op))
      return *result;
  return opaque(index, -1);
}

/// True if every value in `range` is representable in `width` signed bits.
static bool fits(SymbolFacts::Range range, unsigned width) {
  if (width >= 64)
    return true;
  return range.min && range.max && llvm::isIntN(width, *range.min) && llvm::isIntN(width, *range.max);
}

std::optional<SymExpr> ShapeAnalysis::computeArith(Operation *op) {
  Type type = op->getNumResults() == 1 ? op->getResult(0).getType() : Type();
  if (!type || !type.isIntOrIndex() || type.isInteger(1))
    return std::nullopt;
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();

  auto lhs = [&] { return expr(op->getOperand(0)); };
  auto rhs = [&] { return expr(op->getOperand(1)); };
  auto isNonNegative = [&](const SymExpr &e) { return lessEqual(0, e); };
  using Binary = SymExpr (*)(const SymExpr &, const SymExpr &);
  // Rounding towards zero, and unsigned, are rounding down for what is not
  // negative.
  auto natural = [&](Binary f) -> std::optional<SymExpr> {
    SymExpr a = lhs(), b = rhs();
    if (!isNonNegative(a) || !lessEqual(1, b))
      return std::nullopt;
    return f(a, b);
  };
  auto naturalChoice = [&](Binary f) -> std::optional<SymExpr> {
    SymExpr a = lhs(), b = rhs();
    if (!isNonNegative(a) || !isNonNegative(b))
      return std::nullopt;
    return f(a, b);
  };

  std::optional<SymExpr> result =
      llvm::TypeSwitch<Operation *, std::optional<SymExpr>>(op)
          .Case<arith::IndexCastOp, arith::ExtSIOp, arith::TruncIOp>([&](auto) { return lhs(); })
          .Case<arith::IndexCastUIOp, arith::ExtUIOp>([&](auto cast) -> std::optional<SymExpr> {
            if (cast.getIn().getType().isInteger(1))
              return std::nullopt;
            SymExpr in = lhs();
            return isNonNegative(in) ? std::optional(in) : std::nullopt;
          })
          .Case([&](arith::AddIOp) { return lhs() + rhs(); })
          .Case([&](arith::SubIOp) { return lhs() - rhs(); })
          .Case([&](arith::MulIOp) { return lhs() * rhs(); })
          .Case([&](arith::FloorDivSIOp) { return SymExpr::floorDiv(lhs(), rhs()); })
          .Case([&](arith::CeilDivSIOp) { return SymExpr::ceilDiv(lhs(), rhs()); })
          .Case([&](arith::DivSIOp) -> std::optional<SymExpr> {
            if (auto exact = SymExpr::exactDiv(lhs(), rhs()))
              return exact;
            return natural(&SymExpr::floorDiv);
          })
          .Case<arith::DivUIOp>([&](auto) { return natural(&SymExpr::floorDiv); })
          .Case<arith::CeilDivUIOp>([&](auto) { return natural(&SymExpr::ceilDiv); })
          .Case<arith::RemSIOp, arith::RemUIOp>([&](auto) { return natural(&SymExpr::mod); })
          .Case([&](arith::MinSIOp) { return SymExpr::min(lhs(), rhs()); })
          .Case([&](arith::MaxSIOp) { return SymExpr::max(lhs(), rhs()); })
          .Case<arith::MinUIOp>([&](auto) {
            return naturalChoice([](const SymExpr &a, const SymExpr &b) { return SymExpr::min(a, b); });
          })
          .Case<arith::MaxUIOp>([&](auto) {
            return naturalChoice([](const SymExpr &a, const SymExpr &b) { return SymExpr::max(a, b); });
          })
          .Case([&](arith::SelectOp select) {
            return computeSelect(select.getCondition(), select.getTrueValue(), select.getFalseValue());
          })
          .Default([](Operation *) { return std::nullopt; });
  // Narrow integers wrap for real, so they count only where they cannot.
  if (result && !fits(range(*result), width))
    return std::nullopt;
  return result;
}

std::optional<SymExpr> ShapeAnalysis::computeSelect(Value condition, Value ifTrue, Value ifFalse) {
  if (std::optional<bool> decided = decideCompare(*this, condition))
    return expr(*decided ? ifTrue : ifFalse);
  SymExpr a = expr(ifTrue), b = expr(ifFalse);
  if (a == b)
    return a;
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  if (!compare)
    return std::nullopt;
  // select(x < y, x, y) is a minimum; with the arms swapped, a maximum. What
  // matters is the difference of the arms being that of the sides.
  using Predicate = arith::CmpIPredicate;
  Predicate predicate = compare.getPredicate();
  SymExpr difference = expr(compare.getLhs()) - expr(compare.getRhs());
  bool isLess = predicate == Predicate::slt || predicate == Predicate::sle;
  bool isGreater = predicate == Predicate::sgt || predicate == Predicate::sge;
  if (!isLess && !isGreater)
    return std::nullopt;
  if (a - b == difference)
    return isLess ? SymExpr::min(a, b) : SymExpr::max(a, b);
  if (b - a == difference)
    return isLess ? SymExpr::max(a, b) : SymExpr::min(a, b);
  return std::nullopt;
}

std::optional<bool> mlir::disc::decideCompare(ShapeAnalysis &shapes, Value condition) {
  APInt constant;
  if (matchPattern(condition, m_ConstantInt(&constant)))
    return !constant.isZero();
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  if (!compare || !compare.getLhs().getType().isIntOrIndex())
    return std::nullopt;
  SymExpr lhs = shapes.expr(compare.getLhs());
  SymExpr rhs = shapes.expr(compare.getRhs());
  auto decideLess = [&](const SymExpr &a, const SymExpr &b) -> std::optional<bool> {
    if (shapes.lessEqual(a + SymExpr(1), b))
      return true;
    if (shapes.lessEqual(b, a))
      return false;
    return std::nullopt;
  };
  auto negate = [](std::optional<bool> value) -> std::optional<bool> {
    return value ? std::optional<bool>(!*value) : std::nullopt;
  };
  auto decideEqual = [&]() -> std::optional<bool> {
    if (shapes.equal(lhs, rhs))
      return true;
    if (shapes.facts().impossible(Predicate::Eq, lhs, rhs))
      return false;
    return std::nullopt;
  };
  bool natural = shapes.lessEqual(0, lhs) && shapes.lessEqual(0, rhs);
  switch (compare.getPredicate()) {
  case arith::CmpIPredicate::eq:
    return decideEqual();
  case arith::CmpIPredicate::ne:
    return negate(decideEqual());
  case arith::CmpIPredicate::ult:
    if (!natural)
      return std::nullopt;
    [[fallthrough]];
  case arith::CmpIPredicate::slt:
    return decideLess(lhs, rhs);
  case arith::CmpIPredicate::ugt:
    if (!natural)
      return std::nullopt;
    [[fallthrough]];
  case arith::CmpIPredicate::sgt:
    return decideLess(rhs, lhs);
  case arith::CmpIPredicate::ule:
    if (!natural)
      return std::nullopt;
    [[fallthrough]];
  case arith::CmpIPredicate::sle:
    return negate(decideLess(rhs, lhs));
  case arith::CmpIPredicate::uge:
    if (!natural)
      return std::nullopt;
    [[fallthrough]];
  case arith::CmpIPredicate::sge:
    return negate(decideLess(lhs, rhs));
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Extents of tensors
//===----------------------------------------------------------------------===//

SmallVector<SymExpr> ShapeAnalysis::dims(Value tensor) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<SymExpr> result;
  if (!type.hasStaticShape()) {
    ++queryDepth;
    auto arg = dyn_cast<BlockArgument>(tensor);
    auto known = arg ? argumentDims(arg) : resultDims(cast<OpResult>(tensor));
    if (known && int64_t(known->size()) == type.getRank())
      result = std::move(*known);
    if (--queryDepth == 0)
      memo.clear();
  }
  bool known = !result.empty();
  result.resize(type.getRank());
  for (int64_t i = 0; i < type.getRank(); ++i) {
    if (!type.isDynamicDim(i))
      result[i] = type.getDimSize(i);
    else if (!known || !(result[i] = symbolFacts.simplify(result[i])).isDefined())
      result[i] = opaque(tensor, i);
  }
  return result;
}

std::optional<SmallVector<SymExpr>> ShapeAnalysis::argumentDims(BlockArgument arg) {
  Operation *owner = arg.getOwner()->getParentOp();
  if (!owner || !arg.getOwner()->isEntryBlock())
    return std::nullopt;
  if (auto function = dyn_cast<FunctionOpInterface>(owner)) {
    auto dims = function.getArgAttrOfType<DimsAttr>(arg.getArgNumber(), ShapeDialect::getDimsAttrName());
    return dims ? std::optional(dims.getDims()) : std::nullopt;
  }
  if (auto known = dyn_cast<DimsOpInterface>(owner))
    return known.getRegionArgDims(arg, *this);
  return std::nullopt;
}

std::optional<SmallVector<SymExpr>> ShapeAnalysis::resultDims(OpResult result) {
  Operation *op = result.getOwner();
  // What the shape stage wrote.
  if (auto dims = op->getAttrOfType<ArrayAttr>(ShapeDialect::getDimsAttrName())) {
    unsigned index = 0;
    for (OpResult earlier : op->getResults().take_front(result.getResultNumber()))
      index += isa<RankedTensorType>(earlier.getType());
    if (index < dims.size())
      return cast<DimsAttr>(dims[index]).getDims();
  }
  if (auto known = dyn_cast<DimsOpInterface>(op))
    return known.getResultDims(result.getResultNumber(), *this);
  if (auto style = dyn_cast<DestinationStyleOpInterface>(op))
    return dims(style.getTiedOpOperand(result)->get());

  auto mixed = [&](ArrayRef<OpFoldResult> sizes) {
    return llvm::map_to_vector(sizes, [&](OpFoldResult size) {
      std::optional<int64_t> constant = getConstantIntValue(size);
      return constant ? SymExpr(*constant) : expr(cast<Value>(size));
    });
  };
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return mixed(empty.getMixedSizes());
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    if (isa<RankedTensorType>(cast.getSource().getType()))
      return dims(cast.getSource());
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    if (slice.getType().getRank() == slice.getSourceType().getRank())
      return mixed(slice.getMixedSizes());
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return dims(insert.getDest());
  // Elementwise operations on whole tensors have the extents of any operand.
  if (OpTrait::hasElementwiseMappableTraits(op))
    for (Value operand : op->getOperands())
      if (auto type = dyn_cast<RankedTensorType>(operand.getType());
          type && type.getShape() == cast<RankedTensorType>(result.getType()).getShape())
        return dims(operand);
  return std::nullopt;
}
