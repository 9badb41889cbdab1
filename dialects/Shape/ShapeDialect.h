//===- ShapeDialect.h - the disc_shape dialect ------------------*- C++ -*-===//

#ifndef DISC_DIALECTS_SHAPE_SHAPEDIALECT_H
#define DISC_DIALECTS_SHAPE_SHAPEDIALECT_H

#include "dialects/Shape/ShapeInterfaces.h"
#include "dialects/Shape/SymExpr.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Shape/ShapeDialect.h.inc"
#include "dialects/Shape/ShapeEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Shape/ShapeAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/Shape/ShapeOps.h.inc"

#endif // DISC_DIALECTS_SHAPE_SHAPEDIALECT_H
