//===- SpecialMaps.h - functions of numbers as functions of tensors -*- C++ -*-===//
//
// A function of one or two doubles over tensors of f32 or f64 of one shape. Task i does the elements from i * kPerTask.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_FUNCTIONS_SPECIALMAPS_H
#define DISC_RUNTIME_FUNCTIONS_SPECIALMAPS_H

#include "lib/Runtime/Functions/Elements.h"

#include <algorithm>

namespace disc::rt {

constexpr int64_t kPerTask = 1024; // As python/disc/frontend/rules/special.py has it.

template <typename T, double (*fn)(double)> void mapElements(const disc_view *operands, int64_t first, int64_t last) {
  const disc_view &x = operands[0];
  StridedWalk walk(x.rank, x.dims, x.strides, first);
  auto *out = static_cast<T *>(operands[1].data);
  for (int64_t i = first; i < last; ++i, walk.next())
    out[i] = static_cast<T>(fn(static_cast<const T *>(x.data)[walk.offset]));
}

template <typename T, double (*fn)(double, double)>
void mapElements(const disc_view *operands, int64_t first, int64_t last) {
  const disc_view &x = operands[0], &y = operands[1];
  StridedWalk walkX(x.rank, x.dims, x.strides, first), walkY(y.rank, y.dims, y.strides, first);
  auto *out = static_cast<T *>(operands[2].data);
  for (int64_t i = first; i < last; ++i, walkX.next(), walkY.next())
    out[i] =
        static_cast<T>(fn(static_cast<const T *>(x.data)[walkX.offset], static_cast<const T *>(y.data)[walkY.offset]));
}

template <auto fn> int32_t map(disc_call *call, const disc_view *operands, int64_t begin, int64_t end) {
  const disc_view &x = operands[0];
  if (x.rank > StridedWalk::kMaxRank)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "a tensor of more than 32 dimensions");
  int64_t first = begin * kPerTask, last = std::min(end * kPerTask, numElements(x));
  if (x.dtype == DISC_F32)
    mapElements<float, fn>(operands, first, last);
  else if (x.dtype == DISC_F64)
    mapElements<double, fn>(operands, first, last);
  else
    return disc_rt_function_failed(call, DISC_ERROR_TYPE, "elements of this type");
  return DISC_OK;
}

} // namespace disc::rt

/// Defines disc_fn_NAME, which maps `fn` over its inputs: (x) or (x, y) -> result, of one shape.
#define DISC_SPECIAL_MAP(name, fn)                                                                                     \
  int32_t disc_fn_##name(disc_call *call, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,      \
                         void *) {                                                                                     \
    return disc::rt::map<fn>(call, operands, begin, end);                                                              \
  }

#endif // DISC_RUNTIME_FUNCTIONS_SPECIALMAPS_H
