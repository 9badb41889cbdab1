//===- DeviceEmission.h - kernels as functions of a device -------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_GPU_DEVICEEMISSION_H
#define DISC_LIB_TARGET_GPU_DEVICEEMISSION_H

#include "dialects/Rt/RtDialect.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::disc {

/// Adds functions to the module of device code, and to the host's module the attributes that their launches need.
struct DeviceEmission {
  OpBuilder &b;
  gpu::GPUModuleOp device;
  ShapeAnalysis &shapes;
  int64_t warp;
  bool startsEarly; ///< Kernels start before those that they depend on have finished, and wait for them.
  llvm::StringMap<llvm::SmallBitVector> constants; ///< The operands of each kernel that no launch changes.

  ExprAttr expr(const SymExpr &e) { return ExprAttr::get(b.getContext(), shapes.simplify(e)); }

  /// The function has `extra` more arguments than the kernel, after its symbols: numbers and addresses.
  FailureOr<DeviceKernelOp> add(KernelFuncOp kernel, const Twine &name,
                                function_ref<LogicalResult(DeviceKernel &)> emit, ArrayRef<Type> extra = {});
  /// A call of a function that the device has kernels for.
  LogicalResult addCall(KernelFuncOp kernel, CallFunctionOp call);
  /// A kernel in the schedules that it has for different shapes, each emitted by `emit`. All names but the last contain
  /// the numbers of their schedule.
  FailureOr<DeviceKernelOp>
  addSchedules(KernelFuncOp kernel, function_ref<FailureOr<DeviceKernelOp>(const KernelVariant &, const Twine &)> emit);
  /// A row or column kernel, and the kernels that do the same in parts.
  FailureOr<DeviceKernelOp> addReduction(KernelFuncOp kernel);
  FailureOr<DeviceKernelOp> addLoop(KernelFuncOp kernel);
  /// An attention in its schedules, and the kernel that combines parts of the keys; without parts it has no blocks.
  FailureOr<DeviceKernelOp> addAttention(KernelFuncOp kernel);
  /// The kernel that decodes a product's weights, if there is memory for them; it has no blocks where that is empty.
  LogicalResult addDecoding(KernelFuncOp kernel, DeviceKernelOp stub);
  /// Adds what a library needs to compute the kernel's product.
  LogicalResult addLibrary(KernelFuncOp kernel, DeviceKernelOp stub);
};

/// Attaches DeviceKind to the kinds of this tree.
void registerDeviceKinds(DialectRegistry &registry);

} // namespace mlir::disc

#include "lib/Target/GPU/Kinds.h.inc"

#endif // DISC_LIB_TARGET_GPU_DEVICEEMISSION_H
