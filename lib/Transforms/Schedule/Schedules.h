//===- Schedules.h - one schedule per kind of kernel -------------*- C++ -*-===//
//
// Each sets `schedule`, `tasks`, `scratch` and `cost` of a kernel. The emitter of the same kind in lib/Target reads
// `schedule`; the host flow evaluates the others at run-time sizes.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_SCHEDULE_SCHEDULES_H
#define DISC_TRANSFORMS_SCHEDULE_SCHEDULES_H

#include "dialects/Plan/Layout.h"
#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/TargetInfo.h"

namespace mlir::disc {

LogicalResult scheduleLoop(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
LogicalResult scheduleRow(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
LogicalResult scheduleColumn(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
LogicalResult scheduleContraction(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
LogicalResult scheduleAttention(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
LogicalResult schedulePack(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
LogicalResult scheduleCall(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
LogicalResult scheduleWinograd(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
LogicalResult scheduleConvolution(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);

/// In blocks of threads (ScheduleBlocks.cpp). They return the kernel that is in the place of this one, or this one.
FailureOr<KernelOp> scheduleLoopBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
FailureOr<KernelOp> scheduleRowBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
FailureOr<KernelOp> scheduleColumnBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
FailureOr<KernelOp> scheduleContractionBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
FailureOr<KernelOp> scheduleConvolutionBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);
FailureOr<KernelOp> scheduleAttentionBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target);

/// The layout of a kernel's operand; of rows that the kernel joins, as if they were. Nothing for what it computes.
std::optional<Layout> operandLayout(KernelOp kernel, Value value, ShapeAnalysis &shapes);

/// Time for `work` scalar operations that are done in vectors, as schedules estimate costs: half an instruction's
/// worth of vectors a cycle, at 3 GHz.
inline int64_t nanoseconds(double work, const TargetInfo &target) {
  return static_cast<int64_t>(work / static_cast<double>(target.lanes()) * 0.6) + 1;
}

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SCHEDULE_SCHEDULES_H
