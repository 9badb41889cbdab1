//===- model_metrics.cpp - what is counted for each model -----------------===//

#include "model_metrics.h"
#include "number.h"

namespace service {

ModelMetrics::ModelMetrics()
    : request_(Histogram::seconds()), run_(Histogram::seconds()), batch_({1, 2, 4, 8, 16, 32, 64}) {}

void ModelMetrics::answered(const std::string &protocol, const std::string &status, double seconds) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++answers_[{protocol, status}];
  request_.observe(seconds);
}

void ModelMetrics::ran(int64_t requests, int64_t elements, int64_t padding, double seconds) {
  std::lock_guard<std::mutex> lock(mutex_);
  batch_.observe(double(requests));
  run_.observe(seconds);
  elements_ += uint64_t(elements);
  padding_ += uint64_t(padding);
}

void ModelMetrics::failedRun() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++failures_;
}

void ModelMetrics::dividedRun() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++divided_;
}

std::string modelMetricsText(const std::vector<std::pair<std::string, const ModelMetrics *>> &models,
                             const std::function<int64_t(size_t)> &queued) {
  std::string out;
  if (models.empty())
    return out;
  auto label = [&](size_t i) { return "model=\"" + models[i].first + "\""; };
  auto each = [&](const char *name, const char *type, const char *help, auto value) {
    writeMetricHeader(out, name, type, help);
    for (size_t i = 0; i < models.size(); ++i) {
      out.append(name).append("{").append(label(i)).append("} ");
      appendNumber(out, value(i));
      out.push_back('\n');
    }
  };
  auto histogram = [&](const char *name, const char *help, const Histogram ModelMetrics::*which) {
    writeMetricHeader(out, name, "histogram", help);
    for (size_t i = 0; i < models.size(); ++i) {
      std::lock_guard<std::mutex> lock(models[i].second->mutex_);
      (models[i].second->*which).writeValues(out, name, label(i));
    }
  };
  auto count = [&](const char *name, const char *help, const uint64_t ModelMetrics::*which) {
    each(name, "counter", help, [&](size_t i) {
      std::lock_guard<std::mutex> lock(models[i].second->mutex_);
      return models[i].second->*which;
    });
  };

  writeMetricHeader(out, "service_model_requests_total", "counter", "Requests for results, by model and status.");
  for (size_t i = 0; i < models.size(); ++i) {
    std::lock_guard<std::mutex> lock(models[i].second->mutex_);
    for (const auto &[key, value] : models[i].second->answers_) {
      out.append("service_model_requests_total{").append(label(i)).append(",protocol=\"").append(key.first);
      out.append("\",status=\"").append(key.second).append("\"} ");
      appendNumber(out, value);
      out.push_back('\n');
    }
  }
  each("service_model_queue_requests", "gauge", "Requests that wait for a run.", queued);
  count("service_model_elements_total", "Rows or elements that were run, without padding.", &ModelMetrics::elements_);
  count("service_model_padding_total", "Padding that was run, in the same unit.", &ModelMetrics::padding_);
  count("service_model_failed_runs_total", "Runs that failed.", &ModelMetrics::failures_);
  count("service_model_divided_runs_total", "Runs that were repeated request by request.", &ModelMetrics::divided_);
  histogram("service_model_run_requests", "Requests of one run.", &ModelMetrics::batch_);
  histogram("service_model_run_seconds", "Time of one run.", &ModelMetrics::run_);
  histogram("service_model_request_seconds", "Time from a whole request to its answer.", &ModelMetrics::request_);
  return out;
}

} // namespace service
