//===- DeviceRunningSum.cpp - sums of all elements up to each, on devices ---===//
//
//   disc_plan.kernel_func loop @cumsum { %r = disc_tensor.running_sum %x dim 1 ; disc_plan.yield %r }
//
// Lines along the innermost dimension have a block each, which takes as many elements at a time as it has threads:
//
//   scf.for %i = 0 to N step 256 iter_args(%carry) {
//     sums up to each thread of its warp, by shuffles; totals of warps through memory of the block
//     store %carry + totals of earlier warps + the warp's sum
//   }
//
// Along an outer dimension neighbouring threads have neighbouring lines, and each adds up its own.
//
// Lit test: test/lit/GPU/running-sum.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class DeviceRunningSum {
public:
  DeviceRunningSum(DeviceKernel &k, RunningSumOp op)
      : k(k), b(k.b), m(k.m), op(op), points(k.points(1)), elem(getElementTypeOrSelf(op.getType())),
        domain(k.shapes.dims(op.getResult())) {}

  LogicalResult emit();

private:
  void alongBlock(ArrayRef<Idx> line, Value extent);
  void alongThread(ArrayRef<Idx> line, Value extent);
  Value sum(Value x, Value y) {
    return isa<FloatType>(elem) ? arith::AddFOp::create(b, k.loc, x, y).getResult()
                                : arith::AddIOp::create(b, k.loc, x, y).getResult();
  }
  Value zero() { return points.constant(cast<TypedAttr>(b.getZeroAttr(elem))); }
  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, k.loc, condition, x, y); }
  Value load(ArrayRef<Idx> at) {
    Value v = points.eval(op.getSource(), at);
    ok &= bool(v);
    return v ? v : zero();
  }

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  RunningSumOp op;
  PointEmitter points;
  Type elem;
  SmallVector<SymExpr> domain;
  bool ok = true;
};
} // namespace

LogicalResult DeviceRunningSum::emit() {
  unsigned dim = op.getDim();
  SmallVector<Value> extents;
  SymExpr lines(1);
  for (auto [d, extent] : llvm::enumerate(domain))
    if (d != dim) {
      extents.push_back(points.expr(extent));
      lines *= extent;
    }
  bool shared = k.schedule("line_threads") > 1;
  Value line = shared ? k.block() : m.add(m.mul(k.block(), m.constant(k.threads())), k.thread());
  auto emitLine = [&] {
    PointEmitter::Scope scope(points);
    SmallVector<Value> at = m.delinearize(line, extents);
    SmallVector<Idx> point;
    for (unsigned d = 0, next = 0; d < domain.size(); ++d)
      point.push_back(d == dim ? points.uniform(int64_t(0)) : Idx(at[next++]));
    Value extent = points.expr(domain[dim]);
    shared ? alongBlock(point, extent) : alongThread(point, extent);
  };
  if (shared) {
    emitLine();
    return success(ok);
  }
  auto some = scf::IfOp::create(b, k.loc, m.less(line, points.expr(lines)), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(some.thenBlock());
  emitLine();
  return success(ok);
}

void DeviceRunningSum::alongThread(ArrayRef<Idx> line, Value extent) {
  emitFor(b, k.loc, m.constant(0), extent, m.constant(1), {zero()}, [&](Value i, ValueRange carried) {
    PointEmitter::Scope scope(points);
    SmallVector<Idx> at(line);
    at[op.getDim()] = Idx(i);
    Value v = sum(carried[0], load(at));
    ok &= succeeded(points.store(0, at, v));
    return SmallVector<Value>{v};
  });
}

void DeviceRunningSum::alongBlock(ArrayRef<Idx> line, Value extent) {
  int64_t threads = k.threads(), warps = threads / k.warp;
  Value thread = k.thread(), width = m.constant(k.warp), lane = m.rem(thread, width), warp = m.div(thread, width);
  Value totals = k.shared(elem, warps), last = m.sub(extent, m.constant(1));
  emitFor(b, k.loc, m.constant(0), extent, m.constant(threads), {zero()}, [&](Value start, ValueRange carried) {
    PointEmitter::Scope scope(points);
    Value i = m.add(start, thread), inside = m.less(i, extent);
    SmallVector<Idx> at(line);
    at[op.getDim()] = Idx(m.min(i, last));
    Value own = select(inside, load(at), zero());
    for (int64_t s = 1; s < k.warp; s *= 2)
      own = select(m.less(lane, m.constant(s)), own, sum(own, k.shuffle(own, s, gpu::ShuffleMode::UP)));
    auto ends = scf::IfOp::create(b, k.loc, m.equal(lane, m.constant(k.warp - 1)), /*withElseRegion=*/false);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(ends.thenBlock());
      k.storeShared(totals, own, warp);
    }
    k.barrier();
    Value before = carried[0], all = carried[0];
    for (int64_t w = 0; w < warps; ++w) {
      Value total = k.loadShared(totals, elem, m.constant(w));
      all = sum(all, total);
      before = select(m.less(m.constant(w), warp), all, before);
    }
    k.barrier();
    auto store = scf::IfOp::create(b, k.loc, inside, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(store.thenBlock());
    PointEmitter::Scope inner(points);
    at[op.getDim()] = Idx(i);
    ok &= succeeded(points.store(0, at, sum(before, own)));
    return SmallVector<Value>{all};
  });
}

LogicalResult disc::emitDeviceRunningSum(DeviceKernel &k) {
  return DeviceRunningSum(k, k.kernel.getYield().getValues().front().getDefiningOp<RunningSumOp>()).emit();
}
