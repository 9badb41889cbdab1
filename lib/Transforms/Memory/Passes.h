//===- Passes.h - passes of the memory stage ---------------------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_MEMORY_PASSES_H
#define DISC_TRANSFORMS_MEMORY_PASSES_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Rt/RtDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_PASSES_H
