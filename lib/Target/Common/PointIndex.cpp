//===- PointIndex.cpp - coordinates as index arithmetic -------------------===//
//
// The part of PointEmitter that computes coordinates. Everything the compiler knows about how a coordinate runs along
// the lanes is kept (`Idx`), because it decides between a vector load and a gather, and between one scalar division
// and a division per lane.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/PointEmitter.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/Common/ExprEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include <numeric>

using namespace mlir;
using namespace mlir::disc;

namespace {
std::optional<int64_t> constantValue(Value v) {
  APInt value;
  if (v && matchPattern(v, m_ConstantInt(&value)))
    return value.getSExtValue();
  return std::nullopt;
}

/// The largest known divisor of a coordinate's base; 0 stands for "all", being zero's.
int64_t knownMultiple(const Idx &a) {
  if (auto c = constantValue(a.base))
    return std::abs(*c);
  return a.multiple;
}
} // namespace

/// Of the vector at `offset` elements from a buffer's start.
unsigned PointEmitter::alignmentAt(Value ptr, const Idx &offset, Type memory) {
  int64_t bytes = (memory.getIntOrFloatBitWidth() + 7) / 8;
  return std::max(std::gcd(std::max<int64_t>(alignments.lookup(ptr), 1), knownMultiple(offset) * bytes), bytes);
}

void PointEmitter::assumeMultiples(ArrayRef<SymExpr> exprs, int64_t divisor) {
  multiples.assign(exprs.begin(), exprs.end());
  multiplesOf = divisor;
}

int64_t PointEmitter::divisor(const SymExpr &e) const {
  int64_t content = e.content();
  return llvm::is_contained(multiples, e) ? std::lcm(content, multiplesOf) : content;
}

Idx Idx::arbitrary(Value each) {
  Idx idx;
  idx.each = each;
  return idx;
}

void PointEmitter::atEntry(function_ref<void()> emit) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(entryAnchor);
  emit();
}

Value PointEmitter::constant(TypedAttr value) {
  // Attributes are unique per value and type, so their address is the key.
  Value &known = constants[value.getAsOpaquePointer()];
  if (!known)
    atEntry([&] { known = arith::ConstantOp::create(builder, loc, value); });
  return known;
}

Value PointEmitter::constantIndex(int64_t value) { return constant(builder.getIndexAttr(value)); }

Value KernelArguments::get(OpBuilder &b, Location loc, unsigned slot, Type type) const {
  if (!array)
    return each[slot];
  // Slots are 8 bytes also where pointers are not.
  Value at = LLVM::GEPOp::create(b, loc, array.getType(), b.getI64Type(), array, ArrayRef<LLVM::GEPArg>{int32_t(slot)});
  return LLVM::LoadOp::create(b, loc, type, at, 8);
}

Value PointEmitter::entryPtr(unsigned slot) {
  Value &known = pointers[slot];
  if (!known)
    atEntry([&] { known = arguments.get(builder, loc, slot, LLVM::LLVMPointerType::get(builder.getContext())); });
  return known;
}

Value PointEmitter::operandPtr(unsigned i) { return entryPtr(i); }
Value PointEmitter::resultPtr(unsigned i) { return entryPtr(kernelFunc.getNumInputs() + i); }
Value PointEmitter::callPtr() {
  return entryPtr(kernelFunc.getNumInputs() + kernelFunc.getNumResults() + kernelFunc.getSymbols().size());
}

/// Emits an expression at the builder's insertion point; `symbol` gives the symbols' values.
static Value emitExpr(OpBuilder &b, Location loc, ShapeAnalysis &shapes, const SymExpr &e,
                      function_ref<Value(StringRef)> symbol) {
  auto constant = [&](int64_t c) -> Value { return arith::ConstantIndexOp::create(b, loc, c); };
  auto atomValue = [&](const SymAtom &atom) -> Value {
    if (atom.kind() == SymAtom::Kind::Symbol)
      return symbol(atom.name());
    SmallVector<Value> args;
    for (const SymExpr &arg : atom.args())
      args.push_back(emitExpr(b, loc, shapes, arg, symbol));
    if (atom.kind() == SymAtom::Kind::FloorDiv || atom.kind() == SymAtom::Kind::Mod)
      args[1] = nonZeroDivisor(b, loc, shapes, atom.args()[1], args[1]);
    switch (atom.kind()) {
    case SymAtom::Kind::FloorDiv:
      return arith::FloorDivSIOp::create(b, loc, args[0], args[1]);
    case SymAtom::Kind::Mod: {
      Value quotient = arith::FloorDivSIOp::create(b, loc, args[0], args[1]);
      return arith::SubIOp::create(b, loc, args[0], arith::MulIOp::create(b, loc, quotient, args[1]));
    }
    case SymAtom::Kind::Min:
    case SymAtom::Kind::Max: {
      Value result = args[0];
      for (Value arg : ArrayRef<Value>(args).drop_front())
        result = atom.kind() == SymAtom::Kind::Min ? arith::MinSIOp::create(b, loc, result, arg).getResult()
                                                   : arith::MaxSIOp::create(b, loc, result, arg).getResult();
      return result;
    }
    default:
      return constant(0);
    }
  };
  Value sum;
  for (const SymTerm &term : e.terms()) {
    Value product;
    for (const SymAtom &factor : term.factors) {
      Value v = atomValue(factor);
      product = product ? arith::MulIOp::create(b, loc, product, v).getResult() : v;
    }
    if (!product)
      product = constant(term.coefficient);
    else if (term.coefficient != 1)
      product = arith::MulIOp::create(b, loc, product, constant(term.coefficient));
    sum = sum ? arith::AddIOp::create(b, loc, sum, product).getResult() : product;
  }
  return sum ? sum : constant(0);
}

Value PointEmitter::expr(const SymExpr &e) {
  if (e.isConstant())
    return constantIndex(e.constant());
  Value &known = exprs[e.str()];
  if (known)
    return known;
  Value result;
  atEntry([&] {
    if (auto name = e.asSymbol()) {
      auto names = kernelFunc.getSymbols().getAsValueRange<StringAttr>();
      auto it = llvm::find(names, *name);
      if (it == names.end()) {
        kernelFunc.emitError() << "uses symbol " << *name << " but is not given its value";
        result = arith::ConstantIndexOp::create(builder, loc, 0);
        return;
      }
      unsigned slot = kernelFunc.getNumInputs() + kernelFunc.getNumResults() + std::distance(names.begin(), it);
      Type i64 = builder.getI64Type();
      Value value = arguments.get(builder, loc, slot, i64);
      result = arith::IndexCastOp::create(builder, loc, builder.getIndexType(), value);
      return;
    }
    result = emitExpr(builder, loc, shapeAnalysis, e, [&](StringRef name) { return expr(SymExpr::symbol(name)); });
  });
  return exprs[e.str()] = result;
}

Value PointEmitter::indexOp(IndexOpKind kind, Value lhs, Value rhs) {
  auto l = constantValue(lhs), r = constantValue(rhs);
  if (l && r && (*r != 0 || kind < Div))
    return constantIndex(kind == Add ? *l + *r : kind == Mul ? *l * *r : kind == Div ? *l / *r : *l % *r);
  if (kind == Add && l == 0)
    return rhs;
  if ((kind == Add && r == 0) || (kind == Mul && r == 1) || (kind == Div && r == 1))
    return lhs;
  if (kind == Mul && l == 1)
    return rhs;
  if ((kind == Mul && (l == 0 || r == 0)) || (kind == Rem && r == 1) || (kind >= Div && l == 0))
    return constantIndex(0);
  IndexKey key{kind, lhs.getAsOpaquePointer(), rhs.getAsOpaquePointer()};
  if (auto it = indices.find(key); it != indices.end())
    return it->second;
  // Both are non-negative where divided, so unsigned division serves, and is the cheaper one.
  Value result = kind == Add   ? arith::AddIOp::create(builder, loc, lhs, rhs).getResult()
                 : kind == Mul ? arith::MulIOp::create(builder, loc, lhs, rhs).getResult()
                 : kind == Div ? arith::DivUIOp::create(builder, loc, lhs, rhs).getResult()
                               : arith::RemUIOp::create(builder, loc, lhs, rhs).getResult();
  indices[key] = result;
  indexLog.push_back(key);
  return result;
}

Idx PointEmitter::uniform(int64_t base) { return Idx(constantIndex(base)); }

Idx PointEmitter::patterned(Value base, ArrayRef<int64_t> offsets, int64_t multiple) {
  int64_t first = offsets.front(), step = offsets.size() > 1 ? offsets[1] - first : 0;
  bool even = true;
  for (auto [i, offset] : llvm::enumerate(offsets))
    even &= offset == first + static_cast<int64_t>(i) * step;
  if (even) {
    Idx result(indexOp(Add, base, constantIndex(first)), step != 0, step ? step : 1);
    result.multiple = std::gcd(multiple, first);
    return result;
  }
  Idx result(base);
  result.multiple = multiple;
  result.pattern = builder.getDenseI64ArrayAttr(offsets);
  return result;
}

/// What each lane adds to the base, and to its row's beginning. Not of an arbitrary coordinate.
SmallVector<int64_t> PointEmitter::laneOffsets(const Idx &a) const {
  if (a.pattern)
    return SmallVector<int64_t>(a.pattern.asArrayRef());
  SmallVector<int64_t> offsets(vectorLanes);
  for (int64_t i = 0; i < vectorLanes; ++i)
    offsets[i] = a.lanes ? i * a.step : 0;
  return offsets;
}

Value PointEmitter::materialize(const Idx &a) {
  if (a.each)
    return a.each;
  if (a.isUniform())
    return a.base;
  auto type = vectorOf(builder.getIndexType());
  Value steps = constant(DenseElementsAttr::get(type, ArrayRef<int64_t>(laneOffsets(a))));
  if (a.rows) {
    Value row = constant(DenseElementsAttr::get(type, a.rows.asArrayRef()));
    steps = arith::AddIOp::create(builder, loc, steps, arith::MulIOp::create(builder, loc, row, splat(a.stride)));
  }
  if (constantValue(a.base) == 0)
    return steps;
  IndexKey key{Add, splat(a.base).getAsOpaquePointer(), steps.getAsOpaquePointer()};
  Value &known = indices[key];
  if (!known) {
    known = arith::AddIOp::create(builder, loc, splat(a.base), steps);
    indexLog.push_back(key);
  }
  return known;
}

Idx PointEmitter::addIdx(const Idx &a, const Idx &b) {
  if (a.each || b.each || (a.rows && b.rows))
    return Idx::arbitrary(arith::AddIOp::create(builder, loc, splat(materialize(a)), splat(materialize(b))));
  if (a.pattern || b.pattern || a.rows || b.rows) {
    SmallVector<int64_t> offsets = laneOffsets(a);
    for (auto [offset, more] : llvm::zip(offsets, laneOffsets(b)))
      offset += more;
    Idx sum = patterned(indexOp(Add, a.base, b.base), offsets, std::gcd(knownMultiple(a), knownMultiple(b)));
    sum.rows = a.rows ? a.rows : b.rows;
    sum.stride = a.rows ? a.stride : b.stride;
    return sum;
  }
  Idx sum(indexOp(Add, a.base, b.base));
  sum.multiple = std::gcd(knownMultiple(a), knownMultiple(b));
  sum.step = (a.lanes ? a.step : 0) + (b.lanes ? b.step : 0);
  sum.lanes = sum.step != 0;
  return sum;
}

Idx PointEmitter::mulIdx(const Idx &a, const SymExpr &factor) {
  if (factor.isConstant(0))
    return uniform(0);
  if (factor.isConstant(1))
    return a;
  Value f = expr(factor);
  if (a.rows)
    return Idx::arbitrary(arith::MulIOp::create(builder, loc, materialize(a), splat(f)));
  if (a.isUniform() || (a.lanes && factor.isConstant())) {
    Idx product(indexOp(Mul, a.base, f), a.lanes);
    product.step = a.lanes ? a.step * factor.constant() : 1;
    product.multiple = knownMultiple(a) * std::max<int64_t>(divisor(factor), 1);
    return product;
  }
  if (a.each)
    return Idx::arbitrary(arith::MulIOp::create(builder, loc, a.each, splat(f)));
  if (a.pattern && factor.isConstant()) {
    SmallVector<int64_t> offsets = laneOffsets(a);
    for (int64_t &offset : offsets)
      offset *= factor.constant();
    return patterned(indexOp(Mul, a.base, f), offsets, knownMultiple(a) * std::abs(factor.constant()));
  }
  if (a.pattern && llvm::SmallDenseSet<int64_t>(llvm::from_range, laneOffsets(a)).size() <= 8) {
    Idx product(indexOp(Mul, a.base, f));
    product.rows = a.pattern;
    product.stride = f;
    return product;
  }
  // base * f + offset * f: the second part is the same for all points, and leaves the loop.
  Value steps = arith::MulIOp::create(builder, loc, materialize(patterned(constantIndex(0), laneOffsets(a))), splat(f));
  return Idx::arbitrary(arith::AddIOp::create(builder, loc, splat(indexOp(Mul, a.base, f)), steps));
}

std::pair<Idx, Idx> PointEmitter::divModIdx(const Idx &a, const SymExpr &extent) {
  if (extent.isConstant(1))
    return {a, uniform(0)};
  if (a.rows)
    return divModIdx(Idx::arbitrary(materialize(a)), extent);
  Value n = expr(extent);
  int64_t constantExtent = extent.isConstant() ? extent.constant() : 0;
  int64_t step = a.lanes ? a.step : 0;
  int64_t span = step * vectorLanes;
  auto isMultipleOf = [](int64_t a, int64_t b) { return b != 0 && a % b == 0; };

  // All lanes fall between two multiples of the extent: the quotient is theirs in common.
  bool blockInside = step > 0 && isMultipleOf(divisor(extent), span) && isMultipleOf(knownMultiple(a), span);
  if (a.isUniform() || blockInside) {
    Idx quotient(indexOp(Div, a.base, n));
    Idx remainder(indexOp(Rem, a.base, n), blockInside, blockInside ? step : 1);
    remainder.multiple = std::gcd(knownMultiple(a), divisor(extent));
    if (constantExtent && isMultipleOf(knownMultiple(a), constantExtent))
      quotient.multiple = std::max<int64_t>(knownMultiple(a) / constantExtent, 1);
    return {quotient, remainder};
  }
  if (step > 0 && constantExtent && step % constantExtent == 0) {
    Idx quotient(indexOp(Div, a.base, n), true, step / constantExtent);
    return {quotient, Idx(indexOp(Rem, a.base, n))};
  }
  if (!a.each && constantExtent && knownMultiple(a) % constantExtent == 0) {
    // The lanes' own offsets divide while compiling.
    SmallVector<int64_t> quotients = laneOffsets(a), remainders = quotients;
    if (llvm::all_of(quotients, [](int64_t offset) { return offset >= 0; })) {
      for (int64_t &offset : quotients)
        offset /= constantExtent;
      for (int64_t &offset : remainders)
        offset %= constantExtent;
      return {patterned(indexOp(Div, a.base, n), quotients, knownMultiple(a) / constantExtent),
              patterned(constantIndex(0), remainders, 0)};
    }
  }
  if (step > 0 && constantExtent && constantExtent + span < (int64_t(1) << 31)) {
    // One scalar division for the block; what is left is small, so that 32 bits do for the lanes' own.
    Value q0 = indexOp(Div, a.base, n), r0 = indexOp(Rem, a.base, n);
    Type i32 = builder.getI32Type(), index = builder.getIndexType();
    SmallVector<int32_t> offsets(vectorLanes);
    for (int64_t i = 0; i < vectorLanes; ++i)
      offsets[i] = i * step;
    auto type = vectorOf(i32);
    Value lane = constant(DenseElementsAttr::get(type, ArrayRef<int32_t>(offsets)));
    Value divisor = constant(DenseElementsAttr::get(type, static_cast<int32_t>(constantExtent)));
    Value first = vector::BroadcastOp::create(builder, loc, type, arith::IndexCastOp::create(builder, loc, i32, r0));
    Value position = arith::AddIOp::create(builder, loc, first, lane);
    Value wraps = arith::DivUIOp::create(builder, loc, position, divisor);
    Value rest = arith::SubIOp::create(builder, loc, position, arith::MulIOp::create(builder, loc, wraps, divisor));
    auto widen = [&](Value v) { return arith::IndexCastOp::create(builder, loc, vectorOf(index), v).getResult(); };
    return {Idx::arbitrary(arith::AddIOp::create(builder, loc, widen(wraps), splat(q0))), Idx::arbitrary(widen(rest))};
  }
  Value each = splat(materialize(a)), divisor = splat(n);
  Value quotient = arith::DivUIOp::create(builder, loc, each, divisor);
  Value remainder = arith::SubIOp::create(builder, loc, each, arith::MulIOp::create(builder, loc, quotient, divisor));
  return {Idx::arbitrary(quotient), Idx::arbitrary(remainder)};
}

/// Row-major position within a group.
Idx PointEmitter::groupPosition(const ReshapeGroup &group, ArrayRef<Idx> from, ArrayRef<SymExpr> fromDims) {
  Idx position = uniform(0);
  for (unsigned i = group.fromBegin; i < group.fromEnd; ++i)
    position = addIdx(mulIdx(position, fromDims[i]), from[i]);
  return position;
}

Value PointEmitter::evalReshape(ReshapeOp op, ArrayRef<Idx> idx, Value mask) {
  SmallVector<SymExpr> from = shapeAnalysis.dims(op.getResult()), to = shapeAnalysis.dims(op.getSource());
  // Of a buffer that is contiguous within each group, the view is a layout: no division.
  auto arg = dyn_cast<BlockArgument>(op.getSource());
  if (arg && !bindings.count(arg)) {
    LayoutAttr layout = kernelFunc.getLayout(arg.getArgNumber());
    auto groups = reshapeGroups(shapeAnalysis, from, to);
    if (auto strides = reshapedStrides(shapeAnalysis, groups, to, layout.getStrides().getDims())) {
      Idx at = uniform(expr(layout.getOffset().getValue()));
      for (auto [group, stride] : llvm::zip(groups, *strides))
        at = addIdx(at, mulIdx(groupPosition(group, idx, from), stride));
      return load(operandPtr(arg.getArgNumber()), at, getElementTypeOrSelf(arg.getType()), mask);
    }
  }
  return eval(op.getSource(), reshapeIdx(idx, from, to), mask);
}

SmallVector<Idx> PointEmitter::reshapeIdx(ArrayRef<Idx> from, ArrayRef<SymExpr> fromDims, ArrayRef<SymExpr> toDims) {
  SmallVector<Idx> to(toDims.size());
  for (const ReshapeGroup &group : reshapeGroups(shapeAnalysis, fromDims, toDims)) {
    Idx position = groupPosition(group, from, fromDims);
    // Taken apart again, innermost first; the outermost needs no division.
    for (unsigned i = group.toEnd; i-- > group.toBegin;) {
      if (i == group.toBegin) {
        to[i] = position;
        break;
      }
      auto [quotient, remainder] = divModIdx(position, toDims[i]);
      to[i] = remainder;
      position = quotient;
    }
  }
  return to;
}

SmallVector<ReshapeGroup> mlir::disc::reshapeGroups(ShapeAnalysis &shapes, ArrayRef<SymExpr> from,
                                                    ArrayRef<SymExpr> to) {
  SmallVector<ReshapeGroup> groups;
  unsigned i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    ReshapeGroup group{i, i, j, j};
    // The smallest pair of prefixes with equal products; unit extents on one side alone make a group of their own.
    bool found = false;
    SymExpr fromProduct(1);
    for (unsigned k = i; k <= from.size() && !found; ++k) {
      if (k > i)
        fromProduct *= from[k - 1];
      SymExpr toProduct(1);
      for (unsigned l = j; l <= to.size() && !found; ++l) {
        if (l > j)
          toProduct *= to[l - 1];
        if ((k > i || l > j) && shapes.equal(fromProduct, toProduct)) {
          group.fromEnd = k;
          group.toEnd = l;
          found = true;
        }
      }
    }
    if (!found) {
      group.fromEnd = from.size();
      group.toEnd = to.size();
    }
    groups.push_back(group);
    i = group.fromEnd;
    j = group.toEnd;
  }
  return groups;
}

std::optional<SmallVector<SymExpr>> mlir::disc::reshapedStrides(ShapeAnalysis &shapes, ArrayRef<ReshapeGroup> groups,
                                                                ArrayRef<SymExpr> toDims, ArrayRef<SymExpr> toStrides) {
  SmallVector<SymExpr> strides;
  for (const ReshapeGroup &group : groups) {
    std::optional<unsigned> inner; // the dimension inside the one looked at
    for (unsigned i = group.toEnd; i-- > group.toBegin;) {
      if (toDims[i].isConstant(1))
        continue;
      if (inner && !shapes.equal(toStrides[i], toStrides[*inner] * toDims[*inner]))
        return std::nullopt;
      if (!inner)
        strides.push_back(toStrides[i]);
      inner = i;
    }
    if (!inner)
      strides.push_back(SymExpr(0));
  }
  return strides;
}
