//===- Kinds.cpp - which operations the kinds of kernels take -------------===//
//
// Kinds name loop nests: an operation begins a kernel of the kind that walks its elements, and what has the same points
// joins it (KernelGroups.cpp).
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Kinds.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Fusion/KernelGroups.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace mlir::disc;

#include "lib/Transforms/Fusion/Kinds.cpp.inc"

namespace {
/// A generic that sums and is no product: whether along its innermost dimension.
std::optional<bool> reducesInnermost(Operation *op, ShapeAnalysis &shapes) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumReductionLoops() == 0 || isContraction(generic, shapes))
    return std::nullopt;
  return movingLoops(generic, shapes).back() == utils::IteratorType::reduction;
}

template <typename Kind> bool isLoopOr(KernelKind other) { return isa<LoopKindAttr, Kind>(other); }

struct LoopFusion : FusedKind::ExternalModel<LoopFusion, LoopKindAttr> {
  bool begins(Attribute, Operation *op, ShapeAnalysis &) const {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    return isa<ConcatOp, RunningSumOp>(op) || (generic && generic.getNumReductionLoops() == 0);
  }
  bool absorbs(Attribute, KernelKind other) const { return isa<LoopKindAttr>(other); }
  FusionTraits getTraits(Attribute) const {
    FusionTraits traits;
    traits.isPointwise = true;
    return traits;
  }
};

struct RowFusion : FusedKind::ExternalModel<RowFusion, RowKindAttr> {
  bool begins(Attribute, Operation *op, ShapeAnalysis &shapes) const {
    return reducesInnermost(op, shapes).value_or(false);
  }
  bool absorbs(Attribute, KernelKind other) const { return isLoopOr<RowKindAttr>(other); }
  FusionTraits getTraits(Attribute) const {
    FusionTraits traits;
    traits.isReduction = traits.storesFull = traits.storesInOrder = true;
    return traits;
  }
};

struct ColumnFusion : FusedKind::ExternalModel<ColumnFusion, ColumnKindAttr> {
  bool begins(Attribute, Operation *op, ShapeAnalysis &shapes) const {
    return !reducesInnermost(op, shapes).value_or(true);
  }
  bool absorbs(Attribute, KernelKind other) const { return isLoopOr<ColumnKindAttr>(other); }
  FusionTraits getTraits(Attribute) const {
    FusionTraits traits;
    traits.isReduction = traits.storesInOrder = traits.isOnePass = true;
    return traits;
  }
};

struct ContractionFusion : FusedKind::ExternalModel<ContractionFusion, ContractionKindAttr> {
  bool begins(Attribute, Operation *op, ShapeAnalysis &shapes) const {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    return generic && isContraction(generic, shapes);
  }
  bool absorbs(Attribute, KernelKind other) const { return isLoopOr<ContractionKindAttr>(other); }
  FusionTraits getTraits(Attribute) const {
    FusionTraits traits;
    traits.hasEpilogue = true;
    return traits;
  }
};

struct ConvolutionFusion : FusedKind::ExternalModel<ConvolutionFusion, ConvolutionKindAttr> {
  bool begins(Attribute, Operation *op, ShapeAnalysis &) const { return isa<ConvolutionOp>(op); }
  bool absorbs(Attribute, KernelKind other) const { return isa<LoopKindAttr>(other); }
  FusionTraits getTraits(Attribute) const {
    FusionTraits traits;
    traits.hasEpilogue = true;
    return traits;
  }
};

/// Kernels of one operation.
template <typename Kind, typename Op> struct OneOperation : FusedKind::ExternalModel<OneOperation<Kind, Op>, Kind> {
  bool begins(Attribute, Operation *op, ShapeAnalysis &) const { return isa<Op>(op); }
};
} // namespace

void disc::registerFusedKinds(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, PlanDialect *) {
    LoopKindAttr::attachInterface<LoopFusion>(*context);
    RowKindAttr::attachInterface<RowFusion>(*context);
    ColumnKindAttr::attachInterface<ColumnFusion>(*context);
    ContractionKindAttr::attachInterface<ContractionFusion>(*context);
    ConvolutionKindAttr::attachInterface<ConvolutionFusion>(*context);
    AttentionKindAttr::attachInterface<OneOperation<AttentionKindAttr, AttentionOp>>(*context);
    PackKindAttr::attachInterface<OneOperation<PackKindAttr, PackOp>>(*context);
    CallKindAttr::attachInterface<OneOperation<CallKindAttr, CallFunctionOp>>(*context);
  });
}
