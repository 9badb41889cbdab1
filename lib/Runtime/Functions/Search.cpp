//===- Search.cpp - positions in sorted rows -------------------------------===//

#include "lib/Runtime/Functions/Numbers.h"

using namespace disc::rt;

namespace {
/// The place of `value` among `count` sorted ones, before or (`right`) behind its equals. As PyTorch compares: a NaN is
/// behind everything.
template <typename T>
int64_t search(const T *row, int64_t stride, const int64_t *sorter, int64_t sorterStride, int64_t count, T value,
               bool right) {
  int64_t low = 0, high = count;
  auto wanted = Compute<T>(value);
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    auto here = Compute<T>(row[(sorter ? sorter[middle * sorterStride] : middle) * stride]);
    bool behind = right ? !(here > wanted) : !(here >= wanted);
    if (behind)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <typename T>
int32_t searchAll(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end) {
  bool right = config[1], hasSorter = config[2];
  int64_t parts = config[3];
  const disc_view &sorted = operands[0], &values = operands[1], *sorter = hasSorter ? &operands[2] : nullptr;
  const disc_view &result = operands[hasSorter ? 3 : 2];
  int64_t total = numElements(values), first = total * begin / parts, last = total * end / parts;
  if (first == last)
    return DISC_OK;
  int64_t length = values.rank ? values.dims[values.rank - 1] : 1;
  bool single = sorted.rank == 1;
  int64_t row = first / length;
  Rows rows(sorted, single ? 0 : row), sorters(hasSorter ? *sorter : sorted, single ? 0 : row);
  StridedWalk walk(values.rank, values.dims, values.strides, first);
  const int64_t *by = nullptr;
  for (int64_t i = first; i < last; ++i, walk.next()) {
    bool begins = i == first;
    if (i / length != row) {
      row = i / length;
      if (!single) {
        rows.next();
        sorters.next();
        begins = true;
      }
    }
    if (begins && hasSorter) {
      by = dataOf<const int64_t>(*sorter) + sorters.offset();
      for (int64_t k = 0; k < rows.length(); ++k)
        if (uint64_t(by[k * sorters.stride()]) >= uint64_t(rows.length()))
          return disc_rt_function_failed(call, DISC_ERROR_INDEX, "sorter index out of range");
    }
    dataOf<int64_t>(result)[i] = search(dataOf<const T>(sorted) + rows.offset(), rows.stride(), by, sorters.stride(),
                                        rows.length(), dataOf<const T>(values)[walk.offset], right);
  }
  return DISC_OK;
}
} // namespace

/// sorted, values, [sorter i64] -> i64: for each value its place in its sorted row, or in the only row. config: dtype,
/// right, whether there is a sorter (the order of rows that are not sorted), and the number of tasks.
int32_t disc_fn_searchsorted(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin,
                             int64_t end, void *) {
  return withNumber(call, config[0],
                    [&](auto zero) { return searchAll<decltype(zero)>(call, operands, config, begin, end); });
}
