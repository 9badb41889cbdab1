//===- Numbers.h - element types of the functions ---------------*- C++ -*-===//
//
// A function is a template over its element type, and dispatches once, with withNumber(). The dtype comes from the
// operation's `config`, not from the view: MLIR's integers have no sign.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_FUNCTIONS_NUMBERS_H
#define DISC_RUNTIME_FUNCTIONS_NUMBERS_H

#include "lib/Runtime/Functions/Elements.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace disc::rt {

/// A 16-bit float as its bits. Native values would not be copied as they are: Clang widens a __bf16 that has several
/// uses to float and rounds it again, which makes a signaling NaN a quiet one.
template <typename Native> struct Stored {
  Stored() = default;
  template <typename Number> explicit Stored(Number number) {
    auto native = Native(number);
    std::memcpy(&bits, &native, sizeof(bits));
  }
  operator float() const {
    if constexpr (std::is_same_v<Native, __bf16>) {
      uint32_t wide = uint32_t(bits) << 16; // not by way of a __bf16, see above
      float value;
      std::memcpy(&value, &wide, sizeof(value));
      return value;
    } else {
      Native native;
      std::memcpy(&native, &bits, sizeof(bits));
      return float(native);
    }
  }
  uint16_t bits;
};

using Half = Stored<_Float16>;
using BFloat = Stored<__bf16>;

template <typename T> constexpr bool isHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
template <typename T> constexpr bool isReal = std::is_floating_point_v<T> || isHalf<T>;

/// What PyTorch computes in: float for the half types.
template <typename T> using Compute = std::conditional_t<isHalf<T>, float, T>;

template <typename T> inline bool isNan([[maybe_unused]] T x) {
  if constexpr (isReal<T>) {
    auto wide = Compute<T>(x);
    return wide != wide;
  } else {
    return false;
  }
}

template <typename T> constexpr Compute<T> lowest() {
  if constexpr (isReal<T>)
    return -std::numeric_limits<Compute<T>>::infinity();
  else
    return std::numeric_limits<T>::lowest();
}

template <typename T> constexpr Compute<T> highest() {
  if constexpr (isReal<T>)
    return std::numeric_limits<Compute<T>>::infinity();
  else
    return std::numeric_limits<T>::max();
}

/// The larger of two; NaN wins.
template <typename T> inline T larger(T x, T y) { return isNan(x) || x >= y ? x : y; }
template <typename T> inline T smaller(T x, T y) { return isNan(x) || x <= y ? x : y; }

/// Integers wrap: through the unsigned type.
template <typename T> inline T sum(T x, T y) {
  if constexpr (std::is_same_v<T, bool>)
    return x || y;
  else if constexpr (std::is_integral_v<T>)
    return T(std::make_unsigned_t<T>(x) + std::make_unsigned_t<T>(y));
  else
    return x + y;
}
template <typename T> inline T product(T x, T y) {
  if constexpr (std::is_same_v<T, bool>)
    return x && y;
  else if constexpr (std::is_integral_v<T>) // 64 bits, because 16-bit operands would be promoted to a signed type
    return T(uint64_t(x) * uint64_t(y));
  else
    return x * y;
}

/// Calls body(T()) for the element type `dtype`, or fails.
template <typename Body> int32_t withNumber(disc_call *call, int64_t dtype, Body body) {
  switch (dtype) {
  case DISC_F32:
    return body(float());
  case DISC_F64:
    return body(double());
  case DISC_F16:
    return body(Half());
  case DISC_BF16:
    return body(BFloat());
  case DISC_I64:
    return body(int64_t());
  case DISC_I32:
    return body(int32_t());
  case DISC_I16:
    return body(int16_t());
  case DISC_I8:
    return body(int8_t());
  case DISC_U8:
    return body(uint8_t());
  case DISC_BOOL:
    return body(bool());
  default:
    return disc_rt_function_failed(call, DISC_ERROR_TYPE, "elements of this type are not supported");
  }
}

template <typename T> inline T *dataOf(const disc_view &view) { return static_cast<T *>(view.data); }

/// The rows of a view: its dims but the last.
struct Rows {
  explicit Rows(const disc_view &view, int64_t first = 0)
      : view(view), walk(view.rank ? view.rank - 1 : 0, view.dims, view.strides, first) {}

  int64_t length() const { return view.rank ? view.dims[view.rank - 1] : 1; }
  int64_t stride() const { return view.rank ? view.strides[view.rank - 1] : 1; }
  /// Where the current row begins, in elements.
  int64_t offset() const { return walk.offset; }
  void next() { walk.next(); }

  const disc_view &view;
  StridedWalk walk;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_FUNCTIONS_NUMBERS_H
