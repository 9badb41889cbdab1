//===- disc_engine.cpp - the model as a library compiled by DISC ----------===//

#include "engine.h"

#include <minilm.h>

#include <stdexcept>

namespace service {

namespace {

/// The header of the model's library knows the sizes that it was compiled for.
class DiscEngine : public Engine {
public:
  explicit DiscEngine(const Options &options) {
    disc_options settings = disc_default_options();
    settings.threads = options.threads;
    settings.weights = options.model.empty() ? nullptr : options.model.c_str();
    check(minilm_open(&settings, &model_));
  }

  ~DiscEngine() override { disc_free(model_); }

  DiscEngine(const DiscEngine &) = delete;
  DiscEngine &operator=(const DiscEngine &) = delete;

  std::string name() const override {
    disc_model_spec spec{};
    spec.size = sizeof(spec);
    check(disc_describe(model_, &spec));
    return "DISC " + std::to_string(spec.version >> 16) + "." + std::to_string(spec.version >> 8 & 0xff) + ", model " +
           spec.name + " for " + spec.cpu + ", threads: " + std::to_string(spec.threads);
  }

  int64_t dimension() const override { return MINILM_OUTPUT_0_EXTENT_1; }
  int64_t maxBatch() const override { return MINILM_BATCH_MAX; }
  int64_t minLength() const override { return MINILM_LENGTH_MIN; }
  int64_t maxLength() const override { return MINILM_LENGTH_MAX; }

  void run(const int64_t *ids, const int64_t *mask, int64_t batch, int64_t length, float *out) override {
    check(minilm_run(model_, batch, length, ids, mask, out));
  }

private:
  static void check(disc_status status) {
    if (status != DISC_OK)
      throw std::runtime_error(disc_last_error());
  }

  disc_model *model_ = nullptr;
};

} // namespace

std::unique_ptr<Engine> makeEngine(const Engine::Options &options) { return std::make_unique<DiscEngine>(options); }

} // namespace service
