//===- OutputsTest.cpp - the caller's tensors as outputs ------------------===//

#include "Check.h"
#include "HandModel.h"

#include <cstring>
#include <limits>

using namespace disc::test;

namespace {
struct Fixture {
  Fixture() : library(scaleLibrary(3)), x({2, 4}), mask({2, 3}) {
    CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
  }
  ~Fixture() { disc_free(model); }

  disc_status run(DLTensor *y) {
    const DLTensor *list[] = {&x.tensor, &mask.tensor};
    disc_output output = {y, nullptr};
    disc_status status = disc_run(model, list, 2, &output, 1);
    CHECK(!output.managed);
    return status;
  }
  void fails(DLTensor *y, disc_status code, const char *message) {
    CHECK(run(y) == code);
    CHECK_TEXT(disc_last_error(), message);
  }
  static float expected(int64_t i) { return float(i) * 3 + 6; }

  std::unique_ptr<Library> library;
  disc_model *model = nullptr;
  Floats x;
  Longs mask;
};
} // namespace

TEST(outputInPlace) {
  Fixture fixture;
  Floats y({2, 4}, 20);
  y.tensor.byte_offset = 4 * sizeof(float);
  CHECK(fixture.run(&y.tensor) == DISC_OK);
  for (int64_t i = 0; i < 20; ++i)
    CHECK(y.data[i] == (i >= 4 && i < 12 ? Fixture::expected(i - 4) : float(i)));
}

TEST(outputStrided) {
  Fixture fixture;
  Floats y({2, 4}, 24);
  std::vector<float> before = y.data;
  y.setStrides({1, 3}); // transposed, with a gap
  CHECK(fixture.run(&y.tensor) == DISC_OK);
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t column = 0; column < 4; ++column) {
      int64_t place = row + 3 * column;
      CHECK(y.data[place] == Fixture::expected(row * 4 + column));
      before[place] = y.data[place];
    }
  CHECK(y.data == before); // what lies between is not touched
  Floats backwards({2, 4}, 8);
  backwards.setStrides({-4, -1});
  backwards.tensor.byte_offset = 7 * sizeof(float);
  CHECK(fixture.run(&backwards.tensor) == DISC_OK);
  for (int64_t i = 0; i < 8; ++i)
    CHECK(backwards.data[7 - i] == Fixture::expected(i));
}

TEST(outputMisaligned) {
  Fixture fixture;
  Floats y({2, 4}, 10);
  y.tensor.byte_offset = 3;
  CHECK(fixture.run(&y.tensor) == DISC_OK);
  float first;
  std::memcpy(&first, reinterpret_cast<char *>(y.data.data()) + 3, sizeof(first));
  CHECK(first == Fixture::expected(0));
}

TEST(outputRefused) {
  Fixture fixture;
  Doubles doubles({2, 4});
  fixture.fails(&doubles.tensor, DISC_ERROR_TYPE, "output 'y', dtype: expected float32, got float64");
  Floats elsewhere({2, 4});
  elsewhere.tensor.device = {2, 1};
  fixture.fails(&elsewhere.tensor, DISC_ERROR_TYPE, "output 'y', device: expected cpu, got cuda:1");
  Floats vectors({2, 4});
  vectors.tensor.dtype.lanes = 2;
  fixture.fails(&vectors.tensor, DISC_ERROR_TYPE, "output 'y', dtype: expected float32, got vectors of 2 float32");
  Floats flat({8});
  fixture.fails(&flat.tensor, DISC_ERROR_SHAPE, "output 'y', rank: expected 2 dims, got 1 dims");
  Floats small({2, 2}), large({2, 6});
  fixture.fails(&small.tensor, DISC_ERROR_SHAPE, "output 'y', dim 1: expected 4, got 2");
  fixture.fails(&large.tensor, DISC_ERROR_SHAPE, "output 'y', dim 1: expected 4, got 6");
  Floats negative({2, 4});
  negative.shape[0] = -2;
  fixture.fails(&negative.tensor, DISC_ERROR_SHAPE, "output 'y', dim 0: expected an extent of at least 0, got -2");
  Floats null({2, 4});
  null.tensor.data = nullptr;
  fixture.fails(&null.tensor, DISC_ERROR_INVALID, "output 'y': its data is null");
  Floats shapeless({2, 4});
  shapeless.tensor.shape = nullptr;
  fixture.fails(&shapeless.tensor, DISC_ERROR_INVALID, "output 'y': the tensor has no shape");
  Floats far({2, 4});
  far.setStrides({std::numeric_limits<int64_t>::max(), 1});
  fixture.fails(&far.tensor, DISC_ERROR_SHAPE, "output 'y': its extents and strides go beyond the address space");
  Floats repeated({2, 4});
  repeated.setStrides({0, 1});
  fixture.fails(&repeated.tensor, DISC_ERROR_INVALID, "output 'y': a stride of 0 puts several elements at one place");
  DLTensor overlapping = fixture.x.tensor;
  fixture.fails(&overlapping, DISC_ERROR_INVALID, "output 'y' overlaps input 'x'");
  Floats behind({2, 4}, 16);
  fixture.x.tensor.data = behind.data.data() + 7; // the last element
  fixture.fails(&behind.tensor, DISC_ERROR_INVALID, "output 'y' overlaps input 'x'");
}

TEST(outputsOverlapEachOther) {
  auto library = nonzeroLibrary();
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
  Longs v({8}), place({16});
  Longs positions({8}), count({1});
  positions.tensor.data = place.data.data();
  count.tensor.data = place.data.data() + 7;
  const DLTensor *list[] = {&v.tensor};
  disc_output outputs[] = {{&positions.tensor, nullptr}, {&count.tensor, nullptr}};
  CHECK(disc_run(model, list, 1, outputs, 2) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "output 'count' overlaps output 'positions'");
  count.tensor.data = place.data.data() + 8;
  CHECK(disc_run(model, list, 1, outputs, 2) == DISC_OK);
  disc_free(model);
}

TEST(outputOfDataDependentExtent) {
  auto library = nonzeroLibrary();
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
  Longs v({6}); // 0 1 2 3 4 5
  const DLTensor *list[] = {&v.tensor};
  int64_t positionsShape[1] = {}, countShape[1] = {}, *shapes[] = {positionsShape, countShape};
  CHECK(disc_output_shapes(model, list, 1, shapes, 2) == DISC_OK);
  CHECK(positionsShape[0] == -1 && countShape[0] == 1);

  disc_output made[2] = {};
  CHECK(disc_run(model, list, 1, made, 2) == DISC_OK);
  CHECK(made[0].managed->dl_tensor.shape[0] == 5);
  for (disc_output &output : made)
    output.managed->deleter(output.managed);

  Longs count({1});
  auto run = [&](Longs &positions) {
    disc_output outputs[] = {{&positions.tensor, nullptr}, {&count.tensor, nullptr}};
    count.data[0] = 0;
    return disc_run(model, list, 1, outputs, 2);
  };
  Longs exact({5}), larger({8}), spread({8}, 16), small({4});
  CHECK(run(exact) == DISC_OK && exact.shape[0] == 5 && exact.data[4] == 5);
  CHECK(run(larger) == DISC_OK && larger.shape[0] == 5 && larger.data[4] == 5 && larger.data[5] == 5);
  spread.setStrides({2});
  CHECK(run(spread) == DISC_OK && spread.shape[0] == 5 && spread.data[8] == 5 && spread.data[9] == 9);
  CHECK(run(small) == DISC_ERROR_SHAPE && small.shape[0] == 4);
  CHECK_TEXT(disc_last_error(), "output 'positions', dim 0: expected at least 5, got 4");
  // Nothing found: an empty output, which may have no memory.
  std::fill(v.data.begin(), v.data.end(), 0);
  Longs none({0});
  none.tensor.data = nullptr;
  none.tensor.byte_offset = 8;
  CHECK(run(none) == DISC_OK && none.shape[0] == 0 && count.data[0] == 0);
  disc_free(model);
}
