//===- Nonzero.cpp - where a tensor is not zero ----------------------------===//

#include "lib/Runtime/Functions/Elements.h"

#include <cstdint>

using namespace disc::rt;

namespace {
/// Half-precision floats: everything but the sign.
struct HalfBits {
  uint16_t bits;
  explicit operator bool() const { return (bits & 0x7fff) != 0; }
};
} // namespace

template <typename T> static int64_t compact(const disc_view &x, int64_t *indices, int64_t capacity) {
  const T *data = static_cast<const T *>(x.data);
  // Rows along the last dimension; a scalar is a row of one, of which no index is written.
  int64_t rank = x.rank, last = rank ? rank - 1 : 0;
  int64_t width = rank ? x.dims[last] : 1, step = rank ? x.strides[last] : 0;
  int64_t count = 0, rows = width ? numElements(x) / width : 0;
  if (rank == 1 && capacity >= width) {
    // Without a branch that nobody could predict: what is written and not counted is written over.
    for (int64_t i = 0; i < width; ++i) {
      indices[count] = i;
      count += bool(data[i * step]);
    }
    return count;
  }
  StridedWalk walk(last, x.dims, x.strides);
  for (int64_t row = 0; row < rows; ++row, walk.next()) {
    const T *from = data + walk.offset;
    for (int64_t i = 0; i < width; ++i) {
      if (!bool(from[i * step]))
        continue;
      // No more than there is room for: another thread of the caller's may have changed an input since it was counted.
      if (count < capacity && rank) {
        int64_t *to = indices + count * rank;
        for (int64_t d = 0; d < last; ++d)
          to[d] = walk.index[d];
        to[last] = i;
      }
      ++count;
    }
  }
  return count;
}

/// x -> indices i64 [capacity, rank of x], count i64 []: the positions of what is not zero, in row-major order. What
/// lies behind them in `indices` is unspecified. One task.
int32_t disc_fn_nonzero(disc_call *call, const disc_view *operands, const int64_t *, int64_t, int64_t, void *) {
  const disc_view &x = operands[0];
  if (x.rank > StridedWalk::kMaxRank)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "a tensor of more than 32 dimensions");
  auto *indices = static_cast<int64_t *>(operands[1].data);
  int64_t capacity = operands[1].dims[0];
  auto *count = static_cast<int64_t *>(operands[2].data);
  switch (x.dtype) {
  case DISC_BOOL:
  case DISC_I8:
  case DISC_U8:
    *count = compact<uint8_t>(x, indices, capacity);
    return DISC_OK;
  case DISC_I16:
  case DISC_U16:
    *count = compact<uint16_t>(x, indices, capacity);
    return DISC_OK;
  case DISC_F16:
  case DISC_BF16:
    *count = compact<HalfBits>(x, indices, capacity);
    return DISC_OK;
  case DISC_I32:
  case DISC_U32:
    *count = compact<uint32_t>(x, indices, capacity);
    return DISC_OK;
  case DISC_I64:
  case DISC_U64:
    *count = compact<uint64_t>(x, indices, capacity);
    return DISC_OK;
  case DISC_F32:
    *count = compact<float>(x, indices, capacity);
    return DISC_OK;
  case DISC_F64:
    *count = compact<double>(x, indices, capacity);
    return DISC_OK;
  default:
    return disc_rt_function_failed(call, DISC_ERROR_TYPE, "elements of this type");
  }
}
