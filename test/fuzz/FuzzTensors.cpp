//===- FuzzTensors.cpp - tensors as a careless caller gives them ----------===//
//
// Bytes decide shapes, strides, types, pointers and counts; memory is there for exactly what a tensor claims, unless it
// claims more than there can be. A call that succeeds must have computed the right thing at the right places.
//
//===----------------------------------------------------------------------===//

#include "HandModel.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fuzzer/FuzzedDataProvider.h>

using namespace disc::test;

static void require(bool holds, int line = __builtin_LINE()) {
  if (!holds && std::fprintf(stderr, "line %d\n", line))
    std::abort();
}

namespace {
/// Large enough for every product; exact where it is small.
using Wide = double;

/// One tensor and its memory.
struct Tensor {
  DLTensor tensor = {};
  int64_t shape[64] = {}, strides[64] = {};
  std::unique_ptr<char[]> memory;
  size_t room = 0;    ///< Bytes of it.
  bool sound = false; ///< Every element that it claims is in `memory`.

  Tensor(FuzzedDataProvider &bytes, DLDataType dtype, std::vector<int64_t> dims) {
    static const int64_t kExtents[] = {-1, 0, 1, 2, 3, 64, 65, INT64_MAX, INT64_MIN, int64_t(1) << 32, 6};
    static const int64_t kStrides[] = {0, 1, 2, -1, -7, 66, 1 << 20, INT64_MAX, INT64_MIN, int64_t(1) << 61};
    tensor.device = {bytes.ConsumeBool() || bytes.ConsumeBool() ? kDLCPU : bytes.ConsumeIntegral<int32_t>(), 0};
    tensor.dtype = dtype;
    uint8_t oddity = bytes.ConsumeIntegral<uint8_t>();
    if (oddity == 1)
      tensor.dtype.code = bytes.ConsumeIntegral<uint8_t>();
    if (oddity == 2)
      tensor.dtype.bits = bytes.ConsumeIntegral<uint8_t>();
    if (oddity == 3)
      tensor.dtype.lanes = bytes.ConsumeIntegral<uint16_t>();
    if (oddity == 4)
      dims.resize(bytes.ConsumeIntegralInRange<size_t>(0, 64));
    tensor.ndim = int32_t(dims.size());
    if (oddity == 5)
      tensor.ndim = bytes.ConsumeBool() ? -bytes.ConsumeIntegralInRange(0, 70) : INT32_MAX;
    for (size_t i = 0; i < dims.size(); ++i)
      shape[i] = bytes.ConsumeIntegralInRange(0, 15) ? dims[i] : bytes.PickValueInArray(kExtents);
    tensor.shape = oddity == 6 ? nullptr : shape;
    int64_t dense = 1;
    bool strided = bytes.ConsumeBool();
    for (size_t i = dims.size(); strided && i-- > 0;) {
      strides[i] = bytes.ConsumeIntegralInRange(0, 7) ? dense : bytes.PickValueInArray(kStrides);
      if (__builtin_mul_overflow(dense, std::max<int64_t>(shape[i], 1), &dense))
        dense = 1;
    }
    tensor.strides = strided ? strides : nullptr;
    tensor.byte_offset = oddity == 7 ? bytes.ConsumeIntegral<uint64_t>() : oddity == 8 ? 1 : 0;
    place(dims.size(), oddity);
  }

  void place(size_t rank, uint8_t oddity) {
    Wide low = 0, high = 0, dense = 1;
    bool empty = false;
    for (size_t i = rank; i-- > 0;) {
      Wide stride = tensor.strides ? Wide(strides[i]) : dense;
      Wide reach = (Wide(shape[i]) - 1) * stride;
      (reach < 0 ? low : high) += reach;
      dense *= Wide(std::max<int64_t>(shape[i], 1));
      empty |= shape[i] <= 0;
    }
    Wide width = (tensor.dtype.bits + 7) / 8;
    Wide size = (high - low + 1) * width;
    if (oddity == 9 || empty || !(size <= (1 << 16)) || tensor.byte_offset > 1) {
      // No memory is so large: what the runtime cannot refuse by arithmetic, it must by the null pointer.
      tensor.data = nullptr;
      sound = empty;
      return;
    }
    room = size_t(size) + 1;
    memory.reset(new char[room]);
    for (size_t i = 0; i < room; ++i)
      memory[i] = char(i * 37 & 0x3f); // no NaN in it
    tensor.data = memory.get() - int64_t(low * width);
    sound = true;
  }

  /// Whether no two elements of a matrix are at one place.
  bool apart() const {
    std::vector<int64_t> places;
    for (int64_t i = 0; tensor.strides && i < shape[0]; ++i)
      for (int64_t j = 0; j < shape[1]; ++j)
        places.push_back(i * strides[0] + j * strides[1]);
    std::sort(places.begin(), places.end());
    return std::adjacent_find(places.begin(), places.end()) == places.end();
  }

  template <typename T> T at(std::vector<int64_t> index) const {
    int64_t offset = 0, dense = 1;
    for (size_t i = index.size(); i-- > 0; dense *= shape[i])
      offset += index[i] * (tensor.strides ? strides[i] : dense);
    T value;
    std::memcpy(&value, static_cast<char *>(tensor.data) + tensor.byte_offset + offset * int64_t(sizeof(T)), sizeof(T));
    return value;
  }
};

constexpr DLDataType kF32 = {kDLFloat, 32, 1}, kI64 = {kDLInt, 64, 1};

disc_model *openModel(const Library &library) {
  disc_options options = disc_default_options();
  options.threads = 1;
  disc_model *model = nullptr;
  require(disc_open(&library.library, &options, &model) == DISC_OK);
  return model;
}
} // namespace

static void checkStatus(disc_status status) {
  disc_error error = {};
  error.size = sizeof(error);
  require(disc_last_error_details(&error) == DISC_OK);
  require(status == DISC_OK || (error.status == status && *error.message));
}

static void fuzzScale(FuzzedDataProvider &bytes) {
  static Library &library = *scaleLibrary(3).release();
  static disc_model *model = openModel(library);
  int64_t b = bytes.ConsumeIntegralInRange<int64_t>(0, 66), s = 2 * bytes.ConsumeIntegralInRange<int64_t>(0, 5);
  Tensor x(bytes, kF32, {b, s}), mask(bytes, kI64, {b, 3}), y(bytes, kF32, {b, s});
  bool shared = bytes.ConsumeIntegralInRange(0, 15) == 0;
  if (shared) { // at least their first elements overlap
    y.tensor.data = x.tensor.data;
    y.tensor.byte_offset = x.tensor.byte_offset;
  }
  const DLTensor *inputs[] = {bytes.ConsumeIntegralInRange(0, 31) ? &x.tensor : nullptr, &mask.tensor};
  int64_t numInputs = bytes.ConsumeIntegralInRange(0, 31) ? 2 : bytes.ConsumeIntegral<int64_t>();
  int64_t numOutputs = bytes.ConsumeIntegralInRange(0, 31) ? 1 : bytes.ConsumeIntegral<int64_t>();
  if (bytes.ConsumeBool()) {
    int64_t shape[2] = {-5, -5}, *shapes[] = {shape};
    disc_status status = disc_output_shapes(model, inputs, numInputs, shapes, numOutputs);
    checkStatus(status);
    require(status == DISC_OK ? shape[0] == x.shape[0] && shape[1] == x.shape[1] : shape[0] == -5);
    return;
  }
  bool ours = bytes.ConsumeBool();
  disc_output output = {ours ? nullptr : &y.tensor, nullptr};
  disc_status status = disc_run(model, inputs, numInputs, &output, numOutputs);
  checkStatus(status);
  require((status == DISC_OK && ours) == (output.managed != nullptr));
  if (status != DISC_OK)
    return;
  require(x.sound && (ours || (y.sound && (!shared || x.shape[0] == 0))));
  // Where elements of the caller's tensor share a place, the last one written stays.
  bool checked = ours || y.apart();
  for (int64_t i = 0; checked && i < x.shape[0]; ++i)
    for (int64_t j = 0; j < x.shape[1]; ++j) {
      float got = ours ? static_cast<float *>(output.managed->dl_tensor.data)[i * x.shape[1] + j] : y.at<float>({i, j});
      require(got == x.at<float>({i, j}) * 3 + 6);
    }
  if (ours)
    output.managed->deleter(output.managed);
}

static void fuzzNonzero(FuzzedDataProvider &bytes) {
  static Library &library = *nonzeroLibrary().release();
  static disc_model *model = openModel(library);
  int64_t n = bytes.ConsumeIntegralInRange<int64_t>(0, 40);
  Tensor v(bytes, kI64, {n}), positions(bytes, kI64, {bytes.ConsumeIntegralInRange<int64_t>(0, 60)}),
      count(bytes, kI64, {1});
  if (v.memory && !v.tensor.strides)
    for (size_t i = 0; (i + 1) * 8 <= v.room; ++i)
      std::memset(v.memory.get() + i * 8, bytes.ConsumeBool(), 8);
  const DLTensor *inputs[] = {&v.tensor};
  bool ours = bytes.ConsumeBool();
  disc_output outputs[] = {{ours ? nullptr : &positions.tensor, nullptr}, {&count.tensor, nullptr}};
  int64_t room = positions.shape[0];
  disc_status status = disc_run(model, inputs, 1, outputs, 2);
  checkStatus(status);
  require((status == DISC_OK && ours) == (outputs[0].managed != nullptr));
  if (status != DISC_OK) {
    require(positions.shape[0] == room);
    return;
  }
  int64_t found = 0;
  for (int64_t i = 0; i < v.shape[0]; ++i)
    found += v.at<int64_t>({i}) != 0;
  const DLTensor &result = ours ? outputs[0].managed->dl_tensor : positions.tensor;
  require(count.at<int64_t>({0}) == found && result.shape[0] == found && (ours || found <= room));
  if (ours)
    outputs[0].managed->deleter(outputs[0].managed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FuzzedDataProvider bytes(data, size);
  bytes.ConsumeBool() ? fuzzScale(bytes) : fuzzNonzero(bytes);
  return 0;
}
