//===- doorkeeper.h - clients for which there is no room --------*- C++ -*-===//
//
// One thread answers all of them and waits for none: a client that is slow to ask holds up nobody. Each may send the
// head of one request, within a time and a size, gets its answer and the end of the connection.
//
//===----------------------------------------------------------------------===//

#ifndef SERVICE_DOORKEEPER_H
#define SERVICE_DOORKEEPER_H

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace service {

class Doorkeeper {
public:
  using Clock = std::chrono::steady_clock;

  /// The whole answer to a request, given its method and path.
  using Answer = std::function<std::string(const std::string &method, const std::string &path)>;

  /// `patience` is how long a client may stay.
  Doorkeeper(Answer answer, std::chrono::milliseconds patience);
  /// Ends the connections that are left.
  ~Doorkeeper();
  Doorkeeper(const Doorkeeper &) = delete;
  Doorkeeper &operator=(const Doorkeeper &) = delete;

  /// Takes the socket, and closes it in the end. Never waits.
  void take(int socket);

private:
  struct Visitor {
    int socket;
    Clock::time_point deadline;
    std::string request, answer;
    size_t sent = 0, drained = 0;
  };

  void work();
  /// False once there is nothing left to do with the visitor.
  bool serve(Visitor &visitor, short events) const;
  bool receive(Visitor &visitor) const;

  const Answer answer_;
  const std::chrono::milliseconds patience_;
  int wakeRead_ = -1, wakeWrite_ = -1;
  std::mutex mutex_;
  std::vector<int> arrived_; ///< Guarded by the mutex, as is:
  bool stopping_ = false;
  std::vector<Visitor> visitors_; ///< The thread's own, the oldest first.
  std::thread thread_;
};

} // namespace service

#endif // SERVICE_DOORKEEPER_H
