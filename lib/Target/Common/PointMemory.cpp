//===- PointMemory.cpp - loads, stores and lanes --------------------------===//
//
// The part of PointEmitter that knows about memory: element addresses, masks, gathers, and booleans as bytes.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/PointEmitter.h"

#include "lib/Target/Common/KernelLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// How an element lies in memory: booleans as bytes, indices as 64-bit integers. Half floats move as integers, since
/// where there are no masked instructions, masked moves of floats without arithmetic would go through f32.
Type memoryType(Type elem) {
  if (elem.isInteger(1))
    return IntegerType::get(elem.getContext(), 8);
  if (elem.isIndex())
    return IntegerType::get(elem.getContext(), 64);
  if (elem.isBF16() || elem.isF16())
    return IntegerType::get(elem.getContext(), 16);
  return elem;
}

unsigned bytesOf(Type memory) { return (memory.getIntOrFloatBitWidth() + 7) / 8; }

Type likeShape(Value v, Type elem) {
  if (auto vector = dyn_cast<VectorType>(v.getType()))
    return VectorType::get(vector.getShape(), elem);
  return elem;
}

Value fromMemory(OpBuilder &b, Location loc, Value v, Type elem) {
  if (elem.isInteger(1)) {
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(v.getType()));
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, v, zero);
  }
  if (elem.isIndex())
    return arith::IndexCastOp::create(b, loc, likeShape(v, elem), v);
  if (memoryType(elem) != elem)
    return arith::BitcastOp::create(b, loc, likeShape(v, elem), v);
  return v;
}

Value toMemory(OpBuilder &b, Location loc, Value v) {
  Type elem = getElementTypeOrSelf(v.getType());
  if (elem.isInteger(1))
    return arith::ExtUIOp::create(b, loc, likeShape(v, b.getI8Type()), v);
  if (elem.isIndex())
    return arith::IndexCastOp::create(b, loc, likeShape(v, b.getI64Type()), v);
  if (memoryType(elem) != elem)
    return arith::BitcastOp::create(b, loc, likeShape(v, memoryType(elem)), v);
  return v;
}
} // namespace

Value PointEmitter::splat(Value v) {
  if (isa<VectorType>(v.getType()) || vectorLanes == 1)
    return v;
  if (Attribute attr; matchPattern(v, m_Constant(&attr)))
    return constant(DenseElementsAttr::get(vectorOf(v.getType()), attr));
  IndexKey key{-1, v.getAsOpaquePointer(), nullptr};
  if (auto it = indices.find(key); it != indices.end())
    return it->second;
  Value result = vector::BroadcastOp::create(builder, loc, vectorOf(v.getType()), v);
  indices[key] = result;
  indexLog.push_back(key);
  return result;
}

Value PointEmitter::tailMask(Value count) {
  // Compared as 32-bit integers: one instruction where vectors are 512 bits wide. A tail is shorter than a vector.
  Type i32 = builder.getI32Type();
  SmallVector<int32_t> iota(vectorLanes);
  for (int64_t i = 0; i < vectorLanes; ++i)
    iota[i] = i;
  Value lane = constant(DenseElementsAttr::get(vectorOf(i32), ArrayRef<int32_t>(iota)));
  Value limit = arith::IndexCastOp::create(builder, loc, i32, count);
  limit = vector::BroadcastOp::create(builder, loc, vectorOf(i32), limit);
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, lane, limit);
}

/// `ptr + offset` elements: one pointer, or a vector of them for an arbitrary offset.
static Value elementPtr(OpBuilder &b, Location loc, Value ptr, Type memory, Value offset) {
  Value index = arith::IndexCastOp::create(b, loc, likeShape(offset, b.getI64Type()), offset);
  Type type = likeShape(offset, ptr.getType());
  return LLVM::GEPOp::create(b, loc, type, memory, ptr, ArrayRef<LLVM::GEPArg>{index});
}

/// The lanes of a mask that may be on; all where the mask is computed.
static SmallVector<bool> possibleLanes(Value mask, int64_t lanes) {
  SmallVector<bool> possible(lanes, true);
  DenseElementsAttr known;
  if (mask && matchPattern(mask, m_Constant(&known)))
    for (auto [lane, on] : llvm::enumerate(known.getValues<bool>()))
      possible[lane] = on;
  return possible;
}

/// A mask of the elements from `begin` on that lanes of `mask` ask for, lane l for element offsets[l], if it is
/// possible at all; null if none do.
Value PointEmitter::askedFor(Value mask, ArrayRef<int64_t> offsets, ArrayRef<bool> possible, int64_t begin) {
  SmallVector<SmallVector<int64_t>> askers(vectorLanes);
  size_t rounds = 0;
  for (auto [lane, o] : llvm::enumerate(offsets))
    if (int64_t e = o - begin; possible[lane] && e >= 0 && e < vectorLanes) {
      askers[e].push_back(lane);
      rounds = std::max(rounds, askers[e].size());
    }
  Value none = constant(DenseElementsAttr::get(cast<VectorType>(mask.getType()), false)), on;
  for (size_t round = 0; round < rounds; ++round) {
    SmallVector<int64_t> from(vectorLanes, vectorLanes); // the first lane of `none`
    for (auto [e, lanes] : llvm::enumerate(askers))
      if (round < lanes.size())
        from[e] = lanes[round];
    Value some = vector::ShuffleOp::create(builder, loc, mask, none, from);
    on = on ? arith::OrIOp::create(builder, loc, on, some).getResult() : some;
  }
  return on;
}

/// The lanes of each row by themselves, then together. Null where a row's lie too far apart.
Value PointEmitter::loadPattern(Value ptr, const Idx &offset, Type memory, Value mask) {
  SmallVector<bool> possible = possibleLanes(mask, vectorLanes);
  if (!offset.rows)
    return loadRow(ptr, offset, memory, mask, possible);
  ArrayRef<int64_t> rows = offset.rows;
  llvm::SmallSetVector<int64_t, 4> numbers;
  for (auto [lane, row] : llvm::enumerate(rows))
    if (possible[lane])
      numbers.insert(row);
  Idx within = offset;
  within.rows = nullptr;
  within.stride = Value();
  Value result;
  for (int64_t number : numbers) {
    SmallVector<bool> here(possible);
    SmallVector<int64_t> from(vectorLanes);
    for (auto [lane, row] : llvm::enumerate(rows)) {
      here[lane] = here[lane] && row == number;
      from[lane] = row == number ? lane : vectorLanes + lane;
    }
    Idx at = within;
    Value begin = indexOp(Mul, offset.stride, constantIndex(number));
    at.base = indexOp(Add, within.base, begin);
    at.multiple = 1;
    Value part = loadRow(ptr, at, memory, mask, here);
    if (!part)
      return {};
    result = result ? vector::ShuffleOp::create(builder, loc, part, result, from).getResult() : part;
  }
  return result;
}

/// Vectors of all that lies between the first and the last element that a possible lane asks for, which are of one
/// buffer, and from them the lanes by shuffles. Null where too much lies between.
Value PointEmitter::loadRow(Value ptr, const Idx &offset, Type memory, Value mask, ArrayRef<bool> possible) {
  constexpr int64_t most = 4; // as many loads are dearer than a gather's
  SmallVector<int64_t> offsets = laneOffsets(offset);
  std::optional<int64_t> first, last;
  for (auto [lane, o] : llvm::enumerate(offsets))
    if (possible[lane]) {
      first = std::min(first.value_or(o), o);
      last = std::max(last.value_or(o), o);
    }
  if (!first || *last - *first >= most * vectorLanes)
    return {};
  int64_t count = *last - *first + 1;
  VectorType type = vectorOf(memory);
  Idx start = addIdx(Idx(offset.base, false, 1, offset.multiple), uniform(*first));
  bool someOff = mask && !matchPattern(mask, m_Constant());

  // Where any lane may be off, masks say what is read; else whole vectors, of which the last ends with the last
  // element. (Masked loads are slow where the cache has to fetch: they are not used for their own sake.)
  SmallVector<Value> parts;
  SmallVector<int64_t> partStarts;
  int64_t size = someOff ? vectorLanes : std::min<int64_t>(vectorLanes, llvm::bit_floor<uint64_t>(count));
  for (int64_t from = 0; from < count; from += size) {
    int64_t begin = someOff ? from : std::min(from, count - size);
    Idx here = addIdx(start, uniform(begin));
    Value at = elementPtr(builder, loc, ptr, memory, here.base);
    unsigned align = alignmentAt(ptr, here, memory);
    Value part;
    if (someOff) {
      if (Value on = askedFor(mask, offsets, possible, *first + begin)) {
        Value zeros = constant(cast<TypedAttr>(builder.getZeroAttr(type)));
        part =
            LLVM::MaskedLoadOp::create(builder, loc, type, at, on, zeros, builder.getI32IntegerAttr(align), UnitAttr());
      }
    } else {
      part = LLVM::LoadOp::create(builder, loc, VectorType::get({size}, memory), at, align);
    }
    parts.push_back(part);
    partStarts.push_back(begin);
  }

  // Each shuffle takes the lanes of one more vector.
  Value result;
  for (auto [part, begin] : llvm::zip(parts, partStarts)) {
    if (!part)
      continue;
    SmallVector<int64_t> from(vectorLanes);
    bool asked = false;
    for (auto [lane, o] : llvm::enumerate(offsets)) {
      int64_t e = o - *first - begin;
      bool isHere = possible[lane] && e >= 0 && e < size;
      asked |= isHere;
      from[lane] = isHere ? e : result ? size + static_cast<int64_t>(lane) : 0;
    }
    if (!asked)
      continue;
    result = result ? vector::ShuffleOp::create(builder, loc, part, result, from)
                    : vector::ShuffleOp::create(builder, loc, part, part, from);
  }
  return result;
}

Value PointEmitter::load(Value ptr, const Idx &offset, Type elem, Value mask) {
  if (!guard)
    return loadAt(ptr, offset, elem, mask);
  Type type = offset.isUniform() || vectorLanes == 1 ? elem : vectorOf(elem);
  Value zero = constant(cast<TypedAttr>(builder.getZeroAttr(type)));
  return emitIf(builder, loc, guard, zero,
                [&] {
                  Scope scope(*this);
                  return SmallVector<Value>{loadAt(ptr, offset, elem, mask)};
                })
      .front();
}

Value PointEmitter::loadAt(Value ptr, const Idx &offset, Type elem, Value mask) {
  Type memory = memoryType(elem);
  unsigned align = bytesOf(memory);
  Value result;
  if (offset.isUniform() || vectorLanes == 1) {
    result = LLVM::LoadOp::create(builder, loc, memory, elementPtr(builder, loc, ptr, memory, offset.base), align);
    return fromMemory(builder, loc, result, elem);
  }
  VectorType type = vectorOf(memory);
  Value zeros = mask ? constant(cast<TypedAttr>(builder.getZeroAttr(type))) : Value();
  if (offset.lanes && offset.step == 1 && !offset.rows && !(mask && matchPattern(mask, m_Constant()))) {
    Value at = elementPtr(builder, loc, ptr, memory, offset.base);
    align = alignmentAt(ptr, offset, memory);
    result = mask ? LLVM::MaskedLoadOp::create(builder, loc, type, at, mask, zeros, builder.getI32IntegerAttr(align),
                                               UnitAttr())
                        .getResult()
                  : LLVM::LoadOp::create(builder, loc, type, at, align).getResult();
    return fromMemory(builder, loc, result, elem);
  }
  if (!offset.each)
    if (Value read = loadPattern(ptr, offset, memory, mask))
      return fromMemory(builder, loc, read, elem);
  Value at = elementPtr(builder, loc, ptr, memory, materialize(offset));
  Value on = mask ? mask : constant(DenseElementsAttr::get(vectorOf(builder.getI1Type()), true));
  ValueRange passThru = mask ? ValueRange(zeros) : ValueRange();
  result = LLVM::masked_gather::create(builder, loc, type, at, on, passThru, builder.getI32IntegerAttr(align));
  return fromMemory(builder, loc, result, elem);
}

void PointEmitter::store(Value ptr, const Idx &offset, Value v, Value mask) {
  Value value = toMemory(builder, loc, v);
  Type memory = getElementTypeOrSelf(value.getType());
  unsigned align = bytesOf(memory);
  if (offset.isUniform() || vectorLanes == 1) {
    LLVM::StoreOp::create(builder, loc, value, elementPtr(builder, loc, ptr, memory, offset.base), align);
    return;
  }
  value = splat(value);
  if (offset.lanes && offset.step == 1 && !offset.rows) {
    Value at = elementPtr(builder, loc, ptr, memory, offset.base);
    align = alignmentAt(ptr, offset, memory);
    if (mask)
      LLVM::MaskedStoreOp::create(builder, loc, value, at, mask, align);
    else
      LLVM::StoreOp::create(builder, loc, value, at, align);
    return;
  }
  Value at = elementPtr(builder, loc, ptr, memory, materialize(offset));
  Value on = mask ? mask : constant(DenseElementsAttr::get(vectorOf(builder.getI1Type()), true));
  LLVM::masked_scatter::create(builder, loc, value, at, on, align);
}

LogicalResult PointEmitter::store(unsigned result, ArrayRef<Idx> idx, Value v, Value mask) {
  // Without elements there is nothing to store, and strides of 0 where others tell elements apart.
  if (llvm::is_contained(cast<ShapedType>(kernelFunc.getYield().getValues()[result].getType()).getShape(), 0))
    return success();
  Idx at = address(kernelFunc.getLayout(kernelFunc.getNumInputs() + result), idx);
  if (at.isUniform() && isa<VectorType>(v.getType()))
    return kernelFunc.emitError() << "result " << result << " varies along the lanes but its address does not";
  store(resultPtr(result), at, v, mask);
  return success();
}

LogicalResult PointEmitter::storeResultsOf(ArrayRef<SmallVector<Idx>> points, ArrayRef<SymExpr> domain, Value mask) {
  struct Result {
    unsigned number;
    SmallVector<Idx> at;
    Value value;
  };
  SmallVector<Result> results;
  for (ArrayRef<Idx> at : points)
    for (auto [i, v] : llvm::enumerate(kernelFunc.getYield().getValues())) {
      SmallVector<Idx> coords = reshapeIdx(at, domain, shapeAnalysis.dims(v));
      Value value = eval(v, coords, mask);
      if (!value)
        return failure();
      results.push_back({static_cast<unsigned>(i), std::move(coords), value});
    }
  for (const Result &result : results)
    if (failed(store(result.number, result.at, result.value, mask)))
      return failure();
  return success();
}

Idx PointEmitter::address(LayoutAttr layout, ArrayRef<Idx> idx) {
  Idx at = uniform(expr(layout.getOffset().getValue()));
  at.multiple = std::max<int64_t>(divisor(layout.getOffset().getValue()), 1);
  for (auto [i, stride] : llvm::zip(idx, layout.getStrides().getDims()))
    at = addIdx(at, mulIdx(i, stride));
  return at;
}

Operation *PointEmitter::cloneOn(Operation *op, ArrayRef<Value> operands) {
  bool anyVector = llvm::any_of(operands, [](Value v) { return isa<VectorType>(v.getType()); });
  SmallVector<Value> values(operands);
  if (anyVector)
    for (auto [i, v] : llvm::enumerate(values))
      if (!(i == 0 && isa<arith::SelectOp>(op))) // a scalar condition may choose between vectors
        v = splat(v);
  Operation *clone = op->cloneWithoutRegions();
  clone->setOperands(values);
  if (anyVector)
    for (Value result : clone->getResults())
      result.setType(vectorOf(result.getType()));
  builder.insert(clone);
  return clone;
}
