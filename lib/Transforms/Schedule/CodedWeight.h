//===- CodedWeight.h - quantised weights that are known at load ----*- C++ -*-===//
//
// What the passes share that lay out the right-hand sides of contractions at load, for registers of a CPU (PackWeights)
// or for the matrix unit of a device (PackFragments): finding them in @init, finding the codes behind them, and the
// kernels of @init that bring codes, scales and zeros into their new places.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TRANSFORMS_SCHEDULE_CODEDWEIGHT_H
#define DISC_LIB_TRANSFORMS_SCHEDULE_CODEDWEIGHT_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/Dequantized.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::disc {

/// How a contraction reads its right-hand side: which dimensions are batch, n and k.
struct RhsDims {
  SmallVector<int64_t> batch, n, k;

  /// Nothing if the right operand of `op` is not read in one of these roles for each dimension.
  static std::optional<RhsDims> get(linalg::GenericOp op);
};

/// The codes behind a right-hand side that is known at load.
struct CodedWeight {
  Dequantized codes;
  RhsDims dims;                   // of what the codes stand for
  SmallVector<int64_t> kept;      // dimensions along which scales and zeros differ: batch, n, and the first of k
  SmallVector<int64_t> keptDepth; // those of k among them
  SmallVector<int64_t> shape;
  int64_t depth = 1, groups = 1; // values of k; runs of them that share a scale

  /// `source`, a value of @init that is read with `read`, as codes; nothing if it is something else.
  static std::optional<CodedWeight> get(Value source, const RhsDims &read);

  /// The zero point that all codes have; nothing if it is not known.
  std::optional<double> zero() const { return codes.zero ? codes.zero.value() : 0.0; }
  /// The extents of the dimensions `kept`.
  SmallVector<int64_t> keptShape() const;
  /// The dimensions of the codes' own tensor, in which they may lie in another order.
  RhsDims ownDims() const;
};

/// The product of the extents.
int64_t staticExtent(RankedTensorType type, ArrayRef<int64_t> dims);

/// The value in @init, if `v` is a parameter, a global, or a view of one with a static shape.
Value valueInInit(func::FuncOp init, Value v, OpBuilder &b, IRMapping &map);
/// A global for a value of @init.
GlobalOp keepInGlobal(func::FuncOp init, Value value, StringRef name, OpBuilder &b);
/// @init reads what it has stored itself as a value: so it is seen how that was computed, and no copy need stay.
void forwardGlobals(func::FuncOp init);
/// Erases globals and stores of what nothing reads any more; what is only read in another order needs no home of its
/// own.
void eraseUnreadGlobals(ModuleOp module, func::FuncOp init);

/// A kernel of @init that computes a tensor point by point.
Value loopKernelAtLoad(OpBuilder &b, Location loc, StringRef name, StringRef reason, ValueRange inputs,
                       SmallVector<AffineMap> maps, RankedTensorType type,
                       function_ref<Value(OpBuilder &, Location, ValueRange)> point);
/// The operand's tensor as a value of @init: what is inside of a kernel is computed by one of its own.
Value tensorAtLoad(const PointOperand &operand, OpBuilder &b);
/// The codes less the least one that they are said to be; loading fails if there are others: half a byte would lose the
/// rest.
Value checkedCodes(const Dequantized &codes, Value source, OpBuilder &b, Location loc);
/// The operand plus `offset` as f32 over the dimensions `kept` of the codes, which have these extents.
Value spreadOut(const PointOperand &operand, ArrayRef<int64_t> kept, ArrayRef<int64_t> shape, double fallback,
                double offset, OpBuilder &b, Location loc);

} // namespace mlir::disc

#endif // DISC_LIB_TRANSFORMS_SCHEDULE_CODEDWEIGHT_H
