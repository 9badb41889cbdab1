//===- DeviceLoop.cpp - kernels without reductions on devices ---------------===//
//
//   disc_plan.kernel_func loop @k { %r = linalg.generic ... ; disc_plan.yield %r : tensor<?x?x384xf32> }
//
// becomes, with the domain's dimensions merged where all buffers allow (here into one):
//
//   scf.for %u = block * 256 + thread to ceil(n / 4) step blocks * 256 {
//     scf.if 4 * %u + 4 <= n { vector<4xf32> of each input; body; store } else { scf.for the rest, one by one }
//   }
//
// Neighbouring threads have neighbouring vectors, so that a warp reads whole lines.
//
// Lit test: test/lit/GPU/emit-kernels.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/Common/KernelAccess.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

LogicalResult disc::emitDeviceLoop(DeviceKernel &k) {
  IndexMath &m = k.m;
  ValueRange results = k.kernel.getYield().getValues();
  if (results.front().getDefiningOp<RunningSumOp>())
    return emitDeviceRunningSum(k);
  int64_t width = k.schedule("vector");
  // Whether a point lies in one part of a concatenation or another is asked for each.
  if (!k.kernel.getBody().getOps<ConcatOp>().empty())
    width = 1;

  SmallVector<SymExpr> domain = k.shapes.dims(results.front());
  KernelAccess access(k.kernel, k.shapes, domain);
  for (auto [i, v] : llvm::enumerate(results)) {
    auto at = access.reshape(access.identity(), domain, k.shapes.dims(v));
    access.read(v, at);
    access.write(i, at);
  }
  SmallVector<MergedDims> runs = access.mergedRuns(0, domain.size());
  bool whole = !runs.empty() && runs.back().extent.content() % width == 0;
  // Vectors must not cross the ends of rows; one row has one end, and a tail there.
  if (runs.empty() || (runs.size() > 1 && !whole))
    width = 1, whole = true;

  PointEmitter points = k.points(width);
  SymExpr total(1);
  SmallVector<Value> outerExtents;
  for (const MergedDims &run : runs) {
    total *= run.extent;
    if (&run != &runs.back())
      outerExtents.push_back(points.expr(run.extent));
  }
  Value one = m.constant(1);
  bool ok = true;
  auto point = [&](SmallVector<Idx> at, Idx position) {
    if (!runs.empty())
      at[runs.back().innermost] = position;
    ok &= succeeded(points.storeResults(at, domain));
  };
  Value threads = m.constant(k.threads());
  Value first = m.add(m.mul(k.block(), threads), k.thread()), step = m.mul(k.blocks(), threads);
  Value units = points.expr(SymExpr::ceilDiv(total, SymExpr(width)));
  Value inner = runs.empty() ? one : points.expr(runs.back().extent);
  emitFor(k.b, k.loc, first, units, step, {}, [&](Value unit, ValueRange) {
    PointEmitter::Scope scope(points);
    SmallVector<Idx> at(domain.size(), points.uniform(int64_t(0)));
    Value column = m.mul(unit, width);
    if (!outerExtents.empty()) {
      Value perRow = m.div(inner, m.constant(width));
      column = m.mul(m.rem(unit, perRow), width);
      SmallVector<Value> row = m.delinearize(m.div(unit, perRow), outerExtents);
      for (auto [run, i] : llvm::zip(runs, row))
        at[run.innermost] = Idx(i);
    }
    if (width == 1) {
      point(at, Idx(column));
      return SmallVector<Value>();
    }
    Idx vector(column, /*lanes=*/true, 1, width);
    if (whole) {
      point(at, vector);
      return SmallVector<Value>();
    }
    Value end = m.add(column, m.constant(width));
    auto either = scf::IfOp::create(k.b, k.loc, m.less(inner, end), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(k.b);
    k.b.setInsertionPointToStart(either.elseBlock());
    {
      PointEmitter::Scope inside(points);
      point(at, vector);
    }
    k.b.setInsertionPointToStart(either.thenBlock());
    emitFor(k.b, k.loc, column, inner, one, {}, [&](Value position, ValueRange) {
      PointEmitter::Scope inside(points);
      point(at, Idx(position));
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
  return success(ok);
}
