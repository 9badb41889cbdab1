//===- ConcurrencyTest.cpp - many threads, several models -----------------===//

#include "Check.h"
#include "HandModel.h"

#include <atomic>
#include <thread>

using namespace disc::test;

/// Sanitizers make everything slower, not less concurrent.
#if defined(__SANITIZE_THREAD__) || (defined(__has_feature) && __has_feature(thread_sanitizer))
static constexpr int kRounds = 100;
#else
static constexpr int kRounds = 500;
#endif

/// Runs at one shape, into the caller's tensor or a new one; the factor w that the results agree on, or -1.
static float runOnce(disc_model *model, int64_t b, int64_t s, bool inPlace) {
  Floats x({b, s}), y({b, s});
  Longs mask({b, 3});
  const DLTensor *list[] = {&x.tensor, &mask.tensor};
  disc_output output = {inPlace ? &y.tensor : nullptr, nullptr};
  if (disc_run(model, list, 2, &output, 1) != DISC_OK)
    return -1;
  const DLTensor &result = inPlace ? y.tensor : output.managed->dl_tensor;
  auto *data = static_cast<float *>(result.data);
  float w = data[0] / 2;
  for (int64_t i = 0; i < b * s; ++i)
    if (data[i] != x.data[i] * w + 2 * w)
      w = -1;
  if (!inPlace)
    output.managed->deleter(output.managed);
  return w;
}

static void onThreads(int count, void (*body)(int, void *), void *context) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back(body, i, context);
  for (std::thread &thread : threads)
    thread.join();
}

TEST(manyThreadsOnOneModel) {
  for (int threads : {1, 2, 4}) {
    auto library = scaleLibrary(3);
    disc_options options = disc_default_options();
    options.threads = threads;
    disc_model *model = nullptr;
    CHECK(disc_open(&library->library, &options, &model) == DISC_OK);
    onThreads(
        4,
        [](int caller, void *model) {
          for (int i = 0; i < kRounds; ++i)
            CHECK(runOnce(static_cast<disc_model *>(model), 1 + (i + caller) % 64, 2 + 2 * (i % 100), i % 2) == 3);
        },
        model);
    CHECK(disc_free(model) == DISC_OK);
  }
}

TEST(severalModelsAtOnce) {
  onThreads(
      4,
      [](int caller, void *) {
        auto library = scaleLibrary(float(caller + 1));
        for (int round = 0; round < 5; ++round) {
          disc_model *model = nullptr;
          CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
          for (int i = 0; i < kRounds / 10; ++i)
            CHECK(runOnce(model, 1 + i % 64, 32, i % 2) == float(caller + 1));
          CHECK(disc_free(model) == DISC_OK);
        }
      },
      nullptr);
}

TEST(weightsSwappedWhileRunning) {
  struct Shared {
    disc_model *model = nullptr;
    std::atomic<bool> stop{false};
  } shared;
  auto library = scaleLibrary(1);
  CHECK(disc_open(&library->library, nullptr, &shared.model) == DISC_OK);
  std::thread swapper([&] {
    for (int i = 0; i < kRounds / 5; ++i) {
      std::string path = temporaryPath("swapped.safetensors");
      writeFile(path, scaleWeights(float(1 + i % 3)));
      CHECK(disc_swap_weights(shared.model, path.c_str()) == DISC_OK);
    }
    shared.stop = true;
  });
  onThreads(
      3,
      [](int caller, void *context) {
        auto &shared = *static_cast<Shared *>(context);
        for (int i = 0; !shared.stop; ++i) {
          // One set of weights or another, never a mixture.
          float w = runOnce(shared.model, 1 + (i + caller) % 64, 64, i % 2);
          CHECK(w == 1 || w == 2 || w == 3);
        }
      },
      &shared);
  swapper.join();
  CHECK(disc_free(shared.model) == DISC_OK);
}

TEST(shapesAndErrorsFromManyThreads) {
  auto library = scaleLibrary(3);
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
  onThreads(
      4,
      [](int caller, void *context) {
        auto *model = static_cast<disc_model *>(context);
        int64_t extent = 65 + caller;
        Floats x({extent, 4}), fine({2, 4});
        Longs mask({extent, 3}), fineMask({2, 3});
        std::string expected =
            "input 'x', dim 0 (B) is out of range: expected 1 <= B <= 64, got " + std::to_string(extent);
        for (int i = 0; i < kRounds; ++i) {
          const DLTensor *wrong[] = {&x.tensor, &mask.tensor}, *right[] = {&fine.tensor, &fineMask.tensor};
          disc_output y = {};
          CHECK(disc_run(model, wrong, 2, &y, 1) == DISC_ERROR_SHAPE);
          int64_t shape[2], *shapes[] = {shape};
          CHECK(disc_output_shapes(model, right, 2, shapes, 1) == DISC_OK && shape[0] == 2);
          CHECK_TEXT(disc_last_error(), expected);
        }
      },
      model);
  CHECK(disc_free(model) == DISC_OK);
}
