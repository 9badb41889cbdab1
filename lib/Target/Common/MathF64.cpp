//===- MathF64.cpp - functions of f64 -------------------------------------===//
//
// Polynomials are fits of least largest error, made with 200 bits.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/MathEmitter.h"

#include <limits>

using namespace mlir;
using namespace mlir::disc;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
static constexpr double kLog2E = 1.4426950408889634;
static constexpr double kLn2 = 0.6931471805599453;
// ln 2 in two parts: the first has few bits, so that its products with exponents are exact.
static constexpr double kLn2High = 0.6931471805592082, kLn2Low = 7.371002565167799e-13;
// pi/2 in three parts.
static constexpr double kHalfPi[] = {1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33};

/// The bits of 2/pi, behind 64 zeros.
static constexpr uint64_t kTwoOverPi[] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41,
    0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};

namespace {
class MathF64 : public MathEmitter {
public:
  MathF64(OpBuilder &builder, Location loc, Type like)
      : MathEmitter(builder, loc, like, builder.getI64Type(), /*mantissaBits=*/52) {}

  Value exp(Value x) override {
    // Beyond these the result is infinite or zero anyway.
    auto [n, r] = reduceExp(atLeast(atMost(x, c(710.0)), c(-746.0)));
    return scale(unlessZero(less(x, c(-745.1332191019412)), expOfReduced(r)), n);
  }

  Value exp2(Value x) override {
    Value clamped = atLeast(atMost(x, c(1025.0)), c(-1076.0));
    auto [n, integer] = round(add(clamped, c(magic())));
    return scale(unlessZero(less(x, c(-1075.0)), expOfReduced(mul(sub(clamped, n), c(kLn2)))), integer);
  }

  Value expm1(Value x) override {
    auto [n, r] = reduceExp(atLeast(atMost(x, c(710.0)), c(-60.0)));
    // 2^n (t + 1) - 1, without cancelling; 2^n in two factors as in scale().
    Value first = sar(n, 1), second = subI(n, first);
    Value power = powerOfTwo(first), one = powerOfTwo(subI(ci(0), second));
    return copySign(mul(fma(power, expm1OfReduced(r), sub(power, one)), powerOfTwo(second)), x); // also of a zero
  }

  Value log(Value x) override { return log(x, kLn2High, kLn2Low, 1.0); }
  Value log2(Value x) override { return log(x, 1.0, 0.0, kLog2E); }
  Value log10(Value x) override { return log(x, 0.30102999566361177, 3.694239077158931e-13, 0.4342944819032518); }

  /// (e^2x - 1) / (e^2x + 1).
  Value tanh(Value x) override {
    Value t = expm1(mul(atMost(abs(x), c(20.0)), c(2.0)));
    return copySign(div(t, add(t, c(2.0))), x);
  }

  Value erf(Value x) override {
    Value magnitude = abs(x);
    Value large = sub(c(1.0), erfcOfLarge(magnitude));
    return select(less(magnitude, c(0.75)), erfOfSmall(x), copySign(large, x));
  }

  Value erfc(Value x) override {
    Value magnitude = abs(x), far = erfcOfLarge(magnitude);
    Value large = select(less(x, c(0.0)), sub(c(2.0), far), far);
    return select(less(magnitude, c(0.5)), sub(c(1.0), erfOfSmall(x)), large);
  }

  Value pow(Value x, Value y) override {
    Value magnitude = abs(x);
    // Beyond 2^66 only the sign of y counts: no x but 1 is nearer to 1 than 2^-53.
    Value exponent = atLeast(atMost(y, c(0x1p66)), c(-0x1p66));
    auto [high, low] = preciseLog(magnitude);
    auto [product, error] = exactProduct(exponent, high);
    error = fma(exponent, low, error);
    // Where the result is infinite or zero, so may be what the error was computed from.
    error = select(less(abs(product), c(800.0)), error, c(0.0));
    auto [n, r] = reduceExp(atLeast(atMost(product, c(710.0)), c(-746.0)));
    Value result = scale(expOfReduced(add(r, error)), n);
    return signedPower(x, y, result);
  }

  double trigLimit() const override { return 0x1p20; }
  Reduced reduceTrig(Value x) override {
    auto [n, integer] = round(fma(x, c(0.6366197723675814), c(magic())));
    // The first difference is exact: it is a multiple of 2^-53, and less than 1.
    Value high = fma(n, c(-kHalfPi[0]), x);
    auto [product, error] = exactProduct(n, c(-kHalfPi[1]));
    auto [r, rest] = exactSum(high, product);
    return {integer, r, fma(n, c(-kHalfPi[2]), add(rest, error))};
  }

  Reduced reduceTrigFar(Value x, int64_t largestExponent) override {
    Reduced near = reduceTrig(x), far = reduceByTable(x, largestExponent);
    Value isNear = less(abs(x), c(trigLimit()));
    return {select(isNear, near.n, far.n), select(isNear, near.r, far.r), select(isNear, near.rest, far.rest)};
  }

protected:
  Value sinOfReduced(const Reduced &x, Value s) override {
    Value p = polynomial(s, {-0.16666666666666632, 0.00833333333332233, -0.00019841269829735022, 2.7557313664855635e-06,
                             -2.505075361065361e-08, 1.589652029048109e-10});
    // sin(r + rest) = sin r + rest cos r.
    Value tail = fma(mul(x.r, s), p, fma(mul(s, c(-0.5)), x.rest, x.rest));
    return add(x.r, tail);
  }
  Value cosOfReduced(const Reduced &x, Value s) override {
    Value p = polynomial(s, {0.0416666666666666, -0.0013888888888874001, 2.4801587289400127e-05, -2.755731432731713e-07,
                             2.087571971221497e-09, -1.1359455768534735e-11});
    // 1 - s/2 is rounded once: what is lost is added to the tail.
    Value half = mul(s, c(0.5)), first = sub(c(1.0), half), lost = sub(sub(c(1.0), first), half);
    Value tail = fma(mul(s, s), p, mul(x.r, neg(x.rest)));
    return add(first, add(lost, tail));
  }
  Value atanOfUnit(Value a) override {
    Value s = mul(a, a);
    Value p =
        polynomial(s, {-0.3333333333333307,   0.19999999999951473,   -0.142857142825759,      0.11111111007049203,
                       -0.090909070033901,    0.07692279843784856,   -0.06666404092621789,    0.05880528012088042,
                       -0.05253519380504879,  0.047223248492418754,  -0.04219185394484635,    0.036642032921107154,
                       -0.02990403795004785,  0.02198505752064621,   -0.013900737920498374,   0.007196619481117932,
                       -0.002884973683617384, 0.0008313398183648681, -0.00015216444665278785, 1.3225404977738352e-05});
    return fma(mul(a, s), p, a);
  }
  Value asinOf(Value v, Value s) override {
    Value p = polynomial(s, {0.16666666666666763, 0.07499999999970264, 0.044642857175119975, 0.03038194268364009,
                             0.022372215659989814, 0.017351600093335428, 0.013980961466921547, 0.011397775680944798,
                             0.01078653140353819, 0.003683031763124389, 0.021763525352642765, -0.021077329131729793,
                             0.032676911744075755});
    return fma(mul(v, s), p, v);
  }
  std::pair<double, double> halfPi() const override { return {kHalfPi[0], kHalfPi[1]}; }
  double largeArgument() const override { return 700.0; }

private:
  /// The method of Payne and Hanek (1983): of x = m 2^e times 2/pi only the bits that count modulo 4, and 190 more.
  /// |x| >= 2^20.
  Reduced reduceByTable(Value x, int64_t largestExponent) {
    Value all = bits(x), biased = andI(shr(all, 52), ci(0x7FF));
    Value mantissa = orI(andI(all, ci((int64_t(1) << 52) - 1)), ci(int64_t(1) << 52));
    // The first bit that counts is the one of 2^(2 - e): it lies in the table.
    Value position = addI(biased, ci(64 - 2 - 1075));
    Value word = shr(position, 6), shift = andI(position, ci(63));
    SmallVector<Value> words(4);
    for (auto [i, w] : llvm::enumerate(words))
      w = ci(static_cast<int64_t>(kTwoOverPi[i]));
    for (int64_t first = 1; first <= (largestExponent + 1023 + 64 - 2 - 1075) >> 6; ++first) {
      Value further = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, word, ci(first));
      for (auto [i, w] : llvm::enumerate(words))
        w = select(further, ci(static_cast<int64_t>(kTwoOverPi[first + i])), w);
    }
    // Shifted by less than 64 bits, in two steps for the part that comes from the right.
    Value back = subI(ci(63), shift);
    auto window = [&](unsigned i) -> Value {
      Value low = shr(arith::ShRUIOp::create(b, words[i + 1], back), 1);
      return orI(arith::ShLIOp::create(b, words[i], shift), low);
    };
    Value top = arith::MulIOp::create(b, mantissa, window(0));
    auto middle = arith::MulUIExtendedOp::create(b, mantissa, window(1));
    auto bottom = arith::MulUIExtendedOp::create(b, mantissa, window(2));
    Value low = addI(middle.getLow(), bottom.getHigh());
    Value carry = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, low, bottom.getHigh());
    top = addI(addI(top, middle.getHigh()), select(carry, ci(1), ci(0)));

    // Quarters of a turn, to the nearest, and a signed fraction of 126 bits.
    Value n = shr(addI(top, ci(int64_t(1) << 61)), 62);
    Value high = orI(shl(top, 2), shr(low, 62));
    low = shl(low, 2);
    Value mask = ci(0xFFFFFFFF);
    Value first = mul(toFloat(sar(high, 32)), c(0x1p-32)), second = mul(toFloat(andI(high, mask)), c(0x1p-64));
    Value third = mul(toFloat(shr(low, 32)), c(0x1p-96)), fourth = mul(toFloat(andI(low, mask)), c(0x1p-128));
    auto [sum, rest] = fastSum(first, second);
    auto [fraction, tail] = fastSum(sum, add(rest, add(third, fourth)));
    auto [r, error] = exactProduct(fraction, c(kHalfPi[0]));
    error = fma(fraction, c(kHalfPi[1]), fma(tail, c(kHalfPi[0]), error));

    Value negative = isNegative(x);
    r = select(negative, neg(r), r);
    r = select(equalI(biased, ci(0x7FF)), c(kNaN), r);
    return {select(negative, subI(ci(0), n), n), r, select(negative, neg(error), error)};
  }

  /// e^r - 1 - r over r^2, for |r| <= ln(2) / 2.
  Value expTail(Value r) {
    return polynomial(r, {0.5, 0.16666666666666682, 0.041666666666666095, 0.008333333333317039, 0.0013888888889115993,
                          0.00019841269896375582, 2.4801586925946926e-05, 2.7557234868898975e-06,
                          2.7557582404382636e-07, 2.5112034758079434e-08, 2.082646429836284e-09});
  }
  Value expm1OfReduced(Value r) { return fma(mul(r, r), expTail(r), r); }
  Value expOfReduced(Value r) { return add(expm1OfReduced(r), c(1.0)); }

  /// n and r with x = n ln 2 + r.
  std::pair<Value, Value> reduceExp(Value x) {
    auto [n, integer] = round(fma(x, c(kLog2E), c(magic())));
    return {integer, fma(n, c(-kLn2Low), fma(n, c(-kLn2High), x))};
  }

  /// Where x is not positive and finite, what a logarithm is.
  Value specialLog(Value x, Value result) {
    result = select(equal(x, c(kInfinity)), x, result);
    result = select(equal(x, c(0.0)), c(-kInfinity), result);
    return select(compare(arith::CmpFPredicate::OGE, x, c(0.0)), result, c(kNaN));
  }

  /// With s = f / (2 + f): ln(1 + f) = 2 atanh s = f - (f^2/2 - s (f^2/2 + tail)), the tail even in s.
  Value log(Value x, double ln2High, double ln2Low, double unit) {
    auto [mantissa, exponent] = splitExponent(x);
    Value n = toFloat(exponent), f = sub(mantissa, c(1.0));
    Value s = div(f, add(f, c(2.0))), z = mul(s, s), half = mul(mul(f, f), c(0.5));
    Value p = polynomial(z, {0.6666666666666735, 0.39999999999411967, 0.28571428743079585, 0.22222198492822198,
                             0.18183568989761603, 0.15313919071545506, 0.14797382059094075});
    Value tail = sub(mul(s, fma(z, p, half)), half);
    // In the unit of the result: 1 for ln, log2(e) for log2, log10(e) for log10.
    Value low = fma(tail, c(unit), mul(n, c(ln2Low)));
    auto [sum, rest] = fastSum(mul(n, c(ln2High)), mul(f, c(unit)));
    // The unit's product is rounded; for ln it is exact.
    Value rounding = unit == 1.0 ? Value() : fma(f, c(unit), neg(mul(f, c(unit))));
    low = add(low, rounding ? add(rest, rounding) : rest);
    return specialLog(x, add(sum, low));
  }

  /// The logarithm in two parts, to 2^-63 or so, for powers.
  std::pair<Value, Value> preciseLog(Value x) {
    auto [mantissa, exponent] = splitExponent(x);
    Value n = toFloat(exponent), f = sub(mantissa, c(1.0));
    // s = f / (2 + f) in two parts.
    auto [sum, sumLow] = fastSum(c(2.0), f);
    Value inverse = div(c(1.0), sum), s = mul(f, inverse);
    Value sLow = mul(inverse, fma(neg(s), sumLow, fma(neg(s), sum, f)));
    // s^3 in two parts, and by 2/3.
    auto [z, zLow] = exactProduct(s, s);
    zLow = fma(add(s, s), sLow, zLow);
    auto [cube, cubeLow] = exactProduct(z, s);
    cubeLow = add(cubeLow, fma(z, sLow, mul(zLow, s)));
    auto [third, thirdLow] = exactProduct(cube, c(0.6666666666666666));
    thirdLow = fma(cubeLow, c(0.6666666666666666), fma(cube, c(3.700743415417188e-17), thirdLow));
    Value p = polynomial(z, {0.3999999999999998, 0.2857142857144518, 0.22222222217519105, 0.1818181887262346,
                             0.1538455670317375, 0.1333632420538775, 0.11674675221661815, 0.11990244503797927});
    Value low = fma(mul(cube, z), p, fma(n, c(kLn2Low), thirdLow));
    auto [first, firstLow] = exactSum(mul(n, c(kLn2High)), add(s, s));
    auto [whole, wholeLow] = exactSum(first, third);
    auto [high, rest] = fastSum(whole, add(add(firstLow, wholeLow), fma(sLow, c(2.0), low)));
    return {specialLog(x, high), rest};
  }

  Value erfOfSmall(Value x) {
    Value p = polynomial(mul(x, x),
                         {0.12837916709551256, -0.3761263890318343, 0.1128379167093708, -0.026866170641140465,
                          0.005223977580063303, -0.0008548324005292524, 0.00012055207451876352, -1.4922283480592708e-05,
                          1.6403726413015287e-06, -1.5729417820421802e-07, 1.0771719428751053e-08});
    return fma(x, p, x);
  }
  /// For x >= 1/2: e^(-x^2) times e^(x^2) erfc x, of which (1 + 2x) e^(x^2) erfc x is nearly linear in (x - 4) / (x +
  /// 4).
  Value erfcOfLarge(Value x) {
    Value near = atMost(x, c(28.0)), t = div(sub(near, c(4.0)), add(near, c(4.0)));
    Value p =
        polynomial(t, {1.2329951186255526,     -0.13962111684056164,    0.015379652102614045,    0.0680970542545836,
                       -0.10103906603594517,   0.09373283500242142,     -0.06633036582096585,    0.03716751546764246,
                       -0.016197733949702392,  0.005031970638160351,    -0.0007577740577132335,  -0.0001992604584672756,
                       0.00015062503367756425, -2.4385698955106132e-05, -1.1231256539207545e-05, 5.6788483089970265e-06,
                       3.0965830792309125e-07, -7.815392537009651e-07,  5.839158713371849e-08,   7.403304974128084e-08,
                       -9.095708680367785e-09});
    auto [square, rest] = exactProduct(near, near);
    auto [n, r] = reduceExp(neg(square));
    Value scaled = div(p, fma(near, c(2.0), c(1.0)));
    return scale(mul(scaled, expOfReduced(sub(r, rest))), n);
  }
};
} // namespace

std::unique_ptr<MathEmitter> mlir::disc::createMathF64(OpBuilder &builder, Location loc, Type like) {
  return std::make_unique<MathF64>(builder, loc, like);
}
