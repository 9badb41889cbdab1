//===- model_metrics.h - what is counted for each model ---------*- C++ -*-===//

#ifndef SERVICE_MODEL_METRICS_H
#define SERVICE_MODEL_METRICS_H

#include "metrics.h"

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace service {

/// The figures of one model. Any thread may call any function.
class ModelMetrics {
public:
  ModelMetrics();

  /// One request for a result. `protocol`: "http" or "grpc"; `status`: as that protocol writes it.
  void answered(const std::string &protocol, const std::string &status, double seconds);

  /// One run for `requests` requests; elements are counted in units of rows times padded sizes.
  void ran(int64_t requests, int64_t elements, int64_t padding, double seconds);

  void failedRun();
  /// A run that was repeated request by request.
  void dividedRun();

private:
  friend std::string modelMetricsText(const std::vector<std::pair<std::string, const ModelMetrics *>> &models,
                                      const std::function<int64_t(size_t)> &queued);

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, uint64_t> answers_;
  Histogram request_, run_, batch_;
  uint64_t elements_ = 0, padding_ = 0, failures_ = 0, divided_ = 0;
};

/// The text for Prometheus of models by name; `queued(i)`: requests that wait for the i-th.
std::string modelMetricsText(const std::vector<std::pair<std::string, const ModelMetrics *>> &models,
                             const std::function<int64_t(size_t)> &queued);

} // namespace service

#endif // SERVICE_MODEL_METRICS_H
