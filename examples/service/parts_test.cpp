//===- parts_test.cpp - the batcher with an engine that only counts; UTF-8 ===//
//
// Exits with 0 and prints "N passed, 0 failed" if all is well.
//
//===----------------------------------------------------------------------===//

#include "batcher.h"
#include "unicode.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>
#include <stdexcept>

using namespace service;

static std::atomic<int> failures{0}, checks{0};

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    ++checks;                                                                                                          \
    if (!(condition)) {                                                                                                \
      ++failures;                                                                                                      \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                      \
    }                                                                                                                  \
  } while (false)

namespace {

/// The embedding of a sentence is its length and the sum of its ids; id 666 makes a run fail. While it is closed, runs
/// wait.
class CountingEngine : public Engine {
public:
  static constexpr int32_t kBad = 666;

  std::string name() const override { return "counting"; }
  int64_t dimension() const override { return 2; }
  int64_t maxBatch() const override { return 8; }
  int64_t minLength() const override { return 3; }
  int64_t maxLength() const override { return 64; }

  void run(const int64_t *ids, const int64_t *mask, int64_t batch, int64_t length, float *out) override {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --waiting_;
    ++runs;
    CHECK(batch >= 1 && batch <= maxBatch() && length >= minLength() && length <= maxLength());
    rows += batch;
    padded += batch * length;
    for (int64_t row = 0; row < batch; ++row) {
      int64_t count = 0, sum = 0;
      for (int64_t i = row * length; i < (row + 1) * length; ++i) {
        CHECK(mask[i] == 1 || (mask[i] == 0 && ids[i] == 0));
        count += mask[i];
        sum += ids[i];
        if (ids[i] == kBad)
          throw std::runtime_error("a bad id");
      }
      out[row * 2] = float(count);
      out[row * 2 + 1] = float(sum);
    }
  }

  void close() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
  }

  void open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  /// Until a run waits.
  void await() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }

  int64_t runs = 0, rows = 0, padded = 0;

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int waiting_ = 0;
};

} // namespace

static int64_t costOf(const std::vector<int64_t> &lengths, const std::vector<Group> &groups, int64_t runCost) {
  int64_t cost = 0;
  for (const Group &group : groups)
    cost += runCost + int64_t(group.count) * lengths[group.begin + group.count - 1];
  return cost;
}

/// Every plan against the best of all plans.
static void testPlan() {
  std::mt19937 random(1);
  auto below = [&](int64_t end) { return int64_t(random() % uint64_t(end)); };
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> lengths;
    for (int64_t i = below(10); i >= 0; --i)
      lengths.push_back(2 + below(40));
    std::sort(lengths.begin(), lengths.end());
    int64_t maxBatch = 1 + below(8), maxTokens = 1 + below(150), runCost = below(30);
    std::vector<Group> groups = plan(lengths, maxBatch, maxTokens, runCost);

    auto isAllowed = [&](const std::vector<Group> &some) {
      size_t at = 0;
      for (const Group &group : some) {
        int64_t rows = int64_t(group.count);
        if (group.begin != at || rows < 1 || rows > maxBatch ||
            (rows > 1 && rows * lengths[group.begin + group.count - 1] > maxTokens))
          return false;
        at += group.count;
      }
      return at == lengths.size();
    };
    CHECK(isAllowed(groups));
    int64_t least = INT64_MAX;
    for (size_t cuts = 0; cuts < size_t(1) << (lengths.size() - 1); ++cuts) {
      std::vector<Group> other{{0, 1}};
      for (size_t i = 1; i < lengths.size(); ++i)
        if (cuts >> (i - 1) & 1)
          other.push_back({i, 1});
        else
          ++other.back().count;
      if (isAllowed(other))
        least = std::min(least, costOf(lengths, other, runCost));
    }
    CHECK(costOf(lengths, groups, runCost) == least);
  }
  CHECK(plan({}, 8, 100, 1).empty());
}

static Batcher::Options smallOptions() {
  Batcher::Options options;
  options.maxBatch = 8;
  options.capacity = 20;
  return options;
}

/// Many threads, requests of several sentences, each with an embedding of its own.
static void testResults(int workers, int delay) {
  CountingEngine engine;
  Metrics metrics;
  Batcher::Options options = smallOptions();
  options.capacity = 1000;
  options.workers = workers;
  options.delay = std::chrono::microseconds(delay);
  Batcher batcher(engine, metrics, options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 6; ++client)
    clients.emplace_back([&, client] {
      std::mt19937 random(unsigned(client) + 1);
      for (int i = 0; i < 100; ++i) {
        std::vector<Tokens> sentences;
        std::vector<float> expected;
        bool bad = false;
        for (size_t n = 1 + random() % 5; n > 0; --n) {
          Tokens tokens(1 + random() % 60);
          float sum = 0;
          for (int32_t &id : tokens)
            sum += float(id = int32_t(1 + random() % 600));
          if (random() % 50 == 0)
            tokens[random() % tokens.size()] = CountingEngine::kBad, bad = true;
          expected.push_back(float(tokens.size()));
          expected.push_back(sum);
          sentences.push_back(std::move(tokens));
        }
        std::future<Batcher::Embeddings> result;
        if (batcher.submit(std::move(sentences), result) != Batcher::Admission::Accepted) {
          ++wrong;
          continue;
        }
        try {
          wrong += result.get() != expected || bad;
        } catch (const std::runtime_error &error) {
          wrong += !bad || std::string(error.what()) != "a bad id";
        }
      }
    });
  for (std::thread &client : clients)
    client.join();
  CHECK(wrong == 0);
  CHECK(batcher.queued() == 0);
}

/// What waits while a run is going on shares the next runs, by length.
static void testBatches() {
  CountingEngine engine;
  Metrics metrics;
  Batcher batcher(engine, metrics, smallOptions());
  engine.close();
  std::vector<std::future<Batcher::Embeddings>> results(9);
  CHECK(batcher.submit({Tokens(5, 1)}, results[0]) == Batcher::Admission::Accepted);
  engine.await();
  for (size_t i = 1; i < 9; ++i)
    CHECK(batcher.submit({Tokens(i % 2 ? 10 : 50, 1)}, results[i]) == Batcher::Admission::Accepted);
  CHECK(batcher.queued() == 8);
  engine.open();
  for (size_t i = 0; i < 9; ++i)
    CHECK(results[i].get()[0] == (i == 0 ? 5 : i % 2 ? 10 : 50));
  batcher.drain();
  CHECK(engine.runs == 3);
  CHECK(engine.padded == 5 + 4 * 10 + 4 * 50);
}

static void testLimits() {
  CountingEngine engine;
  Metrics metrics;
  Batcher batcher(engine, metrics, smallOptions());
  engine.close();
  std::future<Batcher::Embeddings> running, waiting, refused, late;
  CHECK(batcher.submit({Tokens(5, 1)}, running) == Batcher::Admission::Accepted);
  engine.await();
  CHECK(batcher.submit(std::vector<Tokens>(21, Tokens(5, 1)), refused) == Batcher::Admission::Full);
  CHECK(batcher.submit(std::vector<Tokens>(20, Tokens(5, 1)), waiting) == Batcher::Admission::Accepted);
  CHECK(batcher.submit({Tokens(5, 1)}, refused) == Batcher::Admission::Full);
  CHECK(!refused.valid());

  // Draining answers all that was taken.
  std::thread drain([&] { batcher.drain(); });
  while (batcher.submit({Tokens(5, 1)}, late) != Batcher::Admission::Stopped)
    std::this_thread::yield();
  engine.open();
  drain.join();
  CHECK(running.get().size() == 2);
  CHECK(waiting.get().size() == 40);
}

/// What is no UTF-8 is refused at its first byte, and nothing is read beyond the text.
static void testDecode() {
  CHECK(decode("a\xc3\xa9\xf0\x9f\x9a\x80") == (std::vector<int32_t>{'a', 0xe9, 0x1f680}));
  CHECK(decode(std::string_view("\0", 1)) == std::vector<int32_t>{0});
  CHECK(decode("").empty());
  for (const char *bad : {"\x80", "\xff", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xed\xbf\xbf",
                          "\xf0\x9f", "\xf0\x9f\x9a", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xc3("}) {
    std::string text = std::string("ab") + bad, message;
    try {
      decode(std::string_view(text.data(), text.size()));
    } catch (const std::invalid_argument &error) {
      message = error.what();
    }
    CHECK(message == "the text is not valid UTF-8: byte 2");
  }
}

int main() {
  testDecode();
  testPlan();
  testResults(1, 0);
  testResults(3, 0);
  testResults(1, 200);
  testBatches();
  testLimits();
  std::printf("%d passed, %d failed\n", checks - failures, failures.load());
  return failures != 0;
}
