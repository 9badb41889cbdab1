//===- BlockRunner.h - the threads of an emulated block ---------*- C++ -*-===//
#ifndef DISC_RUNTIME_DEVICE_BLOCKRUNNER_H
#define DISC_RUNTIME_DEVICE_BLOCKRUNNER_H

#include "lib/Runtime/Core/Arena.h"
#include "lib/Runtime/Device/AccessChecks.h"
#include "lib/Runtime/Device/Emulator.h"
#include "lib/Runtime/Device/Fiber.h"

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace disc::rt {

/// One launch, while its blocks run.
struct EmulatedLaunch {
  EmulatedLaunch(Emulator &emulator, const disc_device_kernel &kernel, void *const *args, uint32_t blocks,
                 const EmulatedMemory &memory)
      : emulator(emulator), kernel(kernel), args(args), blocks(blocks), memory(memory) {}

  /// Blocks [begin, end), one after another.
  void run(uint32_t begin, uint32_t end);
  /// Keeps the first error.
  void fail(Code code, std::string message);
  /// What there is to say once all blocks have run.
  Status end();

  Emulator &emulator;
  const disc_device_kernel &kernel;
  void *const *args;
  const uint32_t blocks;
  const EmulatedMemory &memory;
  std::unique_ptr<AccessChecks> checks; ///< In checking mode, from the first thread on.
  std::atomic<bool> failed{false};
  std::mutex mutex; ///< Held to set `status`.
  Status status;
};

struct EmulatedThread : disc_thread {
  enum class State : uint8_t {
    New,
    Ready,     ///< Stands where it was, and may go on.
    Shuffling, ///< At `site`.
    Waiting,   ///< For a barrier, at `site`.
    Left       ///< Returned from the kernel.
  };
  BlockRunner *runner = nullptr;
  Fiber *fiber = nullptr; ///< Unless new.
  State state = State::New;
  const disc_emulated_site *site = nullptr;
  uint64_t value = 0;        ///< What it shuffles.
  uint32_t *words = nullptr; ///< Where it gets parts of matrices.
  int32_t offset = 0, width = 0;

  /// A copy to memory of the block that has begun.
  struct Copy {
    const disc_emulated_site *site;
    char *to;
    const char *from;
    int32_t bytes;
    uint32_t group;
  };
  std::vector<Copy> copies; ///< In the order in which they began.
  uint32_t groups = 0;      ///< That were committed.
};

/// Runs blocks, one at a time.
///
/// A fiber calls the kernel for one new thread after another. The first one that has to wait keeps the fiber as its
/// own, and the threads behind it begin on another. So a kernel without barriers runs on one fiber, at the price of
/// calls. Threads that shuffle are run until their whole warp has come there, the others until they wait for a barrier.
class BlockRunner {
public:
  /// False if the launch failed.
  bool run(EmulatedLaunch &launch, uint32_t block);

  // Called by kernels.
  char *shared(EmulatedThread &thread, int64_t bytes);
  void barrier(EmulatedThread &thread, const disc_emulated_site *site);
  uint64_t shuffle(EmulatedThread &thread, const disc_emulated_site *site, uint64_t value, int32_t offset,
                   int32_t width);
  void multiply(EmulatedThread &thread, const disc_emulated_site *site, disc_emulated_fragment *fragment);
  void loadTransposed(EmulatedThread &thread, const disc_emulated_site *site, const char *row, uint32_t *words);
  void copy(EmulatedThread &thread, const disc_emulated_site *site, char *to, const char *from, int32_t bytes);
  void wait(EmulatedThread &thread, int32_t pending);
  void check(EmulatedThread &thread, int64_t most);
  /// For a thread whose request needed memory that there is not. It does not go on.
  void outOfMemory(EmulatedThread &thread);
  void extent(EmulatedThread &thread, const disc_emulated_site *site, int64_t bytes);
  void access(EmulatedThread &thread, const disc_emulated_site *site, const void *address, uint64_t lanes);

private:
  using State = EmulatedThread::State;

  static void runThreads(void *self);
  bool advance(uint32_t thread, uint32_t last);
  bool runWarp(uint32_t thread);
  bool exchange(uint32_t first, uint32_t last);
  bool multiplyFragments(uint32_t first, uint32_t last);
  bool loadMatrices(uint32_t first, uint32_t last);
  bool passBarrier(bool &done);
  void stop(EmulatedThread &thread, State state, const disc_emulated_site *site);
  /// The launch fails, for what `thread` does at `site`. False.
  bool report(const EmulatedThread &thread, const disc_emulated_site *site, const std::string &what);
  /// It does, for `one` waits where `other` does not come.
  bool diverged(const EmulatedThread &one, const EmulatedThread &other);

  EmulatedLaunch *launch = nullptr;
  std::vector<EmulatedThread> threads;
  uint32_t count = 0;            ///< Of threads.
  uint32_t next = 0, behind = 0; ///< The next new thread, and where fibers shall not begin any more.

  FiberPool fibers;
  std::vector<Fiber *> idle; ///< Fibers that stand where they take the next new thread.
  size_t made = 0;           ///< Fibers that were ever started.
  Fiber *running = nullptr;
  Buffer sharedMemory;
  size_t sharedBytes = 0;         ///< That the block asked for.
  std::vector<uint64_t> received; ///< In a shuffle.
};

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_BLOCKRUNNER_H
