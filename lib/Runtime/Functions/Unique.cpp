//===- Unique.cpp - distinct elements and rows -----------------------------===//

#include "lib/Runtime/Functions/Order.h"

using namespace disc::rt;

namespace {
/// As the sort has them equal, but no NaN equals another.
template <typename T> bool differs(T x, T y) { return Compute<T>(x) != Compute<T>(y); }

template <typename T> void unique(const disc_view *operands, bool consecutive, void *scratch) {
  const disc_view &x = operands[0];
  int64_t count = Rows(x).length(), stride = Rows(x).stride();
  const T *from = dataOf<const T>(x);
  T *values = dataOf<T>(operands[1]);
  int64_t *inverse = dataOf<int64_t>(operands[2]), *counts = dataOf<int64_t>(operands[3]);
  const EntryOf<T> *sorted = nullptr;
  if (!consecutive) {
    auto *entries = static_cast<EntryOf<T> *>(scratch);
    fillEntries(entries, from, count, stride, /*descending=*/false);
    sorted = sortEntries(entries, entries + count, count);
  }
  int64_t groups = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = sorted ? sorted[i].position() : i;
    T value = from[at * stride];
    if (i == 0 || differs(value, values[groups - 1])) {
      values[groups] = value;
      counts[groups++] = 0;
    }
    ++counts[groups - 1];
    inverse[at] = groups - 1;
  }
  *dataOf<int64_t>(operands[4]) = groups;
}

template <typename T> void uniqueRows(const disc_view *operands, bool consecutive, void *scratch) {
  const disc_view &x = operands[0];
  int64_t count = x.dims[0], width = x.dims[1];
  const T *from = dataOf<const T>(x);
  auto at = [&](int64_t row, int64_t i) { return from[row * x.strides[0] + i * x.strides[1]]; };
  auto *order = static_cast<int64_t *>(scratch);
  for (int64_t i = 0; i < count; ++i)
    order[i] = i;
  if (!consecutive)
    std::sort(order, order + count, [&](int64_t p, int64_t q) {
      for (int64_t i = 0; i < width; ++i) {
        auto left = keyOf(at(p, i)), right = keyOf(at(q, i));
        if (left != right)
          return left < right;
      }
      return p < q;
    });
  int64_t *first = dataOf<int64_t>(operands[1]), *inverse = dataOf<int64_t>(operands[2]);
  int64_t *counts = dataOf<int64_t>(operands[3]), groups = 0;
  for (int64_t i = 0; i < count; ++i) {
    bool isNew = i == 0;
    for (int64_t k = 0; k < width && !isNew; ++k)
      isNew = differs(at(order[i], k), at(order[i - 1], k));
    if (isNew) {
      first[groups] = order[i];
      counts[groups++] = 0;
    }
    ++counts[groups - 1];
    inverse[order[i]] = groups - 1;
  }
  // What lies behind is read, but not used.
  for (int64_t i = groups; i < count; ++i)
    first[i] = counts[i] = 0;
  *dataOf<int64_t>(operands[4]) = groups;
}
} // namespace

/// x [n] -> values [n], inverse i64 [n], counts i64 [n], count i64 []: the distinct elements, sorted, or (consecutive)
/// in their order with runs of equal ones as one; which of them each element is; how often each occurs; their number.
/// What lies behind `count` is unspecified. config: dtype, consecutive. One task; scratch as for `sort`.
int32_t disc_fn_unique(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t,
                       void *scratch) {
  if (Rows(operands[0]).length() > int64_t(UINT32_MAX))
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "more than 2^32 elements");
  return withNumber(call, config[0], [&](auto zero) {
    unique<decltype(zero)>(operands, config[1], scratch);
    return DISC_OK;
  });
}

/// x [n, m] -> rows i64 [n], inverse i64 [n], counts i64 [n], count i64 []: the same for rows, in lexicographic order,
/// of which the numbers are given; zeros lie behind. One task; scratch: 8 * n.
int32_t disc_fn_unique_rows(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t,
                            void *scratch) {
  return withNumber(call, config[0], [&](auto zero) {
    uniqueRows<decltype(zero)>(operands, config[1], scratch);
    return DISC_OK;
  });
}
