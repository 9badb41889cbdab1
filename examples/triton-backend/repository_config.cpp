//===- repository_config.cpp - a model's config.pbtxt ---------------------===//

#include "repository_config.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>

namespace triton_disc {

using nlohmann::json;

[[noreturn]] static void fail(const std::string &text) { throw std::runtime_error("config.pbtxt: " + text); }

static std::string textOf(const json &object, const char *field) {
  auto entry = object.find(field);
  return entry != object.end() && entry->is_string() ? entry->get<std::string>() : "";
}

static bool isSet(const json &object, const char *field) {
  auto entry = object.find(field);
  return entry != object.end() && entry->is_boolean() && entry->get<bool>();
}

static bool hasElements(const json &object, const char *field) {
  auto entry = object.find(field);
  return entry != object.end() && !entry->empty();
}

/// 64-bit numbers are texts in the JSON of protocol buffers.
static int64_t integerOf(const json &value) {
  return value.is_string() ? std::stoll(value.get<std::string>()) : value.get<int64_t>();
}

static Shape shapeOf(const json &array) {
  Shape shape;
  for (const json &extent : array)
    shape.push_back(integerOf(extent));
  return shape;
}

/// "FP32" is TYPE_FP32.
static std::string typeOf(const TensorSpec &spec) { return std::string("TYPE_") + service::datatypeName(spec.type); }

RepositoryConfig::RepositoryConfig(const std::string &text) : root_(json::parse(text)) {
  if (auto batch = root_.find("max_batch_size"); batch != root_.end())
    maxBatch_ = integerOf(*batch);
  if (std::string name = textOf(root_, "default_model_filename"); !name.empty())
    fileName_ = name;
  refuseUnsupported();
  readParameters();
}

void RepositoryConfig::refuseUnsupported() const {
  for (const char *field : {"sequence_batching", "batch_input", "batch_output", "ensemble_scheduling"})
    if (hasElements(root_, field))
      fail(std::string(field) + " is not supported by the backend");
  if (auto policy = root_.find("model_transaction_policy"); policy != root_.end() && isSet(*policy, "decoupled"))
    fail("model_transaction_policy: a library returns one response for each request; decoupled is not supported");
  for (const char *kind : {"input", "output"})
    for (const json &entry : root_.value(kind, json::array()))
      if (isSet(entry, "is_shape_tensor"))
        fail(std::string(kind) + " '" + textOf(entry, "name") + "': is_shape_tensor is not supported");
}

void RepositoryConfig::readParameters() {
  const json parameters = root_.value("parameters", json::object());
  for (const auto &[name, value] : parameters.items()) {
    if (name != "threads")
      fail("parameters: there is no parameter '" + name + "'; the backend has 'threads'");
    const std::string text = textOf(value, "string_value");
    int threads = -1;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
    if (error != std::errc() || end != text.data() + text.size() || threads < 0 || threads > 4096)
      fail("parameters: 'threads': expected a whole number from 0 to 4096, found \"" + text + "\"");
    threads_ = threads;
  }
}

static const Port *find(const std::vector<Port> &ports, const std::string &name) {
  for (const Port &port : ports)
    if (port.spec->name == name)
      return &port;
  return nullptr;
}

static void completeEntry(json &entry, const Port &port, bool isInput) {
  entry["name"] = port.spec->name;
  if (std::string type = textOf(entry, "data_type"); type.empty() || type == "TYPE_INVALID")
    entry["data_type"] = typeOf(*port.spec);
  if (!hasElements(entry, "dims"))
    entry["dims"] = port.dims();
  if (isInput && port.ragged)
    entry["allow_ragged_batch"] = true;
  if (isInput && port.optional)
    entry["optional"] = true;
}

void RepositoryConfig::complete(const Layout &layout) {
  for (bool isInput : {true, false}) {
    const std::vector<Port> &ports = isInput ? layout.inputs() : layout.outputs();
    json &list = root_[isInput ? "input" : "output"];
    if (!list.is_array())
      list = json::array();
    const bool takesAll = isInput || list.empty(); // A list of outputs may leave some out.
    for (json &entry : list)
      if (const Port *port = find(ports, textOf(entry, "name")); port && port->form != Port::Form::Made)
        completeEntry(entry, *port, isInput);
    for (const Port &port : ports) {
      auto named = [&](const json &entry) { return textOf(entry, "name") == port.spec->name; };
      if (!takesAll || port.form == Port::Form::Made || std::any_of(list.begin(), list.end(), named))
        continue;
      json entry = json::object();
      completeEntry(entry, port, isInput);
      list.push_back(std::move(entry));
    }
  }
}

static std::string names(const std::vector<Port> &ports) {
  std::string text;
  for (const Port &port : ports)
    if (port.form != Port::Form::Made)
      text += (text.empty() ? "'" : ", '") + port.spec->name + "'";
  return text.empty() ? "no tensors" : text;
}

static void checkEntry(const json &entry, const std::vector<Port> &ports, const std::string &kind) {
  const std::string name = textOf(entry, "name"), where = kind + " '" + name + "'";
  const Port *port = find(ports, name);
  if (!port)
    fail(where + ": the library has no such " + kind + ": it has " + names(ports));
  if (port->form == Port::Form::Made)
    fail(where + ": leave it out: the backend makes it from the lengths of the sequences");
  if (std::string type = textOf(entry, "data_type"); type != typeOf(*port->spec))
    fail(where + ": data_type is " + type + ", but the library has " + typeOf(*port->spec));
  auto reshape = entry.find("reshape");
  const Shape dims =
      shapeOf(reshape == entry.end() ? entry.value("dims", json::array()) : reshape->value("shape", json::array()));
  bool fits = dims.size() == port->min.size();
  for (size_t d = 0; fits && d < dims.size(); ++d)
    fits = dims[d] == -1 ? port->dims()[d] == -1 : dims[d] >= port->min[d] && dims[d] <= port->max[d];
  if (!fits) {
    std::string ranges;
    for (size_t d = 0; d < port->min.size(); ++d)
      if (port->dims()[d] == -1)
        ranges += ", dim " + std::to_string(d) + " from " + std::to_string(port->min[d]) + " to " +
                  (port->max[d] == std::numeric_limits<int64_t>::max() ? "any size" : std::to_string(port->max[d]));
    fail(where + ": " + (reshape == entry.end() ? "dims are " : "reshape.shape is ") + service::shapeText(dims) +
         ", but the library has " + service::shapeText(port->dims()) + ranges);
  }
}

void RepositoryConfig::check(const Layout &layout) const {
  const json inputs = root_.value("input", json::array()), outputs = root_.value("output", json::array());
  for (const json &entry : inputs)
    checkEntry(entry, layout.inputs(), "input");
  for (const json &entry : outputs)
    checkEntry(entry, layout.outputs(), "output");
  for (const Port &port : layout.inputs()) {
    auto named = [&](const json &entry) { return textOf(entry, "name") == port.spec->name; };
    if (port.form != Port::Form::Made && !port.optional && std::none_of(inputs.begin(), inputs.end(), named))
      fail("input '" + port.spec->name + "' is missing: the library needs it");
  }
}

} // namespace triton_disc
