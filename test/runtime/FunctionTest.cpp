//===- FunctionTest.cpp - native functions that kernels call --------------===//

#include "Check.h"
#include "lib/Runtime/Functions/Elements.h"

#include <cstring>
#include <string>
#include <vector>

using namespace disc::rt;

static disc_view view(void *data, int64_t dtype, const std::vector<int64_t> &dims,
                      const std::vector<int64_t> &strides) {
  return {data, dtype, int64_t(dims.size()), dims.data(), strides.data()};
}

TEST(functionTableIsSorted) {
  for (const FunctionEntry *entry = functionTable; entry->name; ++entry) {
    CHECK(entry->function);
    CHECK(!entry[1].name || std::strcmp(entry->name, entry[1].name) < 0);
  }
}

TEST(stridedWalkStartsAnywhere) {
  int64_t dims[] = {2, 3, 4}, strides[] = {1, 8, 2};
  for (int64_t first = 0; first < 24; ++first) {
    StridedWalk walk(3, dims, strides, first);
    for (int64_t i = first; i < 24; ++i, walk.next())
      CHECK(walk.offset == i / 12 + i / 4 % 3 * 8 + i % 4 * 2);
  }
}

TEST(suppressionKeepsTheBestOfEachClass) {
  // Two boxes that overlap by half, one apart, one with corners the other way round; the second class has no scores.
  float boxes[] = {0, 0, 1, 1, 0, 0.5f, 1, 1.5f, 0, 4, 1, 5, 3, 9, 2, 8};
  float scores[] = {0.8f, 0.9f, 0.3f, 0.7f, 0, 0, 0, 0};
  float iou = 0.3f, least = 0.2f;
  int64_t most = 3, indices[24], count = -1, config[] = {0};
  alignas(64) char scratch[64];
  std::vector<int64_t> boxDims{1, 4, 4}, boxStrides{16, 4, 1}, scoreDims{1, 2, 4}, scoreStrides{8, 4, 1}, rows{8, 3},
      dense{3, 1}, none;
  disc_view operands[] = {view(boxes, DISC_F32, boxDims, boxStrides), view(scores, DISC_F32, scoreDims, scoreStrides),
                          view(&most, DISC_I64, none, none),          view(&iou, DISC_F32, none, none),
                          view(&least, DISC_F32, none, none),         view(indices, DISC_I64, rows, dense),
                          view(&count, DISC_I64, none, none)};
  auto run = [&] { return disc_fn_non_max_suppression(nullptr, operands, config, 0, 1, scratch); };
  CHECK(run() == DISC_OK && count == 3);
  const int64_t expected[] = {0, 0, 1, 0, 0, 3, 0, 0, 2};
  CHECK(std::memcmp(indices, expected, sizeof(expected)) == 0);
  iou = 0.4f, most = 2;
  CHECK(run() == DISC_OK && count == 2 && indices[2] == 1 && indices[5] == 0);
}

TEST(suppressedBoxesFollowTheirOrder) {
  // Two boxes that overlap by a third, one apart, one without an area; columns lie apart.
  double boxes[] = {0, 0, 4, 2, 0, 0.5, 0, 2, 1, 1, 5, 2, 1, 1.5, 1, 2};
  int64_t order[] = {1, 3, 0, 2}, indices[4], count = -1;
  std::vector<int64_t> boxDims{4, 4}, boxStrides{1, 4}, four{4}, dense{1}, none;
  alignas(64) char scratch[4 * 41];
  disc_view operands[] = {view(boxes, DISC_F64, boxDims, boxStrides), view(order, DISC_I64, four, dense),
                          view(indices, DISC_I64, four, dense), view(&count, DISC_I64, none, none)};
  auto run = [&](double threshold) {
    int64_t config[1];
    std::memcpy(config, &threshold, sizeof(threshold));
    return disc_fn_suppress_boxes(nullptr, operands, config, 0, 1, scratch) == DISC_OK ? count : -1;
  };
  CHECK(run(0.4) == 4 && indices[0] == 1 && indices[3] == 2);
  CHECK(run(0.3) == 3 && indices[0] == 1 && indices[1] == 3 && indices[2] == 2);
}

TEST(nonzeroOfStridedViews) {
  // The transpose of a 2x3 matrix.
  float data[] = {0, 1, 2, -0.0f, 0, 3};
  std::vector<int64_t> dims{3, 2}, strides{1, 3}, rows{6, 2}, dense{2, 1}, none;
  int64_t indices[12], count = -1;
  disc_view operands[] = {view(data, DISC_F32, dims, strides), view(indices, DISC_I64, rows, dense),
                          view(&count, DISC_I64, none, none)};
  CHECK(disc_fn_nonzero(nullptr, operands, nullptr, 0, 1, nullptr) == DISC_OK);
  CHECK(count == 3);
  const int64_t expected[] = {1, 0, 2, 0, 2, 1};
  CHECK(std::memcmp(indices, expected, sizeof(expected)) == 0);
}

TEST(nonzeroWritesNoMoreThanThereIsRoomFor) {
  bool data[] = {true, true, false, true};
  std::vector<int64_t> dims{4}, strides{1}, rows{2, 1}, dense{1, 1}, none;
  int64_t indices[] = {-1, -1, -1}, count = -1;
  disc_view operands[] = {view(data, DISC_BOOL, dims, strides), view(indices, DISC_I64, rows, dense),
                          view(&count, DISC_I64, none, none)};
  CHECK(disc_fn_nonzero(nullptr, operands, nullptr, 0, 1, nullptr) == DISC_OK);
  CHECK(count == 3 && indices[0] == 0 && indices[1] == 1 && indices[2] == -1);
}

TEST(nonzeroOfEmptyAndScalar) {
  uint16_t half = 0x8000; // -0
  std::vector<int64_t> dims{0, 4}, strides{4, 1}, rows{1, 2}, dense{2, 1}, none, one{1, 0};
  int64_t indices[2], count = -1;
  disc_view empty[] = {view(nullptr, DISC_F64, dims, strides), view(indices, DISC_I64, rows, dense),
                       view(&count, DISC_I64, none, none)};
  CHECK(disc_fn_nonzero(nullptr, empty, nullptr, 0, 1, nullptr) == DISC_OK && count == 0);
  disc_view scalar[] = {view(&half, DISC_F16, none, none), view(indices, DISC_I64, one, dense),
                        view(&count, DISC_I64, none, none)};
  CHECK(disc_fn_nonzero(nullptr, scalar, nullptr, 0, 1, nullptr) == DISC_OK && count == 0);
  half = 0x7c00; // infinity
  CHECK(disc_fn_nonzero(nullptr, scalar, nullptr, 0, 1, nullptr) == DISC_OK && count == 1);
  scalar[0].dtype = 0x999;
  CHECK(disc_fn_nonzero(nullptr, scalar, nullptr, 0, 1, nullptr) == DISC_ERROR_TYPE);
}
