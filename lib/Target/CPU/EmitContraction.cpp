//===- EmitContraction.cpp - products with epilogues ----------------------===//
//
//   disc_plan.kernel_func contraction @k attributes {schedule = {rows = 14, columns = 32, ...}, ...} {
//   ^bb0(%x: tensor<?x384xf32>, %p: tensor<48x384x32xf32>, %bias: tensor<1536xf32>):
//     %w = disc_tensor.unpack %p ... : tensor<48x384x32xf32> -> tensor<1536x384xf32>
//     %y = linalg.generic ... x * w summed ...
//     %z = linalg.generic ... y + bias ...
//     disc_plan.yield %z : tensor<?x1536xf32>
//   }
// becomes
//   func.func @k(%args, %begin, %end, %scratch) {
//     for each task: its batch, chunk of rows and panel of columns
//       for each block of k (usually one)
//         for each tile of the chunk: heights differ by at most one
//           llvm.call @disc_product_f32_f32_f32_x32_r1to14(...)          // sums go to a tile in scratch
//           for each row of the tile, each vector in it: the epilogue, evaluated at points, and its stores
//   }
//
// The left operand is read in place if one stride leads from row to row and another along k; if not, or if its rows
// would fall in the same cache sets, a chunk of it is copied to scratch. A right operand that is not packed weights is
// packed to scratch a panel at a time. What was copied for one task serves the next ones that need the same.
//
// Test: test/lit/CPU/contraction.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/CPU/MicroKernel.h"
#include "lib/Target/CPU/PackPanel.h"
#include "lib/Target/CPU/TileLoops.h"
#include "lib/Transforms/Schedule/ContractionInfo.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::disc;

namespace {

/// Where a task works.
struct Task {
  SmallVector<Value> batch; // coordinates
  Value batchLinear, firstTile, endTile, firstRow, panel, firstColumn;
};

class ContractionEmitter {
public:
  ContractionEmitter(KernelEmission &e, ContractionInfo info)
      : e(e), b(e.builder), info(std::move(info)), m{e.builder, e.kernel.getLoc()},
        spec{this->info.lhsElement, this->info.rhsElement, this->info.accumulator,
             e.vectorBits / int64_t(this->info.accumulator.getIntOrFloatBitWidth()), 0},
        points(e.builder, e.kernel, e.args(), spec.lanes, e.shapes) {
    spec.vectors = e.schedule("columns", 2 * spec.lanes) / spec.lanes;
    tileRows = e.schedule("rows", 1);
  }

  LogicalResult emit();

private:
  Location loc() { return m.loc; }
  Value size(ArrayRef<unsigned> dims) { return points.expr(info.size(dims)); }
  SmallVector<Value> sizes(ArrayRef<unsigned> dims) {
    SmallVector<Value> out;
    for (unsigned d : dims)
      out.push_back(points.expr(info.sizes[d]));
    return out;
  }
  SymExpr scheduled(StringRef name) { return e.kernel.getScheduleAttr().getAs<ExprAttr>(name).getValue(); }
  Value lhsOperand() { return info.op.getDpsInputOperand(info.lhs)->get(); }
  Value rhsOperand() { return info.op.getDpsInputOperand(info.rhs)->get(); }

  LogicalResult checkInit();
  void chooseLhs();
  SmallVector<Value> emitTask(Value task, ValueRange carried);
  Task locate(Value task, Value &chunk);
  Value packLhs(const Task &task);
  void emitTiles(const Task &task, Value lhs, Value rhs);
  LogicalResult emitEpilogue(const Task &task, Value firstRow, Value rows, Value sums);
  LogicalResult emitVector(const Task &task, ArrayRef<Value> rowCoordinates, int64_t vector, Value sumRow, Value mask);
  SmallVector<Idx> iteration(const Task &task, ArrayRef<Value> rowCoordinates, ArrayRef<Idx> columns,
                             ArrayRef<Idx> depth);
  SmallVector<Idx> split(Idx linear, ArrayRef<unsigned> dims);

  KernelEmission &e;
  OpBuilder &b;
  ContractionInfo info;
  IndexMath m;
  MicroKernelSpec spec;
  PointEmitter points;
  int64_t tileRows;

  /// How the left operand is read in place; nothing if it is copied.
  std::optional<StridedOperand> lhsInPlace;
  SymExpr lhsRowStride, lhsDepthStride; // elements, of what the product reads
  Value rowCount, columnCount, depthCount, tileCount, chunkCount, panelCount;
  std::optional<EvenSplit> rowSplit;
  TileHeights heights{1, 1};
  bool failedInside = false;
};

/// The sum must start from zero: it starts in registers.
LogicalResult ContractionEmitter::checkInit() {
  Value init = info.op.getDpsInitOperand(0)->get();
  auto fill = init.getDefiningOp<linalg::FillOp>();
  Attribute value;
  if (fill && matchPattern(fill.getInputs()[0], m_Constant(&value)) &&
      (matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) || matchPattern(fill.getInputs()[0], m_Zero())))
    return success();
  return info.op.emitError("a contraction must start from zeros");
}

void ContractionEmitter::chooseLhs() {
  auto strided = StridedOperand::get(e.kernel, lhsOperand(), info.lhsMap(), e.shapes);
  lhsRowStride = SymExpr::ceilDiv(info.size(info.depth), SymExpr(64)) * SymExpr(64) + SymExpr(16);
  lhsDepthStride = SymExpr(1);
  if (!strided)
    return;
  auto row = strided->collapse(info.rows, info.sizes, e.shapes);
  auto depth = strided->collapse(info.depth, info.sizes, e.shapes);
  if (!row || !depth)
    return;
  // Rows a multiple of 4 KiB apart share one set of the first-level cache, which holds eight lines.
  int64_t rowBytes = byteSize(info.lhsElement);
  if (heights.max > 8 && row->isConstant() && row->constant() * rowBytes % 4096 == 0 && !row->isConstant(0))
    return;
  lhsInPlace = strided;
  lhsRowStride = *row;
  lhsDepthStride = *depth;
}

LogicalResult ContractionEmitter::emit() {
  if (failed(checkInit()))
    return failure();
  ShapeAnalysis::Range rows = e.shapes.range(info.size(info.rows));
  heights = tileHeights(rows.min.value_or(1), rows.max.value_or(-1), tileRows);
  chooseLhs();

  rowCount = size(info.rows), columnCount = size(info.columns), depthCount = size(info.depth);
  tileCount = m.max(m.ceilDiv(rowCount, m.constant(tileRows)), m.constant(1));
  chunkCount = m.ceilDiv(tileCount, points.expr(scheduled("row_tiles")));
  panelCount = m.ceilDiv(columnCount, m.constant(spec.panel()));
  rowSplit.emplace(m, rowCount, tileCount);

  Value none = m.constant(-1);
  emitFor(b, loc(), m.index(e.begin()), m.index(e.end()), m.constant(1), {none, none},
          [&](Value task, ValueRange carried) { return emitTask(task, carried); });
  return failure(failedInside);
}

/// Neighbouring tasks share the operand that must be copied: the right one, if it is not packed yet.
Task ContractionEmitter::locate(Value task, Value &chunk) {
  Task t;
  Value inner = info.panels ? panelCount : chunkCount, outer = info.panels ? chunkCount : panelCount;
  Value low = m.rem(task, inner), rest = m.div(task, inner);
  Value high = rest;
  t.batchLinear = m.constant(0);
  if (!info.batch.empty()) {
    high = m.rem(rest, outer);
    t.batchLinear = m.div(rest, outer);
    t.batch = m.delinearize(t.batchLinear, sizes(info.batch));
  }
  chunk = info.panels ? high : low;
  t.panel = info.panels ? low : high;
  t.firstColumn = m.mul(t.panel, spec.panel());
  EvenSplit tiles(m, tileCount, chunkCount);
  t.firstTile = tiles.start(m, chunk);
  t.endTile = m.add(t.firstTile, tiles.size(m, chunk));
  t.firstRow = rowSplit->start(m, t.firstTile);
  return t;
}

SmallVector<Value> ContractionEmitter::emitTask(Value taskIndex, ValueRange carried) {
  PointEmitter::Scope scope(points);
  Value chunk;
  Task task = locate(taskIndex, chunk);
  SmallVector<Value> next(carried);

  Value lhs;
  if (lhsInPlace) {
    SmallVector<unsigned> dims(info.batch);
    Value offset = points.expr(lhsInPlace->offset);
    for (auto [d, coordinate] : llvm::zip_equal(dims, task.batch))
      offset = m.add(offset, m.mul(coordinate, points.expr(lhsInPlace->strides[d])));
    offset = m.add(offset, m.mul(task.firstRow, points.expr(lhsRowStride)));
    lhs = m.advance(points.operandPtr(lhsInPlace->argument), m.mul(offset, byteSize(info.lhsElement)));
  } else {
    lhs = m.advance(e.scratch(), points.expr(scheduled("lhs_scratch")));
    Value key = m.add(m.mul(task.batchLinear, chunkCount), chunk);
    auto copy = scf::IfOp::create(b, loc(), arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ne, key, carried[0]));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&copy.getThenRegion().front());
    PointEmitter::Scope inner(points);
    if (!packLhs(task))
      failedInside = true;
    next[0] = key;
  }

  Value rhs, key = m.add(m.mul(task.batchLinear, panelCount), task.panel);
  Value panelBytes = m.mul(depthCount, spec.panel() * byteSize(spec.b));
  if (info.panels) {
    auto buffer = BufferOperand::get(e.kernel, info.panels.getSource(), e.shapes);
    if (!buffer) {
      info.panels.emitError("packed panels are not an operand of the kernel");
      failedInside = true;
      return next;
    }
    Value offset = m.mul(points.expr(buffer->layout.offset), byteSize(spec.b));
    rhs = m.advance(points.operandPtr(buffer->argument), m.add(offset, m.mul(key, panelBytes)));
  } else {
    rhs = m.advance(e.scratch(), points.expr(scheduled("rhs_scratch")));
    auto copy = scf::IfOp::create(b, loc(), arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ne, key, carried[1]));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&copy.getThenRegion().front());
    PointEmitter::Scope inner(points);
    SmallVector<Value> noRows(info.rows.size(), m.constant(0));
    PanelSource source{rhsOperand(), [&](Idx column, Idx depth) {
                         SmallVector<Idx> iters = iteration(task, noRows, split(column, info.columns),
                                                            split(depth, info.depth)),
                                          point;
                         for (AffineExpr r : info.rhsMap().getResults())
                           point.push_back(points.affine(r, iters));
                         return point;
                       }};
    if (auto strided = StridedOperand::get(e.kernel, rhsOperand(), info.rhsMap(), e.shapes))
      source.depthContiguous = !info.depth.empty() && strided->strides[info.depth.back()].isConstant(1);
    if (failed(emitPanel(points, m, source, spec.b, task.firstColumn, columnCount, depthCount, spec.vectors,
                         e.shapes.divisible(info.size(info.columns), spec.panel()), rhs)))
      failedInside = true;
    next[1] = key;
  }
  emitTiles(task, lhs, rhs);
  return next;
}

/// Coordinates over `dims` of a position in their row-major order.
SmallVector<Idx> ContractionEmitter::split(Idx linear, ArrayRef<unsigned> dims) {
  SmallVector<Idx> out(dims.size());
  for (size_t i = dims.size(); i-- > 1;)
    std::tie(linear, out[i]) = points.divModIdx(linear, info.sizes[dims[i]]);
  if (!dims.empty())
    out[0] = linear;
  return out;
}

SmallVector<Idx> ContractionEmitter::iteration(const Task &task, ArrayRef<Value> rowCoordinates, ArrayRef<Idx> columns,
                                               ArrayRef<Idx> depth) {
  SmallVector<Idx> iters(info.sizes.size(), points.uniform(int64_t(0)));
  for (auto [d, v] : llvm::zip_equal(info.batch, task.batch))
    iters[d] = points.uniform(v);
  for (auto [d, v] : llvm::zip_equal(info.rows, rowCoordinates))
    iters[d] = points.uniform(v);
  for (auto [d, idx] : llvm::zip_equal(info.columns, columns))
    iters[d] = idx;
  for (auto [d, idx] : llvm::zip_equal(info.depth, depth))
    iters[d] = idx;
  return iters;
}

/// Copies the rows of the task's chunk to scratch, row-major. Null if an element cannot be evaluated.
Value ContractionEmitter::packLhs(const Task &task) {
  Value base = m.advance(e.scratch(), points.expr(scheduled("lhs_scratch")));
  Value endRow = rowSplit->start(m, task.endTile);
  SmallVector<Value> rowSizes = sizes(info.rows);
  bool ok = true;
  Value zero = m.constant(0), step = m.constant(spec.lanes);
  Value whole = m.mul(m.div(depthCount, step), spec.lanes);
  auto copyVector = [&](ArrayRef<Value> row, Value r, Value k, Value mask) {
    PointEmitter::Scope scope(points);
    SmallVector<Idx> depth = split(Idx(k, /*lanes=*/true, 1, spec.lanes), info.depth);
    SmallVector<Idx> columns(info.columns.size(), points.uniform(zero));
    SmallVector<Idx> iters = iteration(task, row, columns, depth), point;
    for (AffineExpr x : info.lhsMap().getResults())
      point.push_back(points.affine(x, iters));
    Value v = points.eval(lhsOperand(), point, mask);
    if (!v) {
      ok = false;
      return;
    }
    Value position = m.add(m.mul(m.sub(r, task.firstRow), points.expr(lhsRowStride)), k);
    points.store(base, Idx(position, /*lanes=*/true), points.splat(v), mask);
  };
  emitFor(b, loc(), task.firstRow, endRow, m.constant(1), m.delinearize(task.firstRow, rowSizes),
          [&](Value r, ValueRange row) {
            PointEmitter::Scope scope(points);
            SmallVector<Value> coordinates(row);
            emitFor(b, loc(), zero, whole, step, {}, [&](Value k, ValueRange) {
              PointEmitter::Scope scope(points);
              copyVector(coordinates, r, k, {});
              return SmallVector<Value>();
            });
            ShapeAnalysis &shapes = e.shapes;
            if (!shapes.divisible(info.size(info.depth), spec.lanes)) {
              auto tail = scf::IfOp::create(b, loc(), m.less(whole, depthCount));
              OpBuilder::InsertionGuard guard(b);
              b.setInsertionPointToStart(&tail.getThenRegion().front());
              PointEmitter::Scope scope(points);
              copyVector(coordinates, r, whole, points.tailMask(m.sub(depthCount, whole)));
            }
            return m.next(coordinates, rowSizes);
          });
  return ok ? base : Value();
}

void ContractionEmitter::emitTiles(const Task &task, Value lhs, Value rhs) {
  int64_t kBlock = e.schedule("k_block", 1 << 30);
  ShapeAnalysis::Range depth = e.shapes.range(info.size(info.depth));
  bool blocked = !depth.max || *depth.max > kBlock;
  Value rowBytes = m.mul(points.expr(lhsRowStride), byteSize(spec.a));
  Value depthBytes = m.mul(points.expr(lhsDepthStride), byteSize(spec.a));
  Value zero = m.constant(0), one = m.constant(1);

  // One pass over the tiles of the chunk with values [from, from + count) of k.
  auto pass = [&](Value from, Value count, Value accumulate, Value last) {
    emitFor(b, loc(), task.firstTile, task.endTile, one, {}, [&](Value tile, ValueRange) {
      PointEmitter::Scope scope(points);
      Value row = rowSplit->start(m, tile), rows = rowSplit->size(m, tile), inChunk = m.sub(row, task.firstRow);
      Value a = m.advance(lhs, m.add(m.mul(inChunk, rowBytes), m.mul(from, depthBytes)));
      Value panel = m.advance(rhs, m.mul(from, spec.panel() * byteSize(spec.b)));
      // With one block of k a tile is finished at once: all use the same memory, which stays in the nearest cache.
      Value sums = e.scratch();
      if (blocked) {
        Value several = m.less(m.constant(kBlock), depthCount);
        Value kept = m.mul(inChunk, spec.panel() * byteSize(spec.acc));
        sums = m.advance(sums, arith::SelectOp::create(b, loc(), several, kept, zero));
      }
      callMicroKernel(b, loc(), spec, heights, m.i64(rows), a, m.i64(rowBytes), m.i64(depthBytes), panel, m.i64(count),
                      sums, accumulate);
      auto epilogue = [&] { failedInside |= failed(emitEpilogue(task, row, rows, sums)); };
      if (!last) {
        epilogue();
      } else {
        auto ifLast = scf::IfOp::create(b, loc(), last);
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToStart(&ifLast.getThenRegion().front());
        PointEmitter::Scope inner(points);
        epilogue();
      }
      return SmallVector<Value>();
    });
  };
  if (!blocked) {
    pass(zero, depthCount, arith::ConstantOp::create(b, loc(), b.getBoolAttr(false)), {});
    return;
  }
  // Blocks of equal size; an empty sum is one empty block.
  Value blocks = m.max(m.ceilDiv(depthCount, m.constant(kBlock)), one);
  EvenSplit blockSplit(m, depthCount, blocks);
  emitFor(b, loc(), zero, blocks, one, {}, [&](Value block, ValueRange) {
    PointEmitter::Scope scope(points);
    pass(blockSplit.start(m, block), blockSplit.size(m, block), m.less(zero, block),
         m.equal(m.add(block, one), blocks));
    return SmallVector<Value>();
  });
}

LogicalResult ContractionEmitter::emitEpilogue(const Task &task, Value firstRow, Value rows, Value sums) {
  SmallVector<Value> rowSizes = sizes(info.rows);
  bool ok = true;
  Value rowBytes = m.constant(spec.panel() * byteSize(spec.acc));
  // All rows of the tile, with the columns of whole panels or of the last, cut one.
  auto tileRowsLoop = [&](bool cut) {
    emitFor(b, loc(), m.constant(0), rows, m.constant(1), m.delinearize(firstRow, rowSizes),
            [&](Value r, ValueRange row) {
              PointEmitter::Scope scope(points);
              SmallVector<Value> coordinates(row);
              Value sumRow = m.advance(sums, m.mul(r, rowBytes));
              for (int64_t v = 0; v < spec.vectors; ++v) {
                if (!cut) {
                  ok &= succeeded(emitVector(task, coordinates, v, sumRow, {}));
                  continue;
                }
                Value left = m.sub(columnCount, m.add(task.firstColumn, m.constant(v * spec.lanes)));
                auto some = scf::IfOp::create(b, loc(), m.less(m.constant(0), left));
                OpBuilder::InsertionGuard guard(b);
                b.setInsertionPointToStart(&some.getThenRegion().front());
                PointEmitter::Scope inner(points);
                ok &= succeeded(emitVector(task, coordinates, v, sumRow, points.tailMask(left)));
              }
              return m.next(coordinates, rowSizes);
            });
  };
  if (info.columns.empty()) {
    tileRowsLoop(false);
  } else if (e.shapes.divisible(info.size(info.columns), spec.panel())) {
    tileRowsLoop(false);
  } else {
    Value whole = m.less(m.add(task.firstColumn, m.constant(spec.panel() - 1)), columnCount);
    auto either = scf::IfOp::create(b, loc(), whole, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    for (bool cut : {false, true}) {
      b.setInsertionPointToStart(cut ? &either.getElseRegion().front() : &either.getThenRegion().front());
      PointEmitter::Scope inner(points);
      tileRowsLoop(cut);
    }
  }
  return success(ok);
}

/// The results at one row and one vector of columns, from the sums at `sumRow`.
LogicalResult ContractionEmitter::emitVector(const Task &task, ArrayRef<Value> rowCoordinates, int64_t vector,
                                             Value sumRow, Value mask) {
  bool scalar = info.columns.empty();
  if (scalar && vector > 0)
    return success();
  PointEmitter::Scope scope(points);
  Value first = m.add(task.firstColumn, m.constant(vector * spec.lanes));
  SmallVector<Idx> columns = split(Idx(first, /*lanes=*/true, 1, spec.lanes), info.columns);
  SmallVector<Idx> depth(info.depth.size(), points.uniform(int64_t(0)));
  SmallVector<Idx> iters = iteration(task, rowCoordinates, columns, depth), point;
  for (AffineExpr x : info.resultMap().getResults())
    point.push_back(points.affine(x, iters));

  Value sum = info.op.getResult(0);
  points.bind(sum, [&](ArrayRef<Idx>, Value) -> Value {
    Type type = scalar ? spec.acc : VectorType::get({spec.lanes}, spec.acc);
    Value at = m.advance(sumRow, m.constant(vector * spec.lanes * byteSize(spec.acc)));
    return LLVM::LoadOp::create(b, loc(), type, at, byteSize(spec.acc));
  });
  for (auto [i, yielded] : llvm::enumerate(e.kernel.getYield().getValues())) {
    FailureOr<SmallVector<Idx>> at = followResult(points, yielded, sum, point);
    if (failed(at))
      return e.kernel.emitError("result ") << i << " of a contraction kernel is not over the contraction's domain";
    Value v = points.eval(yielded, *at, mask);
    if (!v || failed(points.store(i, *at, v, mask)))
      return failure();
  }
  points.unbind(sum);
  return success();
}

} // namespace

LogicalResult disc::emitContraction(KernelEmission &e) {
  FailureOr<ContractionInfo> info = ContractionInfo::get(e.kernel, e.kernel.getBody().front(), e.shapes);
  if (failed(info))
    return failure();
  return ContractionEmitter(e, *info).emit();
}
