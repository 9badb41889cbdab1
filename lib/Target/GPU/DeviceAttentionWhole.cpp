//===- DeviceAttentionWhole.cpp - parts of the keys combined ----------------===//
//
// A thread has an element of the attention's result, and goes through what the parts of the keys left for its query
// (DeviceAttention.cpp):
//
//   %m = maximum over p of maxima[p]
//   %s, %v = sums over p of exp(maxima[p] - %m) * (sums[p], results[p])
//   y = %v / %s
//
// A part that saw no key has a maximum of minus infinity, and counts for nothing.
//
// Lit test: test/lit/GPU/attention-parts.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/DeviceAttention.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class AttentionWhole : AttentionEmitter {
public:
  AttentionWhole(DeviceKernel &k, AttentionOp op) : AttentionEmitter(k, op, /*lanes=*/1) {}
  LogicalResult emit(const SymExpr &count, bool isBinary);
};
} // namespace

LogicalResult AttentionWhole::emit(const SymExpr &count, bool isBinary) {
  SmallVector<SymExpr> extents(ArrayRef(dims).drop_back());
  extents.push_back(valueSize);
  parts = Parts{points.expr(count), {}, points.operandPtr(k.kernel.getNumInputs() + *memoryResult(k.kernel))};
  Value element = m.add(m.mul(k.block(), k.threads()), k.thread());
  auto sizes = llvm::map_to_vector(extents, [&](const SymExpr &e) { return points.expr(e); });
  bool done = true;
  emitIf(b, k.loc, m.less(element, points.expr(SymExpr::product(extents))), {}, [&] {
    PointEmitter::Scope scope(points);
    batch = m.delinearize(element, sizes);
    Value column = batch.pop_back_val(), query = batch.pop_back_val();
    Value zero = m.constant(0), one = m.constant(1);
    auto load = [&](Value address, const Idx &at) { return points.load(address, at, type); };
    Idx none = points.uniform(int64_t(0));
    Value maximum = emitFor(b, k.loc, zero, parts->count, one, infinity(), [&](Value part, ValueRange before) {
                      PointEmitter::Scope inner(points);
                      Value other = load(partMaximum(query, part), none);
                      return SmallVector<Value>{arith::MaximumFOp::create(b, k.loc, before[0], other)};
                    }).front();
    // No key seen: differences of infinities would be NaN.
    Value isHidden = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, maximum, infinity());
    Value base = select(isHidden, number(0), maximum);
    SmallVector<Value> zeros(2, number(0));
    SmallVector<Value> sums = emitFor(b, k.loc, zero, parts->count, one, zeros, [&](Value part, ValueRange before) {
      PointEmitter::Scope inner(points);
      Value less = arith::SubFOp::create(b, k.loc, load(partMaximum(query, part), none), base);
      Value factor =
          isBinary ? math::Exp2Op::create(b, k.loc, less).getResult() : math::ExpOp::create(b, k.loc, less).getResult();
      Value sum = load(partSum(query, part), none), v = load(partResults(query, part), Idx(column));
      return SmallVector<Value>{math::FmaOp::create(b, k.loc, factor, sum, before[0]),
                                math::FmaOp::create(b, k.loc, factor, v, before[1])};
    });
    Value v = arith::MulFOp::create(b, k.loc, sums[1], inverse(sums[0]));
    done = succeeded(storeResult(query, Idx(column), v));
    return SmallVector<Value>();
  });
  return success(done && ok);
}

LogicalResult disc::emitAttentionWhole(DeviceKernel &k, AttentionOp op, const SymExpr &parts, bool isBinary) {
  return AttentionWhole(k, op).emit(parts, isBinary);
}
