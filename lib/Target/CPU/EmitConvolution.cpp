//===- EmitConvolution.cpp - convolutions with epilogues ------------------===//
//
//   disc_plan.kernel_func convolution @k attributes {schedule = {rows = 14, columns = 32, ...}, ...} {
//   ^bb0(%x: tensor<?x?x?x64xf32>, %p: tensor<1x2x576x32xf32>, %bias: tensor<64xf32>):
//     %w = disc_tensor.unpack %p ... : tensor<1x2x576x32xf32> -> tensor<1x64x3x3x64xf32>
//     %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] ...
//     %z = linalg.generic ... y + bias ...
//     disc_plan.yield %z
//   }
// becomes
//   func.func @k(%args, %begin, %end, %scratch) {
//     for each task: its chunk of an image, or of several, its group and its panel of filters
//       if the task before read another chunk: copy its part of the input, with zeros around, to scratch
//       for each image and line of the chunk, each tile of the line: up to 14 neighbouring results
//         llvm.call @disc_product_f32_f32_f32_x32_runs_...       // one run of kw * C values for each line of the
//         kernel for each position of the tile, each vector of filters: the epilogue, evaluated at points, and its
//         stores
//   }
//
// Short lines are merged, and those of registers of tiles joined: tiles go on from line to line, and the epilogue
// leaves out what is between them (ConvolutionInfo::mergesLines, joinsLines).
//
// The product is implicit: neighbouring results read rows of the input that overlap, a constant stride apart, so that
// the copy is no larger than the input. Where no zeros are needed (1 x 1) the input is read in place.
//
// Test: test/lit/CPU/convolution.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/ConvolutionInput.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/CPU/MicroKernel.h"
#include "lib/Target/CPU/TileProduct.h"
#include "lib/Transforms/Support/TargetInfo.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class ConvolutionEmitter {
public:
  ConvolutionEmitter(KernelEmission &e, const ConvolutionInfo &own)
      : e(e), b(e.builder), info(own), m{e.builder, e.kernel.getLoc()}, acc(info.accumulator),
        lanes(e.vectorBits / int64_t(acc.getIntOrFloatBitWidth())),
        points(e.builder, e.kernel, e.args(), lanes, e.shapes), chunks(e, points, m, info),
        input(e, points, m, info, chunks), vectors(e.schedule<ConvolutionScheduleAttr>().getColumns() / lanes) {}

  LogicalResult emit();

private:
  /// The sum runs over this many values, so far apart in the input (elements).
  struct Level {
    SymExpr count, stride;
  };

  SmallVector<Value> emitTask(Value task, Value lastChunk);
  void eachImage(const ConvolutionChunk &chunk, Value from,
                 function_ref<void(const ConvolutionChunk &, Value, Value)> body);
  void emitTile(const ConvolutionChunk &chunk, Value from, Value line, Value first, Value rows, Value tileNumber);
  void multiply(size_t level, Value a, Value panel, Value accumulate, Value rows, Value skipped);
  bool isOneBlock(size_t count);
  void multiplyBlocks(Value a, Value panel, Value accumulate, Value rows, Value skipped);
  LogicalResult emitEpilogue(const ConvolutionChunk &chunk, Value line, Value first, Value rows);
  LogicalResult emitVector(const ConvolutionChunk &chunk, Value line, Value position, int64_t vector, Value sums,
                           Value mask);
  /// Where operands were rounded to bf16 the sum's own error is the smaller one.
  int64_t blockTerms() const { return spec.tiles ? 4096 : 1024; }
  Location loc() { return m.loc; }

  KernelEmission &e;
  OpBuilder &b;
  ConvolutionInfo info;
  IndexMath m;
  Type acc;
  int64_t lanes;
  PointEmitter points;
  ConvolutionChunks chunks;
  ConvolutionInput input;
  int64_t vectors; // of a panel

  SmallVector<Level> levels; // outermost first
  MicroKernelSpec spec;
  TileHeights heights{1, 1};
  Value group, firstColumn, columnCount, depthCount, panelPtr; // of the current task
  Value startsPtr;                                             // of its sums, where bytes are shifted
  Value panelsEnd;                                             // of all panels
  Value tilesOfTask, share;
  Value tileShape; // if the product is one of tiles
  bool failedInside = false;
};

LogicalResult ConvolutionEmitter::emit() {
  if (failed(input.plan()))
    return failure();
  std::array<SymExpr, 3> strides{input.zTap, input.hTap, input.wTap};
  auto addLevel = [&](const SymExpr &count, const SymExpr &stride) {
    if (count.isConstant(1))
      return;
    // Two levels are one where the outer one goes on where the inner one ends.
    if (!levels.empty() && e.shapes.equal(levels.back().stride, count * stride))
      levels.back() = {levels.back().count * count, stride};
    else
      levels.push_back({count, stride});
  };
  for (auto [axis, stride] : llvm::zip_equal(info.axes, strides))
    addLevel(axis.kernel, stride);
  addLevel(info.pixelInputs, SymExpr(1));
  if (levels.empty())
    levels.push_back({SymExpr(1), SymExpr(1)});
  spec = {info.inputRead(),        info.weightElement,        acc, lanes, vectors, /*prefetch=*/true,
          /*toSecondLevel=*/false, /*runs=*/levels.size() > 1};
  spec.together = info.together();
  spec.shifted = info.inputShift() != 0;
  spec.aUnsigned = info.op.getUnsignedInput() != spec.shifted;
  spec.bUnsigned = info.op.getUnsignedWeight();
  spec.tiles =
      TargetInfo::get(e.kernel->getParentOfType<ModuleOp>()).multipliesTiles(spec.together, info.weightElement);
  spec.planes = spec.tiles && levels.size() > 2 && isOneBlock(3);

  ShapeAnalysis::Range width =
      input.lines() != LinesOfTiles::Apart ? ShapeAnalysis::Range{1, std::nullopt} : e.shapes.range(info.w().output);
  heights = tileHeights(width.min.value_or(1), width.max.value_or(-1), e.schedule<ConvolutionScheduleAttr>().getRows());
  columnCount = points.expr(info.groupOutputs);
  depthCount = points.expr(info.z().kernel * info.h().kernel * info.w().kernel * info.pixelInputs);
  if (spec.tiles)
    tileShape = openTiles(b, loc());
  emitFor(b, loc(), m.index(e.begin()), m.index(e.end()), m.constant(1), {m.constant(-1)},
          [&](Value task, ValueRange carried) { return emitTask(task, carried[0]); });
  if (spec.tiles)
    closeTiles(b, loc());
  return failure(failedInside);
}

SmallVector<Value> ConvolutionEmitter::emitTask(Value task, Value lastChunk) {
  PointEmitter::Scope scope(points);
  int64_t panelColumns = vectors * lanes;
  Value panels = m.ceilDiv(columnCount, m.constant(panelColumns)), groups = points.expr(info.groups);
  Value panel = m.rem(task, panels), key = m.div(task, panels);
  group = m.rem(key, groups);
  firstColumn = m.mul(panel, panelColumns);
  ConvolutionChunk chunk = chunks.locate(m.div(key, groups));
  Value from = input.pointer(chunk, group);
  if (input.isCopied())
    emitIf(b, loc(), arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ne, key, lastChunk), {}, [&] {
      PointEmitter::Scope inner(points);
      eachImage(chunk, from, [&](const ConvolutionChunk &own, Value, Value start) { input.copy(own, group, start); });
      return SmallVector<Value>();
    });

  auto buffer = BufferOperand::get(e.kernel, info.panels.getSource(), e.shapes);
  if (!buffer) {
    info.panels.emitError("packed panels are not an operand of the kernel");
    failedInside = true;
    return {key};
  }
  int64_t bytes = byteSize(spec.b);
  Value number = m.add(m.mul(group, panels), panel);
  Value base = m.advance(points.operandPtr(buffer->argument), m.mul(points.expr(buffer->layout.offset), bytes));
  int64_t extraBytes = int64_t(info.panels.getExtraRows()) * spec.rowBytes();
  Value panelBytes = m.add(m.mul(depthCount, panelColumns * bytes), m.constant(extraBytes));
  startsPtr = m.advance(base, m.mul(number, panelBytes));
  panelPtr = m.advance(startsPtr, m.constant(extraBytes));
  panelsEnd = m.advance(base, m.mul(m.mul(groups, panels), panelBytes));

  // Each tile fetches its share of the next panel, as products do.
  Value one = m.constant(1), zero = m.constant(0), tilesOfLine = m.sub(chunk.endTile, chunk.firstTile);
  Value tilesOfImage = m.mul(chunk.lines, tilesOfLine), rows;
  if (input.lines() != LinesOfTiles::Apart) {
    rows = input.lines() == LinesOfTiles::Merged
               ? m.mul(chunk.lines, chunk.positions)
               : m.add(m.mul(m.sub(chunk.lines, one), points.expr(input.joinedLine)), chunk.positions);
    tilesOfImage = m.max(m.ceilDiv(rows, m.constant(e.schedule<ConvolutionScheduleAttr>().getRows())), one);
  }
  tilesOfTask = m.mul(chunk.images, tilesOfImage);
  share = arith::SelectOp::create(b, loc(), m.less(one, tilesOfTask),
                                  m.ceilDiv(m.constant(panelColumns * bytes), m.max(tilesOfTask, one)), zero);
  eachImage(chunk, from, [&](const ConvolutionChunk &own, Value image, Value start) {
    Value before = m.mul(image, tilesOfImage);
    if (rows) {
      EvenSplit split(m, rows, tilesOfImage);
      emitFor(b, loc(), zero, tilesOfImage, one, {}, [&](Value tile, ValueRange) {
        PointEmitter::Scope inner(points);
        emitTile(own, start, zero, split.start(m, tile), split.size(m, tile), m.add(before, tile));
        return SmallVector<Value>();
      });
      return;
    }
    emitFor(b, loc(), zero, chunk.lines, one, {}, [&](Value line, ValueRange) {
      PointEmitter::Scope inner(points);
      Value first = m.advance(start, m.mul(m.mul(line, points.expr(input.lineStep)), byteSize(info.inputRead())));
      emitFor(b, loc(), chunk.firstTile, chunk.endTile, one, {}, [&](Value tile, ValueRange) {
        PointEmitter::Scope innermost(points);
        Value number = m.add(before, m.add(m.mul(line, tilesOfLine), m.sub(tile, chunk.firstTile)));
        emitTile(own, first, line, m.sub(chunks.tileStart(tile), chunk.firstPosition), chunks.tileSize(tile), number);
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  });
  return {key};
}

/// `body` for each image of the chunk, with its number in the chunk and where its part of the input begins.
void ConvolutionEmitter::eachImage(const ConvolutionChunk &chunk, Value from,
                                   function_ref<void(const ConvolutionChunk &, Value, Value)> body) {
  Value zero = m.constant(0);
  if (e.schedule<ConvolutionScheduleAttr>().getChunkImages().getValue().isConstant(1))
    return body(chunk, zero, from);
  emitFor(b, loc(), zero, chunk.images, m.constant(1), {}, [&](Value image, ValueRange) {
    PointEmitter::Scope scope(points);
    ConvolutionChunk own = chunk;
    own.image = m.add(chunk.image, image);
    Value start = input.isCopied()
                      ? m.advance(from, m.mul(m.mul(image, points.expr(input.imageStep)), byteSize(info.inputRead())))
                      : input.pointer(own, group);
    body(own, image, start);
    return SmallVector<Value>();
  });
}

/// `rows` results from position `first` of a line of the chunk on.
void ConvolutionEmitter::emitTile(const ConvolutionChunk &chunk, Value from, Value line, Value first, Value rows,
                                  Value tileNumber) {
  Value a = m.advance(from, m.mul(m.mul(first, points.expr(input.step)), byteSize(info.inputRead())));
  Value skipped = m.mul(m.mul(tileNumber, share), depthCount);
  multiply(0, a, panelPtr, arith::ConstantOp::create(b, loc(), b.getBoolAttr(false)), rows, skipped);
  failedInside |= failed(emitEpilogue(chunk, line, first, rows));
}

/// Whether the terms of the last `count` levels are one block of a sum. A micro-kernel adds its terms one after
/// another, so it gets blocks of whole runs, or of a part of one, whose sums are added in memory: the error of a sum
/// then grows with the block, not with the filter.
bool ConvolutionEmitter::isOneBlock(size_t count) {
  SymExpr terms(1);
  for (const Level &level : ArrayRef(levels).take_back(count))
    terms *= level.count;
  std::optional<int64_t> most = e.shapes.range(terms).max;
  return isa<IntegerType>(acc) || (most && *most < 2 * blockTerms());
}

/// Adds what levels from `level` on give to the tile; the last two, or three, are the micro-kernel's own.
void ConvolutionEmitter::multiply(size_t level, Value a, Value panel, Value accumulate, Value rows, Value skipped) {
  if (level + (spec.planes ? 3 : 2) >= levels.size())
    return multiplyBlocks(a, panel, accumulate, rows, skipped);
  int64_t bytes = byteSize(info.inputRead()), panelBytes = spec.panel() * byteSize(spec.b);
  SymExpr inside(1);
  for (const Level &inner : ArrayRef(levels).drop_front(level + 1))
    inside *= inner.count;
  Value length = points.expr(inside), step = points.expr(levels[level].stride);
  emitFor(b, loc(), m.constant(0), points.expr(levels[level].count), m.constant(1), {accumulate},
          [&](Value i, ValueRange carried) {
            PointEmitter::Scope scope(points);
            Value position = m.mul(i, length);
            multiply(level + 1, m.advance(a, m.mul(m.mul(i, step), bytes)),
                     m.advance(panel, m.mul(position, panelBytes)), carried[0], rows,
                     m.add(skipped, m.mul(position, share)));
            return SmallVector<Value>{arith::ConstantOp::create(b, loc(), b.getBoolAttr(true))};
          });
}

/// The last levels, by the micro-kernel.
void ConvolutionEmitter::multiplyBlocks(Value a, Value panel, Value accumulate, Value rows, Value skipped) {
  int64_t bytes = byteSize(info.inputRead()), panelBytes = spec.panel() * byteSize(spec.b);
  const Level &inner = levels.back();
  Level outer{SymExpr(1), SymExpr(0)};
  if (spec.runs)
    outer = levels[levels.size() - 2];
  Value rowBytes = m.mul(points.expr(input.step), bytes), k = points.expr(inner.count);
  Value innerBytes = m.mul(points.expr(inner.stride), bytes), outerBytes = m.mul(points.expr(outer.stride), bytes);
  auto call = [&](Value run, Value runCount, Value from, Value count, Value more) {
    Value before = m.add(m.mul(run, k), from), own = m.add(skipped, m.mul(before, share));
    // Channels that are read together are a step.
    Value step = m.constant(spec.together);
    Prefetch next{m.advance(panelPtr, m.add(m.mul(depthCount, panelBytes), own)), m.i64(m.mul(share, step)), panelsEnd};
    Runs runs;
    if (spec.runs)
      runs.count = m.i64(runCount), runs.stride = m.i64(outerBytes);
    if (spec.planes) {
      const Level &plane = levels[levels.size() - 3];
      runs.planes = m.i64(points.expr(plane.count)), runs.planeStride = m.i64(m.mul(points.expr(plane.stride), bytes));
    }
    Codes codes;
    codes.starts = startsPtr;
    callMicroKernel(b, loc(), spec, heights, m.i64(rows),
                    m.advance(a, m.add(m.mul(run, outerBytes), m.mul(from, innerBytes))), m.i64(rowBytes),
                    m.i64(m.mul(innerBytes, step)), m.advance(panel, m.mul(before, panelBytes)),
                    m.i64(m.div(count, step)), e.scratch(), more, next, runs, codes, tileShape);
  };
  Value zero = m.constant(0), runs = points.expr(outer.count);
  if (isOneBlock(spec.planes ? 3 : 2))
    return call(zero, runs, zero, k, accumulate);
  Value block = m.constant(blockTerms()), isLong = m.less(block, k);
  Value blockRuns = m.max(m.div(block, m.max(k, m.constant(1))), m.constant(1));
  // No terms at all: the one call writes zeros.
  Value blockSize = m.max(arith::SelectOp::create(b, loc(), isLong, block, k), m.constant(1));
  Value steps = m.max(k, m.constant(1));
  emitFor(b, loc(), zero, runs, blockRuns, {accumulate}, [&](Value run, ValueRange before) {
    PointEmitter::Scope scope(points);
    Value runCount = m.min(m.sub(runs, run), blockRuns);
    return emitFor(b, loc(), zero, steps, blockSize, before, [&](Value from, ValueRange more) {
      PointEmitter::Scope inner(points);
      call(run, runCount, from, m.min(m.sub(k, from), blockSize), more[0]);
      return SmallVector<Value>{arith::ConstantOp::create(b, loc(), b.getBoolAttr(true))};
    });
  });
}

LogicalResult ConvolutionEmitter::emitEpilogue(const ConvolutionChunk &chunk, Value lineOfTile, Value first,
                                               Value rows) {
  int64_t panel = vectors * lanes;
  bool ok = true;
  Value zero = m.constant(0), one = m.constant(1);
  // The tile's results in `line` from position `from` on, up to `to`, where its row `row` is position 0.
  auto ofLine = [&](Value line, Value from, Value to, Value row, bool cut) {
    emitFor(b, loc(), from, to, one, {}, [&](Value position, ValueRange) {
      PointEmitter::Scope scope(points);
      Value sums = m.advance(e.scratch(), m.mul(m.add(row, position), panel * byteSize(acc)));
      Value column = m.add(chunk.firstPosition, position);
      for (int64_t v = 0; v < vectors; ++v) {
        if (!cut) {
          ok &= succeeded(emitVector(chunk, line, column, v, sums, {}));
          continue;
        }
        Value left = m.sub(columnCount, m.add(firstColumn, m.constant(v * lanes)));
        emitIf(b, loc(), m.less(zero, left), {}, [&] {
          PointEmitter::Scope inner(points);
          ok &= succeeded(emitVector(chunk, line, column, v, sums, points.tailMask(left)));
          return SmallVector<Value>();
        });
      }
      return SmallVector<Value>();
    });
  };
  auto positions = [&](bool cut) {
    Value end = m.add(first, rows);
    if (input.lines() == LinesOfTiles::Apart)
      return ofLine(m.add(chunk.firstLine, lineOfTile), first, end, m.sub(zero, first), cut);
    // Tiles go on from line to line; what they have between two lines is left out.
    Value length = input.lines() == LinesOfTiles::Joined ? points.expr(input.joinedLine) : chunk.positions;
    length = m.max(length, one);
    emitFor(b, loc(), m.div(first, length), m.ceilDiv(end, length), one, {}, [&](Value line, ValueRange) {
      PointEmitter::Scope scope(points);
      Value begin = m.mul(line, length);
      ofLine(m.add(chunk.firstLine, line), m.max(m.sub(first, begin), zero), m.min(m.sub(end, begin), chunk.positions),
             m.sub(begin, first), cut);
      return SmallVector<Value>();
    });
  };
  if (e.shapes.divisible(info.groupOutputs, panel)) {
    positions(false);
    return success(ok);
  }
  Value whole = m.less(m.add(firstColumn, m.constant(panel - 1)), columnCount);
  auto either = scf::IfOp::create(b, loc(), whole, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (bool cut : {false, true}) {
    b.setInsertionPointToStart(cut ? &either.getElseRegion().front() : &either.getThenRegion().front());
    PointEmitter::Scope inner(points);
    positions(cut);
  }
  return success(ok);
}

/// The results at one position and one vector of filters, from the sums at `sums`.
LogicalResult ConvolutionEmitter::emitVector(const ConvolutionChunk &chunk, Value line, Value position, int64_t vector,
                                             Value sums, Value mask) {
  PointEmitter::Scope scope(points);
  Value column = m.add(firstColumn, m.constant(vector * lanes));
  int64_t multiple = info.groups.isConstant(1) ? lanes : 1;
  if (multiple == 1)
    column = m.add(m.mul(group, columnCount), column);
  SmallVector<Idx> point =
      convolutionPoint(points, info, chunk, line, position, Idx(column, /*lanes=*/true, 1, multiple));
  return storeConvolution(e, points, info.op.getResult(), point, mask, [&](ArrayRef<Idx>, Value) -> Value {
    return LLVM::LoadOp::create(b, loc(), VectorType::get({lanes}, acc),
                                m.advance(sums, m.constant(vector * lanes * byteSize(acc))), byteSize(acc));
  });
}
} // namespace

LogicalResult disc::emitConvolution(KernelEmission &e) {
  for (WinogradOp op : e.kernel.getBody().front().getOps<WinogradOp>())
    return emitWinograd(e, op);
  FailureOr<ConvolutionInfo> info = ConvolutionInfo::get(e.kernel, e.kernel.getBody().front(), e.shapes);
  if (failed(info))
    return failure();
  if (!info->panels)
    return info->op.emitError("the weights of a convolution must be packed");
  int64_t lanes = e.vectorBits / int64_t(info->accumulator.getIntOrFloatBitWidth());
  if (failed(e.checkColumns(e.schedule<ConvolutionScheduleAttr>().getColumns(), lanes)))
    return failure();
  return info->isDepthwise ? emitDepthwise(e, *info) : ConvolutionEmitter(e, *info).emit();
}
