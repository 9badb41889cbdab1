//===- ScheduleRow.cpp - reductions along the innermost dimension ---------===//
//
// A task is one row: one point of the parallel dimensions. Values that later passes read back lie in scratch memory
// (ReductionPlan). Long rows are summed in several accumulators, since one addition waits for the one before.
//
//   schedule = #disc_plan.row<accumulators = 4, short_rows = 64>, tasks = B * S, scratch = 1536
//
// Test: test/lit/Schedule/loop-row-column.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Schedules.h"
#include "lib/Transforms/Support/ReductionPlan.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::disc;

/// The longest rows that are done a vector of rows at a time. Each reduction of a row by itself waits for the one
/// before and ends in combining lanes, which costs as much as 64 elements: from there on the transposition is dearer.
static int64_t shortRows(const ReductionPlan &plan, const TargetInfo &target) {
  return plan.reductions.size() > 1 ? std::max<int64_t>(target.lanes(), 64) : target.lanes();
}

LogicalResult mlir::disc::scheduleRow(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(kernel, kernel.getBody().front(), shapes);
  if (failed(plan))
    return failure();
  SymExpr row = plan->size(plan->reduced);
  // Rows that may be short are done a vector of rows at a time; what is kept of them, too.
  int64_t longestShort = shortRows(*plan, target);
  bool isShort = shapes.range(row).min.value_or(0) <= longestShort &&
                 shapes.range(plan->size(plan->parallel)).max.value_or(INT64_MAX) > 1;
  SymExpr kept = row;
  if (isShort)
    kept = SymExpr::max(row, SymExpr::min(row, SymExpr(longestShort)) * SymExpr(target.lanes()));
  SymExpr scratch(0);
  for (const StagedValue &staged : plan->staged)
    scratch += ReductionPlan::stagedBytes(staged, kept);
  // A guess of a row's length must not leave the longest rows to one chain of additions.
  int64_t longest = std::min<int64_t>(shapes.range(row).max.value_or(1024), 1024);
  int64_t vectors = std::max(shapes.typical(row), longest / 4) / target.lanes();
  int64_t accumulators = vectors >= 16 ? 4 : vectors >= 4 ? 2 : 1;

  Builder b(kernel.getContext());
  kernel.setScheduleAttr(RowScheduleAttr::get(b.getContext(), accumulators, isShort ? longestShort : 0));
  kernel.setTasksAttr(ExprAttr::get(b.getContext(), plan->size(plan->parallel)));
  kernel.setScratchAttr(ExprAttr::get(b.getContext(), scratch));
  // Per vector, and a constant for combining lanes at the end of each pass.
  SymExpr perVector(nanoseconds(plan->work * target.lanes() * 16, target));
  SymExpr cost = SymExpr::floorDiv(SymExpr::ceilDiv(row, SymExpr(target.lanes())) * perVector, SymExpr(16)) +
                 SymExpr(10 * int64_t(plan->numPasses));
  kernel.setCostAttr(ExprAttr::get(b.getContext(), cost));
  return success();
}
