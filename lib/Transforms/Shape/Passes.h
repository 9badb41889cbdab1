//===- Passes.h - passes of the shape stage ---------------------*- C++ -*-===//

#ifndef DISC_TRANSFORMS_SHAPE_PASSES_H
#define DISC_TRANSFORMS_SHAPE_PASSES_H

#include "dialects/Shape/ShapeDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/Shape/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SHAPE_PASSES_H
