//===- Tensor.cpp - questions about a DLPack tensor -----------------------===//

#include "lib/Runtime/Core/Tensor.h"

#include <cstring>

namespace disc::rt {

std::string dtypeName(int64_t dtype) {
  switch (dtype) {
  case DISC_I8:
    return "int8";
  case DISC_I16:
    return "int16";
  case DISC_I32:
    return "int32";
  case DISC_I64:
    return "int64";
  case DISC_U8:
    return "uint8";
  case DISC_U16:
    return "uint16";
  case DISC_U32:
    return "uint32";
  case DISC_U64:
    return "uint64";
  case DISC_F16:
    return "float16";
  case DISC_F32:
    return "float32";
  case DISC_F64:
    return "float64";
  case DISC_BF16:
    return "bfloat16";
  case DISC_BOOL:
    return "bool";
  case 0x540:
    return "complex64";
  case 0x580:
    return "complex128";
  default:
    return "unknown type (code " + std::to_string(dtype >> 8) + ", " + std::to_string(dtype & 0xff) + " bits)";
  }
}

std::string deviceName(DLDevice device) {
  // The device types of DLPack that a tensor of a framework is likely to have.
  switch (device.device_type) {
  case kDLCPU:
    return "cpu";
  case 2:
    return "cuda:" + std::to_string(device.device_id);
  case 8:
    return "mps";
  case 10:
    return "rocm:" + std::to_string(device.device_id);
  case 14:
    return "xpu:" + std::to_string(device.device_id);
  default:
    return "device type " + std::to_string(device.device_type);
  }
}

std::string shapeText(const int64_t *shape, int64_t rank) {
  std::string text = "[";
  for (int64_t i = 0; i < rank; ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

int64_t numElements(const DLTensor &tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i)
    count *= tensor.shape[i];
  return count;
}

bool isContiguous(const DLTensor &tensor) {
  if (!tensor.strides)
    return true;
  int64_t expected = 1;
  bool dense = true;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0)
      return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected)
      dense = false;
    expected *= tensor.shape[i];
  }
  return dense;
}

/// Copies dims [dim, ndim) of `source`; returns the end of what it wrote.
static char *copyDims(const DLTensor &tensor, int32_t dim, const char *source, int64_t bytes, char *target) {
  if (dim == tensor.ndim) {
    std::memcpy(target, source, bytes);
    return target + bytes;
  }
  int64_t extent = tensor.shape[dim], stride = tensor.strides[dim];
  if (dim == tensor.ndim - 1 && stride == 1) {
    std::memcpy(target, source, extent * bytes);
    return target + extent * bytes;
  }
  for (int64_t i = 0; i < extent; ++i)
    target = copyDims(tensor, dim + 1, source + i * stride * bytes, bytes, target);
  return target;
}

void copyContiguous(const DLTensor &tensor, void *target) {
  int64_t count = numElements(tensor), bytes = elementBytes(dtypeOf(tensor));
  if (count == 0)
    return;
  const char *source = static_cast<const char *>(dataOf(tensor));
  if (isContiguous(tensor))
    std::memcpy(target, source, count * bytes);
  else
    copyDims(tensor, 0, source, bytes, static_cast<char *>(target));
}

} // namespace disc::rt
