//===- DeviceProduct.h - products as devices compute them ---------*- C++ -*-===//
//
// A contraction or a convolution is a batch of matrix products whose operands are read at a point. There are two ways
// of computing it: tiles of fused multiply-adds (DeviceProduct.cpp), and tiles of a matrix unit (DeviceMatrix.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_GPU_DEVICEPRODUCT_H
#define DISC_LIB_TARGET_GPU_DEVICEPRODUCT_H

#include "lib/Target/GPU/DeviceCodes.h"
#include "lib/Target/GPU/DeviceKernel.h"

namespace mlir::disc {

/// A batch of matrix products, addressed by positions in row-major orders.
class ProductSource {
public:
  /// Vectors of `points` have `lanes` lanes.
  ProductSource(DeviceKernel &k, int64_t lanes) : k(k), b(k.b), m(k.m), points(k.points(lanes)) {}
  virtual ~ProductSource() = default;

  virtual SymExpr batches() = 0;
  virtual SymExpr rows() = 0;
  virtual SymExpr columns() = 0;
  virtual SymExpr depth() = 0;
  virtual Type accumulator() = 0;
  /// The operands' elements; all positions are inside the extents.
  virtual Value lhs(Value batch, Value row, Value step) = 0;
  virtual Value rhs(Value batch, Value step, Value column) = 0;
  /// True if neighbouring elements of the operand in memory are neighbours along the sum.
  virtual bool lhsAlongDepth() = 0;
  virtual bool rhsAlongDepth() = 0;
  /// The address of a row of the left operand (of a column of the right one) if its elements along the sum are
  /// neighbours and start at a multiple of 16 bytes; otherwise null.
  virtual Value lineAddress(bool isLeft, Value batch, Value line) = 0;
  /// Whether no kernel writes to the buffer of the operand with such lines.
  virtual bool isConstant(bool isLeft) = 0;
  /// The right operand's codes; null if it is in memory as it is.
  virtual DeviceCodes *codes() { return nullptr; }
  /// The type of the operands' elements; null if they differ.
  virtual Type operandElement() = 0;
  /// The tensor of the sums, and a point of it. `column` may have lanes, which do not leave an innermost dimension.
  virtual Value result() = 0;
  virtual SmallVector<Idx> resultAt(Value batch, Value row, const Idx &column) = 0;

protected:
  SmallVector<Value> split(Value linear, ArrayRef<SymExpr> extents) {
    SmallVector<Value> sizes;
    for (const SymExpr &e : extents)
      sizes.push_back(points.expr(e));
    return m.delinearize(linear, sizes);
  }

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;

public:
  PointEmitter points;
  /// The results of the kernel that follow from the product; empty: all of them.
  SmallVector<unsigned> results;
};

/// Evaluates the kernel's results where the product is `sum` (a scalar or a vector) at the point `at`, and stores them.
LogicalResult storeProduct(DeviceKernel &k, ProductSource &source, ArrayRef<Idx> at, Value sum);

/// Computes what the codes of a contraction stand for, as lines along the sum, into the memory that is the kernel's
/// last result. In so many blocks.
LogicalResult emitDeviceDecoding(DeviceKernel &k);
SymExpr decodingBlocks(KernelFuncOp kernel, int64_t threads, ShapeAnalysis &shapes);

/// The product by a matrix unit, if the kernel's schedule says so.
LogicalResult emitMatrixProduct(DeviceKernel &k, ProductSource &source);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_DEVICEPRODUCT_H
