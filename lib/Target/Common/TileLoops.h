//===- TileLoops.h - what the emitters of products share ------------*- C++ -*-===//
//
// Index arithmetic that folds as it is built, even splits of a range in tiles, and operands addressed by strides.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_COMMON_TILELOOPS_H
#define DISC_LIB_TARGET_COMMON_TILELOOPS_H

#include "dialects/Plan/Layout.h"
#include "lib/Target/Common/PointEmitter.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::disc {

inline int64_t byteSize(Type element) { return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8); }

/// Builds index arithmetic at the builder's insertion point; all extents and positions are non-negative.
struct IndexMath {
  OpBuilder &b;
  Location loc;

  Value constant(int64_t v);
  Value add(Value x, Value y);
  Value sub(Value x, Value y);
  Value mul(Value x, Value y);
  Value mul(Value x, int64_t y) { return mul(x, constant(y)); }
  Value div(Value x, Value y);
  Value rem(Value x, Value y);
  Value ceilDiv(Value x, Value y);
  Value min(Value x, Value y);
  Value max(Value x, Value y);
  Value less(Value x, Value y);    // i1
  Value notLess(Value x, Value y); // i1
  Value equal(Value x, Value y);   // i1
  Value i64(Value index);
  Value index(Value i64);
  /// `ptr + bytes`.
  Value advance(Value ptr, Value bytes);

  /// Coordinates of position `linear` in row-major order over `extents`.
  SmallVector<Value> delinearize(Value linear, ArrayRef<Value> extents);
  /// The coordinates after these; those of the last position give zeros and an overflowing first one.
  SmallVector<Value> next(ArrayRef<Value> coordinates, ArrayRef<Value> extents);
};

/// `count` items in `parts` parts whose sizes differ by at most one, larger ones first.
class EvenSplit {
public:
  EvenSplit(IndexMath &m, Value count, Value parts);
  Value start(IndexMath &m, Value part) const;
  Value size(IndexMath &m, Value part) const;

private:
  Value quotient, remainder;
};

/// A tensor of the kernel that lies in one of its buffers, possibly through views.
struct BufferOperand {
  unsigned argument;
  Layout layout; // of the value itself, in elements of the buffer

  static std::optional<BufferOperand> get(KernelFuncOp kernel, Value value, ShapeAnalysis &shapes);
};

/// A tensor addressed over an iteration space: element offset `offset + sum(strides[d] * iteration[d])`.
struct StridedOperand {
  unsigned argument;
  SymExpr offset;
  SmallVector<SymExpr> strides; // one per iteration dimension

  /// Nothing if the tensor is not in a buffer, or `map` is not affine over the layout.
  static std::optional<StridedOperand> get(KernelFuncOp kernel, Value value, AffineMap map, ShapeAnalysis &shapes);
  /// The one stride by which the row-major position over `dims` advances; nothing if there is none. Zero for no dims.
  std::optional<SymExpr> collapse(ArrayRef<unsigned> dims, ArrayRef<SymExpr> sizes, ShapeAnalysis &shapes) const;
};

/// The point of `value` that holds what is computed from `origin` at `point`. `value` follows from `origin` by
/// elementwise computations and views, or is computed apart from it over the same domain; fails if neither.
FailureOr<SmallVector<Idx>> followResult(PointEmitter &points, Value value, Value origin, ArrayRef<Idx> point);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_COMMON_TILELOOPS_H
