//===- Insert.cpp - a tensor with a part of it replaced --------------------===//

#include "lib/Runtime/Functions/Elements.h"

#include <algorithm>
#include <cstdint>

using namespace disc::rt;

/// Elements of extents `dims` from one strided place to another.
template <typename T>
static void copy(T *to, const int64_t *toStrides, const T *from, const int64_t *fromStrides, const int64_t *dims,
                 int64_t rank) {
  if (rank == 0) {
    *to = *from;
    return;
  }
  int64_t extent = dims[0], toStride = toStrides[0], fromStride = fromStrides[0];
  if (rank == 1 && toStride == 1 && fromStride == 1) {
    std::copy_n(from, extent, to);
    return;
  }
  for (int64_t i = 0; i < extent; ++i)
    copy(to + i * toStride, toStrides + 1, from + i * fromStride, fromStrides + 1, dims + 1, rank - 1);
}

template <typename T>
static void insert(const disc_view &x, const disc_view &source, const disc_view &result, int64_t dim, int64_t start,
                   int64_t step) {
  auto *to = static_cast<T *>(result.data);
  if (x.data != result.data)
    copy(to, result.strides, static_cast<const T *>(x.data), x.strides, x.dims, x.rank);
  int64_t strides[StridedWalk::kMaxRank];
  std::copy_n(result.strides, result.rank, strides);
  strides[dim] *= step;
  copy(to + start * result.strides[dim], strides, static_cast<const T *>(source.data), source.strides, source.dims,
       source.rank);
}

/// x, source -> result: x with `source` in the place of its elements start, start + step, ... along dim; they lie
/// inside. In place, only those are written. config: dim, start, step. One task.
int32_t disc_fn_insert(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t, void *) {
  const disc_view &x = operands[0], &source = operands[1], &result = operands[2];
  if (x.rank > StridedWalk::kMaxRank)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "a tensor of more than 32 dimensions");
  switch (x.dtype & 0xff) {
  case 8:
    insert<uint8_t>(x, source, result, config[0], config[1], config[2]);
    return DISC_OK;
  case 16:
    insert<uint16_t>(x, source, result, config[0], config[1], config[2]);
    return DISC_OK;
  case 32:
    insert<uint32_t>(x, source, result, config[0], config[1], config[2]);
    return DISC_OK;
  case 64:
    insert<uint64_t>(x, source, result, config[0], config[1], config[2]);
    return DISC_OK;
  }
  return disc_rt_function_failed(call, DISC_ERROR_TYPE, "elements of an unknown size");
}
