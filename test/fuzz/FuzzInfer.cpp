//===- FuzzInfer.cpp - bodies of requests by the Open Inference Protocol ---===//
//
// Any bytes are either a request whose tensors are as large as their shapes say, or an error for the client. The first
// byte says where the JSON ends. A request that can be run shares its run with itself and another one, and gets the
// same results as alone; the answer is read again.
//
//===----------------------------------------------------------------------===//

#include "FuzzModel.h"
#include "infer_json.h"

#include <nlohmann/json.hpp>

using namespace service;

namespace service {
std::unique_ptr<Model> openModel(const std::string &, int) { return std::make_unique<FuzzModel>(); }
} // namespace service

static std::vector<Tensor> other() {
  std::vector<Tensor> inputs;
  for (const TensorSpec &spec : FuzzModel().signature_.inputs) {
    Shape shape(spec.dims.size(), 1);
    if (shape.size() == 2)
      shape[1] = 9;
    inputs.push_back(Tensor::make(spec.type, shape));
    fill(inputs.back(), 1);
  }
  return inputs;
}

static bool same(const std::vector<Tensor> &a, const std::vector<Tensor> &b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].shape != b[i].shape || std::memcmp(a[i].data.get(), b[i].data.get(), a[i].bytes()) != 0)
      return false;
  return a.size() == b.size();
}

static void check(bool condition) {
  if (!condition)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static ServedModel &served = *makeFuzzModel().release();
  if (size == 0)
    return 0;
  std::string_view body(reinterpret_cast<const char *>(data) + 1, size - 1);
  std::optional<size_t> headerLength;
  if (data[0] > 0) // The bytes that are left behind the JSON.
    headerLength = body.size() - std::min<size_t>(body.size(), data[0] - 1u);
  try {
    InferCall call = readInferRequest(served, body, headerLength);
    const Combiner &combiner = served.combiner();
    Combiner::Item one = combiner.examine(call.inputs), two = combiner.examine(other());
    std::vector<Tensor> alone = served.model().run(one.inputs);
    if (one.joins) {
      std::vector<const Combiner::Item *> items{&one, &one};
      if (one.key == two.key)
        items.push_back(&two);
      auto runs = combiner.plan(items);
      for (const auto &run : runs) {
        auto results = combiner.split(run, served.model().run(combiner.combine(run)));
        for (size_t i = 0; i < run.size(); ++i)
          check(run[i] == &two || same(results[i], alone));
      }
    }
    std::vector<Tensor> results;
    for (const InferCall::Output &output : call.outputs)
      results.push_back(alone[output.index]);
    std::optional<size_t> jsonBytes;
    std::string text = writeInferResponse(served, call, results, jsonBytes);
    check(nlohmann::json::accept(text.substr(0, jsonBytes.value_or(text.size()))));
  } catch (const RequestError &error) {
    check(*error.what());
  }
  return 0;
}
