//===- ScheduleWinograd.cpp - chunks of 2 x 2 results ---------------------===//
//
//   disc_plan.kernel convolution ins(%x, %u : tensor<?x?x?x64xf32>, tensor<16x2x64x32xf32>) ... disc_tensor.winograd
// gets
//   schedule = #disc_plan.winograd<rows = 14, columns = 32, chunk_tiles = <tiles of blocks in a chunk>,
//                                  panel_groups = <number>, plane = <elements>, sums_scratch = <offset>>,
//   tasks = <chunks * panel groups>
//
// A block is 2 x 2 results, as far apart as the kernel's taps; those of all images are counted in one row, so that
// short lines and small images cost nothing. A tile of blocks is as many as the product has rows. A task forms the 16
// sums of a chunk of tiles in scratch memory, a plane each, and their products with the panels of filters of its group.
//
// Test: test/lit/Schedule/winograd.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Schedule/ConvolutionInfo.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::disc;

SymExpr disc::blocksOfWinograd(WinogradOp op, int64_t d, ShapeAnalysis &shapes) {
  SymExpr dilation(op.getDilations()[d]);
  return SymExpr::ceilDiv(SymExpr::ceilDiv(shapes.dims(op.getResult())[d + 1], dilation), SymExpr(2)) * dilation;
}

LogicalResult disc::scheduleWinograd(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  WinogradOp op = *kernel.getBody().front().getOps<WinogradOp>().begin();
  auto panels = op.getWeight().getDefiningOp<UnpackOp>();
  if (!panels)
    return op.emitError("the weights of a convolution must be packed");
  SmallVector<SymExpr> result = shapes.dims(op.getResult());
  SymExpr channels = shapes.dims(op.getInput()).back(), one(1), two(2);
  int64_t panel = panels.getPanel();
  int64_t bits = getElementTypeOrSelf(op.getResult().getType()).getIntOrFloatBitWidth(), bytes = bits / 8;
  int64_t rows = target.tileRows(bits, panel);

  SymExpr blocks = result[0] * blocksOfWinograd(op, 0, shapes) * blocksOfWinograd(op, 1, shapes);
  SymExpr tiles = SymExpr::max(SymExpr::ceilDiv(blocks, SymExpr(rows)), one);
  SymExpr panelCount = SymExpr::ceilDiv(result[3], SymExpr(panel));
  // The sums of a chunk should stay in the second-level cache beside a panel, of which several tiles should make use.
  // Each core should have several tasks: where there are too few chunks, the panels are divided.
  SymExpr tileBytes = channels * SymExpr(16 * rows * bytes), wanted(4 * target.cores);
  SymExpr fitting = SymExpr::floorDiv(SymExpr(target.l2Bytes / 2), SymExpr::max(tileBytes, one));
  SymExpr spread = SymExpr::max(SymExpr::floorDiv(tiles, wanted), SymExpr(4));
  SymExpr chunk = SymExpr::min(tiles, SymExpr::max(SymExpr::min(fitting, spread), one));
  SymExpr chunks = SymExpr::ceilDiv(tiles, chunk);
  SymExpr groups = SymExpr::max(SymExpr::min(panelCount, SymExpr::ceilDiv(wanted, chunks)), one);
  // Planes that are whole pages apart would share cache sets.
  SymExpr plane = chunk * SymExpr(rows) * channels + SymExpr(64 / bytes);
  int64_t sumsScratch = llvm::alignTo(16 * rows * panel * bytes, 64);

  SymExpr work = chunk * channels * SymExpr::ceilDiv(panelCount, groups) * SymExpr(16 * rows * panel * bits);
  SymExpr cost = SymExpr::floorDiv(work * two, SymExpr(7 * target.vectorBits)) + SymExpr(200);

  MLIRContext *context = kernel.getContext();
  auto expr = [&](const SymExpr &e) { return ExprAttr::get(context, e); };
  kernel.setScheduleAttr(
      WinogradScheduleAttr::get(context, rows, panel, expr(chunk), expr(groups), expr(plane), sumsScratch));
  kernel.setTasksAttr(expr(chunks * groups));
  kernel.setScratchAttr(expr(SymExpr(sumsScratch) + plane * SymExpr(16 * bytes)));
  kernel.setCostAttr(expr(cost));
  return success();
}
