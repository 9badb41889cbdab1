//===- Tensor.h - questions about a DLPack tensor ---------------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_TENSOR_H
#define DISC_RUNTIME_CORE_TENSOR_H

#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/disc.h"

#include <string>

namespace disc::rt {

/// The code of ModelInfo.h for a DLPack type, or -1 for a vector type.
inline int64_t dtypeOf(const DLTensor &tensor) {
  if (tensor.dtype.lanes != 1)
    return -1;
  return int64_t(tensor.dtype.code) << 8 | tensor.dtype.bits;
}

/// Bytes of one element in memory; a bool takes one.
inline int64_t elementBytes(int64_t dtype) {
  int64_t bits = dtype & 0xff;
  return (bits + 7) / 8;
}

inline void *dataOf(const DLTensor &tensor) { return static_cast<char *>(tensor.data) + tensor.byte_offset; }

/// "float32", "bfloat16", "bool", or "unknown type (code 7, 8 bits)".
std::string dtypeName(int64_t dtype);

/// "cpu", "cuda:0", ...
std::string deviceName(DLDevice device);

/// "[2, 128]"
std::string shapeText(const int64_t *shape, int64_t rank);

int64_t numElements(const DLTensor &tensor);

/// Whether elements lie row-major without gaps. Extents of 1 may have any stride.
bool isContiguous(const DLTensor &tensor);

/// Copies the elements in row-major order to `target`.
void copyContiguous(const DLTensor &tensor, void *target);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_TENSOR_H
