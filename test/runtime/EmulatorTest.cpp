//===- EmulatorTest.cpp - kernels of a GPU on the CPU ---------------------===//
//
// Kernels as `disc-emulate-kernels` makes them, written by hand.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Device/Emulator.h"
#include "Check.h"
#include "lib/Runtime/Device/AccessChecks.h"
#include "lib/Runtime/Device/Device.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

using namespace disc::rt;

namespace {
constexpr disc_emulated_site kBarrier = {"model.py:7", DISC_EMULATED_BARRIER, 0, 0, 0, 0, 0};
constexpr disc_emulated_site kOther = {"model.py:8", DISC_EMULATED_BARRIER, 0, 0, 0, 0, 0};
constexpr disc_emulated_site kXor = {"model.py:9", DISC_EMULATED_SHUFFLE_XOR, 0, 0, 0, 0, 0};
constexpr disc_emulated_site kUp = {"", DISC_EMULATED_SHUFFLE_UP, 0, 0, 0, 0, 0};
constexpr disc_emulated_site kDown = {"", DISC_EMULATED_SHUFFLE_DOWN, 0, 0, 0, 0, 0};
constexpr disc_emulated_site kIdx = {"", DISC_EMULATED_SHUFFLE_IDX, 0, 0, 0, 0, 0};

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

EmulatedMemory &memory() {
  static EmulatedMemory instance;
  return instance;
}

/// Runs a kernel on pointers and numbers.
template <typename... T>
Status launch(disc_emulated_kernel kernel, int64_t threads, int64_t blocks, const char *writes, T... values) {
  disc_device_kernel row = {"k", threads, 0, reinterpret_cast<const void *>(kernel), writes};
  void *args[] = {&values...};
  return emulator().run(row, args, blocks, memory());
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
             "1 blocks of 2048 threads are more than a device runs");
  CHECK_TEXT(textOf(launch(nullptr, 32, 1, "1s", nullptr, 1)), "it was not compiled for the emulated device");
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
             "block 3, thread 0 at model.py:7: waits for its block at a barrier, but thread 5 has left the "
             "kernel");
  CHECK_TEXT(textOf(launch(&takesOtherBarrier, 8, 1, "")),
             "block 0, thread 0 at model.py:7: waits for its block at a barrier, but thread 2 is at another "
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
  std::string text = "block 0, thread 32 at model.py:9: waits for its warp at a shuffle, but thread 40 ";
  CHECK_TEXT(textOf(launch(&divergentShuffle, 64, 1, "s", int64_t(0))), text + "has left the kernel");
  CHECK_TEXT(textOf(launch(&divergentShuffle, 64, 1, "s", int64_t(1))), text + "is at a barrier (model.py:7)");
  CHECK_TEXT(textOf(launch(&divergentShuffle, 64, 1, "s", int64_t(2))), text + "is at another shuffle");
  CHECK(launch(&divergentShuffle, 64, 1, "s", int64_t(3)).ok());
  // The last warp has lanes that no thread of the block stands for.
  CHECK(launch(&divergentShuffle, 34, 1, "s", int64_t(3)).ok());
  CHECK_TEXT(textOf(launch(&divergentShuffle, 33, 1, "s", int64_t(3))),
             "block 0, thread 32 at model.py:9: shuffles with lane 1, but the block has no thread 33");
}

//===-- Checking mode -----------------------------------------------------===//

namespace {
constexpr disc_emulated_site site(int64_t kind, int64_t argument, int64_t begin = 0, int64_t end = 0) {
  return {"model.py:3", kind, 4, 4, argument, begin, end};
}
constexpr disc_emulated_site kRead0 = site(DISC_EMULATED_READ, 0), kWrite0 = site(DISC_EMULATED_WRITE, 0);
constexpr disc_emulated_site kWrite1 = site(DISC_EMULATED_WRITE, 1), kAtomic1 = site(DISC_EMULATED_ATOMIC, 1);
constexpr disc_emulated_site kRead1 = site(DISC_EMULATED_READ, 1);
constexpr disc_emulated_site kReadAny = site(DISC_EMULATED_READ, DISC_EMULATED_ANY);
constexpr disc_emulated_site kWriteAny = site(DISC_EMULATED_WRITE, DISC_EMULATED_ANY);
constexpr disc_emulated_site kReadShared = site(DISC_EMULATED_READ, DISC_EMULATED_SHARED, 64, 128);
constexpr disc_emulated_site kWriteShared = site(DISC_EMULATED_WRITE, DISC_EMULATED_SHARED, 64, 128);
constexpr disc_emulated_site kExtent1 = site(DISC_EMULATED_BUFFER, 1);

/// Launches a kernel in checking mode: one block of 16 threads unless it says otherwise, on a buffer of 16 floats that
/// is read, and one of 32 that is written.
struct Checked {
  int64_t threads = 16, blocks = 1;
  float in[16] = {}, out[32] = {};

  /// Other tests have other things at these places of the stack.
  ~Checked() {
    memory().remove(in);
    memory().remove(out);
  }
  std::string run(disc_emulated_kernel kernel) {
    memory().add(in, sizeof(in));
    memory().add(out, sizeof(out));
    return textOf(launch(kernel, threads, blocks, "01", in, out));
  }
};

/// What a kernel says of itself before it does something.
float *on(disc_thread *thread, const disc_emulated_site &what, float *address, uint64_t lanes = 1) {
  disc_rt_emulate_access(thread, &what, address, lanes);
  return address;
}

struct Kernel {
  Kernel(disc_thread *thread, void *const *args) : thread(thread), i(thread->thread) {
    disc_rt_emulate_check(thread, 0);
    in = value<float *>(args, 0);
    out = value<float *>(args, 1);
    shared = reinterpret_cast<float *>(disc_rt_emulate_shared(thread, 192)) + 16;
  }
  disc_thread *thread;
  uint32_t i;
  float *in, *out, *shared;
};

const std::string kPrefix = "block 0, thread ", kAt = " at model.py:3: ";
} // namespace

TEST(emulated_memory_is_owned_or_lent) {
  EmulatedMemory m;
  char data[100];
  m.lend(data, 50);
  m.lend(data + 10, 80); // overlaps
  CHECK(m.bytesFrom(data) == 50 && m.bytesFrom(data + 10) == 80 && m.bytesFrom(data + 89) == 1);
  CHECK(m.bytesFrom(data + 9) == 41 && m.bytesFrom(data + 90) == 0);
  m.lend(data, 20); // another tensor, later
  CHECK(m.bytesFrom(data) == 20 && m.bytesFrom(data + 15) == 75);
  m.lend(data + 20, 5);
  m.lend(data, 100); // in whole
  CHECK(m.bytesFrom(data + 20) == 80);
  m.add(data, 100);
  m.lend(data + 10, 10); // a part of what is the device's says nothing new
  CHECK(m.bytesFrom(data + 10) == 90 && m.bytesFrom(data + 30) == 70);
  m.remove(data);
  CHECK(m.bytesFrom(data + 10) == 0);
}

static void reverses(disc_thread *thread, void *const *args) {
  Kernel k(thread, args);
  *on(thread, kWriteShared, k.shared + k.i) = *on(thread, kRead0, k.in + k.i);
  disc_rt_emulate_barrier(thread, &kBarrier);
  float *at = k.out + thread->block * 16 + k.i;
  *on(thread, kWrite1, at) = *on(thread, kReadShared, k.shared + 15 - k.i);
  *on(thread, kWriteAny, at) = 1 + *on(thread, kReadAny, at);
}

TEST(checks_find_nothing_in_a_kernel_that_is_right) {
  Checked c;
  c.blocks = 2;
  std::iota(c.in, c.in + 16, 0.0f);
  CHECK_TEXT(c.run(&reverses), "");
  for (int i = 0; i < 32; ++i)
    CHECK(c.out[i] == 16 - i % 16);
  memory().remove(c.in);
  CHECK_TEXT(textOf(launch(&reverses, 16, 1, "01", c.in, c.out)),
             kPrefix + "0" + kAt + "reads 4 bytes at 0 of argument 0, where the device has no memory");
}

TEST(checks_find_accesses_out_of_bounds) {
  Checked c;
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kRead0, k.in + k.i + 3);
  }),
             kPrefix + "13" + kAt + "reads 4 bytes at 64 of argument 0, which has 64");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kWrite1, k.out + int(k.i) - 1);
  }),
             kPrefix + "0" + kAt + "writes 4 bytes at -4 of argument 1, which has 128");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
                Kernel k(thread, args);
                on(thread, kRead0, k.out + k.i); // another buffer of the launch
              }).substr(0, (kPrefix + "0" + kAt + "reads 4 bytes at").size()),
             kPrefix + "0" + kAt + "reads 4 bytes at");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kReadAny, nullptr);
  }),
             kPrefix + "0" + kAt + "reads 4 bytes at 0, where no buffer of the launch is");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kWriteShared, k.shared + k.i * 2);
  }),
             kPrefix + "8" + kAt + "writes 4 bytes at 64 of an array in shared memory, which has 64");
  // Lanes that are off don't count.
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    if (k.i == 0)
      on(thread, kRead0, k.in + 12, 0b1111);
    on(thread, kRead0, k.in + 12, k.i == 3 ? 0b10001 : 0b01010);
  }),
             kPrefix + "3" + kAt + "reads 4 bytes at 64 of argument 0, which has 64");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kRead0, reinterpret_cast<float *>(reinterpret_cast<char *>(k.in) + 2));
  }),
             kPrefix + "0" + kAt + "reads 4 bytes at 2 of argument 0, which is no multiple of 4");
}

TEST(checks_know_extents_that_kernels_tell) {
  Checked c;
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    disc_rt_emulate_extent(thread, &kExtent1, 40);
    on(thread, kWrite1, k.out + k.i);
  }),
             kPrefix + "10" + kAt + "writes 4 bytes at 40 of argument 1, which has 40");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *) {
    disc_rt_emulate_check(thread, 0);
    disc_rt_emulate_extent(thread, &kExtent1, 129);
  }),
             kPrefix + "0" + kAt + "takes 129 bytes of argument 1, where the device has 128");
}

TEST(checks_know_how_many_blocks_there_may_be) {
  Checked c;
  auto kernel = [](disc_thread *thread, void *const *) { disc_rt_emulate_check(thread, 2); };
  c.blocks = 2;
  CHECK_TEXT(c.run(kernel), "");
  c.blocks = 3;
  CHECK_TEXT(c.run(kernel), "3 blocks, where the kernel's code counts on at most 2");
}

TEST(checks_find_writes_to_what_is_read_only) {
  Checked c;
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kWrite0, k.in + k.i);
  }),
             kPrefix + "0" + kAt + "writes 4 bytes at 0 of argument 0, which it may only read");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kWriteAny, k.in + k.i);
  }),
             kPrefix + "0" + kAt + "writes 4 bytes at 0 of argument 0, which it may only read");
}

TEST(checks_find_races_between_threads) {
  Checked c;
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kWriteShared, k.shared + k.i);
    on(thread, kReadShared, k.shared + (k.i == 0 ? 0 : k.i - 1)); // no barrier
  }),
             kPrefix + "1" + kAt +
                 "reads byte 0 of an array in shared memory, which thread 0 has written (model.py:3) since the "
                 "last barrier");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kWriteShared, k.shared + k.i);
    disc_rt_emulate_barrier(thread, &kBarrier);
    on(thread, kReadShared, k.shared + 5);
    if (k.i == 7)
      on(thread, kWriteShared, k.shared + 5);
  }),
             kPrefix + "7" + kAt +
                 "writes byte 20 of an array in shared memory, which several threads have read since the last "
                 "barrier");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kWrite1, k.out + k.i / 2);
  }),
             kPrefix + "1" + kAt +
                 "writes byte 0 of argument 1, which thread 0 has written (model.py:3) since the last barrier");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kAtomic1, k.out);
    disc_rt_emulate_barrier(thread, &kBarrier);
    on(thread, kAtomic1, k.out + 1);
    if (k.i == 3)
      on(thread, kRead1, k.out + 1);
  }),
             kPrefix + "3" + kAt +
                 "reads byte 4 of argument 1, which several threads have written (model.py:3) since the last "
                 "barrier");
}

TEST(checks_find_races_between_blocks) {
  Checked c;
  c.threads = 1;
  c.blocks = 4;
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kWrite1, k.out + thread->block % 3);
  }),
             "block 3, thread 0 at model.py:3: writes byte 0 of argument 1, which block 0 has written "
             "(model.py:3)");
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kRead1, k.out + thread->block);
    on(thread, kWrite1, k.out + (thread->block ? thread->block - 1 : 20));
  }),
             "block 1, thread 0 at model.py:3: writes byte 0 of argument 1, which block 0 has read");
  // Operands that nobody writes may be read by all, and atomics may meet.
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    on(thread, kRead0, k.in);
    on(thread, kAtomic1, k.out);
  }),
             "");
}

TEST(checks_find_reads_of_unwritten_shared_memory) {
  Checked c;
  c.blocks = 2;
  CHECK_TEXT(c.run([](disc_thread *thread, void *const *args) {
    Kernel k(thread, args);
    if (thread->block == 0)
      *on(thread, kWriteShared, k.shared + k.i) = 1;
    disc_rt_emulate_barrier(thread, &kBarrier);
    uint32_t bits;
    std::memcpy(&bits, k.shared + k.i, 4);
    *on(thread, kWrite1, k.out + thread->block * 16 + k.i) = bits == 0x7fa0dead;
    on(thread, kReadShared, k.shared + k.i);
  }),
             "block 1, thread 0 at model.py:3: reads byte 0 of an array in shared memory, which its block has "
             "not written");
  CHECK(c.out[0] == 0 && c.out[16] == 1); // a signalling NaN
}

//===-- What only some kernels do -----------------------------------------===//

static void tellsOfNoBuffer(disc_thread *thread, void *const *args) {
  disc_rt_emulate_check(thread, 0);
  static const disc_emulated_site sites[] = {site(DISC_EMULATED_BUFFER, -1), site(DISC_EMULATED_BUFFER, 2),
                                             site(DISC_EMULATED_BUFFER, 3)};
  disc_rt_emulate_extent(thread, &sites[value<int64_t>(args, 2)], 64);
}

TEST(checks_know_which_arguments_are_buffers) {
  for (int64_t i : {0, 1, 2}) {
    Checked c;
    memory().add(c.in, sizeof(c.in));
    memory().add(c.out, sizeof(c.out));
    const char *names[] = {"-1", "2", "3"};
    std::string text = textOf(launch(&tellsOfNoBuffer, 1, 1, "01s", c.in, c.out, i));
    CHECK(text.find(std::string("argument ") + names[i] + " is no buffer") != std::string::npos);
  }
}

static void updatesOddly(disc_thread *thread, void *const *args) {
  Kernel k(thread, args);
  static const disc_emulated_site update = site(DISC_EMULATED_ATOMIC, 0);
  (void)on(thread, update, k.in + k.i);
}

static void readsMisaligned(disc_thread *thread, void *const *args) {
  Kernel k(thread, args);
  (void)on(thread, kRead0, reinterpret_cast<float *>(reinterpret_cast<char *>(k.in) + 2));
}

static void readsSharedAnywhere(disc_thread *thread, void *const *args) {
  Kernel k(thread, args);
  *on(thread, kWriteAny, k.shared + k.i) = 1;
  (void)on(thread, kReadAny, k.shared + k.i);
}

static void startsNowhere(disc_thread *thread, void *const *args) {
  Kernel k(thread, args);
  (void)on(thread, kReadAny, reinterpret_cast<float *>(64));
}

static void goesPastLanes(disc_thread *thread, void *const *args) {
  Kernel k(thread, args);
  (void)on(thread, kRead0, k.in + 14, 0x7); // three lanes, of which the last is behind the end
}

static void runsBackwards(disc_thread *thread, void *const *args) {
  Kernel k(thread, args);
  (void)on(thread, kRead0, k.in - 1);
}

TEST(checks_find_what_few_kernels_do) {
  const struct {
    disc_emulated_kernel kernel;
    const char *report;
  } table[] = {
      {&updatesOddly, "updates 4 bytes at 0 of argument 0, which it may only read"},
      {&readsMisaligned, "reads 4 bytes at 2 of argument 0, which is no multiple of 4"},
      {&readsSharedAnywhere, nullptr},
      {&startsNowhere, "reads 4 bytes at 64, where no buffer of the launch is"},
      {&goesPastLanes, "reads 4 bytes at 64 of argument 0, which has 64"},
      {&runsBackwards, "reads 4 bytes at -4 of argument 0, which has 64"},
  };
  for (const auto &row : table) {
    Checked c;
    std::string text = c.run(row.kernel);
    CHECK_TEXT(text, row.report ? kPrefix + "0" + kAt + row.report : "");
  }
}

TEST(lent_memory_may_be_empty) {
  EmulatedMemory m;
  char data[16];
  m.lend(data, 0);
  CHECK(m.bytesFrom(data) == 0);
  m.lend(data, 16);
  m.lend(data, 0); // takes nothing away
  CHECK(m.bytesFrom(data + 4) == 12 && m.bytesFrom(data + 16) == 0);
}

TEST(launches_beyond_the_devices_limits) {
  for (auto [threads, blocks] : {std::pair<int64_t, int64_t>{0, 1}, {-1, 1}, {32, int64_t(1) << 31}})
    CHECK(textOf(launch(&addOne, threads, blocks, "1s", nullptr, 1)).find("are more than a device runs") !=
          std::string::npos);
}

//===-- A matrix unit -----------------------------------------------------===//

namespace {
constexpr disc_emulated_site kTf32 = {"", DISC_EMULATED_MATRIX_TF32, 0, 0, 0, 0, 0};
constexpr disc_emulated_site kBf16 = {"", DISC_EMULATED_MATRIX_BF16, 0, 0, 0, 0, 0};
constexpr disc_emulated_site kLoad = {"", DISC_EMULATED_MATRIX_LOAD, 0, 0, 0, 0, 0};

uint32_t bitsOf(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  return bits;
}
/// Of numbers that bf16 has.
uint32_t pair(float low, float high) { return bitsOf(low) >> 16 | (bitsOf(high) & 0xffff0000u); }
} // namespace

/// A has 16 x 8 numbers, B 8 x 8: each lane takes its own of a matrix in memory.
static void multipliesTf32(disc_thread *thread, void *const *args) {
  auto *a = value<const float *>(args, 0), *b = value<const float *>(args, 1);
  uint32_t g = thread->thread / 4, t = thread->thread % 4;
  disc_emulated_fragment f = {};
  for (uint32_t i = 0; i < 4; ++i)
    f.a[i] = bitsOf(a[(g + i % 2 * 8) * 8 + t + i / 2 * 4]);
  for (uint32_t i = 0; i < 2; ++i)
    f.b[i] = bitsOf(b[(t + i * 4) * 8 + g]);
  for (float &sum : f.sums)
    sum = 1;
  disc_rt_emulate_multiply(thread, &kTf32, &f);
  for (uint32_t i = 0; i < 4; ++i)
    value<float *>(args, 2)[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = f.sums[i];
}

TEST(fragments_of_tf32) {
  float a[16 * 8], b[8 * 8], c[16 * 8] = {};
  for (int i = 0; i < 16 * 8; ++i)
    a[i] = float(i % 13 - 6);
  for (int i = 0; i < 8 * 8; ++i)
    b[i] = float(i % 7 - 3);
  CHECK(launch(&multipliesTf32, 32, 1, "001", a, b, c).ok());
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = 1;
      for (int k = 0; k < 8; ++k)
        sum += a[i * 8 + k] * b[k * 8 + j];
      CHECK(c[i * 8 + j] == sum);
    }
  // The unit does not see the lower 13 bits.
  a[0] = 1 + 1.0f / 2048, b[0] = 1;
  for (int k = 1; k < 8; ++k)
    a[k] = 0;
  CHECK(launch(&multipliesTf32, 32, 1, "001", a, b, c).ok());
  CHECK(c[0] == 2);
  CHECK_TEXT(textOf(launch(&multipliesTf32, 16, 1, "001", a, b, c)),
             "block 0, thread 0: multiplies fragments in a warp of 16 threads");
}

static void multipliesBf16(disc_thread *thread, void *const *args) {
  auto *a = value<const float *>(args, 0), *b = value<const float *>(args, 1);
  uint32_t g = thread->thread / 4, t = thread->thread % 4;
  disc_emulated_fragment f = {};
  for (uint32_t i = 0; i < 4; ++i) {
    const float *at = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    f.a[i] = pair(at[0], at[1]);
  }
  for (uint32_t i = 0; i < 2; ++i)
    f.b[i] = pair(b[(2 * t + i * 8) * 8 + g], b[(2 * t + i * 8 + 1) * 8 + g]);
  disc_rt_emulate_multiply(thread, &kBf16, &f);
  for (uint32_t i = 0; i < 4; ++i)
    value<float *>(args, 2)[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = f.sums[i];
}

TEST(fragments_of_bf16) {
  float a[16 * 16], b[16 * 8], c[16 * 8] = {};
  for (int i = 0; i < 16 * 16; ++i)
    a[i] = float(i % 13 - 6);
  for (int i = 0; i < 16 * 8; ++i)
    b[i] = float(i % 7 - 3) / 4;
  CHECK(launch(&multipliesBf16, 32, 1, "001", a, b, c).ok());
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += a[i * 16 + k] * b[k * 8 + j];
      CHECK(c[i * 8 + j] == sum);
    }
}

/// Four matrices one below the other.
static void loadsTransposed(disc_thread *thread, void *const *args) {
  auto *rows = value<const uint16_t *>(args, 0);
  uint32_t words[4];
  disc_rt_emulate_load_transposed(thread, &kLoad, reinterpret_cast<const char *>(rows + 8 * thread->thread), words);
  std::memcpy(value<uint32_t *>(args, 1) + 4 * thread->thread, words, sizeof(words));
}

TEST(matrices_are_transposed) {
  uint16_t rows[4 * 8 * 8];
  std::iota(std::begin(rows), std::end(rows), uint16_t(0));
  uint32_t words[32 * 4] = {};
  CHECK(launch(&loadsTransposed, 32, 1, "01", rows, words).ok());
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      uint32_t first = matrix * 64 + lane % 4 * 16 + lane / 4;
      CHECK(words[lane * 4 + matrix] == (first | (first + 8) << 16));
    }
}

/// Copies 16 bytes for each thread; `early` reads them before anybody has waited.
static void copies(disc_thread *thread, void *const *args) {
  static constexpr disc_emulated_site write = {"model.py:5", DISC_EMULATED_WRITE, 16, 16, DISC_EMULATED_SHARED, 0, 512};
  static constexpr disc_emulated_site read = {"model.py:6", DISC_EMULATED_READ, 4, 4, DISC_EMULATED_SHARED, 0, 512};
  auto *in = value<const char *>(args, 0);
  bool early = value<int64_t>(args, 2), checks = value<int64_t>(args, 3);
  if (checks)
    disc_rt_emulate_check(thread, 0);
  char *shared = disc_rt_emulate_shared(thread, 512), *own = shared + 16 * thread->thread;
  if (checks)
    disc_rt_emulate_access(thread, &write, own, 1);
  // The second half of the threads copies nothing: there are zeros.
  disc_rt_emulate_copy(thread, &write, own, in + 16 * thread->thread, thread->thread < 16 ? 16 : 0);
  disc_rt_emulate_commit(thread);
  disc_rt_emulate_wait(thread, early ? 1 : 0);
  disc_rt_emulate_barrier(thread, &kBarrier);
  const char *other = shared + 16 * (thread->thread ^ 1);
  if (checks)
    disc_rt_emulate_access(thread, &read, other, 1);
  std::memcpy(value<int32_t *>(args, 1) + thread->thread, other, 4);
}

TEST(copies_end_when_they_are_waited_for) {
  int32_t in[32 * 4], out[32] = {};
  std::iota(std::begin(in), std::end(in), 1);
  memory().add(in, sizeof(in));
  memory().add(out, sizeof(out));
  for (int64_t checks : {0, 1}) {
    CHECK_TEXT(textOf(launch(&copies, 32, 2, "01ss", in, out, int64_t(0), checks)), "");
    for (int i = 0; i < 32; ++i)
      CHECK(out[i] == (i < 16 ? 4 * (i ^ 1) + 1 : 0));
  }
  CHECK_TEXT(textOf(launch(&copies, 32, 1, "01ss", in, out, int64_t(1), int64_t(1))),
             "block 0, thread 0 at model.py:6: reads byte 16 of an array in shared memory, which a copy writes that "
             "nobody has waited for");
  memory().remove(in);
  memory().remove(out);
}

TEST(powers_of_two) {
  CHECK(disc_rt_emulate_power(3) == 8 && disc_rt_emulate_power(-1) == 0.5f);
  CHECK(disc_rt_emulate_power(-INFINITY) == 0);
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

TEST(emulated_device_knows_its_memory) {
  Device *device = nullptr;
  CHECK(DeviceRegistry::get().find("emulated", 0, device).ok());
  disc_device_kernel kernel = {"k", 16, 0, reinterpret_cast<const void *>(&reverses), "01"};
  disc_device_code code = {"emulated", 0, nullptr, 1, &kernel};
  std::unique_ptr<DeviceModule> module;
  CHECK(device->load(code, module).ok());
  float in[16] = {};
  void *inData = in, *out = nullptr;
  CHECK(device->allocate(64, nullptr, out).ok());
  void *args[] = {&inData, &out};
  auto run = [&](int64_t blocks) { return textOf(device->launch(*module, {0, args, 2, blocks}, nullptr)); };
  CHECK_TEXT(run(1), kPrefix + "0" + kAt + "reads 4 bytes at 0 of argument 0, where the device has no memory");
  device->lend(in, sizeof(in));
  CHECK_TEXT(run(1), "");
  CHECK_TEXT(run(2), "block 1, thread 0 at model.py:3: writes 4 bytes at 64 of argument 1, which has 64");
  device->release(out, nullptr);
  CHECK_TEXT(run(1), kPrefix + "0" + kAt + "writes 4 bytes at 0 of argument 1, where the device has no memory");
}
