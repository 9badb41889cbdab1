//===- infer_call.h - a request for a result, of either protocol -*- C++ -*-===//

#ifndef SERVICE_INFER_CALL_H
#define SERVICE_INFER_CALL_H

#include "served_model.h"
#include "tensor.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace service {

/// The only version of every model.
constexpr const char *kModelVersion = "1";

/// The server's own name and version, and the extensions of the protocol that it supports.
constexpr const char *kServerName = "disc-service", *kServerVersion = "1";
constexpr const char *kExtensions[] = {"binary_tensor_data"};

/// What a request asks for, built piece by piece. Every function throws RequestError(Invalid) for what the protocol or
/// the model does not allow.
class InferCall {
public:
  explicit InferCall(const ServedModel &model);

  /// An output that is asked for.
  struct Output {
    size_t index;
    std::optional<bool> binary; ///< No value: as the request says.
  };

  std::string id;
  std::vector<Tensor> inputs; ///< In the model's order.
  std::vector<Output> outputs;
  bool binaryOutputs = false; ///< Of outputs that do not say it themselves.
  ServedModel::Clock::time_point deadline = ServedModel::Clock::time_point::max();

  /// Which input of the model this is; `given` is how many elements or, with `bytes`, bytes the request has for it.
  /// Its tensor is allocated then.
  Tensor &addInput(const std::string &name, const std::string &datatype, const Shape &shape, size_t given, bool bytes);

  Output &addOutput(const std::string &name);

  /// Microseconds for the whole request, the parameter "timeout".
  void setTimeout(int64_t microseconds);

  /// Once all is added. Without any, all outputs are asked for.
  void finish();

  /// The results, one for each of `outputs`.
  std::vector<Tensor> run(ServedModel &model);

  /// Throws for the parameter of a request, input or output that the service does not know.
  [[noreturn]] static void refuseParameter(const std::string &where, const std::string &name);

  /// For error texts: "input 'ids'".
  static std::string inputText(const std::string &name) { return "input '" + name + "'"; }

private:
  const ServedModel &model_;
};

[[noreturn]] void refuse(const std::string &text);

} // namespace service

#endif // SERVICE_INFER_CALL_H
