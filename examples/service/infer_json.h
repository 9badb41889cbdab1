//===- infer_json.h - requests and answers as JSON and bytes ----*- C++ -*-===//

#ifndef SERVICE_INFER_JSON_H
#define SERVICE_INFER_JSON_H

#include "infer_call.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace service {

/// Reads the body of a request for a result: JSON and, behind its first `headerLength` bytes, the elements of inputs
/// with the parameter binary_data_size. Without `headerLength` all is JSON. The text is never stored as a tree; beside
/// the tensors, a request needs no memory but its own bytes. Throws RequestError(Invalid).
InferCall readInferRequest(const ServedModel &model, std::string_view body, std::optional<size_t> headerLength);

/// The body of the answer. `headerLength` is set if there are bytes behind the JSON. Throws RequestError(Invalid) for
/// results that JSON cannot express: NaN and infinity.
std::string writeInferResponse(const ServedModel &model, const InferCall &call, const std::vector<Tensor> &results,
                               std::optional<size_t> &headerLength);

} // namespace service

#endif // SERVICE_INFER_JSON_H
