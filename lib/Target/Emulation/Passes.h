//===- Passes.h - kernels of a GPU for the CPU ---------------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_EMULATION_PASSES_H
#define DISC_LIB_TARGET_EMULATION_PASSES_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::disc {
#define GEN_PASS_DECL
#include "lib/Target/Emulation/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "lib/Target/Emulation/Passes.h.inc"
} // namespace mlir::disc

#endif // DISC_LIB_TARGET_EMULATION_PASSES_H
