//===- ThreadRefusalTest.cpp - a system that has no more threads ----------===//
//
// The test's own pthread_create comes before the C library's. Sanitizers have one too, so this is not for them.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/ThreadPool.h"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <pthread.h>

using namespace disc::rt;

static std::atomic<int> threadsLeft{-1}; ///< Negative: any number.

extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg) {
  static auto *real = reinterpret_cast<int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  if (threadsLeft.load() == 0)
    return EAGAIN;
  if (threadsLeft.load() > 0)
    --threadsLeft;
  return real(thread, attributes, start, arg);
}

namespace {
void countTasks(void *const *args, int64_t begin, int64_t end, void *) {
  static_cast<std::atomic<int64_t> *>(args[0])->fetch_add(end - begin);
}

bool runs(ThreadPool &pool) {
  Buffer scratch;
  std::atomic<int64_t> count{0};
  void *args[] = {&count};
  for (int64_t i = 1; i < 200; ++i)
    if (!pool.parallelFor(countTasks, args, i, 100000, 64, scratch))
      return false;
  return count == 199 * 100;
}
} // namespace

TEST(refusedThreadsMakeSmallerPools) {
  for (int left : {0, 1, 2, 5, 6}) {
    threadsLeft = left;
    ThreadPool pool(7);
    threadsLeft = -1;
    CHECK(pool.size() == unsigned(left) + 1);
    CHECK(runs(pool));
  }
}

TEST(refusedThreadsDoNotFailModels) {
  threadsLeft = 1;
  std::shared_ptr<ThreadPool> pool = ThreadPool::get(11);
  threadsLeft = 0;
  CHECK(pool && pool->size() == 2);
  CHECK(ThreadPool::get(11) == pool); // no second attempt for each model
  threadsLeft = -1;
  CHECK(runs(*pool));
}
