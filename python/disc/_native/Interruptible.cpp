//===- Interruptible.cpp - long work that Ctrl-C may end ------------------===//

#include "python/disc/_native/Interruptible.h"
#include "python/disc/_runtime/GilRelease.h"
#include "python/disc/_runtime/Raise.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <unistd.h>
#include <vector>

using namespace disc::py;

/// Between two checks for signals.
static constexpr std::chrono::milliseconds kCheckEvery{50};
/// How long an interrupted compilation may take to stop before it is left alone.
static constexpr std::chrono::milliseconds kGrace{300};
/// LLVM recurses deeply.
static constexpr size_t kStackBytes = size_t(64) << 20;

namespace {
struct Job {
  std::function<void(const std::atomic<bool> &)> work;
  std::atomic<bool> cancelled{false};
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;

  static void *main(void *opaque) {
    auto *held = static_cast<std::shared_ptr<Job> *>(opaque);
    std::shared_ptr<Job> job = std::move(*held);
    delete held;
    job->work(job->cancelled);
    job->work = nullptr; // its data goes before anybody knows that it is done
    std::lock_guard<std::mutex> lock(job->mutex);
    job->done = true;
    job->ended.notify_all();
    return nullptr;
  }

  bool start(std::shared_ptr<Job> self) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
      return false;
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    auto *held = new std::shared_ptr<Job>(std::move(self));
    pthread_t thread;
    bool started = pthread_create(&thread, &attributes, main, held) == 0;
    pthread_attr_destroy(&attributes);
    if (!started)
      delete held;
    return started;
  }

  bool waitFor(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex);
    return ended.wait_for(lock, time, [this] { return done; });
  }
};

/// A job that nobody waits for, and what it works on.
struct Abandoned {
  std::shared_ptr<Job> job;
  PyObject *keep;
};
} // namespace

/// Guarded by the GIL, like the objects in it.
static std::vector<Abandoned> &abandoned() {
  static auto &list = *new std::vector<Abandoned>;
  return list;
}

static void releaseEnded() {
  auto &list = abandoned();
  std::vector<PyObject *> freed;
  list.erase(std::remove_if(list.begin(), list.end(),
                            [&](Abandoned &entry) {
                              bool ended = entry.job->waitFor(std::chrono::milliseconds(0));
                              if (ended)
                                freed.push_back(entry.keep);
                              return ended;
                            }),
             list.end());
  for (PyObject *object : freed)
    Py_DECREF(object);
}

#ifdef __GLIBC__
/// A process that ends while LLVM still works would destroy what LLVM uses.
static void exitAtOnce(int status, void *) {
  for (Abandoned &entry : abandoned())
    if (!entry.job->waitFor(std::chrono::milliseconds(0))) {
      std::fflush(nullptr);
      _exit(status);
    }
}
#endif

static void abandon(std::shared_ptr<Job> job, nb::object keep) {
#ifdef __GLIBC__
  static const int registered = on_exit(exitAtOnce, nullptr);
  (void)registered;
#endif
  abandoned().push_back({std::move(job), keep.release().ptr()});
}

void disc::py::runInterruptibly(nb::object keep, std::function<void(const std::atomic<bool> &)> work) {
  if (!abandoned().empty())
    releaseEnded();
  auto job = std::make_shared<Job>();
  job->work = std::move(work);
  // Signals are Python's main thread's business: others just work.
  if (!isMainThread() || !job->start(job)) {
    GilRelease release;
    job->work(job->cancelled);
    return;
  }
  for (;;) {
    bool done;
    {
      GilRelease release;
      done = job->waitFor(kCheckEvery);
    }
    if (done)
      return;
    if (PyErr_CheckSignals() == 0)
      continue;
    job->cancelled.store(true);
    {
      GilRelease release;
      done = job->waitFor(kGrace);
    }
    if (!done)
      abandon(std::move(job), std::move(keep));
    throw nb::python_error();
  }
}
