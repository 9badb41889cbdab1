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
    if (dim.constant() < 0 || dim.constant() >= cast<RankedTensorType>(op.getInputs()[1].getType()).getRank())
      return op.emitError("inserts along a dimension that there is not");
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

/// Whether the types of the operands are what the device's functions address: the first result is like the first
/// operand, but for extents. The other tensors of values have its element type, and those of places are i64.
static bool fitsFunction(CallFunctionOp op) {
  auto type = [](Value v) { return cast<RankedTensorType>(v.getType()); };
  RankedTensorType first = type(op.getInputs()[0]), result = type(op.getOutputs()[0]);
  auto isLikeFirst = [&](RankedTensorType other) {
    return other.getRank() == first.getRank() && other.getElementType() == first.getElementType();
  };
  auto isPlaces = [](RankedTensorType other, int64_t rank) {
    return other.getRank() == rank && other.getElementType().isInteger(64);
  };
  if (result.getRank() == 0 || !isLikeFirst(result) || !first.getElementType().isIntOrFloat())
    return false;
  StringRef name = op.getFunction();
  if (name == "insert")
    return isLikeFirst(type(op.getInputs()[1]));
  if (name == "scatter") {
    RankedTensorType values = type(op.getInputs()[1]);
    return values.getElementType() == first.getElementType() &&
           llvm::all_of(op.getInputs().drop_front(2), [&](Value v) { return isPlaces(type(v), values.getRank()); });
  }
  bool hasPlaces = op.getOutputs().size() > 1 && isPlaces(type(op.getOutputs()[1]), first.getRank());
  return hasPlaces || (name == "cumulative" && op.getOutputs().size() == 1);
}

FailureOr<std::unique_ptr<DeviceFunction>> DeviceFunction::get(CallFunctionOp op, ShapeAnalysis &shapes) {
  struct Known {
    StringLiteral name;
    std::unique_ptr<DeviceFunction> (*make)(CallFunctionOp, ShapeAnalysis &);
    size_t inputs, outputs, config; // at least
  };
  static constexpr Known known[] = {{"cumulative", makeDeviceCumulative, 1, 1, 2},
                                    {"insert", makeDeviceInsert, 2, 1, 3},
                                    {"scatter", makeDeviceScatter, 2, 1, 8},
                                    {"sort", makeDeviceSort, 1, 2, 2}};
  const Known *found = llvm::find_if(known, [&](const Known &each) { return each.name == op.getFunction(); });
  std::unique_ptr<DeviceFunction> function;
  if (found != std::end(known)) {
    if (op.getInputs().size() < found->inputs || op.getOutputs().size() < found->outputs ||
        op.getConfig().size() < found->config || !fitsFunction(op))
      return op.emitError() << "'" << op.getFunction() << "' takes other operands, or more of them";
    function = found->make(op, shapes);
  }
  if (!function)
    return op.emitError() << "no kernels of a device do this call of '" << op.getFunction() << "'";
  return function;
}
