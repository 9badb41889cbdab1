//===- served_model.cpp - a model, its queue and its runs -----------------===//

#include "served_model.h"

#include <algorithm>
#include <new>

namespace service {

using Kind = RequestError::Kind;

Shape TensorSpec::shape() const {
  Shape result = min;
  for (size_t d = 0; d < result.size(); ++d)
    if (min[d] != max[d])
      result[d] = -1;
  return result;
}

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

void ServedModel::run(const Batch &batch) {
  if (!batch[0]->item.joins)
    return runAlone(*batch[0]);
  std::vector<const Combiner::Item *> items;
  for (const auto &request : batch)
    items.push_back(&request->item);
  for (const auto &group : combiner_.plan(std::move(items))) {
    std::vector<Request *> requests;
    for (const auto &request : batch)
      if (std::find(group.begin(), group.end(), &request->item) != group.end())
        requests.push_back(request.get());
    if (requests.size() == 1)
      runAlone(*requests[0]);
    else
      runTogether(requests);
  }
}

void ServedModel::runTogether(const std::vector<Request *> &requests) {
  std::vector<const Combiner::Item *> items;
  for (const Request *request : requests)
    items.push_back(&request->item);
  std::vector<std::vector<Tensor>> results;
  try {
    std::vector<Tensor> inputs = combiner_.combine(items);
    auto start = Clock::now();
    std::vector<Tensor> outputs = model_->run(inputs);
    std::chrono::duration<double> took = Clock::now() - start;
    int64_t own = Combiner::ownVolume(items);
    metrics_.ran(int64_t(items.size()), own, Combiner::paddedVolume(items) - own, took.count());
    results = combiner_.split(items, outputs);
  } catch (const std::exception &) {
    // One of them may be to blame: the others shall not suffer for it.
    metrics_.dividedRun();
    for (Request *request : requests)
      runAlone(*request);
    return;
  }
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i]->promise.set_value(std::move(results[i]));
}

void ServedModel::runAlone(Request &request) {
  std::vector<Tensor> outputs;
  try {
    auto start = Clock::now();
    outputs = model_->run(request.item.inputs);
    std::chrono::duration<double> took = Clock::now() - start;
    int64_t own = Combiner::ownVolume({&request.item});
    metrics_.ran(1, own, 0, took.count());
  } catch (const RequestError &error) {
    if (error.kind == Kind::Failed)
      metrics_.failedRun();
    return request.promise.set_exception(std::current_exception());
  } catch (const std::bad_alloc &) {
    metrics_.failedRun();
    return request.promise.set_exception(
        std::make_exception_ptr(RequestError(Kind::Failed, "there is not enough memory for the run")));
  } catch (const std::exception &error) {
    metrics_.failedRun();
    return request.promise.set_exception(std::make_exception_ptr(RequestError(Kind::Failed, error.what())));
  }
  request.promise.set_value(std::move(outputs));
}

} // namespace service
