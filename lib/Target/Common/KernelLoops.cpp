//===- KernelLoops.cpp - loops in kernels -----------------------------------===//

#include "lib/Target/Common/KernelLoops.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

SmallVector<Value> mlir::disc::emitFor(OpBuilder &b, Location loc, Value begin, Value end, Value step, ValueRange inits,
                                       LoopBody body) {
  auto loop = scf::ForOp::create(b, loc, begin, end, step, inits, [](OpBuilder &, Location, Value, ValueRange) {});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  scf::YieldOp::create(b, loc, next);
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value>
mlir::disc::emitUnrolled(OpBuilder &b, Location loc, Value begin, Value end, Value step, int64_t unroll,
                         ValueRange inits,
                         function_ref<SmallVector<Value>(ArrayRef<Value> at, ValueRange carried)> body) {
  auto one = [&](Value i, ValueRange carried) { return body(i, carried); };
  if (unroll == 1)
    return emitFor(b, loc, begin, end, step, inits, one);
  auto times = [&](int64_t n) -> Value {
    return b.createOrFold<arith::MulIOp>(loc, step, arith::ConstantIndexOp::create(b, loc, n));
  };
  // Where the positions of `unroll` steps are all below the end.
  Value stride = times(unroll), all = b.createOrFold<arith::SubIOp>(loc, end, times(unroll - 1));
  SmallVector<Value> carried(inits);
  carried.push_back(begin);
  carried = emitFor(b, loc, begin, all, stride, carried, [&](Value i, ValueRange values) {
    SmallVector<Value> at{i};
    for (int64_t u = 1; u < unroll; ++u)
      at.push_back(arith::AddIOp::create(b, loc, i, times(u)));
    SmallVector<Value> next = body(at, values.drop_back());
    next.push_back(arith::AddIOp::create(b, loc, i, stride));
    return next;
  });
  Value rest = carried.pop_back_val();
  return emitFor(b, loc, rest, end, step, carried, one);
}

SmallVector<Value> mlir::disc::emitIf(OpBuilder &b, Location loc, Value condition, ValueRange otherwise,
                                      function_ref<SmallVector<Value>()> body) {
  auto branch = scf::IfOp::create(b, loc, otherwise.getTypes(), condition, /*withElseRegion=*/!otherwise.empty());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> values = body();
  if (otherwise.empty())
    return {};
  scf::YieldOp::create(b, loc, values);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, otherwise);
  return SmallVector<Value>(branch.getResults());
}

void mlir::disc::emitRowMajor(PointEmitter &points, Value begin, Value end, ArrayRef<SymExpr> extents,
                              function_ref<void(Value position, ValueRange coordinates)> body) {
  OpBuilder &b = points.b();
  Location loc = points.kernel().getLoc();
  Value one = points.constantIndex(1), zero = points.constantIndex(0);
  SmallVector<Value> first(extents.size());
  Value rest = begin;
  for (unsigned k = extents.size(); k-- > 0;) {
    Value n = points.expr(extents[k]);
    first[k] = k ? arith::RemUIOp::create(b, loc, rest, n).getResult() : rest;
    if (k)
      rest = arith::DivUIOp::create(b, loc, rest, n);
  }
  emitFor(b, loc, begin, end, one, first, [&](Value position, ValueRange at) {
    {
      PointEmitter::Scope scope(points);
      body(position, at);
    }
    // An odometer: each coordinate steps when the one inside it wraps around.
    SmallVector<Value> next(at);
    Value carry;
    for (unsigned k = extents.size(); k-- > 0;) {
      Value stepped = arith::AddIOp::create(b, loc, at[k], one);
      if (carry)
        stepped = arith::SelectOp::create(b, loc, carry, stepped, at[k]);
      next[k] = stepped;
      if (k == 0)
        break;
      carry = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, stepped, points.expr(extents[k]));
      next[k] = arith::SelectOp::create(b, loc, carry, zero, stepped);
    }
    return next;
  });
}
