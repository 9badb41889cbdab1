//===- EmitRow.cpp - reductions along the innermost dimension ---------------===//
//
//   disc_plan.kernel_func row @layer_norm { %s = sum of %x over d1 ; ... ; disc_plan.yield %y : tensor<?x384xf32> }
//
// A task is one parallel point: a row. Its passes run over the reduced range with the lanes along the innermost
// dimension (EmitReduction.cpp). Where a row may be short, lanes would be wasted and each row would pay for combining
// them: up to `short_rows` elements the lanes are neighbouring rows, read and written as transposed tiles
// (CrossedTiles.cpp).
//
//   scf.if %C <= 64 { scf.for 16 rows { tiles: 16 loads, transposed; passes with scf.for %k = 0 to %C } }
//   scf.if %C > 64 { scf.for row { passes with scf.for %c = 0 to %C step 16 } }
//
// Lit test: test/lit/CPU/emit-row.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/EmitReduction.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class RowEmitter {
public:
  RowEmitter(KernelEmission &e, const ReductionPlan &plan)
      : e(e), b(e.builder), loc(e.kernel.getLoc()), row(plan.size(plan.reduced)),
        wide(e, plan, /*lanesAreReduced=*/true) {
    if (int64_t longest = e.schedule<RowScheduleAttr>().getShortRows()) {
      narrow.emplace(e, plan, /*lanesAreReduced=*/false);
      if (!narrow->useTiles(longest))
        narrow.reset();
    }
  }
  LogicalResult run();

private:
  void wideRows();
  void narrowRows();
  void narrowSegment(SmallVector<Value> at, Value from, Value to);
  Value index(Value i64) { return arith::IndexCastOp::create(b, loc, b.getIndexType(), i64); }
  Value sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value min(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }

  KernelEmission &e;
  OpBuilder &b;
  Location loc;
  SymExpr row;
  ReductionEmitter wide;
  std::optional<ReductionEmitter> narrow;
  bool ok = true;
};
} // namespace

LogicalResult RowEmitter::run() {
  if (!narrow) {
    wideRows();
    return success(ok);
  }
  int64_t limit = e.schedule<RowScheduleAttr>().getShortRows();
  if (row.isConstant()) {
    row.constant() <= limit ? narrowRows() : wideRows();
    return success(ok);
  }
  Value isShort =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, wide.points.expr(row), wide.points.constantIndex(limit));
  emitIf(b, loc, isShort, {}, [&] { return narrowRows(), SmallVector<Value>(); });
  Value isLong = arith::XOrIOp::create(b, loc, isShort, wide.points.constant(b.getBoolAttr(true)));
  emitIf(b, loc, isLong, {}, [&] { return wideRows(), SmallVector<Value>(); });
  return success(ok);
}

/// A row at a time.
void RowEmitter::wideRows() {
  const ReductionPlan &plan = wide.plan;
  emitRowMajor(wide.points, index(e.begin()), index(e.end()), plan.extents(plan.parallel), [&](Value, ValueRange at) {
    SmallVector<Idx> point;
    for (Value i : at)
      point.push_back(Idx(i));
    ok &= succeeded(wide.emitPoints({point}, Value()));
  });
}

/// A vector of rows at a time. Positions [begin, end) of the parallel points, in segments of the innermost run.
void RowEmitter::narrowRows() {
  PointEmitter &points = narrow->points;
  PointEmitter::Scope scope(points);
  Value begin = index(e.begin()), end = index(e.end());
  ArrayRef<MergedDims> outer = ArrayRef(narrow->parallelRuns).drop_back();
  if (outer.empty())
    return narrowSegment({}, begin, end);
  Value extent = points.expr(narrow->parallelRuns.back().extent), zero = points.constantIndex(0);
  SmallVector<SymExpr> extents;
  for (const MergedDims &run : outer)
    extents.push_back(run.extent);
  Value first = arith::DivUIOp::create(b, loc, begin, extent), last = arith::CeilDivUIOp::create(b, loc, end, extent);
  emitRowMajor(points, first, last, extents, [&](Value segment, ValueRange at) {
    Value start = arith::MulIOp::create(b, loc, segment, extent);
    narrowSegment(SmallVector<Value>(at), arith::MaxSIOp::create(b, loc, sub(begin, start), zero),
                  min(sub(end, start), extent));
  });
}

void RowEmitter::narrowSegment(SmallVector<Value> at, Value from, Value to) {
  PointEmitter &points = narrow->points;
  Value lanes = points.constantIndex(e.lanes());
  Value whole = sub(to, arith::RemUIOp::create(b, loc, sub(to, from), lanes));
  at.push_back(Value());
  emitFor(b, loc, from, whole, lanes, {}, [&](Value i, ValueRange) {
    at.back() = i;
    ok &= succeeded(narrow->emitRows(at, Value()));
    return SmallVector<Value>();
  });
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, whole, to);
  emitIf(b, loc, some, {}, [&] {
    at.back() = whole;
    ok &= succeeded(narrow->emitRows(at, sub(to, whole)));
    return SmallVector<Value>();
  });
}

LogicalResult mlir::disc::emitRow(KernelEmission &e) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(e.kernel, e.kernel.getBody().front(), e.shapes);
  if (failed(plan))
    return failure();
  return RowEmitter(e, *plan).run();
}
