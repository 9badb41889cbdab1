//===- Passes.h - passes of the schedule stage -------------------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_SCHEDULE_PASSES_H
#define DISC_TRANSFORMS_SCHEDULE_PASSES_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SCHEDULE_PASSES_H
