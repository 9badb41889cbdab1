//===- api.h - Triton's functions with exceptions ---------------*- C++ -*-===//

#ifndef TRITON_DISC_API_H
#define TRITON_DISC_API_H

#include "model.h"
#include "triton_api.h"

#include <exception>
#include <new>
#include <string>

namespace triton_disc {

/// Throws service::RequestError(Invalid), for a request that is wrong.
[[noreturn]] void refuse(const std::string &text);

/// Throws an error of Triton's as service::RequestError(Failed), and deletes it.
void check(TRITONSERVER_Error *error);

/// For calls whose failure nobody can handle: logs the error, and deletes it.
void logFailure(TRITONSERVER_Error *error) noexcept;

void log(TRITONSERVER_LogLevel level, const std::string &text) noexcept;

TRITONSERVER_Error *makeError(const service::RequestError &error) noexcept;

TRITONSERVER_DataType tritonType(service::Datatype type);

/// Runs a function whose exceptions become an error of Triton's.
template <typename F> TRITONSERVER_Error *guarded(F &&function) noexcept {
  try {
    function();
    return nullptr;
  } catch (const service::RequestError &error) {
    return makeError(error);
  } catch (const std::bad_alloc &) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "there is not enough memory");
  } catch (const std::exception &error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, error.what());
  } catch (...) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "an unknown error");
  }
}

} // namespace triton_disc

#endif // TRITON_DISC_API_H
