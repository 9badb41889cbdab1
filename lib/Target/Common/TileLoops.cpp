//===- TileLoops.cpp - what the emitters of products share ----------------===//

#include "lib/Target/Common/TileLoops.h"

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AffineExprVisitor.h"

using namespace mlir;
using namespace mlir::disc;

Value IndexMath::constant(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
Value IndexMath::add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
Value IndexMath::sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
Value IndexMath::mul(Value x, Value y) { return b.createOrFold<arith::MulIOp>(loc, x, y); }
Value IndexMath::div(Value x, Value y) { return b.createOrFold<arith::DivUIOp>(loc, x, y); }
Value IndexMath::rem(Value x, Value y) { return b.createOrFold<arith::RemUIOp>(loc, x, y); }
Value IndexMath::ceilDiv(Value x, Value y) { return div(add(x, sub(y, constant(1))), y); }
Value IndexMath::min(Value x, Value y) { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
Value IndexMath::max(Value x, Value y) { return b.createOrFold<arith::MaxSIOp>(loc, x, y); }
Value IndexMath::less(Value x, Value y) { return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y); }
Value IndexMath::notLess(Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::sge, x, y);
}
Value IndexMath::equal(Value x, Value y) { return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, x, y); }
Value IndexMath::i64(Value index) { return b.createOrFold<arith::IndexCastOp>(loc, b.getI64Type(), index); }
Value IndexMath::index(Value i64) { return b.createOrFold<arith::IndexCastOp>(loc, b.getIndexType(), i64); }
Value IndexMath::advance(Value ptr, Value bytes) {
  return LLVM::GEPOp::create(b, loc, ptr.getType(), b.getI8Type(), ptr, LLVM::GEPArg(i64(bytes)));
}

SmallVector<Value> IndexMath::delinearize(Value linear, ArrayRef<Value> extents) {
  SmallVector<Value> out(extents.size());
  for (size_t d = extents.size(); d-- > 1;) {
    out[d] = rem(linear, extents[d]);
    linear = div(linear, extents[d]);
  }
  if (!extents.empty())
    out[0] = linear;
  return out;
}

SmallVector<Value> IndexMath::next(ArrayRef<Value> coordinates, ArrayRef<Value> extents) {
  SmallVector<Value> out(coordinates);
  Value carry = constant(1), zero = constant(0), one = carry;
  for (size_t d = out.size(); d-- > 0;) {
    out[d] = add(out[d], carry);
    if (d == 0)
      break;
    Value wraps = equal(out[d], extents[d]);
    out[d] = arith::SelectOp::create(b, loc, wraps, zero, out[d]);
    carry = arith::SelectOp::create(b, loc, wraps, one, zero);
  }
  return out;
}

EvenSplit::EvenSplit(IndexMath &m, Value count, Value parts)
    : quotient(m.div(count, parts)), remainder(m.rem(count, parts)) {}

Value EvenSplit::start(IndexMath &m, Value part) const { return m.add(m.mul(part, quotient), m.min(part, remainder)); }

Value EvenSplit::size(IndexMath &m, Value part) const {
  Value larger = m.less(part, remainder);
  return m.add(quotient, m.b.createOrFold<arith::IndexCastUIOp>(m.loc, m.b.getIndexType(), larger));
}

std::optional<BufferOperand> BufferOperand::get(KernelFuncOp kernel, Value value, ShapeAnalysis &shapes) {
  if (auto arg = dyn_cast<BlockArgument>(value))
    return BufferOperand{arg.getArgNumber(), Layout::get(kernel.getLayout(arg.getArgNumber()))};
  Operation *view = value.getDefiningOp();
  if (!isa<PermuteOp, ReshapeOp, BroadcastOp, SliceOp>(view))
    return std::nullopt;
  Value source = view->getOperand(0);
  auto base = get(kernel, source, shapes);
  if (!base)
    return std::nullopt;
  auto from = cast<RankedTensorType>(source.getType()), to = cast<RankedTensorType>(value.getType());
  if (auto permute = dyn_cast<PermuteOp>(view)) {
    base->layout = base->layout.permute(permute.getPermutation());
  } else if (auto slice = dyn_cast<SliceOp>(view)) {
    base->layout = base->layout.slice(slice.getDim(), shapes.expr(slice.getOffset()), slice.getStep());
  } else if (auto broadcast = dyn_cast<BroadcastOp>(view)) {
    SmallVector<bool> repeats;
    for (auto [j, d] : llvm::enumerate(broadcast.getDims()))
      repeats.push_back(from.getDimSize(j) == 1 && to.getDimSize(d) != 1);
    base->layout = base->layout.broadcast(to.getRank(), broadcast.getDims(), repeats);
  } else {
    auto layout = base->layout.reshape(shapes.dims(source), shapes.dims(value));
    if (!layout)
      return std::nullopt;
    base->layout = *layout;
  }
  return base;
}

/// Adds `scale * e` to the strides and the offset; false if `e` is not affine with constant coefficients.
static bool addAffine(AffineExpr e, const SymExpr &scale, StridedOperand &out) {
  if (auto d = dyn_cast<AffineDimExpr>(e)) {
    out.strides[d.getPosition()] += scale;
    return true;
  }
  if (auto c = dyn_cast<AffineConstantExpr>(e)) {
    out.offset += scale * SymExpr(c.getValue());
    return true;
  }
  auto binary = dyn_cast<AffineBinaryOpExpr>(e);
  if (!binary)
    return false;
  if (e.getKind() == AffineExprKind::Add)
    return addAffine(binary.getLHS(), scale, out) && addAffine(binary.getRHS(), scale, out);
  auto factor = dyn_cast<AffineConstantExpr>(binary.getRHS());
  return e.getKind() == AffineExprKind::Mul && factor &&
         addAffine(binary.getLHS(), scale * SymExpr(factor.getValue()), out);
}

std::optional<StridedOperand> StridedOperand::get(KernelFuncOp kernel, Value value, AffineMap map,
                                                  ShapeAnalysis &shapes) {
  auto buffer = BufferOperand::get(kernel, value, shapes);
  if (!buffer)
    return std::nullopt;
  StridedOperand out{buffer->argument, buffer->layout.offset, SmallVector<SymExpr>(map.getNumDims())};
  for (auto [r, e] : llvm::enumerate(map.getResults()))
    if (!addAffine(e, buffer->layout.strides[r], out))
      return std::nullopt;
  return out;
}

std::optional<SymExpr> StridedOperand::collapse(ArrayRef<unsigned> dims, ArrayRef<SymExpr> sizes,
                                                ShapeAnalysis &shapes) const {
  // Unit dimensions do not move anything, whatever their stride.
  SmallVector<unsigned> moving;
  for (unsigned d : dims)
    if (!sizes[d].isConstant(1))
      moving.push_back(d);
  if (moving.empty())
    return SymExpr(0);
  for (size_t i = 0; i + 1 < moving.size(); ++i)
    if (!shapes.equal(strides[moving[i]], strides[moving[i + 1]] * sizes[moving[i + 1]]))
      return std::nullopt;
  return strides[moving.back()];
}

static FailureOr<SmallVector<Idx>> follow(PointEmitter &points, Value value, Value origin, ArrayRef<Idx> point) {
  if (value == origin)
    return SmallVector<Idx>(point);
  Operation *def = value.getDefiningOp();
  if (!def)
    return failure();
  if (auto permute = dyn_cast<PermuteOp>(def)) {
    auto source = follow(points, permute.getSource(), origin, point);
    if (failed(source))
      return failure();
    SmallVector<Idx> out;
    for (int64_t p : permute.getPermutation())
      out.push_back((*source)[p]);
    return out;
  }
  if (auto reshape = dyn_cast<ReshapeOp>(def)) {
    auto source = follow(points, reshape.getSource(), origin, point);
    if (failed(source))
      return failure();
    return points.reshapeIdx(*source, points.shapes().dims(reshape.getSource()), points.shapes().dims(value));
  }
  auto generic = dyn_cast<linalg::GenericOp>(def);
  if (!generic || generic.getNumReductionLoops() > 0)
    return failure();
  for (OpOperand *operand : generic.getDpsInputOperands()) {
    auto source = follow(points, operand->get(), origin, point);
    if (failed(source))
      continue;
    SmallVector<Idx> iters(generic.getNumLoops(), points.uniform(int64_t(0)));
    for (auto [x, idx] : llvm::zip_equal(generic.getMatchingIndexingMap(operand).getResults(), *source))
      if (auto d = dyn_cast<AffineDimExpr>(x))
        iters[d.getPosition()] = idx;
    SmallVector<Idx> out;
    for (AffineExpr x : generic.getIndexingMapMatchingResult(cast<OpResult>(value)).getResults())
      out.push_back(points.affine(x, iters));
    return out;
  }
  return failure();
}

FailureOr<SmallVector<Idx>> disc::followResult(PointEmitter &points, Value value, Value origin, ArrayRef<Idx> point) {
  FailureOr<SmallVector<Idx>> at = follow(points, value, origin, point);
  if (succeeded(at))
    return at;
  // Not computed from the origin, but over the same domain (up to unit extents): it shares a producer with what is.
  ShapeAnalysis &shapes = points.shapes();
  SmallVector<SymExpr> dims = shapes.dims(value), domain = shapes.dims(origin);
  auto sized = [](ArrayRef<SymExpr> all) {
    return llvm::to_vector(llvm::make_filter_range(all, [](const SymExpr &d) { return !d.isConstant(1); }));
  };
  SmallVector<SymExpr> a = sized(dims), b = sized(domain);
  if (a.size() != b.size() ||
      !llvm::all_of(llvm::zip(a, b), [&](auto d) { return shapes.equal(std::get<0>(d), std::get<1>(d)); }))
    return failure();
  return points.reshapeIdx(point, domain, dims);
}
