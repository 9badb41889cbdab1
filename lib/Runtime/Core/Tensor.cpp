//===- Tensor.cpp - questions about a DLPack tensor -----------------------===//

#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

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
  case kDLCUDA:
    return "cuda:" + std::to_string(device.device_id);
  case 8:
    return "mps";
  case kDLROCM:
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

std::string dtypeName(const DLTensor &tensor) {
  std::string name = dtypeName(int64_t(tensor.dtype.code) << 8 | tensor.dtype.bits);
  return tensor.dtype.lanes == 1 ? name : "vectors of " + std::to_string(tensor.dtype.lanes) + " " + name;
}

bool denseBytes(const int64_t *shape, int64_t rank, int64_t elementBytes, int64_t &bytes) {
  bytes = elementBytes;
  bool empty = false, fits = true;
  for (int64_t i = 0; i < rank; ++i) {
    if (shape[i] < 0)
      return false;
    empty |= shape[i] == 0;
    fits = fits && !__builtin_mul_overflow(bytes, shape[i], &bytes);
  }
  if (empty)
    bytes = 0;
  return empty || fits;
}

bool byteRange(const DLTensor &tensor, ByteRange &range) {
  range = {};
  int64_t width = elementBytes(dtypeOf(tensor)), bytes, low = 0, high = width;
  uintptr_t data = reinterpret_cast<uintptr_t>(tensor.data);
  if (!denseBytes(tensor.shape, tensor.ndim, width, bytes) ||
      __builtin_add_overflow(data, tensor.byte_offset, &data)) // of an empty tensor too: its start is computed
    return false;
  if (bytes == 0)
    return true;
  if (!tensor.strides)
    high = bytes;
  for (int32_t i = 0; tensor.strides && i < tensor.ndim; ++i) {
    int64_t reach;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) ||
        __builtin_mul_overflow(reach, width, &reach) ||
        __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
      return false;
  }
  return !__builtin_add_overflow(data, low, &range.begin) && !__builtin_add_overflow(data, high, &range.end);
}

namespace {
/// Looks for two elements, one of each tensor, that share a byte: whether a sum of `factor * step`, with each factor in
/// a range of its own, lies in an interval. Large steps are tried first, so that the rest decides most factors at once.
class OverlapSearch {
public:
  void add(const DLTensor &tensor, int64_t width, int64_t sign);
  bool find(int64_t low, int64_t high);

private:
  struct Step {
    int64_t bytes, low, high; ///< The range of the factor.
  };
  /// What the steps from one on can add up to.
  struct Rest {
    int64_t low = 0, high = 0, divisor = 0;
  };
  bool search(size_t i, int64_t low, int64_t high);

  std::vector<Step> steps;
  std::vector<Rest> rests;
  int budget = 1000;
};
} // namespace

void OverlapSearch::add(const DLTensor &tensor, int64_t width, int64_t sign) {
  int64_t dense = width;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    int64_t extent = tensor.shape[i];
    // The stride of a dim of one element may be any number: only what the range of bytes bounds is multiplied.
    if (extent == 1)
      continue;
    int64_t bytes = tensor.strides ? tensor.strides[i] * width : dense;
    if (!tensor.strides)
      dense *= extent;
    if (bytes == 0)
      continue;
    int64_t reach = bytes < 0 ? -sign : sign;
    bytes = std::abs(bytes);
    auto same = std::find_if(steps.begin(), steps.end(), [&](const Step &step) { return step.bytes == bytes; });
    if (same == steps.end())
      same = steps.insert(steps.end(), {bytes, 0, 0});
    (reach > 0 ? same->high : same->low) += reach * (extent - 1);
  }
}

bool OverlapSearch::find(int64_t low, int64_t high) {
  std::sort(steps.begin(), steps.end(), [](const Step &a, const Step &b) { return a.bytes > b.bytes; });
  rests.resize(steps.size() + 1);
  for (size_t i = steps.size(); i-- > 0;) {
    rests[i].low = rests[i + 1].low + steps[i].low * steps[i].bytes;
    rests[i].high = rests[i + 1].high + steps[i].high * steps[i].bytes;
    rests[i].divisor = std::gcd(rests[i + 1].divisor, steps[i].bytes);
  }
  return search(0, low, high);
}

static int64_t floorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

bool OverlapSearch::search(size_t i, int64_t low, int64_t high) {
  const Rest &rest = rests[i];
  low = std::max(low, rest.low);
  high = std::min(high, rest.high);
  if (low > high)
    return false;
  if (i == steps.size())
    return true;
  // A multiple of what divides all steps must lie between.
  if (floorDiv(high, rest.divisor) * rest.divisor < low)
    return false;
  if (i + 1 == steps.size())
    return true;
  const Step &step = steps[i];
  const Rest &next = rests[i + 1];
  int64_t first = std::max(step.low, -floorDiv(next.high - low, step.bytes));
  int64_t last = std::min(step.high, floorDiv(high - next.low, step.bytes));
  for (int64_t factor = first; factor <= last; ++factor)
    if (--budget < 0 || search(i + 1, low - factor * step.bytes, high - factor * step.bytes))
      return true;
  return false;
}

bool mayOverlap(const DLTensor &a, const DLTensor &b) {
  ByteRange first, second;
  if (!byteRange(a, first) || !byteRange(b, second) || !first.overlaps(second))
    return false;
  constexpr uintptr_t kMost = UINTPTR_MAX / 8; // sums of both do not overflow then
  if (first.end - first.begin > kMost || second.end - second.begin > kMost)
    return true;
  int64_t width = elementBytes(dtypeOf(a)), other = elementBytes(dtypeOf(b));
  OverlapSearch search;
  search.add(a, width, 1);
  search.add(b, other, -1);
  int64_t distance = static_cast<char *>(dataOf(b)) - static_cast<char *>(dataOf(a));
  return search.find(distance - width + 1, distance + other - 1);
}

bool repeatsElements(const DLTensor &tensor) {
  bool repeats = false;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0)
      return false;
    repeats |= tensor.strides && tensor.strides[i] == 0 && tensor.shape[i] > 1;
  }
  return repeats;
}

bool isContiguous(const int64_t *shape, const int64_t *strides, int64_t rank) {
  if (!strides || std::find(shape, shape + rank, 0) != shape + rank)
    return true;
  int64_t expected = 1;
  for (int64_t i = rank - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected)
      return false;
    if (__builtin_mul_overflow(expected, shape[i], &expected))
      return false;
  }
  return true;
}

bool isContiguous(const DLTensor &tensor) { return isContiguous(tensor.shape, tensor.strides, tensor.ndim); }

namespace {
template <size_t Bytes> struct Element {
  char bytes[Bytes];
};

enum class Direction { Gather, Scatter };

constexpr int64_t kMaxDims = 64;
/// Elements on a side of the tiles in which a matrix is transposed: a tile's lines stay in the fastest cache.
constexpr int64_t kTile = 16;

/// A strided place and the dense run that takes its elements: the dims without those of extent 1, and with those joined
/// that lie behind each other in both.
struct StridedDims {
  int64_t shape[kMaxDims], strides[kMaxDims], denseStrides[kMaxDims];
  int64_t rank = 0;
  int64_t unit = -1; ///< A dim but the last whose neighbours are neighbours in the strided place, or -1.

  StridedDims(const int64_t *extents, const int64_t *steps, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (extents[i] == 1)
        continue;
      if (rank && strides[rank - 1] == steps[i] * extents[i]) {
        shape[rank - 1] *= extents[i];
        strides[rank - 1] = steps[i];
        continue;
      }
      shape[rank] = extents[i], strides[rank++] = steps[i];
    }
    for (int64_t i = rank - 1, dense = 1; i >= 0; dense *= shape[i--]) {
      denseStrides[i] = dense;
      if (i < rank - 1 && strides[i] == 1)
        unit = i;
    }
  }
};

template <typename T, Direction direction> struct StridedCopy {
  const StridedDims &dims;

  void move(T *strided, T *dense, int64_t count = 1) {
    if (direction == Direction::Gather)
      std::memcpy(dense, strided, size_t(count) * sizeof(T));
    else
      std::memcpy(strided, dense, size_t(count) * sizeof(T));
  }
  void run(T *strided, T *dense, int64_t dim = 0) {
    int64_t last = dims.rank - 1;
    if (dims.rank == 0)
      return move(strided, dense);
    if (dim == last)
      return dims.unit < 0 ? line(strided, dense) : matrix(strided, dense);
    if (dim == dims.unit)
      return run(strided, dense, dim + 1);
    for (int64_t i = 0; i < dims.shape[dim]; ++i)
      run(strided + i * dims.strides[dim], dense + i * dims.denseStrides[dim], dim + 1);
  }
  void line(T *strided, T *dense) {
    int64_t extent = dims.shape[dims.rank - 1], stride = dims.strides[dims.rank - 1];
    if (stride == 1)
      return move(strided, dense, extent);
    for (int64_t i = 0; i < extent; ++i)
      move(strided + i * stride, dense + i);
  }
  /// The last dim by the one with neighbours.
  void matrix(T *strided, T *dense) {
    int64_t across = dims.shape[dims.rank - 1], stride = dims.strides[dims.rank - 1];
    int64_t down = dims.shape[dims.unit], denseStride = dims.denseStrides[dims.unit];
    for (int64_t top = 0; top < down; top += kTile)
      for (int64_t left = 0; left < across; left += kTile) {
        int64_t rows = std::min(kTile, down - top), columns = std::min(kTile, across - left);
        for (int64_t i = top; i < top + rows; ++i)
          for (int64_t j = left; j < left + columns; ++j)
            move(strided + i + j * stride, dense + i * denseStride + j);
      }
  }
};
} // namespace

template <Direction direction>
static void copyStrided(int64_t width, const int64_t *shape, const int64_t *strides, int64_t rank, void *strided,
                        void *dense) {
  if (rank > kMaxDims) {
    int64_t inner = width;
    for (int64_t i = 1; i < rank; ++i)
      inner *= shape[i];
    for (int64_t i = 0; i < shape[0]; ++i)
      copyStrided<direction>(width, shape + 1, strides + 1, rank - 1,
                             static_cast<char *>(strided) + i * strides[0] * width,
                             static_cast<char *>(dense) + i * inner);
    return;
  }
  StridedDims dims(shape, strides, rank);
  auto run = [&](auto element) {
    using T = decltype(element);
    StridedCopy<T, direction>{dims}.run(static_cast<T *>(strided), static_cast<T *>(dense));
  };
  switch (width) {
  case 1:
    return run(Element<1>());
  case 2:
    return run(Element<2>());
  case 4:
    return run(Element<4>());
  case 8:
    return run(Element<8>());
  default: // complex128, the widest type that DLPack has
    return run(Element<16>());
  }
}

void copyContiguous(const DLTensor &tensor, void *target) {
  int64_t width = elementBytes(dtypeOf(tensor)), bytes;
  if (!denseBytes(tensor.shape, tensor.ndim, width, bytes) || bytes == 0)
    return;
  if (isContiguous(tensor))
    std::memcpy(target, dataOf(tensor), size_t(bytes));
  else
    copyStrided<Direction::Gather>(width, tensor.shape, tensor.strides, tensor.ndim, dataOf(tensor), target);
}

void scatterContiguous(const void *source, const int64_t *dims, const DLTensor &tensor) {
  int64_t width = elementBytes(dtypeOf(tensor)), bytes;
  if (!denseBytes(dims, tensor.ndim, width, bytes) || bytes == 0)
    return;
  if (isContiguous(dims, tensor.strides, tensor.ndim))
    std::memcpy(dataOf(tensor), source, size_t(bytes));
  else
    copyStrided<Direction::Scatter>(width, dims, tensor.strides, tensor.ndim, dataOf(tensor),
                                    const_cast<void *>(source));
}

} // namespace disc::rt
