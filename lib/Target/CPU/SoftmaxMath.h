//===- SoftmaxMath.h - exponentials of differences ------------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_CPU_SOFTMAXMATH_H
#define DISC_LIB_TARGET_CPU_SOFTMAXMATH_H

#include "mlir/IR/Builders.h"

namespace mlir::disc {

/// The larger of two vectors, lane by lane; `old` where `x` is NaN.
Value larger(OpBuilder &b, Location loc, Value x, Value old);

/// What to subtract from scores whose largest is `maximum`: zero if that is minus infinity, so that exp(-inf - 0) = 0.
Value finiteShift(OpBuilder &b, Location loc, Value maximum);

/// What scores of this type are multiplied by before expOfDifference: log2(e) where it is a power of two.
double softmaxUnit(Type type);

/// exp((x - shift) / softmaxUnit) for vectors with x <= shift (or minus infinity, which gives zero; NaN gives NaN). For
/// f32 within 3 ulp, and zero instead of denormals; half as many instructions as math.exp, which must also serve large
/// arguments and denormal results.
Value expOfDifference(OpBuilder &b, Location loc, Value x, Value shift);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_SOFTMAXMATH_H
