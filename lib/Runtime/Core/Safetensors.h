//===- Safetensors.h - tensors in a file ------------------------*- C++ -*-===//
//
// The format of https://github.com/huggingface/safetensors: the length of a header (8 bytes, little-endian), the header
// (JSON: of each tensor its dtype, shape and place), the data. Nothing in it is believed before it is checked, so it
// may come from anywhere.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_SAFETENSORS_H
#define DISC_RUNTIME_CORE_SAFETENSORS_H

#include "lib/Runtime/Core/Status.h"

#include <cstddef>
#include <vector>

namespace disc::rt {

struct StoredTensor {
  std::string name;
  int64_t dtype = -1; ///< enum disc_dtype, or DLPack's code and bits for types that no model has.
  std::vector<int64_t> shape;
  const unsigned char *data = nullptr;
  size_t bytes = 0;
};

class Safetensors {
public:
  /// The limits of the format's own reader, and two of ours.
  static constexpr size_t kMaxHeader = 100'000'000;
  static constexpr size_t kMaxTensors = size_t(1) << 20;
  static constexpr size_t kMaxRank = 64;

  /// Reads the header of an image that stays where it is. `name` names it in errors.
  static Status read(const void *image, size_t bytes, const std::string &name, Safetensors &result);

  /// Null if there is no tensor of that name.
  const StoredTensor *find(const std::string &name) const;
  const std::vector<StoredTensor> &tensors() const { return list; }
  const std::string &name() const { return fileName; }

private:
  std::string fileName;
  std::vector<StoredTensor> list; ///< Sorted by name.
};

/// What the format calls an element type; "" if it has no name.
const char *storedTypeName(int64_t dtype);

/// A name from a file, fit for an error text: short, and without control characters.
std::string printable(const std::string &name);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_SAFETENSORS_H
