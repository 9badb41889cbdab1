//===- connections.cpp - threads for a bounded number of clients ----------===//

#include "connections.h"

namespace service {

static thread_local bool refuses = false;

Connections::Connections(int limit) : idle_(size_t(limit)) {
  for (int i = 0; i < limit; ++i)
    threads_.emplace_back([this] { work(accepted_, /*counted=*/true); });
  threads_.emplace_back([this] {
    refuses = true;
    work(refused_, /*counted=*/false);
  });
}

bool Connections::turnAway() { return refuses; }

void Connections::enqueue(std::function<void()> serve) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    (accepted_.size() < idle_ ? accepted_ : refused_).push_back(std::move(serve));
  }
  changed_.notify_all();
}

void Connections::shutdown() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread &thread : threads_)
    thread.join();
}

void Connections::work(Queue &queue, bool counted) {
  for (;;) {
    std::function<void()> serve;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !queue.empty(); });
      if (queue.empty())
        return;
      serve = std::move(queue.front());
      queue.pop_front();
      idle_ -= counted;
    }
    serve();
    if (counted) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++idle_;
    }
  }
}

} // namespace service
