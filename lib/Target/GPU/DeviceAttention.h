//===- DeviceAttention.h - what the emitters of attention share ---*- C++ -*-===//
#ifndef DISC_LIB_TARGET_GPU_DEVICEATTENTION_H
#define DISC_LIB_TARGET_GPU_DEVICEATTENTION_H

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/GPU/DeviceKernel.h"

namespace mlir::disc {

/// softmax(q k^T) v of one head and some of its queries, by a block.
class AttentionEmitter {
public:
  /// Vectors of `points` have `lanes` lanes.
  AttentionEmitter(DeviceKernel &k, AttentionOp op, int64_t lanes);

protected:
  /// Finds the block's head and its first query.
  void placeBlock();

  Value number(double v) { return points.constant(b.getFloatAttr(type, v)); }
  Value infinity();
  /// As a number of the sums' type.
  Value widen(Value v);
  Value less(Value x, Value y) { return m.less(x, y); }
  Value both(Value x, Value y);
  Value select(Value condition, Value x, Value y);
  SmallVector<Idx> point(Value row, const Idx &column);
  Value read(Value tensor, Value row, Value column);
  /// A score with the mask; both coordinates are inside.
  Value mask(Value score, Value query, Value key);
  /// The factor of a query's results, from its sum of exponentials.
  Value inverse(Value sum);
  /// Evaluates the kernel's results where the attention is `v` (a scalar or a vector), and stores them.
  LogicalResult storeResult(Value query, const Idx &column, Value v);
  /// Joined keys or values that are results of the kernel: all blocks write them together.
  void writeJoined();

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  AttentionOp op;
  PointEmitter points;
  SmallVector<SymExpr> dims; // of the queries: batch..., L, E
  SymExpr queryCount, keyCount, depth, valueSize;
  const int64_t queries; // of a block
  Type type;             // of sums
  SmallVector<Value> batch;
  Value firstQuery;
  bool ok = true;
};

/// Attention on a matrix unit, if the kernel's schedule says so.
LogicalResult emitMatrixAttention(DeviceKernel &k, AttentionOp op);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_DEVICEATTENTION_H
