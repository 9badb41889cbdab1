//===- HandModel.cpp - compiled libraries, written by hand ----------------===//

#include "HandModel.h"
#include "lib/Runtime/Core/Hash.h"

#include <algorithm>
#include <atomic>
#include <cstring>

using namespace disc::test;

//===-- scale -------------------------------------------------------------===//

static const disc_dim_info dimsBS[] = {{DISC_DYNAMIC, "B", 1, 64}, {DISC_DYNAMIC, "S", 2, 512}};
static const disc_dim_info dimsB3[] = {{DISC_DYNAMIC, "B", 1, 64}, {3, "3", 3, 3}};
static const disc_tensor_info scaleInputs[] = {{"x", DISC_F32, 2, dimsBS, 0}, {"mask", DISC_I64, 2, dimsB3, 0}};
static const disc_tensor_info scaleOutputs[] = {{"y", DISC_F32, 2, dimsBS, 0}};
static const disc_symbol_info scaleSymbols[] = {{"B", 1, 64, 1, 0, 0}, {"S", 2, 512, 2, 0, 1}};
static const disc_guard_info scaleGuards[] = {
    {DISC_LE, 0, 0, "B", "B", "1 <= B <= 64", "is out of range"},
    {DISC_GE, 0, 1, "S", "S", "2", ""},
    {DISC_LE, 0, 1, "S", "S", "512", ""},
    {DISC_DIVISIBLE, 0, 1, "S", "S", "2", ""},
    {DISC_EQ, 1, 0, "B", "", "B", ""},
    {DISC_EQ, -1, -1, "", "", "B * S == 2 * B", "operands of add differ"},
};
static const int64_t shapeW[] = {1};
static const disc_parameter_info scaleParameters[] = {{"scale", DISC_F32, 1, shapeW, 1, 0}};
const disc_model_info_t disc::test::kScaleInfo = {
    DISC_MODEL_INFO_VERSION, 2, scaleInputs, 1,       scaleOutputs, 2, scaleSymbols, 6, scaleGuards, 1,
    scaleParameters,         1, 0,           nullptr, nullptr,      0, nullptr,      0, nullptr,     0};

static std::atomic<int> inits{0};
int disc::test::scaleInits() { return inits.load(); }

int32_t disc::test::scaleInit(disc_call *call) {
  ++inits;
  auto *w = static_cast<float *>(disc_rt_parameter(call, 0));
  auto *g = static_cast<float *>(disc_rt_global(call, 0, 4));
  if (!w || !g)
    return 1;
  *g = 2 * *w;
  return 0;
}

static void scaleKernel(void *const *args, int64_t begin, int64_t end, void *) {
  auto *x = static_cast<float *>(args[0]), *w = static_cast<float *>(args[1]), *g = static_cast<float *>(args[2]),
       *y = static_cast<float *>(args[3]);
  int64_t extent = int64_t(args[4]);
  for (int64_t i = begin * extent; i < end * extent; ++i)
    y[i] = x[i] * *w + *g;
}

static int32_t scaleChecks(disc_call *call, int64_t *dims) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t b = disc_rt_extent(call, 0, 0), s = disc_rt_extent(call, 0, 1);
  int64_t b1 = disc_rt_extent(call, 1, 0);
  if (b > 64)
    return disc_rt_guard_failed(call, 0, b, 64);
  if (s < 2)
    return disc_rt_guard_failed(call, 1, s, 2);
  if (s > 512)
    return disc_rt_guard_failed(call, 2, s, 512);
  if (s % 2)
    return disc_rt_guard_failed(call, 3, s, 2);
  if (b1 != b)
    return disc_rt_guard_failed(call, 4, b1, b);
  if (s == 510) // any violation that no input is to blame for
    return disc_rt_guard_failed(call, 5, b * s, 2 * b);
  dims[0] = b;
  dims[1] = s;
  return 0;
}

int32_t disc::test::scaleMain(disc_call *call) {
  int64_t dims[2];
  if (int32_t status = scaleChecks(call, dims))
    return status;
  void *arena = disc_rt_arena(call, 0, dims[0] * dims[1] * 4);
  void *args[] = {disc_rt_input(call, 0), disc_rt_parameter(call, 0), disc_rt_global(call, 0, 4),
                  disc_rt_output(call, 0, 2, dims), reinterpret_cast<void *>(dims[1])};
  if (!arena || !args[0] || !args[1] || !args[2] || !args[3])
    return 1;
  return disc_rt_parallel_for(call, scaleKernel, args, dims[0], 20000, 0);
}

int32_t disc::test::scaleShapes(disc_call *call) {
  int64_t dims[2];
  if (int32_t status = scaleChecks(call, dims))
    return status;
  return disc_rt_output_shape(call, 0, 2, dims);
}

//===-- nonzero -----------------------------------------------------------===//

static const disc_dim_info dimsN[] = {{DISC_DYNAMIC, "n", 0, DISC_UNBOUNDED}};
static const disc_dim_info dimsFound[] = {{DISC_DATA_DEPENDENT, "found", 0, DISC_UNBOUNDED}};
static const disc_dim_info dims1[] = {{1, "1", 1, 1}};
static const disc_tensor_info nonzeroInputs[] = {{"v", DISC_I64, 1, dimsN, 0}};
static const disc_tensor_info nonzeroOutputs[] = {{"positions", DISC_I64, 1, dimsFound, 0},
                                                  {"count", DISC_I64, 1, dims1, 0}};
static const disc_symbol_info nonzeroSymbols[] = {{"n", 0, DISC_UNBOUNDED, 1, 0, 0}};
const disc_model_info_t disc::test::kNonzeroInfo = {DISC_MODEL_INFO_VERSION,
                                                    1,
                                                    nonzeroInputs,
                                                    2,
                                                    nonzeroOutputs,
                                                    1,
                                                    nonzeroSymbols,
                                                    0,
                                                    nullptr,
                                                    0,
                                                    nullptr,
                                                    0,
                                                    0,
                                                    nullptr,
                                                    nullptr,
                                                    0,
                                                    nullptr,
                                                    0,
                                                    nullptr,
                                                    0};

int32_t disc::test::nonzeroMain(disc_call *call) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t n = disc_rt_extent(call, 0, 0), one = 1, found = 0;
  auto *v = static_cast<int64_t *>(disc_rt_input(call, 0));
  auto *count = static_cast<int64_t *>(v ? disc_rt_output(call, 1, 1, &one) : nullptr);
  if (!count)
    return 1;
  for (int64_t i = 0; i < n; ++i)
    found += v[i] != 0;
  auto *positions = static_cast<int64_t *>(disc_rt_output(call, 0, 1, &found));
  if (!positions)
    return 1;
  *count = found;
  for (int64_t i = 0; i < n; ++i)
    if (v[i])
      *positions++ = i;
  return 0;
}

int32_t disc::test::nonzeroShapes(disc_call *call) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t unknown = 12345, one = 1;
  if (int32_t status = disc_rt_output_shape(call, 0, 1, &unknown))
    return status;
  return disc_rt_output_shape(call, 1, 1, &one);
}

//===-- Files of weights --------------------------------------------------===//

std::string disc::test::bytesOf(const std::vector<float> &values) {
  return std::string(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float));
}

std::string disc::test::safetensorsRaw(const std::string &header, const std::string &data) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<const char *>(&length), sizeof(length)) + header + data;
}

std::string disc::test::safetensors(const std::vector<StoredData> &tensors) {
  std::string header = "{", data;
  for (const StoredData &tensor : tensors) {
    header += (header.size() > 1 ? ",\"" : "\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i)
      header += (i ? "," : "") + std::to_string(tensor.shape[i]);
    header += "],\"data_offsets\":[" + std::to_string(data.size());
    data += tensor.bytes;
    header += "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  header.resize((header.size() + 8 + 63) / 64 * 64 - 8, ' ');
  return safetensorsRaw(header, data);
}

//===-- Libraries ---------------------------------------------------------===//

static int64_t dtypeOf(const std::string &name) {
  return name == "F32" ? DISC_F32 : name == "I64" ? DISC_I64 : name == "U8" ? DISC_U8 : -1;
}

Library::Library(const disc_model_info_t &info, disc_entry_fn init, disc_entry_fn main, disc_entry_fn shapes,
                 std::vector<StoredData> list, const char *weightsFile)
    : data(std::move(list)) {
  for (const StoredData &tensor : data) {
    rt::Hash128 hash = rt::hash128(tensor.bytes.data(), tensor.bytes.size());
    tensors.push_back({tensor.name.c_str(), dtypeOf(tensor.dtype), int64_t(tensor.shape.size()), tensor.shape.data(),
                       hash.low, hash.high});
  }
  std::string bytes = safetensors(data);
  char *aligned = nullptr;
  if (!*weightsFile && !data.empty()) {
    image.reset(new char[bytes.size() + 64]);
    aligned = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(image.get()) + 63) / 64 * 64);
    std::memcpy(aligned, bytes.data(), bytes.size());
  }
  variant = {"test", "", &info, init, main, shapes, 0};
  library = {DISC_LIBRARY_VERSION,
             &disc_rt_api,
             "hand",
             1,
             &variant,
             aligned,
             int64_t(aligned ? bytes.size() : 0),
             weightsFile,
             int64_t(tensors.size()),
             tensors.data()};
}

std::string disc::test::scaleWeights(float weight) { return safetensors({{"scale", "F32", {1}, bytesOf({weight})}}); }

std::unique_ptr<Library> disc::test::scaleLibrary(float weight, bool packed, const char *weightsFile) {
  std::vector<StoredData> data;
  if (packed)
    data.push_back({"disc.packed.test.0", "U8", {64}, bytesOf({2 * weight}) + std::string(60, '\0')});
  data.push_back({"scale", "F32", {1}, bytesOf({weight})});
  auto library = std::make_unique<Library>(kScaleInfo, scaleInit, scaleMain, scaleShapes, data, weightsFile);
  library->variant.packed = packed;
  return library;
}

std::unique_ptr<Library> disc::test::nonzeroLibrary() {
  return std::make_unique<Library>(kNonzeroInfo, nullptr, nonzeroMain, nonzeroShapes, std::vector<StoredData>());
}
