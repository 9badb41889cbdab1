//===- Dequantized.h - tensors that stand for codes ----------------*- C++ -*-===//
//
// A quantised tensor is integer codes with scales and zero points. The front end writes what they stand for as
// arithmetic at points, whichever tool quantised the model:
//
//   (code - zero) * scale
//
// with conversions between, one step or several, scales and zeros for all elements, along some dimensions, or as
// numbers. What computes with the codes themselves asks here whether a tensor is one.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_TRANSFORMS_SUPPORT_DEQUANTIZED_H
#define DISC_TRANSFORMS_SUPPORT_DEQUANTIZED_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include <optional>

namespace mlir::disc {

/// A factor or term of each element: an element of a tensor, or a number.
struct PointOperand {
  Value tensor;  // null for a number
  AffineMap map; // where in it, from the dimensions of the dequantised tensor
  TypedAttr number;
  bool isUnsigned = false; // its integers are
  bool isInside = false;   // the tensor is a value inside of a kernel

  explicit operator bool() const { return tensor || number; }
  /// The number; nothing for a tensor.
  std::optional<double> value() const;
  bool isZero() const { return value() == 0.0; }
  /// Whether it can only be an integer.
  bool isWhole() const;
};

struct Dequantized {
  PointOperand codes; // integers of at most 8 bits, one for each element: a permutation, without some dimensions of 1
  PointOperand scale, zero;   // empty: 1 and 0. Floats or integers
  Operation *check = nullptr; // disc_tensor.check_index that the codes less `low` are below high - low + 1, if any
  int64_t low = 0, high = -1;

  /// Whether the codes fit into 4 bits, signed or unsigned.
  bool isNarrow() const { return check && low >= (codes.isUnsigned ? 0 : -8) && high <= (codes.isUnsigned ? 15 : 7); }

  /// `value` as codes; nothing if it is not computed from any in this way. Follows kernels to what they read. A tensor
  /// of integers may be one without a scale.
  static std::optional<Dequantized> match(Value value);
};

/// The value that a kernel yields as `value`, or reads as it.
Value behindKernel(Value value);
/// What `value` is a conversion of, between types of floats and nothing else; null if it is something else.
Value behindConversion(Value value);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_DEQUANTIZED_H
