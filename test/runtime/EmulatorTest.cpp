//===- EmulatorTest.cpp - kernels of a GPU on the CPU ---------------------===//
//
// Kernels as `disc-emulate-kernels` makes them, written by hand.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Device/Emulator.h"
#include "Check.h"
#include "lib/Runtime/Device/Device.h"

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

using namespace disc::rt;

namespace {
constexpr disc_emulated_site kBarrier = {"model.py:7", DISC_EMULATED_BARRIER};
constexpr disc_emulated_site kOther = {"model.py:8", DISC_EMULATED_BARRIER};
constexpr disc_emulated_site kXor = {"model.py:9", DISC_EMULATED_SHUFFLE_XOR};
constexpr disc_emulated_site kUp = {"", DISC_EMULATED_SHUFFLE_UP};
constexpr disc_emulated_site kDown = {"", DISC_EMULATED_SHUFFLE_DOWN};
constexpr disc_emulated_site kIdx = {"", DISC_EMULATED_SHUFFLE_IDX};

template <typename T> T &value(void *const *args, int i) { return *static_cast<T *>(args[i]); }

float shuffled(disc_thread *thread, const disc_emulated_site &site, float v, int32_t offset, int32_t width = 32) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  bits = uint32_t(disc_rt_emulate_shuffle(thread, &site, bits, offset, width));
  std::memcpy(&v, &bits, 4);
  return v;
}

Emulator &emulator() {
  static Emulator instance(2);
  return instance;
}

/// Runs a kernel on pointers and numbers.
template <typename... T>
Status launch(disc_emulated_kernel kernel, int64_t threads, int64_t blocks, const char *writes, T... values) {
  disc_device_kernel row = {"k", threads, 0, reinterpret_cast<const void *>(kernel), writes};
  void *args[] = {&values...};
  return emulator().run(row, args, blocks);
}

std::string textOf(const Status &status) { return status.ok() ? "" : status.error().message; }
} // namespace

//===-- Without barriers --------------------------------------------------===//

static void addOne(disc_thread *thread, void *const *args) {
  auto i = int64_t(thread->block) * thread->blockDim + thread->thread;
  if (i < value<int64_t>(args, 1))
    value<int32_t *>(args, 0)[i] += int32_t(1 + thread->gridDim);
}

TEST(threads_without_barriers_are_calls) {
  std::vector<int32_t> data(1000, 5);
  CHECK(launch(&addOne, 64, 16, "1s", data.data(), int64_t(data.size())).ok());
  for (int32_t v : data)
    CHECK(v == 22);
  CHECK(launch(&addOne, 1024, 1, "1s", data.data(), int64_t(data.size())).ok());
  CHECK(data[999] == 24);
  CHECK(launch(&addOne, 1024, 0, "1s", data.data(), int64_t(data.size())).ok());
}

TEST(what_a_device_cannot_run_is_an_error) {
  CHECK_TEXT(textOf(launch(&addOne, 2048, 1, "1s", nullptr, 1)),
             "kernel 'k': 1 blocks of 2048 threads are more than a device runs");
  CHECK_TEXT(textOf(launch(nullptr, 32, 1, "1s", nullptr, 1)), "kernel 'k' was not compiled for the emulated device");
}

//===-- Barriers and shared memory ----------------------------------------===//

/// The sum of a row, by a tree in shared memory.
static void treeSum(disc_thread *thread, void *const *args) {
  auto *shared = reinterpret_cast<float *>(disc_rt_emulate_shared(thread, int64_t(thread->blockDim) * 4));
  const float *row = value<const float *>(args, 0) + int64_t(thread->block) * thread->blockDim;
  shared[thread->thread] = row[thread->thread];
  for (uint32_t half = thread->blockDim / 2; half > 0; half /= 2) {
    disc_rt_emulate_barrier(thread, &kBarrier);
    if (thread->thread < half)
      shared[thread->thread] += shared[thread->thread + half];
  }
  if (thread->thread == 0)
    value<float *>(args, 1)[thread->block] = shared[0];
}

/// The same, by shuffles in warps and shared memory between them.
static void warpSum(disc_thread *thread, void *const *args) {
  auto *shared = reinterpret_cast<float *>(disc_rt_emulate_shared(thread, 32 * 4));
  const float *row = value<const float *>(args, 0) + int64_t(thread->block) * thread->blockDim;
  float sum = row[thread->thread];
  for (int32_t distance = 16; distance > 0; distance /= 2)
    sum += shuffled(thread, kXor, sum, distance);
  if (thread->thread % 32 == 0)
    shared[thread->thread / 32] = sum;
  disc_rt_emulate_barrier(thread, &kBarrier);
  if (thread->thread != 0)
    return;
  for (uint32_t warp = 1; warp < thread->blockDim / 32; ++warp)
    sum += shared[warp];
  value<float *>(args, 1)[thread->block] = sum;
}

TEST(sums_of_rows_by_blocks) {
  constexpr size_t kRows = 37, kColumns = 256;
  std::vector<float> data(kRows * kColumns), sums(kRows);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = float(i % 1001) - 500;
  for (disc_emulated_kernel kernel : {&treeSum, &warpSum}) {
    std::fill(sums.begin(), sums.end(), 0);
    CHECK(launch(kernel, kColumns, kRows, "01", data.data(), sums.data()).ok());
    for (size_t r = 0; r < kRows; ++r)
      CHECK(sums[r] == std::accumulate(data.begin() + r * kColumns, data.begin() + (r + 1) * kColumns, 0.0f));
  }
}

/// Threads take different ways, of which some wait and others do not, but all meet at the end.
static void sometimesEarly(disc_thread *thread, void *const *args) {
  auto *shared = reinterpret_cast<int32_t *>(disc_rt_emulate_shared(thread, int64_t(thread->blockDim) * 4));
  bool all = thread->block % 2 == 0;
  if (!all)
    return;
  shared[thread->thread] = int32_t(thread->thread);
  disc_rt_emulate_barrier(thread, &kBarrier);
  value<int32_t *>(args, 0)[thread->block * thread->blockDim + thread->thread] =
      shared[thread->blockDim - 1 - thread->thread];
}

TEST(blocks_may_leave_as_a_whole) {
  std::vector<int32_t> data(10 * 48, -1);
  CHECK(launch(&sometimesEarly, 48, 10, "1", data.data()).ok());
  for (int32_t i = 0; i < int32_t(data.size()); ++i)
    CHECK(data[i] == (i / 48 % 2 == 0 ? 47 - i % 48 : -1));
}

static void missesBarrier(disc_thread *thread, void *const *args) {
  if (thread->block == value<int64_t>(args, 0) && thread->thread == 5)
    return;
  disc_rt_emulate_barrier(thread, &kBarrier);
}

static void takesOtherBarrier(disc_thread *thread, void *const *) {
  disc_rt_emulate_barrier(thread, thread->thread == 2 ? &kOther : &kBarrier);
}

TEST(a_missed_barrier_is_an_error) {
  CHECK_TEXT(textOf(launch(&missesBarrier, 32, 4, "s", int64_t(3))),
             "kernel 'k' (model.py:7), block 3, thread 0: waits for its block at a barrier, but thread 5 has left the "
             "kernel");
  CHECK_TEXT(textOf(launch(&takesOtherBarrier, 8, 1, "")),
             "kernel 'k' (model.py:7), block 0, thread 0: waits for its block at a barrier, but thread 2 is at another "
             "barrier (model.py:8)");
  // Nothing is left of it.
  CHECK(launch(&missesBarrier, 32, 4, "s", int64_t(4)).ok());
}

//===-- Shuffles ----------------------------------------------------------===//

static void allShuffles(disc_thread *thread, void *const *args) {
  auto *out = value<float *>(args, 0);
  int32_t width = int32_t(value<int64_t>(args, 1)), n = int32_t(thread->blockDim), i = int32_t(thread->thread);
  auto put = [&](int32_t row, float v) {
    out[row * n + i] = v;
    out[(row + 4) * n + i] = float(thread->inRange);
  };
  put(0, shuffled(thread, kXor, float(i), 3, width));
  put(1, shuffled(thread, kUp, float(i), 2, width));
  put(2, shuffled(thread, kDown, float(i), 5, width));
  put(3, shuffled(thread, kIdx, float(i), i % 7, width));
}

TEST(shuffles_within_warps) {
  for (int32_t width : {32, 64}) {
    constexpr int32_t n = 128;
    std::vector<float> out(8 * n);
    CHECK(launch(&allShuffles, n, 1, "1s", out.data(), int64_t(width)).ok());
    for (int32_t i = 0; i < n; ++i) {
      int32_t lane = i % width, first = i - lane;
      CHECK(out[i] == float(first + (lane ^ 3)) && out[4 * n + i] == 1);
      CHECK(out[n + i] == float(lane < 2 ? i : i - 2) && out[5 * n + i] == float(lane >= 2));
      CHECK(out[2 * n + i] == float(lane + 5 < width ? i + 5 : i) && out[6 * n + i] == float(lane + 5 < width));
      CHECK(out[3 * n + i] == float(first + i % 7) && out[7 * n + i] == 1);
    }
  }
}

/// 64 bits, and warps that go different ways.
static void wideShuffle(disc_thread *thread, void *const *args) {
  uint64_t v = uint64_t(thread->thread) << 40 | 7;
  for (uint32_t k = 0; k <= thread->thread / 32; ++k)
    v = disc_rt_emulate_shuffle(thread, &kXor, v, 1, 32);
  value<uint64_t *>(args, 0)[thread->thread] = v;
}

TEST(warps_shuffle_apart) {
  std::vector<uint64_t> out(96);
  CHECK(launch(&wideShuffle, 96, 1, "1", out.data()).ok());
  for (uint64_t i = 0; i < 96; ++i)
    CHECK(out[i] == ((i / 32 % 2 == 0 ? i ^ 1 : i) << 40 | 7));
}

static void divergentShuffle(disc_thread *thread, void *const *args) {
  int64_t what = value<int64_t>(args, 0);
  if (what == 0 && thread->thread == 40)
    return;
  if (what == 1 && thread->thread == 40)
    disc_rt_emulate_barrier(thread, &kBarrier);
  shuffled(thread, what == 2 && thread->thread == 40 ? kUp : kXor, 1, 1);
  if (what == 1 && thread->thread != 40)
    disc_rt_emulate_barrier(thread, &kBarrier);
}

TEST(a_shuffle_in_a_divergent_warp_is_an_error) {
  std::string text = "kernel 'k' (model.py:9), block 0, thread 32: waits for its warp at a shuffle, but thread 40 ";
  CHECK_TEXT(textOf(launch(&divergentShuffle, 64, 1, "s", int64_t(0))), text + "has left the kernel");
  CHECK_TEXT(textOf(launch(&divergentShuffle, 64, 1, "s", int64_t(1))), text + "is at a barrier (model.py:7)");
  CHECK_TEXT(textOf(launch(&divergentShuffle, 64, 1, "s", int64_t(2))), text + "is at another shuffle");
  CHECK(launch(&divergentShuffle, 64, 1, "s", int64_t(3)).ok());
  // The last warp has lanes that no thread of the block stands for.
  CHECK(launch(&divergentShuffle, 34, 1, "s", int64_t(3)).ok());
  CHECK_TEXT(textOf(launch(&divergentShuffle, 33, 1, "s", int64_t(3))),
             "kernel 'k' (model.py:9), block 0, thread 32: shuffles with lane 1, but the block has no thread 33");
}

//===-- The device --------------------------------------------------------===//

TEST(emulated_device_launches) {
  Device *device = nullptr;
  CHECK(DeviceRegistry::get().find("emulated", 0, device).ok());
  disc_device_kernel kernel = {"k", 128, 0, reinterpret_cast<const void *>(&addOne), "1s"};
  disc_device_code code = {"emulated", 0, nullptr, 1, &kernel};
  std::unique_ptr<DeviceModule> module;
  CHECK(device->load(code, module).ok());
  void *data = nullptr;
  CHECK(device->allocate(300 * 4, nullptr, data).ok());
  std::vector<int32_t> values(300, 1);
  CHECK(device->copyIn(data, values.data(), 300 * 4, nullptr).ok());
  int64_t count = 300;
  void *args[] = {&data, &count};
  CHECK(device->launch(*module, {0, args, 2, 3}, nullptr).ok());
  CHECK(device->read(values.data(), data, 300 * 4, nullptr).ok());
  for (int32_t v : values)
    CHECK(v == 5);
  device->release(data, nullptr);
}
