//===- Counting.cpp - repetitions and histograms of numbers ----------------===//

#include "lib/Runtime/Functions/Elements.h"

#include <algorithm>

using namespace disc::rt;

/// repeats i64 [n] -> indices i64 [sum of repeats]: each index as often as `repeats` says there. One task.
int32_t disc_fn_repeat_interleave(disc_call *call, const disc_view *operands, const int64_t *, int64_t, int64_t,
                                  void *) {
  const disc_view &repeats = operands[0];
  const auto *counts = static_cast<const int64_t *>(repeats.data);
  auto *out = static_cast<int64_t *>(operands[1].data);
  int64_t left = operands[1].dims[0];
  for (int64_t i = 0; i < repeats.dims[0]; ++i) {
    int64_t count = counts[i * repeats.strides[0]];
    if (count < 0)
      return disc_rt_function_failed(call, DISC_ERROR_INDEX, "repeats can not be negative");
    // No more than there is room for: another thread of the caller's may have changed an input since it was summed.
    count = std::min(count, left);
    out = std::fill_n(out, count, i);
    left -= count;
  }
  std::fill_n(out, left, 0);
  return DISC_OK;
}

template <typename T, typename Weight>
static int32_t histogram(disc_call *call, const disc_view &x, const disc_view &out, Weight weightAt) {
  const auto *numbers = static_cast<const int64_t *>(x.data);
  auto *bins = static_cast<T *>(out.data);
  std::fill_n(bins, out.dims[0], T(0));
  for (int64_t i = 0; i < x.dims[0]; ++i) {
    int64_t bin = numbers[i * x.strides[0]];
    if (bin < 0)
      return disc_rt_function_failed(call, DISC_ERROR_INDEX, "expects numbers that are not negative");
    if (bin < out.dims[0])
      bins[bin] += weightAt(i);
  }
  return DISC_OK;
}

/// numbers i64 [n] -> counts i64 [bins], or numbers i64 [n], weights f64 [n] -> sums f64 [bins]. One task.
int32_t disc_fn_bincount(disc_call *call, const disc_view *operands, const int64_t *, int64_t, int64_t, void *) {
  if (operands[1].dtype == DISC_I64)
    return histogram<int64_t>(call, operands[0], operands[1], [](int64_t) { return int64_t(1); });
  const disc_view &weights = operands[1];
  const auto *data = static_cast<const double *>(weights.data);
  return histogram<double>(call, operands[0], operands[2], [&](int64_t i) { return data[i * weights.strides[0]]; });
}
