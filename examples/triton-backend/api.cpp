//===- api.cpp - Triton's functions with exceptions -----------------------===//

#include "api.h"

namespace triton_disc {

using service::RequestError;

void refuse(const std::string &text) { throw RequestError(RequestError::Kind::Invalid, text); }

void check(TRITONSERVER_Error *error) {
  if (!error)
    return;
  RequestError failure(RequestError::Kind::Failed, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  throw failure;
}

void log(TRITONSERVER_LogLevel level, const std::string &text) noexcept {
  if (TRITONSERVER_Error *error = TRITONSERVER_LogMessage(level, "disc", 0, text.c_str()))
    TRITONSERVER_ErrorDelete(error);
}

void logFailure(TRITONSERVER_Error *error) noexcept {
  if (!error)
    return;
  if (TRITONSERVER_Error *second =
          TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, "disc", 0, TRITONSERVER_ErrorMessage(error)))
    TRITONSERVER_ErrorDelete(second);
  TRITONSERVER_ErrorDelete(error);
}

static TRITONSERVER_Error_Code codeOf(RequestError::Kind kind) {
  switch (kind) {
  case RequestError::Kind::Invalid:
  case RequestError::Kind::TooLarge:
    return TRITONSERVER_ERROR_INVALID_ARG;
  case RequestError::Kind::NotFound:
    return TRITONSERVER_ERROR_NOT_FOUND;
  case RequestError::Kind::Busy:
  case RequestError::Kind::Stopping:
  case RequestError::Kind::Deadline:
    return TRITONSERVER_ERROR_UNAVAILABLE;
  case RequestError::Kind::Failed:
    return TRITONSERVER_ERROR_INTERNAL;
  }
  return TRITONSERVER_ERROR_UNKNOWN;
}

TRITONSERVER_Error *makeError(const RequestError &error) noexcept {
  return TRITONSERVER_ErrorNew(codeOf(error.kind), error.what());
}

TRITONSERVER_DataType tritonType(service::Datatype type) {
  using service::Datatype;
  switch (type) {
  case Datatype::Bool:
    return TRITONSERVER_TYPE_BOOL;
  case Datatype::UInt8:
    return TRITONSERVER_TYPE_UINT8;
  case Datatype::UInt16:
    return TRITONSERVER_TYPE_UINT16;
  case Datatype::UInt32:
    return TRITONSERVER_TYPE_UINT32;
  case Datatype::UInt64:
    return TRITONSERVER_TYPE_UINT64;
  case Datatype::Int8:
    return TRITONSERVER_TYPE_INT8;
  case Datatype::Int16:
    return TRITONSERVER_TYPE_INT16;
  case Datatype::Int32:
    return TRITONSERVER_TYPE_INT32;
  case Datatype::Int64:
    return TRITONSERVER_TYPE_INT64;
  case Datatype::FP16:
    return TRITONSERVER_TYPE_FP16;
  case Datatype::BF16:
    return TRITONSERVER_TYPE_BF16;
  case Datatype::FP32:
    return TRITONSERVER_TYPE_FP32;
  case Datatype::FP64:
    return TRITONSERVER_TYPE_FP64;
  }
  return TRITONSERVER_TYPE_INVALID;
}

} // namespace triton_disc
