//===- FuseRounding.cpp - values that are stored rounded ------------------===//
//
//   %y = disc_plan.kernel row ins(%x : tensor<?x384xf32>) -> tensor<?x384xf32> { ... disc_plan.yield %v }
//   %r = disc_plan.kernel loop ins(%y : tensor<?x384xf32>) -> tensor<?x384xbf16> { ... arith.truncf ... }
// becomes
//   %y, %r = disc_plan.kernel row ins(%x : tensor<?x384xf32>) -> tensor<?x384xf32>, tensor<?x384xbf16> {
//     ...
//     %w = linalg.generic ins(%v) ... arith.truncf
//     disc_plan.yield %v, %w
//   }
// and %y is no result of the kernel if nobody else reads it.
//
// PackWeights.cpp puts a kernel before products that rounds their left operand. Often another kernel has just computed
// it, which then stores the rounded value itself: memory is read once less, and half as much is written where
// only products read the value. Reshapes in between are those of the rounded value then. Kernels of loops, rows,
// products and convolutions can do so, with values that they compute element by element.
//
// Test: test/lit/Schedule/fuse-rounding.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::disc {
#define GEN_PASS_DEF_FUSEROUNDING
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
/// The computation of a kernel that only rounds its one input; null of any other kernel.
linalg::GenericOp roundingOf(KernelOp kernel) {
  if (!isa<LoopKindAttr>(kernel.getKind()) || kernel.getInputs().size() != 1 || kernel.getOutputs().size() != 1)
    return {};
  auto generic = kernel.getYield().getValues()[0].getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumDpsInputs() != 1 || !isa<BlockArgument>(generic.getDpsInputs()[0]) ||
      generic.getNumParallelLoops() != generic.getNumLoops() ||
      !llvm::all_of(generic.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return {};
  Block &body = *generic.getBody();
  auto rounding = dyn_cast<arith::TruncFOp>(body.front());
  bool isAll = rounding && rounding.getIn() == body.getArgument(0) &&
               body.getTerminator()->getOperand(0) == rounding.getOut() && rounding->getNextNode() == &body.back();
  return isAll ? generic : linalg::GenericOp();
}

/// Whether a kernel can store what it yields rounded, too.
bool canRound(KernelOp kernel, Value yielded) {
  if (isa<ContractionKindAttr, ConvolutionKindAttr>(kernel.getKind()))
    return isa_and_present<linalg::GenericOp, ConvolutionOp>(yielded.getDefiningOp());
  auto generic = yielded.getDefiningOp<linalg::GenericOp>();
  return isa<LoopKindAttr, RowKindAttr>(kernel.getKind()) && generic &&
         generic.getNumParallelLoops() == generic.getNumLoops();
}

/// The kernel with other results, in its place; it takes the body of `kernel`, which is left for the caller to erase.
KernelOp withResults(KernelOp kernel, ArrayRef<Value> yielded) {
  OpBuilder b(kernel);
  SmallVector<Type> types = llvm::to_vector(llvm::map_range(yielded, [](Value v) { return v.getType(); }));
  auto other = KernelOp::create(b, kernel.getLoc(), types, kernel.getInputs(), kernel->getAttrs());
  other.getBody().takeBody(kernel.getBody());
  other.getYield().getValuesMutable().assign(yielded);
  return other;
}

struct FuseRounding : disc::impl::FuseRoundingBase<FuseRounding> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    ShapeAnalysis shapes(module);
    SmallVector<KernelOp> kernels;
    for (auto func : module.getOps<func::FuncOp>())
      func.walk([&](KernelOp kernel) { kernels.push_back(kernel); });
    for (KernelOp kernel : kernels)
      if (linalg::GenericOp rounding = roundingOf(kernel))
        fuse(kernel, rounding, shapes);
    // Nothing is erased while extents are asked for, which are remembered by operation.
    for (Operation *op : llvm::reverse(done))
      op->erase();
    for (auto func : module.getOps<func::FuncOp>())
      eraseDead(func);
    SmallVector<KernelOp> extended;
    module.walk([&](KernelOp kernel) {
      if (llvm::is_contained(fused, kernel.getOperation()))
        extended.push_back(kernel);
    });
    for (KernelOp kernel : extended)
      dropUnread(kernel);
  }

private:
  void fuse(KernelOp kernel, linalg::GenericOp rounding, ShapeAnalysis &shapes);
  void dropUnread(KernelOp kernel);

  SmallVector<Operation *> done;  // to be erased
  SmallVector<Operation *> fused; // kernels with results that are rounded
  llvm::DenseMap<Value, Value> rounded;
};

void FuseRounding::fuse(KernelOp kernel, linalg::GenericOp rounding, ShapeAnalysis &shapes) {
  SmallVector<ReshapeOp> views; // last first
  Value whole = kernel.getInputs()[0];
  while (auto view = whole.getDefiningOp<ReshapeOp>()) {
    views.push_back(view);
    whole = view.getSource();
  }
  auto source = whole.getDefiningOp<KernelOp>();
  if (!source || source->getBlock() != kernel->getBlock())
    return;
  Type element = getElementTypeOrSelf(kernel.getOutputs()[0].getType());
  Value narrow = rounded.lookup(whole);
  if (narrow && getElementTypeOrSelf(narrow.getType()) != element)
    return;
  if (!narrow) {
    unsigned number = cast<OpResult>(whole).getResultNumber();
    SmallVector<Value> yielded(source.getYield().getValues());
    Value own = yielded[number];
    if (!canRound(source, own))
      return;
    Location loc = rounding.getLoc();
    OpBuilder b(source.getYield());
    auto type = cast<RankedTensorType>(own.getType());
    auto narrowType = RankedTensorType::get(type.getShape(), element);
    SmallVector<SymExpr> dims = shapes.dims(whole);
    SmallVector<Value> sizes;
    for (int64_t i = 0; i < type.getRank(); ++i)
      if (type.isDynamicDim(i))
        sizes.push_back(DimOp::create(b, loc, dims[i]));
    Value empty = tensor::EmptyOp::create(b, loc, narrowType, sizes);
    AffineMap id = b.getMultiDimIdentityMap(type.getRank());
    SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
    auto copy = linalg::GenericOp::create(b, loc, TypeRange{narrowType}, ValueRange{own}, ValueRange{empty},
                                          ArrayRef<AffineMap>{id, id}, iterators,
                                          [&](OpBuilder &nested, Location at, ValueRange args) {
                                            Operation *round = nested.clone(rounding.getBody()->front());
                                            round->setOperand(0, args[0]);
                                            linalg::YieldOp::create(nested, at, round->getResult(0));
                                          });
    yielded.push_back(copy.getResult(0));
    KernelOp other = withResults(source, yielded);
    for (auto [from, to] : llvm::zip(source.getResults(), other.getResults())) {
      if (Value known = rounded.lookup(from))
        rounded[to] = known;
      from.replaceAllUsesWith(to);
    }
    done.push_back(source);
    llvm::erase(fused, source.getOperation());
    fused.push_back(other);
    whole = other.getResult(number), narrow = other.getResults().back();
    // Other results that are rounded have moved as well.
    for (auto &[key, value] : rounded)
      if (value.getDefiningOp() == source.getOperation())
        value = other.getResult(cast<OpResult>(value).getResultNumber());
    rounded[whole] = narrow;
  }
  OpBuilder b(kernel);
  for (ReshapeOp view : llvm::reverse(views)) {
    auto type = RankedTensorType::get(view.getType().getShape(), element);
    narrow = ReshapeOp::create(b, view.getLoc(), type, narrow, view.getSizes());
  }
  kernel.getOutputs()[0].replaceAllUsesWith(narrow);
  done.push_back(kernel);
}

void FuseRounding::dropUnread(KernelOp kernel) {
  SmallVector<Value> yielded, results;
  for (auto [value, result] : llvm::zip(kernel.getYield().getValues(), kernel.getResults()))
    if (!result.use_empty()) {
      yielded.push_back(value);
      results.push_back(result);
    }
  if (results.size() == kernel.getNumResults() || results.empty())
    return;
  KernelOp other = withResults(kernel, yielded);
  for (auto [from, to] : llvm::zip(results, other.getResults()))
    from.replaceAllUsesWith(to);
  kernel.erase();
}
} // namespace
