//===- ModelTest.cpp - running a model, and what it says is wrong ---------===//

#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Call.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace disc::test;

namespace {
struct Fixture {
  explicit Fixture(const disc_options *options = nullptr) : library(scaleLibrary(3)) {
    CHECK(disc_open(&library->library, options, &model) == DISC_OK);
  }
  ~Fixture() { CHECK(disc_free(model) == DISC_OK); }

  disc_status run(const DLTensor *x, const DLTensor *mask, disc_output &output) {
    const DLTensor *list[] = {x, mask};
    return disc_run(model, list, 2, &output, 1);
  }
  bool computes(int64_t b, int64_t s) {
    Floats x({b, s});
    Longs mask({b, 3});
    disc_output y = {};
    if (run(&x.tensor, &mask.tensor, y) != DISC_OK)
      return false;
    const DLTensor &tensor = y.managed->dl_tensor;
    bool right = tensor.shape[0] == b && tensor.shape[1] == s;
    auto *data = static_cast<float *>(tensor.data);
    for (int64_t i = 0; i < b * s; ++i)
      right &= data[i] == x.data[i] * 3 + 6;
    y.managed->deleter(y.managed);
    return right;
  }
  /// Both functions that check inputs say the same, unless only a run reads data.
  void fails(const DLTensor *x, const DLTensor *mask, disc_status code, const char *message, bool onlyRun = false) {
    disc_output y = {};
    CHECK(run(x, mask, y) == code);
    CHECK(!y.managed);
    CHECK_TEXT(disc_last_error(), message);
    const DLTensor *list[] = {x, mask};
    int64_t shape[2] = {-7, -7}, *shapes[] = {shape};
    CHECK(disc_output_shapes(model, list, 2, shapes, 1) == (onlyRun ? DISC_OK : code));
    CHECK((shape[0] == -7 && shape[1] == -7) != onlyRun);
    CHECK_TEXT(disc_last_error(), message);
    CHECK(computes(2, 4));
  }

  std::unique_ptr<Library> library;
  disc_model *model = nullptr;
};
} // namespace

TEST(modelRuns) {
  Fixture fixture;
  for (int64_t b : {1, 2, 64, 7})
    for (int64_t s : {2, 512, 16})
      CHECK(fixture.computes(b, s));
}

TEST(modelRepeatsInputs) {
  static const disc_repeat_info repeats[] = {{0, 0, 0, 1}, {0, 1, 0, 0}, {1, 0, 1, 0}};
  static disc_model_info_t info = kScaleInfo;
  info.num_repeats = 3;
  info.repeats = repeats;
  std::unique_ptr<Library> library = scaleLibrary(3);
  library->variant.info = &info;
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
  auto rows = [&](int64_t b, int64_t of, int64_t expected) {
    Floats x({b, 4});
    Longs mask({of, 3});
    const DLTensor *list[] = {&x.tensor, &mask.tensor};
    int64_t shape[2] = {-7, -7}, *shapes[] = {shape};
    disc_output y = {};
    disc_status code = disc_run(model, list, 2, &y, 1);
    CHECK(disc_output_shapes(model, list, 2, shapes, 1) == code);
    CHECK(code == (expected < 0 ? DISC_ERROR_SHAPE : DISC_OK));
    CHECK(shape[0] == (expected < 0 ? -7 : expected));
    // The caller's tensor stays as it is.
    CHECK(x.tensor.shape[0] == b);
    if (!y.managed)
      return;
    const DLTensor &tensor = y.managed->dl_tensor;
    CHECK(tensor.shape[0] == expected && tensor.shape[1] == 4);
    auto *data = static_cast<float *>(tensor.data);
    for (int64_t i = 0; i < expected * 4; ++i)
      CHECK(data[i] == x.data[i % (b * 4)] * 3 + 6);
    y.managed->deleter(y.managed);
  };
  for (int repeat = 0; repeat < 2; ++repeat) {
    rows(1, 5, 5);
    rows(5, 5, 5);
    rows(1, 1, 1);
    rows(1, 0, 0);
    rows(5, 1, -1); // no dim that repeats
    rows(2, 5, -1);
  }
  CHECK(disc_free(model) == DISC_OK);
}

TEST(modelTakesStridedInputs) {
  Fixture fixture;
  Longs mask({2, 3});
  auto check = [&](const Floats &x, std::vector<float> expected) {
    disc_output y = {};
    CHECK(fixture.run(&x.tensor, &mask.tensor, y) == DISC_OK);
    for (size_t i = 0; y.managed && i < expected.size(); ++i)
      CHECK(static_cast<float *>(y.managed->dl_tensor.data)[i] == expected[i] * 3 + 6);
    if (y.managed)
      y.managed->deleter(y.managed);
  };
  Floats x({2, 4}, 16);
  x.setStrides({1, 2});
  check(x, {0, 2, 4, 6, 1, 3, 5, 7});
  x.setStrides({0, 2}); // one row twice
  check(x, {0, 2, 4, 6, 0, 2, 4, 6});
  x.setStrides({4, -1}); // backwards
  x.tensor.byte_offset = 3 * sizeof(float);
  check(x, {3, 2, 1, 0, 7, 6, 5, 4});
  // Not even at a multiple of the elements' size.
  Floats odd({2, 4}, 16);
  std::memmove(reinterpret_cast<char *>(odd.data.data()) + 1, odd.data.data(), 8 * sizeof(float));
  odd.tensor.byte_offset = 1;
  check(odd, {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST(modelTellsWhatIsWrong) {
  Fixture fixture;
  Floats x({2, 4});
  Longs mask({2, 3});
  Doubles doubles({2, 4});
  fixture.fails(&doubles.tensor, &mask.tensor, DISC_ERROR_TYPE, "input 'x', dtype: expected float32, got float64");
  Floats vectors({2, 4});
  vectors.tensor.dtype.lanes = 4;
  fixture.fails(&vectors.tensor, &mask.tensor, DISC_ERROR_TYPE,
                "input 'x', dtype: expected float32, got vectors of 4 float32");
  Floats elsewhere({2, 4});
  elsewhere.tensor.device = {2, 0};
  fixture.fails(&elsewhere.tensor, &mask.tensor, DISC_ERROR_TYPE, "input 'x', device: expected cpu, got cuda:0");
  Floats vector({2});
  fixture.fails(&vector.tensor, &mask.tensor, DISC_ERROR_SHAPE,
                "input 'x', rank: expected 2 dims [B, S], got 1 dims [2]");
  Longs wide({2, 5});
  fixture.fails(&x.tensor, &wide.tensor, DISC_ERROR_SHAPE,
                "input 'mask', dim 1: expected 3, got 5 (the shape is [2, 5])");
  Floats many({65, 4}), empty({2, 0}), odd({2, 5}), blamed({2, 510});
  Longs other({3, 3});
  fixture.fails(&many.tensor, &mask.tensor, DISC_ERROR_SHAPE,
                "input 'x', dim 0 (B) is out of range: expected 1 <= B <= 64, got 65");
  fixture.fails(&empty.tensor, &mask.tensor, DISC_ERROR_SHAPE, "input 'x', dim 1 (S): expected at least 2, got 0");
  fixture.fails(&odd.tensor, &mask.tensor, DISC_ERROR_SHAPE, "input 'x', dim 1 (S): expected a multiple of 2, got 5");
  fixture.fails(&x.tensor, &other.tensor, DISC_ERROR_SHAPE,
                "input 'mask', dim 0 (B): expected B = 2, got 3 (B comes from input 'x', dim 0)");
  fixture.fails(&blamed.tensor, &mask.tensor, DISC_ERROR_SHAPE,
                "operands of add differ: expected B * S == 2 * B, got 1020 and 4");
}

TEST(modelSurvivesMalformedInputs) {
  Fixture fixture;
  Floats x({2, 4});
  Longs mask({2, 3});
  fixture.fails(nullptr, &mask.tensor, DISC_ERROR_INVALID, "input 'x': the tensor is null");
  Floats shapeless({2, 4});
  shapeless.tensor.shape = nullptr;
  fixture.fails(&shapeless.tensor, &mask.tensor, DISC_ERROR_INVALID, "input 'x': the tensor has no shape");
  Floats negativeRank({2, 4});
  negativeRank.tensor.ndim = -2;
  fixture.fails(&negativeRank.tensor, &mask.tensor, DISC_ERROR_INVALID, "input 'x': the tensor has no shape");
  Floats hugeRank({2, 4});
  hugeRank.tensor.ndim = std::numeric_limits<int32_t>::max();
  fixture.fails(&hugeRank.tensor, &mask.tensor, DISC_ERROR_SHAPE,
                "input 'x', rank: expected 2 dims [B, S], got 2147483647 dims");
  Floats negative({2, 4});
  negative.shape[1] = -4;
  fixture.fails(&negative.tensor, &mask.tensor, DISC_ERROR_SHAPE,
                "input 'x', dim 1: expected an extent of at least 0, got -4 (the shape is [2, -4])");
  Floats huge({2, 4});
  huge.shape[0] = huge.shape[1] = int64_t(1) << 62;
  fixture.fails(&huge.tensor, &mask.tensor, DISC_ERROR_MEMORY,
                "input 'x': the size overflows a 64-bit integer: expected [B, S], got "
                "[4611686018427387904, 4611686018427387904]");
  Floats null({2, 4});
  null.tensor.data = nullptr;
  fixture.fails(&null.tensor, &mask.tensor, DISC_ERROR_INVALID, "input 'x': its data is null", /*onlyRun=*/true);
  Floats far({2, 4});
  far.setStrides({std::numeric_limits<int64_t>::max() / 2, 1});
  fixture.fails(&far.tensor, &mask.tensor, DISC_ERROR_SHAPE,
                "input 'x': its extents and strides go beyond the address space (the shape is [2, 4])",
                /*onlyRun=*/true);
}

TEST(modelRejectsWrongCounts) {
  Fixture fixture;
  Floats x({2, 4});
  Longs mask({2, 3});
  const DLTensor *list[] = {&x.tensor, &mask.tensor};
  disc_output y[2] = {};
  CHECK(disc_run(fixture.model, list, 1, y, 1) == DISC_ERROR_TYPE);
  CHECK_TEXT(disc_last_error(), "expected 2 tensor inputs, got 1");
  CHECK(disc_run(fixture.model, list, -1, y, 1) == DISC_ERROR_TYPE);
  CHECK(disc_run(fixture.model, list, 2, y, 2) == DISC_ERROR_TYPE);
  CHECK_TEXT(disc_last_error(), "expected 1 outputs, got 2");
  CHECK(disc_run(fixture.model, nullptr, 2, y, 1) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "the array of inputs is null");
  CHECK(disc_run(fixture.model, list, 2, nullptr, 1) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "the array of outputs is null");
  CHECK(disc_output_shapes(fixture.model, list, 2, nullptr, 1) == DISC_ERROR_INVALID);
  CHECK(!y[0].managed && !y[1].managed);
}

TEST(errorsHaveDetails) {
  Fixture fixture;
  Floats x({2, 5});
  Longs mask({2, 3});
  disc_output y = {};
  CHECK(fixture.run(&x.tensor, &mask.tensor, y) == DISC_ERROR_SHAPE);
  disc_error error = {};
  error.size = sizeof(error);
  CHECK(disc_last_error_details(&error) == DISC_OK);
  CHECK(error.status == DISC_ERROR_SHAPE && error.dim == 1);
  CHECK_TEXT(error.input, "x");
  CHECK_TEXT(error.symbol, "S");
  CHECK_TEXT(error.expected, "a multiple of 2");
  CHECK_TEXT(error.got, "5");
  CHECK_TEXT(error.message, disc_last_error());
}

TEST(outputShapesNeedNoData) {
  Fixture fixture;
  Floats x({5, 16});
  Longs mask({5, 3});
  x.tensor.data = mask.tensor.data = nullptr;
  const DLTensor *list[] = {&x.tensor, &mask.tensor};
  int64_t shape[2] = {}, *shapes[] = {shape}, *skipped[] = {nullptr};
  CHECK(disc_output_shapes(fixture.model, list, 2, shapes, 1) == DISC_OK);
  CHECK(shape[0] == 5 && shape[1] == 16);
  CHECK(disc_output_shapes(fixture.model, list, 2, skipped, 1) == DISC_OK);
}

TEST(valuesOfRelations) {
  // A value is told once where the relation has it, and both are where an expression only begins or ends with it.
  const disc_guard_info guards[] = {{DISC_EQ, -1, -1, "", "", "count == 1", "the list"},
                                    {DISC_LE, -1, -1, "", "", "1 <= count", "the list"},
                                    {DISC_EQ, -1, -1, "", "", "3 * B == S + 4", "the list"}};
  disc_model_info_t info = kScaleInfo;
  info.guards = guards;
  info.num_guards = 3;
  CHECK_TEXT(disc::rt::guardError(info, 0, 0, 1).error().message, "the list: expected count == 1, got 0");
  CHECK_TEXT(disc::rt::guardError(info, 1, 1, 0).error().message, "the list: expected 1 <= count, got 0");
  CHECK_TEXT(disc::rt::guardError(info, 2, 3, 5).error().message, "the list: expected 3 * B == S + 4, got 3 and 5");
  CHECK_TEXT(disc::rt::guardError(info, 2, 6, 4).error().message, "the list: expected 3 * B == S + 4, got 6 and 4");
}
