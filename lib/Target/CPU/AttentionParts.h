//===- AttentionParts.h - what both forms of attention share --------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_CPU_ATTENTIONPARTS_H
#define DISC_LIB_TARGET_CPU_ATTENTIONPARTS_H

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/Common/TileLoops.h"

namespace mlir::disc {

/// The operands of an attention kernel, its mask and its result at points, and vectors of its sums.
class AttentionParts {
public:
  AttentionParts(KernelEmission &e, AttentionOp op, PointEmitter &points, Type sumType);

protected:
  /// Start of a head's matrix in its buffer, and the strides of its rows and columns, in bytes.
  struct Matrix {
    Value ptr, rowBytes, columnBytes;
  };
  FailureOr<Matrix> matrix(Value operand, ArrayRef<Value> batch);
  Matrix matrix(Value base, const Layout &layout, Type element, ArrayRef<Value> batch);

  Location loc() { return m.loc; }
  int64_t lanes() { return points.lanes(); }
  VectorType vectorType() { return points.vectorOf(sumType); }
  Value constantVector(double v);
  Value minusInfinity();
  AttentionScheduleAttr schedule() { return e.schedule<AttentionScheduleAttr>(); }
  /// A pointer into this worker's scratch memory, at an offset of the schedule.
  Value scratchAt(ExprAttr offset);
  /// Moves a vector of the operands' elements to one of sums.
  Value widen(Value v);

  SmallVector<Idx> point(ArrayRef<Value> batch, std::initializer_list<Idx> rest);
  /// The mask's point for a score, which may be repeated there.
  SmallVector<Idx> maskPoint(ArrayRef<Value> batch, Idx query, Idx key);
  /// What queries are multiplied by.
  Value queryScale();
  /// What is added to scores, from a vector of the mask: minus infinity where a boolean hides a key.
  Value maskTerm(Value v);
  /// What results are multiplied by; with a sum of zero, so that they are zeros or NaN, as the operation says.
  Value inverseOf(Value sum);
  /// Stores a vector of a row of the result, through whatever the kernel does to it.
  LogicalResult writeRow(ArrayRef<Value> batch, Value query, Value firstColumn, Value v, Value mask);

  KernelEmission &e;
  OpBuilder &b;
  AttentionOp op;
  IndexMath m;
  Type sumType;
  PointEmitter &points;
  SmallVector<SymExpr> dims; // of the queries: batch..., L, E
  SymExpr queryCount, keyCount, depth, valueSize;
};

/// Attention of few queries: `lib/Target/CPU/EmitAttentionRows.cpp`.
LogicalResult emitAttentionRows(KernelEmission &e, AttentionOp op, PointEmitter &points, Type sumType);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_ATTENTIONPARTS_H
