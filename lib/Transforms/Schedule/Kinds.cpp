//===- Kinds.cpp - the schedulers of the kinds of kernels -----------------===//

#include "lib/Transforms/Schedule/Kinds.h"

#include "lib/Transforms/Schedule/Schedules.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace mlir::disc;

#include "lib/Transforms/Schedule/Kinds.cpp.inc"

namespace {
template <typename Kind, auto onHost, auto inBlocks>
struct Schedulers : ScheduledKind::ExternalModel<Schedulers<Kind, onHost, inBlocks>, Kind> {
  LogicalResult schedule(Attribute, KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) const {
    return onHost(kernel, shapes, target);
  }
  FailureOr<KernelOp> scheduleBlocks(Attribute, KernelOp kernel, ShapeAnalysis &shapes,
                                     const TargetInfo &target) const {
    return inBlocks(kernel, shapes, target);
  }
};

struct PackSchedulers : ScheduledKind::ExternalModel<PackSchedulers, PackKindAttr> {
  LogicalResult schedule(Attribute, KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) const {
    return schedulePack(kernel, shapes, target);
  }
};

/// Those that put things in order have kernels of their own on devices, all others run on the host.
FailureOr<KernelOp> scheduleCallBlocks(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  if (failed(scheduleCall(kernel, shapes, target)))
    return failure();
  return kernel;
}
} // namespace

void disc::registerScheduledKinds(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, PlanDialect *) {
    LoopKindAttr::attachInterface<Schedulers<LoopKindAttr, scheduleLoop, scheduleLoopBlocks>>(*context);
    RowKindAttr::attachInterface<Schedulers<RowKindAttr, scheduleRow, scheduleRowBlocks>>(*context);
    ColumnKindAttr::attachInterface<Schedulers<ColumnKindAttr, scheduleColumn, scheduleColumnBlocks>>(*context);
    ContractionKindAttr::attachInterface<
        Schedulers<ContractionKindAttr, scheduleContraction, scheduleContractionBlocks>>(*context);
    ConvolutionKindAttr::attachInterface<
        Schedulers<ConvolutionKindAttr, scheduleConvolution, scheduleConvolutionBlocks>>(*context);
    AttentionKindAttr::attachInterface<Schedulers<AttentionKindAttr, scheduleAttention, scheduleAttentionBlocks>>(
        *context);
    CallKindAttr::attachInterface<Schedulers<CallKindAttr, scheduleCall, scheduleCallBlocks>>(*context);
    PackKindAttr::attachInterface<PackSchedulers>(*context);
  });
}
