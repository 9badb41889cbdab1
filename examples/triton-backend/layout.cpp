//===- layout.cpp - a model's tensors as Triton's clients see them --------===//

#include "layout.h"
#include "api.h"

#include <algorithm>
#include <limits>

namespace triton_disc {

using service::Batching;
using service::Combiner;
using service::Datatype;
using service::Signature;

[[noreturn]] static void misfit(const std::string &text) { throw std::runtime_error(text); }

static std::string dimsText(const TensorSpec &spec) {
  std::string text = "[";
  for (size_t d = 0; d < spec.dims.size(); ++d)
    text += (d ? ", " : "") + spec.dims[d];
  return text + "]";
}

Shape Port::dims() const {
  Shape result = min;
  for (size_t d = 0; d < result.size(); ++d)
    if (min[d] != max[d] || min[d] == 0) // Triton does not accept a 0 there.
      result[d] = -1;
  return result;
}

void Port::treatNumber() {
  isNumber = min.empty();
  if (isNumber)
    min = max = {1};
}

Batching plainBatching(const Signature &signature) {
  Batching result;
  result.kind = Batching::Kind::Pad;
  result.maxSize = std::numeric_limits<int64_t>::max();
  const TensorSpec *first = nullptr;
  for (const auto *specs : {&signature.inputs, &signature.outputs}) {
    for (const TensorSpec &spec : *specs) {
      const std::string where = std::string(specs == &signature.inputs ? "input '" : "output '") + spec.name + "'";
      if (spec.dims.empty() || spec.min[0] == spec.max[0])
        misfit("max_batch_size needs a dynamic first dim of every tensor, but the library has " + where + " " +
               dimsText(spec) + ". Set max_batch_size to 0");
      if (first && spec.dims[0] != first->dims[0])
        misfit("max_batch_size needs one batch, the first dim of every tensor, but the library has '" + first->name +
               "' " + dimsText(*first) + " and " + where + " " + dimsText(spec) + ". Set max_batch_size to 0");
      if (!first)
        first = &spec;
    }
  }
  if (!first)
    misfit("max_batch_size needs tensors, and the library has none");
  result.dim = first->dims[0];
  return result;
}

Layout::Layout(const Signature &signature, const Batching &batching, const Combiner &combiner, int64_t maxBatch)
    : hasBatch_(maxBatch > 0), byOffsets_(!batching.offsets.empty()) {
  addPorts(signature.inputs, "input", batching, combiner, inputs_);
  addPorts(signature.outputs, "output", batching, combiner, outputs_);
  if (hasBatch_)
    checkLargestBatch(batching, maxBatch);
}

void Layout::addPorts(const std::vector<TensorSpec> &specs, const char *kind, const Batching &batching,
                      const Combiner &combiner, std::vector<Port> &to) const {
  const bool isRagged = batching.kind == Batching::Kind::Ragged;
  for (const TensorSpec &spec : specs) {
    Port port{&spec, Port::Form::Same, spec.min, spec.max};
    to.push_back(port);
    Port &added = to.back();
    if (!hasBatch_) {
      added.treatNumber();
      continue;
    }
    const bool isInput = &to == &inputs_;
    if (isInput && (spec.name == batching.offsets || spec.name == batching.lengths)) {
      added.form = Port::Form::Made;
      continue;
    }
    if (isRagged && !spec.dims.empty() && spec.dims[0] == batching.dim) {
      added.form = Port::Form::Tokens;
      added.min[0] = 0; // The length of sequences, which the library does not know.
      added.max[0] = std::numeric_limits<int64_t>::max();
      added.ragged = isInput;
      continue;
    }
    bool begins = !spec.dims.empty() && (isRagged ? combiner.isBySequence(spec.dims[0]) : spec.dims[0] == batching.dim);
    if (!begins)
      misfit("max_batch_size needs a batch, the first dim of every tensor, but the library has " + std::string(kind) +
             " '" + spec.name + "' " + dimsText(spec) + ". Set max_batch_size to 0");
    added.min.erase(added.min.begin());
    added.max.erase(added.max.begin());
    for (size_t d = 1; isInput && d < spec.dims.size(); ++d)
      added.ragged |= std::find(batching.padded.begin(), batching.padded.end(), spec.dims[d]) != batching.padded.end();
    added.optional = isInput && spec.name == batching.mask;
    added.treatNumber();
  }
}

void Layout::checkLargestBatch(const Batching &batching, int64_t maxBatch) const {
  for (const Port &port : inputs_) {
    if (port.form == Port::Form::Tokens)
      continue;
    int64_t most = port.spec->max[0];
    if (port.form == Port::Form::Made && byOffsets_ && most < std::numeric_limits<int64_t>::max())
      --most;
    if (maxBatch > most)
      misfit("max_batch_size: " + std::to_string(maxBatch) + " is more than the library's largest " +
             (port.form == Port::Form::Made ? "number of sequences" : "'" + batching.dim + "'") + ", " +
             std::to_string(most));
  }
}

template <typename T> static void writeMarks(Tensor &marks, bool offsets, int64_t length) {
  T *elements = marks.as<T>();
  for (size_t k = 0; k < marks.count(); ++k)
    elements[k] = T(offsets ? int64_t(k) * length : length);
}

void Layout::toLibrary(std::vector<Tensor> &inputs) const {
  int64_t batch = 0, length = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Shape &shape = inputs[i].shape;
    if (inputs_[i].isNumber) {
      if (shape.back() != 1)
        refuse("input '" + inputs_[i].spec->name + "': expected one number" + (hasBatch_ ? " for each row" : "") +
               ", found shape " + service::shapeText(shape));
      shape.pop_back();
    }
    if (inputs_[i].form != Port::Form::Tokens)
      continue;
    if (length >= 0 && shape[1] != length)
      refuse("input '" + inputs_[i].spec->name + "': expected sequences of length " + std::to_string(length) +
             " as in the inputs before it, found shape " + service::shapeText(shape));
    batch = shape[0];
    length = shape[1];
    shape.erase(shape.begin());
    shape[0] = batch * length;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs_[i].form != Port::Form::Made)
      continue;
    const Datatype type = inputs_[i].spec->type; // INT32 or INT64, as the combiner has checked.
    if (type == Datatype::Int32 && batch * length > std::numeric_limits<int32_t>::max())
      refuse("input '" + inputs_[i].spec->name + "' of the library is INT32: there are too many tokens");
    inputs[i] = Tensor::make(type, {byOffsets_ ? batch + 1 : batch});
    if (type == Datatype::Int32)
      writeMarks<int32_t>(inputs[i], byOffsets_, length);
    else
      writeMarks<int64_t>(inputs[i], byOffsets_, length);
  }
}

Shape Layout::toClient(size_t output, const Shape &library, int64_t batch) const {
  Shape shape = library;
  if (outputs_[output].form == Port::Form::Tokens && batch > 0) {
    shape[0] /= batch;
    shape.insert(shape.begin(), batch);
  }
  if (outputs_[output].isNumber)
    shape.push_back(1);
  return shape;
}

} // namespace triton_disc
