//===- PoolTest.cpp - the thread pool under stress ------------------------===//

#include "Check.h"
#include "lib/Runtime/Core/ThreadPool.h"

#include <ctime>
#include <thread>
#include <unistd.h>

using namespace disc::rt;

namespace {
/// Counts how often each task ran; args[0] is an array of counters.
void countTasks(void *const *args, int64_t begin, int64_t end, void *scratch) {
  auto *counts = static_cast<std::atomic<int> *>(args[0]);
  // Scratch is private: what is written stays while the kernel runs.
  auto *mine = static_cast<volatile int64_t *>(scratch);
  for (int64_t task = begin; task < end; ++task) {
    *mine = task;
    counts[task].fetch_add(1, std::memory_order_relaxed);
    if (*mine != task)
      counts[task].fetch_add(1000, std::memory_order_relaxed);
  }
}

bool runsEachOnce(ThreadPool &pool, int64_t tasks, int64_t costNs, Buffer &scratch) {
  std::vector<std::atomic<int>> counts(tasks);
  void *args[] = {counts.data()};
  if (!pool.parallelFor(countTasks, args, tasks, costNs, 64, scratch))
    return false;
  for (std::atomic<int> &count : counts)
    if (count.load() != 1)
      return false;
  return true;
}
} // namespace

TEST(poolRunsEachTaskOnce) {
  for (unsigned threads : {1u, 2u, 3u, 4u, 7u}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    Buffer scratch;
    for (int64_t tasks : {0, 1, 2, 3, 5, 16, 17, 1000, 4097})
      for (int64_t cost : {0, 1, 100, 10000, 10000000})
        CHECK(runsEachOnce(pool, tasks, cost, scratch));
  }
}

TEST(poolManySmallJobs) {
  ThreadPool pool(4);
  Buffer scratch;
  bool all = true;
  for (int i = 0; i < 20000; ++i)
    all &= runsEachOnce(pool, 1 + i % 13, 5000, scratch);
  CHECK(all);
}

TEST(poolParksAndWakes) {
  ThreadPool pool(3);
  Buffer scratch;
  for (int i = 0; i < 50; ++i) {
    usleep(i % 5 * 200); // around the time after which workers park
    CHECK(runsEachOnce(pool, 64, 100000, scratch));
  }
}

TEST(poolWakesManyWorkers) {
  ThreadPool pool(16);
  Buffer scratch;
  for (int i = 0; i < 200; ++i) {
    if (i % 10 == 0)
      usleep(1000); // all of them park
    CHECK(runsEachOnce(pool, 1 + i * 7 % 300, 20000, scratch));
  }
}

TEST(poolRestsWhenIdle) {
  ThreadPool pool(8);
  Buffer scratch;
  for (int i = 0; i < 100; ++i) // withdrawn posts on the way, too
    CHECK(runsEachOnce(pool, 8, 3000 + i * 100, scratch));
  usleep(100000);
  clock_t before = clock();
  usleep(200000);
  CHECK(double(clock() - before) / CLOCKS_PER_SEC < 0.05);
}

TEST(poolConcurrentCallers) {
  ThreadPool pool(4);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller)
    callers.emplace_back([&] {
      Buffer scratch;
      for (int i = 0; i < 2000; ++i)
        wrong += !runsEachOnce(pool, 1 + i % 50, 3000, scratch);
    });
  for (std::thread &caller : callers)
    caller.join();
  CHECK(wrong == 0);
}

TEST(poolRefusesHugeScratch) {
  ThreadPool pool(2);
  Buffer scratch;
  std::atomic<int> count[8] = {};
  void *args[] = {count};
  CHECK(!pool.parallelFor(countTasks, args, 8, 1000000, INT64_MAX, scratch));
  CHECK(!pool.parallelFor(countTasks, args, 8, 1000000, -1, scratch));
  CHECK(runsEachOnce(pool, 8, 1000000, scratch));
}

TEST(poolIsSharedBySize) {
  auto two = ThreadPool::get(2), again = ThreadPool::get(2);
  CHECK(two == again);
  CHECK(two != ThreadPool::get(3));
  CHECK(ThreadPool::get(0)->size() == defaultThreads());
}
