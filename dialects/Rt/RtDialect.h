//===- RtDialect.h - the disc_rt dialect -------------------------*- C++ -*-===//
#ifndef DISC_DIALECTS_RT_RTDIALECT_H
#define DISC_DIALECTS_RT_RTDIALECT_H

#include "dialects/Shape/ShapeDialect.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Rt/RtDialect.h.inc"
#include "dialects/Rt/RtEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Rt/RtAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/Rt/RtOps.h.inc"

#endif // DISC_DIALECTS_RT_RTDIALECT_H
