//===- Elements.h - what the functions share -------------------*- C++ -*-===//
#ifndef DISC_RUNTIME_FUNCTIONS_ELEMENTS_H
#define DISC_RUNTIME_FUNCTIONS_ELEMENTS_H

#include "lib/Runtime/Functions/Function.h"

namespace disc::rt {

/// Walks the index tuples of some extents in row-major order, and the element offsets of a strided view with them.
class StridedWalk {
public:
  static constexpr int64_t kMaxRank = 32;

  /// Begins at the tuple with the row-major number `first`. `rank` is at most kMaxRank.
  StridedWalk(int64_t rank, const int64_t *dims, const int64_t *strides, int64_t first = 0)
      : rank(rank), dims(dims), strides(strides) {
    for (int64_t i = rank; i-- > 0;) {
      int64_t extent = dims[i] > 0 ? dims[i] : 1;
      index[i] = first % extent;
      first /= extent;
      offset += index[i] * strides[i];
    }
  }

  void next() {
    for (int64_t i = rank; i-- > 0;) {
      offset += strides[i];
      if (++index[i] < dims[i])
        return;
      offset -= index[i] * strides[i];
      index[i] = 0;
    }
  }

  const int64_t rank;
  int64_t offset = 0;
  int64_t index[kMaxRank];

private:
  const int64_t *dims, *strides;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_FUNCTIONS_ELEMENTS_H
