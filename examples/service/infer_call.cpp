//===- infer_call.cpp - a request for a result, of either protocol --------===//

#include "infer_call.h"

#include <algorithm>

namespace service {

void refuse(const std::string &text) { throw RequestError(RequestError::Kind::Invalid, text); }

static std::string names(const std::vector<TensorSpec> &specs) {
  std::string text;
  for (const TensorSpec &spec : specs)
    text += (text.empty() ? "'" : ", '") + spec.name + "'";
  return text.empty() ? "no names" : text;
}

static size_t findName(const std::vector<TensorSpec> &specs, const std::string &name, const char *kind) {
  for (size_t i = 0; i < specs.size(); ++i)
    if (specs[i].name == name)
      return i;
  refuse("the model has no " + std::string(kind) + " '" + name + "': expected " + names(specs));
}

InferCall::InferCall(const ServedModel &model) : model_(model) {
  for (const TensorSpec &spec : model.signature().inputs)
    inputs.push_back({spec.type, {}, nullptr});
}

Tensor &InferCall::addInput(const std::string &name, const std::string &datatype, const Shape &shape, size_t given,
                            bool bytes) {
  const std::vector<TensorSpec> &specs = model_.signature().inputs;
  const size_t index = findName(specs, name, "input");
  const TensorSpec &spec = specs[index];
  const std::string where = inputText(name);
  if (inputs[index].data)
    refuse(where + " occurs twice");
  std::optional<Datatype> type = parseDatatype(datatype);
  if (type != spec.type)
    refuse(where + ": expected datatype " + datatypeName(spec.type) + ", found '" + datatype + "'");
  if (shape.size() != spec.dims.size())
    refuse(where + ": expected " + std::to_string(spec.dims.size()) + " dims, found shape " + shapeText(shape));
  std::optional<size_t> count = countElements(shape, spec.type);
  if (!count)
    refuse(where + ": shape " + shapeText(shape) + " has a negative extent or too many elements");
  size_t expected = bytes ? *count * elementBytes(spec.type) : *count;
  if (given != expected)
    refuse(where + ": shape " + shapeText(shape) + " needs " + std::to_string(expected) +
           (bytes ? " bytes" : " elements") + ", found " + std::to_string(given));
  return inputs[index] = Tensor::make(spec.type, shape);
}

InferCall::Output &InferCall::addOutput(const std::string &name) {
  size_t index = findName(model_.signature().outputs, name, "output");
  for (const Output &output : outputs)
    if (output.index == index)
      refuse("output '" + name + "' occurs twice");
  outputs.push_back({index, std::nullopt});
  return outputs.back();
}

void InferCall::setTimeout(int64_t microseconds) {
  constexpr int64_t kMost = int64_t(1) << 40; // Twelve days.
  if (microseconds < 0)
    refuse("parameter 'timeout': expected microseconds, found " + std::to_string(microseconds));
  if (microseconds > 0) // 0 is the clients' default.
    deadline = ServedModel::Clock::now() + std::chrono::microseconds(std::min(microseconds, kMost));
}

void InferCall::finish() {
  const Signature &signature = model_.signature();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].data)
      continue;
    std::optional<Tensor> made = model_.combiner().makeMissing(i, inputs);
    if (!made)
      refuse(inputText(signature.inputs[i].name) + " is missing");
    inputs[i] = std::move(*made);
  }
  if (outputs.empty())
    for (size_t i = 0; i < signature.outputs.size(); ++i)
      outputs.push_back({i, std::nullopt});
}

std::vector<Tensor> InferCall::run(ServedModel &model) {
  std::vector<Tensor> all = model.infer(std::move(inputs), deadline), results;
  for (const Output &output : outputs)
    results.push_back(all[output.index]);
  return results;
}

void InferCall::refuseParameter(const std::string &where, const std::string &name) {
  refuse(where + "parameter '" + name + "' is not supported");
}

} // namespace service
