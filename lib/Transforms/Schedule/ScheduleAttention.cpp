//===- ScheduleAttention.cpp - blocks of queries --------------------------===//
//
//   disc_plan.kernel attention ins(%q, %k, %v : tensor<?x12x?x32xf32>, ...) ...
// gets
//   schedule = {rows = 14, keys = 252, query_scratch = <0>, score_scratch = <E * 128>, out_scratch = <...>},
//   tasks = <B * 12 * ((L + 31) floordiv 32)>
//
// A task takes two vectors of queries of one head. Its scratch memory holds those queries transposed, their scores for
// a run of keys (which leaves a third of the first-level cache to keys, values and the rest), and the result
// transposed.
//
// Test: test/lit/Schedule/attention.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::disc;

static SymExpr roundUp(const SymExpr &e, int64_t to) { return SymExpr::ceilDiv(e, SymExpr(to)) * SymExpr(to); }

LogicalResult disc::scheduleAttention(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  auto ops = kernel.getBody().front().getOps<AttentionOp>();
  if (ops.empty())
    return kernel.emitError("an attention kernel holds no attention");
  AttentionOp op = *ops.begin();
  int64_t bits = std::max(32u, getElementTypeOrSelf(op.getQuery().getType()).getIntOrFloatBitWidth());
  int64_t lanes = target.vectorBits / bits, width = 2 * lanes, rowBytes = width * bits / 8;
  SmallVector<SymExpr> dims = shapes.dims(op.getQuery()), keyDims = shapes.dims(op.getKey());
  SymExpr l = dims[dims.size() - 2], depth = dims.back(), s = keyDims[keyDims.size() - 2];
  SymExpr valueSize = shapes.dims(op.getValue()).back();

  int64_t rows = target.tile(bits).rows;
  int64_t keys = std::max<int64_t>(target.l1Bytes * 2 / 3 / rowBytes / rows, 1) * rows;
  SymExpr scores = depth * SymExpr(rowBytes), out = scores + SymExpr::min(s, SymExpr(keys)) * SymExpr(rowBytes);
  SymExpr end = out + roundUp(valueSize, lanes) * SymExpr(rowBytes);
  SymExpr heads = SymExpr::product(ArrayRef<SymExpr>(dims).drop_back(2));
  SymExpr blocks = SymExpr::ceilDiv(l, SymExpr(width));
  // Two vectors of each key multiplied in both products, two a cycle, and some ten cycles for their exponentials.
  SymExpr cost = SymExpr::floorDiv(s * (depth + valueSize + SymExpr(12)), SymExpr(4)) + SymExpr(300);

  MLIRContext *context = kernel.getContext();
  Builder b(context);
  auto expr = [&](const SymExpr &e) { return ExprAttr::get(context, e); };
  kernel.setScheduleAttr(b.getDictionaryAttr({
      b.getNamedAttr("rows", b.getI64IntegerAttr(rows)),
      b.getNamedAttr("keys", b.getI64IntegerAttr(keys)),
      b.getNamedAttr("query_scratch", expr(0)),
      b.getNamedAttr("score_scratch", expr(scores)),
      b.getNamedAttr("out_scratch", expr(out)),
  }));
  kernel.setTasksAttr(expr(heads * blocks));
  kernel.setScratchAttr(expr(end));
  kernel.setCostAttr(expr(cost));
  return success();
}
