//===- hosted_model.cpp - a model of Triton's repository ------------------===//

#include "hosted_model.h"
#include "api.h"
#include "library_path.h"
#include "repository_config.h"

#include <filesystem>

namespace triton_disc {

using service::Batching;

namespace {
/// A message, which is deleted in the end.
class Message {
public:
  explicit Message(TRITONSERVER_Message *message) : message_(message) {}
  explicit Message(const std::string &json) {
    check(TRITONSERVER_MessageNewFromSerializedJson(&message_, json.data(), json.size()));
  }
  ~Message() { logFailure(TRITONSERVER_MessageDelete(message_)); }
  Message(const Message &) = delete;
  Message &operator=(const Message &) = delete;

  TRITONSERVER_Message *get() const { return message_; }

  std::string json() const {
    const char *text = nullptr;
    size_t bytes = 0;
    check(TRITONSERVER_MessageSerializeToJson(message_, &text, &bytes));
    return {text, bytes};
  }

private:
  TRITONSERVER_Message *message_ = nullptr;
};
} // namespace

static RepositoryConfig readConfig(TRITONBACKEND_Model *model) {
  TRITONSERVER_Message *message = nullptr;
  check(TRITONBACKEND_ModelConfig(model, 1, &message));
  return RepositoryConfig(Message(message).json());
}

static std::string libraryFile(TRITONBACKEND_Model *model, const std::string &fileName) {
  TRITONBACKEND_ArtifactType type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char *folder = nullptr;
  uint64_t version = 0;
  check(TRITONBACKEND_ModelRepository(model, &type, &folder));
  check(TRITONBACKEND_ModelVersion(model, &version));
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM)
    throw std::runtime_error("the model is not in a file system");
  std::filesystem::path path = std::filesystem::path(folder) / std::to_string(version) / fileName;
  if (!std::filesystem::is_regular_file(path))
    throw std::runtime_error(path.string() +
                             ": there is no such file. Put the library that DISC compiled there, or set "
                             "default_model_filename in config.pbtxt");
  return path.string();
}

HostedModel::HostedModel(TRITONBACKEND_Model *model) {
  const char *name = nullptr;
  check(TRITONBACKEND_ModelName(model, &name));
  name_ = name;
  try {
    load(model);
  } catch (const std::runtime_error &error) {
    throw std::runtime_error("model '" + name_ + "': " + error.what());
  }
}

void HostedModel::load(TRITONBACKEND_Model *model) {
  RepositoryConfig config = readConfig(model);
  const std::string path = libraryFile(model, config.fileName());
  service::ModelConfig serving;
  if (std::string file = service::configBeside(path); std::filesystem::exists(file))
    serving = service::readModelConfig(file, serving);
  library_ = service::openModel(loadablePath(path), config.threads().value_or(serving.threads));

  Batching batching = serving.batching;
  if (config.maxBatch() == 0) {
    if (batching.kind != Batching::Kind::None)
      log(TRITONSERVER_LOG_WARN, "model '" + name_ + "': the batching of " + service::configBeside(path) +
                                     " has no effect, because max_batch_size is 0 in config.pbtxt");
    batching = Batching();
  } else {
    if (batching.kind == Batching::Kind::None)
      batching = plainBatching(library_->signature());
    batching.maxBatch = config.maxBatch();
  }
  combiner_.emplace(*library_, batching);
  layout_.emplace(library_->signature(), batching, *combiner_, config.maxBatch());

  bool completes = false;
  check(TRITONBACKEND_ModelAutoCompleteConfig(model, &completes));
  if (completes) {
    config.complete(*layout_);
    config.check(*layout_);
    check(TRITONBACKEND_ModelSetConfig(model, 1, Message(config.text()).get()));
  }
  config.check(*layout_);
  log(TRITONSERVER_LOG_INFO, "model '" + name_ + "': " + path + ": " + library_->description());
}

} // namespace triton_disc
