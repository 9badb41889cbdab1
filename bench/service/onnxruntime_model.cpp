//===- onnxruntime_model.cpp - the sentence model of the engine as tensors -===//
//
// For the comparison by the Open Inference Protocol: the same server, queue and batching, with ONNX Runtime instead of
// the compiled library.
//
//===----------------------------------------------------------------------===//

#include "engine.h"
#include "model.h"

namespace service {

namespace {
class EngineModel : public Model {
public:
  explicit EngineModel(const Engine::Options &options) : engine_(makeEngine(options)) {
    const Shape least{1, engine_->minLength()}, most{engine_->maxBatch(), engine_->maxLength()};
    signature_.platform = "onnxruntime";
    for (const char *name : {"input_ids", "attention_mask"})
      signature_.inputs.push_back({name, Datatype::Int64, {"batch", "length"}, least, most});
    const int64_t width = engine_->dimension();
    signature_.outputs.push_back(
        {"output_0", Datatype::FP32, {"batch", std::to_string(width)}, {1, width}, {engine_->maxBatch(), width}});
  }

  std::string description() const override { return engine_->name(); }
  const Signature &signature() const override { return signature_; }

  std::vector<Shape> outputShapes(const std::vector<Tensor> &inputs) const override {
    const Shape &shape = inputs[0].shape;
    bool fits = inputs[1].shape == shape && shape[0] >= 1 && shape[0] <= engine_->maxBatch() &&
                shape[1] >= engine_->minLength() && shape[1] <= engine_->maxLength();
    if (!fits)
      throw RequestError(RequestError::Kind::Invalid, "the model does not support ids of shape " + shapeText(shape) +
                                                          " with a mask of shape " + shapeText(inputs[1].shape));
    return {{shape[0], engine_->dimension()}};
  }

  std::vector<Tensor> run(const std::vector<Tensor> &inputs) const override {
    Tensor result = Tensor::make(Datatype::FP32, outputShapes(inputs)[0]);
    const Shape &shape = inputs[0].shape;
    engine_->run(inputs[0].as<int64_t>(), inputs[1].as<int64_t>(), shape[0], shape[1], result.as<float>());
    return {result};
  }

private:
  std::unique_ptr<Engine> engine_;
  Signature signature_;
};
} // namespace

std::unique_ptr<Model> openModel(const std::string &path, int threads) {
  Engine::Options options;
  options.threads = threads;
  options.model = path;
  return std::make_unique<EngineModel>(options);
}

} // namespace service
