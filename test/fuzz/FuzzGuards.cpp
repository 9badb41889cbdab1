//===- FuzzGuards.cpp - calls of compiled models with any descriptors -----===//
//
// The models are those of models.py, compiled with checks of all memory accesses and linked with a runtime under
// sanitizers. Bytes choose a model and its inputs: mostly what it takes, with some of it changed - ranks, dtypes,
// extents, strides, pointers. Inputs and results lie in blocks of exactly the bytes that their descriptors span.
//
// A call must end with an error that has a text, or with results of the shapes that disc_output_shapes has said. Inputs
// stay as they are, unless the model updates them, and a sanitizer's error of the model's own is a finding.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/disc.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fuzzer/FuzzedDataProvider.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#define MODEL(name) extern const disc_library disc_library_##name;
#include "models.def"
#undef MODEL
}

static void require(bool holds, int line = __builtin_LINE()) {
  if (!holds && std::fprintf(stderr, "line %d; the last error: %s\n", line, disc_last_error()))
    std::abort();
}

namespace {
constexpr int64_t kMostBytes = 1 << 16; ///< Of an input that is run with; a larger one has no memory.

std::vector<disc_model *> &models() {
  static std::vector<disc_model *> &list = *[] {
    auto *opened = new std::vector<disc_model *>;
    disc_options options = disc_default_options();
    options.threads = 1;
#define MODEL(name)                                                                                                    \
  opened->push_back(nullptr);                                                                                          \
  require(disc_open(&disc_library_##name, &options, &opened->back()) == DISC_OK);
#include "models.def"
#undef MODEL
    return opened;
  }();
  return list;
}

/// Numbers that code forgets.
int64_t oddNumber(FuzzedDataProvider &bytes) {
  constexpr int64_t kOdd[] = {0,         1,         -1,        2,         3,         4,         7,
                              8,         63,        64,        65,        100,       101,       1 << 20,
                              1ll << 31, 1ll << 32, 1ll << 40, 1ll << 60, 1ll << 62, INT64_MAX, INT64_MIN};
  return bytes.ConsumeBool() ? bytes.PickValueInArray(kOdd) : bytes.ConsumeIntegralInRange<int64_t>(-3, 70);
}

/// The bytes that a tensor spans: from `low` before its first element's start to `high` behind. False if too many.
bool spanOf(const DLTensor &tensor, int64_t width, int64_t &low, int64_t &high) {
  low = 0, high = width;
  bool empty = false, fits = true;
  __int128 dense = width, below = 0, above = width;
  for (int i = tensor.ndim; i-- > 0;) {
    int64_t extent = tensor.shape[i];
    if (extent < 0)
      return false;
    empty |= extent == 0;
    __int128 stride = tensor.strides ? __int128(tensor.strides[i]) * width : dense;
    __int128 reach = 0;
    fits = fits && !__builtin_mul_overflow(__int128(std::max<int64_t>(extent - 1, 0)), stride, &reach);
    (reach < 0 ? below : above) += reach;
    dense = fits ? dense * std::max<int64_t>(extent, 1) : dense;
    fits = fits && dense < (1ll << 40) && above < (1ll << 40) && below > -(1ll << 40);
  }
  if (empty) {
    high = 0;
    return true;
  }
  // Repeated elements take time too.
  if (!fits || above - below > kMostBytes || dense > kMostBytes * 8)
    return false;
  low = int64_t(below), high = int64_t(above);
  return true;
}

struct Input {
  DLTensor tensor = {};
  std::vector<int64_t> shape, strides;
  std::unique_ptr<char[]> memory;
  std::string before;
  size_t bytes = 0;
  bool hasMemory = false; ///< All that its descriptor says it has.
};

/// What the model takes, for extents that belong together by their expressions.
void fillIn(FuzzedDataProvider &bytes, const disc_tensor_spec &spec, std::map<std::string, int64_t> &symbols,
            Input &input) {
  for (int d = 0; d < spec.ndim; ++d) {
    auto known = symbols.find(spec.dims[d]);
    int64_t value = 0;
    if (known != symbols.end()) {
      value = known->second;
    } else if (spec.min[d] == spec.max[d]) {
      value = spec.min[d];
    } else {
      value = bytes.ConsumeIntegralInRange<int64_t>(std::max<int64_t>(spec.min[d] - 1, 0),
                                                    std::min<int64_t>(spec.max[d], 70) + 1);
      if (const char *factor = std::strchr(spec.dims[d], '*')) // 4 * quarter
        if (int64_t by = std::max(std::atoll(spec.dims[d]), std::atoll(factor + 1)); by > 1)
          value = value / by * by;
      symbols[spec.dims[d]] = value;
    }
    input.shape.push_back(value);
  }
  input.tensor.ndim = spec.ndim;
  input.tensor.dtype = spec.dtype;
  input.tensor.device = {kDLCPU, 0};
}

/// Changes a field of a descriptor.
void change(FuzzedDataProvider &bytes, Input &input) {
  size_t rank = input.shape.size(), dim = rank ? bytes.ConsumeIntegralInRange<size_t>(0, rank - 1) : 0;
  auto addStrides = [&] {
    if (input.strides.size() == rank)
      return;
    input.strides.assign(rank, 1);
    for (size_t i = rank; i-- > 1;)
      if (__builtin_mul_overflow(input.strides[i], input.shape[i], &input.strides[i - 1]))
        input.strides[i - 1] = 0;
  };
  switch (bytes.ConsumeIntegralInRange(0, 8)) {
  case 0:
    if (rank)
      input.shape[dim] = oddNumber(bytes);
    break;
  case 1:
    if (rank)
      input.shape[dim] = 1;
    break;
  case 2:
    input.strides.clear();
    if (bytes.ConsumeBool())
      input.shape.push_back(oddNumber(bytes));
    else if (rank)
      input.shape.pop_back();
    break;
  case 3:
    input.tensor.dtype.code = bytes.ConsumeIntegralInRange<uint8_t>(0, 8);
    break;
  case 4:
    input.tensor.dtype.bits =
        bytes.ConsumeBool() ? uint8_t(8u << bytes.ConsumeIntegralInRange(0, 3)) : bytes.ConsumeIntegral<uint8_t>();
    input.tensor.dtype.lanes = bytes.ConsumeIntegralInRange<uint16_t>(0, 4) ? 1 : bytes.ConsumeIntegral<uint16_t>();
    break;
  case 5: // strides: any, transposed, repeated, backwards
    addStrides();
    if (rank && bytes.ConsumeBool())
      std::swap(input.strides[0], input.strides[dim]);
    else if (rank)
      input.strides[dim] = oddNumber(bytes);
    break;
  case 6:
    addStrides();
    if (rank)
      input.strides[dim] = bytes.ConsumeBool() ? 0 : int64_t(-uint64_t(input.strides[dim]));
    break;
  case 7:
    input.tensor.device = {bytes.ConsumeIntegralInRange(0, 16), bytes.ConsumeIntegralInRange(0, 2)};
    break;
  default:
    input.tensor.byte_offset =
        bytes.ConsumeBool() ? bytes.ConsumeIntegralInRange<uint64_t>(0, 64) : uint64_t(oddNumber(bytes));
  }
}

/// Memory of exactly what the descriptor spans.
void allocate(FuzzedDataProvider &bytes, Input &input) {
  DLTensor &tensor = input.tensor;
  tensor.ndim = int32_t(input.shape.size());
  tensor.shape = input.shape.data();
  tensor.strides = input.strides.size() == input.shape.size() && !input.shape.empty() ? input.strides.data() : nullptr;
  int64_t low, high, width = (int64_t(tensor.dtype.bits) * tensor.dtype.lanes + 7) / 8;
  if (!spanOf(tensor, width, low, high) || (high && tensor.byte_offset > 1024))
    return;
  bool misaligned = bytes.ConsumeIntegralInRange(0, 15) == 0;
  input.hasMemory = true;
  if (high == 0 && bytes.ConsumeBool())
    return; // nothing to point at
  input.bytes = size_t(high - low);
  size_t room = high ? input.bytes + tensor.byte_offset + misaligned : 0;
  input.memory.reset(new char[room]);
  std::vector<char> values = bytes.ConsumeBytes<char>(std::min<size_t>(room, 32));
  bool isBool = tensor.dtype.code == kDLBool, isIndex = tensor.dtype.code == kDLInt && tensor.dtype.bits == 64;
  for (size_t i = 0; i < room; ++i) {
    char value = values.empty() ? char(i) : values[i % values.size()];
    // Indices are small, and mostly in range; booleans are 0 and 1.
    input.memory[i] = isBool    ? value & 1
                      : isIndex ? (i % 8 == (misaligned + tensor.byte_offset) % 8 ? value & 7 : 0)
                                : value;
  }
  input.before.assign(input.memory.get(), room);
  tensor.data = input.memory.get() + (high ? misaligned - low : 0);
}

/// A failed call says why.
disc_status checked(disc_status status) {
  if (status == DISC_OK)
    return status;
  disc_error error = {};
  error.size = sizeof(error);
  require(disc_last_error()[0] != 0 && disc_last_error_details(&error) == DISC_OK && error.status == status);
  require(std::strcmp(disc_status_name(status), "unknown status") != 0);
  require(status != DISC_ERROR_SANITIZER && error.message && error.message[0]);
  return status;
}
} // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  require(!models().empty());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FuzzedDataProvider bytes(data, size);
  disc_model *model = models()[bytes.ConsumeIntegralInRange<size_t>(0, models().size() - 1)];
  disc_model_spec about = {};
  about.size = sizeof(about);
  require(disc_describe(model, &about) == DISC_OK);

  std::vector<Input> inputs(size_t(about.num_inputs));
  std::vector<disc_tensor_spec> specs(inputs.size());
  std::map<std::string, int64_t> symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    specs[i].size = sizeof(disc_tensor_spec);
    require(disc_describe_input(model, int64_t(i), &specs[i]) == DISC_OK);
    fillIn(bytes, specs[i], symbols, inputs[i]);
  }
  for (int changes = bytes.ConsumeIntegralInRange(0, 3); changes > 0; --changes)
    change(bytes, inputs[bytes.ConsumeIntegralInRange<size_t>(0, inputs.size() - 1)]);
  bool complete = true;
  std::vector<const DLTensor *> list;
  for (Input &input : inputs) {
    allocate(bytes, input);
    complete &= input.hasMemory;
    list.push_back(&input.tensor);
  }
  // Mistakes of the call itself.
  uint8_t mistake = bytes.ConsumeIntegralInRange<uint8_t>(0, 60);
  int64_t numInputs = about.num_inputs, numOutputs = about.num_outputs;
  size_t which = bytes.ConsumeIntegralInRange<size_t>(0, list.size() - 1);
  switch (mistake) {
  case 1:
    list[which] = nullptr;
    break;
  case 2:
    numInputs = bytes.ConsumeIntegralInRange<int64_t>(-1, about.num_inputs - 1);
    break;
  case 3:
    numOutputs = bytes.ConsumeIntegralInRange<int64_t>(-1, about.num_outputs - 1);
    break;
  case 4:
    inputs[which].tensor.ndim = -1 - int32_t(bytes.ConsumeIntegral<uint16_t>());
    break;
  case 5:
    mistake = inputs[which].tensor.ndim ? mistake : 0; // a scalar needs none
    inputs[which].tensor.shape = nullptr;
    break;
  default:
    mistake = 0;
  }

  // Shapes first: the inputs' contents have no part in them, their memory need not be there.
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t *> into;
  std::vector<disc_tensor_spec> results(size_t(about.num_outputs));
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].size = sizeof(disc_tensor_spec);
    require(disc_describe_output(model, int64_t(i), &results[i]) == DISC_OK);
    shapes.emplace_back(size_t(results[i].ndim) + 1, -7);
  }
  for (std::vector<int64_t> &shape : shapes)
    into.push_back(shape.data());
  disc_status predicted = checked(disc_output_shapes(model, list.data(), numInputs, into.data(), numOutputs));
  for (size_t i = 0; predicted == DISC_OK && i < results.size(); ++i) {
    require(shapes[i].back() == -7);
    for (int d = 0; d < results[i].ndim; ++d)
      require(shapes[i][size_t(d)] >= -1);
  }
  for (const Input &input : inputs)
    require(!input.memory || std::memcmp(input.memory.get(), input.before.data(), input.before.size()) == 0);

  // Where memory is missing, the run has to notice the null pointer; so it has for results that are too large.
  std::vector<disc_output> outputs(results.size());
  std::vector<Input> own(results.size());
  bool wrongOutput = false;
  for (size_t i = 0; predicted == DISC_OK && i < results.size(); ++i) {
    if (bytes.ConsumeIntegralInRange(0, 2))
      continue;
    // The caller's own tensor.
    Input &output = own[i];
    output.tensor.dtype = results[i].dtype;
    output.tensor.device = {kDLCPU, 0};
    output.shape.assign(shapes[i].begin(), shapes[i].end() - 1);
    for (int64_t &extent : output.shape)
      extent = extent < 0 ? bytes.ConsumeIntegralInRange<int64_t>(0, 300) : extent;
    if (bytes.ConsumeIntegralInRange(0, 3) == 0) {
      change(bytes, output);
      wrongOutput = true;
    }
    allocate(bytes, output);
    if (output.hasMemory)
      outputs[i].tensor = &output.tensor;
  }
  disc_status status = checked(disc_run(model, list.data(), numInputs, outputs.data(), numOutputs));
  require(predicted == DISC_OK || status != DISC_OK);
  require(mistake == 0 || status != DISC_OK);
  if (status == DISC_OK) {
    require(complete);
    for (size_t i = 0; i < results.size(); ++i) {
      const DLTensor &result = outputs[i].tensor ? *outputs[i].tensor : outputs[i].managed->dl_tensor;
      require(result.ndim == results[i].ndim && result.dtype.code == results[i].dtype.code &&
              result.dtype.bits == results[i].dtype.bits);
      for (int d = 0; d < result.ndim; ++d)
        require(shapes[i][size_t(d)] == result.shape[d] || (shapes[i][size_t(d)] == -1 && result.shape[d] >= 0));
      // All of it is memory.
      int64_t low, high, width = result.dtype.bits / 8;
      volatile char sink = 0;
      if (!outputs[i].tensor && spanOf(result, width, low, high))
        for (int64_t at = low; at < high; ++at)
          sink = static_cast<const char *>(result.data)[int64_t(result.byte_offset) + at];
      (void)sink;
    }
  } else if (predicted == DISC_OK && complete && !wrongOutput) {
    // What shapes alone do not tell: contents, memory, alignment, overlaps.
    require(status == DISC_ERROR_MEMORY || status == DISC_ERROR_INDEX || status == DISC_ERROR_INVALID ||
            status == DISC_ERROR_SHAPE);
  }
  for (disc_output &output : outputs) {
    require(status == DISC_OK || !output.managed);
    if (output.managed)
      output.managed->deleter(output.managed);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    require((specs[i].flags & DISC_TENSOR_UPDATED) || !inputs[i].memory ||
            std::memcmp(inputs[i].memory.get(), inputs[i].before.data(), inputs[i].before.size()) == 0);
  return 0;
}
