//===- served_model.cpp - a model, its queue and its runs -----------------===//

#include "served_model.h"

#include <algorithm>

namespace service {

using Kind = RequestError::Kind;

ServedModel::ServedModel(std::string name, std::unique_ptr<Model> model, const ModelConfig &config)
    : name_(std::move(name)), model_(std::move(model)), config_(config), combiner_(*model_, config.batching) {
  for (int i = 0; i < config_.workers; ++i)
    workers_.emplace_back([this] { work(); });
}

ServedModel::~ServedModel() { drain(); }

void ServedModel::drain() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread &worker : workers_)
    if (worker.joinable())
      worker.join();
}

int64_t ServedModel::queued() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return int64_t(queue_.size());
}

static RequestError late() { return RequestError(Kind::Deadline, "the request's deadline has passed"); }

std::vector<Tensor> ServedModel::infer(std::vector<Tensor> inputs, Clock::time_point deadline) {
  auto request = std::make_unique<Request>();
  request->arrived = Clock::now();
  request->deadline = deadline;
  if (config_.deadline.count() > 0)
    request->deadline = std::min(deadline, request->arrived + config_.deadline);
  request->item = combiner_.examine(std::move(inputs));
  std::future<std::vector<Tensor>> result = request->promise.get_future();
  const Clock::time_point end = request->deadline;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_)
      throw RequestError(Kind::Stopping, "stopping");
    if (int64_t(queue_.size()) >= config_.queue)
      throw RequestError(Kind::Busy, "the queue of model '" + name_ + "' is full");
    queue_.push_back(std::move(request));
  }
  changed_.notify_all();
  if (end != Clock::time_point::max() && result.wait_until(end) == std::future_status::timeout)
    throw late(); // A run that has begun goes on, for nobody.
  return result.get();
}

void ServedModel::dropLate() {
  auto now = Clock::now();
  for (auto entry = queue_.begin(); entry != queue_.end();) {
    if ((*entry)->deadline > now) {
      ++entry;
      continue;
    }
    (*entry)->promise.set_exception(std::make_exception_ptr(late()));
    entry = queue_.erase(entry);
  }
}

/// Whether the first request has as many beside it as a run may take.
bool ServedModel::isFull() const {
  const Combiner::Item &first = queue_.front()->item;
  int64_t rows = 0;
  for (const auto &request : queue_)
    rows += request->item.joins && request->item.key == first.key ? request->item.rows : 0;
  return rows >= config_.batching.maxBatch;
}

/// The first request, and those that can share its run.
ServedModel::Batch ServedModel::takeFirst() {
  Batch batch;
  batch.push_back(std::move(queue_.front()));
  queue_.pop_front();
  const Combiner::Item &leader = batch[0]->item;
  int64_t rows = leader.rows;
  for (auto entry = queue_.begin(); leader.joins && entry != queue_.end();) {
    const Combiner::Item &item = (*entry)->item;
    if (!item.joins || item.key != leader.key) {
      ++entry;
      continue;
    }
    if (rows += item.rows; rows > config_.batching.maxBatch)
      break; // Later ones do not overtake it.
    batch.push_back(std::move(*entry));
    entry = queue_.erase(entry);
  }
  return batch;
}

/// Empty when there is nothing left to do.
ServedModel::Batch ServedModel::take() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    dropLate();
    if (queue_.empty()) {
      if (stopping_)
        return {};
      continue;
    }
    const Request &first = *queue_.front();
    Clock::time_point until = std::min(first.arrived + config_.batching.maxDelay, first.deadline);
    if (stopping_ || !first.item.joins || Clock::now() >= until || isFull())
      return takeFirst();
    changed_.wait_until(lock, until);
  }
}

void ServedModel::work() {
  for (;;) {
    Batch batch = take();
    if (batch.empty())
      return;
    run(batch);
  }
}

/// Answers the requests of a batch as their runs end.
struct ServedModel::Answers : RunListener {
  Answers(const Batch &requests, ModelMetrics &figures) : batch(requests), metrics(figures) {}

  void ran(const Items &items, Clock::time_point start, Clock::time_point end) override {
    int64_t own = Combiner::ownVolume(items);
    std::chrono::duration<double> took = end - start;
    metrics.ran(int64_t(items.size()), own, Combiner::paddedVolume(items) - own, took.count());
  }

  void divided() override { metrics.dividedRun(); }

  void finished(const Combiner::Item &item, Outcome outcome) override {
    if (outcome.error && outcome.error->kind == Kind::Failed)
      metrics.failedRun();
    for (const auto &request : batch) {
      if (&request->item != &item)
        continue;
      if (outcome.error)
        request->promise.set_exception(std::make_exception_ptr(*outcome.error));
      else
        request->promise.set_value(std::move(outcome.outputs));
      return;
    }
  }

  const Batch &batch;
  ModelMetrics &metrics;
};

void ServedModel::run(const Batch &batch) {
  Items items;
  for (const auto &request : batch)
    items.push_back(&request->item);
  Answers answers(batch, metrics_);
  runItems(*model_, combiner_, items, answers);
}

} // namespace service
