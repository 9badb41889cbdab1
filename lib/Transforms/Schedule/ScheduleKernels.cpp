//===- ScheduleKernels.cpp - tiles, tasks, scratch and cost ---------------===//
//
//   disc_plan.kernel row ins(%x) -> tensor<?x?x384xf32> attributes {reason = ...} {...}
// becomes
//   disc_plan.kernel row ins(%x) -> tensor<?x?x384xf32> attributes {reason = ...,
//     schedule = {vector = 16 : i64}, tasks = #disc_shape.expr<B * S>, scratch = #disc_shape.expr<0>,
//     cost = #disc_shape.expr<96>} {...}
//
// One function per kind of kernel does the work (Schedules.h).
//
// Tests: test/lit/Schedule/{attention,call,contraction,loop-row-column,pack}.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Passes.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::disc {
#define GEN_PASS_DEF_SCHEDULEKERNELS
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

static LogicalResult schedule(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  switch (kernel.getKind()) {
  case KernelKind::Loop:
    return scheduleLoop(kernel, shapes, target);
  case KernelKind::Row:
    return scheduleRow(kernel, shapes, target);
  case KernelKind::Column:
    return scheduleColumn(kernel, shapes, target);
  case KernelKind::Contraction:
    return scheduleContraction(kernel, shapes, target);
  case KernelKind::Attention:
    return scheduleAttention(kernel, shapes, target);
  case KernelKind::Pack:
    return schedulePack(kernel, shapes, target);
  case KernelKind::Call:
    return scheduleCall(kernel, shapes, target);
  case KernelKind::Convolution:
    return scheduleConvolution(kernel, shapes, target);
  }
  llvm_unreachable("unknown kernel kind");
}

namespace {
struct ScheduleKernels : disc::impl::ScheduleKernelsBase<ScheduleKernels> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    TargetInfo target = TargetInfo::get(getOperation());
    WalkResult result = getOperation().walk([&](KernelOp kernel) {
      if (failed(schedule(kernel, shapes, target))) {
        kernel.emitError() << "no schedule for this " << stringifyKernelKind(kernel.getKind()) << " kernel";
        return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
