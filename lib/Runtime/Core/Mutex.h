//===- Mutex.h - locks that survive fork() ----------------------*- C++ -*-===//
//
// fork() copies the process with the calling thread alone. A lock that another thread holds at that moment would stay
// locked in the child for good, and what it guards could be half changed. Handlers of pthread_atfork therefore take
// every Mutex of this runtime before the fork and release it behind it, in the parent and in the child. Each compiled
// library contains a runtime of its own, with its own list of locks and its own handlers.
//
// A lock that is held for a whole run of a model may take long to get: after kForkPatience the process forks without
// it. The child then gets a fresh lock, which tells that what it guards was abandoned in the middle of a change.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_MUTEX_H
#define DISC_RUNTIME_CORE_MUTEX_H

#include <atomic>
#include <chrono>
#include <pthread.h>

namespace disc::rt {

/// How long fork() waits for locks in all.
constexpr std::chrono::milliseconds kForkPatience{1000};

class Mutex {
public:
  enum class Held {
    Briefly,     ///< For a few instructions. May be taken while a lock of the other kind is held.
    WhileRunning ///< For a run of a model. The holder waits for no other lock of this kind.
  };

  explicit Mutex(Held held = Held::Briefly);
  ~Mutex();
  Mutex(const Mutex &) = delete;
  Mutex &operator=(const Mutex &) = delete;

  void lock();
  bool try_lock() { return pthread_mutex_trylock(&mutex) == 0; }
  void unlock() { pthread_mutex_unlock(&mutex); }

  /// Whether this process is the child of a fork() that did not wait for the lock's holder. True once.
  bool takeAbandoned() { return abandoned.exchange(false, std::memory_order_relaxed); }

private:
  friend struct ForkHandlers;
  friend class Condition;

  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  const Held held;
  bool taken = false; ///< By the handler before the fork.
  std::atomic<bool> abandoned{false};
  Mutex *previous = nullptr, *next = nullptr; ///< In the list of all of them.
};

/// What threads wait for that hold a Mutex. A child of fork() has another one: the threads that wait are the parent's.
class Condition {
public:
  Condition();
  ~Condition();
  Condition(const Condition &) = delete;
  Condition &operator=(const Condition &) = delete;

  /// Both are called with the mutex locked. Waits for this long at most, and may return earlier.
  void wait(Mutex &mutex, std::chrono::milliseconds most);
  void notifyAll();

private:
  pthread_cond_t &current();

  pthread_cond_t *condition;
  unsigned generation;
};

/// How many forks lie between the process in which the runtime began and this one: threads of another generation do not
/// exist here.
unsigned forkGeneration();

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_MUTEX_H
