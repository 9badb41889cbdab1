//===- ModelTest.cpp - a model written by hand, through the C interface ---===//
//
// y[B, S] = x[B, S] * w[0] + g[0], where init computes g = 2 * w: what a compiled model
// does, with the table that the compiler would emit.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "lib/Runtime/Core/Direct.h"

#include <thread>
#include <vector>

namespace {
const disc_dim_info dimsBS[] = {{DISC_DYNAMIC, "B", 1, 64}, {DISC_DYNAMIC, "S", 2, 512}};
const disc_dim_info dimsB3[] = {{DISC_DYNAMIC, "B", 1, 64}, {3, "3", 3, 3}};
const disc_tensor_info inputs[] = {{"x", DISC_F32, 2, dimsBS}, {"mask", DISC_I64, 2, dimsB3}};
const disc_tensor_info outputs[] = {{"y", DISC_F32, 2, dimsBS}};
const disc_symbol_info symbols[] = {{"B", 1, 64, 1, 0, 0}, {"S", 2, 512, 2, 0, 1}};
const disc_guard_info guards[] = {
    {DISC_LE, 0, 0, "B", "B", "1 <= B <= 64", "is out of range"},
    {DISC_GE, 0, 1, "S", "S", "2", ""},
    {DISC_LE, 0, 1, "S", "S", "512", ""},
    {DISC_DIVISIBLE, 0, 1, "S", "S", "2", ""},
    {DISC_EQ, 1, 0, "B", "", "B", ""},
    {DISC_EQ, -1, -1, "", "", "B * S eq 2 * B", "operands of add differ"},
};
const int64_t shapeW[] = {1};
const disc_parameter_info parameters[] = {{"scale", DISC_F32, 1, shapeW, 1}};
const disc_model_info_t info = {
    DISC_MODEL_INFO_VERSION, 2, inputs, 1, outputs, 2, symbols, 6, guards, 1, parameters, 1, 0, nullptr};

int32_t init(disc_call *call) {
  auto *w = static_cast<float *>(disc_rt_parameter(call, 0));
  auto *g = static_cast<float *>(disc_rt_global(call, 0, 4));
  if (!w || !g)
    return 1;
  *g = 2 * *w;
  return 0;
}

void kernel(void *const *args, int64_t begin, int64_t end, void *) {
  auto *x = static_cast<float *>(args[0]), *w = static_cast<float *>(args[1]), *g = static_cast<float *>(args[2]),
       *y = static_cast<float *>(args[3]);
  int64_t extent = int64_t(args[4]);
  for (int64_t i = begin * extent; i < end * extent; ++i)
    y[i] = x[i] * *w + *g;
}

int32_t entry(disc_call *call) {
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
  int64_t dims[] = {b, s};
  void *arena = disc_rt_arena(call, b * s * 4);
  void *args[] = {disc_rt_input(call, 0), disc_rt_parameter(call, 0), disc_rt_global(call, 0, 0),
                  disc_rt_output(call, 0, 2, dims), reinterpret_cast<void *>(s)};
  if (!arena || !args[0] || !args[1] || !args[2] || !args[3])
    return 1;
  return disc_rt_parallel_for(call, kernel, args, b, 20000, 0);
}

struct Tensor {
  Tensor(std::vector<int64_t> dims, uint8_t code = 2, uint8_t bits = 32) : shape(std::move(dims)) {
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    data.resize(count * 2); // room for 8 bytes each
    for (int64_t i = 0; i < count; ++i)
      data[i] = float(i);
    tensor = {data.data(), {kDLCPU, 0}, int32_t(shape.size()), {code, bits, 1}, shape.data(), nullptr, 0};
  }
  std::vector<int64_t> shape;
  std::vector<float> data;
  DLTensor tensor;
};

struct Fixture {
  Fixture() {
    parameter.version = {1, 0};
    parameter.manager_ctx = &released;
    parameter.deleter = [](DLManagedTensorVersioned *self) { ++*static_cast<int *>(self->manager_ctx); };
    weight.data[0] = 3;
    parameter.dl_tensor = weight.tensor;
    DLManagedTensorVersioned *list[] = {&parameter};
    CHECK(disc_model_create(&info, init, entry, 2, list, 1, &model) == DISC_OK);
  }
  ~Fixture() {
    disc_model_destroy(model);
    CHECK(released == 1);
  }
  disc_status run(const Tensor &x, const Tensor &mask, DLManagedTensorVersioned **output) {
    const DLTensor *list[] = {&x.tensor, &mask.tensor};
    return disc_model_run(model, list, 2, output, 1);
  }
  bool computes(int64_t b, int64_t s) {
    Tensor x({b, s}), mask({b, 3}, 0, 64);
    DLManagedTensorVersioned *y = nullptr;
    if (run(x, mask, &y) != DISC_OK)
      return false;
    bool right = y->dl_tensor.shape[0] == b && y->dl_tensor.shape[1] == s;
    auto *data = static_cast<float *>(y->dl_tensor.data);
    for (int64_t i = 0; i < b * s; ++i)
      right &= data[i] == x.data[i] * 3 + 6;
    y->deleter(y);
    return right;
  }
  void fails(const Tensor &x, const Tensor &mask, disc_status code, const char *message) {
    DLManagedTensorVersioned *y = nullptr;
    CHECK(run(x, mask, &y) == code);
    CHECK(!y);
    CHECK_TEXT(disc_last_error(), message);
    CHECK(computes(2, 4));
  }

  Tensor weight{{1}};
  DLManagedTensorVersioned parameter = {};
  int released = 0;
  disc_model *model = nullptr;
};
} // namespace

TEST(modelRuns) {
  Fixture fixture;
  for (int64_t b : {1, 2, 64, 7})
    for (int64_t s : {2, 512, 16})
      CHECK(fixture.computes(b, s));
}

TEST(modelTakesStridedInputs) {
  Fixture fixture;
  Tensor x({4, 2}), mask({2, 3}, 0, 64);
  x.shape = {2, 4};
  int64_t strides[] = {1, 2};
  x.tensor.strides = strides;
  DLManagedTensorVersioned *y = nullptr;
  CHECK(fixture.run(x, mask, &y) == DISC_OK);
  auto *data = static_cast<float *>(y->dl_tensor.data);
  CHECK(data[1] == 2 * 3 + 6 && data[4] == 1 * 3 + 6);
  y->deleter(y);
}

TEST(modelTellsWhatIsWrong) {
  Fixture fixture;
  Tensor x({2, 4}), mask({2, 3}, 0, 64);
  fixture.fails(Tensor({2, 4}, 2, 64), mask, DISC_ERROR_TYPE, "input 'x', dtype: expected float32, got float64");
  Tensor elsewhere({2, 4});
  elsewhere.tensor.device = {2, 0};
  fixture.fails(elsewhere, mask, DISC_ERROR_TYPE, "input 'x', device: expected cpu, got cuda:0");
  fixture.fails(Tensor({2}), mask, DISC_ERROR_SHAPE, "input 'x', rank: expected 2 dims [B, S], got 1 dims [2]");
  fixture.fails(x, Tensor({2, 5}, 0, 64), DISC_ERROR_SHAPE,
                "input 'mask', dim 1: expected 3, got 5 (the shape is [2, 5])");
  fixture.fails(Tensor({65, 4}), mask, DISC_ERROR_SHAPE,
                "input 'x', dim 0 (B) is out of range: expected 1 <= B <= 64, got 65");
  fixture.fails(Tensor({2, 0}), mask, DISC_ERROR_SHAPE, "input 'x', dim 1 (S): expected at least 2, got 0");
  fixture.fails(Tensor({2, 5}), mask, DISC_ERROR_SHAPE, "input 'x', dim 1 (S): expected a multiple of 2, got 5");
  fixture.fails(x, Tensor({3, 3}, 0, 64), DISC_ERROR_SHAPE,
                "input 'mask', dim 0 (B): expected B = 2, got 3 (B comes from "
                "input 'x', dim 0)");
  fixture.fails(Tensor({2, 510}), mask, DISC_ERROR_SHAPE,
                "operands of add differ: expected B * S eq 2 * B, got 1020 and 4");
}

TEST(modelRejectsMisuse) {
  Fixture fixture;
  Tensor x({2, 4});
  const DLTensor *list[] = {&x.tensor};
  DLManagedTensorVersioned *y = nullptr;
  CHECK(disc_model_run(fixture.model, list, 1, &y, 1) == DISC_ERROR_TYPE);
  CHECK_TEXT(disc_last_error(), "expected 2 tensor inputs, got 1");
  disc_model *none = nullptr;
  CHECK(disc_model_create(&info, init, entry, 1, nullptr, 0, &none) == DISC_ERROR_INVALID);
  CHECK(!none);
}

TEST(modelChecksParameters) {
  Tensor wrong({2});
  DLManagedTensorVersioned parameter = {};
  parameter.dl_tensor = wrong.tensor;
  DLManagedTensorVersioned *list[] = {&parameter};
  disc_model *none = nullptr;
  CHECK(disc_model_create(&info, init, entry, 1, list, 1, &none) == DISC_ERROR_SHAPE);
  CHECK_TEXT(disc_last_error(), "parameter 'scale': expected shape [1], got [2]");
}

TEST(modelRunsFromManyThreads) {
  Fixture fixture;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (int64_t i = 0; i < 500; ++i)
        CHECK(fixture.computes(1 + (i + caller) % 64, 2 + 2 * (i % 100)));
    });
  for (std::thread &caller : callers)
    caller.join();
}
