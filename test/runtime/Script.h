//===- Script.h - models whose compiled code is a test's own ----*- C++ -*-===//

#ifndef DISC_TEST_RUNTIME_SCRIPT_H
#define DISC_TEST_RUNTIME_SCRIPT_H

#include "Check.h"
#include "lib/Runtime/Core/Call.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace disc::test {

/// A table without anything.
inline disc_model_info_t blankInfo() {
  disc_model_info_t info = {};
  info.version = DISC_MODEL_INFO_VERSION;
  return info;
}

/// A model that does what the test says, through the functions of Abi.h. One call at a time.
class Script {
public:
  using Body = std::function<int32_t(disc_call *)>;

  explicit Script(const disc_model_info_t &table, const rt::ModelOptions &options = {}, bool hasInit = false)
      : info(table) {
    rt::Status status = rt::Model::create({&info, hasInit ? enter : nullptr, enter, enter}, options, model);
    CHECK_TEXT(textOf(status), "");
  }

  /// What is wrong, or "".
  static std::string textOf(const rt::Status &status) { return status.ok() ? "" : status.error().message; }

  /// Loads the model; `init` runs if the model was made with it.
  std::string load(Body init = {}, const std::vector<DLManagedTensorVersioned *> &parameters = {}) {
    body() = std::move(init);
    return textOf(model->load(parameters.data(), parameters.size()));
  }
  std::string run(Body main, const std::vector<const DLTensor *> &inputs = {}, std::vector<disc_output> *outputs = {},
                  rt::Stream stream = nullptr) {
    body() = std::move(main);
    return textOf(model->run(inputs.data(), inputs.size(), outputs ? outputs->data() : nullptr,
                             outputs ? outputs->size() : 0, stream));
  }
  std::string shapes(Body function, const std::vector<const DLTensor *> &inputs, std::vector<int64_t *> &shapes) {
    body() = std::move(function);
    return textOf(model->outputShapes(inputs.data(), inputs.size(), shapes.data(), shapes.size()));
  }

  disc_model_info_t info;
  std::unique_ptr<rt::Model> model;

private:
  static Body &body() {
    static Body running;
    return running;
  }
  static int32_t enter(disc_call *call) { return body() ? body()(call) : 0; }
};

/// Whether a text has this part.
inline bool mentions(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

} // namespace disc::test

#endif // DISC_TEST_RUNTIME_SCRIPT_H
