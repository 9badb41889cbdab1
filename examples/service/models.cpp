//===- models.cpp - the models that the service has -----------------------===//

#include "models.h"
#include "infer_call.h"

#include <filesystem>
#include <stdexcept>

namespace service {

void Models::open(const Source &source, const ModelConfig &defaults) {
  std::string file = source.config.empty() ? configBeside(source.path) : source.config;
  ModelConfig config = defaults;
  if (!source.config.empty() || std::filesystem::exists(file))
    config = readModelConfig(file, defaults);
  try {
    add(std::make_unique<ServedModel>(source.name, openModel(source.path, config.threads), config));
  } catch (const std::runtime_error &error) {
    throw std::runtime_error("model '" + source.name + "': " + error.what());
  }
}

void Models::add(std::unique_ptr<ServedModel> model) { models_.push_back(std::move(model)); }

ServedModel &Models::find(const std::string &name, const std::string &version) const {
  for (const auto &model : models_) {
    if (model->name() != name)
      continue;
    if (!version.empty() && version != kModelVersion)
      throw RequestError(RequestError::Kind::NotFound,
                         "model '" + name + "' has no version '" + version + "': its only version is " + kModelVersion);
    return *model;
  }
  throw RequestError(RequestError::Kind::NotFound, "there is no model '" + name + "'");
}

bool Models::has(const std::string &name, const std::string &version) const {
  for (const auto &model : models_)
    if (model->name() == name)
      return version.empty() || version == kModelVersion;
  return false;
}

void Models::drain() {
  for (const auto &model : models_)
    model->drain();
}

std::string Models::metricsText() const {
  std::vector<std::pair<std::string, const ModelMetrics *>> list;
  for (const auto &model : models_)
    list.emplace_back(model->name(), &model->metrics());
  return modelMetricsText(list, [this](size_t i) { return models_[i]->queued(); });
}

} // namespace service
