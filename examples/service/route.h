//===- route.h - a part of the service's HTTP interface ---------*- C++ -*-===//

#ifndef SERVICE_ROUTE_H
#define SERVICE_ROUTE_H

#include <httplib.h>

#include <atomic>
#include <string>

namespace service {

/// Paths that belong together, and what they serve.
class Route {
public:
  virtual ~Route() = default;

  /// Adds handlers. `stopping` is set before drain() is called.
  virtual void install(httplib::Server &http, const std::atomic<bool> &stopping) = 0;

  /// How a path is counted, from a fixed set of words; "" if it is not one of this route.
  virtual std::string label(const std::string &path) const = 0;

  /// Takes no more requests, and returns once those it took have their results.
  virtual void drain() = 0;

  /// Appends to the text for Prometheus.
  virtual void appendMetrics(std::string &out) const = 0;
};

} // namespace service

#endif // SERVICE_ROUTE_H
