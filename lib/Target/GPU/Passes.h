//===- Passes.h - kernels for devices that run grids of blocks -----*- C++ -*-===//
#ifndef DISC_LIB_TARGET_GPU_PASSES_H
#define DISC_LIB_TARGET_GPU_PASSES_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Rt/RtDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#include "lib/Target/GPU/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "lib/Target/GPU/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_PASSES_H
