//===- FoldViews.cpp - views into indexing maps ---------------------------===//
//
// A view that a computation can address through its indexing map need not exist:
//
//   %t = disc_tensor.permute %x [1, 0] : tensor<?x?xf32> -> tensor<?x?xf32>
//   %y = linalg.generic {indexing_maps = [(d0, d1) -> (d0, d1), ...]} ins(%t) ...
// becomes
//   %y = linalg.generic {indexing_maps = [(d0, d1) -> (d1, d0), ...]} ins(%x) ...
//
// Permutations, broadcasts, and reshapes that only add or drop unit dimensions fold; a permutation of a computation's
// only result folds into the map of that result. A reshape of what a computation only widens (static extents) becomes
// one of the narrow elements, so that the conversion fuses with what reads it: groups of codes that share a scale, say.
// Views that stay become strided layouts of kernel operands. Where no layout can express one (a reshape of transposed
// data), or a function returns a view, the elements are copied by an identity linalg.generic, which fuses like any
// other computation.
//
// Test: test/lit/Fusion/fold-views.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Fusion/KernelGroups.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/NamedDims.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "llvm/ADT/SmallBitVector.h"

namespace mlir::disc {
#define GEN_PASS_DEF_FOLDVIEWS
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

static RankedTensorType tensorType(Value v) { return cast<RankedTensorType>(v.getType()); }

/// Every loop dimension must appear as itself in some map, else its extent is lost.
static bool coversLoops(ArrayRef<AffineMap> maps) {
  llvm::SmallBitVector seen(maps.front().getNumDims());
  for (AffineMap map : maps)
    for (AffineExpr e : map.getResults())
      if (auto d = dyn_cast<AffineDimExpr>(e))
        seen.set(d.getPosition());
  return seen.all();
}

/// Indices of the view's source, from those of the view (`index`); nothing if this view cannot be folded.
static std::optional<SmallVector<AffineExpr>> sourceIndices(Operation *view, ArrayRef<AffineExpr> index,
                                                            ShapeAnalysis &shapes) {
  Value source = view->getOperand(0), result = view->getResult(0);
  RankedTensorType from = tensorType(source);
  AffineExpr zero = getAffineConstantExpr(0, view->getContext());
  SmallVector<AffineExpr> out(from.getRank(), zero);
  if (auto permute = dyn_cast<PermuteOp>(view)) {
    for (auto [i, p] : llvm::enumerate(permute.getPermutation()))
      out[p] = index[i];
    return out;
  }
  if (auto broadcast = dyn_cast<BroadcastOp>(view)) {
    for (auto [j, d] : llvm::enumerate(broadcast.getDims()))
      if (from.getDimSize(j) != 1)
        out[j] = index[d];
    return out;
  }
  if (isa<ReshapeOp>(view)) {
    // Only unit dimensions come or go: the others pair up in order.
    SmallVector<SymExpr> a = shapes.dims(source), b = shapes.dims(result);
    size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
      if (i < a.size() && a[i].isConstant(1))
        ++i;
      else if (j < b.size() && b[j].isConstant(1))
        ++j;
      else if (i < a.size() && j < b.size() && shapes.equal(a[i], b[j]))
        out[i++] = index[j++];
      else
        return std::nullopt;
    }
    return out;
  }
  return std::nullopt;
}

/// Folds views that feed `op`; true if anything changed.
static bool foldOperands(linalg::GenericOp op, ShapeAnalysis &shapes) {
  bool changed = false, isProduct = linalg::isaContractionOpInterface(op);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (OpOperand *operand : op.getDpsInputOperands()) {
    Operation *view = operand->get().getDefiningOp();
    if (!view || !isAddressedView(view))
      continue;
    unsigned n = operand->getOperandNumber();
    auto indices = sourceIndices(view, maps[n].getResults(), shapes);
    if (!indices)
      continue;
    SmallVector<AffineMap> trial = maps;
    trial[n] = AffineMap::get(maps[n].getNumDims(), 0, *indices, op.getContext());
    // Products stay products: their operands are read along loops alone.
    if (!coversLoops(trial) || (isProduct && !trial[n].isProjectedPermutation()))
      continue;
    maps = trial;
    operand->set(view->getOperand(0));
    changed = true;
  }
  if (changed)
    op.setIndexingMapsAttr(Builder(op).getAffineMapArrayAttr(maps));
  return changed;
}

/// Whether `op` is a product, or computes each element from one of a product or convolution at the same place, whose
/// columns are its last dimension.
static bool hasColumns(Operation *op) {
  constexpr unsigned most = 64;
  SmallVector<Operation *> worklist{op};
  llvm::SmallPtrSet<Operation *, 16> seen;
  while (!worklist.empty() && seen.size() < most) {
    Operation *next = worklist.pop_back_val();
    if (!next || !seen.insert(next).second)
      continue;
    if (isa<ConvolutionOp>(next))
      return true;
    auto generic = dyn_cast<linalg::GenericOp>(next);
    if (!generic)
      continue;
    AffineMap result = generic.getIndexingMapsArray().back();
    if (generic.getNumReductionLoops()) {
      if (linalg::isaContractionOpInterface(generic) && result.getNumResults() > 1)
        return true;
      continue;
    }
    for (OpOperand *operand : generic.getDpsInputOperands())
      if (generic.getMatchingIndexingMap(operand) == result)
        worklist.push_back(operand->get().getDefiningOp());
  }
  return false;
}

/// permute(generic) with no other use: the generic writes its result in the permuted order.
static bool foldResult(PermuteOp permute, ShapeAnalysis &shapes) {
  auto op = permute.getSource().getDefiningOp<linalg::GenericOp>();
  if (!op || op->getNumResults() != 1 || !op->hasOneUse() || op->getBlock() != permute->getBlock())
    return false;
  // Rows and columns are stored in the order in which they are computed.
  if (op.getNumReductionLoops() && !linalg::isaContractionOpInterface(op))
    return false;
  // Vectors run along a product's columns: where those end up apart, a loop moves whole squares of them faster. The
  // transpose of a matrix is mostly a gradient of weights, which are small.
  int64_t last = tensorType(permute.getSource()).getRank() - 1;
  if (last > 1 && permute.getPermutation().back() != last && !shapes.dims(permute.getSource()).back().isConstant(1) &&
      hasColumns(op))
    return false;
  // A reduction's init would have to be permuted too; fills and empties can be made anew.
  Value init = op.getDpsInits()[0];
  auto fill = init.getDefiningOp<linalg::FillOp>();
  if (!fill && !init.getDefiningOp<tensor::EmptyOp>())
    return false;
  OpBuilder b(op);
  SmallVector<Value> sizes;
  RankedTensorType type = tensorType(permute.getResult());
  SmallVector<SymExpr> dims = shapes.dims(permute.getResult());
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (type.isDynamicDim(i))
      sizes.push_back(DimOp::create(b, op.getLoc(), dims[i]));
  Value empty = tensor::EmptyOp::create(b, op.getLoc(), type, sizes);
  if (fill)
    empty = linalg::FillOp::create(b, op.getLoc(), fill.getInputs()[0], empty).getResult(0);
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  SmallVector<AffineExpr> results;
  for (int64_t p : permute.getPermutation())
    results.push_back(maps.back().getResult(p));
  maps.back() = AffineMap::get(maps.back().getNumDims(), 0, results, op.getContext());
  op.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
  op.getDpsInitsMutable()[0].set(empty);
  op->getResult(0).setType(type);
  setDims(op, dims);
  permute.replaceAllUsesWith(op->getResult(0));
  permute.erase();
  if (op.getNumReductionLoops() && !isContraction(op, shapes)) {
    // Dot products are rows, too: the loops take the order of the result.
    SmallVector<unsigned> order;
    for (AffineExpr e : results)
      order.push_back(cast<AffineDimExpr>(e).getPosition());
    op.getReductionDims(order);
    IRRewriter rewriter(op);
    LogicalResult interchanged = linalg::interchangeGenericOp(rewriter, op, order);
    assert(succeeded(interchanged) && "the result of a contraction has all its parallel loops");
    (void)interchanged;
  }
  return true;
}

static Value copyOf(OpBuilder &b, Location loc, Value v, ShapeAnalysis &shapes) {
  RankedTensorType type = tensorType(v);
  SmallVector<SymExpr> dims = shapes.dims(v);
  SmallVector<Value> sizes;
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (type.isDynamicDim(i))
      sizes.push_back(DimOp::create(b, loc, dims[i]));
  Value empty = tensor::EmptyOp::create(b, loc, type, sizes);
  AffineMap id = b.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
  auto copy = linalg::GenericOp::create(
      b, loc, TypeRange{type}, ValueRange{v}, ValueRange{empty}, ArrayRef<AffineMap>{id, id}, iterators,
      [](OpBuilder &nested, Location at, ValueRange args) { linalg::YieldOp::create(nested, at, args[0]); });
  setDims(copy, dims);
  return copy->getResult(0);
}

/// Whether the computation converts its one operand to wider elements, and does nothing else.
static bool isWidening(linalg::GenericOp op) {
  if (op->getNumResults() != 1 || op.getNumDpsInputs() != 1 || op.getNumReductionLoops() ||
      !llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return false;
  auto from = dyn_cast<RankedTensorType>(op.getDpsInputs()[0].getType());
  auto to = tensorType(op.getResult(0));
  if (!from || !from.getElementType().isIntOrFloat() || !to.getElementType().isIntOrFloat() ||
      from.getElementTypeBitWidth() >= to.getElementTypeBitWidth() || from.getElementType().isInteger(1))
    return false;
  Value v = op.getBody()->getArgument(0);
  for (Operation &inner : op.getBody()->without_terminator()) {
    if (!isa<arith::ExtFOp, arith::ExtSIOp, arith::ExtUIOp, arith::SIToFPOp, arith::UIToFPOp>(inner) ||
        inner.getOperand(0) != v)
      return false;
    v = inner.getResult(0);
  }
  return op.getBody()->getTerminator()->getOperand(0) == v;
}

/// A reshape of a conversion as a conversion of a reshape.
static bool foldConversion(ReshapeOp reshape) {
  auto op = reshape.getSource().getDefiningOp<linalg::GenericOp>();
  auto type = tensorType(reshape.getResult());
  if (!op || !op->hasOneUse() || !type.hasStaticShape() || !tensorType(reshape.getSource()).hasStaticShape() ||
      !isWidening(op))
    return false;
  OpBuilder b(reshape);
  Value input = op.getDpsInputs()[0];
  Value narrow =
      ReshapeOp::create(b, reshape.getLoc(), type.clone(tensorType(input).getElementType()), input, ValueRange());
  Value empty = tensor::EmptyOp::create(b, op.getLoc(), type, ValueRange());
  AffineMap id = b.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
  auto wide = linalg::GenericOp::create(b, op.getLoc(), TypeRange{type}, ValueRange{narrow}, ValueRange{empty},
                                        ArrayRef<AffineMap>{id, id}, iterators);
  IRMapping map;
  op.getRegion().cloneInto(&wide.getRegion(), map);
  reshape.getResult().replaceAllUsesWith(wide.getResult(0));
  reshape.erase();
  return true;
}

namespace {
struct FoldViews : disc::impl::FoldViewsBase<FoldViews> {
  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      run(func);
  }

  void run(func::FuncOp func) {
    ShapeAnalysis shapes(getOperation());
    SmallVector<Block *> blocks = hostBlocks(func);
    for (bool changed = true; changed;) {
      changed = false;
      for (Block *block : blocks)
        for (Operation &op : llvm::make_early_inc_range(*block)) {
          if (auto generic = dyn_cast<linalg::GenericOp>(op))
            changed |= foldOperands(generic, shapes);
          else if (auto permute = dyn_cast<PermuteOp>(op))
            changed |= foldResult(permute, shapes);
          else if (auto reshape = dyn_cast<ReshapeOp>(op))
            changed |= foldConversion(reshape);
        }
    }
    eraseDead(func);
    for (Block *block : blocks) {
      materialize(*block, shapes);
      ownResults(*block, shapes);
    }
    // A copy may itself read through a view that folds.
    for (Block *block : blocks)
      for (auto generic : block->getOps<linalg::GenericOp>())
        while (foldOperands(generic, shapes)) {
        }
    eraseDead(func);
  }

  void materialize(Block &block, ShapeAnalysis &shapes) {
    // Constants and fills live inside the kernels that read them; what addresses a buffer needs one.
    for (Operation &op : llvm::make_early_inc_range(block)) {
      auto generic = dyn_cast<linalg::GenericOp>(op);
      bool addresses =
          isView(&op) ||
          isa<AttentionOp, ConvolutionOp, ConcatOp, RunningSumOp, CallFunctionOp, BindOp, BranchOp, TensorYieldOp>(
              op) ||
          isa<LoopOp, NextOp, InvokeOp>(op) || (generic && linalg::isaContractionOpInterface(generic));
      if (!addresses)
        continue;
      OpBuilder b(&op);
      for (OpOperand &operand : op.getOpOperands()) {
        Operation *def = operand.get().getDefiningOp();
        if (def && isa<RankedTensorType>(operand.get().getType()) && isCloned(def) &&
            !(generic && generic.isDpsInit(&operand)))
          operand.set(copyOf(b, op.getLoc(), operand.get(), shapes));
      }
    }
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (!isAddressedView(&op) || viewLayout(op.getResult(0), shapes))
        continue;
      OpBuilder b(&op);
      op.setOperand(0, copyOf(b, op.getLoc(), op.getOperand(0), shapes));
    }
  }

  /// True if the elements of `v` are all those of its buffer, in its order.
  static bool isWhole(Value v, ShapeAnalysis &shapes) {
    auto layout = viewLayout(v, shapes);
    SymExpr elements = SymExpr::product(shapes.dims(v));
    // Of nothing, the extents that are not 0 may wait for a bind that what computes it does not wait for.
    return layout && layout->isContiguous(shapes.dims(v)) && !elements.isConstant(0) &&
           elements == SymExpr::product(shapes.dims(viewBase(v)));
  }

  /// What leaves a block, or enters a loop or a procedure, are dense buffers; what leaves a function or a step has one
  /// of its own.
  static void ownResults(Block &block, ShapeAnalysis &shapes) {
    for (auto loop : llvm::make_early_inc_range(block.getOps<LoopOp>())) {
      OpBuilder b(loop);
      for (OpOperand &init : loop.getInitsMutable())
        if (!isWhole(init.get(), shapes))
          init.set(copyOf(b, loop.getLoc(), init.get(), shapes));
    }
    for (auto invoke : llvm::make_early_inc_range(block.getOps<InvokeOp>())) {
      OpBuilder b(invoke);
      for (OpOperand &input : invoke.getInputsMutable())
        if (!isWhole(input.get(), shapes))
          input.set(copyOf(b, invoke.getLoc(), input.get(), shapes));
    }
    Operation *terminator = block.getTerminator();
    OpBuilder b(terminator);
    if (auto yield = dyn_cast<TensorYieldOp>(terminator)) {
      for (OpOperand &value : yield.getValuesMutable())
        if (!isWhole(value.get(), shapes))
          value.set(copyOf(b, terminator->getLoc(), value.get(), shapes));
      return;
    }
    // A carried tensor may be stacked as well: the next step reads it where the stack holds it.
    unsigned carried = 0;
    MutableOperandRange values(terminator);
    if (auto loop = dyn_cast<LoopOp>(block.getParentOp())) {
      carried = loop.getNumCarried();
      values = loop.getNext().getValuesMutable();
    }
    llvm::SmallDenseSet<Value> taken, takenByCarried;
    SmallVector<OpOperand *> operands;
    for (OpOperand &operand : values)
      operands.push_back(&operand);
    std::rotate(operands.begin(), operands.begin() + carried, operands.end());
    for (OpOperand *operand : operands) {
      if (!isa<RankedTensorType>(operand->get().getType()))
        continue;
      Value base = viewBase(operand->get());
      Operation *def = base.getDefiningOp();
      bool computed = def && def->getBlock() == &block && !isa<ParameterOp, GlobalLoadOp>(def) && !isCloned(def);
      // Where the last step left a carried tensor, or whether there was one, is known when the model runs.
      if (auto loop = dyn_cast_or_null<LoopOp>(def))
        computed = isa<func::ReturnOp>(terminator) && !loop.getCondition() &&
                   cast<OpResult>(base).getResultNumber() >= loop.getNumCarried();
      bool isCarried = operand->getOperandNumber() < carried;
      bool free = isCarried ? takenByCarried.insert(base).second : taken.insert(base).second;
      if (isCarried && taken.contains(base))
        free &= llvm::is_contained(loopStacks(terminator), operand->get());
      if (computed && free && isWhole(operand->get(), shapes))
        continue;
      operand->set(copyOf(b, terminator->getLoc(), operand->get(), shapes));
    }
  }

  /// What a step gives to be stacked.
  static OperandRange loopStacks(Operation *terminator) {
    auto next = cast<NextOp>(terminator);
    return next.getValues().drop_front(cast<LoopOp>(next->getParentOp()).getNumCarried());
  }
};
} // namespace
