//===- EmitKernels.h - one emitter per kind of kernel --------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_CPU_EMITKERNELS_H
#define DISC_LIB_TARGET_CPU_EMITKERNELS_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Target/CPU/PointEmitter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
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
  /// An integer of the kernel's schedule.
  int64_t schedule(StringRef name, int64_t fallback);
};

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

/// `scf.for %i = begin to end step step` (index) around `body`, with loop-carried `inits`; `body` gives the next
/// values. Returns the final ones.
using LoopBody = function_ref<SmallVector<Value>(Value i, ValueRange carried)>;
SmallVector<Value> emitFor(OpBuilder &b, Location loc, Value begin, Value end, Value step, ValueRange inits,
                           LoopBody body);

/// `body` under `scf.if`, with what it gives, or `otherwise` if the condition is false.
SmallVector<Value> emitIf(OpBuilder &b, Location loc, Value condition, ValueRange otherwise,
                          function_ref<SmallVector<Value>()> body);

/// Runs `body` for each position of [begin, end) in the row-major order of `extents`, with the coordinates it stands
/// for. They are stepped from one position to the next: only the first costs divisions.
void emitRowMajor(PointEmitter &points, Value begin, Value end, ArrayRef<SymExpr> extents,
                  function_ref<void(Value position, ValueRange coordinates)> body);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_EMITKERNELS_H
