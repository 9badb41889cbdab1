//===- Sort.cpp - rows in order, and their elements of a rank --------------===//

#include "lib/Runtime/Functions/Order.h"

using namespace disc::rt;

namespace {
/// The first `kept` of a row in order; all entries may be moved.
template <typename T> EntryOf<T> *smallest(EntryOf<T> *entries, EntryOf<T> *spare, int64_t count, int64_t kept) {
  if (kept > count / 4)
    return sortEntries(entries, spare, count);
  std::nth_element(entries, entries + kept, entries + count);
  return sortEntries(entries, spare, kept);
}

/// The first few of a long row in order, without moving the others: those below what is known to be too large are
/// collected, and thinned out whenever there are enough of them.
template <typename T>
EntryOf<T> *smallestFew(EntryOf<T> *found, const T *row, int64_t count, int64_t stride, bool descending, int64_t kept) {
  KeyOf<T> flip = descending ? ~KeyOf<T>(0) : 0, bound = 0;
  int64_t room = 2 * kept + 64, number = 0;
  bool thinned = false;
  for (int64_t i = 0; i < count; ++i) {
    KeyOf<T> key = keyOf(row[i * stride]) ^ flip;
    // Of equal elements the first ones come first.
    if (thinned && key >= bound)
      continue;
    found[number++] = EntryOf<T>(key, uint64_t(i));
    if (number == room) {
      std::nth_element(found, found + kept - 1, found + number);
      number = kept;
      bound = found[kept - 1].key();
      thinned = true;
    }
  }
  std::sort(found, found + number);
  return found;
}

template <typename T>
void sortRows(const disc_view *operands, bool descending, int64_t begin, int64_t end, void *scratch) {
  Rows rows(operands[0], begin);
  int64_t count = rows.length(), kept = operands[1].rank ? operands[1].dims[operands[1].rank - 1] : 1;
  auto *entries = static_cast<EntryOf<T> *>(scratch);
  T *values = dataOf<T>(operands[1]) + begin * kept;
  int64_t *indices = dataOf<int64_t>(operands[2]) + begin * kept;
  for (int64_t row = begin; row < end; ++row, rows.next(), values += kept, indices += kept) {
    const T *from = dataOf<const T>(operands[0]) + rows.offset();
    const EntryOf<T> *sorted = entries;
    if (kept && 2 * kept + 64 < count / 2) {
      sorted = smallestFew<T>(entries, from, count, rows.stride(), descending, kept);
    } else {
      fillEntries(entries, from, count, rows.stride(), descending);
      sorted = smallest<T>(entries, entries + count, count, kept);
    }
    for (int64_t i = 0; i < kept; ++i) {
      int64_t at = sorted[i].position();
      indices[i] = at;
      values[i] = from[at * rows.stride()];
    }
  }
}

enum Statistic : int64_t { Kth, Median, NanMedian, Mode };

/// Moves the entry of rank `k` to its place and compares keys only. A quickselect with the median of three as pivot
/// (Sedgewick, Implementing Quicksort Programs, 1978): of equal entries it finds the one that eager PyTorch finds.
template <typename Entry> void selectEntry(Entry *entries, int64_t count, int64_t k) {
  auto order = [&](int64_t i, int64_t j) {
    if (entries[i].key() > entries[j].key())
      std::swap(entries[i], entries[j]);
  };
  int64_t low = 0, high = count - 1;
  while (high > low + 1) {
    std::swap(entries[low + (high - low) / 2], entries[low + 1]);
    order(low + 1, high);
    order(low, high);
    order(low + 1, low);
    auto pivot = entries[low].key();
    int64_t i = low + 1, j = high;
    while (true) {
      while (pivot > entries[++i].key()) {
      }
      while (entries[--j].key() > pivot) {
      }
      if (j < i)
        break;
      std::swap(entries[i], entries[j]);
    }
    std::swap(entries[low], entries[j]);
    if (j <= k)
      low = i;
    if (j >= k)
      high = j - 1;
  }
  if (high == low + 1)
    order(low, high);
}

/// Of a row: where its element of rank `k`, its median, ... is.
template <typename T>
int64_t selectFrom(const T *row, int64_t count, int64_t stride, Statistic statistic, int64_t k, EntryOf<T> *entries) {
  if (statistic == Median)
    for (int64_t i = 0; i < count; ++i)
      if (isNan(row[i * stride]))
        return i;
  fillEntries(entries, row, count, stride, /*descending=*/false);
  if (statistic == Mode) {
    const EntryOf<T> *sorted = sortEntries(entries, entries + count, count);
    int64_t best = 0, longest = 0;
    for (int64_t i = 0, first = 0; i < count; ++i) {
      // No NaN equals another.
      if (sorted[i].key() != sorted[first].key() || isNan(row[sorted[i].position() * stride]))
        first = i;
      if (i - first + 1 > longest) {
        longest = i - first + 1;
        best = i;
      }
    }
    return sorted[best].position();
  }
  if (statistic == Median) {
    k = (count - 1) / 2;
  } else if (statistic == NanMedian) {
    int64_t numbers = 0;
    for (int64_t i = 0; i < count; ++i)
      numbers += !isNan(row[i * stride]);
    k = numbers ? (numbers - 1) / 2 : 0;
  }
  if (statistic == Kth)
    selectEntry(entries, count, k);
  else
    // Equal elements in the order of their positions, as in a stable sort: eager PyTorch finds the same one.
    std::nth_element(entries, entries + k, entries + count);
  return entries[k].position();
}

template <typename T>
void selectRows(const disc_view *operands, const int64_t *config, int64_t begin, int64_t end, void *scratch) {
  Rows rows(operands[0], begin);
  for (int64_t row = begin; row < end; ++row, rows.next()) {
    const T *from = dataOf<const T>(operands[0]) + rows.offset();
    int64_t at = selectFrom(from, rows.length(), rows.stride(), Statistic(config[1]), config[2],
                            static_cast<EntryOf<T> *>(scratch));
    dataOf<T>(operands[1])[row] = from[at * rows.stride()];
    dataOf<int64_t>(operands[2])[row] = at;
  }
}

int32_t checkLength(disc_call *call, const disc_view &x) {
  if (Rows(x).length() > int64_t(UINT32_MAX))
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "rows of more than 2^32 elements");
  return DISC_OK;
}
} // namespace

/// x -> values, indices i64: the elements of each row (along the last dim) in order, NaN as the largest, equal ones in
/// theirs; only as many as the results have. config: dtype, descending. A task is a row; scratch: 16 bytes for each
/// element of a row, 32 if the dtype has 8.
int32_t disc_fn_sort(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                     void *scratch) {
  if (int32_t status = checkLength(call, operands[0]))
    return status;
  return withNumber(call, config[0], [&](auto zero) {
    sortRows<decltype(zero)>(operands, config[1], begin, end, scratch);
    return DISC_OK;
  });
}

/// x -> values, indices i64 (without the last dim): one element of each row, and where it is. config: dtype; what: 0
/// the one of rank config[2] counted from 0, 1 the lower median (NaN, if there is one), 2 that of the numbers, 3 the
/// most frequent element, the smallest if there are several. Of equal elements a median is the one that a stable sort
/// puts there; of the most frequent ones the last is meant.
/// Tasks and scratch are those of `sort`.
int32_t disc_fn_select(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                       void *scratch) {
  if (int32_t status = checkLength(call, operands[0]))
    return status;
  int64_t count = Rows(operands[0]).length();
  if (count == 0 && begin != end)
    return disc_rt_function_failed(call, DISC_ERROR_INDEX, "a dimension of extent 0 has no elements to choose from");
  if (config[1] == Kth && begin != end && (config[2] < 0 || config[2] >= count))
    return disc_rt_function_failed(call, DISC_ERROR_INDEX, "selected number k out of range for dimension");
  return withNumber(call, config[0], [&](auto zero) {
    selectRows<decltype(zero)>(operands, config, begin, end, scratch);
    return DISC_OK;
  });
}
