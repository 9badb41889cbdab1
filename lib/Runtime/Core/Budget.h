//===- Budget.h - how much memory a model may hold --------------*- C++ -*-===//
//
// Each model has a MemoryAccount: the bytes that its calls hold, and those that it keeps for later calls. Allocations
// and releases change it, nothing else does, so a call that allocates nothing does not touch it. The storage of each
// call has a Meter between its allocator and the account. With a budget, the meter refuses what would exceed it, after
// what the model merely keeps was freed.
//
// A call waits for memory at one place only, before it holds any (disc_call::beginPlan). So calls never wait for each
// other in a circle. Calls that wait are served in the order in which they came.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_BUDGET_H
#define DISC_RUNTIME_CORE_BUDGET_H

#include "lib/Runtime/Core/Mutex.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace disc::rt {

/// Sums of sizes: too large stays too large.
inline int64_t addSizes(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/// Has memory that it can free.
class Reclaimer {
public:
  /// Frees a part of it; false if there is none.
  virtual bool reclaim() = 0;

protected:
  ~Reclaimer() = default;
};

/// Lives as long as the model and its results.
class MemoryAccount {
public:
  /// 0: no budget. For calls that begin from here on.
  std::atomic<int64_t> budget{0};
  /// A call that finds too little fails instead of waiting.
  std::atomic<bool> failsAtOnce{false};
  std::atomic<int64_t> allocations{0}, otherPlans{0}, lastPlan{-1};

  int64_t held() const { return held_.load(); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void resetPeak() { peak_.store(held()); }

  /// More is held, whatever the budget is.
  void add(int64_t bytes) { raisePeak(held_.fetch_add(bytes) + bytes); }
  /// The same, unless it would be more than `limit`: then false.
  bool take(int64_t bytes, int64_t limit);
  /// The same, after as much as needed of what the model keeps was freed.
  bool take(int64_t bytes, int64_t limit, Reclaimer &kept);
  void subtract(int64_t bytes) {
    held_.fetch_sub(bytes);
    changed();
  }
  /// Whoever waits looks again: there is something to free.
  void changed() {
    if (waiting_.load() != 0)
      wakeAll();
  }

  /// A call with a budget, while it runs.
  class Running {
  public:
    explicit Running(MemoryAccount &account);
    ~Running();
    Running(const Running &) = delete;
    Running &operator=(const Running &) = delete;

  private:
    friend class MemoryAccount;
    MemoryAccount &account;
    pthread_t thread;
    Running *previous = nullptr, *next = nullptr;
  };

  /// Whether calls wait. A new one then waits behind them.
  bool hasWaiting() const { return waiting_.load() != 0; }
  /// Whether `call` runs inside of another call of the same thread, for which it must not wait.
  bool isNested(const Running &call);
  /// take() as soon as it succeeds. False if `interrupted`, which is called every few milliseconds, says so first.
  bool wait(int64_t bytes, int64_t limit, Reclaimer &kept, const std::function<bool()> &interrupted);

private:
  struct Waiting {
    Waiting *next = nullptr;
  };
  class Ticket;

  void raisePeak(int64_t held);
  void wakeAll();
  void forgetParent();

  std::atomic<int64_t> held_{0}, peak_{0}, waiting_{0};
  Mutex mutex;
  Condition condition;
  unsigned generation = forkGeneration(); ///< Of the process whose threads are in the lists.
  uint64_t changes = 0;                   ///< Since the beginning; of memory that is held, or of the queue.
  Waiting *firstWaiting = nullptr;
  Running *firstRunning = nullptr;
};

/// Counts what one storage allocates. One thread at a time.
class Meter {
public:
  /// Without an account nothing is counted.
  explicit Meter(MemoryAccount *account = nullptr, Reclaimer *kept = nullptr) : account(account), kept(kept) {}
  Meter(const Meter &) = delete;
  Meter &operator=(const Meter &) = delete;

  /// A call with a budget begins; `own` is memory of its storage that it does not use.
  void begin(int64_t budget, Reclaimer &own) { limit_ = budget, this->own = &own, credit = denied = 0; }
  void end() {
    bringBack(aside);
    keepCredit(0);
    limit_ = 0, own = nullptr;
  }
  int64_t limit() const { return limit_; } ///< 0: no budget.
  MemoryAccount *countsIn() const { return account; }
  int64_t unused() const { return credit + aside; } ///< Room that is not allocated.

  /// Before an allocation: whether it is allowed.
  bool take(size_t bytes);
  /// After a release. The call keeps the room until its end.
  void give(size_t bytes);

  /// Has room for so many bytes that are to be allocated.
  bool secure(int64_t bytes);
  /// Gives back all room but this.
  void keepCredit(int64_t bytes);
  void addCredit(int64_t bytes) { credit += bytes; }
  /// Room that other allocations do not get, and that it is for one from here on.
  void setAside(int64_t bytes) { credit -= bytes, aside += bytes; }
  void bringBack(int64_t bytes) { credit += bytes, aside -= bytes; }

  /// The size of the allocation that the budget did not allow, once; 0 if there was none.
  int64_t takeDenied() {
    int64_t bytes = denied;
    denied = 0;
    return bytes;
  }

private:
  MemoryAccount *const account;
  Reclaimer *const kept;
  Reclaimer *own = nullptr;
  int64_t limit_ = 0;
  int64_t credit = 0; ///< Counted in the account, and not allocated.
  int64_t aside = 0;
  int64_t denied = 0;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_BUDGET_H
