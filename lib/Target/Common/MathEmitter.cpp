//===- MathEmitter.cpp - functions of floats as arithmetic ----------------===//

#include "lib/Target/Common/MathEmitter.h"

#include <limits>

using namespace mlir;
using namespace mlir::disc;

std::unique_ptr<MathEmitter> MathEmitter::create(OpBuilder &builder, Location loc, Type like, bool onNvidia) {
  Type element = getElementTypeOrSelf(like);
  if (element.isF32())
    return onNvidia ? createMathF32Nvidia(builder, loc, like) : createMathF32(builder, loc, like);
  if (element.isF64())
    return createMathF64(builder, loc, like);
  return nullptr;
}

Value MathEmitter::exponent(Value x) {
  // Denormals are made normal first.
  Value isTiny = less(x, c(std::ldexp(1.0, static_cast<int>(1 - bias))));
  Value normal = select(isTiny, mul(x, c(std::ldexp(1.0, mantissaBits))), x);
  return subI(shr(bits(normal), mantissaBits), select(isTiny, ci(bias + mantissaBits), ci(bias)));
}

std::pair<Value, Value> MathEmitter::splitExponent(Value x) {
  Value isTiny = less(x, c(std::ldexp(1.0, static_cast<int>(1 - bias))));
  Value normal = select(isTiny, mul(x, c(std::ldexp(1.0, mantissaBits))), x);
  // The exponent is that of x / sqrt(1/2).
  Value shifted = subI(bits(normal), bits(c(0.70710678118654752440)));
  Value exponent = sar(shifted, mantissaBits);
  Value mantissa = fromBits(subI(bits(normal), shl(exponent, mantissaBits)));
  return {mantissa, subI(exponent, select(isTiny, ci(mantissaBits), ci(0)))};
}

/// ln(1 + x): the logarithm of the rounded sum, corrected for the rounding (Kahan's formula, as the HP-15C manual
/// of 1982 gives it).
Value MathEmitter::log1p(Value x) {
  Value sum = add(x, c(1.0)), rounded = sub(sum, c(1.0));
  Value whole = log(sum);
  Value result = mul(whole, div(x, rounded));
  result = select(equal(sum, c(std::numeric_limits<double>::infinity())), whole, result);
  return select(equal(rounded, c(0.0)), x, result);
}

Value MathEmitter::signedPower(Value x, Value y, Value power) {
  auto both = [&](Value p, Value q) -> Value { return arith::AndIOp::create(b, p, q); };
  Value half = mul(y, c(0.5)), truncated = math::TruncOp::create(b, y);
  // Of infinities neither y nor its half has a fraction: they are even.
  Value odd = both(equal(truncated, y), compare(arith::CmpFPredicate::ONE, math::TruncOp::create(b, half), half));
  power = select(both(isNegative(x), odd), neg(power), power);
  // A negative finite base has no real power but for integers.
  Value negative = both(less(x, c(0.0)), less(c(-std::numeric_limits<double>::infinity()), x));
  Value fractional = compare(arith::CmpFPredicate::UNE, truncated, y);
  power = select(both(negative, fractional), c(std::numeric_limits<double>::quiet_NaN()), power);
  Value one = arith::OrIOp::create(b, equal(x, c(1.0)), equal(y, c(0.0)));
  return select(one, c(1.0), power);
}

Value MathEmitter::sinOf(const Reduced &x, int64_t quarters) {
  Value n = addI(x.n, ci(quarters)), s = mul(x.r, x.r);
  Value p = select(isOdd(n), cosOfReduced(x, s), sinOfReduced(x, s));
  return fromBits(xorI(bits(p), shl(andI(n, ci(2)), width() - 2)));
}

Value MathEmitter::tan(const Reduced &x) {
  Value s = mul(x.r, x.r), sine = sinOfReduced(x, s), cosine = cosOfReduced(x, s), odd = isOdd(x.n);
  return div(select(odd, neg(cosine), sine), select(odd, sine, cosine));
}

Value MathEmitter::fromQuarter(Value x) { return add(sub(c(halfPi().first), x), c(halfPi().second)); }
Value MathEmitter::fromHalf(Value x) { return add(sub(c(2 * halfPi().first), x), c(2 * halfPi().second)); }

Value MathEmitter::atan(Value x) {
  Value magnitude = abs(x), large = less(c(1.0), magnitude);
  Value r = atanOfUnit(select(large, div(c(1.0), magnitude), magnitude));
  return copySign(select(large, fromQuarter(r), r), x);
}

Value MathEmitter::atan2(Value y, Value x) {
  Value ay = abs(y), ax = abs(x), flat = less(ay, ax);
  Value low = select(flat, ay, ax), high = select(flat, ax, ay);
  // Equal ones may be infinite, or zero, where the result is that of a ratio of zero.
  Value ratio = select(equal(low, high), c(1.0), div(low, high));
  Value r = atanOfUnit(select(equal(add(ax, ay), c(0.0)), c(0.0), ratio));
  r = select(less(ax, ay), fromQuarter(r), r);
  return copySign(select(isNegative(x), fromHalf(r), r), y);
}

std::pair<Value, Value> MathEmitter::asinOfHalf(Value x) {
  Value magnitude = abs(x), small = less(magnitude, c(0.5));
  Value s = select(small, mul(x, x), mul(sub(c(1.0), magnitude), c(0.5)));
  return {small, asinOf(select(small, magnitude, sqrt(s)), s)};
}

Value MathEmitter::asin(Value x) {
  auto [small, r] = asinOfHalf(x);
  return copySign(select(small, r, fromQuarter(add(r, r))), x);
}

Value MathEmitter::acos(Value x) {
  auto [small, r] = asinOfHalf(x);
  Value twice = add(r, r);
  Value large = select(less(x, c(0.0)), fromHalf(twice), twice);
  return select(small, fromQuarter(copySign(r, x)), large);
}

Value MathEmitter::halfExp(Value x) {
  Value root = exp(mul(x, c(0.5)));
  return mul(mul(root, c(0.5)), root);
}

Value MathEmitter::sinh(Value x) {
  Value magnitude = abs(x), t = expm1(magnitude);
  Value small = mul(c(0.5), add(t, div(t, add(t, c(1.0)))));
  return copySign(select(less(magnitude, c(largeArgument())), small, halfExp(magnitude)), x);
}

Value MathEmitter::cosh(Value x) {
  Value magnitude = abs(x), e = exp(magnitude);
  Value small = fma(c(0.5), e, div(c(0.5), e));
  return select(less(magnitude, c(largeArgument())), small, halfExp(magnitude));
}

/// ln(x + sqrt(x^2 + 1)); for a large x that is ln 2x, of which 2x may be infinite.
Value MathEmitter::asinh(Value x) {
  Value magnitude = abs(x), square = mul(magnitude, magnitude);
  Value rest = div(square, add(c(1.0), sqrt(add(square, c(1.0)))));
  Value large = add(log(magnitude), c(0.69314718055994530942));
  return copySign(select(less(magnitude, c(1e9)), log1p(add(magnitude, rest)), large), x);
}

/// With t = x - 1: ln(1 + t + sqrt(2t + t^2)).
Value MathEmitter::acosh(Value x) {
  Value t = sub(x, c(1.0));
  Value small = log1p(add(t, sqrt(fma(t, t, add(t, t)))));
  Value result = select(less(c(1e9), x), add(log(x), c(0.69314718055994530942)), small);
  return select(less(x, c(1.0)), c(std::numeric_limits<double>::quiet_NaN()), result);
}

Value MathEmitter::atanh(Value x) {
  Value magnitude = abs(x);
  Value r = mul(c(0.5), log1p(div(add(magnitude, magnitude), sub(c(1.0), magnitude))));
  return copySign(r, x);
}

/// The quotient is at most one off, and what follows exact.
Value MathEmitter::rem(Value x, Value y) {
  Value ax = abs(x), ay = abs(y);
  Value q = math::TruncOp::create(b, div(ax, ay));
  Value r = fma(neg(q), ay, ax);
  r = select(less(r, c(0.0)), add(r, ay), r);
  r = select(less(r, ay), r, sub(r, ay));
  return copySign(select(less(ax, ay), ax, r), x);
}

/// Takes off multiples of y * 2^k until what is left is near enough for `rem`. Lanes that are there stay as they are,
/// and so do those that have no remainder: zeros, infinities, NaN.
Value MathEmitter::remFar(Value x, Value y) {
  Value ay = abs(y), place = exponent(ay);
  auto isFar = [&](Value rest) -> Value {
    Value far = compare(arith::CmpFPredicate::OGE, div(rest, ay), c(remLimit()));
    Value valid = arith::AndIOp::create(b, less(rest, c(std::numeric_limits<double>::infinity())), less(c(0.0), ay));
    return arith::AndIOp::create(b, far, valid);
  };
  auto loop = scf::WhileOp::create(
      b, b.getLoc(), TypeRange(type), ValueRange(abs(x)),
      [&](OpBuilder &inner, Location loc, ValueRange rest) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(inner.getInsertionBlock(), inner.getInsertionPoint());
        Value any = isFar(rest.front());
        if (isa<VectorType>(type))
          any = vector::ReductionOp::create(b, vector::CombiningKind::OR, any);
        scf::ConditionOp::create(b, any, rest);
      },
      [&](OpBuilder &inner, Location loc, ValueRange rest) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(inner.getInsertionBlock(), inner.getInsertionPoint());
        Value shift = subI(subI(exponent(rest.front()), place), ci(mantissaBits - 2));
        Value next = rem(rest.front(), scale(ay, shift));
        scf::YieldOp::create(b, select(isFar(rest.front()), next, rest.front()));
      });
  return copySign(rem(loop.getResult(0), ay), x);
}

Value MathEmitter::allBelow(Value x, double limit) {
  Value below = less(x, c(limit));
  if (!isa<VectorType>(type))
    return below;
  return vector::ReductionOp::create(b, vector::CombiningKind::AND, below);
}
