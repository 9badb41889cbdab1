//===- ThreadPool.h - fork and join for kernels -----------------*- C++ -*-===//
//
// One job at a time: the caller cuts it into one range of tasks per worker, posts it to
// as many workers as it is worth, and takes part itself. A worker runs its own range in
// chunks, so that consecutive kernels find their rows in its caches, and then helps with
// the ranges of others. The caller never waits for a worker that has not begun: it
// withdraws the post. A worker that finds nothing to do spins for a while, then parks; to wake one
// costs microseconds, so each worker that begins wakes two more, and the caller only the first two.
//
// A caller that finds the pool busy with another caller's job runs its own inline:
// concurrent callers already keep the cores busy. In a child process made by fork() the
// workers of its parent's pools do not exist: the first job there starts others. Where the
// system refuses a thread, a pool has fewer of them.
//
// Of two jobs of one kernel in a row, the second goes through each range from its end: what the first touched last, the
// weights of a recurrent layer as a rule, is in the worker's caches still. More than fits there would otherwise be
// read from afar in whole each time.
//
// Tasks are independent and each is done by one thread, in its own order: results do not
// depend on the number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_THREADPOOL_H
#define DISC_RUNTIME_CORE_THREADPOOL_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/Arena.h"
#include "lib/Runtime/Core/Mutex.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <vector>

namespace disc::rt {

/// Cores this process may use: its affinity mask, and its container's quota.
unsigned defaultThreads();

/// More than any machine has a use for; a larger number is a mistake.
constexpr unsigned kMaxThreads = 1024;

/// How many of `threads` threads a job of so many tasks, of about `costNs` nanoseconds each, is worth.
unsigned rangesWorth(unsigned threads, int64_t tasks, int64_t costNs);

/// Where the range of that number begins, of `ranges` of `tasks` tasks that differ by one task at most.
inline int64_t rangeBegin(int64_t range, int64_t ranges, int64_t tasks) {
  return tasks / ranges * range + (range < tasks % ranges ? range : tasks % ranges);
}

/// Scratch of all threads of a job in one piece of memory, `stride` bytes for each; for calls with a memory budget.
struct SharedScratch {
  char *data = nullptr; ///< Null: threads use their own.
  size_t stride = 0;
  unsigned threads = 0;
};

class ThreadPool {
public:
  /// The pool of this size that the models of this process share; 0 is the default size.
  static std::shared_ptr<ThreadPool> get(unsigned threads);

  /// `threads` counts the caller.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();

  /// Threads that there are, the caller included.
  unsigned size() const { return unsigned(workers.size()) + 1; }

  /// Runs every task, about `costNs` nanoseconds each; `scratch` is the caller's. False
  /// if there is no memory for scratch. With `shared`, neither it nor the workers' own is used, and no more threads
  /// than have a part of it.
  bool parallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t costNs, int64_t scratchBytes,
                   Buffer &scratch, const SharedScratch &shared = {});

private:
  enum class State : int { Idle, Parked, Posted, Running, Stopping };

  /// One per thread, each on its own cache lines.
  struct alignas(128) Worker {
    std::atomic<State> state{State::Idle};
    std::atomic<bool> needsWake{false}; ///< Parked when it was posted to, and nobody has woken it yet.
    std::mutex mutex;
    std::condition_variable wake;
    Buffer scratch;
    pthread_t thread;
    ThreadPool *pool;
    unsigned index;
  };

  /// Tasks [next, end) of a job are still to be taken.
  struct alignas(128) Range {
    std::atomic<int64_t> next{0};
    int64_t begin = 0, end = 0;
  };

  struct Job {
    disc_kernel_fn kernel = nullptr;
    void *const *args = nullptr;
    int64_t scratchBytes = 0;
    int64_t chunk = 1;
    unsigned ranges = 0;
    bool backwards = false;
    SharedScratch shared;
  };

  void start();
  bool inherited() const;
  void restart();
  static void *threadMain(void *worker);
  void work(unsigned index);
  State awaitPost(Worker &worker);
  void post(Worker &worker);
  void withdraw(Worker &worker);
  void wakeNext(unsigned index);
  void runJob(unsigned first, Buffer &scratch);

  const unsigned wanted; ///< Threads, the caller included.
  std::vector<std::unique_ptr<Worker>> workers;
  std::unique_ptr<Range[]> ranges;
  Job job;
  std::atomic<bool> busy{false};
  std::atomic<bool> outOfMemory{false};
  std::atomic<unsigned> generation; ///< Of the process that has the workers.
  Mutex restarting;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_THREADPOOL_H
