//===- ScheduleLoop.cpp - kernels without reductions ----------------------===//
//
// A task is a chunk of the row-major range of the results' domain, wherever rows begin and end: the work divides
// evenly for every shape. How the layouts are walked is the emitter's business.
//
//   schedule = #disc_plan.loop<chunk = 4096, unroll = 2>, tasks = (B * S * 384 + 4095) floordiv 4096
//
// Test: test/lit/Schedule/loop-row-column.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Schedules.h"
#include "lib/Transforms/Support/ReductionPlan.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::disc;

LogicalResult mlir::disc::scheduleLoop(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  constexpr int64_t chunk = 4096;
  Block &body = kernel.getBody().front();
  double work = kernel.getYield().getValues().size();
  for (BlockArgument arg : body.getArguments())
    work += !arg.use_empty();
  for (auto op : body.getOps<linalg::GenericOp>())
    work += scalarWork(op.getRegion());

  Builder b(kernel.getContext());
  // Where a body is a few instructions, the loop's own are worth sharing.
  int64_t unroll = work <= 8 ? 4 : work <= 16 ? 2 : 1;
  SymExpr total = SymExpr::product(shapes.dims(kernel.getYield().getValues().front()));
  kernel.setScheduleAttr(LoopScheduleAttr::get(b.getContext(), chunk, unroll));
  kernel.setTasksAttr(ExprAttr::get(b.getContext(), SymExpr::ceilDiv(total, SymExpr(chunk))));
  kernel.setScratchAttr(ExprAttr::get(b.getContext(), SymExpr(0)));
  kernel.setCostAttr(ExprAttr::get(b.getContext(), SymExpr(nanoseconds(work * chunk, target))));
  return success();
}
