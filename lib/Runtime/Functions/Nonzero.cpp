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
  int64_t count = 0, total = numElements(x);
  StridedWalk walk(x.rank, x.dims, x.strides);
  for (int64_t i = 0; i < total; ++i, walk.next()) {
    if (!bool(data[walk.offset]))
      continue;
    // No more than there is room for: another thread of the caller's may have changed an input since it was counted.
    if (count < capacity)
      for (int64_t d = 0; d < x.rank; ++d)
        indices[count * x.rank + d] = walk.index[d];
    ++count;
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
