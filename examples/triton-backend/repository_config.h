//===- repository_config.h - a model's config.pbtxt -------------*- C++ -*-===//

#ifndef TRITON_DISC_REPOSITORY_CONFIG_H
#define TRITON_DISC_REPOSITORY_CONFIG_H

#include "layout.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace triton_disc {

/// A model's config.pbtxt. Functions throw std::runtime_error for what the backend does not support, or what
/// contradicts the library.
class RepositoryConfig {
public:
  /// `json`: the configuration as Triton writes it.
  explicit RepositoryConfig(const std::string &json);

  int64_t maxBatch() const { return maxBatch_; }
  const std::string &fileName() const { return fileName_; }

  /// The parameter "threads".
  std::optional<int> threads() const { return threads_; }

  bool hasDynamicBatching() const { return root_.contains("dynamic_batching"); }

  /// Adds missing inputs and outputs, and their missing datatypes and dims.
  void complete(const Layout &layout);

  /// Compares with the library.
  void check(const Layout &layout) const;

  std::string text() const { return root_.dump(); }

private:
  void refuseUnsupported() const;
  void readParameters();

  nlohmann::json root_;
  int64_t maxBatch_ = 0;
  std::string fileName_ = "model.so";
  std::optional<int> threads_;
};

} // namespace triton_disc

#endif // TRITON_DISC_REPOSITORY_CONFIG_H
