//===- tensor.h - tensors of requests and answers ---------------*- C++ -*-===//

#ifndef SERVICE_TENSOR_H
#define SERVICE_TENSOR_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace service {

/// Those of the Open Inference Protocol that DISC has. (The protocol also has BYTES, for strings.)
enum class Datatype { Bool, UInt8, UInt16, UInt32, UInt64, Int8, Int16, Int32, Int64, FP16, BF16, FP32, FP64 };

/// "BOOL", "UINT8", ..., as the protocol spells them.
const char *datatypeName(Datatype type);
std::optional<Datatype> parseDatatype(std::string_view name);
size_t elementBytes(Datatype type);

using Shape = std::vector<int64_t>;

/// "[2, 3]"
std::string shapeText(const Shape &shape);

/// No value if an extent is negative, or if the product of the others is too large for the address space.
std::optional<size_t> countElements(const Shape &shape, Datatype type);

/// A row-major tensor. Copies share its elements.
struct Tensor {
  Datatype type = Datatype::FP32;
  Shape shape;
  std::shared_ptr<char> data; ///< Aligned for every datatype; never null, even without elements.

  /// Elements are not initialised. Throws std::bad_alloc; the shape must be countable.
  static Tensor make(Datatype type, Shape shape);

  size_t count() const;
  size_t bytes() const { return count() * elementBytes(type); }

  template <typename T> T *as() { return reinterpret_cast<T *>(data.get()); }
  template <typename T> const T *as() const { return reinterpret_cast<const T *>(data.get()); }
};

/// Copies a block of `extent` elements that begins at `fromBegin` in one tensor and at `toBegin` in the other. Both
/// have the same type and rank, and contain the block.
void copyBlock(const Tensor &from, const Shape &fromBegin, Tensor &to, const Shape &toBegin, const Shape &extent);

/// Sets every element. The value must be one of the type's; fractions of integers are cut off.
void fill(Tensor &tensor, double value);

uint16_t toHalf(float value);
float fromHalf(uint16_t bits);
uint16_t toBFloat(float value);
float fromBFloat(uint16_t bits);

} // namespace service

#endif // SERVICE_TENSOR_H
