//===- connections.cpp - threads for a bounded number of clients ----------===//

#include "connections.h"

namespace service {

static thread_local bool refuses = false;

Connections::Connections(int limit) : idle_(size_t(limit)) {
  for (int i = 0; i < limit; ++i)
    threads_.emplace_back([this] { work(); });
}

bool Connections::turnAway() { return refuses; }

void Connections::enqueue(std::function<void()> serve) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (accepted_.size() < idle_) {
      accepted_.push_back(std::move(serve));
      changed_.notify_one();
      return;
    }
  }
  refuses = true;
  serve();
  refuses = false;
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

void Connections::work() {
  for (;;) {
    std::function<void()> serve;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !accepted_.empty(); });
      if (accepted_.empty())
        return;
      serve = std::move(accepted_.front());
      accepted_.pop_front();
      --idle_;
    }
    serve();
    std::lock_guard<std::mutex> lock(mutex_);
    ++idle_;
  }
}

} // namespace service
