//===- served_model.h - a model, its queue and its runs ---------*- C++ -*-===//

#ifndef SERVICE_SERVED_MODEL_H
#define SERVICE_SERVED_MODEL_H

#include "model.h"
#include "model_config.h"
#include "model_metrics.h"
#include "runs.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace service {

/// A model that many threads ask for results. Requests wait in the order they came; a worker takes the first and those
/// that can share its run. A run that fails is repeated request by request, so that one harms no other.
class ServedModel {
public:
  using Clock = std::chrono::steady_clock;

  /// Throws std::runtime_error if the configuration does not fit the model.
  ServedModel(std::string name, std::unique_ptr<Model> model, const ModelConfig &config);
  ~ServedModel();

  ServedModel(const ServedModel &) = delete;
  ServedModel &operator=(const ServedModel &) = delete;

  const std::string &name() const { return name_; }
  const Model &model() const { return *model_; }
  const Signature &signature() const { return model_->signature(); }
  const Combiner &combiner() const { return combiner_; }
  ModelMetrics &metrics() { return metrics_; }
  const ModelMetrics &metrics() const { return metrics_; }

  /// All outputs of a run with these inputs, of the signature's types and ranks. Waits for them, until `deadline` or
  /// what the configuration allows. Throws RequestError.
  std::vector<Tensor> infer(std::vector<Tensor> inputs, Clock::time_point deadline);

  /// Takes no more requests, finishes those it has, and ends the workers.
  void drain();

  /// Requests that wait.
  int64_t queued() const;

private:
  struct Request {
    Combiner::Item item;
    Clock::time_point arrived, deadline;
    std::promise<std::vector<Tensor>> promise;
  };
  using Batch = std::vector<std::unique_ptr<Request>>;
  struct Answers;

  void work();
  Batch take();
  Batch takeFirst();
  void dropLate();
  bool isFull() const;
  void run(const Batch &batch);

  const std::string name_;
  const std::unique_ptr<Model> model_;
  const ModelConfig config_;
  const Combiner combiner_;
  ModelMetrics metrics_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Request>> queue_; ///< Guarded by the mutex, as is:
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

} // namespace service

#endif // SERVICE_SERVED_MODEL_H
