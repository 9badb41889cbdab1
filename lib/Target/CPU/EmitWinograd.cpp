//===- EmitWinograd.cpp - convolutions by F(2 x 2, 3 x 3) -----------------===//
//
// A kernel of kind convolution that holds a disc_tensor.winograd:
//
//   for each task: its chunk of blocks (2 x 2 results each), group of panels of filters
//     for each block, each vector of channels: the 16 sums B^T d B of the 4 x 4 pixels d that it reads, to a plane of
//       scratch memory each
//     for each panel, each tile of up to 14 blocks
//       for each of the 16 planes: llvm.call @disc_product_f32_f32_f32_x32(...), to scratch memory
//       for each block, each vector of filters: the 2 x 2 results A^T m A of its 16 products m, their epilogues, and
//         their stores
//
// B^T = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1], A^T = [1 1 1 0; 0 1 -1 -1]; the weights' side is in
// lib/Transforms/Schedule/Winograd.cpp.
//
// Test: test/lit/CPU/winograd.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/ConvolutionInput.h"
#include "lib/Target/CPU/MicroKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class WinogradEmitter {
public:
  WinogradEmitter(KernelEmission &e, WinogradOp op)
      : e(e), b(e.builder), op(op), m{e.builder, op.getLoc()}, acc(getElementTypeOrSelf(op.getResult().getType())),
        element(getElementTypeOrSelf(op.getInput().getType())),
        lanes(e.vectorBits / int64_t(acc.getIntOrFloatBitWidth())),
        points(e.builder, e.kernel, e.args(), lanes, e.shapes),
        vectors(e.schedule<WinogradScheduleAttr>().getColumns() / lanes), vector(VectorType::get({lanes}, acc)) {}

  LogicalResult emit();

private:
  using Row = std::array<Value, 4>;

  void emitTask(Value task);
  void transformInput(Value first, Value count);
  void transformBlock(ValueRange at, Value to, bool border);
  void multiply(Value panel, Value a, Value rows);
  LogicalResult emitResults(Value panel, Value first, Value rows);
  LogicalResult emitVector(ValueRange at, Value firstColumn, int64_t v, Value sums, Value mask);

  void eachBlock(Value first, Value count, function_ref<void(Value i, ValueRange at)> body);
  void eachVector(function_ref<void(Idx at, Value mask)> body);
  /// Position `i` of a block along dimension `d` of the result.
  Value resultAt(int64_t d, Value block, int64_t i);
  /// Position `i` of what a block reads along dimension `d` of the input, and whether there is one.
  std::pair<Value, Value> inputAt(int64_t d, Value block, int64_t i);
  Value add(Value x, Value y) { return arith::AddFOp::create(b, loc(), x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, loc(), x, y); }
  Value sumsPtr() { return m.advance(e.scratch(), m.constant(e.schedule<WinogradScheduleAttr>().getSumsScratch())); }
  Location loc() { return m.loc; }

  KernelEmission &e;
  OpBuilder &b;
  WinogradOp op;
  IndexMath m;
  Type acc, element;
  int64_t lanes;
  PointEmitter points;
  int64_t vectors; // of a panel
  VectorType vector;

  std::optional<BufferOperand> input, weights;
  MicroKernelSpec spec;
  TileHeights heights{1, 1};
  SmallVector<Value> blocks; // images, blocks in a column, blocks in a line
  Value channels, filters, panels, planeBytes;
  bool failedInside = false;
};

LogicalResult WinogradEmitter::emit() {
  auto packed = op.getWeight().getDefiningOp<UnpackOp>();
  if (!packed)
    return op.emitError("the weights of a convolution must be packed");
  input = BufferOperand::get(e.kernel, op.getInput(), e.shapes);
  weights = BufferOperand::get(e.kernel, packed.getSource(), e.shapes);
  if (!input || !weights)
    return op.emitError("input and panels of a convolution must be in buffers");
  if (failed(e.checkColumns(e.schedule<WinogradScheduleAttr>().getColumns(), lanes)))
    return failure();
  int64_t rows = e.schedule<WinogradScheduleAttr>().getRows();
  spec = {acc, acc, acc, lanes, vectors, /*prefetch=*/true};
  heights = tileHeights(1, -1, rows);
  SmallVector<SymExpr> result = e.shapes.dims(op.getResult());
  blocks = {points.expr(result[0]), points.expr(blocksOfWinograd(op, 0, e.shapes)),
            points.expr(blocksOfWinograd(op, 1, e.shapes))};
  channels = points.expr(e.shapes.dims(op.getInput()).back()), filters = points.expr(result[3]);
  panels = m.ceilDiv(filters, m.constant(spec.panel()));
  planeBytes = m.mul(points.expr(e.schedule<WinogradScheduleAttr>().getPlane().getValue()), byteSize(acc));
  emitFor(b, loc(), m.index(e.begin()), m.index(e.end()), m.constant(1), {}, [&](Value task, ValueRange) {
    PointEmitter::Scope scope(points);
    emitTask(task);
    return SmallVector<Value>();
  });
  return failure(failedInside);
}

void WinogradEmitter::emitTask(Value task) {
  Value groups = points.expr(e.schedule<WinogradScheduleAttr>().getPanelGroups().getValue()), one = m.constant(1);
  Value group = m.rem(task, groups), chunk = m.div(task, groups);
  Value count = m.mul(m.mul(blocks[0], blocks[1]), blocks[2]);
  Value tiles = m.max(m.ceilDiv(count, m.constant(e.schedule<WinogradScheduleAttr>().getRows())), one);
  EvenSplit tileSplit(m, count, tiles),
      chunkSplit(m, tiles,
                 m.ceilDiv(tiles, points.expr(e.schedule<WinogradScheduleAttr>().getChunkTiles().getValue())));
  EvenSplit panelSplit(m, panels, groups);
  Value firstTile = chunkSplit.start(m, chunk), endTile = m.add(firstTile, chunkSplit.size(m, chunk));
  Value first = tileSplit.start(m, firstTile);
  transformInput(first, m.sub(tileSplit.start(m, endTile), first));
  Value firstPanel = panelSplit.start(m, group), endPanel = m.add(firstPanel, panelSplit.size(m, group));
  emitFor(b, loc(), firstPanel, endPanel, one, {}, [&](Value panel, ValueRange) {
    PointEmitter::Scope scope(points);
    emitFor(b, loc(), firstTile, endTile, one, {}, [&](Value tile, ValueRange) {
      PointEmitter::Scope inner(points);
      Value start = tileSplit.start(m, tile), rows = tileSplit.size(m, tile);
      multiply(panel, m.advance(sumsPtr(), m.mul(m.mul(m.sub(start, first), channels), byteSize(acc))), rows);
      failedInside |= failed(emitResults(panel, start, rows));
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

/// `body` for blocks from `first` on, with their number from there and their coordinates.
void WinogradEmitter::eachBlock(Value first, Value count, function_ref<void(Value, ValueRange)> body) {
  emitFor(b, loc(), m.constant(0), count, m.constant(1), m.delinearize(first, blocks), [&](Value i, ValueRange at) {
    PointEmitter::Scope scope(points);
    body(i, at);
    return m.next(SmallVector<Value>(at), blocks);
  });
}

/// `body` for each vector of channels; the last one under a mask if it is cut.
void WinogradEmitter::eachVector(function_ref<void(Idx, Value)> body) {
  Value whole = m.mul(m.div(channels, m.constant(lanes)), lanes);
  emitFor(b, loc(), m.constant(0), whole, m.constant(lanes), {}, [&](Value at, ValueRange) {
    PointEmitter::Scope scope(points);
    body(Idx(at, /*lanes=*/true, 1, lanes), {});
    return SmallVector<Value>();
  });
  if (e.shapes.divisible(e.shapes.dims(op.getInput()).back(), lanes))
    return;
  emitIf(b, loc(), m.less(whole, channels), {}, [&] {
    PointEmitter::Scope scope(points);
    body(Idx(whole, /*lanes=*/true, 1, lanes), points.tailMask(m.sub(channels, whole)));
    return SmallVector<Value>();
  });
}

Value WinogradEmitter::resultAt(int64_t d, Value block, int64_t i) {
  Value dilation = m.constant(op.getDilations()[d]);
  Value first = m.add(m.mul(m.mul(m.div(block, dilation), dilation), 2), m.rem(block, dilation));
  return m.add(first, m.mul(dilation, i));
}

std::pair<Value, Value> WinogradEmitter::inputAt(int64_t d, Value block, int64_t i) {
  Value at = m.sub(resultAt(d, block, i), m.constant(op.getLow()[d]));
  Value extent = points.expr(e.shapes.dims(op.getInput())[d + 1]);
  Value inside = arith::AndIOp::create(
      b, loc(), arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::sge, at, m.constant(0)), m.less(at, extent));
  return {at, inside};
}

void WinogradEmitter::transformInput(Value first, Value count) {
  Value to = sumsPtr();
  eachBlock(first, count, [&](Value i, ValueRange at) {
    Value inside = arith::ConstantOp::create(b, loc(), b.getBoolAttr(true));
    for (int64_t d : {0, 1})
      for (int64_t corner : {0, 3})
        inside = arith::AndIOp::create(b, loc(), inside, inputAt(d, at[d + 1], corner).second);
    Value own = m.advance(to, m.mul(m.mul(i, channels), byteSize(acc)));
    auto either = scf::IfOp::create(b, loc(), inside, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    for (bool border : {false, true}) {
      b.setInsertionPointToStart(border ? &either.getElseRegion().front() : &either.getThenRegion().front());
      PointEmitter::Scope scope(points);
      transformBlock(at, own, border);
    }
  });
}

/// B^T d B for all channels of a block. At the `border` some of its pixels count as zero.
void WinogradEmitter::transformBlock(ValueRange at, Value to, bool border) {
  ArrayRef<SymExpr> strides = input->layout.strides;
  Value image = m.add(points.expr(input->layout.offset), m.mul(at[0], points.expr(strides[0])));
  Value offsets[4][4], insides[4][4];
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j) {
      auto [y, rowInside] = inputAt(0, at[1], i);
      auto [x, columnInside] = inputAt(1, at[2], j);
      offsets[i][j] = m.add(image, m.add(m.mul(y, points.expr(strides[1])), m.mul(x, points.expr(strides[2]))));
      insides[i][j] = arith::AndIOp::create(b, loc(), rowInside, columnInside);
    }
  Value zero = points.constant(cast<TypedAttr>(b.getZeroAttr(vector)));
  eachVector([&](Idx channel, Value mask) {
    auto pixel = [&](int64_t i, int64_t j) -> Value {
      Value own = mask;
      if (border) {
        own = points.splat(insides[i][j]);
        if (mask)
          own = arith::AndIOp::create(b, loc(), own, mask);
      }
      Idx where = points.addIdx(points.mulIdx(channel, strides[3]), points.uniform(offsets[i][j]));
      Value v = points.load(points.operandPtr(input->argument), where, element, own);
      if (element != acc)
        v = arith::ExtFOp::create(b, loc(), vector, v);
      return border ? arith::SelectOp::create(b, loc(), own, v, zero).getResult() : v;
    };
    auto combine = [&](const Row &d) -> Row {
      return {sub(d[0], d[2]), add(d[1], d[2]), sub(d[2], d[1]), sub(d[1], d[3])};
    };
    std::array<Row, 4> columns; // of B^T d
    for (int64_t j = 0; j < 4; ++j)
      columns[j] = combine({pixel(0, j), pixel(1, j), pixel(2, j), pixel(3, j)});
    for (int64_t i = 0; i < 4; ++i)
      for (auto [j, v] : llvm::enumerate(combine({columns[0][i], columns[1][i], columns[2][i], columns[3][i]})))
        points.store(m.advance(to, m.mul(planeBytes, i * 4 + int64_t(j))), channel, v, mask);
  });
}

/// The 16 products of a tile of blocks, whose sums are at `a`, with a panel of filters.
void WinogradEmitter::multiply(Value panel, Value a, Value rows) {
  int64_t panelRow = spec.panel() * byteSize(acc), tileBytes = e.schedule<WinogradScheduleAttr>().getRows() * panelRow;
  Value panelBytes = m.mul(channels, panelRow);
  Value all =
      m.advance(points.operandPtr(weights->argument), m.mul(points.expr(weights->layout.offset), byteSize(acc)));
  Value base = m.advance(all, m.mul(panel, panelBytes));
  Value apart = m.mul(panels, panelBytes), end = m.advance(all, m.mul(apart, 16));
  emitFor(b, loc(), m.constant(0), m.constant(16), m.constant(1), {}, [&](Value plane, ValueRange) {
    PointEmitter::Scope scope(points);
    Value right = m.advance(base, m.mul(plane, apart));
    // The next plane's panel comes while this one is read.
    Prefetch next{m.advance(right, apart), m.i64(m.constant(panelRow)), end};
    callMicroKernel(b, loc(), spec, heights, m.i64(rows), m.advance(a, m.mul(plane, planeBytes)),
                    m.i64(m.mul(channels, byteSize(acc))), m.i64(m.constant(byteSize(acc))), right, m.i64(channels),
                    m.advance(e.scratch(), m.mul(plane, tileBytes)),
                    arith::ConstantOp::create(b, loc(), b.getBoolAttr(false)), next);
    return SmallVector<Value>();
  });
}

LogicalResult WinogradEmitter::emitResults(Value panel, Value first, Value rows) {
  int64_t panelColumns = spec.panel();
  Value firstColumn = m.mul(panel, panelColumns);
  bool ok = true;
  eachBlock(first, rows, [&](Value r, ValueRange at) {
    Value sums = m.advance(e.scratch(), m.mul(r, panelColumns * byteSize(acc)));
    for (int64_t v = 0; v < vectors; ++v) {
      if (e.shapes.divisible(e.shapes.dims(op.getResult())[3], panelColumns)) {
        ok &= succeeded(emitVector(at, firstColumn, v, sums, {}));
        continue;
      }
      Value left = m.sub(filters, m.add(firstColumn, m.constant(v * lanes)));
      emitIf(b, loc(), m.less(m.constant(0), left), {}, [&] {
        PointEmitter::Scope scope(points);
        ok &= succeeded(emitVector(at, firstColumn, v, sums, points.tailMask(left)));
        return SmallVector<Value>();
      });
    }
  });
  return success(ok);
}

/// The 2 x 2 results of a block for one vector of filters: A^T m A, and what follows it.
LogicalResult WinogradEmitter::emitVector(ValueRange at, Value firstColumn, int64_t v, Value sums, Value mask) {
  int64_t tileBytes = e.schedule<WinogradScheduleAttr>().getRows() * spec.panel() * byteSize(acc);
  auto product = [&](int64_t i, int64_t j) -> Value {
    Value from = m.advance(sums, m.constant((i * 4 + j) * tileBytes + v * lanes * byteSize(acc)));
    return LLVM::LoadOp::create(b, loc(), vector, from, byteSize(acc));
  };
  auto combine = [&](const Row &r) -> std::array<Value, 2> {
    return {add(add(r[0], r[1]), r[2]), sub(sub(r[1], r[2]), r[3])};
  };
  std::array<std::array<Value, 2>, 4> columns; // of A^T m
  for (int64_t j = 0; j < 4; ++j)
    columns[j] = combine({product(0, j), product(1, j), product(2, j), product(3, j)});
  SmallVector<SymExpr> dims = e.shapes.dims(op.getResult());
  Idx channel(m.add(firstColumn, m.constant(v * lanes)), /*lanes=*/true, 1, lanes);
  bool ok = true;
  for (int64_t i : {0, 1}) {
    std::array<Value, 2> line = combine({columns[0][i], columns[1][i], columns[2][i], columns[3][i]});
    for (int64_t j : {0, 1}) {
      Value y = resultAt(0, at[1], i), x = resultAt(1, at[2], j);
      auto store = [&] {
        PointEmitter::Scope scope(points);
        ok &= succeeded(storeConvolution(e, points, op.getResult(),
                                         {points.uniform(at[0]), points.uniform(y), points.uniform(x), channel}, mask,
                                         [&](ArrayRef<Idx>, Value) -> Value { return line[j]; }));
        return SmallVector<Value>();
      };
      // Blocks at the ends may have a single line or column, or, with dilated taps, none.
      Value inside = arith::AndIOp::create(b, loc(), m.less(y, points.expr(dims[1])), m.less(x, points.expr(dims[2])));
      if (i == 0 && j == 0 && llvm::all_of(op.getDilations(), [](int64_t dilation) { return dilation == 1; }))
        store();
      else
        emitIf(b, loc(), inside, {}, store);
    }
  }
  return success(ok);
}
} // namespace

LogicalResult disc::emitWinograd(KernelEmission &e, WinogradOp op) { return WinogradEmitter(e, op).emit(); }
