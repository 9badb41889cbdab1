//===- MathF32.cpp - functions of f32 -------------------------------------===//

#include "lib/Target/Common/MathEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <limits>

using namespace mlir;
using namespace mlir::disc;

namespace {
class MathF32 : public MathEmitter {
public:
  MathF32(OpBuilder &builder, Location loc, Type like)
      : MathEmitter(builder, loc, like, builder.getI32Type(), /*mantissaBits=*/23) {}

  Value exp(Value x) override {
    // Beyond these the result is infinite or zero anyway.
    auto [n, r] = reduceExp(atLeast(atMost(x, c(89.0f)), c(-104.0f)));
    return scale(unlessZero(less(x, c(-103.97208f)), expOfReduced(r)), n);
  }

  Value exp2(Value x) override {
    Value clamped = atLeast(atMost(x, c(129.0f)), c(-151.0f));
    auto [n, integer] = round(add(clamped, c(magic())));
    return scale(unlessZero(less(x, c(-150.0f)), expOfReduced(mul(sub(clamped, n), c(0.693147180559945309f)))),
                 integer);
  }

  Value expm1(Value x) override {
    auto [n, r] = reduceExp(atLeast(atMost(x, c(89.0f)), c(-30.0f)));
    // 2^n (t + 1) - 1, without cancelling; 2^n in two factors as in scale().
    Value first = sar(n, 1), second = subI(n, first);
    Value power = powerOfTwo(first), one = powerOfTwo(subI(ci(0), second));
    return copySign(mul(fma(power, expm1OfReduced(r), sub(power, one)), powerOfTwo(second)), x); // also of a zero
  }

  // ln 2 in the unit of each result, its high part with few bits so that n * high is exact.
  Value log(Value x) override { return log(x, 0.693359375f, -2.12194440e-4f, 1.0f); }
  Value log2(Value x) override { return log(x, 1.0f, 0.0f, 1.44269504088896341f); }
  Value log10(Value x) override { return log(x, 0.301025391f, 4.60503907e-6f, 0.434294481903251828f); }

  // (e^2|x| - 1) / (e^2|x| + 1); from 9.1 on that is 1.
  Value tanh(Value x) override {
    auto [n, r] = reduceExp(mul(atMost(abs(x), c(9.1f)), c(2.0f)));
    Value power = powerOfTwo(n), less1 = fma(power, expm1OfReduced(r), sub(power, c(1.0f)));
    return copySign(div(less1, add(less1, c(2.0f))), x); // also of a zero
  }

  Value erf(Value x) override {
    Value magnitude = abs(x), small = erfOfSmall(x);
    // 1 - e^(ln erfc |x|); past 4 that is 1.
    Value t = atMost(magnitude, c(4.0f));
    auto [n, r] = reduceExp(logOfErfc(t, 1.0));
    Value large = sub(c(1.0f), mul(expOfReduced(r), powerOfTwo(n)));
    return select(less(magnitude, c(0.93f)), small, copySign(large, x));
  }

  // erfc(-x): e for negative x and 2 - e for positive, with e = erfc |x|.
  Value onePlusErf(Value x) override {
    Value power = log2OfErfc(atMost(abs(x), c(kErfcEnd)));
    auto [n, integer] = round(add(power, c(magic())));
    Value r = sub(power, n), r2 = mul(r, r);
    Value p = fma(r, polynomial(r2, {0.6931471824645996, 0.055503323674201965, 0.0013398875016719103}),
                  polynomial(r2, {1.0, 0.24022647738456726, 0.00961843691766262, 0.00015353360504377633}));
    Value e = mul(p, powerOfTwo(integer));
    return select(isNegative(x), e, sub(c(2.0f), e));
  }
  Value onePlusTanh(Value x) override { return div(c(2.0f), add(c(1.0f), exp(mul(x, c(-2.0f))))); }

  Value erfc(Value x) override {
    Value magnitude = abs(x), far = erfcOfLarge(magnitude);
    Value large = select(less(x, c(0.0f)), sub(c(2.0f), far), far);
    return select(less(magnitude, c(0.5f)), sub(c(1.0f), erfOfSmall(x)), large);
  }

  /// 2^(y log2 |x|), with the product in f64: an exponent of up to 128 multiplies the error of the logarithm. With m
  /// the mantissa and s = (m - 1) / (m + 1), log2 m = 2 atanh(s) / ln 2, to 2^-37 of itself. (Muller, "Elementary
  /// Functions", 3rd edition 2016, 11.3 on powers and 11.2 on the signs of C's Annex F; both polynomials are minimax.)
  Value pow(Value x, Value y) override {
    Value infinity = c(std::numeric_limits<float>::infinity()), zero = c(0.0f);
    Value magnitude = abs(x);
    auto [mantissa, exponent] = splitExponent(magnitude);
    // The mantissa is finite whatever x is: the exponent alone says that the logarithm is infinite or NaN.
    Value n = select(less(magnitude, infinity), toFloat(exponent), magnitude);
    n = select(equal(magnitude, zero), neg(infinity), n);
    // Beyond 2^100 only the sign of y counts; and that is no infinity, whose product with 0 would be NaN.
    Value power = widen(atLeast(atMost(y, c(0x1p100f)), c(-0x1p100f)));

    Type wide = power.getType();
    auto d = [&](double v) { return constantOf(wide, v); };
    Value f = widen(sub(mantissa, c(1.0f))), s = div(f, add(f, d(2.0)));
    Value p = polynomial(mul(s, s), {2.8853900817900864, 0.9617966733416803, 0.577083584976157, 0.4116727187418326,
                                     0.34073010677074245});
    // f64 has more exponents than f32: neither 2^n nor the result is out of range before it is rounded to f32.
    Value product = atLeast(atMost(mul(power, fma(s, p, widen(n))), d(200.0)), d(-200.0));
    double magic64 = 1.5 * 0x1p52;
    Value shifted = add(product, d(magic64)), r = sub(product, sub(shifted, d(magic64)));
    Value q = polynomial(r, {1.0000000005541556, 0.6931472057373329, 0.24022646890650354, 0.0555032877681101,
                             0.00961848895567845, 0.0013399931274398111, 0.0001534581241236948});
    Type i64 = withElement(b.getI64Type());
    Value fifty = splat(b.getI64IntegerAttr(52), i64), one64 = splat(b.getI64IntegerAttr(int64_t(1023) << 52), i64);
    Value twoToN = addI(arith::ShLIOp::create(b, arith::BitcastOp::create(b, i64, shifted), fifty), one64);
    Value result = narrow(mul(q, arith::BitcastOp::create(b, wide, twoToN)));
    return signedPower(x, y, result);
  }
  Reduced reduceTrigFar(Value x, int64_t largestExponent) override {
    Value wide = widen(x);
    Reduced far = createMathF64(b, b.getLoc(), wide.getType())->reduceTrigFar(wide, largestExponent);
    Value r = narrow(far.r);
    Value low = arith::AddFOp::create(b, arith::SubFOp::create(b, far.r, widen(r)), far.rest);
    return {arith::TruncIOp::create(b, intType(), far.n), r, narrow(low)};
  }

  double trigLimit() const override { return 12000.0; }
  Reduced reduceTrig(Value x) override {
    auto [n, integer] = round(fma(x, c(0.63661977236758134f), c(magic())));
    // pi/2 in parts of 11 bits, of which the products with n are exact, and a rest. So are the first two differences.
    Value high = fma(n, c(-4.837512969970703e-4f), fma(n, c(-1.5703125f), x));
    Value low = mul(n, c(7.549533620476723e-8f)), r = sub(high, low);
    return {integer, r, fma(n, c(-2.5633440682570896e-12f), sub(sub(high, r), low))};
  }

protected:
  Value sinOfReduced(const Reduced &x, Value s) override {
    Value p = polynomial(s, {-0.16666655242443085f, 0.008332173340022564f, -0.00019516654720064253f});
    return add(x.r, fma(mul(x.r, s), p, x.rest));
  }
  Value cosOfReduced(const Reduced &x, Value s) override {
    Value p = polynomial(s, {0.04166664555668831f, -0.001388736185617745f, 2.4437727915938012e-05f});
    Value tail = fma(mul(s, s), p, mul(x.r, neg(x.rest)));
    return add(c(1.0f), fma(s, c(-0.5f), tail));
  }
  Value atanOfUnit(Value a) override {
    Value s = mul(a, a);
    Value p = polynomial(s, {-0.33333301544189453f, 0.19998638331890106f, -0.1426524519920349f, 0.10957571864128113f,
                             -0.08419445902109146f, 0.0582343190908432f, -0.03145546838641167f, 0.011064315214753151f,
                             -0.0018271846929565072f});
    return fma(mul(a, s), p, a);
  }
  Value asinOf(Value v, Value s) override {
    Value p = polynomial(s, {0.16666659712791443f, 0.07500510662794113f, 0.04451572149991989f, 0.03181760758161545f,
                             0.014402614906430244f, 0.037565186619758606f});
    return fma(mul(v, s), p, v);
  }
  std::pair<double, double> halfPi() const override { return {1.57079637f, -4.37113883e-8f}; }
  double largeArgument() const override { return 80.0; }

  Value widen(Value x) { return arith::ExtFOp::create(b, withElement(b.getF64Type()), x); }
  Value narrow(Value x) { return arith::TruncFOp::create(b, type, x); }

  /// For |x| < 0.625.
  Value tanhOfSmall(Value x) {
    Value z = mul(x, x);
    Value p = polynomial(z, {-0.3333328068256378f, 0.13331373035907745f, -0.053733695298433304f, 0.02061862125992775f,
                             -0.005681279115378857f});
    return fma(mul(x, z), p, x);
  }
  /// ln erfc t times `unit` for t from 0.93 to 4.
  Value logOfErfc(Value t, double unit) {
    constexpr double coefficients[] = {-1.1285111904144287f, -0.6357290744781494f,    -0.10524770617485046f,
                                       0.02288094162940979f, -0.0032121522817760706f, 0.00021364599524531513f};
    Value p = c(coefficients[5] * unit);
    for (int i = 4; i >= 0; --i)
      p = fma(p, t, c(coefficients[i] * unit));
    return mul(t, p);
  }
  /// log2 erfc t, for t up to kErfcEnd. Fitted up to 4, where erfc is an eighth of the last place of 1, it falls from
  /// there to -127; and the power of two is then 0.
  static constexpr float kErfcEnd = 7.172f;
  Value log2OfErfc(Value t) {
    Value s = mul(t, t);
    // The even and the odd powers apart: half the latency.
    Value even =
        polynomial(s, {-1.6279093266164206, -0.14854865676844975, -0.0009812734266994943, 0.0004001109606063274});
    Value odd =
        polynomial(s, {-0.9184040260052514, 0.028418137310296084, -0.0013523575502072378, -3.947984360879075e-05});
    return mul(t, fma(odd, t, even));
  }
  /// For |x| < 0.93.
  Value erfOfSmall(Value x) {
    Value p = polynomial(mul(x, x),
                         {0.12837916612625122f, -0.37612631916999817f, 0.11283687502145767f, -0.026858940720558167f,
                          0.005199906416237354f, -0.0008130011847242713f, 8.316772436955944e-05f});
    return fma(x, p, x);
  }
  /// For x >= 1/2, as in f64: past 10.3 it is zero.
  Value erfcOfLarge(Value x) {
    Value near = atMost(x, c(10.3f)), t = div(sub(near, c(4.0f)), add(near, c(4.0f)));
    Value p = polynomial(t, {1.2329951524734497f, -0.13962110877037048f, 0.015379637479782104f, 0.06809604912996292f,
                             -0.10103989392518997f, 0.09375494718551636f, -0.06630150228738785f, 0.03701132535934448f,
                             -0.016463322564959526f, 0.005344506353139877f});
    auto [square, rest] = exactProduct(near, near);
    auto [n, r] = reduceExp(neg(square));
    Value scaled = div(p, fma(near, c(2.0f), c(1.0f)));
    return scale(mul(scaled, expOfReduced(sub(r, rest))), n);
  }

  /// e^r - 1 - r over r^2, for |r| <= ln(2) / 2.
  Value expTail(Value r) {
    return polynomial(r, {0.4999999403953552f, 0.1666651964187622f, 0.04166839271783829f, 0.008368780836462975f,
                          0.001381446490995586f});
  }
  Value expm1OfReduced(Value r) { return fma(mul(r, r), expTail(r), r); }
  Value expOfReduced(Value r) { return add(expm1OfReduced(r), c(1.0f)); }

  /// n and r with x = n ln 2 + r.
  std::pair<Value, Value> reduceExp(Value x) {
    auto [n, integer] = round(fma(x, c(1.44269504088896341f), c(magic())));
    Value r = fma(n, c(-0.693359375f), x); // exact: the constant has few bits
    return {integer, fma(n, c(2.12194440e-4f), r)};
  }

  /// The logarithm as n ln 2 + f + tail, f the mantissa less 1; and the fix-up of special values.
  Value log(Value x, float ln2High, float ln2Low, float unit) {
    auto [mantissa, exponent] = splitExponent(x);
    Value n = toFloat(exponent), f = sub(mantissa, c(1.0f)), f2 = mul(f, f);
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
    return select(compare(arith::CmpFPredicate::OGE, x, c(0.0f)), result, c(std::numeric_limits<float>::quiet_NaN()));
  }
};

/// With the instructions that NVIDIA's GPUs have for powers of two and reciprocals, in their unit for special
/// functions: relative errors of 2^-22.5 and 2^-23 (PTX ISA, ex2.approx, rcp.approx and div.full). `ftz`: without
/// denormals.
class MathF32Nvidia : public MathF32 {
public:
  using MathF32::MathF32;

  /// 2^n times the instruction's power of the rest, n from -126 to 127. Outside of that the rest is larger than 1/2:
  /// the last product is what overflows, or rounds a denormal.
  Value exp(Value x) override {
    Value clamped = arith::MaxNumFOp::create(b, arith::MinNumFOp::create(b, x, c(88.0)), c(-87.3));
    // Bits of a float without a fraction, of which the lowest are n plus the bias.
    double biased = magic() + static_cast<double>(bias);
    Value t = fma(clamped, c(1.44269504088896341), c(biased)), n = sub(t, c(biased));
    // log2 e in two parts, both positive: an infinity stays one.
    Value rest = fma(x, c(1.925963033500011e-08f), fma(x, c(1.44269502162933349f), neg(n)));
    return mul(powerOfRest(rest), fromBits(shl(bits(t), mantissaBits)));
  }
  Value exp2(Value x) override { return each("llvm.nvvm.ex2.approx", {x}); }

  Value tanh(Value x) override {
    Value magnitude = abs(x), small = tanhOfSmall(x);
    // What the rounded exponent changes is small in the difference, whatever x is.
    Value e = powerOfRest(mul(magnitude, c(2.88539008177792681)));
    Value large = fma(c(-2.0), reciprocal(add(e, c(1.0))), c(1.0));
    return copySign(select(less(magnitude, c(0.625)), small, large), x); // also of a zero
  }
  Value onePlusTanh(Value x) override {
    Value half = reciprocal(add(powerOfRest(mul(x, c(-2.88539008177792681))), c(1.0)));
    return add(half, half);
  }

  Value erf(Value x) override {
    Value magnitude = abs(x), small = erfOfSmall(x);
    Value t = arith::MinimumFOp::create(b, magnitude, c(4.0f));
    Value large = sub(c(1.0f), powerOfRest(logOfErfc(t, 1.4426950408889634)));
    return select(less(magnitude, c(0.93f)), small, copySign(large, x));
  }
  Value onePlusErf(Value x) override {
    Value e = powerOfRest(log2OfErfc(arith::MinimumFOp::create(b, abs(x), c(kErfcEnd))));
    return select(isNegative(x), e, sub(c(2.0f), e));
  }

private:
  Value powerOfRest(Value x) { return each("llvm.nvvm.ex2.approx.ftz", {x}); }
  Value reciprocal(Value x) { return each("llvm.nvvm.rcp.approx.ftz.f", {x}); }
  Value each(StringRef intrinsic, ValueRange operands) { return emitIntrinsic(b, b.getLoc(), intrinsic, operands); }
};
} // namespace

std::unique_ptr<MathEmitter> mlir::disc::createMathF32(OpBuilder &builder, Location loc, Type like) {
  return std::make_unique<MathF32>(builder, loc, like);
}

std::unique_ptr<MathEmitter> mlir::disc::createMathF32Nvidia(OpBuilder &builder, Location loc, Type like) {
  return std::make_unique<MathF32Nvidia>(builder, loc, like);
}

Value mlir::disc::emitIntrinsic(OpBuilder &b, Location loc, StringRef intrinsic, ValueRange operands) {
  Type type = operands.front().getType();
  auto scalar = [&](ValueRange of) -> Value {
    return LLVM::CallIntrinsicOp::create(b, loc, getElementTypeOrSelf(type), b.getStringAttr(intrinsic), of)
        .getResult(0);
  };
  auto vector = dyn_cast<VectorType>(type);
  if (!vector)
    return scalar(operands);
  SmallVector<Value> lanes;
  for (int64_t lane = 0; lane < vector.getNumElements(); ++lane) {
    SmallVector<Value> own;
    for (Value v : operands)
      own.push_back(vector::ExtractOp::create(b, loc, v, lane));
    lanes.push_back(scalar(own));
  }
  return vector::FromElementsOp::create(b, loc, vector, lanes);
}
