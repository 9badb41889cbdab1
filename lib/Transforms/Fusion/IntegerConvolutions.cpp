//===- IntegerConvolutions.cpp - convolutions of codes --------------------===//
//
//   %x = linalg.generic ins(%a : tensor<?x?x?x64xi8>) ... (a - z) * s                         // activations
//   %w = linalg.generic ins(%b : tensor<128x64x3x3xi8>, %t : tensor<128xf32>) ... b * t       // weights
//   %y = disc_tensor.convolution %x, (%w with its channels last) ... summed in f32
// becomes
//   %p = disc_tensor.convolution %a, (%b with its channels last) ... outside z                 // summed in i32
//   %y = linalg.generic ins(%p, %sums, %t) ... (p - sums) * s * t
//
// As IntegerProducts does for products. All activations have one scale, and one zero point, which is a number:
// positions outside of the input count as that code, which stands for 0. Weights have a scale for each filter at most,
// and no zero point. The sums of a filter's codes, times z, are known at load. Bytes are read four channels at a time,
// padded where they are no multiple, so that the target needs instructions for four products of bytes (`i8_dot`,
// `i8_dot_mixed`). Convolutions with one channel in each of many groups stay those of floats.
//
// Convolutions of integers, codes less their zero points, are the same without scales.
//
// Test: test/lit/Fusion/integer-convolutions.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/Dequantized.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/NamedDims.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/TargetInfo.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::disc {
#define GEN_PASS_DEF_INTEGERCONVOLUTIONS
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
/// An operand as codes.
struct Codes {
  Value operand;
  Dequantized from;
  SmallVector<Operation *> views; // from what is dequantised to the operand, last first

  static std::optional<Codes> of(Value operand) {
    Codes out;
    out.operand = operand;
    while (isa_and_present<PermuteOp, ReshapeOp>(operand.getDefiningOp())) {
      out.views.push_back(operand.getDefiningOp());
      operand = operand.getDefiningOp()->getOperand(0);
    }
    std::optional<Dequantized> from = Dequantized::match(operand);
    if (!from || !getElementTypeOrSelf(from->codes.tensor.getType()).isInteger(8) ||
        // Dimensions of one element that the codes have not are put back by a reshape.
        (!from->codes.map.isPermutation() && !cast<RankedTensorType>(operand.getType()).hasStaticShape()))
      return std::nullopt;
    out.from = *from;
    return out;
  }

  /// The codes with the operand's dimensions.
  Value build(OpBuilder &b, Location loc, ShapeAnalysis &shapes) const {
    Value codes = from.codes.tensor;
    if (!from.codes.map.isIdentity()) {
      // Dimensions of the codes in the order of those of what is dequantised.
      AffineMap at = from.codes.map;
      SmallVector<int64_t> order, shape;
      for (unsigned d = 0; d < at.getNumDims(); ++d)
        if (auto place = at.getResultPosition(b.getAffineDimExpr(d)))
          order.push_back(*place);
      SmallVector<SymExpr> dims;
      for (int64_t d : order) {
        shape.push_back(cast<RankedTensorType>(codes.getType()).getDimSize(d));
        dims.push_back(shapes.dims(codes)[d]);
      }
      auto permute = PermuteOp::create(b, loc, RankedTensorType::get(shape, b.getI8Type()), codes, order);
      setDims(permute, dims);
      codes = permute;
      if (!at.isPermutation()) {
        Value whole = views.empty() ? operand : views.back()->getOperand(0);
        auto type = cast<RankedTensorType>(whole.getType()).clone(b.getI8Type());
        auto reshape = ReshapeOp::create(b, loc, type, codes, ValueRange());
        setDims(reshape, SmallVector<SymExpr>(type.getShape()));
        codes = reshape;
      }
    }
    for (Operation *view : llvm::reverse(views)) {
      IRMapping map;
      map.map(view->getOperand(0), codes);
      Operation *own = b.clone(*view, map);
      own->getResult(0).setType(cast<RankedTensorType>(view->getResult(0).getType()).clone(b.getI8Type()));
      codes = own->getResult(0);
    }
    return codes;
  }
};

bool isEverywhereSame(const PointOperand &operand) {
  return !operand.tensor || llvm::all_of(operand.map.getResults(), llvm::IsaPred<AffineConstantExpr>);
}

class Rewriter {
public:
  Rewriter(ConvolutionOp op, ShapeAnalysis &shapes) : op(op), shapes(shapes), b(op) {}

  void run() {
    auto weight = cast<RankedTensorType>(op.getWeight().getType());
    Type element = getElementTypeOrSelf(op.getResult().getType());
    isFloat = element.isF32();
    if ((!isFloat && !element.isInteger(32)) || !weight.hasStaticShape() ||
        (weight.getShape().back() == 1 && weight.getDimSize(0) != 1) ||
        llvm::any_of(op.getInputDilations(), [](int64_t d) { return d != 1; }))
      return;
    std::optional<Codes> x = Codes::of(op.getInput()), w = Codes::of(op.getWeight());
    if (!x || !w || !isEverywhereSame(x->from.scale) ||
        !isa_and_present<ParameterOp>(viewBase(w->from.codes.tensor).getDefiningOp()))
      return;
    const PointOperand &zero = x->from.zero;
    bool isUnsigned = x->from.codes.isUnsigned;
    double low = isUnsigned ? 0 : -128;
    if (zero && (zero.tensor || !zero.isWhole() || *zero.value() < low || *zero.value() > low + 255))
      return;
    if ((w->from.zero && !w->from.zero.isZero()) || !isForFilters(*w))
      return;
    // Floats are exact as long as nothing is larger than an i32: a code less its zero point is below 256.
    int64_t depth = 1;
    for (int64_t extent : weight.getShape().drop_front(2))
      depth *= extent;
    if (isFloat && depth > INT32_MAX / (255 * (w->from.codes.isUnsigned ? 255 : 128)))
      return;
    rewrite(*x, *w, zero ? int64_t(*zero.value()) : 0);
  }

private:
  /// Whether scales of weights change from filter to filter alone: filters are dimension 0 of what is dequantised.
  bool isForFilters(const Codes &w) {
    for (AffineExpr e : w.from.scale.tensor ? w.from.scale.map.getResults() : ArrayRef<AffineExpr>()) {
      auto dim = dyn_cast<AffineDimExpr>(e);
      if (!dim)
        continue;
      std::optional<SmallVector<unsigned>> at = dimsThroughViews(w.views, dim.getPosition());
      if (!at || llvm::any_of(*at, [](unsigned d) { return d > 1; }))
        return false;
      // All filters of all groups, in their order.
      int64_t count = 1;
      for (unsigned d : *at)
        count *= cast<RankedTensorType>(op.getWeight().getType()).getDimSize(d);
      if (count != cast<RankedTensorType>(op.getResult().getType()).getShape().back())
        return false;
    }
    return true;
  }

  void rewrite(const Codes &x, const Codes &w, int64_t zero) {
    Location loc = op.getLoc();
    auto type = cast<RankedTensorType>(op.getResult().getType());
    Type i32 = b.getI32Type(), f32 = b.getF32Type();
    SmallVector<SymExpr> dims = shapes.dims(op.getResult());
    Value input = x.build(b, loc, shapes), weight = w.build(b, loc, shapes);
    auto product = ConvolutionOp::create(b, loc, type.clone(i32), input, weight, op.getStrides(), op.getLow(),
                                         op.getHigh(), op.getDilations(), op.getInputDilations(),
                                         x.from.codes.isUnsigned, w.from.codes.isUnsigned, zero);
    setDims(product, dims);
    if (!isFloat && zero == 0) {
      op.replaceAllUsesWith(product.getResult());
      op.erase();
      return;
    }

    // The values of the last step, and where they are read.
    SmallVector<Value> inputs{product.getResult()};
    unsigned rank = type.getRank();
    AffineMap id = b.getMultiDimIdentityMap(rank);
    AffineExpr filter = b.getAffineDimExpr(rank - 1);
    SmallVector<AffineMap> maps{id};
    auto add = [&](Value tensor, ArrayRef<AffineExpr> at) {
      inputs.push_back(tensor);
      maps.push_back(AffineMap::get(rank, 0, at, b.getContext()));
      return int(inputs.size()) - 1;
    };
    auto addScale = [&](const PointOperand &scale) {
      if (!scale.tensor)
        return -1;
      SmallVector<AffineExpr> at;
      for (AffineExpr e : scale.map.getResults())
        at.push_back(isa<AffineConstantExpr>(e) ? e : filter);
      return add(scale.tensor, at);
    };
    int inputScale = addScale(x.from.scale), weightScale = addScale(w.from.scale);
    int sums = zero == 0 ? -1 : add(sumsOfFilters(weight, w.from.codes.isUnsigned, zero), {filter});

    maps.push_back(id);
    SmallVector<Value> sizes;
    for (const SymExpr &dim : dims)
      if (!dim.isConstant())
        sizes.push_back(DimOp::create(b, loc, dim));
    Value empty = tensor::EmptyOp::create(b, loc, type, sizes);
    SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
    auto result =
        linalg::GenericOp::create(b, loc, TypeRange{type}, inputs, ValueRange{empty}, maps, loops,
                                  [&](OpBuilder &inner, Location at, ValueRange args) {
                                    Value v = args[0];
                                    if (sums >= 0)
                                      v = arith::SubIOp::create(inner, at, v, args[sums]);
                                    if (!isFloat) {
                                      linalg::YieldOp::create(inner, at, v);
                                      return;
                                    }
                                    v = arith::SIToFPOp::create(inner, at, f32, v);
                                    auto scaleBy = [&](const PointOperand &scale, int place) {
                                      Value s;
                                      if (place >= 0) {
                                        s = args[place];
                                        if (s.getType().getIntOrFloatBitWidth() < 32)
                                          s = arith::ExtFOp::create(inner, at, f32, s);
                                        else if (s.getType() != f32)
                                          s = arith::TruncFOp::create(inner, at, f32, s);
                                      } else if (std::optional<double> number = scale.value()) {
                                        s = arith::ConstantOp::create(inner, at, inner.getFloatAttr(f32, *number));
                                      }
                                      if (s)
                                        v = arith::MulFOp::create(inner, at, v, s);
                                    };
                                    scaleBy(x.from.scale, inputScale);
                                    scaleBy(w.from.scale, weightScale);
                                    linalg::YieldOp::create(inner, at, v);
                                  });
    setDims(result, dims);
    op.getResult().replaceAllUsesWith(result.getResult(0));
    op.erase();
  }

  /// The sum of each filter's codes times `factor`, one after the other.
  Value sumsOfFilters(Value weight, bool isUnsigned, int64_t factor) {
    Location loc = op.getLoc();
    auto type = cast<RankedTensorType>(weight.getType());
    unsigned rank = type.getRank();
    auto sums = RankedTensorType::get(type.getShape().take_front(2), b.getI32Type());
    SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::reduction);
    loops[0] = loops[1] = utils::IteratorType::parallel;
    AffineMap maps[] = {b.getMultiDimIdentityMap(rank),
                        AffineMap::get(rank, 0, {b.getAffineDimExpr(0), b.getAffineDimExpr(1)}, b.getContext())};
    Value empty = tensor::EmptyOp::create(b, loc, sums, ValueRange());
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(b.getI32Type()));
    Value init = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
    auto summed = linalg::GenericOp::create(
        b, loc, TypeRange{sums}, ValueRange{weight}, ValueRange{init}, maps, loops,
        [&](OpBuilder &inner, Location at, ValueRange args) {
          Value wide = isUnsigned ? arith::ExtUIOp::create(inner, at, inner.getI32Type(), args[0]).getResult()
                                  : arith::ExtSIOp::create(inner, at, inner.getI32Type(), args[0]).getResult();
          Value by = arith::ConstantOp::create(inner, at, inner.getI32IntegerAttr(int32_t(factor)));
          wide = arith::MulIOp::create(inner, at, wide, by);
          linalg::YieldOp::create(inner, at, arith::AddIOp::create(inner, at, args[1], wide).getResult());
        });
    setDims(summed, SmallVector<SymExpr>(sums.getShape()));
    int64_t filters = sums.getNumElements();
    auto flat =
        ReshapeOp::create(b, loc, RankedTensorType::get({filters}, b.getI32Type()), summed.getResult(0), ValueRange());
    setDims(flat, {SymExpr(filters)});
    return flat;
  }

  ConvolutionOp op;
  ShapeAnalysis &shapes;
  OpBuilder b;
  bool isFloat = true;
};

struct IntegerConvolutions : disc::impl::IntegerConvolutionsBase<IntegerConvolutions> {
  void runOnOperation() override {
    TargetInfo target = TargetInfo::get(getOperation());
    if (!target.i8Dot && !target.i8DotMixed)
      return;
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      ShapeAnalysis shapes(getOperation());
      for (Block *block : hostBlocks(func)) {
        SmallVector<ConvolutionOp> convolutions(block->getOps<ConvolutionOp>());
        for (ConvolutionOp op : convolutions)
          Rewriter(op, shapes).run();
      }
      if (!func.isExternal())
        eraseDead(func);
    }
  }
};
} // namespace
