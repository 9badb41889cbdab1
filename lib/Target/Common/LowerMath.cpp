//===- LowerMath.cpp - transcendental functions as polynomials --------------===//
//
//   %e = math.exp %x : vector<16xf32>
// becomes
//   %t = math.fma %x, log2(e), 1.5 * 2^23 ; %n = %t - 1.5 * 2^23     (the nearest integer, still in a float)
//   %r = %x - %n * ln 2 ; %p = a polynomial of %r ; %e = %p * 2^n
//
// The same for scalars. Largest errors found, in ulp of f32 (test/python/unit/test_math_accuracy.py checks them):
//   exp, exp2 1 · expm1 1.5 · log 1 · log1p 2.5 · log2, log10 2 · tanh 2.5 · erf 2 · erfc 4
//   1 + erf, 1 + tanh 2 units of the last place of 1 · pow 0.6, in f64 inside
//   sin, cos 1.1 · tan 3 · atan, atan2, asin, acos 2.5 · sinh, cosh 2.5 · atanh 3 · remainders are exact
// All handle infinities, NaN and denormals. Arguments of sin, cos and tan from 12000 on, and quotients from 2^22 on, go
// to libm, as do the other functions, per lane. f64 is expanded in vectors, where there is fma; one number of f64 is
// what libm is best at. f16 is computed in f32; so is bf16, whose conversions become integer arithmetic: the compiler's
// own would call library helpers.
//
// In a gpu.module there is no libm: everything is expanded. Largest errors of f64, in ulp:
//   exp, exp2 1 · expm1 2 · erf 1.5 · log, log2, log10 1.5 · log1p, tanh 2.5 · erfc, sinh, cosh, atanh 4 · pow 1
//   sin, cos 1 · tan 3 · atan, atan2, asin, acos 2.5 · asinh, acosh 4
// and of f32: asinh, acosh 4 (test/python/unit/test_device_math.py).
// Zeros keep their sign.
//
// For NVIDIA's GPUs (`nvidia`) f32 uses their instructions for powers of two and reciprocals: exp, exp2, tanh, erf, and
// quotients of exponentials, by 1 + e^x and of half types. The bounds above hold where those instructions round
// correctly, as the emulator's do. With their own errors, 2^-22.5 and 2^-23 of the value at most, they are, in ulp:
//   exp 2, as CUDA's expf, which is computed alike · tanh 3.4 · erf 2 · 1 + erf, 1 + tanh 2.5 units of the last place
//   of 1
//
// Lit test: test/lit/Common/lower-math.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/MathEmitter.h"
#include "lib/Target/Common/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::disc {
#define GEN_PASS_DEF_LOWERMATH
#include "lib/Target/Common/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// What runs on a device can call no libm.
static bool onDevice(Operation *op) { return static_cast<bool>(op->getParentOfType<gpu::GPUModuleOp>()); }

/// On a gpu.module while this pass works: its device has the approximate instructions of NVIDIA's.
constexpr StringLiteral approximateAttr = "disc.approximate";

static bool onNvidia(Operation *op) {
  auto module = op->getParentOfType<gpu::GPUModuleOp>();
  return module && module->hasAttr(approximateAttr);
}

static bool targetHasFma(ModuleOp module) { return disc::TargetAttr::of(module).getFma(); }

/// Whether functions of f64 are expanded, which needs exact products. One number of f64 is what libm is best at.
static bool expandsF64(Operation *op) {
  if (onDevice(op))
    return true;
  return isa<VectorType>(op->getResult(0).getType()) && targetHasFma(op->getParentOfType<ModuleOp>());
}

/// An emitter of functions of this type where they are to be expanded; else null.
static std::unique_ptr<MathEmitter> emitterFor(Operation *op, PatternRewriter &rewriter) {
  Type type = op->getResult(0).getType(), element = getElementTypeOrSelf(type);
  if (element.isF32() || (element.isF64() && expandsF64(op)))
    return MathEmitter::create(rewriter, op->getLoc(), type, onNvidia(op));
  return nullptr;
}

namespace {
using Expansion = Value (*)(MathEmitter &, Value);

template <typename Op> struct Expand : OpRewritePattern<Op> {
  Expand(MLIRContext *context, Expansion expansion, bool onHost = true)
      : OpRewritePattern<Op>(context), expansion(expansion), onHost(onHost) {}

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    std::unique_ptr<MathEmitter> f = emitterFor(op, rewriter);
    if (!f || !(onHost || onDevice(op)))
      return rewriter.notifyMatchFailure(op, "left to libm");
    rewriter.replaceOp(op, expansion(*f, op.getOperand()));
    return success();
  }

  Expansion expansion;
  bool onHost;
};

/// 1 + f(x) or 1 - f(x) of an odd f, as in both forms of GELU. What is small in f(x) is lost in the sum, so that f need
/// not be exact where it is small.
template <typename Op> struct ExpandWithOne : OpRewritePattern<Op> {
  ExpandWithOne(MLIRContext *context, Expansion expansion)
      : OpRewritePattern<Op>(context, /*benefit=*/2), expansion(expansion) {}

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    std::unique_ptr<MathEmitter> f = emitterFor(op, rewriter);
    if (!f || !op->hasOneUse())
      return rewriter.notifyMatchFailure(op, "left to libm, or needed itself");
    Operation *user = *op->user_begin();
    Value x = op.getOperand(), value = op.getResult();
    auto isOne = [](Value v) { return matchPattern(v, m_OneFloat()); };
    if (auto sum = dyn_cast<arith::AddFOp>(user)) {
      if (!isOne(sum.getLhs() == value ? sum.getRhs() : sum.getLhs()))
        return rewriter.notifyMatchFailure(op, "not added to 1");
    } else if (auto difference = dyn_cast<arith::SubFOp>(user)) {
      if (!isOne(difference.getLhs()) || difference.getRhs() != value)
        return rewriter.notifyMatchFailure(op, "not subtracted from 1");
      x = arith::NegFOp::create(rewriter, op.getLoc(), x);
    } else {
      return rewriter.notifyMatchFailure(op, "not added to 1");
    }
    Value result = expansion(*f, x);
    rewriter.replaceOp(user, result);
    rewriter.eraseOp(op);
    return success();
  }

  Expansion expansion;
};

/// What an operation that is left to libm carries, so that it is not expanded again.
constexpr StringLiteral libmAttr = "disc.libm";

/// `fast` where all lanes of `bounded` lie below its limit; else `far` on a device, and the operation itself, in libm,
/// on the host.
template <typename Op>
LogicalResult expandBelow(Op op, PatternRewriter &rewriter, function_ref<Value(MathEmitter &)> isBelow,
                          function_ref<Value(MathEmitter &)> fast, function_ref<Value(MathEmitter &)> far) {
  std::unique_ptr<MathEmitter> f = emitterFor(op, rewriter);
  if (!f || op->hasAttr(libmAttr))
    return rewriter.notifyMatchFailure(op, "left to libm");
  Location loc = op.getLoc();
  auto either = scf::IfOp::create(rewriter, loc, op.getType(), isBelow(*f), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointToStart(either.thenBlock());
  scf::YieldOp::create(rewriter, loc, fast(*MathEmitter::create(rewriter, loc, op.getType())));
  rewriter.setInsertionPointToStart(either.elseBlock());
  if (onDevice(op)) {
    scf::YieldOp::create(rewriter, loc, far(*MathEmitter::create(rewriter, loc, op.getType())));
  } else {
    Operation *slow = rewriter.clone(*op);
    slow->setAttr(libmAttr, rewriter.getUnitAttr());
    scf::YieldOp::create(rewriter, loc, slow->getResults());
  }
  rewriter.replaceOp(op, either);
  return success();
}

template <typename Op> struct ExpandTrig : OpRewritePattern<Op> {
  using Expansion = Value (*)(MathEmitter &, const MathEmitter::Reduced &);
  ExpandTrig(MLIRContext *context, Expansion expansion, bool isOdd = false)
      : OpRewritePattern<Op>(context), expansion(expansion), isOdd(isOdd) {}

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    Value x = op.getOperand();
    return expandBelow(
        op, rewriter, [&](MathEmitter &f) { return f.allBelow(f.abs(x), f.trigLimit()); },
        [&](MathEmitter &f) { return keepZero(f, x, expansion(f, f.reduceTrig(x))); },
        [&](MathEmitter &f) { return keepZero(f, x, expansion(f, f.reduceTrigFar(x))); });
  }

  Value keepZero(MathEmitter &f, Value x, Value result) const { return isOdd ? f.keepZero(x, result) : result; }

  Expansion expansion;
  bool isOdd;
};

struct ExpandRem : OpRewritePattern<arith::RemFOp> {
  ExpandRem(MLIRContext *context, bool onHost) : OpRewritePattern(context), onHost(onHost) {}
  LogicalResult matchAndRewrite(arith::RemFOp op, PatternRewriter &rewriter) const override {
    if (!onHost && !onDevice(op))
      return rewriter.notifyMatchFailure(op, "left to libm");
    Value x = op.getLhs(), y = op.getRhs();
    return expandBelow(
        op, rewriter, [&](MathEmitter &f) { return f.allBelow(f.abs(f.div(x, y)), f.remLimit()); },
        [&](MathEmitter &f) { return f.rem(x, y); }, [&](MathEmitter &f) { return f.remFar(x, y); });
  }
  bool onHost;
};

struct ExpandAtan2 : OpRewritePattern<math::Atan2Op> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::Atan2Op op, PatternRewriter &rewriter) const override {
    std::unique_ptr<MathEmitter> f = emitterFor(op, rewriter);
    if (!f)
      return rewriter.notifyMatchFailure(op, "left to libm");
    rewriter.replaceOp(op, f->atan2(op.getLhs(), op.getRhs()));
    return success();
  }
};

struct ExpandPow : OpRewritePattern<math::PowFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::PowFOp op, PatternRewriter &rewriter) const override {
    std::unique_ptr<MathEmitter> f = emitterFor(op, rewriter);
    if (!f)
      return rewriter.notifyMatchFailure(op, "left to libm");
    rewriter.replaceOp(op, f->pow(op.getLhs(), op.getRhs()));
    return success();
  }
};

/// rsqrt is rare enough in inner loops to be done exactly: 1 / sqrt.
struct ExpandRsqrt : OpRewritePattern<math::RsqrtOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::RsqrtOp op, PatternRewriter &rewriter) const override {
    Type type = op.getType();
    TypedAttr one = rewriter.getFloatAttr(getElementTypeOrSelf(type), 1.0);
    if (auto vector = dyn_cast<VectorType>(type))
      one = DenseElementsAttr::get(vector, Attribute(one));
    Value root = math::SqrtOp::create(rewriter, op.getLoc(), op.getOperand());
    rewriter.replaceOpWithNewOp<arith::DivFOp>(op, arith::ConstantOp::create(rewriter, op.getLoc(), one), root);
    return success();
  }
};

constexpr StringLiteral kDivide = "llvm.nvvm.div.full";

/// The exponential that a value is, or is selected from.
bool isExponential(Value v) {
  if (auto select = v.getDefiningOp<arith::SelectOp>())
    return isExponential(select.getTrueValue()) || isExponential(select.getFalseValue());
  return v.getDefiningOp<math::ExpOp>() || v.getDefiningOp<math::Exp2Op>();
}

/// Quotients that need not be rounded correctly, with 2 ulp: of exponentials, which are as inexact, as in softmax, and
/// by 1 + e^x, as in the logistic function. All others may be of whole numbers, whose quotients are.
bool isInexactQuotient(arith::DivFOp op) {
  if (!getElementTypeOrSelf(op.getType()).isF32())
    return false;
  auto sum = op.getRhs().getDefiningOp<arith::AddFOp>();
  return isExponential(op.getLhs()) || (sum && (isExponential(sum.getLhs()) || isExponential(sum.getRhs())));
}

bool isHalf(Type type) {
  Type elem = getElementTypeOrSelf(type);
  return elem.isBF16() || elem.isF16();
}

Type asF32(Type type) {
  Type f32 = Float32Type::get(type.getContext());
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.clone(f32);
  return f32;
}

/// Arithmetic on f16 and bf16 in f32.
struct WidenHalf : RewritePattern {
  WidenHalf(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::RemFOp, arith::MaximumFOp,
             arith::MinimumFOp, arith::MaxNumFOp, arith::MinNumFOp, arith::CmpFOp>(op) &&
        !isa_and_nonnull<math::MathDialect>(op->getDialect()))
      return rewriter.notifyMatchFailure(op, "not arithmetic on floats");
    if (llvm::none_of(op->getOperandTypes(), isHalf))
      return rewriter.notifyMatchFailure(op, "no half operand");
    SmallVector<Value> operands;
    for (Value v : op->getOperands())
      operands.push_back(
          isHalf(v.getType()) ? arith::ExtFOp::create(rewriter, op->getLoc(), asF32(v.getType()), v).getResult() : v);
    Type type = op->getResult(0).getType();
    if (isa<arith::DivFOp>(op) && onNvidia(op)) {
      // An error of 2 ulp of f32 is nothing to a half: also whole quotients are right.
      Value wide = emitIntrinsic(rewriter, op->getLoc(), kDivide, operands);
      rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, type, wide);
      return success();
    }
    Operation *wide = rewriter.clone(*op);
    wide->setOperands(operands);
    if (!isHalf(type)) {
      rewriter.replaceOp(op, wide->getResults());
      return success();
    }
    wide->getResult(0).setType(asF32(type));
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, type, wide->getResult(0));
    return success();
  }
};

/// Conversions between half types and anything but f32, through f32.
template <typename Op> struct ConvertHalfThroughF32 : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    Type from = op.getIn().getType(), to = op.getType();
    Type wide = asF32(from);
    Location loc = op.getLoc();
    if (from == wide || to == wide)
      return rewriter.notifyMatchFailure(op, "one step");
    if (isHalf(from)) {
      Value v = arith::ExtFOp::create(rewriter, loc, wide, op.getIn());
      if (isa<FloatType>(getElementTypeOrSelf(to)) && getElementTypeOrSelf(to).getIntOrFloatBitWidth() < 32)
        rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, to, v);
      else
        rewriter.replaceOpWithNewOp<Op>(op, to, v);
      return success();
    }
    if (!isHalf(to))
      return rewriter.notifyMatchFailure(op, "no half type");
    Value v = Op::create(rewriter, loc, wide, op.getIn());
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, to, v);
    return success();
  }
};

/// Rounding by the CPU's own instruction, where `afn` says that denormals may become 0.
struct RoundToBf16 : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    auto from = dyn_cast<VectorType>(op.getIn().getType());
    if (!from || from.getShape() != ArrayRef<int64_t>{16} || !from.getElementType().isF32() ||
        !getElementTypeOrSelf(op.getType()).isBF16() || onDevice(op))
      return rewriter.notifyMatchFailure(op, "not 16 f32 to bf16 on the host");
    std::optional<arith::FastMathFlags> flags = op.getFastmath();
    if (!flags || !bitEnumContainsAll(*flags, arith::FastMathFlags::afn))
      return rewriter.notifyMatchFailure(op, "denormals must stay");
    auto rounded = LLVM::CallIntrinsicOp::create(rewriter, op.getLoc(), op.getType(),
                                                 rewriter.getStringAttr("llvm.x86.avx512bf16.cvtneps2bf16.512"),
                                                 ValueRange{op.getIn()});
    rewriter.replaceOp(op, rounded);
    return success();
  }
};

/// Without such an instruction `math.fma` would be a call per lane. The polynomials stay within their bounds: where
/// they need an exact product, a factor has few bits.
struct SplitFma : OpRewritePattern<math::FmaOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::FmaOp op, PatternRewriter &rewriter) const override {
    if (onDevice(op))
      return rewriter.notifyMatchFailure(op, "devices have it");
    Value product = arith::MulFOp::create(rewriter, op.getLoc(), op.getA(), op.getB());
    rewriter.replaceOpWithNewOp<arith::AddFOp>(op, product, op.getC());
    return success();
  }
};

/// LLVM's own expansion for machines without such an instruction does not compile where integers of 64 bits are no
/// registers. Zeros of both signs count as equal.
template <typename Op, arith::CmpFPredicate predicate> struct ExpandExtreme : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    Value x = op.getLhs(), y = op.getRhs();
    if (!getElementTypeOrSelf(x.getType()).isF64())
      return rewriter.notifyMatchFailure(op, "LLVM has it");
    Location loc = op.getLoc();
    Value first = arith::CmpFOp::create(rewriter, loc, predicate, x, y);
    Value result = arith::SelectOp::create(rewriter, loc, first, x, y);
    Value isNaN = arith::CmpFOp::create(rewriter, loc, arith::CmpFPredicate::UNO, y, y);
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, isNaN, y, result);
    return success();
  }
};

bool targetIsArm32(ModuleOp module) { return disc::TargetAttr::of(module).getTriple().starts_with("arm"); }

struct LowerMath : disc::impl::LowerMathBase<LowerMath> {
  using LowerMathBase::LowerMathBase;

  void approximate(gpu::GPUModuleOp module) {
    module->setAttr(approximateAttr, UnitAttr::get(&getContext()));
    SmallVector<arith::DivFOp> quotients;
    module.walk([&](arith::DivFOp op) {
      if (isInexactQuotient(op))
        quotients.push_back(op);
    });
    for (arith::DivFOp op : quotients) {
      OpBuilder b(op);
      op.replaceAllUsesWith(emitIntrinsic(b, op.getLoc(), kDivide, op.getOperands()));
      op.erase();
    }
  }

  void runOnOperation() override {
    MLIRContext *context = &getContext();
    if (nvidia)
      getOperation().walk([&](gpu::GPUModuleOp module) { approximate(module); });
    RewritePatternSet patterns(context);
    // Powers with simple exponents first, and half types: what they become may be expanded further.
    populateMathAlgebraicSimplificationPatterns(patterns);
    patterns.add<WidenHalf, ConvertHalfThroughF32<arith::ExtFOp>, ConvertHalfThroughF32<arith::TruncFOp>,
                 ConvertHalfThroughF32<arith::SIToFPOp>, ConvertHalfThroughF32<arith::UIToFPOp>,
                 ConvertHalfThroughF32<arith::FPToSIOp>, ConvertHalfThroughF32<arith::FPToUIOp>, ExpandRsqrt>(context);
    bool hasFma = targetHasFma(getOperation());
    patterns.add<ExpandRem>(context, /*onHost=*/hasFma); // which needs exact sums
    if (!hasFma)
      patterns.add<SplitFma>(context);
    if (targetIsArm32(getOperation()))
      patterns.add<ExpandExtreme<arith::MaximumFOp, arith::CmpFPredicate::UGT>,
                   ExpandExtreme<arith::MinimumFOp, arith::CmpFPredicate::ULT>>(context);
    disc::TargetAttr machine = disc::TargetAttr::of(getOperation());
    if (machine.getBf16Tiles() || machine.getBf16Dot())
      patterns.add<RoundToBf16>(context, /*benefit=*/2);
    if (!nativeBf16)
      arith::populateExpandBFloat16Patterns(patterns);
    using M = MathEmitter;
    patterns.add<Expand<math::ExpOp>>(context, [](M &f, Value x) { return f.exp(x); });
    patterns.add<Expand<math::Exp2Op>>(context, [](M &f, Value x) { return f.exp2(x); });
    patterns.add<Expand<math::ExpM1Op>>(context, [](M &f, Value x) { return f.expm1(x); });
    patterns.add<Expand<math::LogOp>>(context, [](M &f, Value x) { return f.log(x); });
    patterns.add<Expand<math::Log2Op>>(context, [](M &f, Value x) { return f.log2(x); });
    patterns.add<Expand<math::Log10Op>>(context, [](M &f, Value x) { return f.log10(x); });
    patterns.add<Expand<math::Log1pOp>>(context, [](M &f, Value x) { return f.log1p(x); });
    patterns.add<Expand<math::TanhOp>>(context, [](M &f, Value x) { return f.tanh(x); });
    patterns.add<Expand<math::ErfOp>>(context, [](M &f, Value x) { return f.erf(x); });
    patterns.add<ExpandWithOne<math::ErfOp>>(context, [](M &f, Value x) { return f.onePlusErf(x); });
    patterns.add<ExpandWithOne<math::TanhOp>>(context, [](M &f, Value x) { return f.onePlusTanh(x); });
    patterns.add<Expand<math::AtanOp>>(context, [](M &f, Value x) { return f.atan(x); });
    patterns.add<Expand<math::AsinOp>>(context, [](M &f, Value x) { return f.asin(x); });
    patterns.add<Expand<math::AcosOp>>(context, [](M &f, Value x) { return f.acos(x); });
    patterns.add<Expand<math::SinhOp>>(context, [](M &f, Value x) { return f.sinh(x); });
    patterns.add<Expand<math::CoshOp>>(context, [](M &f, Value x) { return f.cosh(x); });
    patterns.add<Expand<math::AtanhOp>>(context, [](M &f, Value x) { return f.atanh(x); });
    patterns.add<Expand<math::ErfcOp>>(context, [](M &f, Value x) { return f.erfc(x); });
    patterns.add<Expand<math::AsinhOp>>(context, [](M &f, Value x) { return f.asinh(x); }, /*onHost=*/false);
    patterns.add<Expand<math::AcoshOp>>(context, [](M &f, Value x) { return f.acosh(x); }, /*onHost=*/false);
    patterns.add<ExpandTrig<math::SinOp>>(context, [](M &f, const M::Reduced &x) { return f.sin(x); }, /*isOdd=*/true);
    patterns.add<ExpandTrig<math::CosOp>>(context, [](M &f, const M::Reduced &x) { return f.cos(x); });
    patterns.add<ExpandTrig<math::TanOp>>(context, [](M &f, const M::Reduced &x) { return f.tan(x); }, /*isOdd=*/true);
    patterns.add<ExpandAtan2, ExpandPow>(context);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    getOperation().walk([&](gpu::GPUModuleOp module) { module->removeAttr(approximateAttr); });

    // The rest: one libm call per lane, except what is an instruction or has an expansion in LLVM.
    RewritePatternSet calls(context);
    populateMathToLibmConversionPatterns(calls, /*benefit=*/1);
    ConversionTarget target(*context);
    target.addLegalDialect<arith::ArithDialect, func::FuncDialect, scf::SCFDialect, vector::VectorDialect,
                           BuiltinDialect>();
    target.addDynamicallyLegalDialect<math::MathDialect>(onDevice);
    target.addLegalOp<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp, math::CountLeadingZerosOp,
                      math::CountTrailingZerosOp, math::CtPopOp, math::FloorOp, math::FmaOp, math::IsFiniteOp,
                      math::IsInfOp, math::IsNaNOp, math::IsNormalOp, math::RoundEvenOp, math::SqrtOp, math::TruncOp,
                      math::FPowIOp, math::IPowIOp>();
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    if (failed(applyPartialConversion(getOperation(), target, std::move(calls))))
      signalPassFailure();
  }
};
} // namespace
