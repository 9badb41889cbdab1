//===- InPlace.cpp - results in the storage of operands -------------------===//
//
// The walk below follows values from what is stored back to the kernel's inputs, and keeps one fact: whether an element
// at row-major position p of the result is computed from the element at position p of the value, or from others. An
// input that is dense and only ever reached at "the same position" is safe.
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/InPlace.h"

#include "dialects/Plan/Layout.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Schedule/ContractionInfo.h"
#include "lib/Transforms/Support/ReductionPlan.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::disc;

#include "lib/Transforms/Memory/Kinds.cpp.inc"

namespace {
class PositionWalk {
public:
  PositionWalk(KernelFuncOp kernel, ShapeAnalysis &shapes)
      : kernel(kernel), shapes(shapes), reached(kernel.getNumInputs()), elsewhere(kernel.getNumInputs()) {}

  void visit(Value v, bool same);
  void visitInputs(linalg::GenericOp op, ArrayRef<AffineExpr> at, bool same);
  bool isSafe(unsigned input) const { return reached.test(input) && !elsewhere.test(input); }
  /// Whether reductions that were met are read at the same positions.
  bool reductionsAreInOrder() const { return inOrder; }

private:
  /// The map's results without those for dimensions of one element.
  SmallVector<AffineExpr> moving(AffineMap map, Value tensor) {
    SmallVector<AffineExpr> out;
    for (auto [e, extent] : llvm::zip(map.getResults(), shapes.dims(tensor)))
      if (!extent.isConstant(1))
        out.push_back(e);
    return out;
  }

  KernelFuncOp kernel;
  ShapeAnalysis &shapes;
  llvm::SmallBitVector reached, elsewhere;
  bool inOrder = true;
  llvm::DenseSet<std::pair<Value, int>> seen;
};
} // namespace

/// `at`: which loops, outermost first, the position runs over; those not mentioned have extent 1.
void PositionWalk::visitInputs(linalg::GenericOp op, ArrayRef<AffineExpr> at, bool same) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()) || op.getMatchingBlockArgument(&operand).use_empty())
      continue;
    if (op.isDpsInit(&operand) && op.getNumReductionLoops()) {
      visit(operand.get(), false);
      continue;
    }
    visit(operand.get(), same && ArrayRef(moving(op.getMatchingIndexingMap(&operand), operand.get())) == at);
  }
  op.getBody()->walk([&](tensor::ExtractOp extract) { visit(extract.getTensor(), false); });
}

void PositionWalk::visit(Value v, bool same) {
  if (!seen.insert({v, same}).second)
    return;
  if (auto arg = dyn_cast<BlockArgument>(v)) {
    unsigned i = arg.getArgNumber();
    reached.set(i);
    if (!same || !Layout::get(kernel.getLayout(i)).isContiguous(shapes.dims(v)))
      elsewhere.set(i);
    return;
  }
  Operation *op = v.getDefiningOp();
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    // Inputs of a reduction have been visited on their own: they are read by an earlier pass.
    if (generic.getNumReductionLoops()) {
      inOrder &= same;
      return;
    }
    AffineMap map = generic.getIndexingMapMatchingResult(cast<OpResult>(v));
    visitInputs(generic, moving(map, v), same);
    return;
  }
  for (Value operand : op->getOperands())
    if (isa<RankedTensorType>(operand.getType()))
      visit(operand, same && isa<ReshapeOp>(op));
}

static bool isOnDevice(KernelFuncOp kernel) { return !TargetAttr::of(kernel).getDevice().empty(); }

using Operands = SmallVector<SmallVector<unsigned>>;

/// Of the `writable` results, those that are dense, with the inputs that the walk found safe.
static Operands safeOperands(KernelFuncOp kernel, const PositionWalk &walk, ArrayRef<bool> writable,
                             ShapeAnalysis &shapes) {
  Operands result(kernel.getNumResults());
  auto bytes = [](Value v) {
    return llvm::divideCeil(cast<RankedTensorType>(v.getType()).getElementType().getIntOrFloatBitWidth(), 8);
  };
  for (auto [r, v] : llvm::enumerate(kernel.getYield().getValues())) {
    if (!writable[r] || !Layout::get(kernel.getLayout(kernel.getNumInputs() + r)).isContiguous(shapes.dims(v)))
      continue;
    SymExpr size = SymExpr::product(shapes.dims(v));
    for (BlockArgument arg : kernel.getBody().getArguments())
      if (walk.isSafe(arg.getArgNumber()) && bytes(arg) == bytes(v) &&
          shapes.equal(SymExpr::product(shapes.dims(arg)), size))
        result[r].push_back(arg.getArgNumber());
  }
  return result;
}

namespace {
/// Functions see to it themselves, of this operand alone: x.scatter(0, i, x) reads what it has written. They write
/// row-major results.
struct CallInPlace : InPlaceKind::ExternalModel<CallInPlace, CallKindAttr> {
  Operands inPlaceOperands(Attribute, KernelFuncOp kernel, ShapeAnalysis &shapes) const {
    Operands result(kernel.getNumResults());
    auto call = kernel.getYield().getValues()[0].getDefiningOp<CallFunctionOp>();
    auto arg = call && call.getInPlace() ? dyn_cast<BlockArgument>(call.getInputs()[0]) : BlockArgument();
    if (arg && arg.hasOneUse() && Layout::get(kernel.getLayout(arg.getArgNumber())).isContiguous(shapes.dims(arg)))
      result[0].push_back(arg.getArgNumber());
    return result;
  }
};

struct LoopInPlace : InPlaceKind::ExternalModel<LoopInPlace, LoopKindAttr> {
  Operands inPlaceOperands(Attribute, KernelFuncOp kernel, ShapeAnalysis &shapes) const {
    PositionWalk walk(kernel, shapes);
    for (Value v : kernel.getYield().getValues())
      walk.visit(v, true);
    return safeOperands(kernel, walk, SmallVector<bool>(kernel.getNumResults(), true), shapes);
  }
};

struct RowInPlace : InPlaceKind::ExternalModel<RowInPlace, RowKindAttr> {
  Operands inPlaceOperands(Attribute, KernelFuncOp kernel, ShapeAnalysis &shapes) const {
    FailureOr<ReductionPlan> plan = ReductionPlan::get(kernel, kernel.getBody().front(), shapes);
    if (failed(plan))
      return Operands(kernel.getNumResults());
    PositionWalk walk(kernel, shapes);
    for (PlannedReduction &reduction : plan->reductions) {
      SmallVector<AffineExpr> loops;
      for (auto [d, extent] : llvm::enumerate(plan->domain))
        if (!extent.isConstant(1))
          loops.push_back(getAffineDimExpr(d, kernel.getContext()));
      walk.visitInputs(reduction.op, loops, reduction.parallel == plan->parallel && reduction.reduced == plan->reduced);
    }
    SmallVector<bool> writable(kernel.getNumResults(), true);
    for (const PlannedResult &r : plan->results) {
      SmallVector<SymExpr> dims = shapes.dims(r.base);
      bool inOrder = dims.size() == plan->domain.size() && llvm::all_of(llvm::zip(dims, plan->domain), [&](auto pair) {
                       return shapes.equal(std::get<0>(pair), std::get<1>(pair));
                     });
      inOrder &= llvm::all_of(r.views, llvm::IsaPred<ReshapeOp>);
      walk.visit(r.base, r.isFull && inOrder);
      // Only what the last pass stores comes after all reads, and only if that pass reduces nothing itself.
      writable[r.number] = r.isFull && inOrder && r.pass == plan->numPasses &&
                           llvm::all_of(plan->reductions, [&](const auto &x) { return x.pass < r.pass; });
    }
    return safeOperands(kernel, walk, writable, shapes);
  }
};

struct ContractionInPlace : InPlaceKind::ExternalModel<ContractionInPlace, ContractionKindAttr> {
  Operands inPlaceOperands(Attribute, KernelFuncOp kernel, ShapeAnalysis &shapes) const {
    Operands nothing(kernel.getNumResults());
    if (isOnDevice(kernel))
      return nothing;
    FailureOr<std::vector<ContractionPart>> parts = contractionParts(kernel, kernel.getBody().front(), shapes);
    // The tiles of different parts are computed at different times.
    if (failed(parts) || parts->size() != 1)
      return nothing;
    PositionWalk walk(kernel, shapes);
    for (ContractionInfo &product : parts->front().products)
      for (Value operand : product.op.getInputs())
        walk.visit(operand, false);
    // Then the results have the same positions at a point.
    for (Value v : kernel.getYield().getValues())
      walk.visit(v, true);
    if (!walk.reductionsAreInOrder())
      return nothing;
    return safeOperands(kernel, walk, SmallVector<bool>(kernel.getNumResults(), true), shapes);
  }
};
} // namespace

void disc::registerInPlaceKinds(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, PlanDialect *) {
    CallKindAttr::attachInterface<CallInPlace>(*context);
    LoopKindAttr::attachInterface<LoopInPlace>(*context);
    RowKindAttr::attachInterface<RowInPlace>(*context);
    ContractionKindAttr::attachInterface<ContractionInPlace>(*context);
  });
}

Operands disc::inPlaceOperands(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  auto kind = dyn_cast<InPlaceKind>(kernel.getKind());
  return kind ? kind.inPlaceOperands(kernel, shapes) : Operands(kernel.getNumResults());
}

ArrayRef<SmallVector<unsigned>> InPlaceKernels::operator()(CallOp call) {
  auto callee = module.lookupSymbol<KernelFuncOp>(call.getCallee());
  auto [result, isNew] = known.try_emplace(callee);
  if (isNew && callee)
    result->second = inPlaceOperands(callee, shapes);
  return result->second;
}

bool InPlaceKernels::covers(CallOp call, Value operand, ArrayRef<unsigned> inputs) {
  return llvm::all_of(llvm::enumerate(call.getInputs()), [&](auto other) {
    return other.value() != operand || llvm::is_contained(inputs, other.index());
  });
}
