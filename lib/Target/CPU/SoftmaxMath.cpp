//===- SoftmaxMath.cpp - exponentials of differences ----------------------===//
//
// 2^d for d = x - shift <= 0:
//
//   t = d + magic       the nearest integer n, plus a float's bias, in the low bits of t
//   r = d - n           exact
//   e = 2^r * 2^n       2^r a polynomial, 2^n the low bits of t moved into an exponent
//
// Below the least normal result e is zero: what a softmax adds up has a term of 1. A softmax is that of scores times
// log2(e), which the queries' scale absorbs: two instructions a score less than e^d takes.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/SoftmaxMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include <limits>

using namespace mlir;
using namespace mlir::disc;

static Value splat(OpBuilder &b, Location loc, Type type, double v) {
  auto vector = cast<VectorType>(type);
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(vector, b.getFloatAttr(vector.getElementType(), v)));
}

Value disc::larger(OpBuilder &b, Location loc, Value x, Value old) {
  Value grows = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, old);
  return arith::SelectOp::create(b, loc, grows, x, old);
}

Value disc::finiteShift(OpBuilder &b, Location loc, Value maximum) {
  Value none = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, maximum,
                                     splat(b, loc, maximum.getType(), -std::numeric_limits<double>::infinity()));
  return arith::SelectOp::create(b, loc, none, splat(b, loc, maximum.getType(), 0.0), maximum);
}

double disc::softmaxUnit(Type type) { return type.isF32() ? 1.44269504088896341 : 1.0; }

Value disc::expOfDifference(OpBuilder &b, Location loc, Value x, Value shift) {
  Type type = x.getType();
  Value d = arith::SubFOp::create(b, loc, x, shift);
  if (softmaxUnit(getElementTypeOrSelf(type)) == 1.0)
    return math::ExpOp::create(b, loc, d);
  auto c = [&](double v) { return splat(b, loc, type, v); };
  const double magic = 12582912.0 + 127.0; // 1.5 * 2^23, and the bias of exponents
  Value t = arith::AddFOp::create(b, loc, d, c(magic));
  Value r = arith::SubFOp::create(b, loc, d, arith::SubFOp::create(b, loc, t, c(magic)));
  // The last one is exact: 2^0 = 1.
  Value p = c(0.001326472731307149);
  for (double coefficient : {0.009671512991189957, 0.05550733581185341, 0.24022242426872253, 0.6931470036506653, 1.0})
    p = math::FmaOp::create(b, loc, p, r, c(coefficient));
  Type ints = cast<VectorType>(type).clone(b.getI32Type());
  auto shiftBy = DenseElementsAttr::get(cast<ShapedType>(ints), b.getI32IntegerAttr(23));
  Value power = arith::ShLIOp::create(b, loc, arith::BitcastOp::create(b, loc, ints, t),
                                      arith::ConstantOp::create(b, loc, cast<TypedAttr>(shiftBy)));
  Value e = arith::MulFOp::create(b, loc, p, arith::BitcastOp::create(b, loc, type, power));
  // Unordered, so that NaN stays.
  Value normal = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGE, d, c(-126.0));
  return arith::SelectOp::create(b, loc, normal, e, c(0.0));
}
