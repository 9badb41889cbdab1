//===- PlanDialect.h - the disc_plan dialect ---------------------*- C++ -*-===//
#ifndef DISC_DIALECTS_PLAN_PLANDIALECT_H
#define DISC_DIALECTS_PLAN_PLANDIALECT_H

#include "dialects/Shape/ShapeDialect.h"
#include "dialects/Shape/ShapeInterfaces.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::disc {
/// What a target is taken for where it says nothing.
struct TargetDefaults {
  static constexpr int64_t vectorBits = 256, l1dBytes = 32 << 10, l1dWays = 8, l2Bytes = 512 << 10, l3Bytes = 8 << 20,
                           cores = 1, warp = 32;
};
} // namespace mlir::disc

#include "dialects/Plan/KernelKind.h.inc"

#include "dialects/Plan/PlanDialect.h.inc"

#include "dialects/Plan/PlanEnums.h.inc"

#include "dialects/Plan/ScheduleInterface.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Plan/PlanAttrs.h.inc"

namespace mlir::disc {
class YieldOp;
} // namespace mlir::disc

#define GET_OP_CLASSES
#include "dialects/Plan/PlanOps.h.inc"

namespace mlir::disc {
/// Attributes of a plan, a function of the host flow: the function that it is a plan of, and its additional cost. The
/// other function has its own cost. Costs are expressions in nanoseconds.
inline constexpr llvm::StringLiteral kPlanOf = "disc_plan.plan_of", kExtraCost = "disc_plan.extra_cost",
                                     kFlowCost = "disc_plan.cost";
/// Marks a step of a plan that runs again.
inline constexpr llvm::StringLiteral kRunAgain = "disc_plan.again";

/// Where a tensor of the host flow is stored, once `disc-memory-assign-buffers` has decided it: null for arguments,
/// parameters and views.
BufferAttr bufferOf(Value tensor);

/// (P19) and (P20), of attributes of this dialect.
LogicalResult verifyBuffers(Operation *op, NamedAttribute attr);
/// (P20) for one result.
LogicalResult verifyBuffer(Operation *op, BufferAttr buffer, unsigned result);

/// True for the operations that may stand in a kernel's region.
bool isKernelBodyOp(Operation *op);
} // namespace mlir::disc

#endif // DISC_DIALECTS_PLAN_PLANDIALECT_H
