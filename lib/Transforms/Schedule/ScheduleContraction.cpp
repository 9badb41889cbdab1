//===- ScheduleContraction.cpp - tiles and blocks of products -------------===//
//
//   disc_plan.kernel contraction ins(%x, %w : tensor<?x384xf32>, tensor<48x384x32xf32>) ...      // M x 384 x 1536
// gets
//   schedule = {rows = 14, columns = 32, row_tiles = <tiles of rows in a task>, k_block = 2048,
//               lhs_scratch = <offset>, rhs_scratch = <offset>},
//   tasks = <batches * chunks of rows * panels>
//
// A task multiplies a chunk of rows by one panel of columns. The panel and the chunk of the left operand stay in the
// second-level cache while the tiles of the chunk go by; neighbouring tasks share the chunk. A chunk is smaller when
// that is what it takes to give every core several tasks. Nothing here depends on the number of threads that will run,
// so neither does the order of any sum.
//
// The scratch memory of a worker: one tile of sums (a chunk of them if the sum is cut into blocks); rows of the left
// operand, for layouts that the product cannot read in place; and a panel of the right one if it is not packed yet.
//
// Test: test/lit/Schedule/contraction.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/ContractionInfo.h"
#include "lib/Transforms/Schedule/Schedules.h"

using namespace mlir;
using namespace mlir::disc;

static SymExpr roundUp(const SymExpr &e, int64_t to) { return SymExpr::ceilDiv(e, SymExpr(to)) * SymExpr(to); }

static int64_t bytesOf(Type element) { return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8); }

LogicalResult disc::scheduleContraction(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  FailureOr<ContractionInfo> info = ContractionInfo::get(kernel, kernel.getBody().front(), shapes);
  if (failed(info))
    return failure();
  SymExpr m = info->size(info->rows), n = info->size(info->columns), k = info->size(info->depth);
  TargetInfo::Tile tile = target.tile(info->accumulator.getIntOrFloatBitWidth(), shapes.range(n).max);
  if (info->panels)
    tile.columns = info->panels.getPanel();
  int64_t sumBytes = bytesOf(info->accumulator), rhsBytes = bytesOf(info->rhsElement);
  SymExpr batches = info->size(info->batch);

  // A block of a panel takes a quarter of the cache, the rows it meets a half.
  int64_t kBlock = std::max<int64_t>(256, target.l2Bytes / 4 / (tile.columns * rhsBytes));
  ShapeAnalysis::Range depth = shapes.range(k);
  bool blocked = !depth.max || *depth.max > kBlock;

  SymExpr one(1), tiles = SymExpr::ceilDiv(m, SymExpr(tile.rows));
  SymExpr panels = SymExpr::ceilDiv(n, SymExpr(tile.columns));
  SymExpr rowBytes =
      SymExpr::max(SymExpr::min(k, SymExpr(kBlock)), one) * SymExpr(tile.rows * bytesOf(info->lhsElement));
  SymExpr fitting = SymExpr::floorDiv(SymExpr(target.l2Bytes / 2), rowBytes);
  SymExpr spread = SymExpr::floorDiv(tiles * panels * batches, SymExpr(4 * target.cores));
  SymExpr rowTiles = SymExpr::max(SymExpr::min({fitting, spread, tiles}), one);
  SymExpr chunks = SymExpr::ceilDiv(tiles, rowTiles);

  SymExpr chunkRows = rowTiles * SymExpr(tile.rows);
  SymExpr end = (blocked ? chunkRows : SymExpr(tile.rows)) * SymExpr(tile.columns * sumBytes);
  SymExpr lhsScratch = roundUp(end, 64);
  // Rows in scratch are longer than k, so that they do not all start in the same cache set.
  end = lhsScratch + chunkRows * (roundUp(k, 64) + SymExpr(16)) * SymExpr(bytesOf(info->lhsElement));
  SymExpr rhsScratch = roundUp(end, 64);
  end = info->panels ? rhsScratch : rhsScratch + k * SymExpr(tile.columns * rhsBytes);

  // Multiply-adds at one vector a cycle, and a panel read once, at 3.5 GHz.
  SymExpr rowsPerTask = SymExpr::min(rowTiles * SymExpr(tile.rows), m);
  SymExpr work = rowsPerTask * k * SymExpr(tile.columns * sumBytes * 8);
  SymExpr cost = SymExpr::floorDiv(work * SymExpr(2), SymExpr(7 * target.vectorBits)) +
                 SymExpr::floorDiv(k * SymExpr(tile.columns * rhsBytes), SymExpr(32)) + SymExpr(100);

  MLIRContext *context = kernel.getContext();
  Builder b(context);
  auto expr = [&](const SymExpr &e) { return ExprAttr::get(context, e); };
  kernel.setScheduleAttr(b.getDictionaryAttr({
      b.getNamedAttr("rows", b.getI64IntegerAttr(tile.rows)),
      b.getNamedAttr("columns", b.getI64IntegerAttr(tile.columns)),
      b.getNamedAttr("k_block", b.getI64IntegerAttr(kBlock)),
      b.getNamedAttr("row_tiles", expr(rowTiles)),
      b.getNamedAttr("lhs_scratch", expr(lhsScratch)),
      b.getNamedAttr("rhs_scratch", expr(rhsScratch)),
  }));
  kernel.setTasksAttr(expr(batches * chunks * panels));
  kernel.setScratchAttr(expr(end));
  kernel.setCostAttr(expr(cost));
  return success();
}
