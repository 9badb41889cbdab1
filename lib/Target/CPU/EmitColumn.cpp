//===- EmitColumn.cpp - reductions along outer dimensions -------------------===//
//
//   disc_plan.kernel_func column @mean { %s = sum of %x over d1 of (d0, d1, d2) ; ... ; disc_plan.yield %y }
//
// The lanes run along the parallel dimensions inside the last reduced one (here d2), where memory is contiguous; the
// reduced dimensions are plain loops. A task is a few vectors of columns (`blocks` of the schedule) at one outer
// point: enough to use whole cache lines and to hide the latency of the additions.
//
//   scf.for %task { scf.for %k over d1 { %acc0 += x[d0, %k, c0 + lanes]; %acc1 += x[d0, %k, c0 + 16 + lanes] } }
//
// Lit test: test/lit/CPU/emit-column.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/EmitReduction.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

LogicalResult mlir::disc::emitColumn(KernelEmission &e) {
  FailureOr<ReductionPlan> found = ReductionPlan::get(e.kernel, e.kernel.getBody().front(), e.shapes);
  if (failed(found))
    return failure();
  ReductionEmitter columns(e, std::move(*found), /*lanesAreReduced=*/false);
  const ReductionPlan &plan = columns.plan;
  PointEmitter &points = columns.points;
  OpBuilder &b = e.builder;
  Location loc = e.kernel.getLoc();

  // Parallel dimensions outside and inside the last reduced one.
  SmallVector<SymExpr> outer, inner;
  for (unsigned d : plan.parallel)
    (d > plan.reduced.back() ? inner : outer).push_back(plan.domain[d]);
  unsigned numOuter = outer.size();
  SymExpr width = SymExpr::product(inner);
  int64_t lanes = e.lanes(), blocks = e.schedule<ColumnScheduleAttr>().getBlocks();
  outer.push_back(SymExpr::ceilDiv(width, SymExpr(blocks * lanes)));

  Value extent = points.expr(width);
  bool ok = true;
  auto pointAt = [&](ValueRange at, Value column, int64_t multiple) {
    SmallVector<Idx> point;
    for (Value i : at.take_front(numOuter))
      point.push_back(Idx(i));
    llvm::append_range(point, points.reshapeIdx(Idx(column, true, 1, multiple), width, inner));
    return point;
  };
  Type index = b.getIndexType();
  Value begin = arith::IndexCastOp::create(b, loc, index, e.begin());
  Value end = arith::IndexCastOp::create(b, loc, index, e.end());
  emitRowMajor(points, begin, end, outer, [&](Value, ValueRange at) {
    Value unit = points.constantIndex(blocks * lanes);
    Value first = arith::MulIOp::create(b, loc, at.back(), unit);
    Value last = arith::AddIOp::create(b, loc, first, unit);
    auto wholeBlocks = [&] {
      PointEmitter::Scope scope(points);
      SmallVector<SmallVector<Idx>> vectors;
      for (int64_t k = 0; k < blocks; ++k)
        vectors.push_back(pointAt(at, arith::AddIOp::create(b, loc, first, points.constantIndex(k * lanes)), lanes));
      ok &= succeeded(columns.emitPoints(vectors, Value()));
      return SmallVector<Value>();
    };
    auto rest = [&] {
      emitFor(b, loc, first, extent, points.constantIndex(lanes), {}, [&](Value column, ValueRange) {
        PointEmitter::Scope scope(points);
        Value left =
            arith::MinSIOp::create(b, loc, arith::SubIOp::create(b, loc, extent, column), points.constantIndex(lanes));
        ok &= succeeded(columns.emitPoints({pointAt(at, column, lanes)}, points.tailMask(left)));
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    };
    if (width.content() % (blocks * lanes) == 0) {
      wholeBlocks();
      return;
    }
    if (width.isConstant() && width.constant() < blocks * lanes) {
      rest();
      return;
    }
    Value isWhole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, last, extent);
    emitIf(b, loc, isWhole, {}, wholeBlocks);
    Value isPart = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, last, extent);
    emitIf(b, loc, isPart, {}, rest);
  });
  return success(ok);
}
