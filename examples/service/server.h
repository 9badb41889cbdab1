//===- server.h - the service's HTTP interface ------------------*- C++ -*-===//

#ifndef SERVICE_SERVER_H
#define SERVICE_SERVER_H

#include "doorkeeper.h"
#include "metrics.h"
#include "route.h"

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace service {

/// The paths of its routes, and
///
///   GET  /health   200, or 503 while it stops
///   GET  /metrics  for Prometheus
///
/// An answer that is not a success is {"error": "..."}.
class Server {
public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 8080;      ///< 0: any that is free.
    int connections = 64; ///< At the same time.
    int timeout = 5;      ///< Seconds that a client may take to send a request, or be silent between two.
    std::chrono::milliseconds lameDuck{200}; ///< How long it goes on to listen, to say that it stops.
  };

  Server(std::vector<Route *> routes, Metrics &metrics, const Options &options);

  /// Returns the port. Throws std::runtime_error.
  int bind();

  /// Serves until stop() was called and all that was accepted is answered. False if it could not listen.
  bool serve();

  /// From any thread, while serve() runs or will. Requests that are queued are answered; others are refused with 503.
  void stop();

private:
  /// With connections of our own, which have limits.
  class Http : public httplib::Server {
  public:
    explicit Http(service::Server &server) : server_(server) {}

  private:
    bool process_and_close_socket(socket_t socket) override;
    service::Server &server_;
  };

  std::string answerVisitor(const std::string &method, const std::string &path);
  std::string label(const std::string &path) const;
  std::string metricsText() const;

  const std::vector<Route *> routes_;
  Metrics &metrics_;
  const Options options_;
  Http http_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> closing_{false}; ///< Nobody is waited for any more.
  std::atomic<bool> served_{false};
  std::atomic<int> processing_{0}; ///< Requests that have begun to arrive and are not answered.
  int socket_ = -1;
  Doorkeeper doorkeeper_; ///< Uses all of the above.
};

} // namespace service

#endif // SERVICE_SERVER_H
