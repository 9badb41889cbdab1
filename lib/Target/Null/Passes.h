//===- Passes.h - kernels that nothing runs ------------------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_NULL_PASSES_H
#define DISC_LIB_TARGET_NULL_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#include "lib/Target/Null/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "lib/Target/Null/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_LIB_TARGET_NULL_PASSES_H
