//===- hosted_model.h - a model of Triton's repository ----------*- C++ -*-===//

#ifndef TRITON_DISC_HOSTED_MODEL_H
#define TRITON_DISC_HOSTED_MODEL_H

#include "layout.h"
#include "triton_api.h"

#include <memory>
#include <optional>
#include <string>

namespace triton_disc {

/// A library that was loaded for Triton. All instances of a model share it, with one copy of the weights; a library
/// runs concurrent calls.
class HostedModel {
public:
  /// Loads the library that the model's configuration names, and completes or checks the configuration. Throws
  /// std::runtime_error.
  explicit HostedModel(TRITONBACKEND_Model *model);

  const service::Model &library() const { return *library_; }
  const service::Combiner &combiner() const { return *combiner_; }
  const Layout &layout() const { return *layout_; }

private:
  void load(TRITONBACKEND_Model *model);

  std::string name_;
  std::unique_ptr<service::Model> library_;
  std::optional<service::Combiner> combiner_;
  std::optional<Layout> layout_;
};

} // namespace triton_disc

#endif // TRITON_DISC_HOSTED_MODEL_H
