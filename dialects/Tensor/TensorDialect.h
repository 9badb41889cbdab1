//===- TensorDialect.h - the disc_tensor dialect -----------------*- C++ -*-===//
#ifndef DISC_DIALECTS_TENSOR_TENSORDIALECT_H
#define DISC_DIALECTS_TENSOR_TENSORDIALECT_H

#include "dialects/Shape/ShapeDialect.h"
#include "dialects/Shape/ShapeInterfaces.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Tensor/TensorDialect.h.inc"

#define GET_OP_CLASSES
#include "dialects/Tensor/TensorOps.h.inc"

namespace mlir::disc {
/// True for the operations that only change how a buffer is addressed.
inline bool isView(Operation *op) { return llvm::isa<PermuteOp, ReshapeOp, BroadcastOp, SliceOp>(op); }
} // namespace mlir::disc

#endif // DISC_DIALECTS_TENSOR_TENSORDIALECT_H
