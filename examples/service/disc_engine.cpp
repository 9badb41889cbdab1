//===- disc_engine.cpp - the model as a library compiled by DISC ----------===//

#include "engine.h"

#include <disc.h>

#include <algorithm>
#include <stdexcept>

extern "C" const disc_library disc_library_minilm;

namespace service {

namespace {

class DiscEngine : public Engine {
public:
  explicit DiscEngine(const Options &options) {
    disc_options settings = disc_default_options();
    settings.threads = options.threads;
    settings.weights = options.model.empty() ? nullptr : options.model.c_str();
    check(disc_open(&disc_library_minilm, &settings, &model_));
    try {
      describe();
    } catch (...) {
      disc_free(model_);
      throw;
    }
  }

  ~DiscEngine() override { disc_free(model_); }

  DiscEngine(const DiscEngine &) = delete;
  DiscEngine &operator=(const DiscEngine &) = delete;

  std::string name() const override { return name_; }
  int64_t dimension() const override { return dimension_; }
  int64_t maxBatch() const override { return maxBatch_; }
  int64_t minLength() const override { return minLength_; }
  int64_t maxLength() const override { return maxLength_; }

  void run(const int64_t *ids, const int64_t *mask, int64_t batch, int64_t length, float *out) override {
    int64_t inputShape[] = {batch, length}, outputShape[] = {batch, dimension_};
    auto tensor = [](const void *data, DLDataType dtype, int64_t *shape) {
      return DLTensor{const_cast<void *>(data), {kDLCPU, 0}, 2, dtype, shape, nullptr, 0};
    };
    DLTensor idsTensor = tensor(ids, {kDLInt, 64, 1}, inputShape),
             maskTensor = tensor(mask, {kDLInt, 64, 1}, inputShape);
    DLTensor result = tensor(out, {kDLFloat, 32, 1}, outputShape);
    const DLTensor *inputs[] = {&idsTensor, &maskTensor};
    disc_output outputs[] = {{&result, nullptr}};
    check(disc_run(model_, inputs, 2, outputs, 1));
  }

private:
  static void check(disc_status status) {
    if (status != DISC_OK)
      throw std::runtime_error(disc_last_error());
  }

  /// The sizes that the model was compiled for, from what it says about itself.
  void describe() {
    disc_model_spec model{};
    model.size = sizeof(model);
    check(disc_describe(model_, &model));
    disc_tensor_spec ids{}, embedding{};
    ids.size = embedding.size = sizeof(disc_tensor_spec);
    if (model.num_inputs != 2 || model.num_outputs != 1)
      throw std::runtime_error("the model has other inputs or outputs than a sentence embedder");
    check(disc_describe_input(model_, 0, &ids));
    check(disc_describe_output(model_, 0, &embedding));
    if (ids.ndim != 2 || embedding.ndim != 2 || embedding.min[1] != embedding.max[1])
      throw std::runtime_error("the model takes ids or gives embeddings of another shape than a sentence embedder");
    maxBatch_ = ids.max[0];
    minLength_ = ids.min[1];
    maxLength_ = ids.max[1];
    dimension_ = embedding.min[1];
    name_ = "DISC " + std::to_string(model.version >> 16) + "." + std::to_string(model.version >> 8 & 0xff) +
            ", model " + model.name + ", " + model.cpu + ", " + std::to_string(model.threads) + " threads";
  }

  disc_model *model_ = nullptr;
  std::string name_;
  int64_t dimension_ = 0, maxBatch_ = 0, minLength_ = 0, maxLength_ = 0;
};

} // namespace

std::unique_ptr<Engine> makeEngine(const Engine::Options &options) { return std::make_unique<DiscEngine>(options); }

} // namespace service
