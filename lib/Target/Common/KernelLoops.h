//===- KernelLoops.h - loops in kernels ----------------------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_COMMON_KERNELLOOPS_H
#define DISC_LIB_TARGET_COMMON_KERNELLOOPS_H

#include "lib/Target/Common/PointEmitter.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::disc {

/// `scf.for %i = begin to end step step` (index) around `body`, with loop-carried `inits`; `body` gives the next
/// values. Returns the final ones.
using LoopBody = function_ref<SmallVector<Value>(Value i, ValueRange carried)>;
SmallVector<Value> emitFor(OpBuilder &b, Location loc, Value begin, Value end, Value step, ValueRange inits,
                           LoopBody body);

/// The same for constant `step`s, of which a body does `unroll`, with the position of each; the rest one by one.
SmallVector<Value> emitUnrolled(OpBuilder &b, Location loc, Value begin, Value end, Value step, int64_t unroll,
                                ValueRange inits,
                                function_ref<SmallVector<Value>(ArrayRef<Value> at, ValueRange carried)> body);

/// `body` under `scf.if`, with what it gives, or `otherwise` if the condition is false.
SmallVector<Value> emitIf(OpBuilder &b, Location loc, Value condition, ValueRange otherwise,
                          function_ref<SmallVector<Value>()> body);

/// Runs `body` for each position of [begin, end) in the row-major order of `extents`, with the coordinates it stands
/// for. They are stepped from one position to the next: only the first costs divisions.
void emitRowMajor(PointEmitter &points, Value begin, Value end, ArrayRef<SymExpr> extents,
                  function_ref<void(Value position, ValueRange coordinates)> body);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_COMMON_KERNELLOOPS_H
