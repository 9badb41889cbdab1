//===- batcher.cpp - sentences of many requests in one run ----------------===//

#include "batcher.h"

#include <algorithm>
#include <limits>

namespace service {

std::vector<Group> plan(const std::vector<int64_t> &lengths, int64_t maxBatch, int64_t maxTokens, int64_t runCost) {
  // cost[end]: the least cost of the first `end` sentences; cut[end]: where the last of their runs begins.
  std::vector<int64_t> cost(lengths.size() + 1, std::numeric_limits<int64_t>::max());
  std::vector<size_t> cut(lengths.size() + 1);
  cost[0] = 0;
  for (size_t end = 1; end <= lengths.size(); ++end) {
    int64_t longest = lengths[end - 1];
    for (size_t begin = end; begin-- > 0;) {
      int64_t rows = int64_t(end - begin);
      if (rows > maxBatch || (rows > 1 && rows * longest > maxTokens))
        break;
      int64_t total = cost[begin] + runCost + rows * longest;
      if (total < cost[end]) {
        cost[end] = total;
        cut[end] = begin;
      }
    }
  }
  std::vector<Group> groups;
  for (size_t end = lengths.size(); end > 0; end = cut[end])
    groups.push_back({cut[end], end - cut[end]});
  std::reverse(groups.begin(), groups.end());
  return groups;
}

/// A worker's own memory, which grows to what it needs.
struct Batcher::Buffers {
  std::vector<int64_t> ids, mask;
  std::vector<float> out;
};

Batcher::Batcher(Engine &engine, Metrics &metrics, const Options &options)
    : engine_(engine), metrics_(metrics), options_(options) {
  for (int i = 0; i < options_.workers; ++i)
    workers_.emplace_back([this] { work(); });
}

Batcher::~Batcher() { drain(); }

Batcher::Admission Batcher::submit(std::vector<Tokens> sentences, std::future<Embeddings> &result) {
  auto request = std::make_shared<Request>();
  request->missing = sentences.size();
  request->embeddings.resize(sentences.size() * size_t(engine_.dimension()));
  request->sentences = std::move(sentences);
  std::future<Embeddings> future = request->promise.get_future();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_)
      return Admission::Stopped;
    if (int64_t(queue_.size() + request->missing) > options_.capacity)
      return Admission::Full;
    for (size_t i = 0; i < request->sentences.size(); ++i)
      queue_.push_back({request, i});
  }
  changed_.notify_all();
  result = std::move(future);
  return Admission::Accepted;
}

void Batcher::drain() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread &worker : workers_)
    if (worker.joinable())
      worker.join();
}

int64_t Batcher::queued() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return int64_t(queue_.size());
}

/// Empty when there is nothing left to do.
std::vector<Batcher::Sentence> Batcher::take() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  if (options_.delay.count() > 0)
    changed_.wait_for(lock, options_.delay,
                      [this] { return stopping_ || int64_t(queue_.size()) >= options_.maxBatch; });
  std::vector<Sentence> taken;
  for (; !queue_.empty() && int64_t(taken.size()) < options_.maxBatch; queue_.pop_front())
    taken.push_back(std::move(queue_.front()));
  return taken;
}

void Batcher::work() {
  Buffers buffers;
  for (;;) {
    std::vector<Sentence> sentences = take();
    if (sentences.empty()) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_ && queue_.empty())
        return;
      continue; // Another worker was faster.
    }
    std::stable_sort(sentences.begin(), sentences.end(),
                     [](const Sentence &a, const Sentence &b) { return a.tokens().size() < b.tokens().size(); });
    std::vector<int64_t> lengths;
    for (const Sentence &sentence : sentences)
      lengths.push_back(std::max(int64_t(sentence.tokens().size()), engine_.minLength()));
    for (const Group &group : plan(lengths, options_.maxBatch, options_.maxTokens, options_.runCost))
      run(&sentences[group.begin], group.count, buffers);
  }
}

void Batcher::run(const Sentence *sentences, size_t count, Buffers &buffers) {
  // The last one is the longest.
  size_t length = std::max(sentences[count - 1].tokens().size(), size_t(engine_.minLength())), tokens = 0;
  size_t dimension = size_t(engine_.dimension());
  try {
    buffers.ids.assign(count * length, 0);
    buffers.mask.assign(count * length, 0);
    buffers.out.resize(count * dimension);
    for (size_t row = 0; row < count; ++row) {
      const Tokens &ids = sentences[row].tokens();
      std::copy(ids.begin(), ids.end(), &buffers.ids[row * length]);
      std::fill_n(&buffers.mask[row * length], ids.size(), 1);
      tokens += ids.size();
    }
    auto start = std::chrono::steady_clock::now();
    engine_.run(buffers.ids.data(), buffers.mask.data(), int64_t(count), int64_t(length), buffers.out.data());
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    metrics_.ran(int64_t(count), int64_t(length), int64_t(tokens), took.count());
  } catch (const std::exception &) {
    metrics_.failedRun();
    if (count == 1)
      return fail(sentences[0], std::current_exception());
    // One of them may be to blame: the others shall not suffer for it.
    for (size_t row = 0; row < count; ++row)
      run(sentences + row, 1, buffers);
    return;
  }
  for (size_t row = 0; row < count; ++row)
    finish(sentences[row], buffers.out.data() + row * dimension);
}

void Batcher::finish(const Sentence &sentence, const float *embedding) {
  Request &request = *sentence.request;
  size_t dimension = size_t(engine_.dimension());
  std::lock_guard<std::mutex> lock(results_);
  std::copy_n(embedding, dimension, request.embeddings.begin() + std::ptrdiff_t(sentence.index * dimension));
  if (--request.missing == 0 && !request.failed)
    request.promise.set_value(std::move(request.embeddings));
}

void Batcher::fail(const Sentence &sentence, const std::exception_ptr &error) {
  Request &request = *sentence.request;
  std::lock_guard<std::mutex> lock(results_);
  --request.missing;
  if (!request.failed)
    request.promise.set_exception(error);
  request.failed = true;
}

} // namespace service
