//===- LowerMath.cpp - transcendental functions as polynomials --------------===//
//
//   %e = math.exp %x : vector<16xf32>
// becomes
//   %t = math.fma %x, log2(e), 1.5 * 2^23 ; %n = %t - 1.5 * 2^23     (the nearest integer, still in a float)
//   %r = %x - %n * ln 2 ; %p = a polynomial of %r ; %e = %p * 2^n
//
// The same for scalars. Largest errors found, in ulp of f32 (test/python/unit/test_math_accuracy.py checks them):
//   exp, exp2 1 · expm1 1.5 · log 1 · log1p 2.5 · log2, log10 2 · tanh 2 · erf 2
//   sin, cos 1.1 · tan 3 · atan, atan2, asin, acos 2.5 · sinh, cosh 2.5 · atanh 3 · remainders are exact
// All handle infinities, NaN and denormals. Arguments of sin, cos and tan from 12000 on, and quotients from 2^22 on, go
// to libm, as do the other functions, and f64, per lane. f16 is computed in f32; so is bf16, whose conversions become
// integer arithmetic: the compiler's own would call library helpers.
//
// Lit test: test/lit/Common/lower-math.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/Passes.h"

#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::disc {
#define GEN_PASS_DEF_LOWERMATH
#include "lib/Target/Common/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;

namespace {
/// Emits f32 arithmetic, on scalars or vectors as `like` is.
class F32 {
public:
  F32(OpBuilder &builder, Location loc, Type like) : b(loc, builder), type(like) {}

  Value c(float v) { return splat(b.getF32FloatAttr(v), type); }
  Value ci(int32_t v) { return splat(b.getI32IntegerAttr(v), intType()); }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, x, y); }
  Value fma(Value x, Value y, Value z) { return math::FmaOp::create(b, x, y, z); }
  Value abs(Value x) { return math::AbsFOp::create(b, x); }
  Value copySign(Value magnitude, Value sign) { return math::CopySignOp::create(b, magnitude, sign); }
  Value less(Value x, Value y) { return arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, y); }
  Value equal(Value x, Value y) { return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x, y); }
  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, condition, x, y); }
  /// Clamps; NaN stays NaN.
  Value atMost(Value x, Value limit) { return select(less(limit, x), limit, x); }
  Value atLeast(Value x, Value limit) { return select(less(x, limit), limit, x); }
  Value bits(Value x) { return arith::BitcastOp::create(b, intType(), x); }
  Value fromBits(Value x) { return arith::BitcastOp::create(b, type, x); }
  Value addI(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value subI(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
  Value shl(Value x, int32_t n) { return arith::ShLIOp::create(b, x, ci(n)); }
  Value sar(Value x, int32_t n) { return arith::ShRSIOp::create(b, x, ci(n)); }
  Value toFloat(Value x) { return arith::SIToFPOp::create(b, type, x); }

  /// Horner's rule; coefficients from the constant one up.
  Value polynomial(Value x, ArrayRef<float> coefficients) {
    Value p = c(coefficients.back());
    for (float coefficient : llvm::reverse(coefficients.drop_back()))
      p = fma(p, x, c(coefficient));
    return p;
  }

  /// 2^n for an integer n in [-126, 127].
  Value powerOfTwo(Value n) { return fromBits(shl(addI(n, ci(127)), 23)); }

  /// `x` rounded to the nearest integer: as a float, and as an integer. |x| < 2^21.
  std::pair<Value, Value> round(Value xPlusMagic) {
    return {sub(xPlusMagic, c(magic)), subI(bits(xPlusMagic), ci(0x4B400000))};
  }
  static constexpr float magic = 12582912.0f; // 1.5 * 2^23: adding it leaves the integer in the low bits

  /// e^r - 1 - r over r^2, for |r| <= ln(2) / 2.
  Value expTail(Value r) {
    return polynomial(r, {0.4999999403953552f, 0.1666651964187622f, 0.04166839271783829f, 0.008368780836462975f,
                          0.001381446490995586f});
  }
  Value expm1OfReduced(Value r) { return fma(mul(r, r), expTail(r), r); }
  Value expOfReduced(Value r) { return add(expm1OfReduced(r), c(1.0f)); }

  /// p * 2^n; in two steps, as 2^n alone may lie outside the range of f32.
  Value scale(Value p, Value n) {
    Value half = sar(n, 1);
    return mul(mul(p, powerOfTwo(half)), powerOfTwo(subI(n, half)));
  }

  /// n and r with x = n ln 2 + r.
  std::tuple<Value, Value> reduceExp(Value x) {
    auto [n, integer] = round(fma(x, c(1.44269504088896341f), c(magic)));
    Value r = fma(n, c(-0.693359375f), x); // exact: the constant has few bits
    return {integer, fma(n, c(2.12194440e-4f), r)};
  }

  Value exp(Value x) {
    // Beyond these the result is infinite or zero anyway.
    auto [n, r] = reduceExp(atLeast(atMost(x, c(89.0f)), c(-104.0f)));
    return scale(expOfReduced(r), n);
  }

  Value exp2(Value x) {
    Value clamped = atLeast(atMost(x, c(129.0f)), c(-151.0f));
    auto [n, integer] = round(add(clamped, c(magic)));
    return scale(expOfReduced(mul(sub(clamped, n), c(0.693147180559945309f))), integer);
  }

  Value expm1(Value x) {
    auto [n, r] = reduceExp(atLeast(atMost(x, c(89.0f)), c(-30.0f)));
    // 2^n (t + 1) - 1, without cancelling; 2^n in two factors as in scale().
    Value first = sar(n, 1), second = subI(n, first);
    Value power = powerOfTwo(first), one = powerOfTwo(subI(ci(0), second));
    return mul(fma(power, expm1OfReduced(r), sub(power, one)), powerOfTwo(second));
  }

  Value tanh(Value x) {
    Value magnitude = abs(x), z = mul(x, x);
    Value p = polynomial(z, {-0.3333328068256378f, 0.13331373035907745f, -0.053733695298433304f, 0.02061862125992775f,
                             -0.005681279115378857f});
    Value small = fma(mul(x, z), p, x);
    Value e = exp(add(magnitude, magnitude));
    Value large = sub(c(1.0f), div(c(2.0f), add(e, c(1.0f))));
    return select(less(magnitude, c(0.625f)), small, copySign(large, x));
  }

  Value erf(Value x) {
    Value magnitude = abs(x), z = mul(x, x);
    Value p = polynomial(z, {0.12837916612625122f, -0.37612631916999817f, 0.11283687502145767f, -0.026858940720558167f,
                             0.005199906416237354f, -0.0008130011847242713f, 8.316772436955944e-05f});
    Value small = fma(x, p, x);
    // 1 - e^(ln erfc |x|); past 4 that is 1.
    Value t = atMost(magnitude, c(4.0f));
    Value q = mul(t, polynomial(t, {-1.1285111904144287f, -0.6357290744781494f, -0.10524770617485046f,
                                    0.02288094162940979f, -0.0032121522817760706f, 0.00021364599524531513f}));
    auto [n, r] = reduceExp(q);
    Value large = sub(c(1.0f), mul(expOfReduced(r), powerOfTwo(n)));
    return select(less(magnitude, c(0.93f)), small, copySign(large, x));
  }

  /// The natural logarithm as n ln 2 + f + tail, f the mantissa less 1; and the fix-up of special values.
  Value log(Value x, float ln2High, float ln2Low, float unit) {
    // Denormals are made normal first.
    Value isTiny = less(x, c(1.17549435e-38f));
    Value normal = select(isTiny, mul(x, c(8388608.0f)), x);
    // Mantissa in [sqrt(1/2), sqrt(2)): the exponent is that of x / sqrt(1/2).
    Value shifted = subI(bits(normal), ci(0x3F3504F3));
    Value exponent = sar(shifted, 23);
    Value mantissa = fromBits(subI(bits(normal), shl(exponent, 23)));
    Value n = sub(toFloat(exponent), select(isTiny, c(23.0f), c(0.0f)));
    Value f = sub(mantissa, c(1.0f)), f2 = mul(f, f);
    Value p = polynomial(f, {0.3333331346511841f, -0.25000008940696716f, 0.2000211924314499f, -0.1666799634695053f,
                             0.14219550788402557f, -0.12405592203140259f, 0.11888177692890167f, -0.1167563870549202f,
                             0.06746591627597809f});
    Value tail = mul(mul(f2, f), p);
    tail = fma(f2, c(-0.5f), tail);
    // In the unit of the result: 1 for ln, log2(e) for log2, log10(e) for log10.
    Value result = fma(n, c(ln2Low), mul(tail, c(unit)));
    result = add(fma(f, c(unit), result), mul(n, c(ln2High)));
    Value infinity = c(std::numeric_limits<float>::infinity());
    result = select(equal(x, infinity), infinity, result);
    result = select(equal(x, c(0.0f)), c(-std::numeric_limits<float>::infinity()), result);
    // Negative or NaN: NaN.
    Value valid = arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, x, c(0.0f));
    return select(valid, result, c(std::numeric_limits<float>::quiet_NaN()));
  }

  /// ln(1 + x): the logarithm of the rounded sum, corrected for the rounding (Kahan's formula, as the HP-15C manual
  /// of 1982 gives it).
  Value log1p(Value x) {
    Value sum = add(x, c(1.0f)), rounded = sub(sum, c(1.0f));
    Value whole = log(sum, 0.693359375f, -2.12194440e-4f, 1.0f);
    Value result = mul(whole, div(x, rounded));
    result = select(equal(sum, c(std::numeric_limits<float>::infinity())), whole, result);
    return select(equal(rounded, c(0.0f)), x, result);
  }

  /// x = n pi/2 + r + rest with |r| <= pi/4; the last bits of n are right. |x| < 12000.
  struct Reduced {
    Value n, r, rest;
  };
  Reduced reduceTrig(Value x) {
    auto [n, integer] = round(fma(x, c(0.63661977236758134f), c(magic)));
    // pi/2 in parts of 11 bits, of which the products with n are exact, and a rest. So are the first two differences.
    Value high = fma(n, c(-4.837512969970703e-4f), fma(n, c(-1.5703125f), x));
    Value low = mul(n, c(7.549533620476723e-8f)), r = sub(high, low);
    return {integer, r, fma(n, c(-2.5633440682570896e-12f), sub(sub(high, r), low))};
  }
  Value sinOfReduced(const Reduced &x, Value s) {
    Value p = polynomial(s, {-0.16666655242443085f, 0.008332173340022564f, -0.00019516654720064253f});
    return add(x.r, fma(mul(x.r, s), p, x.rest));
  }
  Value cosOfReduced(const Reduced &x, Value s) {
    Value p = polynomial(s, {0.04166664555668831f, -0.001388736185617745f, 2.4437727915938012e-05f});
    Value tail = fma(mul(s, s), p, mul(x.r, sub(c(0.0f), x.rest)));
    return add(c(1.0f), fma(s, c(-0.5f), tail));
  }
  Value isOdd(Value n) { return equalI(andI(n, ci(1)), ci(1)); }
  /// The sine, a number of quarters of a turn further.
  Value sinOf(const Reduced &x, int32_t quarters) {
    Value n = addI(x.n, ci(quarters)), s = mul(x.r, x.r);
    Value p = select(isOdd(n), cosOfReduced(x, s), sinOfReduced(x, s));
    return fromBits(xorI(bits(p), shl(andI(n, ci(2)), 30)));
  }
  Value tan(Value value) {
    Reduced x = reduceTrig(value);
    Value s = mul(x.r, x.r), sine = sinOfReduced(x, s), cosine = cosOfReduced(x, s), odd = isOdd(x.n);
    return div(select(odd, sub(c(0.0f), cosine), sine), select(odd, sine, cosine));
  }

  /// The arc tangent of a in [0, 1].
  Value atanOfUnit(Value a) {
    Value s = mul(a, a);
    Value p = polynomial(s, {-0.33333301544189453f, 0.19998638331890106f, -0.1426524519920349f, 0.10957571864128113f,
                             -0.08419445902109146f, 0.0582343190908432f, -0.03145546838641167f, 0.011064315214753151f,
                             -0.0018271846929565072f});
    return fma(mul(a, s), p, a);
  }
  /// pi/2 - x, and pi - x.
  Value fromQuarter(Value x) { return add(sub(c(1.57079637f), x), c(-4.37113883e-8f)); }
  Value fromHalf(Value x) { return add(sub(c(3.14159274f), x), c(-8.74227766e-8f)); }
  Value atan(Value x) {
    Value magnitude = abs(x), large = less(c(1.0f), magnitude);
    Value r = atanOfUnit(select(large, div(c(1.0f), magnitude), magnitude));
    return copySign(select(large, fromQuarter(r), r), x);
  }
  Value atan2(Value y, Value x) {
    Value ay = abs(y), ax = abs(x), flat = less(ay, ax);
    Value low = select(flat, ay, ax), high = select(flat, ax, ay);
    // Equal ones may be infinite, or zero, where the result is that of a ratio of zero.
    Value ratio = select(equal(low, high), c(1.0f), div(low, high));
    Value r = atanOfUnit(select(equal(add(ax, ay), c(0.0f)), c(0.0f), ratio));
    r = select(less(ax, ay), fromQuarter(r), r);
    Value negative = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, bits(x), ci(0));
    return copySign(select(negative, fromHalf(r), r), y);
  }

  /// Whether |x| < 1/2, and the arc sine of |x|, or else of sqrt((1 - |x|) / 2).
  std::tuple<Value, Value> asinOfHalf(Value x) {
    Value magnitude = abs(x), small = less(magnitude, c(0.5f));
    Value s = select(small, mul(x, x), mul(sub(c(1.0f), magnitude), c(0.5f)));
    Value v = select(small, magnitude, math::SqrtOp::create(b, s));
    Value p = polynomial(s, {0.16666659712791443f, 0.07500510662794113f, 0.04451572149991989f, 0.03181760758161545f,
                             0.014402614906430244f, 0.037565186619758606f});
    return {small, fma(mul(v, s), p, v)};
  }
  Value asin(Value x) {
    auto [small, r] = asinOfHalf(x);
    return copySign(select(small, r, fromQuarter(add(r, r))), x);
  }
  Value acos(Value x) {
    auto [small, r] = asinOfHalf(x);
    Value twice = add(r, r);
    Value large = select(less(x, c(0.0f)), fromHalf(twice), twice);
    return select(small, fromQuarter(copySign(r, x)), large);
  }

  /// e^x / 2 for a large x, of which e^x may be infinite.
  Value halfExp(Value x) {
    Value root = exp(mul(x, c(0.5f)));
    return mul(mul(root, c(0.5f)), root);
  }
  Value sinh(Value x) {
    Value magnitude = abs(x), t = expm1(magnitude);
    Value small = mul(c(0.5f), add(t, div(t, add(t, c(1.0f)))));
    return copySign(select(less(magnitude, c(80.0f)), small, halfExp(magnitude)), x);
  }
  Value cosh(Value x) {
    Value magnitude = abs(x), e = exp(magnitude);
    Value small = fma(c(0.5f), e, div(c(0.5f), e));
    return select(less(magnitude, c(80.0f)), small, halfExp(magnitude));
  }
  Value atanh(Value x) {
    Value magnitude = abs(x);
    Value r = mul(c(0.5f), log1p(div(add(magnitude, magnitude), sub(c(1.0f), magnitude))));
    return copySign(r, x);
  }

  /// The remainder of x / y, truncated; |x| / |y| < 2^22. The quotient is at most one off, and what follows exact.
  Value rem(Value x, Value y) {
    Value ax = abs(x), ay = abs(y);
    Value q = math::TruncOp::create(b, div(ax, ay));
    Value r = fma(sub(c(0.0f), q), ay, ax);
    r = select(less(r, c(0.0f)), add(r, ay), r);
    r = select(less(r, ay), r, sub(r, ay));
    return copySign(select(less(ax, ay), ax, r), x);
  }

  /// Whether all lanes lie below the limit: an i1.
  Value allBelow(Value x, float limit) {
    Value below = less(x, c(limit));
    if (!isa<VectorType>(type))
      return below;
    return vector::ReductionOp::create(b, vector::CombiningKind::AND, below);
  }

private:
  Value andI(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value xorI(Value x, Value y) { return arith::XOrIOp::create(b, x, y); }
  Value equalI(Value x, Value y) { return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y); }
  Type intType() { return withElement(b.getI32Type()); }
  Type withElement(Type elem) {
    auto vector = dyn_cast<VectorType>(type);
    return vector ? Type(vector.clone(elem)) : elem;
  }
  Value splat(TypedAttr v, Type as) {
    if (auto vector = dyn_cast<VectorType>(as))
      return arith::ConstantOp::create(b, cast<TypedAttr>(DenseElementsAttr::get(vector, Attribute(v))));
    return arith::ConstantOp::create(b, v);
  }

  ImplicitLocOpBuilder b;
  Type type;
};

using Expansion = Value (*)(F32 &, Value);

template <typename Op> struct ExpandF32 : OpRewritePattern<Op> {
  ExpandF32(MLIRContext *context, Expansion expansion) : OpRewritePattern<Op>(context), expansion(expansion) {}

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    Type type = op.getType();
    if (!getElementTypeOrSelf(type).isF32())
      return rewriter.notifyMatchFailure(op, "not f32");
    F32 f(rewriter, op.getLoc(), type);
    rewriter.replaceOp(op, expansion(f, op.getOperand()));
    return success();
  }

  Expansion expansion;
};

/// What an operation that is left to libm carries, so that it is not expanded again.
constexpr StringLiteral libmAttr = "disc.libm";

/// `fast` where all lanes of `bounded` lie below `limit`, else the operation itself, in libm.
template <typename Op>
LogicalResult expandBelow(Op op, PatternRewriter &rewriter, float limit, function_ref<Value(F32 &)> bounded,
                          function_ref<Value(F32 &)> fast) {
  if (!getElementTypeOrSelf(op.getType()).isF32() || op->hasAttr(libmAttr))
    return rewriter.notifyMatchFailure(op, "not f32, or left to libm");
  F32 f(rewriter, op.getLoc(), op.getType());
  auto either = scf::IfOp::create(rewriter, op.getLoc(), op.getType(), f.allBelow(bounded(f), limit),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointToStart(either.thenBlock());
  F32 inside(rewriter, op.getLoc(), op.getType());
  scf::YieldOp::create(rewriter, op.getLoc(), fast(inside));
  rewriter.setInsertionPointToStart(either.elseBlock());
  Operation *slow = rewriter.clone(*op);
  slow->setAttr(libmAttr, rewriter.getUnitAttr());
  scf::YieldOp::create(rewriter, op.getLoc(), slow->getResults());
  rewriter.replaceOp(op, either);
  return success();
}

template <typename Op> struct ExpandTrig : OpRewritePattern<Op> {
  ExpandTrig(MLIRContext *context, Expansion expansion) : OpRewritePattern<Op>(context), expansion(expansion) {}

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    return expandBelow(
        op, rewriter, 12000.0f, [&](F32 &f) { return f.abs(op.getOperand()); },
        [&](F32 &f) { return expansion(f, op.getOperand()); });
  }

  Expansion expansion;
};

struct ExpandRem : OpRewritePattern<arith::RemFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::RemFOp op, PatternRewriter &rewriter) const override {
    return expandBelow(
        op, rewriter, 4194304.0f, [&](F32 &f) { return f.abs(f.div(op.getLhs(), op.getRhs())); },
        [&](F32 &f) { return f.rem(op.getLhs(), op.getRhs()); });
  }
};

struct ExpandAtan2 : OpRewritePattern<math::Atan2Op> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::Atan2Op op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return rewriter.notifyMatchFailure(op, "not f32");
    F32 f(rewriter, op.getLoc(), op.getType());
    rewriter.replaceOp(op, f.atan2(op.getLhs(), op.getRhs()));
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
    Operation *wide = rewriter.clone(*op);
    wide->setOperands(operands);
    Type type = op->getResult(0).getType();
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

/// Without such an instruction `math.fma` would be a call per lane. The polynomials stay within their bounds: where
/// they need an exact product, a factor has few bits.
struct SplitFma : OpRewritePattern<math::FmaOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::FmaOp op, PatternRewriter &rewriter) const override {
    Value product = arith::MulFOp::create(rewriter, op.getLoc(), op.getA(), op.getB());
    rewriter.replaceOpWithNewOp<arith::AddFOp>(op, product, op.getC());
    return success();
  }
};

/// False for an x86 target whose features lack FMA; those of the target that is not described have it.
bool targetHasFma(ModuleOp module) {
  auto target = module->getAttrOfType<DictionaryAttr>("disc_plan.target");
  auto triple = target ? target.getAs<StringAttr>("triple") : StringAttr();
  auto features = target ? target.getAs<StringAttr>("features") : StringAttr();
  return !triple || !features || !triple.getValue().starts_with("x86_64") || features.getValue().contains("+fma");
}

struct LowerMath : disc::impl::LowerMathBase<LowerMath> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    RewritePatternSet patterns(context);
    // Powers with simple exponents first, and half types: what they become may be expanded further.
    populateMathAlgebraicSimplificationPatterns(patterns);
    patterns.add<WidenHalf, ConvertHalfThroughF32<arith::ExtFOp>, ConvertHalfThroughF32<arith::TruncFOp>,
                 ConvertHalfThroughF32<arith::SIToFPOp>, ConvertHalfThroughF32<arith::UIToFPOp>,
                 ConvertHalfThroughF32<arith::FPToSIOp>, ConvertHalfThroughF32<arith::FPToUIOp>, ExpandRsqrt>(context);
    if (targetHasFma(getOperation()))
      patterns.add<ExpandRem>(context); // which needs exact sums
    else
      patterns.add<SplitFma>(context);
    arith::populateExpandBFloat16Patterns(patterns);
    patterns.add<ExpandF32<math::ExpOp>>(context, [](F32 &f, Value x) { return f.exp(x); });
    patterns.add<ExpandF32<math::Exp2Op>>(context, [](F32 &f, Value x) { return f.exp2(x); });
    patterns.add<ExpandF32<math::ExpM1Op>>(context, [](F32 &f, Value x) { return f.expm1(x); });
    patterns.add<ExpandF32<math::TanhOp>>(context, [](F32 &f, Value x) { return f.tanh(x); });
    patterns.add<ExpandF32<math::ErfOp>>(context, [](F32 &f, Value x) { return f.erf(x); });
    patterns.add<ExpandF32<math::Log1pOp>>(context, [](F32 &f, Value x) { return f.log1p(x); });
    patterns.add<ExpandF32<math::AtanOp>>(context, [](F32 &f, Value x) { return f.atan(x); });
    patterns.add<ExpandF32<math::AsinOp>>(context, [](F32 &f, Value x) { return f.asin(x); });
    patterns.add<ExpandF32<math::AcosOp>>(context, [](F32 &f, Value x) { return f.acos(x); });
    patterns.add<ExpandF32<math::SinhOp>>(context, [](F32 &f, Value x) { return f.sinh(x); });
    patterns.add<ExpandF32<math::CoshOp>>(context, [](F32 &f, Value x) { return f.cosh(x); });
    patterns.add<ExpandF32<math::AtanhOp>>(context, [](F32 &f, Value x) { return f.atanh(x); });
    patterns.add<ExpandTrig<math::SinOp>>(context, [](F32 &f, Value x) { return f.sinOf(f.reduceTrig(x), 0); });
    patterns.add<ExpandTrig<math::CosOp>>(context, [](F32 &f, Value x) { return f.sinOf(f.reduceTrig(x), 1); });
    patterns.add<ExpandTrig<math::TanOp>>(context, [](F32 &f, Value x) { return f.tan(x); });
    patterns.add<ExpandAtan2>(context);
    // ln 2 in the unit of each result, its high part with few bits so that n * high is exact.
    patterns.add<ExpandF32<math::LogOp>>(context,
                                         [](F32 &f, Value x) { return f.log(x, 0.693359375f, -2.12194440e-4f, 1.0f); });
    patterns.add<ExpandF32<math::Log2Op>>(context,
                                          [](F32 &f, Value x) { return f.log(x, 1.0f, 0.0f, 1.44269504088896341f); });
    patterns.add<ExpandF32<math::Log10Op>>(
        context, [](F32 &f, Value x) { return f.log(x, 0.301025391f, 4.60503907e-6f, 0.434294481903251828f); });
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();

    // The rest: one libm call per lane, except what is an instruction or has an expansion in LLVM.
    RewritePatternSet calls(context);
    populateMathToLibmConversionPatterns(calls, /*benefit=*/1);
    ConversionTarget target(*context);
    target.addLegalDialect<arith::ArithDialect, func::FuncDialect, scf::SCFDialect, vector::VectorDialect,
                           BuiltinDialect>();
    target.addIllegalDialect<math::MathDialect>();
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
