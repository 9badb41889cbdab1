//===- TensorTest.cpp - DLPack tensors, buffers and output blocks ---------===//

#include "lib/Runtime/Core/Tensor.h"
#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Arena.h"
#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Half.h"
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

/// Copies a tensor whose dims lie in memory in the order `order`, outermost first, with gaps, there and back.
static void checkPermuted(const std::vector<int64_t> &shape, const std::vector<size_t> &order, int64_t gap) {
  size_t rank = shape.size();
  std::vector<int64_t> extents = shape, strides(rank);
  int64_t next = gap, count = 1;
  for (size_t i = rank; i-- > 0;) {
    strides[order[i]] = next;
    next *= shape[order[i]];
    count *= shape[i];
  }
  size_t room = size_t(std::max<int64_t>(next, 1));
  std::vector<float> data(room), dense(room), back(room);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = float(i);
  copyContiguous(makeTensor(data.data(), extents, strides), dense.data());
  scatterContiguous(dense.data(), shape.data(), makeTensor(back.data(), extents, strides));
  for (int64_t linear = 0; linear < count; ++linear) {
    int64_t at = 0, rest = linear;
    for (size_t i = rank; i-- > 0; rest /= shape[i])
      at += rest % shape[i] * strides[i];
    CHECK(dense[size_t(linear)] == float(at) && back[size_t(at)] == float(at));
  }
}

TEST(copyOfPermutedTensors) {
  for (int64_t gap : {1, 3}) {
    checkPermuted({}, {}, gap);
    checkPermuted({5}, {0}, gap);
    checkPermuted({17, 33}, {1, 0}, gap);
    checkPermuted({16, 32}, {1, 0}, gap);
    checkPermuted({1, 40}, {1, 0}, gap);
    checkPermuted({2, 5, 7, 3}, {0, 2, 3, 1}, gap); // channels last
    checkPermuted({1, 19, 4, 9}, {0, 2, 3, 1}, gap);
    checkPermuted({3, 18, 5, 20, 2}, {4, 1, 0, 3, 2}, gap);
    checkPermuted({4, 6, 18}, {2, 0, 1}, gap);
    std::vector<int64_t> deep(70, 1);
    std::vector<size_t> reversed(70);
    for (size_t i = 0; i < 70; ++i)
      reversed[i] = 69 - i;
    deep[0] = 3, deep[68] = 2, deep[69] = 5;
    checkPermuted(deep, reversed, gap);
  }
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
  const std::pair<int64_t, const char *> types[] = {
      {DISC_I8, "int8"},     {DISC_I16, "int16"},   {DISC_I32, "int32"},   {DISC_I64, "int64"},
      {DISC_U8, "uint8"},    {DISC_U16, "uint16"},  {DISC_U32, "uint32"},  {DISC_U64, "uint64"},
      {DISC_F16, "float16"}, {DISC_F32, "float32"}, {DISC_F64, "float64"}, {DISC_BF16, "bfloat16"},
      {DISC_BOOL, "bool"},   {0x540, "complex64"},  {0x580, "complex128"}, {0x508, "unknown type (code 5, 8 bits)"}};
  for (auto [dtype, name] : types)
    CHECK_TEXT(dtypeName(dtype), name);
  const std::pair<int, const char *> devices[] = {{kDLCPU, "cpu"},     {kDLCUDA, "cuda:1"}, {8, "mps"},
                                                  {kDLROCM, "rocm:1"}, {14, "xpu:1"},       {99, "device type 99"}};
  for (auto [type, name] : devices)
    CHECK_TEXT(deviceName({type, 1}), name);
}

TEST(rangesBeyondTheAddressSpace) {
  char data[64];
  std::vector<int64_t> shape{3, 3}, strides{1, 1};
  auto valid = [&](std::vector<int64_t> extents, std::vector<int64_t> steps, void *at = nullptr, uint64_t offset = 0) {
    shape = std::move(extents);
    strides = std::move(steps);
    DLTensor tensor = makeTensor(at ? at : data, shape, strides);
    tensor.byte_offset = offset;
    ByteRange range;
    bool result = byteRange(tensor, range);
    CHECK(!result || mayOverlap(tensor, tensor) == (range.begin != range.end));
    return result;
  };
  const int64_t most = INT64_MAX;
  CHECK(valid({3, 3}, {3, 1}));
  CHECK(valid({0, 3}, {most, most}));
  CHECK(!valid({-1, 3}, {3, 1}));
  CHECK(!valid({3, 3}, {most, 1}));     // the factor
  CHECK(!valid({3, 3}, {most / 4, 1})); // in bytes
  CHECK(!valid({2, 2}, {most / 4, most / 4}));
  CHECK(!valid({2, 2}, {-most / 4, -most / 4}));
  CHECK(!valid({3}, {-1}, reinterpret_cast<void *>(4)));
  CHECK(!valid({3}, {1}, reinterpret_cast<void *>(UINTPTR_MAX - 7)));
  CHECK(!valid({3}, {1}, nullptr, UINT64_MAX));
  // Ranges of more than an eighth of the address space are not searched.
  std::vector<int64_t> two{2}, far{most / 8};
  DLTensor wide = makeTensor(data, two, far), near = makeTensor(data + 8, two, far);
  CHECK(mayOverlap(wide, near));
  two = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
  // So many combinations of steps that trying them takes too long.
  std::vector<int64_t> steps, others;
  for (int64_t i = 0; i < 12; ++i) {
    steps.push_back(1000003 + 1009 * i * i * i);
    others.push_back(1000033 + 1013 * i * i * i);
  }
  DLTensor many = makeTensor(reinterpret_cast<void *>(uintptr_t(1) << 32), two, steps);
  DLTensor odd = makeTensor(reinterpret_cast<void *>((uintptr_t(1) << 32) + 4000), two, others);
  CHECK(mayOverlap(many, odd));
  std::vector<int64_t> huge{most, most}, huger{most, 1};
  CHECK(!isContiguous(huge.data(), huger.data(), 2));
}

template <typename T> static void checkStrided(uint8_t code) {
  // Every second column of a 2x4 matrix, there and back.
  T data[8], dense[4] = {}, back[8] = {};
  for (size_t i = 0; i < 8; ++i)
    std::memset(&data[i], int(i + 1), sizeof(T));
  std::vector<int64_t> shape{2, 2}, strides{4, 2};
  DLTensor tensor = makeTensor(data, shape, strides);
  tensor.dtype = {code, uint8_t(sizeof(T) * 8), 1};
  copyContiguous(tensor, dense);
  CHECK(std::memcmp(&dense[1], &data[2], sizeof(T)) == 0 && std::memcmp(&dense[3], &data[6], sizeof(T)) == 0);
  tensor.data = back;
  scatterContiguous(dense, shape.data(), tensor);
  for (size_t i = 0; i < 8; i += 2)
    CHECK(std::memcmp(&back[i], &data[i], sizeof(T)) == 0);
  tensor.strides = nullptr;
  scatterContiguous(dense, shape.data(), tensor);
  CHECK(std::memcmp(back, dense, sizeof(dense)) == 0);
  shape[0] = 0;
  std::memset(back, 0, sizeof(back));
  copyContiguous(tensor, dense);
  scatterContiguous(dense, shape.data(), tensor);
  shape[0] = -1; // no elements either
  copyContiguous(tensor, dense);
  scatterContiguous(dense, shape.data(), tensor);
  CHECK(back[0] == T());
}

TEST(elementsOfEveryWidth) {
  checkStrided<uint8_t>(kDLUInt);
  checkStrided<uint16_t>(kDLUInt);
  checkStrided<float>(kDLFloat);
  checkStrided<double>(kDLFloat);
  checkStrided<__int128>(5); // complex
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

TEST(largeBuffersHaveAllTheirBytes) {
  for (size_t bytes : {size_t(128) << 10, (size_t(2) << 20) - 64, (size_t(2) << 20) + 1, (size_t(7) << 20) + 4097}) {
    Buffer buffer;
    auto *data = static_cast<char *>(buffer.reserve(bytes));
    CHECK(data && uintptr_t(data) % kAlignment == 0);
    std::memset(data, 1, bytes);
    CHECK(buffer.grow(3 * bytes, /*keep=*/true));
    CHECK(static_cast<char *>(buffer.data())[bytes - 1] == 1);
    std::memset(buffer.data(), 2, 3 * bytes);
  }
}

TEST(storagesAreReused) {
  StoragePool pool(disc::test::kScaleInfo, Allocator::standard());
  auto first = pool.acquire(), second = pool.acquire();
  CHECK(first != second && first->inputs.size() == 2);
  Storage *address = first.get();
  pool.release(std::move(first));
  CHECK(pool.acquire().get() == address);
}

/// Counts what has been allocated and not released.
struct Counted : Allocator {
  int64_t bytes = 0;
  Counted() {
    context = this;
    allocateFn = [](void *self, size_t size, size_t alignment) -> void * {
      void *data = nullptr;
      if (posix_memalign(&data, alignment, size) != 0)
        return nullptr;
      static_cast<Counted *>(self)->bytes += int64_t(size);
      return data;
    };
    releaseFn = [](void *self, void *data, size_t size) {
      static_cast<Counted *>(self)->bytes -= int64_t(size);
      std::free(data);
    };
  }
};

TEST(storagesOfABurstAreFreedAfterIt) {
  constexpr int64_t kEach = 4096, kManyCalls = 20 * 1024;
  Counted counted;
  {
    StoragePool pool(disc::test::kScaleInfo, counted);
    std::vector<std::unique_ptr<Storage>> burst;
    for (int i = 0; i < 16; ++i) {
      burst.push_back(pool.acquire());
      burst.back()->inputs[0].reserve(kEach);
    }
    for (auto &storage : burst)
      pool.release(std::move(storage));
    CHECK(counted.bytes == 16 * kEach);
    // Two at a time from now on.
    for (int64_t i = 0; i < kManyCalls; ++i) {
      auto one = pool.acquire(), other = pool.acquire();
      CHECK(one->inputs[0].data() && other->inputs[0].data()); // none of them is new
      pool.release(std::move(one));
      pool.release(std::move(other));
    }
    CHECK(counted.bytes == 2 * kEach);
  }
  CHECK(counted.bytes == 0);
}

TEST(scratchOfABurstIsFreedAfterIt) {
  Counted counted;
  {
    ScratchPool pool(counted);
    std::vector<Buffer> burst;
    for (int i = 0; i < 8; ++i) {
      burst.push_back(pool.acquire());
      burst.back().reserve(1024);
    }
    for (Buffer &buffer : burst)
      pool.release(std::move(buffer));
    for (int i = 0; i < 10 * 1024; ++i)
      pool.release(pool.acquire());
    CHECK(counted.bytes == 1024);
  }
  CHECK(counted.bytes == 0);
}

TEST(outputsOfABurstAreFreedAfterIt) {
  Counted counted;
  auto pool = std::make_shared<OutputPool>(counted);
  int64_t dims[] = {64, 64};
  std::vector<DLManagedTensorVersioned *> burst;
  for (int i = 0; i < 16; ++i)
    burst.push_back(pool->allocate(DISC_F32, 2, dims));
  for (DLManagedTensorVersioned *output : burst)
    output->deleter(output);
  CHECK(pool->heldBytes() == size_t(16 * 64 * 64 * 4));
  for (int i = 0; i < 4 * 1024; ++i) {
    DLManagedTensorVersioned *output = pool->allocate(DISC_F32, 2, dims);
    output->deleter(output);
  }
  CHECK(pool->heldBytes() == size_t(64 * 64 * 4) && counted.bytes == 64 * 64 * 4);
  pool.reset();
  CHECK(counted.bytes == 0);
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

// As hardware rounds: to the nearest, ties to even, and what is too large becomes an infinity.
TEST(halvesRoundAsHardwareDoes) {
  auto bits = [](auto half) {
    uint16_t result;
    std::memcpy(&result, &half, sizeof(result));
    return result;
  };
  const float inf = __builtin_inff(), nan = __builtin_nanf("");
  const struct {
    float value;
    uint16_t half, bfloat;
  } table[] = {
      {0, 0, 0},
      {-0.0f, 0x8000, 0x8000},
      {1, 0x3c00, 0x3f80},
      {1 + 0x1p-11f, 0x3c00, 0x3f80},        // a tie, to even
      {1 + 3 * 0x1p-11f, 0x3c02, 0x3f80},    // a tie, upwards
      {1 + 0x1p-8f, 0x3c04, 0x3f80},         //
      {1 + 3 * 0x1p-8f, 0x3c0c, 0x3f82},     //
      {-65504, 0xfbff, 0xc780},              // the largest
      {65520, 0x7c00, 0x4780},               // beyond
      {1e30f, 0x7c00, 0x714a},               //
      {3.4e38f, 0x7c00, 0x7f80},             //
      {0x1p-24f, 0x0001, 0x3380},            // the smallest
      {0x1p-25f, 0x0000, 0x3300},            // a tie with zero
      {0x1p-14f - 0x1p-24f, 0x03ff, 0x3880}, // the largest subnormal
      {0x1p-100f, 0x0000, 0x0d80},           //
      {0x1p-149f, 0x0000, 0x0000},           // subnormal before
      {inf, 0x7c00, 0x7f80},
      {-inf, 0xfc00, 0xff80},
      {nan, 0x7e00, 0x7fc0},
  };
  for (const auto &row : table) {
    CHECK(bits(__truncsfhf2(row.value)) == row.half && bits(__truncdfhf2(row.value)) == row.half);
    CHECK(bits(__truncsfbf2(row.value)) == row.bfloat && bits(__truncdfbf2(row.value)) == row.bfloat);
  }
  CHECK(bits(__truncdfhf2(1e300)) == 0x7c00 && bits(__truncdfbf2(1e-300)) == 0);
  // Back, every one of them.
  for (int value = 0; value < 0x10000; ++value) {
    auto half = uint16_t(value);
    _Float16 narrow;
    std::memcpy(&narrow, &half, sizeof(half));
    float wide = __extendhfsf2(narrow);
    CHECK(bits(__truncsfhf2(wide)) == (wide == wide ? half : half | 0x200));
    CHECK(__extendhfdf2(narrow) == double(wide) || wide != wide);
  }
}
