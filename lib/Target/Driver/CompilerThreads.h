//===- CompilerThreads.h - threads that passes run on -----------*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_COMPILERTHREADS_H
#define DISC_TARGET_DRIVER_COMPILERTHREADS_H

#include "llvm/Support/ThreadPool.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <vector>

namespace mlir::disc {

/// A pool that does with fewer threads, or none, where the system refuses them: LLVM's own ends the process. Who waits
/// for tasks runs those that no thread has begun.
class CompilerThreads : public llvm::ThreadPoolInterface {
public:
  CompilerThreads();
  ~CompilerThreads() override;

  void wait() override;
  void wait(llvm::ThreadPoolTaskGroup &group) override;
  unsigned getMaxConcurrency() const override { return limit; }

private:
  struct Task {
    llvm::unique_function<void()> run;
    llvm::ThreadPoolTaskGroup *group;
  };

  void asyncEnqueue(llvm::unique_function<void()> task, llvm::ThreadPoolTaskGroup *group) override;
  static void *threadMain(void *self);
  void work();
  /// Until no task of the group is left; of any group, if it is null.
  void finish(llvm::ThreadPoolTaskGroup *group);
  /// Runs a queued task. The lock is released meanwhile.
  void runTask(std::deque<Task>::iterator place, std::unique_lock<std::mutex> &lock);

  std::mutex mutex;
  std::condition_variable queued, done;
  std::deque<Task> tasks;
  std::vector<llvm::ThreadPoolTaskGroup *> running; ///< The group of each task that has begun.
  std::vector<pthread_t> threads;
  unsigned limit, idle = 0;
  bool stopping = false;
};

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_COMPILERTHREADS_H
