//===- DeviceAttention.h - what the emitters of attention share ---*- C++ -*-===//
#ifndef DISC_LIB_TARGET_GPU_DEVICEATTENTION_H
#define DISC_LIB_TARGET_GPU_DEVICEATTENTION_H

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include "lib/Target/GPU/MatrixUnit.h"

namespace mlir::disc {

/// What threads read and write at once.
inline constexpr int64_t kChunkBytes = MatrixUnit::kChunkBytes;

/// The buffer that a tensor is in, if its rows are pieces of memory at multiples of kChunkBytes.
std::optional<BufferOperand> chunkedBuffer(DeviceKernel &k, Value tensor);

/// softmax(q k^T) v of one head and some of its queries, by a block.
class AttentionEmitter {
public:
  /// Vectors of `points` have `lanes` lanes.
  AttentionEmitter(DeviceKernel &k, AttentionOp op, int64_t lanes);

protected:
  /// Finds the block's head, its first query and its part of the keys.
  void placeBlock();
  /// The keys that the block walks in steps of `step`: those of its part, without those that none of its queries sees.
  std::pair<Value, Value> keyRange(int64_t step);

  Value number(double v) { return points.constant(b.getFloatAttr(type, v)); }
  Value infinity();
  /// As a number of the sums' type.
  Value widen(Value v);
  Value less(Value x, Value y) { return m.less(x, y); }
  Value both(Value x, Value y);
  Value select(Value condition, Value x, Value y);
  /// All coordinates but the last of a row of keys or values, or of a query.
  SmallVector<Value> rowOf(Value number, bool isQuery);
  SmallVector<Idx> point(Value row, const Idx &column, bool isQuery);
  Value read(Value tensor, Value row, Value column, bool isQuery);
  /// Which of its head's queries this is.
  Value positionOf(Value query);
  /// A score with the mask; both coordinates are inside.
  Value mask(Value score, Value query, Value key);
  /// The factor of a query's results, from its sum of exponentials.
  Value inverse(Value sum);
  /// Evaluates the kernel's results where the attention is `v` (a scalar or a vector), and stores them.
  LogicalResult storeResult(Value query, const Idx &column, Value v);
  /// The number of a query's part among those of all heads.
  Value partOf(Value query, Value part);
  /// Of a query and of the part that the kernel makes or that is named: where its results begin, or one of its two
  /// statistics.
  Value partResults(Value query, Value part);
  Value partMaximum(Value query, Value part);
  Value partSum(Value query, Value part);
  /// Joined keys or values that are results of the kernel: all blocks write them together.
  void writeJoined();
  /// The same, by chunks; false if rows are not made of them.
  bool writeChunks(ConcatOp concat, unsigned result);

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  AttentionOp op;
  PointEmitter points;
  SmallVector<SymExpr> dims; // of the queries: batch..., L, E
  // Queries of `shared` dimensions, those before L, have the same keys and values: they count as queries of one head.
  const int64_t shared;
  SymExpr queryCount, keyCount, depth, valueSize;
  const int64_t queries; // of a block
  Type type;             // of sums
  /// Of the keys, each with blocks of its own: how many there are, the block's own, and the memory for what they leave.
  struct Parts {
    Value count, number, memory;
  };
  std::optional<Parts> parts;
  SmallVector<Value> batch;
  Value firstQuery;
  bool ok = true;
};

/// Which of the kernel's results is memory for its own launches: for what parts of the keys leave, or for the numbers
/// that codes stand for.
std::optional<unsigned> memoryResult(KernelFuncOp kernel);

/// Combines the parts of the keys, for an element of the result in each thread. `parts`: how many there are;
/// `isBinary`: whether the maxima are those of powers of two.
LogicalResult emitAttentionWhole(DeviceKernel &k, AttentionOp op, const SymExpr &parts, bool isBinary);

/// Attention on a matrix unit, if the kernel's schedule says so.
LogicalResult emitMatrixAttention(DeviceKernel &k, AttentionOp op);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_DEVICEATTENTION_H
