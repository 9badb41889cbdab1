//===- ScheduleKernels.cpp - tiles, tasks, scratch and cost ---------------===//
//
//   disc_plan.kernel row ins(%x) -> tensor<?x?x384xf32> attributes {reason = ...} {...}
// becomes
//   disc_plan.kernel row ins(%x) -> tensor<?x?x384xf32> attributes {reason = ...,
//     schedule = #disc_plan.row<accumulators = 2>, tasks = #disc_shape.expr<B * S>, scratch = #disc_shape.expr<0>,
//     cost = #disc_shape.expr<96>} {...}
//
// The kind of the kernel has a function for it (Kinds.cpp, Schedules.h).
//
// Tests: test/lit/Schedule/{attention,call,contraction,loop-row-column,pack}.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Kinds.h"
#include "lib/Transforms/Schedule/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::disc {
#define GEN_PASS_DEF_SCHEDULEKERNELS
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct ScheduleKernels : disc::impl::ScheduleKernelsBase<ScheduleKernels> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    TargetInfo target = TargetInfo::get(getOperation());
    WalkResult result = getOperation().walk([&](KernelOp kernel) {
      auto kind = dyn_cast<ScheduledKind>(kernel.getKind());
      if (!kind || failed(kind.schedule(kernel, shapes, target))) {
        kernel.emitError() << "no schedule for this " << kernel.getKind().getWord() << " kernel";
        return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
