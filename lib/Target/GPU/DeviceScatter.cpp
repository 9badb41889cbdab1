//===- DeviceScatter.cpp - updates at places that tensors tell --------------===//
//
//   disc_plan.kernel_func call @k { %r, %order = disc_tensor.call "scatter" (%self, %values, %index) ordered [0] ... }
//
// The key of an update is the element of the target where it begins. In the keys' order the first thread of a place
// folds all of its updates into the target, one after the other; of values to set the last one is stored.
//
//   scf.if first of its place {
//     scf.while (%j < count and key[%j] == %key) iter_args(%v = target[%key + e]) { %v + values[thing[%j]][e] }
//     store
//   }
//
// Neighbouring threads have neighbouring elements of an update's row, if it has any.
//
// Lit test: test/lit/GPU/scatter.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Target/GPU/DeviceFunctions.h"
#include "lib/Target/GPU/DeviceOrder.h"
#include "lib/Transforms/Support/ScatterInfo.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// What the steps share.
class ScatterEmitter {
public:
  ScatterEmitter(DeviceKernel &k, CallFunctionOp op, const ScatterInfo &info, const SymExpr &ordered,
                 const SymExpr &inner)
      : op(op), info(info), order(k, SymExpr(1), ordered), k(k), b(k.b), m(k.m), points(order.points),
        elem(getElementTypeOrSelf(op.getOutputs()[0].getType())), inner(points.expr(inner)) {
    for (auto [l, extent] : llvm::enumerate(k.shapes.dims(values())))
      (isOrdered(l) ? outerExtents : innerExtents).push_back(points.expr(extent));
  }

  LogicalResult tiles();
  LogicalResult updates();

private:
  Value values() { return op.getInputs()[1]; }
  bool isOrdered(int64_t loop) { return llvm::is_contained(*op.getOrdered(), loop); }
  /// The loops' coordinates, of those that are ordered from one list and of the others from another.
  SmallVector<Idx> loops(ArrayRef<Value> outer, ArrayRef<Value> rest);
  Value key(Value update);
  /// Element `e` of update `number`.
  Value value(Value number, ArrayRef<Value> rest);
  Value combine(Value x, Value y);
  LayoutAttr target() { return k.kernel.getLayout(k.kernel.getNumInputs()); }
  SymExpr stride(int64_t dim) { return target().getStrides().getDims()[dim]; }
  Value checked(Value v) {
    ok &= bool(v);
    return v ? v : points.constant(cast<TypedAttr>(b.getZeroAttr(elem)));
  }

  CallFunctionOp op;
  const ScatterInfo &info;
  DeviceOrder order;
  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  PointEmitter &points;
  Type elem;
  Value inner;
  SmallVector<Value> outerExtents, innerExtents;
  bool ok = true;
};
} // namespace

SmallVector<Idx> ScatterEmitter::loops(ArrayRef<Value> outer, ArrayRef<Value> rest) {
  SmallVector<Idx> at;
  for (unsigned l = 0, o = 0, r = 0; l < info.loops.size(); ++l)
    at.push_back(Idx(isOrdered(l) ? outer[o++] : rest[r++]));
  return at;
}

/// Where it begins in the target, or kNone for an index that is out of range, which is reported.
Value ScatterEmitter::key(Value update) {
  SmallVector<Value> rest(innerExtents.size(), m.constant(0)), outer = m.delinearize(update, outerExtents);
  SmallVector<Idx> at = loops(outer, rest);
  Value place = m.constant(0), isInside;
  for (auto [l, dim] : llvm::enumerate(info.loops))
    if (isOrdered(l) && dim >= 0)
      place = m.add(place, m.mul(at[l].base, points.expr(stride(dim))));
  SmallVector<SymExpr> dims = k.shapes.dims(op.getOutputs()[0]);
  for (auto [index, dim] : llvm::zip(op.getInputs().drop_front(2), info.indices)) {
    Value seen = points.eval(index, at);
    if (!seen) {
      ok = false;
      return points.constant(b.getI64IntegerAttr(0));
    }
    Value extent = points.expr(dims[dim]), i = m.index(seen);
    if (info.wrap)
      i = arith::SelectOp::create(b, k.loc, m.less(i, m.constant(0)), m.add(i, extent), i);
    Value inside = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::ult, i, extent);
    auto bad = scf::IfOp::create(b, k.loc, inside, /*withElseRegion=*/true);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(bad.elseBlock());
      k.report(seen, m.i64(extent), op.getWhat());
    }
    isInside = isInside ? arith::AndIOp::create(b, k.loc, isInside, inside).getResult() : inside;
    place = m.add(place, m.mul(i, points.expr(stride(dim))));
  }
  Value key = m.i64(place);
  if (!isInside)
    return key;
  return arith::SelectOp::create(b, k.loc, isInside, key, points.constant(b.getI64IntegerAttr(DeviceOrder::kNone)));
}

Value ScatterEmitter::value(Value number, ArrayRef<Value> rest) {
  return checked(points.eval(values(), loops(m.delinearize(number, outerExtents), rest)));
}

/// Half floats are rounded after every step, as PyTorch and the host's function do.
Value ScatterEmitter::combine(Value x, Value y) {
  bool isFloat = isa<FloatType>(elem), isBool = elem.isInteger(1);
  bool isUnsigned = isBool || info.dtype == DISC_U8;
  bool isHalf = isFloat && elem.getIntOrFloatBitWidth() == 16;
  if (isHalf) {
    x = arith::ExtFOp::create(b, k.loc, b.getF32Type(), x);
    y = arith::ExtFOp::create(b, k.loc, b.getF32Type(), y);
  }
  Value result;
  switch (info.operation) {
  case ScatterInfo::Set:
    return y;
  case ScatterInfo::Add:
    result = isFloat  ? arith::AddFOp::create(b, k.loc, x, y).getResult()
             : isBool ? arith::OrIOp::create(b, k.loc, x, y).getResult()
                      : arith::AddIOp::create(b, k.loc, x, y).getResult();
    break;
  case ScatterInfo::Multiply:
    result = isFloat  ? arith::MulFOp::create(b, k.loc, x, y).getResult()
             : isBool ? arith::AndIOp::create(b, k.loc, x, y).getResult()
                      : arith::MulIOp::create(b, k.loc, x, y).getResult();
    break;
  case ScatterInfo::Minimum:
    result = isFloat      ? arith::MinimumFOp::create(b, k.loc, x, y).getResult()
             : isUnsigned ? arith::MinUIOp::create(b, k.loc, x, y).getResult()
                          : arith::MinSIOp::create(b, k.loc, x, y).getResult();
    break;
  case ScatterInfo::Maximum:
    result = isFloat      ? arith::MaximumFOp::create(b, k.loc, x, y).getResult()
             : isUnsigned ? arith::MaxUIOp::create(b, k.loc, x, y).getResult()
                          : arith::MaxSIOp::create(b, k.loc, x, y).getResult();
    break;
  }
  return isHalf ? arith::TruncFOp::create(b, k.loc, elem, result).getResult() : result;
}

LogicalResult ScatterEmitter::tiles() {
  order.tiles([&](Value, Value i) { return key(i); });
  return success(ok);
}

LogicalResult ScatterEmitter::updates() {
  Value i = m.add(m.mul(k.block(), DeviceOrder::kThreads), k.thread());
  Value one = m.constant(1), zero = m.constant(0);
  auto equal = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::eq, x, y);
  };
  emitIf(b, k.loc, m.less(i, m.mul(order.count, inner)), {}, [&] {
    Value place = m.div(i, inner), own = order.key(place);
    SmallVector<Value> rest = m.delinearize(m.rem(i, inner), innerExtents);
    // Whether it is the first of its key's places, or for values to set the last.
    bool last = info.operation == ScatterInfo::Set;
    Value neighbour = last ? m.add(place, one) : m.sub(place, one);
    Value hasOne = last ? m.less(neighbour, order.count) : m.less(zero, place);
    Value no = points.constant(b.getBoolAttr(false)), yes = points.constant(b.getBoolAttr(true));
    Value same = emitIf(b, k.loc, hasOne, no, [&] { return SmallVector<Value>{equal(order.key(neighbour), own)}; })[0];
    Value none = points.constant(b.getI64IntegerAttr(DeviceOrder::kNone));
    Value mine = arith::AndIOp::create(b, k.loc, arith::XOrIOp::create(b, k.loc, same, yes),
                                       arith::XOrIOp::create(b, k.loc, equal(own, none), yes));
    emitIf(b, k.loc, mine, {}, [&] {
      PointEmitter::Scope scope(points);
      Value at = m.add(m.index(own), points.expr(target().getOffset().getValue()));
      for (unsigned l = 0, r = 0; l < info.loops.size(); ++l)
        if (!isOrdered(l))
          at = m.add(at, m.mul(rest[r++], points.expr(stride(info.loops[l]))));
      Value memory = points.resultPtr(0);
      if (last) {
        points.store(memory, Idx(at), value(order.thing(place), rest));
        return SmallVector<Value>();
      }
      auto fold = scf::WhileOp::create(
          b, k.loc, TypeRange{b.getIndexType(), elem}, ValueRange{place, points.load(memory, Idx(at), elem)},
          [&](OpBuilder &, Location, ValueRange now) {
            Value more = emitIf(b, k.loc, m.less(now[0], order.count), no,
                                [&] { return SmallVector<Value>{equal(order.key(now[0]), own)}; })[0];
            scf::ConditionOp::create(b, k.loc, more, now);
          },
          [&](OpBuilder &, Location, ValueRange now) {
            PointEmitter::Scope inside(points);
            Value next = combine(now[1], value(order.thing(now[0]), rest));
            scf::YieldOp::create(b, k.loc, ValueRange{m.add(now[0], one), next});
          });
      points.store(memory, Idx(at), fold.getResult(1));
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
  return success(ok);
}

namespace {
class DeviceScatter : public DeviceFunction {
public:
  DeviceScatter(CallFunctionOp op, ShapeAnalysis &shapes, ScatterInfo info)
      : DeviceFunction(op, shapes), info(std::move(info)), ordered(1), inner(1) {
    for (auto [l, extent] : llvm::enumerate(shapes.dims(op.getInputs()[1])))
      (llvm::is_contained(*op.getOrdered(), int64_t(l)) ? ordered : inner) *= extent;
  }

  SymExpr blocks() override { return blocksFor(ordered * inner); }
  std::optional<Order> order() override { return Order{SymExpr(1), ordered}; }
  LogicalResult emitTiles(DeviceKernel &k) override { return ScatterEmitter(k, op, info, ordered, inner).tiles(); }
  LogicalResult emit(DeviceKernel &k) override { return ScatterEmitter(k, op, info, ordered, inner).updates(); }

private:
  ScatterInfo info;
  SymExpr ordered, inner;
};
} // namespace

std::unique_ptr<DeviceFunction> disc::makeDeviceScatter(CallFunctionOp op, ShapeAnalysis &shapes) {
  std::optional<ScatterInfo> info = ScatterInfo::get(op, shapes);
  if (!info || !info->hasSelf || info->operation > ScatterInfo::Maximum || !op.getOrdered() ||
      llvm::any_of(*op.getOrdered(), [&](int64_t l) { return l < 0 || l >= int64_t(info->loops.size()); }))
    return nullptr;
  for (auto [l, dim] : llvm::enumerate(info->loops))
    if (dim < 0 && !llvm::is_contained(*op.getOrdered(), int64_t(l)))
      return nullptr;
  return std::make_unique<DeviceScatter>(op, shapes, std::move(*info));
}
