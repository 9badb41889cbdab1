//===- Scatter.cpp - updates at places that tensors tell -------------------===//
//
// scatter, index_put, index_add and their kin are one function: loops over `values`, of which some run along a dim of
// the target, and the numbers in index tensors for the other dims of the target.
//
// The tasks are parts of one dim of the target. Each goes through all updates in row-major order and does those that
// fall into its part, so that an element gets its updates in that order whatever the number of threads.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/Numbers.h"

#include <algorithm>
#include <cstdio>

using namespace disc::rt;

namespace {
enum Operation : int64_t { Set, Add, Multiply, Minimum, Maximum };

constexpr int kMaxIndices = 16;
constexpr int kMaxLoops = int(StridedWalk::kMaxRank);

/// One loop over the updates.
struct Loop {
  int64_t extent, target, values; ///< Strides in elements.
  int64_t index[kMaxIndices];
};

struct Updates {
  // The loops that move an index, then those that only copy along.
  Loop outer[kMaxLoops], inner[kMaxLoops];
  int numOuter = 0, numInner = 0, numIndices = 0;
  bool empty = false;
  const int64_t *indices[kMaxIndices];
  int64_t extents[kMaxIndices], strides[kMaxIndices]; ///< Of the dims that the indices are for.
  bool wrap = false;
  /// Updates whose first index lies outside are other tasks'.
  int64_t low = 0, high = INT64_MAX;
  int64_t wrong = 0, wrongExtent = -1;
};

template <typename T, int64_t kOperation> inline void apply(T &to, T from) {
  if constexpr (kOperation == Set)
    to = from;
  else if constexpr (kOperation == Add)
    to = T(sum<Compute<T>>(to, from));
  else if constexpr (kOperation == Multiply)
    to = T(product<Compute<T>>(to, from));
  else if constexpr (kOperation == Minimum)
    to = T(smaller<Compute<T>>(to, from));
  else
    to = T(larger<Compute<T>>(to, from));
}

template <typename T, int64_t kOperation> void applyRow(T *to, const T *from, int64_t count, int64_t step, int64_t by) {
  if (step == 1 && by == 1) {
    for (int64_t i = 0; i < count; ++i)
      apply<T, kOperation>(to[i], from[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    apply<T, kOperation>(to[i * step], from[i * by]);
}

template <typename T, int64_t kOperation> void applyInner(const Updates &updates, int level, T *to, const T *from) {
  if (level == updates.numInner)
    return apply<T, kOperation>(*to, *from);
  const Loop &loop = updates.inner[level];
  if (level == updates.numInner - 1)
    return applyRow<T, kOperation>(to, from, loop.extent, loop.target, loop.values);
  for (int64_t i = 0; i < loop.extent; ++i)
    applyInner<T, kOperation>(updates, level + 1, to + i * loop.target, from + i * loop.values);
}

/// One index, and rows that lie together: what message passing and most assignments are. Blocks of the indices are
/// first searched for this task's, so that the rows' memory can be asked for ahead. False if an index is out of range.
template <typename T, int64_t kOperation>
bool applyRows(Updates &updates, const Loop &loop, T *to, const T *from, const int64_t *index) {
  constexpr int64_t kBlock = 256, kAhead = 4;
  int64_t extent = updates.extents[0], stride = updates.strides[0],
          width = updates.numInner ? updates.inner[0].extent : 1;
  uint64_t part = uint64_t(updates.high) - uint64_t(updates.low);
  // The place that an index means; false if it is out of range.
  auto find = [&](int64_t i, int64_t &place) {
    int64_t at = index[i * loop.index[0]];
    place = updates.wrap && at < 0 ? int64_t(uint64_t(at) + uint64_t(extent)) : at;
    if (uint64_t(place) < uint64_t(extent))
      return true;
    updates.wrong = at;
    updates.wrongExtent = extent;
    return false;
  };
  int64_t place;
  if (width == 1 && updates.low <= 0 && part >= uint64_t(extent)) {
    // Single elements, all of them this task's: there is nothing to search for, and processors look ahead themselves.
    for (int64_t i = 0; i < loop.extent; ++i) {
      if (!find(i, place))
        return false;
      apply<T, kOperation>(to[place * stride + i * loop.target], from[i * loop.values]);
    }
    return true;
  }
  int64_t targets[kBlock + kAhead], sources[kBlock + kAhead];
  for (int64_t first = 0; first < loop.extent; first += kBlock) {
    int64_t last = std::min(first + kBlock, loop.extent), found = 0;
    for (int64_t i = first; i < last; ++i) {
      if (!find(i, place))
        return false;
      targets[found] = place * stride + i * loop.target;
      sources[found] = i * loop.values;
      found += uint64_t(place) - uint64_t(updates.low) < part;
    }
    for (int64_t i = found; i < found + kAhead; ++i) {
      targets[i] = found ? targets[found - 1] : 0;
      sources[i] = found ? sources[found - 1] : 0;
    }
    for (int64_t i = 0; i < found; ++i) {
      __builtin_prefetch(from + sources[i + kAhead]);
      __builtin_prefetch(to + targets[i + kAhead], 1);
      T *row = to + targets[i];
      const T *source = from + sources[i];
      for (int64_t j = 0; j < width; ++j)
        apply<T, kOperation>(row[j], source[j]);
    }
  }
  return true;
}

/// False if an index is out of range.
template <typename T, int64_t kOperation>
bool applyOuter(Updates &updates, int level, T *to, const T *from, const int64_t *const *indices) {
  int64_t count = level < updates.numOuter ? updates.outer[level].extent : 1;
  Loop none = {};
  const Loop &loop = level < updates.numOuter ? updates.outer[level] : none;
  if (level < updates.numOuter - 1) {
    const int64_t *moved[kMaxIndices];
    for (int64_t i = 0; i < count; ++i) {
      for (int k = 0; k < updates.numIndices; ++k)
        moved[k] = indices[k] + i * loop.index[k];
      if (!applyOuter<T, kOperation>(updates, level + 1, to + i * loop.target, from + i * loop.values, moved))
        return false;
    }
    return true;
  }
  bool dense =
      updates.numInner == 0 || (updates.numInner == 1 && updates.inner[0].target == 1 && updates.inner[0].values == 1);
  if (updates.numOuter && updates.numIndices == 1 && dense)
    return applyRows<T, kOperation>(updates, loop, to, from, indices[0]);
  for (int64_t i = 0; i < count; ++i) {
    T *at = to + i * loop.target;
    bool mine = true;
    for (int k = 0; k < updates.numIndices; ++k) {
      int64_t index = indices[k][i * loop.index[k]], extent = updates.extents[k];
      if (uint64_t(index) >= uint64_t(extent)) {
        if (!updates.wrap || index >= extent || index < -extent) {
          updates.wrong = index;
          updates.wrongExtent = extent;
          return false;
        }
        index += extent;
      }
      mine &= k || (index >= updates.low && index < updates.high);
      at += index * updates.strides[k];
    }
    if (mine)
      applyInner<T, kOperation>(updates, 0, at, from + i * loop.values);
  }
  return true;
}

template <typename T> bool applyAll(int64_t operation, Updates &updates, T *to, const T *from) {
  if (updates.empty)
    return true;
  switch (operation) {
  case Set:
    return applyOuter<T, Set>(updates, 0, to, from, updates.indices);
  case Add:
    return applyOuter<T, Add>(updates, 0, to, from, updates.indices);
  case Multiply:
    return applyOuter<T, Multiply>(updates, 0, to, from, updates.indices);
  case Minimum:
    return applyOuter<T, Minimum>(updates, 0, to, from, updates.indices);
  default:
    return applyOuter<T, Maximum>(updates, 0, to, from, updates.indices);
  }
}

/// The operation's numbers, in their order.
struct Config {
  int64_t dtype, operation, hasSelf, fill, wrap, parts, numLoops, numIndices;
  int64_t dims[]; ///< Of each loop the target's dim that it runs along, or -1; then of each index the dim it is for.
};

/// target[low:high] along `split` from self, or filled.
template <typename T>
void copySelf(const Config &config, const disc_view *self, const disc_view &target, int split, int64_t low,
              int64_t high) {
  if (self && self->data == target.data)
    return; // in place
  int64_t dims[kMaxLoops], offset = 0, count = 1;
  for (int d = 0; d < target.rank; ++d) {
    dims[d] = d == split ? high - low : target.dims[d];
    count *= dims[d];
  }
  if (count == 0)
    return;
  int64_t fromOffset = 0;
  if (target.rank) {
    offset = low * target.strides[split];
    fromOffset = self ? low * self->strides[split] : 0;
  }
  // Inner dims that lie together in both are one row.
  int64_t length = 1, rank = target.rank;
  while (rank > 0 && target.strides[rank - 1] == length && (!self || self->strides[rank - 1] == length))
    length *= dims[--rank];
  int64_t step = 1;
  if (self && rank == target.rank && rank > 0) {
    length = dims[--rank];
    step = self->strides[rank];
  }
  StridedWalk to(rank, dims, target.strides), from(self ? rank : 0, dims, self ? self->strides : nullptr);
  double number = configFloat(config.fill);
  T fill = std::is_integral_v<T> ? T(config.fill) : T(Compute<T>(number));
  for (int64_t row = 0; row < count; row += length) {
    T *into = dataOf<T>(target) + offset + to.offset;
    if (!self) {
      std::fill(into, into + length, fill);
    } else {
      const T *source = dataOf<const T>(*self) + fromOffset + from.offset;
      if (step == 1)
        std::copy(source, source + length, into);
      else
        for (int64_t i = 0; i < length; ++i)
          into[i] = source[i * step];
      from.next();
    }
    to.next();
  }
}

bool movesIndex(const Loop &loop, int numIndices) {
  for (int k = 0; k < numIndices; ++k)
    if (loop.index[k] != 0)
      return true;
  return false;
}

/// The target's dim whose parts are the tasks.
int chooseSplit(const Config &config, const disc_view &target) {
  const int64_t *loops = config.dims, *indexed = config.dims + config.numLoops;
  int first = config.numIndices ? int(indexed[0]) : int(target.rank);
  int64_t enough = 2 * config.parts;
  int best = -1;
  for (int64_t l = 0; l < config.numLoops; ++l) {
    if (loops[l] < 0)
      continue;
    if (loops[l] < first && target.dims[loops[l]] >= enough)
      return int(loops[l]);
    if (best < 0 || target.dims[loops[l]] > target.dims[best])
      best = int(loops[l]);
  }
  if (config.numIndices && (best < 0 || target.dims[first] >= enough || target.dims[first] >= target.dims[best]))
    return first;
  return best < 0 ? 0 : best;
}

template <typename T>
int32_t scatter(disc_call *call, const Config &config, const disc_view *operands, int64_t begin, int64_t end) {
  const disc_view *self = config.hasSelf ? operands : nullptr;
  const disc_view &values = operands[config.hasSelf ? 1 : 0], *indices = &values + 1;
  const disc_view &target = indices[config.numIndices];
  const int64_t *loops = config.dims, *indexed = config.dims + config.numLoops;
  if (target.rank == 0) { // one element, which the first task does
    begin = begin == 0 ? 0 : config.parts;
    end = config.parts;
  }
  int split = chooseSplit(config, target);
  int64_t extent = target.rank ? target.dims[split] : 1;
  int64_t low = extent * begin / config.parts, high = extent * end / config.parts;
  if (target.rank == 0 ? begin != 0 : low == high && begin != 0)
    return DISC_OK;
  copySelf<T>(config, self, target, split, low, high);

  Updates updates;
  updates.wrap = config.wrap;
  updates.numIndices = int(config.numIndices);
  for (int k = 0; k < updates.numIndices; ++k) {
    updates.indices[k] = dataOf<const int64_t>(indices[k]);
    updates.extents[k] = target.dims[indexed[k]];
    updates.strides[k] = target.strides[indexed[k]];
  }
  if (updates.numIndices && indexed[0] == split) {
    updates.low = low;
    updates.high = high;
  }
  T *to = dataOf<T>(target);
  const T *from = dataOf<const T>(values);
  for (int64_t l = 0; l < config.numLoops; ++l) {
    Loop loop = {values.dims[l], loops[l] < 0 ? 0 : target.strides[loops[l]], values.strides[l], {}};
    for (int k = 0; k < updates.numIndices; ++k)
      loop.index[k] = indices[k].strides[l];
    if (loops[l] == split && loop.extent) {
      // Beyond the part of a task there are only other tasks' updates.
      int64_t last = std::min(high, loop.extent);
      to += low * loop.target;
      from += low * loop.values;
      for (int k = 0; k < updates.numIndices; ++k)
        updates.indices[k] += low * loop.index[k];
      loop.extent = std::max<int64_t>(last - low, 0);
    }
    updates.empty |= loop.extent == 0;
    if (loop.extent == 1)
      continue;
    if (loops[l] < 0 || movesIndex(loop, updates.numIndices)) {
      updates.outer[updates.numOuter++] = loop;
      continue;
    }
    Loop *before = updates.numInner ? &updates.inner[updates.numInner - 1] : nullptr;
    if (before && before->target == loop.target * loop.extent && before->values == loop.values * loop.extent) {
      loop.extent *= before->extent;
      *before = loop;
    } else {
      updates.inner[updates.numInner++] = loop;
    }
  }
  if (applyAll<T>(config.operation, updates, to, from))
    return DISC_OK;
  char text[128];
  std::snprintf(text, sizeof(text), "index %lld is out of range for a dimension of extent %lld",
                static_cast<long long>(updates.wrong), static_cast<long long>(updates.wrongExtent));
  return disc_rt_function_failed(call, DISC_ERROR_INDEX, text);
}
} // namespace

/// [self], values, index i64... -> self with `values` set, added, ... at the indices. The values and all indices have
/// the extents of the loops. Without `self` the target begins filled with config.fill: an integer, or the bits of a
/// double. config.wrap lets negative indices count from the end. The tasks are config.parts.
int32_t disc_fn_scatter(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                        void *) {
  const auto &numbers = *reinterpret_cast<const Config *>(config);
  if (numbers.numLoops > kMaxLoops || numbers.numIndices > kMaxIndices)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "too many dimensions");
  return withNumber(call, numbers.dtype,
                    [&](auto zero) { return scatter<decltype(zero)>(call, numbers, operands, begin, end); });
}
