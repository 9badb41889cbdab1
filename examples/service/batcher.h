//===- batcher.h - sentences of many requests in one run --------*- C++ -*-===//

#ifndef SERVICE_BATCHER_H
#define SERVICE_BATCHER_H

#include "engine.h"
#include "metrics.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace service {

/// A sentence's ids.
using Tokens = std::vector<int32_t>;

/// One run: `count` sentences from `begin` on of a list that is sorted by length.
struct Group {
  size_t begin, count;
};

/// Cuts sentences, given by their ascending lengths, into runs so that rows times longest row, summed over the runs,
/// plus `runCost` for each run is least. A run has at most `maxBatch` rows and, unless it has one row, `maxTokens`
/// tokens.
std::vector<Group> plan(const std::vector<int64_t> &lengths, int64_t maxBatch, int64_t maxTokens, int64_t runCost);

/// Collects what waits while the model runs, and runs it together: nothing waits for others to come, unless `delay`
/// says so. Sentences are taken in the order they came, `maxBatch` at a time, and those of about the same length share
/// a run.
class Batcher {
public:
  struct Options {
    int64_t maxBatch = 32;              ///< Sentences of one run.
    int64_t maxTokens = 8192;           ///< Tokens of one run, padding included.
    int64_t runCost = 8;                ///< What a run costs beside its tokens, in tokens.
    int64_t capacity = 256;             ///< Sentences that may wait.
    int workers = 1;                    ///< Runs at the same time.
    std::chrono::microseconds delay{0}; ///< How long a sentence may wait for others.
  };

  enum class Admission { Accepted, Full, Stopped };

  /// The embeddings of a request's sentences, one after the other.
  using Embeddings = std::vector<float>;

  Batcher(Engine &engine, Metrics &metrics, const Options &options);
  ~Batcher();

  Batcher(const Batcher &) = delete;
  Batcher &operator=(const Batcher &) = delete;

  /// Takes all sentences of a request or none. `result` gets the embeddings, or the exception of the run that failed.
  Admission submit(std::vector<Tokens> sentences, std::future<Embeddings> &result);

  /// Takes no more requests, finishes those it has, and ends the workers.
  void drain();

  /// Sentences that wait.
  int64_t queued() const;

private:
  struct Request {
    std::vector<Tokens> sentences;
    Embeddings embeddings;
    size_t missing;
    std::promise<Embeddings> promise;
    bool failed = false;
  };

  struct Sentence {
    std::shared_ptr<Request> request;
    size_t index;
    const Tokens &tokens() const { return request->sentences[index]; }
  };

  struct Buffers;

  void work();
  std::vector<Sentence> take();
  void run(const Sentence *sentences, size_t count, Buffers &buffers);
  void finish(const Sentence &sentence, const float *embedding);
  void fail(const Sentence &sentence, const std::exception_ptr &error);

  Engine &engine_;
  Metrics &metrics_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Sentence> queue_;
  bool stopping_ = false;

  std::mutex results_; ///< Guards what several workers may write of one request.
  std::vector<std::thread> workers_;
};

} // namespace service

#endif // SERVICE_BATCHER_H
