//===- Cumulative.cpp - running sums, products, extrema --------------------===//

#include "lib/Runtime/Functions/Numbers.h"

#include <cmath>

using namespace disc::rt;

namespace {
enum Operation : int64_t { Sum, Product, Maximum, Minimum, LogSumExp };

/// What rows are folded in: rounding errors of narrow types would add up.
template <typename T> using Total = std::conditional_t<isReal<T>, double, Compute<T>>;

/// log(exp(x) + exp(y)) without overflow.
template <typename T> T logAddExp(T x, T y) {
  T low = smaller(x, y), high = larger(x, y);
  if (isNan(low))
    return low;
  // Equal infinities have no difference.
  if (low == high && std::isinf(low))
    return x;
  return std::log1p(std::exp(low - high)) + high;
}

template <typename T, typename Fold> void runRows(const disc_view *operands, int64_t begin, int64_t end, Fold fold) {
  Rows rows(operands[0], begin);
  T *to = dataOf<T>(operands[1]) + begin * rows.length();
  for (int64_t row = begin; row < end; ++row, rows.next()) {
    const T *from = dataOf<const T>(operands[0]) + rows.offset();
    auto total = Total<T>();
    for (int64_t i = 0; i < rows.length(); ++i) {
      auto x = Total<T>(Compute<T>(from[i * rows.stride()]));
      total = i ? fold(total, x) : x;
      *to++ = T(Compute<T>(total));
    }
  }
}

template <typename T> void runExtrema(const disc_view *operands, bool largest, int64_t begin, int64_t end) {
  Rows rows(operands[0], begin);
  T *to = dataOf<T>(operands[1]) + begin * rows.length();
  int64_t *indices = dataOf<int64_t>(operands[2]) + begin * rows.length();
  for (int64_t row = begin; row < end; ++row, rows.next()) {
    const T *from = dataOf<const T>(operands[0]) + rows.offset();
    int64_t best = 0;
    for (int64_t i = 0; i < rows.length(); ++i) {
      auto x = Compute<T>(from[i * rows.stride()]), top = Compute<T>(from[best * rows.stride()]);
      if (isNan(x) || (!isNan(top) && (largest ? x >= top : x <= top)))
        best = i;
      *to++ = from[best * rows.stride()];
      *indices++ = best;
    }
  }
}

template <typename T>
int32_t run(disc_call *call, const disc_view *operands, int64_t operation, int64_t begin, int64_t end) {
  using C = Total<T>;
  switch (operation) {
  case Sum:
    runRows<T>(operands, begin, end, [](C x, C y) { return sum<C>(x, y); });
    return DISC_OK;
  case Product:
    runRows<T>(operands, begin, end, [](C x, C y) { return product<C>(x, y); });
    return DISC_OK;
  case Maximum:
  case Minimum:
    runExtrema<T>(operands, operation == Maximum, begin, end);
    return DISC_OK;
  case LogSumExp:
    if constexpr (isReal<T>) {
      runRows<T>(operands, begin, end, [](C x, C y) { return logAddExp<C>(x, y); });
      return DISC_OK;
    }
    break;
  }
  return disc_rt_function_failed(call, DISC_ERROR_TYPE, "elements of this type are not supported");
}
} // namespace

/// x -> values [, indices i64]: along the last dim, each element folded with those before it. config: dtype; operation:
/// 0 sum, 1 product, 2 maximum and 3 minimum (with the index of the last element that is it; NaN wins), 4 log of the
/// sum of exponentials. A task is a row.
int32_t disc_fn_cumulative(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin,
                           int64_t end, void *) {
  return withNumber(call, config[0],
                    [&](auto zero) { return run<decltype(zero)>(call, operands, config[1], begin, end); });
}
