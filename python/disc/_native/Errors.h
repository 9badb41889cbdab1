//===- Errors.h - errors of compiler and runtime in Python ------*- C++ -*-===//

#ifndef DISC_PYTHON_NATIVE_ERRORS_H
#define DISC_PYTHON_NATIVE_ERRORS_H

#include "lib/Runtime/Core/Status.h"
#include "lib/Target/Driver/Pipeline.h"
#include "python/disc/_native/Bindings.h"
#include "python/disc/_runtime/Raise.h"

namespace disc::py {

/// Raises disc._native.PipelineError, which has the fields of PipelineDiagnostics.
[[noreturn]] void raisePipelineError(const mlir::disc::PipelineDiagnostics &);

/// Raises the exception of disc.errors that the code stands for.
[[noreturn]] void raiseRuntimeError(const rt::Error &);

} // namespace disc::py

#endif // DISC_PYTHON_NATIVE_ERRORS_H
