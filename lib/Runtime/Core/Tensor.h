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

/// Where the first element is; null for an empty tensor without memory.
inline void *dataOf(const DLTensor &tensor) {
  return tensor.data ? static_cast<char *>(tensor.data) + tensor.byte_offset : nullptr;
}

/// "float32", "bfloat16", "bool", or "unknown type (code 7, 8 bits)".
std::string dtypeName(int64_t dtype);

/// "cpu", "cuda:0", ...
std::string deviceName(DLDevice device);

/// Whether a tensor that is on `given` is where it should be. There is one CPU, whatever its number.
inline bool sameDevice(DLDevice given, DLDevice wanted) {
  return given.device_type == wanted.device_type &&
         (wanted.device_type == kDLCPU || given.device_id == wanted.device_id);
}

/// "[2, 128]"
std::string shapeText(const int64_t *shape, int64_t rank);

/// No tensor of a model has more dims; a larger number is not to be trusted.
constexpr int32_t kMaxRank = 64;

/// "float32", or for vectors "vectors of 4 float32".
std::string dtypeName(const DLTensor &tensor);

/// Bytes of the elements without gaps; false if an extent is negative or the product is too large for an int64_t.
bool denseBytes(const int64_t *shape, int64_t rank, int64_t elementBytes, int64_t &bytes);

/// Addresses [begin, end) that the elements lie in, whatever the strides; empty if there are no elements. False if they
/// would go beyond the address space.
struct ByteRange {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const ByteRange &other) const { return begin < other.end && other.begin < end; }
};
bool byteRange(const DLTensor &tensor, ByteRange &range);

/// Whether elements of both share memory, decided by extents and strides: `x[::2]` and `x[1::2]` do not. Also true
/// where that would take too long to decide. Both have valid byte ranges.
bool mayOverlap(const DLTensor &a, const DLTensor &b);

/// Whether several elements are at one place: strides of 0, as `expand` makes them.
bool repeatsElements(const DLTensor &tensor);

/// Whether elements lie row-major without gaps. Extents of 1 may have any stride.
bool isContiguous(const DLTensor &tensor);
bool isContiguous(const int64_t *shape, const int64_t *strides, int64_t rank);

/// Whether kernels of a device with memory of its own may read vectors there; those of the CPU may anywhere.
inline bool suitsKernels(const void *data, DLDevice where) {
  return where.device_type == kDLCPU || reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

/// Whether kernels may access the tensor where it is. Kernels of a device move vectors, also those that the emulated
/// device runs in the memory of this process.
inline bool isAlignedFor(bool ofDevice, const DLTensor &tensor) {
  return !ofDevice || reinterpret_cast<uintptr_t>(dataOf(tensor)) % 16 == 0;
}

/// Whether compiled code can use the tensor where it is.
inline bool inPlace(const DLTensor &tensor) {
  int64_t width = elementBytes(dtypeOf(tensor));
  return isContiguous(tensor) && reinterpret_cast<uintptr_t>(dataOf(tensor)) % uintptr_t(width) == 0;
}

/// Copies the elements in row-major order to `target`.
void copyContiguous(const DLTensor &tensor, void *target);

/// The other way: `source` holds elements of extents `dims`, which go to the first ones of `tensor`, by its strides.
void scatterContiguous(const void *source, const int64_t *dims, const DLTensor &tensor);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_TENSOR_H
