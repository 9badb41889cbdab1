//===- EmitContraction.cpp - products with epilogues ----------------------===//
//
//   disc_plan.kernel_func contraction @k attributes {schedule = {rows = 14, columns = [32], ...}, ...} {
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
// would fall in the same cache sets, a chunk of it is copied to scratch. One with contiguous rows, the transpose of a
// row-major matrix, is copied to panels of a tile's rows for each value of k, unless k is short: in place, a tile reads
// a piece of a line for each value of k, and lines that lie a power of two apart evict each other. A right operand that
// is not packed weights is packed to scratch a panel at a time. What was copied for one task serves the next ones that
// need the same.
//
// A kernel of several parts (see ContractionPart) goes to the code of the part that a task's panel belongs to. A part
// of several products multiplies one tile by a panel of each before its epilogue.
//
// Test: test/lit/CPU/contraction.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/ContractionEmitter.h"
#include "lib/Target/CPU/TileProduct.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include <numeric>

using namespace mlir;
using namespace mlir::disc;
using namespace mlir::disc::contraction;

/// The sum must start from zero: it starts in registers.
LogicalResult ContractionEmitter::checkInit(ContractionInfo &product) {
  Value init = product.op.getDpsInitOperand(0)->get();
  auto fill = init.getDefiningOp<linalg::FillOp>();
  Attribute value;
  if (fill && matchPattern(fill.getInputs()[0], m_Constant(&value)) &&
      (matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) || matchPattern(fill.getInputs()[0], m_Zero())))
    return success();
  return product.op.emitError("a contraction must start from zeros");
}

LogicalResult ContractionEmitter::emit() {
  for (Part &part : parts)
    for (Product &product : part.products)
      if (failed(checkInit(product.info)))
        return failure();
  ShapeAnalysis::Range rows = e.shapes.range(info.size(info.rows));
  heights = tileHeights(rows.min.value_or(1), rows.max.value_or(-1), tileRows);
  chooseLhs();

  rowCount = size(info.rows), depthCount = size(info.depth);
  tileCount = m.max(m.ceilDiv(rowCount, m.constant(tileRows)), m.constant(1));
  chunkCount = m.ceilDiv(tileCount, points.expr(schedule.getRowTiles().getValue()));
  rowSplit.emplace(m, rowCount, tileCount);
  int64_t bytes = byteSize(info.lhsRead());
  lhsRowBytes = m.mul(points.expr(lhsRowStride), bytes);
  lhsDepthBytes = m.mul(points.expr(lhsDepthStride), bytes);
  if (lhsPanel && lhsInPlace) {
    copiesPanels = m.less(m.constant(shortDepth), depthCount);
    lhsDepthBytes = select(copiesPanels, m.constant(lhsPanel * bytes), lhsDepthBytes);
  } else if (lhsPanel) {
    lhsRowBytes = m.constant(bytes);
    lhsDepthBytes = m.constant(lhsPanel * bytes);
  }
  if (lhsPanel)
    lhsTileBytes = m.mul(m.add(m.mul(depthCount, lhsPanel), m.constant(lanes)), bytes);
  panelCount = m.constant(0);
  for (Part &part : parts) {
    part.columnCount = points.expr(part.info().size(part.info().columns));
    part.panelCount = m.ceilDiv(part.columnCount, m.constant(part.vectors * lanes));
    panelCount = m.add(panelCount, part.panelCount);
  }
  // Copying rows again for each panel costs as much for a column as copying a panel again for each chunk does for a
  // row.
  if (!info.panels && (lhsPanel || !lhsInPlace)) {
    int64_t columns = 0;
    for (const Part &part : parts)
      columns = std::max<int64_t>(columns, part.vectors * lanes * int64_t(part.products.size()));
    keepsChunk = m.less(m.constant(columns), m.mul(points.expr(schedule.getRowTiles().getValue()), tileRows));
    if (copiesPanels)
      keepsChunk = arith::AndIOp::create(b, loc(), keepsChunk, copiesPanels);
  }

  bool tiles = llvm::any_of(parts, [](const Part &part) {
    return llvm::any_of(part.products,
                        [](const Product &product) { return product.spec.tiles || product.floats.tiles; });
  });
  if (tiles)
    tileShape = openTiles(b, loc());
  Value none = m.constant(-1);
  emitFor(b, loc(), m.index(e.begin()), m.index(e.end()), m.constant(1), {none, none},
          [&](Value task, ValueRange carried) { return emitTask(task, carried); });
  if (tiles)
    closeTiles(b, loc());
  return failure(failedInside);
}

/// Neighbouring tasks share the operand that must be copied: the right one, if it is not packed yet. If both are
/// copied, that of which more would be copied again.
Task ContractionEmitter::locate(Value task) {
  Task t;
  auto either = [&](Value ifChunk, Value ifPanel) {
    return keepsChunk ? select(keepsChunk, ifChunk, ifPanel) : info.panels ? ifChunk : ifPanel;
  };
  Value inner = either(panelCount, chunkCount), outer = either(chunkCount, panelCount);
  Value low = m.rem(task, inner), rest = m.div(task, inner);
  Value high = rest;
  t.batchLinear = m.constant(0);
  if (!info.batch.empty()) {
    high = m.rem(rest, outer);
    t.batchLinear = m.div(rest, outer);
    t.batch = m.delinearize(t.batchLinear, sizes(info.batch));
  }
  t.chunk = either(high, low);
  t.panel = either(low, high);
  EvenSplit tiles(m, tileCount, chunkCount);
  t.firstTile = tiles.start(m, t.chunk);
  t.endTile = m.add(t.firstTile, tiles.size(m, t.chunk));
  t.firstRow = rowSplit->start(m, t.firstTile);
  return t;
}

SmallVector<Value> ContractionEmitter::emitTask(Value taskIndex, ValueRange carried) {
  PointEmitter::Scope scope(points);
  Task task = locate(taskIndex);
  Value lhsKey = carried[0];
  Value lhs = placeLhs(task, lhsKey);
  SmallVector<Value> keys = emitPart(0, task, m.constant(0), lhs, carried[1]);
  return {lhsKey, keys.front()};
}

/// The task's work if it is of part `index` or of a later one; `before` panels belong to those before.
SmallVector<Value> ContractionEmitter::emitPart(size_t index, Task task, Value before, Value lhs, Value rhsKey) {
  Part &part = parts[index];
  auto own = [&] {
    PointEmitter::Scope scope(points);
    task.ownPanel = m.sub(task.panel, before);
    task.firstColumn = m.mul(task.ownPanel, part.vectors * lanes);
    Value key = rhsKey;
    SmallVector<Panel> rhs = placeRhs(part, task, lhs, key);
    if (!failedInside)
      emitTiles(part, task, lhs, rhs);
    return SmallVector<Value>{key};
  };
  if (index + 1 == parts.size())
    return own();
  Value end = m.add(before, part.panelCount);
  auto either = scf::IfOp::create(b, loc(), TypeRange{rhsKey.getType()}, m.less(task.panel, end), true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&either.getThenRegion().front());
  scf::YieldOp::create(b, loc(), own());
  b.setInsertionPointToStart(&either.getElseRegion().front());
  scf::YieldOp::create(b, loc(), emitPart(index + 1, task, end, lhs, rhsKey));
  return SmallVector<Value>(either.getResults());
}

/// Coordinates over `dims` of a position in their row-major order.
SmallVector<Idx> ContractionEmitter::split(ContractionInfo &product, Idx linear, ArrayRef<unsigned> dims) {
  SmallVector<Idx> out(dims.size());
  for (size_t i = dims.size(); i-- > 1;)
    std::tie(linear, out[i]) = points.divModIdx(linear, product.sizes[dims[i]]);
  if (!dims.empty())
    out[0] = linear;
  return out;
}

SmallVector<Idx> ContractionEmitter::iteration(ContractionInfo &product, const Task &task,
                                               ArrayRef<Value> rowCoordinates, ArrayRef<Idx> columns,
                                               ArrayRef<Idx> depth) {
  SmallVector<Idx> iters(product.sizes.size(), points.uniform(int64_t(0)));
  for (auto [d, v] : llvm::zip_equal(product.batch, task.batch))
    iters[d] = points.uniform(v);
  for (auto [d, v] : llvm::zip_equal(product.rows, rowCoordinates))
    iters[d] = points.uniform(v);
  for (auto [d, idx] : llvm::zip_equal(product.columns, columns))
    iters[d] = idx;
  for (auto [d, idx] : llvm::zip_equal(product.depth, depth))
    iters[d] = idx;
  return iters;
}

void ContractionEmitter::emitTiles(Part &part, const Task &task, Value lhs, ArrayRef<Panel> rhs) {
  int64_t kBlock = schedule.getKBlock();
  ShapeAnalysis::Range depth = e.shapes.range(info.size(info.depth));
  bool blocked = !depth.max || *depth.max > kBlock;
  // The products step through k by one value, or by two; a block of k is a number of steps of each, and of groups with
  // scales of their own.
  int64_t unit = 1;
  for (const Product &product : part.products) {
    unit = std::lcm(unit, std::lcm(product.spec.side(), product.floats.side()));
    if (product.groups > 1)
      unit = std::lcm(unit, *e.shapes.range(info.size(info.depth)).max / product.groups);
  }
  // Only what is zero past the end has a part of a unit there.
  Value units = m.ceilDiv(depthCount, m.constant(unit));
  Value zero = m.constant(0), one = m.constant(1);
  int64_t sumRowBytes = part.vectors * lanes * byteSize(acc);
  // With one block of k a tile is finished at once: all use the same memory, which stays in the nearest cache.
  Value sumsBytes = m.constant(tileRows * sumRowBytes);
  Value several = m.less(m.constant(kBlock), depthCount);
  if (blocked)
    sumsBytes = m.mul(points.expr(schedule.getRowTiles().getValue()), tileRows * sumRowBytes);

  // One pass over the tiles of the chunk with values [from, from + count) of k, in units.
  auto pass = [&](Value from, Value count, Value accumulate, Value last) {
    emitFor(b, loc(), task.firstTile, task.endTile, one, {}, [&](Value tile, ValueRange) {
      PointEmitter::Scope scope(points);
      Value row = rowSplit->start(m, tile), rows = rowSplit->size(m, tile), inChunk = m.sub(row, task.firstRow);
      Value toTile = m.mul(inChunk, lhsRowBytes);
      if (lhsPanel) {
        Value toPanel = m.mul(m.sub(tile, task.firstTile), lhsTileBytes);
        toTile = copiesPanels ? select(copiesPanels, toPanel, toTile) : toPanel;
      }
      Value a = m.advance(lhs, m.add(toTile, m.mul(m.mul(from, unit), lhsDepthBytes)));
      Value tileSums = e.scratch();
      if (blocked)
        tileSums = m.advance(tileSums, arith::SelectOp::create(b, loc(), several, m.mul(inChunk, sumRowBytes), zero));
      SmallVector<Value> sums;
      for (auto [product, panel, end] : llvm::zip_equal(part.products, rhs, part.ends)) {
        sums.push_back(tileSums);
        tileSums = m.advance(tileSums, sumsBytes);
        int64_t step = product.spec.side(), rowBytes = product.spec.rowBytes();
        Value steps = m.mul(count, unit / step),
              depthBytes = product.spec.nibbles ? m.constant(step * byteSize(acc)) : m.mul(lhsDepthBytes, step);
        Value own = m.advance(panel.values, m.mul(from, unit / step * rowBytes));
        // Each tile fetches its share of what follows in memory: the next values of k, then the next panel, which
        // the next task needs. Weights come from far away, and alone the tile that meets them first would wait. A
        // single tile reads so fast that fetching more than the product itself does ahead would only delay that.
        Prefetch next;
        Value share;
        if (product.spec.prefetch) {
          Value tiles = m.sub(task.endTile, task.firstTile);
          share = arith::SelectOp::create(b, loc(), m.less(one, tiles), m.ceilDiv(m.constant(rowBytes), tiles), zero);
          Value skipped = m.mul(m.mul(m.sub(tile, task.firstTile), share), steps);
          next = {m.advance(own, m.add(m.mul(steps, rowBytes), skipped)), m.i64(share), end};
        }
        std::optional<OpBuilder::InsertionGuard> guard;
        if (panel.floats) {
          // Many rows read floats.
          auto many = scf::IfOp::create(b, loc(), hasManyRows(part, task), /*withElseRegion=*/true);
          guard.emplace(b);
          b.setInsertionPointToStart(&many.getThenRegion().front());
          const MicroKernelSpec &floats = product.floats;
          int64_t side = floats.side();
          // The next panel comes from far as well, and is not waited for where it is made floats.
          Prefetch source = next;
          if (share && step != side)
            source.step = m.i64(m.ceilDiv(m.mul(share, side), m.constant(step)));
          Value first = m.mul(from, unit / side);
          Value ownFloats = m.advance(panel.floats, m.mul(first, floats.rowBytes()));
          callMicroKernel(b, loc(), floats, heights, m.i64(rows), a, m.i64(lhsRowBytes),
                          m.i64(m.mul(lhsDepthBytes, side)), ownFloats, m.i64(m.mul(count, unit / side)), sums.back(),
                          accumulate, source, {}, {}, tileShape);
          b.setInsertionPointToStart(&many.getElseRegion().front());
        }
        // Without groups of k its whole is one run, or the block's part of that.
        Runs runs;
        Codes codes = panel.codes;
        if (product.spec.scaled) {
          Value runSteps = steps, runCount = one;
          if (product.groups > 1) {
            int64_t size = *depth.max / product.groups;
            runSteps = m.constant(size / step);
            runCount = m.mul(count, unit / size);
            Value toGroup = m.mul(from, unit / size * product.spec.panel() * byteSize(acc));
            codes.scales = m.advance(codes.scales, toGroup);
            if (product.spec.zeros)
              codes.zeros = m.advance(codes.zeros, toGroup);
          }
          runs = {m.i64(runCount), m.i64(m.mul(runSteps, depthBytes))};
          steps = runSteps;
        }
        Value left = a, leftRowBytes = lhsRowBytes;
        if (product.spec.nibbles) {
          // Few rows are one tile.
          auto [factors, totals] = preparedLhs();
          left = m.advance(factors, m.mul(from, unit * byteSize(acc)));
          leftRowBytes = m.mul(depthCount, byteSize(acc));
          codes.totals = m.advance(totals, m.mul(from, unit / step * byteSize(acc)));
          codes.totalsStride = m.i64(m.mul(m.div(depthCount, m.constant(step)), byteSize(acc)));
        }
        // More rows than a few read floats.
        TileHeights few = heights;
        if (panel.floats)
          few.max = std::max(heights.min, std::min(heights.max, fewRows(part)));
        callMicroKernel(b, loc(), product.spec, few, m.i64(rows), left, m.i64(leftRowBytes), m.i64(depthBytes), own,
                        m.i64(steps), sums.back(), accumulate, next, runs, codes, tileShape);
      }
      auto epilogue = [&] { failedInside |= failed(emitEpilogue(part, task, row, rows, sums)); };
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
    pass(zero, units, arith::ConstantOp::create(b, loc(), b.getBoolAttr(false)), {});
    return;
  }
  // Blocks of equal size; an empty sum is one empty block.
  Value blocks = m.max(m.ceilDiv(units, m.constant(std::max<int64_t>(kBlock / unit, 1))), one);
  EvenSplit blockSplit(m, units, blocks);
  emitFor(b, loc(), zero, blocks, one, {}, [&](Value block, ValueRange) {
    PointEmitter::Scope scope(points);
    pass(blockSplit.start(m, block), blockSplit.size(m, block), m.less(zero, block),
         m.equal(m.add(block, one), blocks));
    return SmallVector<Value>();
  });
}

LogicalResult ContractionEmitter::emitEpilogue(Part &part, const Task &task, Value firstRow, Value rows,
                                               ArrayRef<Value> sums) {
  SmallVector<Value> rowSizes = sizes(info.rows);
  ContractionInfo &own = part.info();
  bool ok = true;
  int64_t panel = part.vectors * lanes;
  Value rowBytes = m.constant(panel * byteSize(acc));
  // All rows of the tile, with the columns of whole panels or of the last, cut one.
  auto tileRowsLoop = [&](bool cut) {
    emitFor(b, loc(), m.constant(0), rows, m.constant(1), m.delinearize(firstRow, rowSizes),
            [&](Value r, ValueRange row) {
              PointEmitter::Scope scope(points);
              SmallVector<Value> coordinates(row), sumRows;
              for (Value tile : sums)
                sumRows.push_back(m.advance(tile, m.mul(r, rowBytes)));
              for (int64_t v = 0; v < part.vectors; ++v) {
                if (!cut) {
                  ok &= succeeded(emitVector(part, task, coordinates, v, sumRows, {}));
                  continue;
                }
                Value left = m.sub(part.columnCount, m.add(task.firstColumn, m.constant(v * lanes)));
                auto some = scf::IfOp::create(b, loc(), m.less(m.constant(0), left));
                OpBuilder::InsertionGuard guard(b);
                b.setInsertionPointToStart(&some.getThenRegion().front());
                PointEmitter::Scope inner(points);
                ok &= succeeded(emitVector(part, task, coordinates, v, sumRows, points.tailMask(left)));
              }
              return m.next(coordinates, rowSizes);
            });
  };
  if (own.columns.empty() || e.shapes.divisible(own.size(own.columns), panel)) {
    tileRowsLoop(false);
  } else {
    Value whole = m.less(m.add(task.firstColumn, m.constant(panel - 1)), part.columnCount);
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

/// The results at one row and one vector of columns, from the sums at `sumRows`.
LogicalResult ContractionEmitter::emitVector(Part &part, const Task &task, ArrayRef<Value> rowCoordinates,
                                             int64_t vector, ArrayRef<Value> sumRows, Value mask) {
  bool scalar = part.info().columns.empty();
  if (scalar && vector > 0)
    return success();
  PointEmitter::Scope scope(points);
  Value first = m.add(task.firstColumn, m.constant(vector * lanes));
  SmallVector<SmallVector<Idx>> pointsOf;
  for (auto [product, sumRow] : llvm::zip_equal(part.products, sumRows)) {
    ContractionInfo &own = product.info;
    SmallVector<Idx> columns = split(own, Idx(first, /*lanes=*/true, 1, lanes), own.columns);
    SmallVector<Idx> depth(own.depth.size(), points.uniform(int64_t(0)));
    SmallVector<Idx> iters = iteration(own, task, rowCoordinates, columns, depth);
    SmallVector<Idx> &point = pointsOf.emplace_back();
    for (AffineExpr x : own.resultMap().getResults())
      point.push_back(points.affine(x, iters));
    points.bind(own.op.getResult(0), [&, at = sumRow](ArrayRef<Idx>, Value) -> Value {
      Type type = scalar ? acc : VectorType::get({lanes}, acc);
      return LLVM::LoadOp::create(b, loc(), type, m.advance(at, m.constant(vector * lanes * byteSize(acc))),
                                  byteSize(acc));
    });
  }
  // A result may take the memory of an operand that another is computed from.
  struct Stored {
    unsigned result;
    SmallVector<Idx> at;
    Value value;
  };
  SmallVector<Stored> stored;
  for (unsigned i : part.results) {
    Value yielded = e.kernel.getYield().getValues()[i];
    FailureOr<SmallVector<Idx>> at = failure();
    for (auto [product, point] : llvm::zip_equal(part.products, pointsOf))
      if (failed(at))
        at = followResult(points, yielded, product.info.op.getResult(0), point);
    if (failed(at))
      return e.kernel.emitError("result ") << i << " of a contraction kernel is not over the contraction's domain";
    Value v = points.eval(yielded, *at, mask);
    if (!v)
      return failure();
    stored.push_back({i, *at, v});
  }
  for (Stored &each : stored)
    if (failed(points.store(each.result, each.at, each.value, mask)))
      return failure();
  for (Product &product : part.products)
    points.unbind(product.info.op.getResult(0));
  return success();
}

LogicalResult disc::emitContraction(KernelEmission &e) {
  FailureOr<std::vector<ContractionPart>> parts = contractionParts(e.kernel, e.kernel.getBody().front(), e.shapes);
  if (failed(parts))
    return failure();
  DenseI64ArrayAttr columns = e.schedule<ProductScheduleAttr>().getColumns();
  if (size_t(columns.size()) != parts->size())
    return e.kernel.emitError() << "has " << parts->size() << " products, and 'columns' for " << columns.size();
  int64_t lanes = e.vectorBits / int64_t(parts->front().first().accumulator.getIntOrFloatBitWidth());
  for (int64_t each : columns.asArrayRef())
    if (failed(e.checkColumns(each, lanes)))
      return failure();
  return ContractionEmitter(e, *parts).emit();
}
