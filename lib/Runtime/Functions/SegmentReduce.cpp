//===- SegmentReduce.cpp - rows folded by runs of their own lengths ---------===//

#include "lib/Runtime/Functions/Elements.h"

#include <cstdint>

using namespace disc::rt;

namespace {
enum Fold : int64_t { Sum, Mean, Max, Min, Prod };
} // namespace

/// One segment: rows [begin, end) of `data` [outer, n, inner] into the contiguous row `out`.
template <typename T>
static void foldSegment(const disc_view &data, const disc_view &kept, int64_t outer, int64_t begin, int64_t end,
                        Fold fold, T initial, T empty, T *out) {
  int64_t inner = data.dims[2], step = data.strides[2], count = 0;
  for (int64_t j = 0; j < inner; ++j)
    out[j] = initial;
  for (int64_t i = begin; i < end; ++i) {
    if (!static_cast<const bool *>(kept.data)[outer * kept.strides[0] + i * kept.strides[1]])
      continue;
    ++count;
    const T *row = static_cast<const T *>(data.data) + outer * data.strides[0] + i * data.strides[1];
    for (int64_t j = 0; j < inner; ++j) {
      T v = row[j * step];
      if (fold == Sum || fold == Mean)
        out[j] += v;
      else if (fold == Prod)
        out[j] *= v;
      else if (v != v || (out[j] == out[j] && (fold == Max ? v > out[j] : v < out[j])))
        out[j] = v; // NaN wins
    }
  }
  for (int64_t j = 0; j < inner; ++j) {
    if (count == 0)
      out[j] = empty;
    else if (fold == Mean)
      out[j] /= static_cast<T>(count);
  }
}

template <typename T>
static int32_t foldSegments(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin,
                            int64_t end) {
  const disc_view &data = operands[0], &offsets = operands[1], &kept = operands[2], &result = operands[3];
  int64_t segments = result.dims[1], rows = data.dims[1];
  for (int64_t task = begin; task < end; ++task) {
    int64_t outer = task / segments, segment = task % segments;
    const int64_t *at = static_cast<const int64_t *>(offsets.data) + outer * offsets.strides[0];
    int64_t first = at[segment * offsets.strides[1]], last = at[(segment + 1) * offsets.strides[1]];
    if (first < 0 || last < first || last > rows)
      return disc_rt_function_failed(call, DISC_ERROR_INDEX, "offsets that do not rise from 0 to the number of rows");
    foldSegment<T>(data, kept, outer, first, last, Fold(config[0]), T(configFloat(config[1])),
                   T(configFloat(config[2])), static_cast<T *>(result.data) + task * result.dims[2]);
  }
  return DISC_OK;
}

/// data f32 or f64 [outer, n, inner], offsets i64 [outer, s + 1], kept bool [outer, n] -> the same dtype
/// [outer, s, inner]: the sum, mean, maximum, minimum or product (config 0: Fold) of the kept rows of each segment.
/// Config 1 is what folding starts from, config 2 the result for a segment without rows. A task is a segment.
int32_t disc_fn_segment_reduce(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin,
                               int64_t end, void *) {
  if (operands[0].dtype == DISC_F32)
    return foldSegments<float>(call, operands, config, begin, end);
  if (operands[0].dtype == DISC_F64)
    return foldSegments<double>(call, operands, config, begin, end);
  return disc_rt_function_failed(call, DISC_ERROR_TYPE, "elements of this type");
}
