//===- Passes.h - code for AMD's GPUs ------------------------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_ROCDL_PASSES_H
#define DISC_LIB_TARGET_ROCDL_PASSES_H

#include "dialects/Plan/PlanDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/ROCDLDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#include "lib/Target/ROCDL/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "lib/Target/ROCDL/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_LIB_TARGET_ROCDL_PASSES_H
