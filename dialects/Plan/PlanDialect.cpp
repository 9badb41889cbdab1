//===- PlanDialect.cpp - the disc_plan dialect ----------------------------===//
//
// Verifiers carry the labels (P1)... of Plan.td; test/lit/Plan/invalid.mlir has one case for each.
//
//===----------------------------------------------------------------------===//

#include "dialects/Plan/PlanDialect.h"

#include "dialects/Plan/Schedule.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

#include "dialects/Plan/PlanDialect.cpp.inc"
#include "dialects/Plan/PlanEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Plan/PlanAttrs.cpp.inc"

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Plan/PlanAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Plan/PlanOps.cpp.inc"
      >();
}

bool mlir::disc::isKernelBodyOp(Operation *op) {
  return isView(op) ||
         // Scalars derived from extents, such as 1 / S as a float.
         (isa_and_present<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
          llvm::none_of(op->getResultTypes(), llvm::IsaPred<RankedTensorType>)) ||
         isa<DimOp, arith::ConstantOp, tensor::EmptyOp, linalg::FillOp, linalg::GenericOp, AttentionOp, ConvolutionOp,
             WinogradOp, ConcatOp, RunningSumOp, PackOp, UnpackOp, CallFunctionOp, YieldOp>(op);
}

static LogicalResult verifyBody(Operation *kernel, Region &body, StringRef label) {
  for (Operation &op : body.front())
    if (!isKernelBodyOp(&op))
      return kernel->emitOpError() << "cannot hold '" << op.getName() << "' " << label;
  return success();
}

template <typename Kernel> static LogicalResult verifyDecisions(Kernel kernel) {
  if (failed(verifyLaunch(kernel, kernel.getTasksAttr(), kernel.getScratchAttr(), kernel.getCostAttr())))
    return failure();
  DictionaryAttr schedule = kernel.getScheduleAttr();
  return schedule ? verifySchedule(kernel, kernel.getKind(), kernel.getBody().front(), schedule) : success();
}

LogicalResult PlanDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  if (attr.getName() == "disc_plan.target")
    return verifyTarget(op, attr.getValue());
  return verifyDeviceLaunch(op, attr.getName(), attr.getValue());
}

YieldOp KernelOp::getYield() { return cast<YieldOp>(getBody().front().getTerminator()); }
YieldOp KernelFuncOp::getYield() { return cast<YieldOp>(getBody().front().getTerminator()); }
unsigned KernelFuncOp::getNumResults() { return getYield().getValues().size(); }
LayoutAttr KernelFuncOp::getLayout(unsigned i) { return cast<LayoutAttr>(getLayouts()[i]); }

LogicalResult KernelOp::verify() {
  if (getBody().front().getArgumentTypes() != getInputs().getTypes())
    return emitOpError("region arguments do not have the types of the inputs (P1)");
  if (getYield().getValues().getTypes() != getOutputs().getTypes())
    return emitOpError("yielded values do not have the types of the results (P2)");
  return success(succeeded(verifyBody(*this, getBody(), "(P3)")) && succeeded(verifyDecisions(*this)));
}

static bool isDefined(const SymExpr &expr) { return expr.isDefined(); }

/// Whether these are extents that a tensor of the type may have.
static bool areDimsOf(Attribute attribute, Type type) {
  auto dims = dyn_cast<DimsAttr>(attribute);
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!dims || !tensor || tensor.getRank() != static_cast<int64_t>(dims.size()))
    return false;
  return llvm::all_of(llvm::zip(tensor.getShape(), dims.getDims()), [](auto pair) {
    auto &[extent, expr] = pair;
    return expr.isDefined() && (ShapedType::isDynamic(extent) || expr.isConstant(extent));
  });
}

LogicalResult KernelFuncOp::verify() {
  SmallVector<Value> values(getBody().getArguments().begin(), getBody().getArguments().end());
  llvm::append_range(values, getYield().getValues());
  if (getNumResults() == 0)
    return emitOpError("must have a result (P12)");
  bool ok = getLayouts().size() == values.size();
  for (unsigned i = 0; ok && i < values.size(); ++i) {
    auto layout = dyn_cast<LayoutAttr>(getLayouts()[i]);
    auto type = dyn_cast<RankedTensorType>(values[i].getType());
    ok = layout && type && static_cast<int64_t>(layout.getStrides().size()) == type.getRank() &&
         layout.getOffset().getValue().isDefined() && llvm::all_of(layout.getStrides().getDims(), isDefined);
  }
  if (!ok)
    return emitOpError("needs a layout with a stride per dimension for each argument and result (P4)");
  ok = getArgDims().size() == getNumInputs();
  for (auto [argument, dims] : llvm::zip(getBody().getArguments(), getArgDims()))
    ok = ok && areDimsOf(dims, argument.getType());
  if (!ok)
    return emitOpError("needs the extents of each argument (P6)");
  return success(succeeded(verifyBody(*this, getBody(), "(P5)")) && succeeded(verifyDecisions(*this)));
}

SmallVector<SymExpr> KernelOp::getResultDims(unsigned index, DimsQuery &query) {
  return query.dims(getYield().getValues()[index]);
}

std::optional<SmallVector<SymExpr>> KernelOp::getRegionArgDims(BlockArgument arg, DimsQuery &query) {
  return query.dims(getInputs()[arg.getArgNumber()]);
}

SmallVector<SymExpr> KernelFuncOp::getResultDims(unsigned, DimsQuery &) {
  llvm_unreachable("a kernel function has no results");
}

std::optional<SmallVector<SymExpr>> KernelFuncOp::getRegionArgDims(BlockArgument arg, DimsQuery &) {
  return cast<DimsAttr>(getArgDims()[arg.getArgNumber()]).getDims();
}

SmallVector<SymExpr> CallOp::getResultDims(unsigned index, DimsQuery &) {
  return cast<DimsAttr>(getResultDimsAttr()[index]).getDims();
}

LogicalResult CallOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto callee = symbols.lookupNearestSymbolFrom<KernelFuncOp>(*this, getCalleeAttr());
  if (!callee || callee.getNumInputs() != getInputs().size() || callee.getNumResults() != getOutputs().size() ||
      getResultDimsAttr().size() != getOutputs().size() ||
      !llvm::all_of(llvm::zip(getResultDimsAttr(), getOutputs().getTypes()),
                    [](auto pair) { return areDimsOf(std::get<0>(pair), std::get<1>(pair)); }))
    return emitOpError("does not fit a disc_plan.kernel_func of that name (P7)");
  return success();
}

#define GET_OP_CLASSES
#include "dialects/Plan/PlanOps.cpp.inc"
