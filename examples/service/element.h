//===- element.h - numbers of a protocol as elements of tensors -*- C++ -*-===//

#ifndef SERVICE_ELEMENT_H
#define SERVICE_ELEMENT_H

#include "tensor.h"

#include <cmath>
#include <limits>
#include <type_traits>

namespace service {

/// Stores a number. False if the tensor's datatype has no such number: fractions and other ranges of integers, finite
/// numbers that become infinite, and numbers for BOOL.
template <typename T> bool storeNumber(Tensor &tensor, size_t index, T value) {
  auto integer = [&](auto sample) {
    using To = decltype(sample);
    if constexpr (!std::is_integral_v<T>) {
      return false;
    } else {
      if constexpr (std::is_signed_v<T>)
        if (value < 0 && (std::is_unsigned_v<To> || int64_t(value) < int64_t(std::numeric_limits<To>::min())))
          return false;
      if (value > 0 && uint64_t(value) > uint64_t(std::numeric_limits<To>::max()))
        return false;
      tensor.as<To>()[index] = To(value);
      return true;
    }
  };
  auto real = [&](float narrow) {
    bool fits = std::isfinite(narrow) || !std::isfinite(double(value));
    if (tensor.type == Datatype::FP32)
      tensor.as<float>()[index] = narrow;
    else
      tensor.as<uint16_t>()[index] = tensor.type == Datatype::FP16 ? toHalf(narrow) : toBFloat(narrow);
    if (tensor.type == Datatype::FP16)
      fits &= std::isfinite(fromHalf(toHalf(narrow))) || !std::isfinite(narrow);
    return fits;
  };
  switch (tensor.type) {
  case Datatype::Bool:
    return false;
  case Datatype::UInt8:
    return integer(uint8_t());
  case Datatype::UInt16:
    return integer(uint16_t());
  case Datatype::UInt32:
    return integer(uint32_t());
  case Datatype::UInt64:
    return integer(uint64_t());
  case Datatype::Int8:
    return integer(int8_t());
  case Datatype::Int16:
    return integer(int16_t());
  case Datatype::Int32:
    return integer(int32_t());
  case Datatype::Int64:
    return integer(int64_t());
  case Datatype::FP16:
  case Datatype::BF16:
  case Datatype::FP32:
    return real(float(value));
  case Datatype::FP64:
    tensor.as<double>()[index] = double(value);
    return true;
  }
  return false;
}

/// False if the datatype is not BOOL.
inline bool storeBoolean(Tensor &tensor, size_t index, bool value) {
  if (tensor.type != Datatype::Bool)
    return false;
  tensor.as<uint8_t>()[index] = value;
  return true;
}

} // namespace service

#endif // SERVICE_ELEMENT_H
