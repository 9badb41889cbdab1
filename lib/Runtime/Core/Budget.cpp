//===- Budget.cpp - how much memory a model may hold ----------------------===//

#include "lib/Runtime/Core/Budget.h"

#include <algorithm>
#include <mutex>

namespace disc::rt {

/// How long a call waits before it asks whether it should end.
constexpr std::chrono::milliseconds kPatience{5};

void MemoryAccount::raisePeak(int64_t held) {
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (held > peak && !peak_.compare_exchange_weak(peak, held, std::memory_order_relaxed)) {
  }
}

bool MemoryAccount::take(int64_t bytes, int64_t limit) {
  int64_t held = held_.load();
  do {
    // Calls that began without the budget may hold more.
    if (bytes > limit || held > limit - bytes)
      return false;
  } while (!held_.compare_exchange_weak(held, held + bytes));
  raisePeak(held + bytes);
  return true;
}

bool MemoryAccount::take(int64_t bytes, int64_t limit, Reclaimer &kept) {
  if (bytes > limit)
    return false;
  while (!take(bytes, limit))
    if (!kept.reclaim())
      // Another thread may have freed the rest.
      return take(bytes, limit);
  return true;
}

/// In a child of fork(), the threads of the parent do not exist.
void MemoryAccount::forgetParent() {
  if (generation == forkGeneration())
    return;
  generation = forkGeneration();
  firstWaiting = nullptr;
  firstRunning = nullptr;
  waiting_.store(0);
}

void MemoryAccount::wakeAll() {
  std::lock_guard<Mutex> lock(mutex);
  forgetParent();
  ++changes;
  condition.notifyAll();
}

MemoryAccount::Running::Running(MemoryAccount &account) : account(account), thread(pthread_self()) {
  std::lock_guard<Mutex> lock(account.mutex);
  account.forgetParent();
  next = account.firstRunning;
  if (next)
    next->previous = this;
  account.firstRunning = this;
}

MemoryAccount::Running::~Running() {
  std::lock_guard<Mutex> lock(account.mutex);
  if (account.generation != forkGeneration()) {
    account.forgetParent();
    return;
  }
  if (next)
    next->previous = previous;
  if (previous)
    previous->next = next;
  else if (account.firstRunning == this)
    account.firstRunning = next;
}

bool MemoryAccount::isNested(const Running &call) {
  std::lock_guard<Mutex> lock(mutex);
  for (const Running *other = firstRunning; other; other = other->next)
    if (other != &call && pthread_equal(other->thread, call.thread))
      return true;
  return false;
}

/// A place in the queue, from its construction to its end.
class MemoryAccount::Ticket {
public:
  explicit Ticket(MemoryAccount &account) : account(account) {
    std::lock_guard<Mutex> lock(account.mutex);
    account.forgetParent();
    account.waiting_.fetch_add(1);
    Waiting **last = &account.firstWaiting;
    while (*last)
      last = &(*last)->next;
    *last = &place;
  }
  ~Ticket() {
    std::lock_guard<Mutex> lock(account.mutex);
    for (Waiting **link = &account.firstWaiting; *link; link = &(*link)->next)
      if (*link == &place) {
        *link = place.next;
        account.waiting_.fetch_sub(1);
        break;
      }
    ++account.changes;
    account.condition.notifyAll();
  }

  /// Whether it is this one's turn; if not, or if nothing changed since `seen`, waits a while first.
  bool await(uint64_t &seen) {
    std::lock_guard<Mutex> lock(account.mutex);
    if (seen == account.changes)
      account.condition.wait(account.mutex, kPatience);
    seen = account.changes;
    return account.firstWaiting == &place;
  }

private:
  MemoryAccount &account;
  Waiting place;
};

bool MemoryAccount::wait(int64_t bytes, int64_t limit, Reclaimer &kept, const std::function<bool()> &interrupted) {
  Ticket ticket(*this);
  uint64_t seen = UINT64_MAX;
  while (true) {
    if (ticket.await(seen) && take(bytes, limit, kept))
      return true;
    if (interrupted())
      return false;
  }
}

bool Meter::take(size_t size) {
  if (!account)
    return true;
  int64_t bytes = int64_t(std::min(size, size_t(PTRDIFF_MAX)));
  if (!limit_) {
    account->add(bytes);
  } else {
    if (!secure(bytes)) {
      denied = bytes;
      return false;
    }
    credit -= bytes;
    denied = 0; // a smaller request after one that was denied
  }
  account->allocations.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Meter::give(size_t bytes) {
  if (!account)
    return;
  if (limit_)
    credit += int64_t(bytes);
  else
    account->subtract(int64_t(bytes));
}

bool Meter::secure(int64_t bytes) {
  while (credit < bytes) {
    int64_t missing = bytes - credit;
    if (account->take(missing, limit_, *kept)) {
      credit = bytes;
      return true;
    }
    if (!own->reclaim())
      return false;
  }
  return true;
}

void Meter::keepCredit(int64_t bytes) {
  if (credit <= bytes)
    return;
  account->subtract(credit - bytes);
  credit = bytes;
}

} // namespace disc::rt
