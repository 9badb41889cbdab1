//===- ScheduleCall.cpp - a function's own tasks --------------------------===//
//
// The operation says into how many pieces its function can be cut and what scratch it needs.
//
// Test: test/lit/Schedule/call.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::disc;

LogicalResult disc::scheduleCall(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &) {
  auto call = kernel.getYield().getValues()[0].getDefiningOp<CallFunctionOp>();
  if (!call || call.getOutputs() != kernel.getYield().getValues())
    return kernel.emitError("a call kernel must yield the results of one disc_tensor.call");
  // Scalar code over elements of any width, some of it searching or comparing: a few nanoseconds for each.
  constexpr int64_t perElement = 4;
  SymExpr elements;
  for (Value v : llvm::concat<Value>(SmallVector<Value>(call.getInputs()), SmallVector<Value>(call.getOutputs())))
    elements += SymExpr::product(shapes.dims(v));
  SymExpr tasks = shapes.expr(call.getTasks());
  SymExpr some = shapes.simplify(SymExpr::max(tasks, SymExpr(1)));
  SymExpr cost = shapes.simplify(SymExpr::floorDiv(elements * SymExpr(perElement), some)) + SymExpr(100);
  MLIRContext *context = kernel.getContext();
  kernel.setScheduleAttr(PieceScheduleAttr::get(context));
  kernel.setTasksAttr(ExprAttr::get(context, tasks));
  kernel.setScratchAttr(ExprAttr::get(context, shapes.expr(call.getScratch())));
  kernel.setCostAttr(ExprAttr::get(context, cost));
  return success();
}
