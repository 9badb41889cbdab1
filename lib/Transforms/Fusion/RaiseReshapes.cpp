//===- RaiseReshapes.cpp - reshapes of results to operands ----------------===//
//
//   %m = disc_tensor.reshape %x(...) : tensor<?x?x64xf32> -> tensor<?x64xf32>        // [B, L, 64] -> [B*L, 64]
//   %p = linalg.generic {...contraction...} ins(%m, %w) ...                          // [B*L, 32]
//   %y = disc_tensor.reshape %p(...) : tensor<?x32xf32> -> tensor<?x?x32xf32>        // [B, L, 32]
// becomes
//   %y = linalg.generic {...contraction...} ins(%x, %w) ...                          // over B, L, 32
//
// Models merge dimensions before a product of matrices and split them behind it, and a quantiser does for each layer.
// What computes on both sides of such a reshape cannot be one kernel. A reshape that splits dimensions of a
// computation's only result moves to its operands instead, from one computation to the one before, if somewhere it
// meets one that merged the same dimensions.
//
// Test: test/lit/Fusion/raise-reshapes.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/NamedDims.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::disc {
#define GEN_PASS_DEF_RAISERESHAPES
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

using Dims = SmallVector<SymExpr>;

/// For each dimension of `from` those of `to` that it is split into, at least one; nothing if `to` is no split of it.
static std::optional<SmallVector<Dims>> splitOf(ArrayRef<SymExpr> from, ArrayRef<SymExpr> to, ShapeAnalysis &shapes) {
  SmallVector<Dims> parts;
  size_t next = 0;
  for (const SymExpr &whole : from) {
    Dims &part = parts.emplace_back();
    SymExpr product(1);
    do {
      if (next == to.size())
        return std::nullopt;
      part.push_back(to[next]);
      product *= to[next++];
    } while (!shapes.equal(product, whole));
  }
  return next == to.size() ? std::optional(parts) : std::nullopt;
}

static bool sameDims(ArrayRef<SymExpr> a, ArrayRef<SymExpr> b, ShapeAnalysis &shapes) {
  return a.size() == b.size() &&
         llvm::all_of(llvm::zip(a, b), [&](auto pair) { return shapes.equal(std::get<0>(pair), std::get<1>(pair)); });
}

namespace {
/// A computation, and the extents that each of its loops is split into.
struct Split {
  linalg::GenericOp op;
  SmallVector<Dims> loops;

  /// Nothing if the only result of what gives `value` cannot be computed over dimensions that are split so.
  /// `block` is where it is read: sizes that are known there may be unknown outside.
  static std::optional<Split> get(Value value, ArrayRef<Dims> parts, Block *block);
  /// The parts of each dimension of an operand; empty where it has one element.
  SmallVector<Dims> partsOf(OpOperand &operand, ShapeAnalysis &shapes);
};
} // namespace

std::optional<Split> Split::get(Value value, ArrayRef<Dims> parts, Block *block) {
  auto op = value.getDefiningOp<linalg::GenericOp>();
  if (!op || op->getBlock() != block || op->getNumResults() != 1 || !value.hasOneUse() || op.hasIndexSemantics())
    return std::nullopt;
  Value init = op.getDpsInits()[0];
  if (!init.getDefiningOp<tensor::EmptyOp>() && !init.getDefiningOp<linalg::FillOp>())
    return std::nullopt;
  for (AffineMap map : op.getIndexingMapsArray())
    for (AffineExpr e : map.getResults())
      if (!isa<AffineDimExpr, AffineConstantExpr>(e))
        return std::nullopt;
  // Bodies that read tensors at points of their own keep them: their coordinates are not loops.
  if (op.getBody()->walk([](tensor::ExtractOp) { return WalkResult::interrupt(); }).wasInterrupted())
    return std::nullopt;
  Split split{op, SmallVector<Dims>(op.getNumLoops())};
  for (auto [e, part] : llvm::zip_equal(op.getIndexingMapsArray().back().getResults(), parts)) {
    auto dim = dyn_cast<AffineDimExpr>(e);
    if (dim)
      split.loops[dim.getPosition()] = part;
    else if (part.size() > 1)
      return std::nullopt;
  }
  return split;
}

SmallVector<Dims> Split::partsOf(OpOperand &operand, ShapeAnalysis &shapes) {
  SmallVector<Dims> parts;
  for (auto [e, extent] :
       llvm::zip_equal(op.getMatchingIndexingMap(&operand).getResults(), shapes.dims(operand.get()))) {
    auto dim = dyn_cast<AffineDimExpr>(e);
    parts.push_back(dim && loops[dim.getPosition()].size() > 1 ? loops[dim.getPosition()] : Dims{extent});
  }
  return parts;
}

static bool isSplit(ArrayRef<Dims> parts) {
  return llvm::any_of(parts, [](const Dims &part) { return part.size() > 1; });
}

static Dims flattened(ArrayRef<Dims> parts) {
  Dims out;
  for (const Dims &part : parts)
    llvm::append_range(out, part);
  return out;
}

namespace {
struct RaiseReshapes : disc::impl::RaiseReshapesBase<RaiseReshapes> {
  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block *block : hostBlocks(func))
        run(*block);
  }

  void run(Block &block) {
    // Extents that are computed between two operations are not known at the first.
    if (!block.getOps<BindOp>().empty())
      return;
    ShapeAnalysis shapes(getOperation());
    SmallVector<ReshapeOp> worklist(block.getOps<ReshapeOp>());
    while (!worklist.empty()) {
      ReshapeOp reshape = worklist.pop_back_val();
      Dims from = shapes.dims(reshape.getSource()), to = shapes.dims(reshape.getResult());
      auto parts = splitOf(from, to, shapes);
      if (!parts || !isSplit(*parts) || !meetsMerge(reshape.getSource(), *parts, &block, shapes, /*depth=*/0))
        continue;
      raise(reshape, *Split::get(reshape.getSource(), *parts, &block), to, shapes, worklist);
    }
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isa<ReshapeOp, linalg::GenericOp, linalg::FillOp, tensor::EmptyOp>(op) && isOpTriviallyDead(&op))
        op.erase();
  }

  /// Whether splitting what gives `value`, and what that reads, meets a reshape that merged the same dimensions.
  static bool meetsMerge(Value value, ArrayRef<Dims> parts, Block *block, ShapeAnalysis &shapes, int depth) {
    constexpr int deepest = 16;
    std::optional<Split> split = depth < deepest ? Split::get(value, parts, block) : std::nullopt;
    if (!split)
      return false;
    return llvm::any_of(split->op.getDpsInputOperands(), [&](OpOperand *operand) {
      if (!isa<RankedTensorType>(operand->get().getType()))
        return false;
      SmallVector<Dims> own = split->partsOf(*operand, shapes);
      if (!isSplit(own))
        return false;
      if (auto merge = operand->get().getDefiningOp<ReshapeOp>())
        return sameDims(shapes.dims(merge.getSource()), flattened(own), shapes);
      return meetsMerge(operand->get(), own, block, shapes, depth + 1);
    });
  }

  static void raise(ReshapeOp reshape, Split split, ArrayRef<SymExpr> dims, ShapeAnalysis &shapes,
                    SmallVectorImpl<ReshapeOp> &worklist) {
    linalg::GenericOp op = split.op;
    OpBuilder b(op);
    Location loc = op.getLoc();
    // The new loops of each old one.
    SmallVector<SmallVector<AffineExpr>> loops;
    SmallVector<utils::IteratorType> iterators;
    for (auto [part, kind] : llvm::zip_equal(split.loops, op.getIteratorTypesArray())) {
      auto &own = loops.emplace_back();
      for (size_t i = 0; i < std::max<size_t>(part.size(), 1); ++i) {
        own.push_back(b.getAffineDimExpr(iterators.size()));
        iterators.push_back(kind);
      }
    }
    auto remapped = [&](AffineMap map) {
      SmallVector<AffineExpr> out;
      for (AffineExpr e : map.getResults()) {
        if (auto dim = dyn_cast<AffineDimExpr>(e))
          llvm::append_range(out, loops[dim.getPosition()]);
        else
          out.push_back(e);
      }
      return AffineMap::get(iterators.size(), 0, out, b.getContext());
    };
    auto sizes = [&](ArrayRef<SymExpr> of, SmallVectorImpl<int64_t> &shape) {
      SmallVector<Value> out;
      for (const SymExpr &dim : of) {
        shape.push_back(dim.isConstant() ? dim.constant() : ShapedType::kDynamic);
        if (!dim.isConstant())
          out.push_back(DimOp::create(b, loc, dim));
      }
      return out;
    };

    SmallVector<Value> inputs;
    SmallVector<AffineMap> maps;
    for (OpOperand *operand : op.getDpsInputOperands()) {
      Value value = operand->get();
      maps.push_back(remapped(op.getMatchingIndexingMap(operand)));
      if (auto type = dyn_cast<RankedTensorType>(value.getType())) {
        SmallVector<Dims> parts = split.partsOf(*operand, shapes);
        if (isSplit(parts)) {
          Dims own = flattened(parts);
          auto merge = value.getDefiningOp<ReshapeOp>();
          if (merge && sameDims(shapes.dims(merge.getSource()), own, shapes)) {
            value = merge.getSource();
          } else {
            SmallVector<int64_t> shape;
            SmallVector<Value> dynamic = sizes(own, shape);
            auto before =
                ReshapeOp::create(b, loc, RankedTensorType::get(shape, type.getElementType()), value, dynamic);
            setDims(before, own);
            worklist.push_back(before);
            value = before;
          }
        }
      }
      inputs.push_back(value);
    }
    AffineMap resultMap = remapped(op.getIndexingMapsArray().back());
    auto type = cast<RankedTensorType>(reshape.getType());
    SmallVector<Value> dynamic;
    for (auto [d, dim] : llvm::enumerate(dims))
      if (type.isDynamicDim(d))
        dynamic.push_back(DimOp::create(b, loc, dim));
    Value init = tensor::EmptyOp::create(b, loc, type, dynamic);
    if (auto fill = op.getDpsInits()[0].getDefiningOp<linalg::FillOp>())
      init = linalg::FillOp::create(b, loc, fill.getInputs()[0], init).getResult(0);
    maps.push_back(resultMap);
    auto raised =
        linalg::GenericOp::create(b, loc, TypeRange{init.getType()}, inputs, ValueRange{init}, maps, iterators);
    IRMapping map;
    op.getRegion().cloneInto(&raised.getRegion(), map);
    setDims(raised, dims);
    reshape.getResult().replaceAllUsesWith(raised->getResult(0));
    reshape.erase();
    op.erase();
  }
};
} // namespace
