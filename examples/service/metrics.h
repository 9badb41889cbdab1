//===- metrics.h - what the service counts ----------------------*- C++ -*-===//

#ifndef SERVICE_METRICS_H
#define SERVICE_METRICS_H

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace service {

/// Counts values by size.
class Histogram {
public:
  /// Upper bounds of all buckets but the last, ascending.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value);

  /// Appends the lines of one metric.
  void write(std::string &out, const char *name, const char *help) const;
  /// The same without its description; `labels`: `model="a"`, or "".
  void writeValues(std::string &out, const char *name, const std::string &labels) const;

  /// Bounds for times.
  static std::vector<double> seconds();

private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

/// Appends the description of a metric.
void writeMetricHeader(std::string &out, const char *name, const char *type, const char *help);

/// All that /metrics tells, in the text format of Prometheus. Any thread may call any function.
class Metrics {
public:
  Metrics();

  void answered(const std::string &path, int status);

  /// One POST /embed that was answered with embeddings, in seconds.
  void embedded(double seconds);

  /// One run of the model over `batch` rows of `length`, of which `tokens` are no padding.
  void ran(int64_t batch, int64_t length, int64_t tokens, double seconds);

  void failedRun();

  std::string text() const;

private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> answers_;
  Histogram request_, run_, batch_;
  uint64_t tokens_ = 0, padding_ = 0, failures_ = 0;
};

} // namespace service

#endif // SERVICE_METRICS_H
