//===- ScheduleContraction.cpp - tiles and blocks of products -------------===//
//
//   disc_plan.kernel contraction ins(%x, %w : tensor<?x384xf32>, tensor<48x384x32xf32>) ...      // M x 384 x 1536
// gets
//   schedule = #disc_plan.product<rows = 14, columns = [32], k_block = 2048, row_tiles = <tiles of rows in a task>,
//                                 lhs_scratch = <offset>, rhs_scratch = <offset>>,
//   tasks = <batches * chunks of rows * panels>
//
// A kernel of several parts (products of one left operand) has `columns` for each; their panels follow each other.
//
// A task multiplies a chunk of rows by one panel of columns. The panel and the chunk of the left operand stay in the
// second-level cache while the tiles of the chunk go by; neighbouring tasks share the chunk. A chunk is smaller when
// that is what it takes to give every core several tasks, or to keep its results in that cache, too. Nothing here
// depends on the number of threads that will run, so neither does the order of any sum.
//
// The scratch memory of a worker: one tile of sums (a chunk of them if the sum is cut into blocks); rows of the left
// operand, for layouts that the product cannot read in place; and a panel of the right one if it is not packed yet, or
// is packed as codes. A left operand with contiguous rows may be copied to panels, which have `lhs_panel` elements for
// each value of k.
//
// Test: test/lit/Schedule/contraction.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/ContractionInfo.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include <limits>

using namespace mlir;
using namespace mlir::disc;

static SymExpr roundUp(const SymExpr &e, int64_t to) { return SymExpr::ceilDiv(e, SymExpr(to)) * SymExpr(to); }

static int64_t bytesOf(Type element) { return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8); }

LogicalResult disc::scheduleContraction(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  FailureOr<std::vector<ContractionPart>> parts = contractionParts(kernel, kernel.getBody().front(), shapes);
  if (failed(parts))
    return failure();
  const ContractionInfo &info = parts->front().first(); // says what all products share
  SymExpr m = info.size(info.rows), k = info.size(info.depth);
  int64_t sumBytes = bytesOf(info.accumulator), rows = std::numeric_limits<int64_t>::max();
  SymExpr batches = info.size(info.batch);

  // A part's task has a panel of each of its products.
  Builder b(kernel.getContext());
  SmallVector<int64_t> columns;
  SymExpr panels(0);
  bool coded = false, tiled = info.asHalves() || target.multipliesTiles(info.together(), info.rhsElement);
  int64_t sumsPerRow = 0, panelBytes = 0; // of the widest part; panels per value of k
  int64_t scratchBytes = 0;               // and what they take in scratch
  for (const ContractionPart &part : *parts) {
    UnpackOp packed = part.first().panels;
    int64_t panel =
        packed ? packed.getPanel()
               : target.panelColumns(8 * sumBytes, shapes.range(part.columns()).max, isa<FloatType>(info.accumulator));
    // All parts share the tiles of rows.
    rows = std::min(rows, target.tileRows(8 * sumBytes, panel, tiled));
    int64_t bytes = 0, inScratch = 0;
    for (const ContractionInfo &product : part.products) {
      // Codes become floats, and short floats longer ones, where rows are many.
      bool isCoded = product.widensPanels() || (UnpackOp(product.panels) && UnpackOp(product.panels).getScales());
      int64_t made = isCoded ? sumBytes : bytesOf(product.rhsRead());
      inScratch += panel * made;
      bytes += panel * (product.asHalves() ? made / 2 : made);
      coded |= isCoded;
    }
    panelBytes = std::max(panelBytes, bytes);
    scratchBytes = std::max(scratchBytes, inScratch);
    sumsPerRow = std::max<int64_t>(sumsPerRow, panel * part.products.size());
    columns.push_back(panel);
    panels += SymExpr::ceilDiv(part.columns(), SymExpr(panel));
  }

  bool toPanels = info.rowsContiguous() && info.together() == 1;
  // Panels of up to 3/16 of the second-level cache are used whole, beside as many rows as fit into 5/8 of it. Of longer
  // ones a block of k is, so that a tile's part of the rows is half the first-level cache; rows are many then, because
  // they are what each value of a panel is read for, and they are read in order, which is cheap.
  int64_t kBlock = target.l2Bytes * 3 / 16 / panelBytes, rowsBytes = target.l2Bytes * 5 / 8;
  ShapeAnalysis::Range depth = shapes.range(k);
  bool blocked = !depth.max || *depth.max > kBlock;
  if (blocked) {
    kBlock = std::max<int64_t>(256, target.l1Bytes * 5 / 8 / (rows * bytesOf(info.lhsRead())) / 64 * 64);
    rowsBytes = target.l2Bytes;
    // A right operand that is not packed is packed again for each chunk: with shorter blocks chunks have more rows.
    if (toPanels && !info.panels)
      kBlock = std::min<int64_t>(kBlock, 512);
  }

  SymExpr one(1), tiles = SymExpr::ceilDiv(m, SymExpr(rows));
  SymExpr rowBytes = SymExpr::max(SymExpr::min(k, SymExpr(kBlock)), one) * SymExpr(rows * bytesOf(info.lhsRead()));
  SymExpr fitting = SymExpr::floorDiv(SymExpr(rowsBytes), rowBytes);
  // Registers of tiles multiply faster than memory follows. Few weights stay in the second-level cache anyway; with
  // chunks whose results, and as many residuals, stay there too, memory is written and read in order, and not a few
  // lines of each row after those of all other rows.
  SymExpr weightBytes = k * panels * SymExpr(panelBytes);
  if (tiled && info.panels && !blocked && weightBytes.isConstant() && weightBytes.constant() <= target.l2Bytes / 4)
    fitting = SymExpr::floorDiv(SymExpr(rowsBytes), rowBytes + panels * SymExpr(rows * 2 * sumsPerRow * sumBytes));
  SymExpr spread = SymExpr::floorDiv(tiles * panels * batches, SymExpr(4 * target.cores));
  SymExpr rowTiles = SymExpr::max(SymExpr::min({fitting, spread, tiles}), one);
  SymExpr chunks = SymExpr::ceilDiv(tiles, rowTiles);

  SymExpr chunkRows = rowTiles * SymExpr(rows);
  SymExpr end = (blocked ? chunkRows : SymExpr(rows)) * SymExpr(sumsPerRow * sumBytes);
  SymExpr lhsScratch = roundUp(end, 64);
  // Rows in scratch are longer than k, so that they do not all start in the same cache set.
  // Panels of the rows take less, with the last vector written to one, which ends behind it.
  end = lhsScratch + chunkRows * (roundUp(k, 64) * SymExpr(bytesOf(info.lhsRead())) + SymExpr(64));
  SymExpr rhsScratch = roundUp(end, 64);
  end = info.panels && !coded ? rhsScratch : rhsScratch + k * SymExpr(scratchBytes);

  // Multiply-adds at one vector a cycle, or of tiles at eight, and a panel read once, at 3.5 GHz.
  SymExpr rowsPerTask = SymExpr::min(rowTiles * SymExpr(rows), m);
  SymExpr work = rowsPerTask * SymExpr::ceilDiv(k, SymExpr((info.asHalves() ? 2 : info.together()) * (tiled ? 8 : 1))) *
                 SymExpr(sumsPerRow * sumBytes * 8);
  SymExpr cost = SymExpr::floorDiv(work * SymExpr(2), SymExpr(7 * target.vectorBits)) +
                 SymExpr::floorDiv(k * SymExpr(panelBytes), SymExpr(32)) + SymExpr(100);

  MLIRContext *context = kernel.getContext();
  auto expr = [&](const SymExpr &e) { return ExprAttr::get(context, e); };
  kernel.setScheduleAttr(ProductScheduleAttr::get(context, rows, b.getDenseI64ArrayAttr(columns), kBlock,
                                                  expr(rowTiles), expr(lhsScratch), expr(rhsScratch),
                                                  toPanels ? rows : 0));
  kernel.setTasksAttr(expr(batches * chunks * panels));
  kernel.setScratchAttr(expr(end));
  kernel.setCostAttr(expr(cost));
  return success();
}
