//===- AttentionParts.cpp - what both forms of attention share ------------===//

#include "lib/Target/CPU/AttentionParts.h"

#include "lib/Target/CPU/SoftmaxMath.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <limits>

using namespace mlir;
using namespace mlir::disc;

AttentionParts::AttentionParts(KernelEmission &e, AttentionOp op, PointEmitter &points, Type sumType)
    : e(e), b(e.builder), op(op), m{e.builder, e.kernel.getLoc()}, sumType(sumType), points(points),
      dims(e.shapes.dims(op.getQuery())) {
  SmallVector<SymExpr> keyDims = e.shapes.dims(op.getKey());
  queryCount = dims[dims.size() - 2];
  depth = dims.back();
  keyCount = keyDims[keyDims.size() - 2];
  valueSize = e.shapes.dims(op.getValue()).back();
}

Value AttentionParts::constantVector(double v) {
  return arith::ConstantOp::create(b, loc(), DenseElementsAttr::get(vectorType(), b.getFloatAttr(sumType, v)));
}

Value AttentionParts::minusInfinity() { return constantVector(-std::numeric_limits<double>::infinity()); }

Value AttentionParts::scratchAt(ExprAttr offset) { return m.advance(e.scratch(), points.expr(offset.getValue())); }

Value AttentionParts::widen(Value v) {
  return v.getType() == vectorType() ? v : arith::ExtFOp::create(b, loc(), vectorType(), v).getResult();
}

FailureOr<AttentionParts::Matrix> AttentionParts::matrix(Value operand, ArrayRef<Value> batch) {
  auto buffer = BufferOperand::get(e.kernel, operand, e.shapes);
  if (!buffer)
    return op.emitError("keys and values must be in a buffer");
  return matrix(points.operandPtr(buffer->argument), buffer->layout, getElementTypeOrSelf(operand.getType()), batch);
}

AttentionParts::Matrix AttentionParts::matrix(Value base, const Layout &layout, Type element, ArrayRef<Value> batch) {
  ArrayRef<SymExpr> strides = layout.strides;
  int64_t bytes = byteSize(element);
  Value offset = points.expr(layout.offset);
  for (auto [coordinate, stride] : llvm::zip_equal(batch, strides.drop_back(2)))
    if (!stride.isConstant(0))
      offset = m.add(offset, m.mul(coordinate, points.expr(stride)));
  return Matrix{m.advance(base, m.mul(offset, bytes)), m.mul(points.expr(strides.drop_back().back()), bytes),
                m.mul(points.expr(strides.back()), bytes)};
}

SmallVector<Idx> AttentionParts::point(ArrayRef<Value> batch, std::initializer_list<Idx> rest) {
  SmallVector<Idx> out;
  for (Value v : batch)
    out.push_back(points.uniform(v));
  out.append(rest);
  return out;
}

SmallVector<Idx> AttentionParts::maskPoint(ArrayRef<Value> batch, Idx query, Idx key) {
  auto type = cast<RankedTensorType>(op.getMask().getType());
  SmallVector<Idx> at = point(batch, {query, key});
  for (auto [d, idx] : llvm::enumerate(at))
    if (type.getDimSize(d) == 1)
      idx = points.uniform(int64_t(0));
  return at;
}

Value AttentionParts::queryScale() { return constantVector(op.getScale().convertToDouble() * softmaxUnit(sumType)); }

Value AttentionParts::maskTerm(Value v) {
  v = points.splat(v);
  Type element = getElementTypeOrSelf(v.getType());
  if (element.isInteger(1))
    return arith::SelectOp::create(b, loc(), v, constantVector(0.0), minusInfinity());
  if (element.getIntOrFloatBitWidth() > sumType.getIntOrFloatBitWidth())
    v = arith::TruncFOp::create(b, loc(), vectorType(), v);
  v = widen(v);
  if (softmaxUnit(sumType) == 1.0)
    return v;
  // Only minus infinity hides a key from all of a row: the lowest number must not become that.
  Value scaled = arith::MulFOp::create(b, loc(), v, constantVector(softmaxUnit(sumType)));
  Value lowest = constantVector(
      APFloat::getLargest(cast<FloatType>(sumType).getFloatSemantics(), /*Negative=*/true).convertToDouble());
  Value below = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::OLT, scaled, lowest);
  Value hidden = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::OEQ, v, minusInfinity());
  scaled = arith::SelectOp::create(b, loc(), below, lowest, scaled);
  return arith::SelectOp::create(b, loc(), hidden, v, scaled);
}

Value AttentionParts::inverseOf(Value sum) {
  Value inverse = arith::DivFOp::create(b, loc(), constantVector(1.0), sum);
  Value none = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::OEQ, sum, constantVector(0.0));
  double hidden = op.getNanRows() ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  return arith::SelectOp::create(b, loc(), none, constantVector(hidden), inverse);
}

LogicalResult AttentionParts::writeRow(ArrayRef<Value> batch, Value query, Value firstColumn, Value v, Value mask) {
  Type element = getElementTypeOrSelf(op.getResult().getType());
  if (element != sumType)
    v = arith::TruncFOp::create(b, loc(), points.vectorOf(element), v);
  SmallVector<Idx> at = point(batch, {points.uniform(query), Idx(firstColumn, /*lanes=*/true, 1, lanes())});
  points.bind(op.getResult(), [&](ArrayRef<Idx>, Value) { return v; });
  for (auto [i, yielded] : llvm::enumerate(e.kernel.getYield().getValues())) {
    if (yielded.getDefiningOp<ConcatOp>())
      continue; // joined keys or values, written as they are read
    FailureOr<SmallVector<Idx>> to = followResult(points, yielded, op.getResult(), at);
    if (failed(to))
      return e.kernel.emitError("result ") << i << " of an attention kernel does not follow from the attention";
    Value x = points.eval(yielded, *to, mask);
    if (!x || failed(points.store(i, *to, x, mask)))
      return failure();
  }
  points.unbind(op.getResult());
  return success();
}
