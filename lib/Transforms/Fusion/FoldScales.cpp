//===- FoldScales.cpp - scales of channels into weights -------------------===//
//
//   %y = disc_tensor.convolution %x, %w ...                       // %w, %b, %s, %t: parameters, or computed from them
//   %z = linalg.generic ins(%y, %b) ... y + b
//   %r = linalg.generic ins(%z, %s, %t) ... z * s + t             // batch norm
// becomes
//   %v = linalg.generic ins(%w, %s) ... w * s                     // at load
//   %o = linalg.generic ins(%b, %s, %t) ... b * s + t             // at load
//   %y = disc_tensor.convolution %x, %v ...
//   %r = linalg.generic ins(%y, %o) ... y + o
//
// The same for products with weights. Each weight is rounded once more, by its scale, and each sum once less: results
// differ from those of the separate steps by a few ulp of the largest term of a sum.
//
// Test: test/lit/Fusion/fold-scales.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::disc {
#define GEN_PASS_DEF_FOLDSCALES
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
RankedTensorType typeOf(Value v) { return cast<RankedTensorType>(v.getType()); }

/// Computed from parameters alone, so that it is known at load.
bool isKnown(Value v) {
  Operation *def = v.getDefiningOp();
  if (!def || !typeOf(v).hasStaticShape())
    return false;
  if (isa<ParameterOp, tensor::EmptyOp>(def) || def->hasTrait<OpTrait::ConstantLike>())
    return true;
  if (!isView(def) && !isa<linalg::GenericOp, linalg::FillOp>(def))
    return false;
  return llvm::all_of(def->getOperands(),
                      [](Value operand) { return !isa<RankedTensorType>(operand.getType()) || isKnown(operand); });
}

/// A generic over `dims` with an identity result, whose body `body` writes.
Value mapOf(OpBuilder &b, Location loc, ArrayRef<int64_t> shape, Type element, ValueRange inputs,
            ArrayRef<AffineMap> inputMaps, function_ref<Value(OpBuilder &, ValueRange)> body) {
  SmallVector<AffineMap> maps(inputMaps);
  maps.push_back(b.getMultiDimIdentityMap(shape.size()));
  auto type = RankedTensorType::get(shape, element);
  Value empty = tensor::EmptyOp::create(b, loc, type, ValueRange());
  SmallVector<utils::IteratorType> iterators(shape.size(), utils::IteratorType::parallel);
  auto op = linalg::GenericOp::create(b, loc, TypeRange{type}, inputs, ValueRange{empty}, maps, iterators,
                                      [&](OpBuilder &nested, Location at, ValueRange args) {
                                        linalg::YieldOp::create(nested, at, body(nested, args));
                                      });
  return op->getResult(0);
}

/// `y * scale + shift` for each channel; null for ones and zeros.
struct Affine {
  Value scale, shift;
};

/// Products of constants with what a computation reads, as far as it is affine in it.
struct Term {
  Value slope, offset; // null: zero
  bool isUnit = false; // the slope is one
};

class Folder {
public:
  Folder(Operation *producer, int64_t channel) : producer(producer), channel(channel) {}

  void run();

private:
  bool follow(linalg::GenericOp op, Value from, Affine &sum);
  void scaleWeight(Value scale);

  Operation *producer;
  int64_t channel; // the dimension of the result that scales run along
};
} // namespace

/// Composes `sum` with the computation if it is affine in `from`, with factors known at load.
bool Folder::follow(linalg::GenericOp op, Value from, Affine &sum) {
  unsigned rank = op.getNumLoops();
  if (op.getNumReductionLoops() || op->getNumResults() != 1 || typeOf(op->getResult(0)) != typeOf(from) ||
      !op.getIndexingMapsArray().back().isIdentity())
    return false;
  int64_t channels = typeOf(from).getDimSize(channel);
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  SmallVector<BlockArgument> arguments;
  BlockArgument own;
  MLIRContext *context = op.getContext();
  for (OpOperand *operand : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(operand);
    BlockArgument arg = op.getMatchingBlockArgument(operand);
    if (operand->get() == from) {
      if (own || !map.isIdentity())
        return false;
      own = arg;
      continue;
    }
    if (!isa<RankedTensorType>(operand->get().getType()) || !isKnown(operand->get()))
      return false;
    for (unsigned d = 0; d < rank; ++d)
      if (int64_t(d) != channel && map.isFunctionOfDim(d))
        return false;
    SmallVector<AffineExpr> dims(rank, getAffineConstantExpr(0, context));
    dims[channel] = getAffineDimExpr(0, context);
    inputs.push_back(operand->get());
    maps.push_back(map.replaceDimsAndSymbols(dims, {}, 1, 0));
    arguments.push_back(arg);
  }
  if (!own || !op.getRegionOutputArgs()[0].use_empty())
    return false;
  // Slope and offset are the body once more, by the rules for sums and products.
  auto affine = [&](OpBuilder &b, ValueRange args, Term &out) {
    IRMapping known;
    for (auto [arg, v] : llvm::zip_equal(arguments, args.take_front(arguments.size())))
      known.map(arg, v);
    DenseMap<Value, Term> terms;
    terms[own] = Term{Value(), Value(), true};
    Location loc = op.getLoc();
    auto of = [&](Value v) {
      auto it = terms.find(v);
      return it != terms.end() ? it->second : Term{Value(), known.lookupOrDefault(v), false};
    };
    auto depends = [&](const Term &t) { return t.isUnit || t.slope; };
    for (Operation &inner : op.getBody()->without_terminator()) {
      if (llvm::none_of(inner.getOperands(), [&](Value v) { return terms.contains(v); })) {
        if (inner.getNumRegions() || !isMemoryEffectFree(&inner) || isa<linalg::IndexOp, tensor::ExtractOp>(inner))
          return false;
        b.clone(inner, known);
        continue;
      }
      if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp>(inner))
        return false;
      Term x = of(inner.getOperand(0)), y = of(inner.getOperand(1)), result;
      if (isa<arith::MulFOp>(inner)) {
        if (depends(x) && depends(y))
          return false;
        if (!depends(x))
          std::swap(x, y);
        result.slope = x.isUnit ? y.offset : arith::MulFOp::create(b, loc, x.slope, y.offset).getResult();
        if (x.offset)
          result.offset = arith::MulFOp::create(b, loc, x.offset, y.offset);
      } else {
        bool minus = isa<arith::SubFOp>(inner);
        if (depends(x) == depends(y) || (minus && !depends(x)))
          return false;
        const Term &with = depends(x) ? x : y, &without = depends(x) ? y : x;
        result = with;
        if (!with.offset)
          result.offset = minus ? arith::NegFOp::create(b, loc, without.offset).getResult() : without.offset;
        else if (minus)
          result.offset = arith::SubFOp::create(b, loc, with.offset, without.offset);
        else
          result.offset = arith::AddFOp::create(b, loc, with.offset, without.offset);
      }
      terms[inner.getResult(0)] = result;
    }
    Value yielded = op.getBody()->getTerminator()->getOperand(0);
    if (!terms.contains(yielded))
      return false;
    out = terms[yielded];
    return true;
  };
  // A trial in a generic of its own, to be erased, tells what there is.
  OpBuilder b(op);
  Type element = typeOf(from).getElementType();
  Term shape;
  bool ok = false;
  Value trial = mapOf(b, op.getLoc(), {channels}, element, inputs, maps, [&](OpBuilder &nested, ValueRange args) {
    ok = affine(nested, args, shape);
    return args.back();
  });
  trial.getDefiningOp()->erase();
  if (!ok)
    return false;
  AffineMap id = b.getMultiDimIdentityMap(1);
  auto vectorOf = [&](Value old, function_ref<Value(OpBuilder &, const Term &, Value old)> give) {
    SmallVector<Value> all(inputs);
    SmallVector<AffineMap> allMaps(maps);
    if (old) {
      all.push_back(old);
      allMaps.push_back(id);
    }
    return mapOf(b, op.getLoc(), {channels}, element, all, allMaps, [&](OpBuilder &nested, ValueRange args) {
      Term term;
      affine(nested, args, term);
      return give(nested, term, old ? args[inputs.size()] : Value());
    });
  };
  Location loc = op.getLoc();
  bool scales = bool(shape.slope);
  if (sum.shift && (scales || shape.offset))
    sum.shift = vectorOf(sum.shift, [&](OpBuilder &nested, const Term &term, Value old) {
      Value moved = scales ? arith::MulFOp::create(nested, loc, old, term.slope).getResult() : old;
      return term.offset ? arith::AddFOp::create(nested, loc, moved, term.offset).getResult() : moved;
    });
  else if (shape.offset)
    sum.shift = vectorOf({}, [](OpBuilder &, const Term &term, Value) { return term.offset; });
  if (scales)
    sum.scale = vectorOf(sum.scale, [&](OpBuilder &nested, const Term &term, Value old) {
      return old ? arith::MulFOp::create(nested, loc, old, term.slope).getResult() : term.slope;
    });
  return true;
}

/// Multiplies the producer's weights.
void Folder::scaleWeight(Value scale) {
  OpBuilder b(producer);
  Location loc = producer->getLoc();
  OpOperand &weight = producer->getOpOperand(1);
  RankedTensorType type = typeOf(weight.get());
  unsigned rank = type.getRank();
  AffineMap along;
  SmallVector<Value> inputs{weight.get(), scale};
  if (auto convolution = dyn_cast<ConvolutionOp>(producer)) {
    // [G, O/G, ...] and [O].
    auto grouped = RankedTensorType::get(type.getShape().take_front(2), type.getElementType());
    inputs[1] = ReshapeOp::create(b, loc, grouped, scale, ValueRange());
    along = AffineMap::get(rank, 0, {b.getAffineDimExpr(0), b.getAffineDimExpr(1)}, b.getContext());
  } else {
    auto product = cast<linalg::GenericOp>(producer);
    AffineExpr loop = product.getIndexingMapsArray().back().getResult(channel);
    for (auto [i, e] : llvm::enumerate(product.getIndexingMapsArray()[1].getResults()))
      if (e == loop)
        along = AffineMap::get(rank, 0, b.getAffineDimExpr(i), b.getContext());
  }
  Value scaled = mapOf(b, loc, type.getShape(), type.getElementType(), inputs, {b.getMultiDimIdentityMap(rank), along},
                       [&](OpBuilder &nested, ValueRange args) {
                         return arith::MulFOp::create(nested, loc, args[0], args[1]).getResult();
                       });
  weight.set(scaled);
}

void Folder::run() {
  Value first = producer->getResult(0), last = first;
  Affine sum;
  SmallVector<Operation *> chain;
  while (last.hasOneUse()) {
    auto next = dyn_cast<linalg::GenericOp>(*last.getUsers().begin());
    if (next && next->getBlock() != last.getDefiningOp()->getBlock())
      break;
    Affine longer = sum;
    if (!next || !follow(next, last, longer))
      break;
    sum = longer, last = next->getResult(0);
    chain.push_back(next);
  }
  // A shift alone stays where it is.
  if (!sum.scale)
    return;
  // The scales are known before the last computation.
  auto op = last.getDefiningOp<linalg::GenericOp>();
  producer->moveBefore(op);
  scaleWeight(sum.scale);
  OpBuilder b(op);
  RankedTensorType type = typeOf(last);
  auto finish = [&](Value result) {
    last.replaceAllUsesWith(result);
    for (Operation *dead : llvm::reverse(chain))
      dead->erase();
  };
  if (!sum.shift)
    return finish(first);
  // It takes the place of the last computation, with its extents.
  AffineMap id = b.getMultiDimIdentityMap(type.getRank());
  AffineMap along = AffineMap::get(type.getRank(), 0, b.getAffineDimExpr(channel), b.getContext());
  auto shifted = linalg::GenericOp::create(
      b, op.getLoc(), TypeRange{type}, ValueRange{first, sum.shift}, op.getDpsInits(),
      ArrayRef<AffineMap>{id, along, id}, op.getIteratorTypesArray(),
      [&](OpBuilder &nested, Location at, ValueRange args) {
        linalg::YieldOp::create(nested, at, arith::AddFOp::create(nested, at, args[0], args[1]).getResult());
      });
  if (Attribute dims = op->getAttr(ShapeDialect::getDimsAttrName()))
    shifted->setAttr(ShapeDialect::getDimsAttrName(), dims);
  finish(shifted->getResult(0));
}

namespace {
struct FoldScales : disc::impl::FoldScalesBase<FoldScales> {
  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      SmallVector<std::pair<Operation *, int64_t>> producers;
      for (Block *block : hostBlocks(func))
        for (Operation &op : *block)
          if (int64_t channel = channelOf(&op); channel >= 0)
            producers.emplace_back(&op, channel);
      for (auto [op, channel] : producers)
        Folder(op, channel).run();
      eraseDead(func);
    }
  }

  /// The dimension of the result along which rows of known weights lie; negative if there is none.
  static int64_t channelOf(Operation *op) {
    auto convolution = dyn_cast<ConvolutionOp>(op);
    auto product = dyn_cast<linalg::GenericOp>(op);
    if (!convolution && !(product && linalg::isaContractionOpInterface(product)))
      return -1;
    RankedTensorType type = typeOf(op->getResult(0)), weight = typeOf(op->getOperand(1));
    int64_t last = type.getRank() - 1;
    if (!isKnown(op->getOperand(1)) || !isa<FloatType>(type.getElementType()) || last < 0 || type.isDynamicDim(last) ||
        weight.getElementType() != type.getElementType())
      return -1;
    if (convolution)
      return last;
    // The weights' rows are the columns of the product, and nothing else is.
    SmallVector<AffineMap> maps = product.getIndexingMapsArray();
    auto loop = dyn_cast<AffineDimExpr>(maps.back().getResult(last));
    bool isColumn = loop && !maps[0].isFunctionOfDim(loop.getPosition()) && maps[1].isProjectedPermutation() &&
                    maps[1].isFunctionOfDim(loop.getPosition());
    return isColumn ? last : -1;
  }
};
} // namespace
