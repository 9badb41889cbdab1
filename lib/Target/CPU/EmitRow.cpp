//===- EmitRow.cpp - reductions along the innermost dimension ---------------===//
//
//   disc_plan.kernel_func row @layer_norm { %s = sum of %x over d1 ; ... ; disc_plan.yield %y : tensor<?x384xf32> }
//
// A task is one parallel point: a row. Its passes run over the reduced range with the lanes along the innermost
// dimension (EmitReduction.cpp).
//
// Lit test: test/lit/CPU/emit-row.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/EmitReduction.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

LogicalResult mlir::disc::emitRow(KernelEmission &e) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(e.kernel, e.kernel.getBody().front(), e.shapes);
  if (failed(plan))
    return failure();
  ReductionEmitter rows(e, std::move(*plan), /*lanesAreReduced=*/true);
  Location loc = e.kernel.getLoc();
  Type index = e.builder.getIndexType();
  Value begin = arith::IndexCastOp::create(e.builder, loc, index, e.begin());
  Value end = arith::IndexCastOp::create(e.builder, loc, index, e.end());
  bool ok = true;
  emitRowMajor(rows.points, begin, end, rows.plan.extents(rows.plan.parallel), [&](Value, ValueRange at) {
    SmallVector<Idx> point;
    for (Value i : at)
      point.push_back(Idx(i));
    ok &= succeeded(rows.emitPoints({point}, Value()));
  });
  return success(ok);
}
