//===- ScheduleConvolution.cpp - chunks of images -------------------------===//
//
//   disc_plan.kernel convolution ins(%x, %w : tensor<?x?x?x64xf32>, tensor<1x2x576x32xf32>) ...
// gets
//   schedule = #disc_plan.convolution<rows = 14, columns = 32, chunk_images = <1>,
//                                     chunk_rows = <lines of the result in a task>, chunk_tiles = <tiles of each line>,
//                                     input_scratch = <offset>, lines = apart>,
//   tasks = <chunks of images * chunks of lines * chunks of a line * groups * panels>
//
// A task gives a chunk of an image, some lines by some positions, for one panel of filters. What it reads of the
// input, with zeros around it, is copied to scratch memory for all panels that follow each other; it and a panel should
// stay in the second-level cache. Nothing depends on the number of threads that will run.
//
// Where lines are known to be short, tiles go on from one line to the next (`merged`). Registers of tiles always
// multiply 16 rows, and so fast that reading panels takes longer: their tiles go on from line to line as well, through
// what is between two lines of the copied input (`joined`). Tasks have several small images where the weights are
// larger than three quarters of the second-level cache, and read them once for all of these.
//
// A depthwise convolution copies nothing; its task is a chunk of lines by a panel of channels.
//
// Test: test/lit/Schedule/convolution.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/ConvolutionInfo.h"
#include "lib/Transforms/Schedule/Schedules.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::disc;

static SymExpr roundUp(const SymExpr &e, int64_t to) { return SymExpr::ceilDiv(e, SymExpr(to)) * SymExpr(to); }
static int64_t bytesOf(Type element) { return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8); }
static SymExpr atLeastOne(const SymExpr &e) { return SymExpr::max(e, SymExpr(1)); }

LogicalResult disc::scheduleConvolution(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) {
  if (!kernel.getBody().front().getOps<WinogradOp>().empty())
    return scheduleWinograd(kernel, shapes, target);
  FailureOr<ConvolutionInfo> found = ConvolutionInfo::get(kernel, kernel.getBody().front(), shapes);
  if (failed(found))
    return failure();
  ConvolutionInfo &info = *found;
  if (!info.panels)
    return info.op.emitError("the weights of a convolution must be packed");
  int64_t panel = info.panels.getPanel(), sumBytes = bytesOf(info.accumulator);
  bool tiled = target.multipliesTiles(info.together(), info.weightElement);
  int64_t tile = target.tileRows(8 * sumBytes, panel, tiled);
  ConvolutionInfo::Axis &z = info.z(), &h = info.h(), &w = info.w();
  SymExpr taps = z.kernel * h.kernel * w.kernel;
  SymExpr one(1), tiles = atLeastOne(SymExpr::ceilDiv(w.output, SymExpr(tile)));
  SymExpr panels = info.isDepthwise ? SymExpr::ceilDiv(info.groups, SymExpr(panel))
                                    : info.groups * SymExpr::ceilDiv(info.groupOutputs, SymExpr(panel));
  SymExpr lines = info.batch * z.output * h.output;

  // As many lines and positions as let a task's part of the input fill half of the second-level cache, but few enough
  // that each core has several tasks.
  int64_t budget = target.l2Bytes / 2;
  // Of a convolution of each channel by itself, the panels of a chunk follow each other, and share the lines of memory.
  SymExpr pixel = z.kernel * (info.isDepthwise ? info.groups : info.pixelInputs) * SymExpr(bytesOf(info.inputRead()));
  SymExpr tileBytes = SymExpr(tile * w.stride) * h.window(one) * pixel;
  SymExpr chunkTiles =
      SymExpr::min(tiles, atLeastOne(SymExpr::floorDiv(SymExpr(budget), SymExpr::max(tileBytes, one))));
  SymExpr positions = SymExpr::min(chunkTiles * SymExpr(tile), atLeastOne(w.output));
  SymExpr width = w.window(positions);
  SymExpr fitting = SymExpr::floorDiv(SymExpr::floorDiv(SymExpr(budget), SymExpr::max(width * pixel, one)) -
                                          SymExpr::min(h.window(one), SymExpr(1 << 20)) + SymExpr(h.stride),
                                      SymExpr(h.stride));
  // What is left of a tile costs as much as what it saves.
  bool joins = tiled && info.joinsLines(shapes);
  bool merges = info.mergesLines(joins ? tile / 3 : tiled ? tile / 2 : tile, shapes);
  LinesOfTiles linesOfTiles = merges ? LinesOfTiles::Merged : joins ? LinesOfTiles::Joined : LinesOfTiles::Apart;
  if (merges) {
    // Whole lines; each line of the result adds one to every copy.
    chunkTiles = tiles, positions = atLeastOne(w.output);
    SymExpr line = positions * info.pixelInputs * SymExpr(bytesOf(info.inputRead())) * info.mergedCopies();
    fitting = SymExpr::floorDiv(SymExpr(budget), SymExpr::max(line, one));
  }
  SymExpr across = SymExpr::ceilDiv(tiles, chunkTiles);
  SymExpr spread = SymExpr::floorDiv(lines * across * panels, SymExpr(4 * target.cores));
  SymExpr chunkRows = atLeastOne(SymExpr::min({fitting, spread, atLeastOne(h.output)}));
  SymExpr down = SymExpr::ceilDiv(h.output, chunkRows);

  SymExpr imageBytes = h.window(chunkRows) * width * pixel;
  if (merges)
    imageBytes = info.mergedCopies() * info.mergedLines(chunkRows) * positions * info.pixelInputs *
                 SymExpr(bytesOf(info.inputRead()));
  SymExpr chunkImages(1);
  SymExpr weightBytes = panels * taps * info.pixelInputs * SymExpr(panel * bytesOf(info.weightElement));
  bool staysNear = weightBytes.isConstant() && weightBytes.constant() <= target.l2Bytes * 3 / 4;
  if (tiled && !staysNear) {
    SymExpr images = SymExpr::floorDiv(SymExpr(budget), SymExpr::max(imageBytes, one));
    SymExpr spreadImages = SymExpr::floorDiv(info.batch * z.output * down * across * panels, SymExpr(4 * target.cores));
    chunkImages = atLeastOne(SymExpr::min({images, spreadImages, info.batch}));
  }
  SymExpr inputScratch = roundUp(SymExpr(tile * panel * sumBytes), 64);
  SymExpr scratch(0);
  if (!info.isDepthwise)
    scratch = inputScratch + chunkImages * imageBytes + SymExpr(64);

  // Multiply-adds at one vector a cycle, or of tiles at eight, at 3.5 GHz; those of depthwise convolutions wait for
  // their input.
  SymExpr depth = SymExpr::ceilDiv(info.groupInputs, SymExpr(info.together() * (tiled ? 8 : 1)));
  SymExpr work = chunkImages * chunkRows * positions * taps * SymExpr(panel * sumBytes * 8);
  SymExpr cost = SymExpr::floorDiv(work * depth * SymExpr(2), SymExpr(7 * target.vectorBits)) + SymExpr(200);

  MLIRContext *context = kernel.getContext();
  auto expr = [&](const SymExpr &e) { return ExprAttr::get(context, e); };
  kernel.setScheduleAttr(ConvolutionScheduleAttr::get(context, tile, panel, expr(chunkImages), expr(chunkRows),
                                                      expr(chunkTiles), expr(inputScratch), linesOfTiles));
  kernel.setTasksAttr(expr(SymExpr::ceilDiv(info.batch, chunkImages) * z.output * down * across * panels));
  kernel.setScratchAttr(expr(scratch));
  kernel.setCostAttr(expr(cost));
  return success();
}
