//===- SchedulePack.cpp - one panel per task ------------------------------===//
//
// Test: test/lit/Schedule/pack.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::disc;

LogicalResult disc::schedulePack(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  auto pack = kernel.getYield().getValues()[0].getDefiningOp<PackOp>();
  if (!pack)
    return kernel.emitError("a pack kernel must yield a disc_tensor.pack");
  // [batch..., panels, K, panel]
  SmallVector<SymExpr> dims = shapes.dims(pack.getResult());
  MLIRContext *context = kernel.getContext();
  auto expr = [&](const SymExpr &e) { return ExprAttr::get(context, e); };
  SymExpr tasks = SymExpr::product(ArrayRef<SymExpr>(dims).drop_back(2));
  kernel.setScheduleAttr(PieceScheduleAttr::get(context));
  kernel.setTasksAttr(expr(tasks));
  kernel.setScratchAttr(expr(0));
  kernel.setCostAttr(expr(dims[dims.size() - 2] * SymExpr(pack.getPanel()) + SymExpr(100)));
  return success();
}
