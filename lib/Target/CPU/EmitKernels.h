//===- EmitKernels.h - one emitter per kind of kernel --------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_CPU_EMITKERNELS_H
#define DISC_LIB_TARGET_CPU_EMITKERNELS_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Target/Common/KernelLoops.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

namespace mlir::disc {

/// A kernel and the function it becomes:
///   func.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
/// runs tasks [begin, end). `builder` stands in the function's entry block, before its return.
struct KernelEmission {
  OpBuilder &builder;
  KernelFuncOp kernel;
  func::FuncOp function;
  ShapeAnalysis &shapes;
  int64_t vectorBits;

  Value args() { return function.getArgument(0); }
  Value begin() { return function.getArgument(1); }
  Value end() { return function.getArgument(2); }
  Value scratch() { return function.getArgument(3); }
  /// Lanes of a vector of 32-bit elements, the unit that loops advance by.
  int64_t lanes() const { return vectorBits / 32; }
  /// The kernel's schedule, which is one of its kind.
  template <typename Schedule> Schedule schedule() { return cast<Schedule>(kernel.getScheduleAttr()); }
  /// Reports a tile of so many columns that is not one of whole vectors of `lanes` elements.
  LogicalResult checkColumns(int64_t columns, int64_t lanes);
};

/// Attaches HostKind to the kinds of this tree.
void registerHostKinds(DialectRegistry &registry);

/// All report what they cannot emit.
LogicalResult emitLoop(KernelEmission &e);
/// A loop kernel that is one `disc_tensor.running_sum`.
LogicalResult emitRunningSum(KernelEmission &e);
LogicalResult emitRow(KernelEmission &e);
LogicalResult emitColumn(KernelEmission &e);
LogicalResult emitContraction(KernelEmission &e);
LogicalResult emitAttention(KernelEmission &e);
LogicalResult emitPack(KernelEmission &e);
LogicalResult emitCall(KernelEmission &e);
LogicalResult emitConvolution(KernelEmission &e);

} // namespace mlir::disc

#include "lib/Target/CPU/Kinds.h.inc"

#endif // DISC_LIB_TARGET_CPU_EMITKERNELS_H
