//===- models.h - the models that the service has ---------------*- C++ -*-===//

#ifndef SERVICE_MODELS_H
#define SERVICE_MODELS_H

#include "served_model.h"

#include <memory>
#include <string>
#include <vector>

namespace service {

/// Models by name. All are there before the first request, and stay.
class Models {
public:
  /// Where a model is, and how it is called.
  struct Source {
    std::string name, path;
    std::string config; ///< A file; "": the one beside the library, if there is one (configBeside).
  };

  /// Opens a model. Throws std::runtime_error.
  void open(const Source &source, const ModelConfig &defaults);
  void add(std::unique_ptr<ServedModel> model);

  /// Throws RequestError(NotFound). `version` is "" or that of the model.
  ServedModel &find(const std::string &name, const std::string &version) const;
  bool has(const std::string &name, const std::string &version) const;

  const std::vector<std::unique_ptr<ServedModel>> &all() const { return models_; }

  void drain();
  std::string metricsText() const;

private:
  std::vector<std::unique_ptr<ServedModel>> models_;
};

} // namespace service

#endif // SERVICE_MODELS_H
