//===- Winograd.cpp - convolutions in fewer multiplications ---------------===//
//
//   %w = disc_tensor.parameter "w" : tensor<1x64x3x3x64xf32>
//   %y = disc_plan.kernel convolution ins(%x, %w) ... {
//   ^bb0(%a, %b): disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] ...
// becomes
//   %u = disc_plan.kernel loop ins(%w) -> tensor<16x64x64xf32> ... G w G^T of each filter and channel
//   %y = disc_plan.kernel convolution ins(%x, %u) ... {
//   ^bb0(%a, %b): disc_tensor.winograd %a, %b low [1, 1] high [1, 1] dilations [1, 1] ...
//
// Winograd's F(2 x 2, 3 x 3): 16 products of sums of inputs and sums of weights give four results, where the
// convolution itself needs 36 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). The sums of
// weights are formed at load, by what hoisting makes of the new kernel.
//
// Taken where enough channels, side by side in memory, share the sums of the input, and enough filters those of the
// results, and the weights, 16/9 as large, are a small part of the last-level cache.
//
// Results differ from the convolution's by rounding alone, except that an infinite input makes its whole block NaN.
//
// Test: test/lit/Schedule/winograd.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/Passes.h"

#include "lib/Transforms/Schedule/ConvolutionInfo.h"
#include "lib/Transforms/Support/TargetInfo.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::disc {
#define GEN_PASS_DEF_WINOGRAD
#include "lib/Transforms/Schedule/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
/// What a kernel's 3 values of a line are multiplied by for each of the 4 sums.
constexpr double transform[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};

struct Winograd : disc::impl::WinogradBase<Winograd> {
  using WinogradBase::WinogradBase;

  void runOnOperation() override {
    TargetInfo target = TargetInfo::get(getOperation());
    ShapeAnalysis shapes(getOperation());
    SmallVector<KernelOp> kernels;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (func.getSymName() != "init")
        func.walk([&](KernelOp kernel) { kernels.push_back(kernel); });
    for (KernelOp kernel : kernels)
      if (isa<ConvolutionKindAttr>(kernel.getKind()))
        for (auto op : llvm::make_early_inc_range(kernel.getBody().front().getOps<ConvolutionOp>()))
          if (!isFasterByTiles(op, target) && pays(kernel, op, target, shapes))
            rewrite(kernel, op);
  }

  /// A value that parameters and constants alone decide.
  static bool isKnownAtLoad(Value v) {
    Operation *def = v.getDefiningOp();
    if (!def)
      return false;
    if (isa<ParameterOp>(def) || def->hasTrait<OpTrait::ConstantLike>())
      return true;
    return (isView(def) || isa<KernelOp>(def)) && llvm::all_of(def->getOperands(), isKnownAtLoad);
  }

  bool isFasterByTiles(ConvolutionOp op, const TargetInfo &target) const {
    return target.multipliesHalves() && (precision == "bf16" || multipliesBf16(op)) &&
           getElementTypeOrSelf(op.getResult()).isF32();
  }

  static bool pays(KernelOp kernel, ConvolutionOp op, const TargetInfo &target, ShapeAnalysis &shapes) {
    auto weight = dyn_cast<BlockArgument>(op.getWeight());
    auto type = cast<RankedTensorType>(op.getWeight().getType());
    if (!weight || !weight.hasOneUse() || op.getSpatialRank() != 2 || !type.hasStaticShape() ||
        type.getDimSize(0) != 1 || type.getDimSize(2) != 3 || type.getDimSize(3) != 3 ||
        !isKnownAtLoad(kernel.getInputs()[weight.getArgNumber()]))
      return false;
    for (ArrayRef<int64_t> attr : {op.getStrides(), op.getInputDilations()})
      if (llvm::any_of(attr, [](int64_t v) { return v != 1; }))
        return false;
    Type sum = getElementTypeOrSelf(op.getResult().getType());
    if (!sum.isF32() && !sum.isF64())
      return false;
    // Sums of the input are formed for neighbouring channels at once.
    auto input = dyn_cast<BlockArgument>(op.getInput());
    std::optional<Layout> layout = input ? viewLayout(kernel.getInputs()[input.getArgNumber()], shapes) : std::nullopt;
    if (!layout || !layout->strides.back().isConstant(1))
      return false;
    int64_t filters = type.getDimSize(1), channels = type.getDimSize(4), bits = sum.getIntOrFloatBitWidth();
    int64_t lanes = target.vectorBits / bits;
    // Few results read each weight once: what does not stay in the cache from call to call costs more than it saves.
    return channels >= lanes && filters >= lanes && 16 * filters * channels * bits / 8 <= target.l3Bytes / 8;
  }

  static void rewrite(KernelOp kernel, ConvolutionOp op) {
    auto arg = cast<BlockArgument>(op.getWeight());
    Type sum = getElementTypeOrSelf(op.getResult().getType());
    Value sums = transformed(kernel.getInputs()[arg.getArgNumber()], sum, op.getLoc(), OpBuilder(kernel));
    kernel.getInputsMutable()[arg.getArgNumber()].set(sums);
    arg.setType(sums.getType());
    OpBuilder b(op);
    auto winograd = WinogradOp::create(b, op.getLoc(), op.getResult().getType(), op.getInput(), arg, op.getLow(),
                                       op.getHigh(), op.getDilations());
    winograd->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    op.replaceAllUsesWith(winograd.getResult());
    op.erase();
  }

  /// A kernel that forms `G w G^T`, [16, filters, channels].
  static Value transformed(Value weight, Type sum, Location loc, OpBuilder b) {
    auto type = cast<RankedTensorType>(weight.getType());
    auto result = RankedTensorType::get({16, type.getDimSize(1), type.getDimSize(4)}, sum);
    auto kernel = KernelOp::create(b, loc, TypeRange{result}, ValueRange{weight}, LoopKindAttr::get(b.getContext()),
                                   b.getStringAttr("winograd"), b.getStringAttr("sums of a convolution's weights"));
    Block *body = &kernel.getBody().emplaceBlock();
    Value in = body->addArgument(type, loc);
    b.setInsertionPointToStart(body);
    // Each value of the kernel is an operand of its own, the same for all 16 sums.
    AffineExpr filter = b.getAffineDimExpr(1), channel = b.getAffineDimExpr(2), zero = b.getAffineConstantExpr(0);
    SmallVector<AffineMap> maps;
    for (int64_t tap = 0; tap < 9; ++tap)
      maps.push_back(AffineMap::get(
          3, 0, {zero, filter, b.getAffineConstantExpr(tap / 3), b.getAffineConstantExpr(tap % 3), channel},
          b.getContext()));
    maps.push_back(b.getMultiDimIdentityMap(3));
    SmallVector<utils::IteratorType> iterators(3, utils::IteratorType::parallel);
    Value empty = tensor::EmptyOp::create(b, loc, result.getShape(), sum);
    auto generic = linalg::GenericOp::create(
        b, loc, TypeRange{result}, SmallVector<Value>(9, in), ValueRange{empty}, maps, iterators,
        [&](OpBuilder &nested, Location at, ValueRange taps) {
          auto number = [&](double v) -> Value {
            return arith::ConstantOp::create(nested, at, nested.getFloatAttr(sum, v));
          };
          Value index = linalg::IndexOp::create(nested, at, 0);
          Value four = arith::ConstantIndexOp::create(nested, at, 4);
          Value row = arith::DivUIOp::create(nested, at, index, four);
          Value column = arith::RemUIOp::create(nested, at, index, four);
          // Entry (which, i) of the transform.
          auto factor = [&](Value which, int64_t i) {
            Value out = number(transform[0][i]);
            for (int64_t k = 1; k < 4; ++k) {
              Value is = arith::CmpIOp::create(nested, at, arith::CmpIPredicate::eq, which,
                                               arith::ConstantIndexOp::create(nested, at, k));
              out = arith::SelectOp::create(nested, at, is, number(transform[k][i]), out);
            }
            return out;
          };
          Value total;
          for (int64_t tap = 0; tap < 9; ++tap) {
            Value w = taps[tap];
            if (w.getType() != sum)
              w = arith::ExtFOp::create(nested, at, sum, w);
            Value both = arith::MulFOp::create(nested, at, factor(row, tap / 3), factor(column, tap % 3));
            Value term = arith::MulFOp::create(nested, at, both, w);
            total = total ? arith::AddFOp::create(nested, at, total, term) : term;
          }
          linalg::YieldOp::create(nested, at, total);
        });
    YieldOp::create(b, loc, generic.getResults());
    return kernel.getOutputs()[0];
  }
};
} // namespace
