//===- metrics.cpp - what the service counts ------------------------------===//

#include "metrics.h"
#include "number.h"

#include <algorithm>

namespace service {

void writeMetricHeader(std::string &out, const char *name, const char *type, const char *help) {
  out.append("# HELP ").append(name).append(" ").append(help);
  out.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
}

template <typename T>
static void single(std::string &out, const char *name, const char *type, const char *help, T value) {
  writeMetricHeader(out, name, type, help);
  out.append(name).append(" ");
  appendNumber(out, value);
  out.push_back('\n');
}

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  ++counts_[size_t(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin())];
  sum_ += value;
}

void Histogram::write(std::string &out, const char *name, const char *help) const {
  writeMetricHeader(out, name, "histogram", help);
  writeValues(out, name, "");
}

void Histogram::writeValues(std::string &out, const char *name, const std::string &labels) const {
  uint64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    out.append(name).append("_bucket{").append(labels).append(labels.empty() ? "le=\"" : ",le=\"");
    if (i < bounds_.size())
      appendNumber(out, bounds_[i]);
    else
      out.append("+Inf");
    out.append("\"} ");
    appendNumber(out, count += counts_[i]);
    out.push_back('\n');
  }
  const std::string braces = labels.empty() ? "" : "{" + labels + "}";
  out.append(name).append("_sum").append(braces).append(" ");
  appendNumber(out, sum_);
  out.append("\n").append(name).append("_count").append(braces).append(" ");
  appendNumber(out, count);
  out.push_back('\n');
}

std::vector<double> Histogram::seconds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
}

Metrics::Metrics() : request_(Histogram::seconds()), run_(Histogram::seconds()), batch_({1, 2, 4, 8, 16, 32, 64}) {}

void Metrics::answered(const std::string &path, int status) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++answers_[{path, status}];
}

void Metrics::embedded(double seconds) {
  std::lock_guard<std::mutex> lock(mutex_);
  request_.observe(seconds);
}

void Metrics::ran(int64_t batch, int64_t length, int64_t tokens, double seconds) {
  std::lock_guard<std::mutex> lock(mutex_);
  batch_.observe(double(batch));
  run_.observe(seconds);
  tokens_ += uint64_t(tokens);
  padding_ += uint64_t(batch * length - tokens);
}

void Metrics::failedRun() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++failures_;
}

std::string Metrics::text() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string out;
  writeMetricHeader(out, "service_requests_total", "counter", "Answers, by path and status.");
  for (const auto &[key, count] : answers_) {
    out.append("service_requests_total{path=\"").append(key.first).append("\",status=\"");
    appendNumber(out, key.second);
    out.append("\"} ");
    appendNumber(out, count);
    out.push_back('\n');
  }
  single(out, "service_tokens_total", "counter", "Tokens that were run, without padding.", tokens_);
  single(out, "service_padding_tokens_total", "counter", "Padding that was run.", padding_);
  single(out, "service_failed_runs_total", "counter", "Runs of the model that failed.", failures_);
  batch_.write(out, "service_batch_sentences", "Sentences of one run.");
  run_.write(out, "service_run_seconds", "Time of one run of the model.");
  request_.write(out, "service_request_seconds", "Time from a whole request for embeddings to its answer.");
  return out;
}

} // namespace service
