//===- CompilerThreads.cpp - threads that passes run on -------------------===//

#include "lib/Target/Driver/CompilerThreads.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir::disc;

CompilerThreads::CompilerThreads() : limit(llvm::hardware_concurrency().compute_thread_count()) {}

CompilerThreads::~CompilerThreads() {
  finish(nullptr);
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  queued.notify_all();
  for (pthread_t thread : threads)
    pthread_join(thread, nullptr);
}

void CompilerThreads::asyncEnqueue(llvm::unique_function<void()> task, llvm::ThreadPoolTaskGroup *group) {
  std::lock_guard<std::mutex> lock(mutex);
  tasks.push_back({std::move(task), group});
  if (idle == 0 && threads.size() < limit) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, threadMain, this) == 0)
      threads.push_back(thread);
  }
  queued.notify_one();
  // Who waits may be a task itself, and finds more to do.
  done.notify_all();
}

void *CompilerThreads::threadMain(void *self) {
  static_cast<CompilerThreads *>(self)->work();
  return nullptr;
}

void CompilerThreads::work() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    ++idle;
    queued.wait(lock, [this] { return stopping || !tasks.empty(); });
    --idle;
    if (tasks.empty())
      return;
    runTask(tasks.begin(), lock);
  }
}

void CompilerThreads::runTask(std::deque<Task>::iterator place, std::unique_lock<std::mutex> &lock) {
  Task task = std::move(*place);
  tasks.erase(place);
  running.push_back(task.group);
  lock.unlock();
  task.run();
  // What it holds goes before it counts as done.
  task.run = nullptr;
  lock.lock();
  running.erase(llvm::find(running, task.group));
  done.notify_all();
}

void CompilerThreads::finish(llvm::ThreadPoolTaskGroup *group) {
  auto isOwn = [group](llvm::ThreadPoolTaskGroup *other) { return !group || other == group; };
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    auto next = llvm::find_if(tasks, [&](const Task &task) { return isOwn(task.group); });
    if (next != tasks.end())
      runTask(next, lock);
    else if (llvm::any_of(running, isOwn))
      done.wait(lock);
    else
      return;
  }
}

void CompilerThreads::wait() { finish(nullptr); }
void CompilerThreads::wait(llvm::ThreadPoolTaskGroup &group) { finish(&group); }
