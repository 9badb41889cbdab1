//===- ThreadPool.cpp - fork and join for kernels -------------------------===//

#include "lib/Runtime/Core/ThreadPool.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <sched.h>
#include <unistd.h>
#ifdef __linux__
#include <signal.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace disc::rt {

// Waking a spinning worker and waiting for it costs about half a microsecond each way;
// less work than this per thread is done sooner by one thread.
constexpr int64_t kShareNs = 3000;
// A chunk pays for one atomic and the kernel's prologue.
constexpr int64_t kChunkNs = 2000;
// Chunks per range, at least, when tasks are long enough: the price of a slow core.
constexpr int64_t kChunksPerRange = 16;
// Longer than the gaps between the kernels of a call, and between calls in a loop.
constexpr std::chrono::microseconds kSpin{200};

static void pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__) || defined(__arm__)
  asm volatile("yield");
#endif
}

#ifdef __linux__
/// Cores that the container's quota amounts to, rounded up; 0 without one. Threads beyond
/// it would spin away the time of those that work.
static unsigned quotaCores() {
  std::FILE *file = std::fopen("/sys/fs/cgroup/cpu.max", "r");
  if (!file)
    return 0;
  long long quota = 0, period = 0;
  // "max 100000" means there is none, and does not scan.
  int read = std::fscanf(file, "%lld %lld", &quota, &period);
  std::fclose(file);
  if (read != 2 || quota <= 0 || period <= 0)
    return 0;
  return unsigned((quota + period - 1) / period);
}
#endif

unsigned defaultThreads() {
  unsigned cores = unsigned(std::max(1l, sysconf(_SC_NPROCESSORS_ONLN)));
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    cores = unsigned(CPU_COUNT(&set));
  if (unsigned quota = quotaCores())
    cores = std::min(cores, quota);
#endif
  return std::max(1u, cores);
}

std::shared_ptr<ThreadPool> ThreadPool::get(unsigned threads) {
  static Mutex &mutex = *new Mutex;
  static auto &pools = *new std::vector<std::weak_ptr<ThreadPool>>;
  if (threads == 0)
    threads = defaultThreads();
  std::lock_guard<Mutex> lock(mutex);
  std::shared_ptr<ThreadPool> result;
  pools.erase(std::remove_if(pools.begin(), pools.end(),
                             [&](std::weak_ptr<ThreadPool> &weak) {
                               auto pool = weak.lock();
                               if (pool && pool->wanted == threads)
                                 result = pool;
                               return !pool;
                             }),
              pools.end());
  if (!result) {
    result = std::make_shared<ThreadPool>(threads);
    pools.push_back(result);
  }
  return result;
}

ThreadPool::ThreadPool(unsigned threads) : wanted(threads), ranges(new Range[threads]), generation(forkGeneration()) {
  start();
}

void ThreadPool::start() {
  // All that may fail comes before the first thread.
  std::vector<std::unique_ptr<Worker>> fresh;
  for (unsigned i = 1; i < wanted; ++i)
    fresh.push_back(std::make_unique<Worker>());
  workers = std::move(fresh);
#ifdef __linux__
  // Signals are for the threads of the host program.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
#endif
  unsigned started = 0;
  for (; started + 1 < wanted; ++started) {
    Worker &worker = *workers[started];
    worker.pool = this;
    worker.index = started + 1;
    if (pthread_create(&worker.thread, nullptr, threadMain, &worker) != 0)
      break; // a limit of the system or the container: those that there are do the work
#ifdef __linux__
    pthread_setname_np(worker.thread, "disc-worker");
#endif
  }
  workers.resize(started);
#ifdef __linux__
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
#endif
}

bool ThreadPool::inherited() const { return forkGeneration() != generation.load(std::memory_order_acquire); }

/// In a child of fork(): what the parent's workers left is not to be touched, nor freed, and a job of the parent's may
/// have been under way.
void ThreadPool::restart() {
  std::lock_guard<Mutex> lock(restarting);
  if (!inherited())
    return; // another thread was faster
  for (auto &worker : workers)
    (void)worker.release();
  workers.clear();
  job = {};
  busy.store(false, std::memory_order_relaxed);
  start();
  generation.store(forkGeneration(), std::memory_order_release);
}

ThreadPool::~ThreadPool() {
  if (inherited()) {
    // There is no thread to join, and destroying what it waited on would block.
    for (auto &worker : workers)
      (void)worker.release();
    return;
  }
  for (auto &worker : workers) {
    worker->state.exchange(State::Stopping);
    {
      std::lock_guard<std::mutex> lock(worker->mutex);
    }
    worker->wake.notify_one();
  }
  for (auto &worker : workers)
    pthread_join(worker->thread, nullptr);
}

ThreadPool::State ThreadPool::awaitPost(Worker &worker) {
  using Clock = std::chrono::steady_clock;
  auto waiting = [](State state) { return state != State::Posted && state != State::Stopping; };
  Clock::time_point end = Clock::now() + kSpin;
  while (true) {
    State state = State::Idle;
    for (int i = 0; i < 64; ++i) {
      state = worker.state.load(std::memory_order_acquire);
      if (!waiting(state))
        return state;
      pause();
    }
    if (Clock::now() < end) {
      // With more threads than cores, this one's core may be what the caller waits for.
      sched_yield();
      continue;
    }
    std::unique_lock<std::mutex> lock(worker.mutex);
    state = State::Idle;
    // It may be Parked already: a post was withdrawn before this worker could take it.
    if (worker.state.compare_exchange_strong(state, State::Parked) || state == State::Parked)
      worker.wake.wait(lock, [&] { return worker.state.load(std::memory_order_acquire) != State::Parked; });
    // Woken for a post, or for one withdrawn since: then more may follow soon.
    end = Clock::now() + kSpin;
  }
}

void *ThreadPool::threadMain(void *opaque) {
  auto *worker = static_cast<Worker *>(opaque);
  worker->pool->work(worker->index);
  return nullptr;
}

void ThreadPool::work(unsigned index) {
  Worker &worker = *workers[index - 1];
  while (awaitPost(worker) != State::Stopping) {
    State state = State::Posted;
    if (!worker.state.compare_exchange_strong(state, State::Running, std::memory_order_acquire))
      continue; // withdrawn
    wakeNext(index);
    runJob(index, worker.scratch);
    worker.state.store(State::Idle, std::memory_order_release);
  }
}

void ThreadPool::post(Worker &worker) {
  // A worker that is not asleep sees the post itself.
  if (worker.state.exchange(State::Posted, std::memory_order_acq_rel) == State::Parked)
    worker.needsWake.store(true, std::memory_order_release);
}

void ThreadPool::wakeNext(unsigned index) {
  for (unsigned next = 2 * index + 1; next <= 2 * index + 2 && next < job.ranges; ++next) {
    Worker &worker = *workers[next - 1];
    if (!worker.needsWake.exchange(false, std::memory_order_acq_rel))
      continue;
    // Taking the lock means that it waits by now.
    {
      std::lock_guard<std::mutex> lock(worker.mutex);
    }
    worker.wake.notify_one();
  }
}

void ThreadPool::withdraw(Worker &worker) {
  // One that nobody has woken sleeps on, and the next post must know.
  bool asleep = worker.needsWake.exchange(false, std::memory_order_acq_rel);
  State state = State::Posted;
  if (worker.state.compare_exchange_strong(state, asleep ? State::Parked : State::Idle, std::memory_order_acq_rel))
    return; // it never began
  for (int spins = 0; worker.state.load(std::memory_order_acquire) == State::Running; ++spins) {
    // More threads than cores: let the worker have this one.
    if (spins > 200)
      sched_yield();
    else
      pause();
  }
}

void ThreadPool::runJob(unsigned first, Buffer &scratch) {
  void *memory =
      job.shared.data ? job.shared.data + first * job.shared.stride : scratch.reserve(memorySize(job.scratchBytes));
  if (!memory) {
    outOfMemory.store(true, std::memory_order_relaxed);
    return;
  }
  for (unsigned i = 0; i < job.ranges; ++i) {
    Range &range = ranges[(first + i) % job.ranges];
    while (range.next.load(std::memory_order_relaxed) < range.end) {
      int64_t begin = range.next.fetch_add(job.chunk, std::memory_order_relaxed);
      if (begin >= range.end)
        break;
      int64_t end = std::min(begin + job.chunk, range.end);
      if (job.backwards) {
        int64_t both = range.begin + range.end;
        std::swap(begin, end);
        begin = both - begin, end = both - end;
      }
      job.kernel(job.args, begin, end, memory);
    }
  }
}

unsigned rangesWorth(unsigned threads, int64_t tasks, int64_t costNs) {
  int64_t total;
  if (__builtin_mul_overflow(tasks, std::max<int64_t>(costNs, 1), &total))
    total = INT64_MAX;
  return unsigned(std::min({int64_t(threads), tasks, std::max<int64_t>(total / kShareNs, 1)}));
}

bool ThreadPool::parallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t costNs,
                             int64_t scratchBytes, Buffer &scratch, const SharedScratch &shared) {
  if (tasks <= 0)
    return true;
  if (scratchBytes < 0)
    return false;
  costNs = std::max<int64_t>(costNs, 1);
  if (inherited())
    restart();
  unsigned count = rangesWorth(size(), tasks, costNs);
  if (shared.data)
    count = std::min(count, shared.threads);
  if (count == 1 || busy.exchange(true, std::memory_order_acquire)) {
    void *memory = shared.data ? shared.data : scratch.reserve(memorySize(scratchBytes));
    if (!memory)
      return false;
    kernel(args, 0, tasks, memory);
    return true;
  }

  int64_t share = (tasks + count - 1) / count;
  bool backwards = kernel == job.kernel && !job.backwards;
  job = {kernel, args, scratchBytes, 1, count, backwards, shared};
  job.chunk = std::max({int64_t(1), share / kChunksPerRange, kChunkNs / costNs});
  for (unsigned i = 0; i < count; ++i) {
    ranges[i].begin = rangeBegin(i, count, tasks);
    ranges[i].next.store(ranges[i].begin, std::memory_order_relaxed);
    ranges[i].end = rangeBegin(i + 1, count, tasks);
  }
  outOfMemory.store(false, std::memory_order_relaxed);

  // Last first: whoever begins finds those it is to wake posted already.
  for (unsigned i = count - 1; i > 0; --i)
    post(*workers[i - 1]);
  wakeNext(0);
  runJob(0, scratch);
  for (unsigned i = 0; i + 1 < count; ++i)
    withdraw(*workers[i]);
  bool failed = outOfMemory.load(std::memory_order_relaxed);
  busy.store(false, std::memory_order_release);
  return !failed;
}

} // namespace disc::rt
