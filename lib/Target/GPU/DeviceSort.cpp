//===- DeviceSort.cpp - the elements of rows in order ------------------------===//
//
//   disc_plan.kernel_func call @k { %v, %i, %order = disc_tensor.call "sort" (%x) ... ordered [1] }
//
// Keys are integers in the elements' order: of a float its bits, those below the sign turned over if it is negative;
// zeros are one, NaN is the largest. For a descending order all bits are turned over, so that equal elements keep
// theirs.
//
// Lit test: test/lit/GPU/sort.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Target/GPU/DeviceFunctions.h"
#include "lib/Target/GPU/DeviceOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class DeviceSort : public DeviceFunction {
public:
  DeviceSort(CallFunctionOp op, ShapeAnalysis &shapes, bool isUnsigned, bool descending)
      : DeviceFunction(op, shapes), isUnsigned(isUnsigned), descending(descending),
        dims(shapes.dims(op.getInputs()[0])) {}

  SymExpr blocks() override { return blocksFor(SymExpr::product(shapes.dims(op.getOutputs()[0]))); }
  std::optional<Order> order() override { return Order{SymExpr::product(ArrayRef(dims).drop_back()), dims.back()}; }
  LogicalResult emitTiles(DeviceKernel &k) override;
  LogicalResult emit(DeviceKernel &k) override;

private:
  /// The element of row `row` (over all dims but the last) at `place`.
  Value element(PointEmitter &points, IndexMath &m, Value row, Value place);
  Value key(OpBuilder &b, Location loc, Value v);

  bool isUnsigned, descending;
  SmallVector<SymExpr> dims;
};
} // namespace

Value DeviceSort::element(PointEmitter &points, IndexMath &m, Value row, Value place) {
  SmallVector<Value> extents;
  for (const SymExpr &e : ArrayRef(dims).drop_back())
    extents.push_back(points.expr(e));
  SmallVector<Idx> at;
  for (Value c : m.delinearize(row, extents))
    at.push_back(Idx(c));
  at.push_back(Idx(place));
  return points.eval(op.getInputs()[0], at);
}

Value DeviceSort::key(OpBuilder &b, Location loc, Value v) {
  Type i64 = b.getI64Type();
  auto constant = [&](Type type, int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, value));
  };
  if (isa<FloatType>(v.getType())) {
    if (v.getType().getIntOrFloatBitWidth() == 16)
      v = arith::ExtFOp::create(b, loc, b.getF32Type(), v);
    int64_t width = v.getType().getIntOrFloatBitWidth();
    Type bits = b.getIntegerType(width);
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(v.getType()));
    Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, v, zero);
    Value isNan = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, v, v);
    Value raw = arith::BitcastOp::create(b, loc, bits, v);
    Value sign = arith::ShRSIOp::create(b, loc, raw, constant(bits, width - 1));
    int64_t most = width == 32 ? INT32_MAX : INT64_MAX;
    Value turned = arith::AndIOp::create(b, loc, sign, constant(bits, most));
    v = arith::XOrIOp::create(b, loc, raw, turned);
    v = arith::SelectOp::create(b, loc, isZero, constant(bits, 0), v);
    v = arith::SelectOp::create(b, loc, isNan, constant(bits, most), v);
  }
  if (v.getType() != i64)
    v = isUnsigned ? arith::ExtUIOp::create(b, loc, i64, v).getResult()
                   : arith::ExtSIOp::create(b, loc, i64, v).getResult();
  return descending ? arith::XOrIOp::create(b, loc, v, constant(i64, -1)).getResult() : v;
}

LogicalResult DeviceSort::emitTiles(DeviceKernel &k) {
  Order rows = *order();
  DeviceOrder ordered(k, rows.rows, rows.length);
  bool ok = true;
  ordered.tiles([&](Value row, Value i) {
    Value v = element(ordered.points, k.m, row, i);
    ok &= bool(v);
    return v ? key(k.b, k.loc, v) : ordered.points.constant(k.b.getI64IntegerAttr(0));
  });
  return success(ok);
}

LogicalResult DeviceSort::emit(DeviceKernel &k) {
  Order rows = *order();
  DeviceOrder ordered(k, rows.rows, rows.length);
  PointEmitter &points = ordered.points;
  IndexMath &m = k.m;
  // Only as many as the results have.
  SmallVector<SymExpr> kept = shapes.dims(op.getOutputs()[0]);
  SmallVector<Value> extents = llvm::map_to_vector(kept, [&](const SymExpr &e) { return points.expr(e); });
  Value i = m.add(m.mul(k.block(), kThreads), k.thread());
  bool ok = true;
  emitIf(k.b, k.loc, m.less(i, points.expr(SymExpr::product(kept))), {}, [&] {
    PointEmitter::Scope scope(points);
    Value row = m.div(i, extents.back()), place = m.rem(i, extents.back());
    Value from = ordered.thing(m.add(m.mul(row, points.expr(rows.length)), place));
    Value v = element(points, m, row, from);
    SmallVector<Idx> at;
    for (Value c : m.delinearize(i, extents))
      at.push_back(Idx(c));
    ok &= v && succeeded(points.store(0, at, v)) && succeeded(points.store(1, at, m.i64(from)));
    return SmallVector<Value>();
  });
  return success(ok);
}

std::unique_ptr<DeviceFunction> disc::makeDeviceSort(CallFunctionOp op, ShapeAnalysis &shapes) {
  SymExpr dtype = shapes.expr(op.getConfig()[0]), descending = shapes.expr(op.getConfig()[1]);
  if (!dtype.isConstant() || !descending.isConstant() || !op.getOrdered() || op.getOutputs().size() < 3)
    return nullptr;
  bool isUnsigned = dtype.constant() == DISC_U8 || dtype.constant() == DISC_BOOL;
  return std::make_unique<DeviceSort>(op, shapes, isUnsigned, descending.constant() != 0);
}
