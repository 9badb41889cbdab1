//===- kserve_route.h - the Open Inference Protocol over HTTP ---*- C++ -*-===//

#ifndef SERVICE_KSERVE_ROUTE_H
#define SERVICE_KSERVE_ROUTE_H

#include "models.h"
#include "route.h"

#include <string>

namespace service {

///   GET  /v2                                        the server's metadata
///   GET  /v2/health/live, /v2/health/ready
///   GET  /v2/models/NAME[/versions/1]               a model's metadata
///   GET  /v2/models/NAME[/versions/1]/ready
///   POST /v2/models/NAME[/versions/1]/infer
class KServeRoute : public Route {
public:
  /// `maxBody`: bytes of a request for a result.
  KServeRoute(Models &models, int64_t maxBody) : models_(models), maxBody_(maxBody) {}

  void install(httplib::Server &http, const std::atomic<bool> &stopping) override;
  std::string label(const std::string &path) const override;
  void drain() override { models_.drain(); }
  void appendMetrics(std::string &out) const override { out += models_.metricsText(); }

private:
  void get(const httplib::Request &request, httplib::Response &response, bool stopping) const;
  void post(const httplib::Request &request, httplib::Response &response, const httplib::ContentReader &reader);
  void infer(ServedModel &model, const httplib::Request &request, httplib::Response &response, const std::string &body);

  Models &models_;
  const int64_t maxBody_;
};

} // namespace service

#endif // SERVICE_KSERVE_ROUTE_H
