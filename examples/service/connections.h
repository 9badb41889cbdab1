//===- connections.h - threads for a bounded number of clients --*- C++ -*-===//

#ifndef SERVICE_CONNECTIONS_H
#define SERVICE_CONNECTIONS_H

#include <httplib.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace service {

/// One thread for each connection, as httplib wants it. A connection that finds them all busy does not wait for one: it
/// is given to the doorkeeper (doorkeeper.h) by the thread that accepts connections.
class Connections : public httplib::TaskQueue {
public:
  explicit Connections(int limit);

  void enqueue(std::function<void()> serve) override;
  void shutdown() override;

  /// Whether the connection that the calling thread has is to be turned away.
  static bool turnAway();

private:
  using Queue = std::deque<std::function<void()>>;

  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  Queue accepted_;
  size_t idle_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

} // namespace service

#endif // SERVICE_CONNECTIONS_H
