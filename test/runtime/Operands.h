//===- Operands.h - operands of native functions in tests -------*- C++ -*-===//

#ifndef DISC_TEST_RUNTIME_OPERANDS_H
#define DISC_TEST_RUNTIME_OPERANDS_H

#include "lib/Runtime/Functions/Function.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace disc::test {

/// A dense tensor and its view.
template <typename T> struct Tensor {
  Tensor(int64_t dtype, std::vector<int64_t> dims, std::vector<T> values = {})
      : dtype(dtype), dims(std::move(dims)), strides(this->dims.size()), data(std::move(values)) {
    int64_t count = 1;
    for (size_t i = this->dims.size(); i-- > 0;) {
      strides[i] = count;
      count *= this->dims[i];
    }
    data.reserve(1); // no null pointer, as compiled code has none for an empty tensor
    data.resize(size_t(count));
  }
  operator disc_view() { return {data.data(), dtype, int64_t(dims.size()), dims.data(), strides.data()}; }

  int64_t dtype;
  std::vector<int64_t> dims, strides;
  std::vector<T> data;
};

using Ints = Tensor<int64_t>;
using Floats = Tensor<float>;
using Doubles = Tensor<double>;
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

/// Runs the tasks of a function, `step` at a time, with `scratch` bytes.
inline int32_t runParts(disc_function function, const std::vector<disc_view> &operands,
                        const std::vector<int64_t> &config, int64_t tasks, int64_t step, size_t scratch = 0) {
  std::vector<double> memory(scratch / 8 + 1);
  for (int64_t begin = 0; begin < tasks; begin += step)
    if (int32_t status =
            function(nullptr, operands.data(), config.data(), begin, std::min(begin + step, tasks), memory.data()))
      return status;
  return DISC_OK;
}

/// A float as functions have it in their config.
inline int64_t bitsOf(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

} // namespace disc::test

#endif // DISC_TEST_RUNTIME_OPERANDS_H
