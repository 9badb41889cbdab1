//===- ForkTest.cpp - child processes while other threads are in calls ----===//

#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Core/ThreadPool.h"

#include <atomic>
#include <mutex>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace disc::rt;

namespace {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kForks = 20; // which take a sanitizer long
#else
constexpr int kForks = 100;
#endif

void countTasks(void *const *args, int64_t begin, int64_t end, void *) {
  static_cast<std::atomic<int64_t> *>(args[0])->fetch_add(end - begin);
}

bool runs(ThreadPool &pool, int64_t tasks) {
  Buffer scratch;
  std::atomic<int64_t> count{0};
  void *args[] = {&count};
  return pool.parallelFor(countTasks, args, tasks, 100000, 64, scratch) && count == tasks;
}

/// The exit status of a child that runs `body`; -1 if it does not end within 20 seconds.
template <typename Body> int inChild(Body body) {
  pid_t child = fork();
  if (child == 0)
    _exit(body() ? 0 : 1);
  for (int i = 0; i < 200000; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    usleep(100);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

/// Threads that do `body` again and again until it goes.
template <typename Body> class Load {
public:
  Load(int threads, Body body) : body(body) {
    for (int i = 0; i < threads; ++i)
      list.emplace_back([this] {
        while (!stop.load())
          this->body();
      });
  }
  ~Load() {
    stop = true;
    for (std::thread &thread : list)
      thread.join();
  }

private:
  Body body;
  std::atomic<bool> stop{false};
  std::vector<std::thread> list;
};
} // namespace

TEST(forkedPoolsStartTheirThreadsAgain) {
  auto pool = ThreadPool::get(3);
  CHECK(runs(*pool, 100));
  CHECK(inChild([&] {
          bool ok = runs(*pool, 100) && pool->size() == 3 && ThreadPool::get(3) == pool;
          // A grandchild too.
          return ok && inChild([&] { return runs(*pool, 100); }) == 0 && runs(*pool, 100);
        }) == 0);
  CHECK(runs(*pool, 100));
}

TEST(forkedPoolsCanBeFreed) {
  auto pool = ThreadPool::get(5);
  CHECK(runs(*pool, 100));
  CHECK(inChild([&] {
          pool.reset(); // does not wait for threads that do not exist
          return runs(*ThreadPool::get(5), 100);
        }) == 0);
}

TEST(forksWhileThePoolIsBusy) {
  auto pool = ThreadPool::get(3);
  std::atomic<int> wrong{0};
  auto body = [&] { wrong += !runs(*pool, 50); };
  Load load(2, body);
  int failed = 0;
  for (int i = 0; i < kForks && !failed; ++i)
    failed += inChild([&] { return runs(*pool, 50); }) != 0;
  CHECK(failed == 0 && wrong == 0);
}

/// What a lock guards is never half changed in the child.
TEST(forksWaitForShortLocks) {
  Mutex mutex;
  volatile int64_t first = 0, second = 0;
  auto body = [&] {
    std::lock_guard<Mutex> lock(mutex);
    first = first + 1;
    for (volatile int i = 0; i < 100; i = i + 1) {
    }
    second = second + 1;
  };
  Load load(2, body);
  int failed = 0;
  for (int i = 0; i < kForks && !failed; ++i)
    failed += inChild([&] {
                std::lock_guard<Mutex> lock(mutex);
                return first == second && !mutex.takeAbandoned();
              }) != 0;
  CHECK(failed == 0);
}

/// A lock whose holder goes on for long is not waited for forever, and the child is told.
TEST(forksLeaveLongLocks) {
  Mutex mutex(Mutex::Held::WhileRunning);
  std::atomic<bool> held{false}, release{false};
  std::thread holder([&] {
    std::lock_guard<Mutex> lock(mutex);
    held = true;
    while (!release)
      usleep(1000);
  });
  while (!held)
    usleep(100);
  CHECK(inChild([&] {
          std::lock_guard<Mutex> lock(mutex);
          return mutex.takeAbandoned() && !mutex.takeAbandoned();
        }) == 0);
  release = true;
  holder.join();
  std::lock_guard<Mutex> lock(mutex);
  CHECK(!mutex.takeAbandoned());
}
