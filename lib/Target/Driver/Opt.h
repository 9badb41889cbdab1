//===- Opt.h - disc-opt as a function ---------------------------*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_OPT_H
#define DISC_TARGET_DRIVER_OPT_H

#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::disc {

/// mlir-opt with DISC's dialects and passes; returns the exit status. Call it once per process: it parses LLVM's
/// global command-line options.
int runOpt(int argc, char **argv);
/// With dialects and extensions that `add` adds.
int runOpt(int argc, char **argv, llvm::function_ref<void(DialectRegistry &)> add);

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_OPT_H
