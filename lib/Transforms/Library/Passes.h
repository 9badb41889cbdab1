//===- Passes.h - passes of the library stage --------------------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_LIBRARY_PASSES_H
#define DISC_TRANSFORMS_LIBRARY_PASSES_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/Library/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_TRANSFORMS_LIBRARY_PASSES_H
