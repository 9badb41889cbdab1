//===- ChannelsLast.cpp - one layout for what lies between convolutions ---===//
//
//   %a = disc_tensor.convolution ...                                    // [N, H, W, C]
//   %b = disc_tensor.permute %a [0, 3, 1, 2]                            // torch's order
//   %c = linalg.generic {(n, c, h, w) -> (n, c, h, w)} ins(%b) ... relu
//   %d = disc_tensor.permute %c [0, 2, 3, 1]
//   %e = disc_tensor.convolution %d, ...
// becomes
//   %c = linalg.generic {(n, h, w, c) -> (n, h, w, c)} ins(%a) ... relu
//   %e = disc_tensor.convolution %c, ...
//
// Convolutions and pooling have their channels last and permutations around them. This pass moves permutations from
// what computations read to what they give, through elementwise work, reads by index (upsampling, padding),
// concatenations and slices, until they meet and cancel, or come to the borders of the net. Reductions keep their
// results, but run over their input in the order in which it lies, where that is an order for the result, too.
//
// Test: test/lit/Fusion/channels-last.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/NamedDims.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::disc {
#define GEN_PASS_DEF_CHANNELSLAST
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
using Permutation = SmallVector<int64_t>;

int64_t rankOf(Value v) { return cast<RankedTensorType>(v.getType()).getRank(); }

/// [0, 2, ..., rank - 1, 1]: from torch's order to channels last.
Permutation toLast(int64_t rank) {
  Permutation out{0};
  for (int64_t d = 2; d < rank; ++d)
    out.push_back(d);
  out.push_back(1);
  return out;
}

/// [0, rank - 1, 1, ...]: back.
Permutation toFirst(int64_t rank) {
  Permutation out{0, rank - 1};
  for (int64_t d = 1; d + 1 < rank; ++d)
    out.push_back(d);
  return out;
}

/// Otherwise it is an input of the net, whose order says nothing of what follows.
bool isComputed(Value v) {
  Operation *def = v.getDefiningOp();
  return def && !isa<ParameterOp>(def);
}

/// What `v` is a view of, if it is a tensor with channels last in torch's order; else null.
Value channelsLast(Value v) {
  auto permute = v.getDefiningOp<PermuteOp>();
  if (!permute || rankOf(v) < 3 || permute.getPermutation() != ArrayRef<int64_t>(toFirst(rankOf(v))))
    return {};
  return isComputed(permute.getSource()) ? permute.getSource() : Value();
}

struct Rewriter {
  ShapeAnalysis &shapes;

  PermuteOp permute(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> permutation) {
    SmallVector<int64_t> shape;
    SmallVector<SymExpr> from = shapes.dims(v), dims;
    for (int64_t p : permutation) {
      shape.push_back(cast<RankedTensorType>(v.getType()).getDimSize(p));
      dims.push_back(from[p]);
    }
    auto op =
        PermuteOp::create(b, loc, RankedTensorType::get(shape, getElementTypeOrSelf(v.getType())), v, permutation);
    setDims(op, dims);
    return op;
  }

  /// Loop `order[i]` becomes loop `i`.
  static void reorder(linalg::GenericOp op, ArrayRef<int64_t> order) {
    MLIRContext *context = op.getContext();
    SmallVector<AffineExpr> dims(order.size());
    for (auto [to, from] : llvm::enumerate(order))
      dims[from] = getAffineDimExpr(to, context);
    SmallVector<AffineMap> maps;
    for (AffineMap map : op.getIndexingMapsArray())
      maps.push_back(map.replaceDimsAndSymbols(dims, {}, order.size(), 0));
    SmallVector<Attribute> types;
    for (int64_t from : order)
      types.push_back(op.getIteratorTypes()[from]);
    Builder b(context);
    op.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
    op.setIteratorTypesAttr(b.getArrayAttr(types));
    op.getBody()->walk(
        [&](linalg::IndexOp index) { index.setDim(cast<AffineDimExpr>(dims[index.getDim()]).getPosition()); });
  }

  /// Inputs that are permutations are read as what they permute.
  static void readThrough(linalg::GenericOp op) {
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    for (OpOperand *operand : op.getDpsInputOperands()) {
      auto view = operand->get().getDefiningOp<PermuteOp>();
      if (!view)
        continue;
      AffineMap &map = maps[operand->getOperandNumber()];
      SmallVector<AffineExpr> results(map.getNumResults());
      for (auto [i, p] : llvm::enumerate(view.getPermutation()))
        results[p] = map.getResult(i);
      map = AffineMap::get(map.getNumDims(), 0, results, op.getContext());
      operand->set(view.getSource());
    }
    op.setIndexingMapsAttr(Builder(op).getAffineMapArrayAttr(maps));
    op.getBody()->walk([](tensor::ExtractOp extract) {
      auto view = extract.getTensor().getDefiningOp<PermuteOp>();
      if (!view)
        return;
      SmallVector<Value> indices(extract.getIndices());
      for (auto [i, p] : llvm::enumerate(view.getPermutation()))
        indices[p] = extract.getIndices()[i];
      extract.getTensorMutable().set(view.getSource());
      extract.getIndicesMutable().assign(indices);
    });
  }

  /// Whether an input that covers all loops in order, or something read by index, has its channels last.
  static bool readsChannelsLast(linalg::GenericOp op) {
    int64_t loops = op.getNumLoops();
    for (OpOperand *operand : op.getDpsInputOperands())
      if (isa<RankedTensorType>(operand->get().getType()) && channelsLast(operand->get()) &&
          op.getMatchingIndexingMap(operand).isIdentity())
        return true;
    bool found = false;
    op.getBody()->walk([&](tensor::ExtractOp extract) {
      found |= rankOf(extract.getTensor()) == loops && channelsLast(extract.getTensor());
    });
    return found;
  }

  /// The loops of a reduction in the order in memory of what it reads, if that is a permutation; empty if it is not.
  /// Where the last one is summed, those that are not come first: vectors run along sums of one result then.
  Permutation orderInMemory(linalg::GenericOp op) {
    if (readsChannelsLast(op))
      return toLast(op.getNumLoops());
    for (OpOperand *operand : op.getDpsInputOperands()) {
      auto view = operand->get().getDefiningOp<PermuteOp>();
      if (!view || !isComputed(view.getSource()) || !op.getMatchingIndexingMap(operand).isIdentity())
        continue;
      Permutation order(op.getNumLoops());
      for (auto [i, p] : llvm::enumerate(view.getPermutation()))
        order[p] = i;
      auto isSummed = [&](int64_t loop) { return op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction; };
      SmallVector<SymExpr> dims = shapes.dims(operand->get());
      auto found = llvm::find_if(llvm::reverse(order), [&](int64_t loop) { return !dims[loop].isConstant(1); });
      bool endsInSum = found != order.rend() && isSummed(*found);
      auto split = [&](auto first) {
        Permutation out;
        llvm::copy_if(order, std::back_inserter(out), first);
        llvm::copy_if(order, std::back_inserter(out), [&](int64_t loop) { return !first(loop); });
        order = out;
      };
      // A sum over one element is no reason to run along it.
      split([&](int64_t loop) { return isSummed(loop) && dims[loop].isConstant(1); });
      if (endsInSum)
        split([&](int64_t loop) { return !isSummed(loop); });
      return order;
    }
    return {};
  }

  /// A reshape that splits the channels, and at most makes one dimension of those behind them, is one of what lies in
  /// memory, with a permutation behind it.
  bool visit(ReshapeOp op) {
    Value source = channelsLast(op.getSource());
    if (!source)
      return false;
    SmallVector<SymExpr> from = shapes.dims(op.getSource()), to = shapes.dims(op.getResult());
    if (to.size() < 3 || !shapes.equal(from[0], to[0]) || !from[1].isConstant())
      return false;
    size_t behind = 1;
    int64_t channels = 1;
    for (; behind < to.size() && to[behind].isConstant() && channels < from[1].constant(); ++behind)
      channels *= to[behind].constant();
    // Groups of one channel: a dimension of one element is a part of the channels if it is not needed behind them.
    auto rest = [&] { return ArrayRef(to).drop_front(behind); };
    ArrayRef<SymExpr> spatial = ArrayRef(from).drop_front(2);
    SymExpr all(1);
    for (const SymExpr &extent : spatial)
      all *= extent;
    auto fits = [&] {
      return (rest().size() == 1 && shapes.equal(rest()[0], all)) ||
             (rest().size() == spatial.size() && llvm::all_of(llvm::zip(rest(), spatial), [&](auto pair) {
                return shapes.equal(std::get<0>(pair), std::get<1>(pair));
              }));
    };
    while (channels == from[1].constant() && !fits() && behind < to.size() && to[behind].isConstant(1))
      ++behind;
    if (channels != from[1].constant() || !fits())
      return false;

    // [n, rest..., split channels...]
    Permutation order{0}, back{0};
    for (size_t d = behind; d < to.size(); ++d)
      order.push_back(d);
    for (size_t d = 1; d < behind; ++d)
      order.push_back(d), back.push_back(int64_t(to.size() - behind + d));
    for (size_t d = behind; d < to.size(); ++d)
      back.push_back(int64_t(d - behind + 1));
    auto type = cast<RankedTensorType>(op.getResult().getType());
    SmallVector<int64_t> shape;
    SmallVector<SymExpr> dims;
    SmallVector<Value> sizes;
    for (int64_t d : order) {
      shape.push_back(type.getDimSize(d));
      dims.push_back(to[d]);
      if (type.isDynamicDim(d))
        sizes.push_back(op.getSizes()[llvm::count_if(type.getShape().take_front(d), ShapedType::isDynamic)]);
    }
    OpBuilder b(op);
    auto moved = ReshapeOp::create(b, op.getLoc(), RankedTensorType::get(shape, type.getElementType()), source, sizes);
    setDims(moved, dims);
    op.replaceAllUsesWith(permute(b, op.getLoc(), moved, back).getResult());
    op.erase();
    return true;
  }

  /// Whether the result of a reduction still has its dimensions in the order of the loops, if they are in this order.
  static bool staysInOrder(linalg::GenericOp op, ArrayRef<int64_t> order) {
    SmallVector<int64_t> places;
    for (AffineExpr e : op.getIndexingMapsArray().back().getResults())
      if (auto dim = dyn_cast<AffineDimExpr>(e))
        places.push_back(llvm::find(order, int64_t(dim.getPosition())) - order.begin());
    return llvm::is_sorted(places);
  }

  bool visit(linalg::GenericOp op) {
    int64_t rank = op.getNumLoops();
    if (rank < 3 || op->getNumResults() != 1)
      return false;
    if (op.getNumReductionLoops()) {
      Permutation order = orderInMemory(op);
      if (linalg::isaContractionOpInterface(op) || order.empty() || !staysInOrder(op, order))
        return false;
      reorder(op, order);
      readThrough(op);
      return true;
    }
    if (!readsChannelsLast(op))
      return false;
    AffineMap result = op.getIndexingMapsArray().back();
    auto empty = op.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>();
    if (!result.isIdentity() || !empty)
      return false;
    OpBuilder b(op);
    Permutation order = toLast(rank);
    SmallVector<SymExpr> from = shapes.dims(op->getResult(0)), dims;
    SmallVector<int64_t> shape;
    SmallVector<Value> sizes;
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    for (int64_t p : order) {
      dims.push_back(from[p]);
      shape.push_back(type.getDimSize(p));
      if (type.isDynamicDim(p))
        sizes.push_back(empty.getDynamicSize(p));
    }
    auto permuted = RankedTensorType::get(shape, type.getElementType());
    op.getDpsInitsMutable()[0].set(tensor::EmptyOp::create(b, op.getLoc(), permuted, sizes));
    reorder(op, order);
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    maps.back() = AffineMap::getMultiDimIdentityMap(rank, op.getContext());
    op.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
    op->getResult(0).setType(permuted);
    setDims(op, dims);
    readThrough(op);
    b.setInsertionPointAfter(op);
    PermuteOp back = permute(b, op.getLoc(), op->getResult(0), toFirst(rank));
    op->getResult(0).replaceAllUsesExcept(back, back);
    return true;
  }

  bool visit(ConcatOp op) {
    int64_t rank = rankOf(op.getResult());
    int64_t last = llvm::count_if(op.getInputs(), [](Value v) { return bool(channelsLast(v)); });
    // With three dims the two orders are each other's inverse: only a majority makes permutations fewer, and an end.
    if (last == 0 || rank < 3 || (rank == 3 && 2 * last <= int64_t(op.getInputs().size())))
      return false;
    OpBuilder b(op);
    Permutation order = toLast(rank);
    SmallVector<Value> inputs;
    for (Value input : op.getInputs()) {
      Value source = channelsLast(input);
      inputs.push_back(source ? source : permute(b, op.getLoc(), input, order).getResult());
    }
    SmallVector<SymExpr> from = shapes.dims(op.getResult()), dims;
    SmallVector<int64_t> shape;
    auto type = cast<RankedTensorType>(op.getResult().getType());
    int64_t dim = 0;
    for (auto [i, p] : llvm::enumerate(order)) {
      dims.push_back(from[p]);
      shape.push_back(type.getDimSize(p));
      if (p == int64_t(op.getDim()))
        dim = i;
    }
    auto joined = ConcatOp::create(b, op.getLoc(), RankedTensorType::get(shape, type.getElementType()), inputs, dim);
    setDims(joined, dims);
    op.replaceAllUsesWith(permute(b, op.getLoc(), joined.getResult(), toFirst(rank)).getResult());
    op.erase();
    return true;
  }

  bool visit(SliceOp op) {
    Value source = channelsLast(op.getSource());
    if (!source)
      return false;
    OpBuilder b(op);
    int64_t rank = rankOf(source), dim = toFirst(rank)[op.getDim()];
    Permutation order = toLast(rank);
    SmallVector<SymExpr> from = shapes.dims(op.getResult()), dims;
    SmallVector<int64_t> shape;
    for (int64_t p : order) {
      dims.push_back(from[p]);
      shape.push_back(cast<RankedTensorType>(op.getResult().getType()).getDimSize(p));
    }
    auto type = RankedTensorType::get(shape, getElementTypeOrSelf(source.getType()));
    auto slice = SliceOp::create(b, op.getLoc(), type, source, op.getOffset(), op.getSize(), dim, op.getStep());
    setDims(slice, dims);
    op.replaceAllUsesWith(permute(b, op.getLoc(), slice.getResult(), toFirst(rank)).getResult());
    op.erase();
    return true;
  }

  /// Both sides give a result with its channels last if one of them has it so.
  bool visit(BranchOp op) {
    bool changed = false;
    for (OpResult result : op->getResults()) {
      unsigned number = result.getResultNumber();
      auto given = [&](unsigned side) { return op.getYield(side).getValues()[number]; };
      int64_t rank = rankOf(result);
      int last = bool(channelsLast(given(0))) + bool(channelsLast(given(1)));
      // With three dims, as for concatenations: a permutation put on the other side would be one to move again.
      if (rank < 3 || last == 0 || (rank == 3 && last < 2))
        continue;
      SmallVector<SymExpr> from = shapes.dims(result), dims;
      SmallVector<int64_t> shape;
      for (int64_t p : toLast(rank)) {
        dims.push_back(from[p]);
        shape.push_back(cast<RankedTensorType>(result.getType()).getDimSize(p));
      }
      for (unsigned side : {0, 1}) {
        OpBuilder b(op.getYield(side));
        Value source = channelsLast(given(side));
        if (!source)
          source = permute(b, op.getLoc(), given(side), toLast(rank));
        op.getYield(side).getValuesMutable()[number].set(source);
      }
      result.setType(RankedTensorType::get(shape, getElementTypeOrSelf(result.getType())));
      if (auto known = op->getAttrOfType<ArrayAttr>(ShapeDialect::getDimsAttrName())) {
        SmallVector<Attribute> all(known.begin(), known.end());
        all[number] = DimsAttr::get(op.getContext(), dims);
        op->setAttr(ShapeDialect::getDimsAttrName(), ArrayAttr::get(op.getContext(), all));
      }
      OpBuilder b(op.getContext());
      b.setInsertionPointAfter(op);
      PermuteOp back = permute(b, op.getLoc(), result, toFirst(rank));
      result.replaceAllUsesExcept(back, back);
      changed = true;
    }
    return changed;
  }

  /// Two permutations are one, or none.
  bool visit(PermuteOp op) {
    auto inner = op.getSource().getDefiningOp<PermuteOp>();
    if (!inner)
      return false;
    Permutation both;
    for (int64_t p : op.getPermutation())
      both.push_back(inner.getPermutation()[p]);
    OpBuilder b(op);
    Value source = inner.getSource();
    bool isNone = llvm::equal(both, llvm::seq<int64_t>(both.size())) && source.getType() == op.getType();
    op.replaceAllUsesWith(isNone ? source : permute(b, op.getLoc(), source, both).getResult());
    op.erase();
    return true;
  }

  bool run(Block &block) {
    bool changed = false;
    for (Operation &op : llvm::make_early_inc_range(block))
      changed |= llvm::TypeSwitch<Operation *, bool>(&op)
                     .Case<linalg::GenericOp, ConcatOp, SliceOp, BranchOp, PermuteOp, ReshapeOp>(
                         [&](auto o) { return visit(o); })
                     .Default(false);
    return changed;
  }
};

struct ChannelsLast : disc::impl::ChannelsLastBase<ChannelsLast> {
  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      SmallVector<Block *> blocks = hostBlocks(func);
      // Without a convolution nothing prefers its channels last.
      if (llvm::all_of(blocks, [](Block *block) { return block->getOps<ConvolutionOp>().empty(); }))
        continue;
      ShapeAnalysis shapes(getOperation());
      for (bool changed = true; changed;) {
        changed = false;
        for (Block *block : blocks)
          changed |= Rewriter{shapes}.run(*block);
      }
      eraseDead(func);
    }
  }
};
} // namespace
