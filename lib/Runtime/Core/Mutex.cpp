//===- Mutex.cpp - locks that survive fork() ------------------------------===//

#include "lib/Runtime/Core/Mutex.h"

#include <ctime>
#include <initializer_list>
#include <unistd.h>

namespace disc::rt {

static pthread_mutex_t listMutex = PTHREAD_MUTEX_INITIALIZER;
static Mutex *first = nullptr; ///< Guarded by listMutex.
/// Threads that are about to fork. While there are any, nobody begins to hold a lock for long: a thread that runs a
/// model in a loop would otherwise take it again and again before the handler gets it.
static std::atomic<unsigned> forking{0};
static std::atomic<unsigned> forks{0};

struct ForkHandlers {
  static bool takeBefore(pthread_mutex_t &mutex, const timespec &end) {
    return pthread_mutex_trylock(&mutex) == 0 || pthread_mutex_timedlock(&mutex, &end) == 0;
  }

  static void prepare() {
    forking.fetch_add(1);
    pthread_mutex_lock(&listMutex);
    timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += kForkPatience.count() / 1000;
    // Locks held for long come first: their holders take others meanwhile.
    for (Mutex::Held held : {Mutex::Held::WhileRunning, Mutex::Held::Briefly})
      for (Mutex *mutex = first; mutex; mutex = mutex->next)
        if (mutex->held == held)
          mutex->taken = takeBefore(mutex->mutex, end);
  }

  static void parent() {
    for (Mutex *mutex = first; mutex; mutex = mutex->next)
      if (mutex->taken)
        pthread_mutex_unlock(&mutex->mutex);
    pthread_mutex_unlock(&listMutex);
    forking.fetch_sub(1);
  }

  static void child() {
    forks.fetch_add(1);
    for (Mutex *mutex = first; mutex; mutex = mutex->next) {
      if (mutex->taken) {
        pthread_mutex_unlock(&mutex->mutex);
        continue;
      }
      pthread_mutex_init(&mutex->mutex, nullptr);
      mutex->abandoned.store(true, std::memory_order_relaxed);
    }
    pthread_mutex_unlock(&listMutex);
    forking.store(0); // other threads that were about to fork are not here
  }
};

/// Registered for this library: unloading it removes the handlers.
static void registerHandlers() {
  static const int registered = pthread_atfork(ForkHandlers::prepare, ForkHandlers::parent, ForkHandlers::child);
  (void)registered;
}

Mutex::Mutex(Held held) : held(held) {
  registerHandlers();
  pthread_mutex_lock(&listMutex);
  next = first;
  if (next)
    next->previous = this;
  first = this;
  pthread_mutex_unlock(&listMutex);
}

Mutex::~Mutex() {
  pthread_mutex_lock(&listMutex);
  (previous ? previous->next : first) = next;
  if (next)
    next->previous = previous;
  pthread_mutex_unlock(&listMutex);
  pthread_mutex_destroy(&mutex);
}

void Mutex::lock() {
  if (held == Held::WhileRunning) {
    constexpr useconds_t kPauseUs = 50;
    while (forking.load(std::memory_order_relaxed))
      usleep(kPauseUs);
  }
  pthread_mutex_lock(&mutex);
}

static pthread_cond_t *newCondition() {
  auto *condition = new pthread_cond_t;
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
#ifdef __linux__
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
  return condition;
}

Condition::Condition() : condition(newCondition()), generation(forkGeneration()) {}

Condition::~Condition() {
  // Destroying the parent's would wait for its threads.
  if (generation != forkGeneration())
    return;
  pthread_cond_destroy(condition);
  delete condition;
}

pthread_cond_t &Condition::current() {
  if (generation != forkGeneration()) {
    condition = newCondition();
    generation = forkGeneration();
  }
  return *condition;
}

void Condition::wait(Mutex &mutex, std::chrono::milliseconds most) {
#ifdef __linux__
  constexpr clockid_t kClock = CLOCK_MONOTONIC;
#else
  constexpr clockid_t kClock = CLOCK_REALTIME;
#endif
  constexpr long kSecond = 1'000'000'000;
  timespec end;
  clock_gettime(kClock, &end);
  end.tv_sec += most.count() / 1000;
  end.tv_nsec += long(most.count() % 1000) * 1'000'000;
  if (end.tv_nsec >= kSecond)
    ++end.tv_sec, end.tv_nsec -= kSecond;
  pthread_cond_timedwait(&current(), &mutex.mutex, &end);
}

void Condition::notifyAll() { pthread_cond_broadcast(&current()); }

unsigned forkGeneration() {
  registerHandlers();
  return forks.load(std::memory_order_relaxed);
}

} // namespace disc::rt
