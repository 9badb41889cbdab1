//===- HandModel.h - compiled libraries, written by hand --------*- C++ -*-===//
//
// What the compiler would emit: entry functions over Abi.h, tables, a descriptor with weights. Two models:
//
//   scale    y[B, S] = x[B, S] * w + g, where init computes g = 2 * w; a second input, mask[B, 3], is only checked
//   nonzero  which of n numbers are not 0: positions[?], of data-dependent extent, and how many as counts[1]
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TEST_RUNTIME_HANDMODEL_H
#define DISC_TEST_RUNTIME_HANDMODEL_H

#include "lib/Runtime/Core/Library.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace disc::test {

//===-- Files of weights --------------------------------------------------===//

struct StoredData {
  std::string name;
  const char *dtype; ///< As the format spells it.
  std::vector<int64_t> shape;
  std::string bytes;
};

std::string bytesOf(const std::vector<float> &values);

/// A file of these tensors, in this order; the data begins at a multiple of 64 bytes.
std::string safetensors(const std::vector<StoredData> &tensors);

/// A file around a header that need not be right.
std::string safetensorsRaw(const std::string &header, const std::string &data);

/// Where a test puts its files; removed at exit.
std::string temporaryPath(const std::string &name);
void writeFile(const std::string &path, const std::string &bytes);
std::string readFile(const std::string &path);

//===-- Libraries ---------------------------------------------------------===//

extern const disc_model_info_t kScaleInfo, kNonzeroInfo;
int32_t scaleInit(disc_call *call), scaleMain(disc_call *call), scaleShapes(disc_call *call);
int32_t nonzeroMain(disc_call *call), nonzeroShapes(disc_call *call);

/// Times that scaleInit ran in this process.
int scaleInits();

struct Library {
  /// `image` may be empty: then the weights are the file `weightsFile`, of `tensors`.
  Library(const disc_model_info_t &info, disc_entry_fn init, disc_entry_fn main, disc_entry_fn shapes,
          std::vector<StoredData> tensors, const char *weightsFile = "");
  Library(const Library &) = delete;

  std::vector<StoredData> data;
  std::unique_ptr<char[]> image;
  std::vector<disc_stored_tensor> tensors;
  disc_variant variant;
  disc_library library;
};

/// scale with w = `weight`; packed: g is in the weights.
std::unique_ptr<Library> scaleLibrary(float weight, bool packed = false, const char *weightsFile = "");
std::unique_ptr<Library> nonzeroLibrary();

/// A file of weights for scale.
std::string scaleWeights(float weight);

//===-- Tensors -----------------------------------------------------------===//

/// A tensor with memory of its own, filled with 0, 1, 2, ...; its struct may be changed at will.
template <typename T> struct Array {
  explicit Array(std::vector<int64_t> dims, uint8_t code, size_t room = 0) : shape(std::move(dims)) {
    size_t count = 1;
    for (int64_t extent : shape)
      count *= size_t(extent);
    data.resize(std::max(std::max(count, room), size_t(1)));
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = T(i);
    tensor = {
        data.data(), {kDLCPU, 0}, int32_t(shape.size()), {code, uint8_t(sizeof(T) * 8), 1}, shape.data(), nullptr, 0};
  }
  Array(const Array &) = delete;

  std::vector<int64_t> shape, strides;
  std::vector<T> data;
  DLTensor tensor;

  void setStrides(std::vector<int64_t> list) {
    strides = std::move(list);
    tensor.strides = strides.data();
  }
};

struct Floats : Array<float> {
  explicit Floats(std::vector<int64_t> dims, size_t room = 0) : Array(std::move(dims), kDLFloat, room) {}
};
struct Doubles : Array<double> {
  explicit Doubles(std::vector<int64_t> dims) : Array(std::move(dims), kDLFloat) {}
};
struct Longs : Array<int64_t> {
  explicit Longs(std::vector<int64_t> dims, size_t room = 0) : Array(std::move(dims), kDLInt, room) {}
};

} // namespace disc::test

#endif // DISC_TEST_RUNTIME_HANDMODEL_H
