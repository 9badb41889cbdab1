//===- ScheduleColumn.cpp - reductions along outer dimensions -------------===//
//
// The lanes run along the parallel dimensions inside the last reduced one. A task is `blocks` vectors of them, over
// the whole reduced range: wide enough for whole cache lines, narrow enough to give every core some.
//
//   schedule = #disc_plan.column<blocks = 4>, tasks = B * 6
//
// Test: test/lit/Schedule/loop-row-column.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Schedules.h"
#include "lib/Transforms/Support/ReductionPlan.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::disc;

LogicalResult mlir::disc::scheduleColumn(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(kernel, kernel.getBody().front(), shapes);
  if (failed(plan))
    return failure();
  SymExpr outer(1), inner(1);
  for (unsigned d : plan->parallel)
    (d > plan->reduced.back() ? inner : outer) *= plan->domain[d];
  int64_t vectors = (shapes.typical(inner) + target.lanes() - 1) / target.lanes();
  int64_t blocks = vectors >= 8 ? 4 : vectors >= 2 ? 2 : 1;
  int64_t width = blocks * target.lanes();
  SymExpr reduced = plan->size(plan->reduced);
  SymExpr scratch(0);
  for (const StagedValue &staged : plan->staged)
    scratch += ReductionPlan::stagedBytes(staged, reduced * SymExpr(width));

  Builder b(kernel.getContext());
  kernel.setScheduleAttr(ColumnScheduleAttr::get(b.getContext(), blocks));
  kernel.setTasksAttr(ExprAttr::get(b.getContext(), outer * SymExpr::ceilDiv(inner, SymExpr(width))));
  kernel.setScratchAttr(ExprAttr::get(b.getContext(), scratch));
  SymExpr perPoint(nanoseconds(plan->work * width * 16, target));
  kernel.setCostAttr(ExprAttr::get(b.getContext(), SymExpr::floorDiv(reduced * perPoint, SymExpr(16)) + SymExpr(10)));
  return success();
}
