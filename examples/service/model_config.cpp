//===- model_config.cpp - how a model is served ---------------------------===//

#include "model_config.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

namespace service {

namespace {
using nlohmann::json;

[[noreturn]] void fail(const std::string &text) { throw std::runtime_error(text); }

/// An object whose fields are taken one by one; those that nobody takes are mistakes.
class Fields {
public:
  Fields(const json &object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object())
      fail(where_ + ": expected an object, found " + object.type_name());
  }

  const json *find(const char *name) {
    known_.insert(name);
    auto entry = object_.find(name);
    return entry == object_.end() ? nullptr : &*entry;
  }

  template <typename T> void number(const char *name, T &out, int64_t least, int64_t most) {
    const json *value = find(name);
    if (!value)
      return;
    if (!value->is_number_integer() || value->get<double>() < double(least) || value->get<double>() > double(most))
      fail(at(name) + ": expected a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
           ", found " + value->dump());
    out = T(value->get<int64_t>());
  }

  void text(const char *name, std::string &out) {
    if (const json *value = find(name))
      out = string(*value, at(name));
  }

  std::string at(const std::string &name) const { return where_ + "." + name; }

  static std::string string(const json &value, const std::string &where) {
    if (!value.is_string() || value.get_ref<const std::string &>().empty())
      fail(where + ": expected a name, found " + value.dump());
    return value.get<std::string>();
  }

  void finish() const {
    for (const auto &[name, value] : object_.items())
      if (!known_.count(name))
        fail(at(name) + ": there is no such setting");
  }

private:
  const json &object_;
  const std::string where_;
  std::set<std::string> known_;
};

constexpr int64_t kMany = int64_t(1) << 40;

void readPadding(Fields &fields, Batching &to) {
  if (const json *dims = fields.find("padded")) {
    if (!dims->is_array())
      fail(fields.at("padded") + ": expected an array of dims, found " + dims->dump());
    for (const json &dim : *dims)
      to.padded.push_back(Fields::string(dim, fields.at("padded")));
  }
  if (const json *values = fields.find("values")) {
    if (!values->is_object())
      fail(fields.at("values") + ": expected an object, found " + values->dump());
    for (const auto &[name, value] : values->items()) {
      if (!value.is_number())
        fail(fields.at("values") + "." + name + ": expected a number, found " + value.dump());
      to.values[name] = value.get<double>();
    }
  }
  fields.text("mask", to.mask);
  if (const json *share = fields.find("max_padding")) {
    if (!share->is_number() || share->get<double>() < 0 || share->get<double>() > 1)
      fail(fields.at("max_padding") + ": expected a number from 0 to 1, found " + share->dump());
    to.maxPadding = share->get<double>();
  }
}

Batching readBatching(const json &object) {
  Batching result;
  Fields fields(object, "batching");
  std::string kind;
  fields.text("kind", kind);
  if (kind == "none")
    return fields.finish(), result;
  if (kind == "pad") {
    result.kind = Batching::Kind::Pad;
    readPadding(fields, result);
  } else if (kind == "ragged") {
    result.kind = Batching::Kind::Ragged;
    fields.text("offsets", result.offsets);
    fields.text("lengths", result.lengths);
    if (result.offsets.empty() == result.lengths.empty())
      fail("batching: expected either \"offsets\" or \"lengths\", the name of an input");
  } else {
    fail("batching.kind: expected \"pad\", \"ragged\" or \"none\", found \"" + kind + "\"");
  }
  fields.text("dim", result.dim);
  if (result.dim.empty())
    fail("batching.dim: is missing: the dim along which requests are put together");
  fields.number("max_batch", result.maxBatch, 1, kMany);
  fields.number("max_size", result.maxSize, 1, kMany);
  int64_t delay = 0;
  fields.number("max_delay_us", delay, 0, 60000000);
  result.maxDelay = std::chrono::microseconds(delay);
  fields.finish();
  return result;
}
} // namespace

ModelConfig parseModelConfig(const std::string &text, const ModelConfig &defaults) {
  json object;
  try {
    object = json::parse(text);
  } catch (const json::exception &error) {
    fail(error.what());
  }
  ModelConfig result = defaults;
  Fields fields(object, "model");
  fields.number("queue", result.queue, 1, kMany);
  fields.number("workers", result.workers, 1, 256);
  fields.number("threads", result.threads, 0, 4096);
  int64_t deadline = result.deadline.count();
  fields.number("deadline_ms", deadline, 0, 3600000);
  result.deadline = std::chrono::milliseconds(deadline);
  if (const json *batching = fields.find("batching"))
    result.batching = readBatching(*batching);
  fields.finish();
  return result;
}

ModelConfig readModelConfig(const std::string &path, const ModelConfig &defaults) {
  std::ifstream file(path);
  if (!file)
    fail(path + ": cannot be read");
  try {
    return parseModelConfig({std::istreambuf_iterator<char>(file), {}}, defaults);
  } catch (const std::runtime_error &error) {
    fail(path + ": " + error.what());
  }
}

std::string configBeside(const std::string &path) {
  return std::filesystem::path(path).replace_extension(".serving.json").string();
}

} // namespace service
