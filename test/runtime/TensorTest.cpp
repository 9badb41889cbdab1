//===- TensorTest.cpp - DLPack tensors, buffers and output blocks ---------===//

#include "lib/Runtime/Core/Tensor.h"
#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Arena.h"
#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Outputs.h"

#include <cstring>
#include <vector>

using namespace disc::rt;

static DLTensor makeTensor(void *data, std::vector<int64_t> &shape, std::vector<int64_t> &strides) {
  return {data, {kDLCPU, 0}, int32_t(shape.size()), {2, 32, 1}, shape.data(), strides.data(), 0};
}

TEST(contiguity) {
  float data[24];
  std::vector<int64_t> shape{2, 3, 4}, dense{12, 4, 1}, odd{12, 1, 3};
  CHECK(isContiguous(makeTensor(data, shape, dense)));
  CHECK(!isContiguous(makeTensor(data, shape, odd)));
  std::vector<int64_t> unit{1, 3, 1}, any{99, 1, 7};
  CHECK(isContiguous(makeTensor(data, unit, any)));
  std::vector<int64_t> empty{2, 0, 4};
  CHECK(isContiguous(makeTensor(nullptr, empty, odd)));
  DLTensor noStrides = makeTensor(data, shape, dense);
  noStrides.strides = nullptr;
  CHECK(isContiguous(noStrides));
}

TEST(copyOfStridedTensors) {
  float data[12];
  for (int i = 0; i < 12; ++i)
    data[i] = float(i);
  // The transpose of a 3x4 matrix, then one row broadcast, then every second column.
  std::vector<int64_t> shape{4, 3}, strides{1, 4};
  float out[12];
  copyContiguous(makeTensor(data, shape, strides), out);
  float transposed[] = {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11};
  CHECK(std::memcmp(out, transposed, sizeof(out)) == 0);
  shape = {3, 2}, strides = {0, 1};
  copyContiguous(makeTensor(data, shape, strides), out);
  float broadcast[] = {0, 1, 0, 1, 0, 1};
  CHECK(std::memcmp(out, broadcast, sizeof(broadcast)) == 0);
  shape = {3, 2}, strides = {4, 2};
  DLTensor offset = makeTensor(data, shape, strides);
  offset.byte_offset = sizeof(float);
  copyContiguous(offset, out);
  float columns[] = {1, 3, 5, 7, 9, 11};
  CHECK(std::memcmp(out, columns, sizeof(columns)) == 0);
}

TEST(bytesOfTensors) {
  int64_t bytes = -1, plain[] = {2, 3}, huge[] = {INT64_MAX, 2}, emptyHuge[] = {INT64_MAX, INT64_MAX, 0}, odd[] = {-1};
  CHECK(denseBytes(plain, 2, 4, bytes) && bytes == 24);
  CHECK(!denseBytes(huge, 2, 4, bytes));
  CHECK(denseBytes(emptyHuge, 3, 4, bytes) && bytes == 0);
  CHECK(!denseBytes(odd, 1, 4, bytes));
}

TEST(rangesOfTensors) {
  char data[96];
  std::vector<int64_t> shape{2, 3}, strides{-12, 2};
  DLTensor tensor = makeTensor(data, shape, strides);
  tensor.byte_offset = 48;
  ByteRange range, other;
  CHECK(byteRange(tensor, range));
  CHECK(range.begin == uintptr_t(data) && range.end == uintptr_t(data) + 48 + 16 + 4);
  tensor.byte_offset = UINT64_MAX;
  CHECK(!byteRange(tensor, other));
  tensor.byte_offset = 0;
  strides = {INT64_MAX, 1};
  CHECK(!byteRange(tensor, other));
  shape = {0, 3};
  CHECK(byteRange(tensor, other) && other.begin == other.end && !range.overlaps(other));
  tensor.byte_offset = UINT64_MAX - 2; // there are no elements, but a start
  CHECK(!byteRange(tensor, other));
  tensor.byte_offset = 0;
}

TEST(overlapOfViews) {
  char data[4096];
  auto overlap = [&](std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t offset,
                     std::vector<int64_t> otherShape, std::vector<int64_t> otherStrides, int64_t otherOffset) {
    DLTensor a = makeTensor(data + 4 * offset, shape, strides);
    DLTensor b = makeTensor(data + 4 * otherOffset, otherShape, otherStrides);
    bool result = mayOverlap(a, b);
    CHECK(result == mayOverlap(b, a));
    return result;
  };
  CHECK(!overlap({50}, {2}, 0, {50}, {2}, 1));           // x[::2], x[1::2]
  CHECK(overlap({50}, {2}, 0, {50}, {2}, 2));            //
  CHECK(!overlap({9, 3}, {6, 1}, 0, {9, 3}, {6, 1}, 3)); // halves of the columns
  CHECK(overlap({9, 4}, {6, 1}, 0, {9, 3}, {6, 1}, 3));  // which share one
  CHECK(!overlap({4, 5}, {1, 9}, 0, {5, 5}, {9, 1}, 4)); // one of them transposed
  CHECK(!overlap({10}, {-2}, 21, {10}, {2}, 0));         // backwards
  CHECK(overlap({10}, {-2}, 20, {10}, {2}, 2));          //
  CHECK(!overlap({3, 4}, {0, 2}, 0, {4}, {2}, 1));       // expanded
  CHECK(!overlap({0, 4}, {4, 1}, 0, {4}, {1}, 0));       // empty
  CHECK(!overlap({6, 2}, {15, 6}, 0, {10}, {10}, 2));    // 15 i + 6 j = 10 k + 2 has no solution there
  CHECK(overlap({6, 2}, {15, 6}, 0, {10}, {10}, 0));
  CHECK(overlap({1, 2}, {int64_t(1) << 61, 1}, 0, {2}, {1}, 1)); // the stride of one row is never used
  CHECK(!overlap({1, 2}, {INT64_MIN, 1}, 0, {2, 1}, {1, INT64_MAX}, 2));

  // Against a search through all elements.
  uint64_t state = 1;
  auto random = [&](int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return int64_t(state >> 33) % below;
  };
  int found = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<int64_t> shapes[2], strides[2];
    int64_t offsets[2];
    std::vector<bool> used[2] = {std::vector<bool>(1000), std::vector<bool>(1000)};
    for (int t : {0, 1}) {
      offsets[t] = 200 + random(20);
      std::vector<int64_t> places{offsets[t]};
      for (int64_t i = 0, rank = random(4); i < rank; ++i) {
        shapes[t].push_back(1 + random(5));
        strides[t].push_back(random(24) - 8);
        std::vector<int64_t> next;
        for (int64_t place : places)
          for (int64_t k = 0; k < shapes[t].back(); ++k)
            next.push_back(place + k * strides[t].back());
        places = next;
      }
      for (int64_t place : places)
        used[t][size_t(place)] = true;
    }
    bool shared = false;
    for (size_t i = 0; i < 1000; ++i)
      shared |= used[0][i] && used[1][i];
    found += !shared;
    CHECK(overlap(shapes[0], strides[0], offsets[0], shapes[1], strides[1], offsets[1]) == shared);
  }
  CHECK(found > 200 && found < 1800);
}

TEST(sizesThatOverflow) {
  auto bits = [](double value) {
    int64_t result;
    std::memcpy(&result, &value, sizeof(result));
    return result;
  };
  auto text = [](const char *value) { return int64_t(reinterpret_cast<uintptr_t>(value)); };
  int64_t pairs[] = {text("small"), bits(8), text("large"), bits(1e30), text("2 * k"), bits(0x1p63), text("k"), 42};
  CHECK_TEXT(sizeError(2, 1, 1, pairs).error().message,
             "large: the size overflows; expected at most 2^59, got about 1e+30 with k = 42");
  pairs[3] = bits(16);
  CHECK_TEXT(sizeError(2, 1, 1, pairs).error().message,
             "2 * k: the size overflows; expected a 64-bit integer, got about 9.22337e+18 with k = 42");
  CHECK(sizeError(0, 1, 1, pairs + 4).code() == Code::Memory);
}

TEST(names) {
  CHECK_TEXT(dtypeName(DISC_F32), "float32");
  CHECK_TEXT(dtypeName(DISC_BF16), "bfloat16");
  CHECK_TEXT(dtypeName(0x508), "unknown type (code 5, 8 bits)");
  CHECK_TEXT(deviceName({2, 1}), "cuda:1");
}

TEST(bufferGrowsAndStays) {
  Buffer buffer;
  void *small = buffer.reserve(0);
  CHECK(small != nullptr);
  void *large = buffer.reserve(5 << 20);
  CHECK(uintptr_t(large) % kAlignment == 0);
  CHECK(buffer.reserve(100) == large);
  CHECK(buffer.capacity() == 5 << 20);
  CHECK(buffer.reserve(SIZE_MAX) == nullptr);
  CHECK(buffer.reserve(100) != nullptr);
}

TEST(storagesAreReused) {
  StoragePool pool(disc::test::kScaleInfo, Allocator::standard());
  auto first = pool.acquire(), second = pool.acquire();
  CHECK(first != second && first->inputs.size() == 2);
  Storage *address = first.get();
  pool.release(std::move(first));
  CHECK(pool.acquire().get() == address);
}

TEST(outputsAreReusedAndOutliveThePool) {
  auto pool = std::make_shared<OutputPool>();
  int64_t dims[] = {3, 0, 5}, square[] = {100, 100};
  DLManagedTensorVersioned *empty = pool->allocate(DISC_F32, 3, dims);
  CHECK(empty->dl_tensor.data && empty->dl_tensor.strides[0] == 5);
  DLManagedTensorVersioned *a = pool->allocate(DISC_F32, 2, square);
  void *data = a->dl_tensor.data;
  CHECK(uintptr_t(data) % kAlignment == 0);
  CHECK(a->dl_tensor.strides[0] == 100 && a->dl_tensor.dtype.code == 2);
  a->deleter(a);
  DLManagedTensorVersioned *b = pool->allocate(DISC_F32, 2, square);
  CHECK(b->dl_tensor.data == data);
  int64_t huge[] = {INT64_MAX, 16}, negative[] = {-1};
  CHECK(!pool->allocate(DISC_F32, 2, huge));
  CHECK(!pool->allocate(DISC_F32, 1, negative));
  pool.reset();
  std::memset(b->dl_tensor.data, 1, 40000);
  b->deleter(b);
  empty->deleter(empty);
}

TEST(outputsKeepNoMoreThanThePeak) {
  auto pool = std::make_shared<OutputPool>();
  // One after another, of growing size: each is freed before the next.
  for (int64_t size = 1; size < 4000; ++size) {
    int64_t dims[] = {size, 64};
    DLManagedTensorVersioned *output = pool->allocate(DISC_F32, 2, dims);
    std::memset(output->dl_tensor.data, 0, size * 256);
    output->deleter(output);
  }
  CHECK(pool->heldBytes() <= 2 * 4000 * 256);
}
