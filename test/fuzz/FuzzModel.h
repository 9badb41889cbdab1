//===- FuzzModel.h - a model of the service for its fuzzers -----*- C++ -*-===//
//
// ids and mask [batch, length], half [batch] and a number; it returns copies. It trusts its inputs: one whose memory is
// smaller than its shape is read beyond its end.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_FUZZ_MODEL_H
#define DISC_FUZZ_MODEL_H

#include "models.h"

#include <cstdlib>
#include <cstring>

struct FuzzModel : service::Model {
  service::Signature signature_;

  FuzzModel() {
    using service::Datatype;
    signature_.platform = "fuzz";
    signature_.inputs = {{"ids", Datatype::Int32, {"batch", "length"}, {1, 1}, {8, 64}},
                         {"mask", Datatype::Bool, {"batch", "length"}, {1, 1}, {8, 64}},
                         {"half", Datatype::FP16, {"batch"}, {1}, {8}},
                         {"scale", Datatype::FP64, {}, {}, {}}};
    signature_.outputs = {{"ids", Datatype::Int32, {"batch", "length"}, {1, 1}, {8, 64}},
                          {"half", Datatype::FP16, {"batch"}, {1}, {8}}};
  }
  std::string description() const override { return "fuzz"; }
  const service::Signature &signature() const override { return signature_; }

  std::vector<service::Shape> outputShapes(const std::vector<service::Tensor> &inputs) const override {
    if (inputs.size() != 4)
      std::abort();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].type != signature_.inputs[i].type || inputs[i].shape.size() != signature_.inputs[i].dims.size())
        std::abort();
      for (size_t d = 0; d < inputs[i].shape.size(); ++d)
        if (inputs[i].shape[d] < 1 || inputs[i].shape[d] > signature_.inputs[i].max[d])
          throw service::RequestError(service::RequestError::Kind::Invalid, "a size");
    }
    if (inputs[0].shape != inputs[1].shape || inputs[0].shape[0] != inputs[2].shape[0])
      throw service::RequestError(service::RequestError::Kind::Invalid, "sizes differ");
    return {inputs[0].shape, inputs[2].shape};
  }

  std::vector<service::Tensor> run(const std::vector<service::Tensor> &inputs) const override {
    outputShapes(inputs);
    std::vector<service::Tensor> results;
    for (size_t i : {0, 2}) {
      service::Tensor copy = service::Tensor::make(inputs[i].type, inputs[i].shape);
      std::memcpy(copy.data.get(), inputs[i].data.get(), copy.bytes());
      results.push_back(copy);
    }
    for (size_t i = 0; i < inputs[1].count(); ++i) // padding is 7
      if (!inputs[1].as<uint8_t>()[i] && inputs[0].as<int32_t>()[i] == 666)
        throw service::RequestError(service::RequestError::Kind::Invalid, "a bad number");
    return results;
  }
};

inline std::unique_ptr<service::ServedModel> makeFuzzModel() {
  service::ModelConfig config;
  config.batching.kind = service::Batching::Kind::Pad;
  config.batching.dim = "batch";
  config.batching.padded = {"length"};
  config.batching.mask = "mask";
  config.batching.values = {{"ids", 7}};
  config.batching.maxPadding = 1;
  return std::make_unique<service::ServedModel>("m", std::make_unique<FuzzModel>(), config);
}

#endif // DISC_FUZZ_MODEL_H
