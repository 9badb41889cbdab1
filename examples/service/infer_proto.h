//===- infer_proto.h - requests and answers as protocol buffers -*- C++ -*-===//

#ifndef SERVICE_INFER_PROTO_H
#define SERVICE_INFER_PROTO_H

#include "infer_call.h"

#include <open_inference.pb.h>

namespace service {

/// Reads a request for a result. Throws RequestError(Invalid).
InferCall readInferRequest(const ServedModel &model, const inference::ModelInferRequest &request);

/// Elements are bytes if those of the request were, or if one of the results has a datatype without a field.
void writeInferResponse(const ServedModel &model, const InferCall &call, const std::vector<Tensor> &results,
                        const inference::ModelInferRequest &request, inference::ModelInferResponse &response);

} // namespace service

#endif // SERVICE_INFER_PROTO_H
