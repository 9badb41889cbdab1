//===- FuzzSafetensors.cpp - files of weights from anywhere ---------------===//
//
// A file that the reader takes must be what it says: tensors within the data, side by side, found by their names.
//
//===----------------------------------------------------------------------===//

#include "HandModel.h"
#include "lib/Runtime/Core/Safetensors.h"
#include "lib/Runtime/Core/Tensor.h"

#include <cstdlib>
#include <cstring>

using namespace disc::rt;

static void require(bool holds) {
  if (!holds)
    std::abort();
}

static void check(const std::string &file) {
  // A copy of exactly that size: a sanitizer sees every byte beyond.
  std::unique_ptr<unsigned char[]> image(new unsigned char[file.size()]);
  std::memcpy(image.get(), file.data(), file.size());
  Safetensors result;
  Status status = Safetensors::read(image.get(), file.size(), "file", result);
  if (!status.ok()) {
    require(status.code() == Code::File && !status.error().message.empty());
    return;
  }
  size_t total = 0;
  unsigned sum = 0;
  for (const StoredTensor &tensor : result.tensors()) {
    int64_t bytes;
    require(denseBytes(tensor.shape.data(), int64_t(tensor.shape.size()), elementBytes(tensor.dtype), bytes));
    require(size_t(bytes) == tensor.bytes && result.find(tensor.name) == &tensor);
    for (size_t i = 0; i < tensor.bytes; ++i)
      sum += tensor.data[i];
    total += tensor.bytes;
  }
  uint64_t header;
  std::memcpy(&header, image.get(), sizeof(header));
  require(total + header + sizeof(header) == file.size() && sum <= 255 * total);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2)
    return 0;
  std::string rest(reinterpret_cast<const char *>(data) + 1, size - 1);
  if (data[0] % 2 == 0)
    check(rest);
  else // the header alone decides
    check(disc::test::safetensorsRaw(rest.substr(1), std::string(uint8_t(rest[0]), 'x')));
  return 0;
}
