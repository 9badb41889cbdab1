//===- combiner_rules.cpp - what a configuration says about a model's dims -===//

#include "combiner.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace service {

using Kind = Batching::Kind;

static size_t find(const std::vector<std::string> &list, const std::string &text) {
  return size_t(std::find(list.begin(), list.end(), text) - list.begin());
}

[[noreturn]] static void misfit(const std::string &text) { throw std::runtime_error("batching: " + text); }

static const TensorSpec *findInput(const Signature &signature, const std::string &name) {
  for (const TensorSpec &spec : signature.inputs)
    if (spec.name == name)
      return &spec;
  misfit("the model has no input '" + name + "'");
}

/// Whether the value is one of the type's.
static bool fits(double value, Datatype type) {
  bool isFloat = type == Datatype::FP16 || type == Datatype::BF16 || type == Datatype::FP32 || type == Datatype::FP64;
  if (isFloat)
    return true;
  double bits = double(elementBytes(type)) * 8;
  bool isSigned =
      type == Datatype::Int8 || type == Datatype::Int16 || type == Datatype::Int32 || type == Datatype::Int64;
  double least = isSigned ? -std::exp2(bits - 1) : 0;
  double end = type == Datatype::Bool ? 2 : std::exp2(isSigned ? bits - 1 : bits);
  return value == std::floor(value) && value >= least && value < end;
}

/// Offsets have one element more than there are sequences: either their dim is written so ("n + 1"), or it is a symbol
/// itself, and sequences are counted by "m - 1".
bool Combiner::isBySequence(const std::string &dim) const {
  if (batching_.kind != Kind::Ragged)
    return false;
  return batching_.offsets.empty() ? dim == marks_ : dim + " + 1" == marks_ || dim == marks_ + " - 1";
}

void Combiner::makeInputRules(const Signature &signature) {
  const std::string &marks = batching_.offsets.empty() ? batching_.lengths : batching_.offsets;
  if (batching_.kind == Kind::Ragged) {
    const TensorSpec &spec = *findInput(signature, marks);
    if (spec.dims.size() != 1 || (spec.type != Datatype::Int64 && spec.type != Datatype::Int32))
      misfit("input '" + marks + "': expected one dim and datatype INT64 or INT32, found " +
             std::to_string(spec.dims.size()) + " dims and " + datatypeName(spec.type));
    marks_ = spec.dims[0];
  }
  for (const auto &[name, value] : batching_.values)
    if (!fits(value, findInput(signature, name)->type))
      misfit("values." + name + ": " + std::to_string(value) + " is not a value of the input's datatype");
  if (!batching_.mask.empty() && batching_.values.count(batching_.mask))
    misfit("values." + batching_.mask + ": the mask is padded with 0");
  if (!batching_.mask.empty())
    findInput(signature, batching_.mask);

  most_ = std::numeric_limits<int64_t>::max();
  bool found = false;
  std::vector<bool> used(batching_.padded.size());
  for (const TensorSpec &spec : signature.inputs) {
    InputRule rule;
    rule.isOffsets = spec.name == batching_.offsets;
    rule.isLengths = spec.name == batching_.lengths;
    if (auto value = batching_.values.find(spec.name); value != batching_.values.end())
      rule.value = value->second;
    for (size_t d = 0; d < spec.dims.size(); ++d) {
      bool along = spec.dims[d] == batching_.dim, bySequence = isBySequence(spec.dims[d]);
      if ((along || bySequence || rule.isOffsets) && rule.concatenated != kNone)
        misfit("input '" + spec.name + "' has two dims along which requests would be put together");
      if (along || bySequence || rule.isOffsets) {
        rule.concatenated = d;
        rule.bySequence = bySequence && !rule.isLengths;
      }
      if (along) {
        most_ = std::min(most_, spec.max[d]);
        found = true;
      }
      if (size_t number = find(batching_.padded, spec.dims[d]); number < batching_.padded.size()) {
        rule.padded.emplace_back(d, number);
        used[number] = true;
      }
    }
    inputs_.push_back(std::move(rule));
  }
  if (!found)
    misfit("no input has a dim '" + batching_.dim + "'");
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (!inputs_[i].padded.empty() && inputs_[i].concatenated == kNone)
      misfit("input '" + signature.inputs[i].name + "' has a padded dim and no dim '" + batching_.dim + "'");
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      misfit("no input has a dim '" + batching_.padded[i] + "'");
}

void Combiner::makeOutputRules(const Signature &signature) {
  for (const TensorSpec &spec : signature.outputs) {
    size_t dim = kNone;
    for (size_t d = 0; d < spec.dims.size(); ++d)
      if (spec.dims[d] == batching_.dim || isBySequence(spec.dims[d])) {
        if (dim != kNone)
          misfit("output '" + spec.name + "' has two dims along which it could be taken apart");
        dim = d;
      }
    if (dim == kNone)
      misfit("output '" + spec.name + "' has no dim '" + batching_.dim +
             (marks_.empty() ? "'" : "' and none with one row per sequence") +
             ": it cannot be divided between requests");
    outputs_.push_back(dim);
  }
}

/// Asks the model itself about its smallest inputs: whether a size depends on data. Models whose smallest sizes do not
/// fit each other do not answer; their requests are then looked at one by one.
void Combiner::checkWithProbe() const {
  const Signature &signature = model_.signature();
  std::vector<Tensor> inputs;
  for (const TensorSpec &spec : signature.inputs)
    inputs.push_back({spec.type, spec.min, nullptr});
  std::vector<Shape> shapes;
  try {
    shapes = model_.outputShapes(inputs);
  } catch (const RequestError &) {
    return;
  }
  for (size_t i = 0; i < shapes.size(); ++i)
    if (std::find(shapes[i].begin(), shapes[i].end(), -1) != shapes[i].end())
      misfit("output '" + signature.outputs[i].name +
             "' has a data-dependent size: it cannot be divided between requests");
}

} // namespace service
