//===- ScheduleAttention.cpp - blocks of queries --------------------------===//
//
//   disc_plan.kernel attention ins(%q, %k, %v : tensor<?x12x?x32xf32>, ...) ...
// gets
//   schedule = #disc_plan.attention<rows = 14, keys = 252, query_scratch = <0>, score_scratch = <E * 128>,
//                                   out_scratch = <...>, few = <queries = 4, ...>>,
//   tasks = <B * 12 * ((L + 31) floordiv 32)>
//
// A task takes two vectors of queries of one head. Its scratch memory holds those queries transposed, their scores for
// a run of keys (which leaves a third of the first-level cache to keys, values and the rest), and the result
// transposed. A few of them a head (`few`) are done otherwise, row by row, where keys and values allow: a task is
// then all queries that share a head of keys, those of the batch dimensions `shared_dims` included.
//
// Test: test/lit/Schedule/attention.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::disc;

static SymExpr roundUp(const SymExpr &e, int64_t to) { return SymExpr::ceilDiv(e, SymExpr(to)) * SymExpr(to); }

std::optional<Layout> disc::operandLayout(KernelOp kernel, Value value, ShapeAnalysis &shapes) {
  if (std::optional<JoinedRows> rows = joinedRows(value, shapes)) {
    SmallVector<SymExpr> dims = shapes.dims(rows->concat.getResult());
    return rows->through(Layout::contiguous(dims), dims[dims.size() - 2], shapes);
  }
  auto argument = dyn_cast<BlockArgument>(value);
  return argument ? viewLayout(kernel.getInputs()[argument.getArgNumber()], shapes) : std::nullopt;
}

namespace {
/// How few queries are done.
struct RowSchedule {
  int64_t fewQueries = 0; // none are
  SmallVector<int64_t> sharedDims;
  int64_t keys = 0;
  SymExpr rows, tasks, scratch, cost;
  SymExpr scores, results, stats; // where they lie in scratch; queries come first
};
} // namespace

static RowSchedule scheduleRows(KernelOp kernel, AttentionOp op, ShapeAnalysis &shapes, const TargetInfo &target,
                                int64_t bits) {
  RowSchedule out;
  int64_t lanes = target.vectorBits / bits, bytes = bits / 8;
  SmallVector<SymExpr> dims = shapes.dims(op.getQuery());
  auto keys = operandLayout(kernel, op.getKey(), shapes), values = operandLayout(kernel, op.getValue(), shapes);
  // Lanes run along rows of keys and values.
  if (lanes < 4 || !keys || !values || !keys->strides.back().isConstant(1) || !values->strides.back().isConstant(1))
    return out;
  SymExpr l = dims[dims.size() - 2], depth = roundUp(dims.back(), lanes);
  out.rows = l, out.tasks = SymExpr(1);
  int64_t repeated = 1;
  for (size_t d = dims.size() - 2; d-- > 0;) {
    int64_t extent = dims[d].isConstant() ? dims[d].constant() : 0;
    if (extent > 1 && repeated * extent <= 16 && keys->strides[d].isConstant(0) && values->strides[d].isConstant(0)) {
      repeated *= extent;
      out.rows *= dims[d];
      out.sharedDims.insert(out.sharedDims.begin(), d);
    } else {
      out.tasks *= dims[d];
    }
  }
  // A block of queries takes as long as some eight rows, and one for each head of a group.
  int64_t few = repeated > 1 ? lanes / 2 : lanes / 4;
  if (shapes.range(l).min.value_or(0) > few)
    return out;
  out.fewQueries = few;
  // Keys of a run are read again for every four rows: they take a third of the first-level cache.
  int64_t most = target.l1Bytes / 3 / bytes / std::max<int64_t>(shapes.typical(depth), 1) / lanes * lanes;
  out.keys = std::clamp(most, 2 * lanes, 16 * lanes);

  SymExpr size = roundUp(shapes.dims(op.getValue()).back(), lanes), s = shapes.dims(op.getKey())[dims.size() - 2];
  SymExpr count = SymExpr::min(out.rows, SymExpr(few * repeated)), element(bytes);
  out.scores = count * depth * element;
  out.results = out.scores + count * SymExpr(out.keys) * element;
  out.stats = out.results + count * size * element;
  out.scratch = out.stats + count * SymExpr(2) * element;
  // Keys and values come at some 16 bytes a nanosecond, unless there are many rows.
  out.cost = SymExpr::floorDiv(s * (depth + size) * (out.rows + SymExpr(2)), SymExpr(8)) + SymExpr(200);
  return out;
}

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

  int64_t rows = target.tileRows(bits, width);
  int64_t keys = std::max<int64_t>(target.l1Bytes * 2 / 3 / rowBytes / rows, 1) * rows;
  SymExpr scores = depth * SymExpr(rowBytes), out = scores + SymExpr::min(s, SymExpr(keys)) * SymExpr(rowBytes);
  SymExpr scratch = out + roundUp(valueSize, lanes) * SymExpr(rowBytes);
  SymExpr tasks = SymExpr::product(ArrayRef<SymExpr>(dims).drop_back(2)) * SymExpr::ceilDiv(l, SymExpr(width));
  // Two vectors of each key multiplied in both products, two a cycle, and some ten cycles for their exponentials.
  SymExpr cost = SymExpr::floorDiv(s * (depth + valueSize + SymExpr(12)), SymExpr(4)) + SymExpr(300);

  MLIRContext *context = kernel.getContext();
  Builder b(context);
  auto expr = [&](const SymExpr &e) { return ExprAttr::get(context, e); };
  RowSchedule few = scheduleRows(kernel, op, shapes, target, bits);
  FewQueriesAttr fewQueries;
  if (few.fewQueries) {
    // Tensors that leave no room for anything else in the second-level cache.
    int64_t large = target.l2Bytes / 2;
    fewQueries = FewQueriesAttr::get(context, few.fewQueries, b.getDenseI64ArrayAttr(few.sharedDims), few.keys, large,
                                     expr(0), expr(few.scores), expr(few.results), expr(few.stats));
    if (shapes.range(l).max && *shapes.range(l).max <= few.fewQueries) {
      tasks = few.tasks, scratch = few.scratch, cost = few.cost;
    } else {
      // 1 where there are many queries, 0 where there are few.
      SymExpr many = SymExpr::min(SymExpr(1), SymExpr::floorDiv(l, SymExpr(few.fewQueries + 1)));
      SymExpr isFew = SymExpr(1) - many;
      tasks = many * tasks + isFew * few.tasks;
      cost = many * cost + isFew * few.cost;
      scratch = SymExpr::max(scratch, few.scratch);
    }
  }
  kernel.setScheduleAttr(AttentionScheduleAttr::get(context, rows, keys, expr(0), expr(scores), expr(out), fewQueries));
  kernel.setTasksAttr(expr(tasks));
  kernel.setScratchAttr(expr(scratch));
  kernel.setCostAttr(expr(cost));
  return success();
}
