//===- DeviceFunctions.cpp - the runtime's functions, as kernels ------------===//
//
// The ones that are one kernel of a thread for each element.
//
// Lit test: test/lit/GPU/functions.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/DeviceFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

/// Runs `body` for the element of a tensor of extents `dims` that this thread has, if there is one.
static void forElement(DeviceKernel &k, PointEmitter &points, ArrayRef<SymExpr> dims,
                       function_ref<void(SmallVector<Idx>)> body) {
  IndexMath &m = k.m;
  Value i = m.add(m.mul(k.block(), DeviceFunction::kThreads), k.thread());
  SmallVector<Value> extents = llvm::map_to_vector(dims, [&](const SymExpr &e) { return points.expr(e); });
  emitIf(k.b, k.loc, m.less(i, points.expr(SymExpr::product(dims))), {}, [&] {
    PointEmitter::Scope scope(points);
    SmallVector<Idx> at;
    for (Value c : m.delinearize(i, extents))
      at.push_back(Idx(c));
    body(std::move(at));
    return SmallVector<Value>();
  });
}

LogicalResult disc::emitOperandCopy(DeviceKernel &k) {
  PointEmitter points = k.points(1);
  BlockArgument operand = k.kernel.getBody().getArgument(0);
  bool ok = true;
  forElement(k, points, k.shapes.dims(operand), [&](SmallVector<Idx> at) {
    Value v = points.eval(operand, at);
    ok &= v && succeeded(points.store(0, at, v));
  });
  return success(ok);
}

namespace {
/// "insert": the target has its old elements; those of the source go to start, start + step, ... along a dim.
class DeviceInsert : public DeviceFunction {
public:
  using DeviceFunction::DeviceFunction;

  SymExpr blocks() override { return blocksFor(SymExpr::product(shapes.dims(op.getInputs()[1]))); }

  LogicalResult emit(DeviceKernel &k) override {
    SymExpr dim = shapes.expr(op.getConfig()[0]), step = shapes.expr(op.getConfig()[2]);
    if (!dim.isConstant() || !step.isConstant())
      return op.emitError("inserts along a dimension, or by a step, that is not constant");
    PointEmitter points = k.points(1);
    Value start = points.expr(shapes.expr(op.getConfig()[1]));
    bool ok = true;
    forElement(k, points, shapes.dims(op.getInputs()[1]), [&](SmallVector<Idx> at) {
      Value v = points.eval(op.getInputs()[1], at);
      Idx &moved = at[dim.constant()];
      moved = Idx(k.m.add(start, k.m.mul(moved.base, step.constant())));
      ok &= v && succeeded(points.store(0, at, v));
    });
    return success(ok);
  }
};
} // namespace

std::unique_ptr<DeviceFunction> disc::makeDeviceInsert(CallFunctionOp op, ShapeAnalysis &shapes) {
  return std::make_unique<DeviceInsert>(op, shapes);
}

FailureOr<std::unique_ptr<DeviceFunction>> DeviceFunction::get(CallFunctionOp op, ShapeAnalysis &shapes) {
  using Make = std::unique_ptr<DeviceFunction> (*)(CallFunctionOp, ShapeAnalysis &);
  Make make = llvm::StringSwitch<Make>(op.getFunction())
                  .Case("cumulative", makeDeviceCumulative)
                  .Case("insert", makeDeviceInsert)
                  .Case("scatter", makeDeviceScatter)
                  .Case("sort", makeDeviceSort)
                  .Default(nullptr);
  std::unique_ptr<DeviceFunction> function = make ? make(op, shapes) : nullptr;
  if (!function)
    return op.emitError() << "no kernels of a device do this call of '" << op.getFunction() << "'";
  return function;
}
