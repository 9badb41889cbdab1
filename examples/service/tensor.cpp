//===- tensor.cpp - tensors of requests and answers -----------------------===//

#include "tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

namespace service {

namespace {
struct Entry {
  Datatype type;
  const char *name;
  size_t bytes;
};

/// In the order of the enumeration.
constexpr Entry kDatatypes[] = {
    {Datatype::Bool, "BOOL", 1},     {Datatype::UInt8, "UINT8", 1},   {Datatype::UInt16, "UINT16", 2},
    {Datatype::UInt32, "UINT32", 4}, {Datatype::UInt64, "UINT64", 8}, {Datatype::Int8, "INT8", 1},
    {Datatype::Int16, "INT16", 2},   {Datatype::Int32, "INT32", 4},   {Datatype::Int64, "INT64", 8},
    {Datatype::FP16, "FP16", 2},     {Datatype::BF16, "BF16", 2},     {Datatype::FP32, "FP32", 4},
    {Datatype::FP64, "FP64", 8},
};

constexpr std::align_val_t kAlignment{64};
} // namespace

const char *datatypeName(Datatype type) { return kDatatypes[size_t(type)].name; }

size_t elementBytes(Datatype type) { return kDatatypes[size_t(type)].bytes; }

std::optional<Datatype> parseDatatype(std::string_view name) {
  for (const Entry &entry : kDatatypes)
    if (name == entry.name)
      return entry.type;
  return std::nullopt;
}

std::string shapeText(const Shape &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::optional<size_t> countElements(const Shape &shape, Datatype type) {
  const size_t most = size_t(std::numeric_limits<std::ptrdiff_t>::max()) / elementBytes(type);
  size_t count = 1;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0)
      return std::nullopt;
    empty |= extent == 0;
    if (extent > 0 && count > most / size_t(extent))
      return std::nullopt;
    count *= extent > 0 ? size_t(extent) : 1;
  }
  return empty ? 0 : count;
}

size_t Tensor::count() const {
  size_t result = 1;
  for (int64_t extent : shape)
    result *= size_t(extent);
  return result;
}

Tensor Tensor::make(Datatype type, Shape shape) {
  Tensor tensor{type, std::move(shape), nullptr};
  size_t bytes = std::max<size_t>(tensor.bytes(), 1);
  tensor.data = std::shared_ptr<char>(static_cast<char *>(::operator new(bytes, kAlignment)),
                                      [](char *data) { ::operator delete(data, kAlignment); });
  return tensor;
}

void copyBlock(const Tensor &from, const Shape &fromBegin, Tensor &to, const Shape &toBegin, const Shape &extent) {
  const size_t rank = extent.size();
  if (std::find(extent.begin(), extent.end(), 0) != extent.end())
    return;
  // Dims from `inner` on are one run of memory in both tensors.
  size_t inner = rank, run = elementBytes(from.type);
  while (inner > 0) {
    --inner;
    run *= size_t(extent[inner]);
    if (extent[inner] != from.shape[inner] || extent[inner] != to.shape[inner])
      break;
  }
  std::vector<size_t> fromStride(rank), toStride(rank);
  size_t fromOffset = 0, toOffset = 0, fromStep = elementBytes(from.type), toStep = fromStep;
  for (size_t d = rank; d-- > 0;) {
    fromStride[d] = fromStep;
    toStride[d] = toStep;
    fromOffset += size_t(fromBegin[d]) * fromStep;
    toOffset += size_t(toBegin[d]) * toStep;
    fromStep *= size_t(from.shape[d]);
    toStep *= size_t(to.shape[d]);
  }
  const char *source = from.data.get() + fromOffset;
  char *target = to.data.get() + toOffset;
  for (Shape index(inner);;) {
    std::memcpy(target, source, run);
    size_t d = inner;
    for (; d-- > 0;) {
      source += fromStride[d];
      target += toStride[d];
      if (++index[d] < extent[d])
        break;
      source -= fromStride[d] * size_t(extent[d]);
      target -= toStride[d] * size_t(extent[d]);
      index[d] = 0;
    }
    if (d == size_t(-1))
      return;
  }
}

template <typename T> static void fillAs(Tensor &tensor, T value) {
  std::fill_n(tensor.as<T>(), tensor.count(), value);
}

void fill(Tensor &tensor, double value) {
  switch (tensor.type) {
  case Datatype::Bool:
    return fillAs<uint8_t>(tensor, value != 0);
  case Datatype::UInt8:
    return fillAs(tensor, uint8_t(value));
  case Datatype::UInt16:
    return fillAs(tensor, uint16_t(value));
  case Datatype::UInt32:
    return fillAs(tensor, uint32_t(value));
  case Datatype::UInt64:
    return fillAs(tensor, uint64_t(value));
  case Datatype::Int8:
    return fillAs(tensor, int8_t(value));
  case Datatype::Int16:
    return fillAs(tensor, int16_t(value));
  case Datatype::Int32:
    return fillAs(tensor, int32_t(value));
  case Datatype::Int64:
    return fillAs(tensor, int64_t(value));
  case Datatype::FP16:
    return fillAs(tensor, toHalf(float(value)));
  case Datatype::BF16:
    return fillAs(tensor, toBFloat(float(value)));
  case Datatype::FP32:
    return fillAs(tensor, float(value));
  case Datatype::FP64:
    return fillAs(tensor, value);
  }
}

static uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

uint16_t toBFloat(float value) {
  uint32_t bits = bitsOf(value);
  if (std::isnan(value))
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // to the nearest, ties to even
}

float fromBFloat(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

uint16_t toHalf(float value) {
  uint16_t sign = uint16_t(bitsOf(value) >> 16 & 0x8000);
  double magnitude = std::fabs(double(value));
  if (std::isnan(value))
    return uint16_t(sign | 0x7e00);
  if (magnitude >= 65520) // half way from the largest number to the next power of 2
    return uint16_t(sign | 0x7c00);
  int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  // In units of the last place; nearbyint rounds ties to even. A carry goes into the exponent, as it should.
  auto units = uint32_t(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  uint32_t bits = magnitude < 0x1p-14 ? units : uint32_t((exponent + 14) * 1024) + units;
  return uint16_t(sign | bits);
}

float fromHalf(uint16_t bits) {
  int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  float value = exponent == 0x1f ? (fraction ? std::numeric_limits<float>::quiet_NaN() : HUGE_VALF)
                : exponent       ? std::ldexp(float(fraction + 1024), exponent - 25)
                                 : std::ldexp(float(fraction), -24);
  return bits & 0x8000 ? -value : value;
}

} // namespace service
