//===- MathEmitter.h - functions of floats as arithmetic ----------*- C++ -*-===//
//
// What f32 and f64 share. Largest errors in ulp: LowerMath.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TARGET_COMMON_MATHEMITTER_H
#define DISC_TARGET_COMMON_MATHEMITTER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <memory>

namespace mlir::disc {

/// Emits arithmetic on floats of one format, on scalars or vectors as `like` is.
class MathEmitter {
public:
  virtual ~MathEmitter() = default;
  /// For f32 or f64; null for others. `onNvidia`: with the approximate instructions of NVIDIA's GPUs.
  static std::unique_ptr<MathEmitter> create(OpBuilder &builder, Location loc, Type like, bool onNvidia = false);

  virtual Value exp(Value x) = 0;
  virtual Value exp2(Value x) = 0;
  virtual Value expm1(Value x) = 0;
  virtual Value log(Value x) = 0;
  virtual Value log2(Value x) = 0;
  virtual Value log10(Value x) = 0;
  virtual Value tanh(Value x) = 0;
  virtual Value erf(Value x) = 0;
  virtual Value erfc(Value x) = 0;
  /// 1 + f(x), of which an error that is small against 1 is allowed: that is less work than f.
  virtual Value onePlusErf(Value x) { return add(c(1.0), erf(x)); }
  virtual Value onePlusTanh(Value x) { return add(c(1.0), tanh(x)); }
  virtual Value pow(Value x, Value y) = 0;
  Value log1p(Value x);
  Value atan(Value x);
  Value atan2(Value y, Value x);
  Value asin(Value x);
  Value acos(Value x);
  Value sinh(Value x);
  Value cosh(Value x);
  Value asinh(Value x);
  Value acosh(Value x);
  Value atanh(Value x);

  /// x = n pi/2 + r + rest with |r| <= pi/4; the last bits of n, an integer, are right.
  struct Reduced {
    Value n, r, rest;
  };
  /// |x| < trigLimit().
  virtual Reduced reduceTrig(Value x) = 0;
  virtual double trigLimit() const = 0;
  /// For any x with an exponent up to this; NaN for those that are not finite.
  virtual Reduced reduceTrigFar(Value x, int64_t largestExponent) = 0;
  Reduced reduceTrigFar(Value x) { return reduceTrigFar(x, bias); }
  /// Where a zero was reduced, without its sign: see keepZero().
  Value sin(const Reduced &x) { return sinOf(x, 0); }
  Value cos(const Reduced &x) { return sinOf(x, 1); }
  Value tan(const Reduced &x);
  /// `result`, of an odd function; x itself where that is a zero.
  Value keepZero(Value x, Value result) { return select(equal(x, c(0.0)), x, result); }

  /// The remainder of x / y, truncated; |x| / |y| < remLimit().
  Value rem(Value x, Value y);
  double remLimit() const { return static_cast<double>(int64_t(1) << (mantissaBits - 1)); }
  /// For any x and y, by long division.
  Value remFar(Value x, Value y);

  Value abs(Value x) { return math::AbsFOp::create(b, x); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, x, y); }
  /// Whether all lanes lie below the limit: an i1.
  Value allBelow(Value x, double limit);

protected:
  MathEmitter(OpBuilder &builder, Location loc, Type like, Type integer, int mantissaBits)
      : b(loc, builder), type(like), intElement(integer), mantissaBits(mantissaBits),
        bias((int64_t(1) << (integer.getIntOrFloatBitWidth() - mantissaBits - 2)) - 1) {}

  virtual Value sinOfReduced(const Reduced &x, Value s) = 0;
  virtual Value cosOfReduced(const Reduced &x, Value s) = 0;
  /// The arc tangent of a in [0, 1], and the arc sine of v, whose square s is at most 1/4.
  virtual Value atanOfUnit(Value a) = 0;
  virtual Value asinOf(Value v, Value s) = 0;
  /// pi/2 in two parts, and half the largest argument of exp at which nothing can go wrong.
  virtual std::pair<double, double> halfPi() const = 0;
  virtual double largeArgument() const = 0;

  Value c(double v) { return constantOf(type, v); }
  /// The constant in another float format than the emitter's: `like` is a value or vector of it.
  Value constantOf(Type like, double v) { return splat(FloatAttr::get(getElementTypeOrSelf(like), v), like); }
  Value ci(int64_t v) { return splat(IntegerAttr::get(intElement, APInt(width(), v, /*isSigned=*/true)), intType()); }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value fma(Value x, Value y, Value z) { return math::FmaOp::create(b, x, y, z); }
  Value neg(Value x) { return arith::NegFOp::create(b, x); }
  Value sqrt(Value x) { return math::SqrtOp::create(b, x); }
  Value copySign(Value magnitude, Value sign) { return math::CopySignOp::create(b, magnitude, sign); }
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) { return arith::CmpFOp::create(b, predicate, x, y); }
  Value less(Value x, Value y) { return compare(arith::CmpFPredicate::OLT, x, y); }
  Value equal(Value x, Value y) { return compare(arith::CmpFPredicate::OEQ, x, y); }
  Value isNaN(Value x) { return compare(arith::CmpFPredicate::UNO, x, x); }
  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, condition, x, y); }
  /// Clamps; NaN stays NaN.
  Value atMost(Value x, Value limit) { return select(less(limit, x), limit, x); }
  Value atLeast(Value x, Value limit) { return select(less(x, limit), limit, x); }
  /// `x`, or 0 where `isZero`: before a product that would round a tiny result to 0, for which Intel's processors stop
  /// for over a hundred cycles. The exponentials of masked scores are such results.
  Value unlessZero(Value isZero, Value x) { return select(isZero, c(0.0), x); }
  Value bits(Value x) { return arith::BitcastOp::create(b, intType(), x); }
  Value fromBits(Value x) { return arith::BitcastOp::create(b, type, x); }
  Value addI(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value subI(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
  Value andI(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value orI(Value x, Value y) { return arith::OrIOp::create(b, x, y); }
  Value xorI(Value x, Value y) { return arith::XOrIOp::create(b, x, y); }
  Value equalI(Value x, Value y) { return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y); }
  Value lessI(Value x, Value y) { return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, x, y); }
  Value shl(Value x, int64_t n) { return arith::ShLIOp::create(b, x, ci(n)); }
  Value shr(Value x, int64_t n) { return arith::ShRUIOp::create(b, x, ci(n)); }
  Value sar(Value x, int64_t n) { return arith::ShRSIOp::create(b, x, ci(n)); }
  Value toFloat(Value x) { return arith::SIToFPOp::create(b, type, x); }
  Value isNegative(Value x) { return lessI(bits(x), ci(0)); } // -0 as well

  /// Horner's rule, in the format of x; coefficients from the constant one up.
  template <typename T> Value polynomial(Value x, std::initializer_list<T> coefficients) {
    ArrayRef<T> all(coefficients);
    Value p = constantOf(x.getType(), all.back());
    for (T coefficient : llvm::reverse(all.drop_back()))
      p = fma(p, x, constantOf(x.getType(), coefficient));
    return p;
  }

  /// The sum x + y and its rounding error; |x| >= |y|, or x is 0.
  std::pair<Value, Value> fastSum(Value x, Value y) {
    Value sum = add(x, y);
    return {sum, sub(y, sub(sum, x))};
  }
  /// The same for any x and y.
  std::pair<Value, Value> exactSum(Value x, Value y) {
    Value sum = add(x, y), part = sub(sum, x);
    return {sum, add(sub(x, sub(sum, part)), sub(y, part))};
  }
  std::pair<Value, Value> exactProduct(Value x, Value y) {
    Value product = mul(x, y);
    return {product, fma(x, y, neg(product))};
  }

  /// 2^n for an integer n that a normal float has.
  Value powerOfTwo(Value n) { return fromBits(shl(addI(n, ci(bias)), mantissaBits)); }
  /// p * 2^n; in two steps, as 2^n alone may lie outside the range.
  Value scale(Value p, Value n) {
    Value half = sar(n, 1);
    return mul(mul(p, powerOfTwo(half)), powerOfTwo(subI(n, half)));
  }
  /// `x` rounded to the nearest integer, of which `magic` was added to x: as a float, and as an integer.
  std::pair<Value, Value> round(Value xPlusMagic) {
    return {sub(xPlusMagic, c(magic())), subI(bits(xPlusMagic), bits(c(magic())))};
  }
  /// 1.5 * 2^mantissaBits: adding it leaves the integer in the low bits.
  double magic() const { return 1.5 * static_cast<double>(int64_t(1) << mantissaBits); }
  /// The exponent of positive x, denormals included.
  Value exponent(Value x);
  /// Mantissa in [sqrt(1/2), sqrt(2)) and exponent, as an integer, of a positive x.
  std::pair<Value, Value> splitExponent(Value x);

  /// x^y from |x|^y, which is NaN where x or y is, unless the other one makes a NaN irrelevant.
  Value signedPower(Value x, Value y, Value power);
  Value sinOf(const Reduced &x, int64_t quarters);
  Value isOdd(Value n) { return equalI(andI(n, ci(1)), ci(1)); }
  /// pi/2 - x, and pi - x.
  Value fromQuarter(Value x);
  Value fromHalf(Value x);
  /// Whether |x| < 1/2, and the arc sine of |x|, or else of sqrt((1 - |x|) / 2).
  std::pair<Value, Value> asinOfHalf(Value x);
  /// e^x / 2 for a large x, of which e^x may be infinite.
  Value halfExp(Value x);

  unsigned width() const { return intElement.getIntOrFloatBitWidth(); }
  Type intType() { return withElement(intElement); }
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
  Type type, intElement;
  const int mantissaBits; // that are stored
  const int64_t bias;
};

std::unique_ptr<MathEmitter> createMathF32(OpBuilder &builder, Location loc, Type like);
std::unique_ptr<MathEmitter> createMathF32Nvidia(OpBuilder &builder, Location loc, Type like);
std::unique_ptr<MathEmitter> createMathF64(OpBuilder &builder, Location loc, Type like);

/// An intrinsic of LLVM's on scalars, for each lane of vectors.
Value emitIntrinsic(OpBuilder &b, Location loc, StringRef intrinsic, ValueRange operands);

} // namespace mlir::disc

#endif // DISC_TARGET_COMMON_MATHEMITTER_H
