//===- Passes.h - code generation for CPUs -------------------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_CPU_PASSES_H
#define DISC_LIB_TARGET_CPU_PASSES_H

#include "dialects/Plan/PlanDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#include "lib/Target/CPU/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "lib/Target/CPU/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_PASSES_H
