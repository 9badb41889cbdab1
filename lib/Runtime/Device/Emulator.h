//===- Emulator.h - kernels of a GPU on the CPU -----------------*- C++ -*-===//
//
// The emulated device runs the very kernels that go to a GPU, compiled for the host by `disc-emulate-kernels`. A thread
// of a block is a fiber once it meets a barrier or a shuffle; a thread that meets none is a call. Threads of a block
// run on one thread of the machine, one after another, blocks on several.
//
// The functions in the upper half are called by kernels. In checking mode, chosen when they are compiled, kernels tell
// of every access to memory before they do it, and the first one that is wrong ends the launch with an error.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_DEVICE_EMULATOR_H
#define DISC_RUNTIME_DEVICE_EMULATOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A thread of an emulated device. Kernels read these fields.
typedef struct disc_thread {
  uint32_t thread; ///< In its block.
  uint32_t block;
  uint32_t blockDim, gridDim;
  uint32_t inRange; ///< Of the thread's last shuffle: 1 if the lane that it asked is one of the warp.
} disc_thread;

/// Does the work of one thread. `args[i]` says where the value of the i-th argument is.
typedef void (*disc_emulated_kernel)(disc_thread *thread, void *const *args);

enum disc_emulated_kind {
  DISC_EMULATED_BARRIER = 0,
  DISC_EMULATED_SHUFFLE_XOR = 1,
  DISC_EMULATED_SHUFFLE_UP = 2,
  DISC_EMULATED_SHUFFLE_DOWN = 3,
  DISC_EMULATED_SHUFFLE_IDX = 4,
  DISC_EMULATED_READ = 5,
  DISC_EMULATED_WRITE = 6,
  DISC_EMULATED_ATOMIC = 7,
  DISC_EMULATED_BUFFER = 8, ///< No operation: what the kernel says of a buffer.
  DISC_EMULATED_MATRIX_TF32 = 9,
  DISC_EMULATED_MATRIX_F16 = 10,
  DISC_EMULATED_MATRIX_BF16 = 11,
  DISC_EMULATED_MATRIX_LOAD = 12
};

/// In place of an argument's number: any buffer, or the block's own memory.
#define DISC_EMULATED_ANY (-1)
#define DISC_EMULATED_SHARED (-2)

/// A place in a kernel, one for each operation that calls the functions below. Every field is 8 bytes, as in
/// ModelInfo.h.
typedef struct disc_emulated_site {
  const char *where; ///< The user's line, "model.py:12", or "".
  int64_t kind;      ///< enum disc_emulated_kind
  // Of an access:
  int64_t bytes;      ///< Of a lane.
  int64_t alignment;  ///< That the code counts on.
  int64_t argument;   ///< From which the address derives.
  int64_t begin, end; ///< For DISC_EMULATED_SHARED: of the array, in the block's memory.
} disc_emulated_site;

/// Memory that the threads of the block share, aligned to 64 bytes. Every thread asks for the same.
char *disc_rt_emulate_shared(disc_thread *thread, int64_t bytes);

/// Waits for all threads of the block.
void disc_rt_emulate_barrier(disc_thread *thread, const disc_emulated_site *site);

/// The value of another lane of the warp, of `width` threads. All of them come here.
uint64_t disc_rt_emulate_shuffle(disc_thread *thread, const disc_emulated_site *site, uint64_t value, int32_t offset,
                                 int32_t width);

/// A lane's elements of a product of fragments, as `mma.sync` of m16n8k16 (m16n8k8 for tf32) distributes them.
typedef struct disc_emulated_fragment {
  uint32_t a[4], b[2];
  float sums[4]; ///< Before and after.
} disc_emulated_fragment;

/// Multiplies fragments with the other lanes of the warp. All 32 come here.
void disc_rt_emulate_multiply(disc_thread *thread, const disc_emulated_site *site, disc_emulated_fragment *fragment);

/// Four matrices of 8 x 8 elements of 16 bits: lane `i` brings the address of row `i % 8` of matrix `i / 8`, and gets
/// of each the rows `2 * (i % 4)` and the next of column `i / 4`, as a word. All 32 lanes come here.
void disc_rt_emulate_load_transposed(disc_thread *thread, const disc_emulated_site *site, const char *row,
                                     uint32_t *words);

/// 2 to the power of `value`, for the instruction `ex2.approx`.
float disc_rt_emulate_power(float value);

/// Copies `bytes` bytes to memory of the block, and zeros behind them up to the site's `bytes`, at some time before the
/// thread has waited for them. The site is that of the write.
void disc_rt_emulate_copy(disc_thread *thread, const disc_emulated_site *site, char *to, const char *from,
                          int32_t bytes);
/// Ends a group of the thread's copies.
void disc_rt_emulate_commit(disc_thread *thread);
/// Waits for all groups of the thread but the last `pending`.
void disc_rt_emulate_wait(disc_thread *thread, int32_t pending);

/// What a kernel in checking mode calls first. Its code counts on `most` blocks at most; 0: on nothing.
void disc_rt_emulate_check(disc_thread *thread, int64_t most);

/// The buffer of the site's argument has so many bytes.
void disc_rt_emulate_extent(disc_thread *thread, const disc_emulated_site *site, int64_t bytes);

/// The thread is about to use memory at `address`, and the lanes behind it, for each bit that is set in `lanes`. Does
/// not return if it may not.
void disc_rt_emulate_access(disc_thread *thread, const disc_emulated_site *site, const void *address, uint64_t lanes);

#ifdef __cplusplus
} // extern "C"

#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Core/Status.h"
#include "lib/Runtime/Core/ThreadPool.h"

#include <memory>
#include <mutex>
#include <vector>

namespace disc::rt {

class BlockRunner;
class EmulatedMemory;

/// Runs launches. Any number of threads may.
class Emulator {
public:
  /// Blocks run on a pool of so many threads; 0 is the default size.
  explicit Emulator(unsigned threads = 0);
  ~Emulator();

  /// `args[i]` says where the value of the i-th argument is. Kernels in checking mode use `memory` alone. An error
  /// names block, thread and the user's line; what the other threads had done by then is done.
  Status run(const disc_device_kernel &kernel, void *const *args, int64_t blocks, const EmulatedMemory &memory);

private:
  std::unique_ptr<BlockRunner> acquire();
  void release(std::unique_ptr<BlockRunner> runner);

  friend struct EmulatedLaunch;
  std::shared_ptr<ThreadPool> pool;
  Mutex mutex;
  std::vector<std::unique_ptr<BlockRunner>> idle;
};

} // namespace disc::rt
#endif // __cplusplus

#endif // DISC_RUNTIME_DEVICE_EMULATOR_H
