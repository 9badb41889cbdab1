//===- Passes.h - passes of the host flow ------------------------*- C++ -*-===//
#ifndef DISC_TARGET_HOST_PASSES_H
#define DISC_TARGET_HOST_PASSES_H

#include "dialects/Plan/PlanDialect.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#include "lib/Target/Host/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Target/Host/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_TARGET_HOST_PASSES_H
