//===- PlanDialect.cpp - the disc_plan dialect ----------------------------===//
//
// Verifiers carry the labels (P1)... of Plan.td; test/lit/Plan/{invalid,buffers-invalid}.mlir have one case for each.
//
//===----------------------------------------------------------------------===//

#include "dialects/Plan/PlanDialect.h"

#include "dialects/Plan/Schedule.h"
#include "dialects/Rt/RtDialect.h"
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

/// `row`, or the attribute of a kind that no dialect registered.
static ParseResult parseKind(OpAsmParser &parser, KernelKind &kind) {
  StringRef word;
  SMLoc loc = parser.getCurrentLocation();
  if (failed(parser.parseOptionalKeyword(&word)))
    return parser.parseAttribute(kind);
  kind = parser.getContext()->getLoadedDialect<PlanDialect>()->findKind(word);
  return kind ? ParseResult(success()) : parser.emitError(loc) << "'" << word << "' is not a kind of kernel";
}

static void printKind(OpAsmPrinter &printer, Operation *op, KernelKind kind) {
  if (op->getContext()->getLoadedDialect<PlanDialect>()->findKind(kind.getWord()) == kind)
    printer << kind.getWord();
  else
    printer << kind;
}

#include "dialects/Plan/KernelKind.cpp.inc"
#include "dialects/Plan/PlanEnums.cpp.inc"

#include "dialects/Plan/PlanDialect.cpp.inc"

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
  auto add = [&](auto... kinds) { (addKind(kinds), ...); };
  MLIRContext *context = getContext();
  add(LoopKindAttr::get(context), RowKindAttr::get(context), ColumnKindAttr::get(context),
      ContractionKindAttr::get(context), AttentionKindAttr::get(context), PackKindAttr::get(context),
      CallKindAttr::get(context), ConvolutionKindAttr::get(context));
}

KernelKind PlanDialect::findKind(StringRef word) {
  const auto *found = llvm::find_if(kinds, [&](KernelKind kind) { return kind.getWord() == word; });
  return found == kinds.end() ? KernelKind() : *found;
}

bool mlir::disc::isKernelBodyOp(Operation *op) {
  return isView(op) ||
         // Scalars derived from extents, such as 1 / S as a float.
         (isa_and_present<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
          llvm::none_of(op->getResultTypes(), llvm::IsaPred<RankedTensorType>)) ||
         isa<DimOp, arith::ConstantOp, tensor::EmptyOp, linalg::FillOp, linalg::GenericOp, AttentionOp, ConvolutionOp,
             WinogradOp, ConcatOp, RunningSumOp, PackOp, UnpackOp, UnpackFragmentsOp, CallFunctionOp, YieldOp>(op);
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
  return verifySchedule(kernel, kernel.getKind(), kernel.getBody().front(), kernel.getScheduleAttr(),
                        kernel.getVariantsAttr());
}

/// (P18)
static LogicalResult verifyClaims(Operation *op, NamedAttribute attr) {
  auto isListOf = [&](auto isElement) {
    auto list = dyn_cast<ArrayAttr>(attr.getValue());
    return list && llvm::all_of(list, isElement);
  };
  // Keys of maps, whose own marks are the ends of the range of i64.
  auto isNumber = [](int64_t number) { return number >= 0 && llvm::isUInt<32>(number); };
  auto isClaim = [&](Attribute value) {
    auto claim = dyn_cast<ClaimAttr>(value);
    return claim && isNumber(claim.getMatch());
  };
  auto isGroup = [&](Attribute value) {
    auto group = dyn_cast<IntegerAttr>(value);
    return group && group.getType().isInteger(64) && isNumber(group.getInt());
  };
  StringRef name = attr.getName();
  bool ok = name == PlanDialect::getClaimsAttrName()     ? isListOf(isClaim)
            : name == PlanDialect::getRefusalsAttrName() ? isListOf(llvm::IsaPred<RefusalAttr>)
            : name == PlanDialect::getOwnerAttrName()    ? isClaim(attr.getValue())
            : name == PlanDialect::getGroupAttrName()    ? isGroup(attr.getValue())
                                                         : true;
  return ok ? success() : op->emitOpError() << "'" << name << "' has the wrong type or number (P18)";
}

LogicalResult PlanDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  if (failed(verifyClaims(op, attr)) || failed(verifyBuffers(op, attr)))
    return failure();
  if (attr.getName() == TargetAttr::attrName && !isa<TargetAttr>(attr.getValue()))
    return op->emitOpError() << "'" << TargetAttr::attrName << "' must be a target (P10)";
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

YieldOp RegionOp::getYield() { return cast<YieldOp>(getBody().front().getTerminator()); }

SmallVector<SymExpr> RegionOp::getResultDims(unsigned index, DimsQuery &query) {
  return query.dims(getYield().getValues()[index]);
}

SmallVector<Value> RegionOp::getOperandTensors() {
  SetVector<Value> operands;
  for (auto composite : getBody().getOps<CompositeOp>())
    for (Value input : composite.getInputs())
      if (!getBody().isAncestor(input.getParentRegion()))
        operands.insert(input);
  return operands.takeVector();
}

void RegionOp::inlineBody() {
  YieldOp yield = getYield();
  getOutputs().replaceAllUsesWith(yield.getValues());
  yield.erase();
  Block *block = getOperation()->getBlock();
  block->getOperations().splice(Block::iterator(getOperation()), getBody().front().getOperations());
  getOperation()->erase();
}

LogicalResult RegionOp::verify() {
  auto yield = dyn_cast<YieldOp>(getBody().front().getTerminator());
  if (!yield || yield.getValues().getTypes() != getResultTypes())
    return emitOpError("the yielded values do not have the types of the results (P13)");
  for (Operation &op : getBody().front().without_terminator()) {
    auto owner = op.getAttrOfType<ClaimAttr>(PlanDialect::getOwnerAttrName());
    if (!isa<CompositeOp>(op) || !owner || owner.getBackend() != getBackend())
      return emitOpError() << "contains '" << op.getName() << "', which is not a composite of its back end (P14)";
  }
  return success();
}

LogicalResult ExternOp::verify() {
  return getConstants().size() == getConstantTypes().size() ? success()
                                                            : emitOpError("needs a type for each constant (P15)");
}

LogicalResult ExternCallOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto module = (*this)->getParentOfType<ModuleOp>();
  bool ok = module && isa_and_nonnull<ExternOp>(symbols.lookupSymbolIn(module, getCalleeAttr().getAttr()));
  return ok ? success() : emitOpError() << "'" << getCallee() << "' is not a disc_plan.extern (P16)";
}

LogicalResult ExternCallOp::verify() {
  int64_t dynamic = 0;
  for (Type type : getOutputs().getTypes())
    dynamic += cast<RankedTensorType>(type).getNumDynamicDims();
  bool ok = !getOutputs().empty() && dynamic == static_cast<int64_t>(getSizes().size());
  return ok ? success() : emitOpError("needs a result, and a size for each dynamic extent of its results (P17)");
}

SmallVector<SymExpr> ExternCallOp::getResultDims(unsigned index, DimsQuery &query) {
  ValueRange sizes = getSizes();
  for (Type earlier : getOutputs().take_front(index).getTypes())
    sizes = sizes.drop_front(cast<RankedTensorType>(earlier).getNumDynamicDims());
  SmallVector<SymExpr> dims;
  for (int64_t extent : cast<RankedTensorType>(getOutputs()[index].getType()).getShape()) {
    dims.push_back(ShapedType::isDynamic(extent) ? query.expr(sizes.front()) : SymExpr(extent));
    if (ShapedType::isDynamic(extent))
      sizes = sizes.drop_front();
  }
  return dims;
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

SmallVector<SymExpr> CopyTensorOp::getResultDims(unsigned, DimsQuery &) { return getDims().getDims(); }

LogicalResult CopyTensorOp::verify() {
  if (getInput().getType() != getOutput().getType() || !areDimsOf(getDims(), getOutput().getType()))
    return emitOpError("does not have the type of its input, or extents that the type cannot have (P21)");
  return verifyBuffer(*this, getBuffer(), 0);
}

LogicalResult ArenaPartOp::verify() {
  size_t count = getTemporaries().size();
  bool ok = getOffsets().size() == count && cast<ArenaPlanAttr>(getPlan()).getBytes().size() == count;
  return ok ? success() : emitOpError("needs an offset and an entry of the plan for each temporary (P22)");
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
