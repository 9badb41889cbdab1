//===- combiner.cpp - tensors of several requests as those of one ---------===//

#include "combiner.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace service {

using Kind = Batching::Kind;

Combiner::Combiner(const Model &model, const Batching &batching) : model_(model), batching_(batching) {
  if (batching_.kind == Kind::None)
    return;
  if (model.signature().keepsState)
    throw std::runtime_error(
        "batching: runs of this model change its state or its inputs, so requests cannot share one");
  makeInputRules(model.signature());
  makeOutputRules(model.signature());
  checkWithProbe();
}

std::optional<Tensor> Combiner::makeMissing(size_t input, const std::vector<Tensor> &inputs) const {
  const std::vector<TensorSpec> &specs = model_.signature().inputs;
  const TensorSpec &mask = specs[input];
  if (batching_.mask.empty() || mask.name != batching_.mask)
    return std::nullopt;
  Shape shape;
  for (size_t d = 0; d < mask.dims.size(); ++d) {
    int64_t extent = mask.min[d] == mask.max[d] ? mask.min[d] : -1;
    for (size_t i = 0; i < inputs.size(); ++i)
      for (size_t e = 0; inputs[i].data && extent < 0 && e < specs[i].dims.size(); ++e)
        if (specs[i].dims[e] == mask.dims[d])
          extent = inputs[i].shape[e];
    if (extent < 0)
      return std::nullopt;
    shape.push_back(extent);
  }
  if (!countElements(shape, mask.type))
    return std::nullopt;
  Tensor tensor = Tensor::make(mask.type, std::move(shape));
  fill(tensor, 1);
  return tensor;
}

template <typename T> static int64_t readAs(const Tensor &tensor, size_t index) {
  return int64_t(tensor.as<T>()[index]);
}

static int64_t readInteger(const Tensor &tensor, size_t index) {
  return tensor.type == Datatype::Int32 ? readAs<int32_t>(tensor, index) : readAs<int64_t>(tensor, index);
}

/// Offsets or lengths that contradict the values would mix up the results of other requests.
void Combiner::readSequences(Item &item) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].isOffsets && !inputs_[i].isLengths)
      continue;
    const Tensor &tensor = item.inputs[i];
    const std::string where = "input '" + model_.signature().inputs[i].name + "'";
    auto wrong = [&](const std::string &text) { throw RequestError(RequestError::Kind::Invalid, where + ": " + text); };
    int64_t count = tensor.shape[0], previous = 0;
    item.rows = inputs_[i].isOffsets ? count - 1 : count;
    for (int64_t k = 0; k < count; ++k) {
      int64_t value = readInteger(tensor, size_t(k));
      if (inputs_[i].isOffsets && ((k == 0 && value != 0) || value < previous || value > item.size))
        wrong("expected offsets that begin with 0 and do not decrease, up to " + std::to_string(item.size) +
              "; element " + std::to_string(k) + " is " + std::to_string(value));
      if (inputs_[i].isLengths && (value < 0 || value > item.size - previous))
        wrong("expected lengths whose sum is " + std::to_string(item.size) + "; element " + std::to_string(k) + " is " +
              std::to_string(value));
      previous = inputs_[i].isOffsets ? value : previous + value;
    }
    if (previous != item.size || item.rows < 0)
      wrong((inputs_[i].isOffsets ? "expected the last offset to be " : "expected lengths whose sum is ") +
            std::to_string(item.size) + ", found " + std::to_string(previous));
  }
}

/// Sizes of the dims that may differ. A request whose inputs disagree about one (1 beside n) is run alone.
void Combiner::readSizes(Item &item) const {
  int64_t size = -1;
  item.sizes.assign(batching_.padded.size(), -1);
  auto agree = [&](int64_t &known, int64_t extent) {
    item.joins &= extent > 0 && (known < 0 || known == extent);
    known = std::max(known, extent);
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputRule &rule = inputs_[i];
    if (rule.concatenated != kNone && !rule.bySequence && !rule.isOffsets && !rule.isLengths)
      agree(size, item.inputs[i].shape[rule.concatenated]);
    for (auto [dim, number] : rule.padded)
      agree(item.sizes[number], item.inputs[i].shape[dim]);
  }
  item.size = item.rows = std::max<int64_t>(size, 0);
  if (item.joins)
    readSequences(item);
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].bySequence && item.inputs[i].shape[inputs_[i].concatenated] != item.rows)
      item.joins = false;
  item.joins &= item.rows > 0;
}

Combiner::Item Combiner::examine(std::vector<Tensor> inputs) const {
  Item item;
  item.outputs = model_.outputShapes(inputs);
  item.inputs = std::move(inputs);
  if (batching_.kind == Kind::None)
    return item;
  item.joins = true;
  readSizes(item);
  for (const Shape &shape : item.outputs)
    item.joins &= std::find(shape.begin(), shape.end(), -1) == shape.end();
  if (!item.joins)
    return item;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputRule &rule = inputs_[i];
    const Tensor &tensor = item.inputs[i];
    Shape fixed = tensor.shape;
    for (auto [dim, number] : rule.padded)
      fixed[dim] = 0;
    if (rule.concatenated != kNone)
      fixed[rule.concatenated] = 0;
    item.key.append(reinterpret_cast<const char *>(fixed.data()), fixed.size() * sizeof(int64_t));
    if (rule.concatenated == kNone)
      item.key.append(tensor.data.get(), tensor.bytes());
  }
  return item;
}

static int64_t volume(int64_t rows, const std::vector<int64_t> &sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), rows, [](int64_t a, int64_t b) { return a * b; });
}

int64_t Combiner::ownVolume(const Items &items) {
  int64_t total = 0;
  for (const Item *item : items)
    total += volume(item->size, item->sizes);
  return total;
}

int64_t Combiner::paddedVolume(const Items &items) {
  int64_t size = 0;
  std::vector<int64_t> most;
  for (const Item *item : items) {
    size += item->size;
    most.resize(item->sizes.size());
    for (size_t i = 0; i < most.size(); ++i)
      most[i] = std::max(most[i], item->sizes[i]);
  }
  return volume(size, most);
}

std::vector<Items> Combiner::plan(Items items) const {
  std::stable_sort(items.begin(), items.end(), [](const Item *a, const Item *b) { return a->sizes < b->sizes; });
  std::vector<Items> runs;
  int64_t rows = 0, size = 0;
  for (const Item *item : items) {
    bool fits = false;
    if (!runs.empty() && rows + item->rows <= batching_.maxBatch && size + item->size <= most_) {
      Items with = runs.back();
      with.push_back(item);
      int64_t padded = paddedVolume(with);
      fits = padded <= batching_.maxSize && double(padded - ownVolume(with)) <= batching_.maxPadding * double(padded);
    }
    if (!fits) {
      runs.emplace_back();
      rows = size = 0;
    }
    runs.back().push_back(item);
    rows += item->rows;
    size += item->size;
  }
  return runs;
}

/// Those of all items, one behind the other; the first offset of all but the first item is where the last one ended.
template <typename T> static Tensor joinOffsets(const Items &items, size_t input, int64_t rows) {
  Tensor result = Tensor::make(items[0]->inputs[input].type, {rows + 1});
  T *next = result.as<T>();
  *next++ = 0;
  int64_t base = 0;
  for (const Combiner::Item *item : items) {
    const T *own = item->inputs[input].as<T>();
    for (int64_t k = 1; k <= item->rows; ++k)
      *next++ = T(base + own[k]);
    base += item->size;
  }
  return result;
}

std::vector<Tensor> Combiner::combine(const Items &items) const {
  std::vector<int64_t> sizes(batching_.padded.size());
  int64_t rows = 0;
  for (const Item *item : items) {
    rows += item->rows;
    for (size_t i = 0; i < sizes.size(); ++i)
      sizes[i] = std::max(sizes[i], item->sizes[i]);
  }
  std::vector<Tensor> result;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputRule &rule = inputs_[i];
    const Tensor &first = items[0]->inputs[i];
    if (rule.isOffsets) {
      result.push_back(first.type == Datatype::Int32 ? joinOffsets<int32_t>(items, i, rows)
                                                     : joinOffsets<int64_t>(items, i, rows));
      continue;
    }
    if (rule.concatenated == kNone) {
      result.push_back(first);
      continue;
    }
    Shape shape = first.shape;
    shape[rule.concatenated] = 0;
    for (const Item *item : items)
      shape[rule.concatenated] += item->inputs[i].shape[rule.concatenated];
    for (auto [dim, number] : rule.padded)
      shape[dim] = sizes[number];
    if (!countElements(shape, first.type))
      throw std::runtime_error("the requests are too large together");
    Tensor together = Tensor::make(first.type, shape);
    if (!rule.padded.empty())
      fill(together, rule.value);
    Shape begin(shape.size()), zeros(shape.size());
    for (const Item *item : items) {
      copyBlock(item->inputs[i], zeros, together, begin, item->inputs[i].shape);
      begin[rule.concatenated] += item->inputs[i].shape[rule.concatenated];
    }
    result.push_back(std::move(together));
  }
  return result;
}

std::vector<std::vector<Tensor>> Combiner::split(const Items &items, const std::vector<Tensor> &outputs) const {
  std::vector<std::vector<Tensor>> results(items.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Tensor &all = outputs[o];
    size_t dim = outputs_[o];
    Shape begin(all.shape.size()), zeros(all.shape.size());
    auto cannot = [&] {
      throw std::runtime_error("output '" + model_.signature().outputs[o].name + "' " + shapeText(all.shape) +
                               " does not consist of the requests' results");
    };
    for (size_t k = 0; k < items.size(); ++k) {
      const Shape &own = items[k]->outputs[o];
      bool whole = true; // Nothing is cut.
      for (size_t d = 0; d < own.size(); ++d) {
        whole &= d == dim || own[d] == all.shape[d];
        if (own[d] > all.shape[d] - begin[d] || (batching_.padded.empty() && d != dim && own[d] != all.shape[d]))
          cannot();
      }
      Tensor part{all.type, own, nullptr};
      if (whole && dim == 0) { // A part of the same memory.
        size_t row = elementBytes(all.type);
        for (size_t d = 1; d < own.size(); ++d)
          row *= size_t(own[d]);
        part.data = std::shared_ptr<char>(all.data, all.data.get() + size_t(begin[0]) * row);
      } else {
        part = Tensor::make(all.type, own);
        copyBlock(all, begin, part, zeros, own);
      }
      results[k].push_back(std::move(part));
      begin[dim] += own[dim];
    }
    if (begin[dim] != all.shape[dim])
      cannot();
  }
  return results;
}

} // namespace service
