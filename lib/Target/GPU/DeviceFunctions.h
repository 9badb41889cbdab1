//===- DeviceFunctions.h - the runtime's functions, as kernels ------*- C++ -*-===//
//
// What a device's own kernels do of what `disc_tensor.call` calls; the rest runs on the host, with copies. Operands and
// config are those of lib/Runtime/Functions.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_GPU_DEVICEFUNCTIONS_H
#define DISC_LIB_TARGET_GPU_DEVICEFUNCTIONS_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include <memory>

namespace mlir::disc {

/// A call with `on_device`.
class DeviceFunction {
public:
  DeviceFunction(CallFunctionOp op, ShapeAnalysis &shapes) : op(op), shapes(shapes) {}
  virtual ~DeviceFunction() = default;

  /// Reports a function that no kernels do.
  static FailureOr<std::unique_ptr<DeviceFunction>> get(CallFunctionOp op, ShapeAnalysis &shapes);

  static constexpr int64_t kThreads = DISC_RT_ORDER_TILE;
  /// How many blocks of as many threads do it, and what one of them does; of a function that puts things in order,
  /// after that.
  virtual SymExpr blocks() = 0;
  virtual LogicalResult emit(DeviceKernel &k) = 0;

  /// What is put in order before: `length` things in each of `rows` rows.
  struct Order {
    SymExpr rows, length;
  };
  virtual std::optional<Order> order() { return std::nullopt; }
  virtual LogicalResult emitTiles(DeviceKernel &) { return op.emitError("has no order"); }

protected:
  static SymExpr blocksFor(const SymExpr &threads) { return SymExpr::ceilDiv(threads, SymExpr(kThreads)); }

  CallFunctionOp op;
  ShapeAnalysis &shapes;
};

std::unique_ptr<DeviceFunction> makeDeviceScatter(CallFunctionOp op, ShapeAnalysis &shapes);
std::unique_ptr<DeviceFunction> makeDeviceSort(CallFunctionOp op, ShapeAnalysis &shapes);
std::unique_ptr<DeviceFunction> makeDeviceInsert(CallFunctionOp op, ShapeAnalysis &shapes);
std::unique_ptr<DeviceFunction> makeDeviceCumulative(CallFunctionOp op, ShapeAnalysis &shapes);

/// Copies the first operand to the first result, where they are not one.
LogicalResult emitOperandCopy(DeviceKernel &k);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_DEVICEFUNCTIONS_H
