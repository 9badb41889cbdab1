//===- ContractionOperands.cpp - what products read ----------------------===//
//
// The left operand in place, or copied to scratch; panels of the right one; codes made floats for many rows, and rows
// prepared for codes of 4 bits: EmitContraction.cpp describes when.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/ContractionEmitter.h"

#include "lib/Target/CPU/PackPanel.h"
#include "lib/Transforms/Support/TargetInfo.h"

using namespace mlir;
using namespace mlir::disc;
using namespace mlir::disc::contraction;

void ContractionEmitter::chooseLhs() {
  auto strided = StridedOperand::get(e.kernel, info.left(), info.lhsMap(), e.shapes);
  // A line more, so that rows do not all start in the same cache set, but all at the start of a line.
  lhsRowStride =
      SymExpr::ceilDiv(info.size(info.depth), SymExpr(64)) * SymExpr(64) + SymExpr(64 / byteSize(info.lhsRead()));
  lhsDepthStride = SymExpr(1);
  lhsPanel = schedule.getLhsPanel();
  if (!strided)
    return;
  auto row = strided->collapse(info.rows, info.sizes, e.shapes);
  auto depth = strided->collapse(info.depth, info.sizes, e.shapes);
  if (!row || !row->isConstant(1))
    lhsPanel = 0;
  // What is widened or shifted before it is multiplied must be copied, and so must what is read together but is not
  // together in memory, or not to the end.
  if (!row || !depth || info.changesLhs() ||
      ((info.together() > 1 || info.asHalves()) &&
       (!depth->isConstant(1) || !e.shapes.divisible(info.size(info.depth), info.together()))))
    return;
  // Rows a multiple of 4 KiB apart share one set of the first-level cache. A few more than it holds do no harm that a
  // copy would undo; with half as many again, each line leaves before its second element is read.
  int64_t rowBytes = byteSize(info.lhsElement);
  int64_t ways = TargetInfo::get(e.kernel->getParentOfType<ModuleOp>()).l1Ways;
  if (heights.max > ways + ways / 4 && row->isConstant() && row->constant() * rowBytes % 4096 == 0 &&
      !row->isConstant(0))
    return;
  ShapeAnalysis::Range range = e.shapes.range(info.size(info.depth));
  if (lhsPanel && range.min && *range.min > shortDepth)
    return;
  if (range.max && *range.max <= shortDepth)
    lhsPanel = 0;
  lhsInPlace = strided;
  lhsRowStride = *row;
  lhsDepthStride = *depth;
}

/// The rows of the task's chunk: in place, or copied unless the task before did (`key` says what it copied).
Value ContractionEmitter::placeLhs(const Task &task, Value &key) {
  Value inPlace;
  if (lhsInPlace) {
    Value offset = points.expr(lhsInPlace->offset);
    for (auto [d, coordinate] : llvm::zip_equal(info.batch, task.batch))
      offset = m.add(offset, m.mul(coordinate, points.expr(lhsInPlace->strides[d])));
    offset = m.add(offset, m.mul(task.firstRow, points.expr(lhsRowStride)));
    inPlace = m.advance(points.operandPtr(lhsInPlace->argument), m.mul(offset, byteSize(info.lhsElement)));
    if (!copiesPanels)
      return inPlace;
  }
  Value lhs = lhsScratch();
  Value last = key;
  key = m.add(m.mul(task.batchLinear, chunkCount), task.chunk);
  Value another = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ne, key, last);
  if (copiesPanels)
    another = arith::AndIOp::create(b, loc(), another, copiesPanels);
  auto copy = scf::IfOp::create(b, loc(), another);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&copy.getThenRegion().front());
    PointEmitter::Scope inner(points);
    if (lhsPanel ? !packLhsPanels(task, lhs) : !packLhs(task))
      fail();
  }
  return copiesPanels ? select(copiesPanels, lhs, inPlace) : lhs;
}

/// Copies the tiles of the task's chunk to panels in scratch.
bool ContractionEmitter::packLhsPanels(const Task &task, Value base) {
  PanelSource source{info.left(), [&](Idx row, Idx depth) {
                       SmallVector<Idx> columns(info.columns.size(), points.uniform(int64_t(0)));
                       SmallVector<Value> rows(info.rows.size(), m.constant(0));
                       SmallVector<Idx> iters = iteration(info, task, rows, columns, split(info, depth, info.depth)),
                                        point;
                       for (auto [d, idx] : llvm::zip_equal(info.rows, split(info, row, info.rows)))
                         iters[d] = idx;
                       for (AffineExpr x : info.lhsMap().getResults())
                         point.push_back(points.affine(x, iters));
                       return point;
                     }};
  source.width = lhsPanel;
  bool ok = true;
  // A few values of k for all tiles: a line is read by the next tile as long as it is in the first-level cache, and no
  // set of that has fewer ways.
  Value block = m.constant(8);
  emitFor(b, loc(), m.constant(0), depthCount, block, {}, [&](Value from, ValueRange) {
    PointEmitter::Scope scope(points);
    source.firstDepth = from;
    Value end = m.min(m.add(from, block), depthCount);
    emitFor(b, loc(), task.firstTile, task.endTile, m.constant(1), {}, [&](Value tile, ValueRange) {
      PointEmitter::Scope scope(points);
      Value panel = m.advance(base, m.mul(m.sub(tile, task.firstTile), lhsTileBytes));
      ok &= succeeded(emitPanel(points, m, source, info.lhsRead(), rowSplit->start(m, tile), rowCount, end,
                                llvm::divideCeil(lhsPanel, lanes), /*alwaysWhole=*/false, panel));
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
  return ok;
}

/// Copies the rows of the task's chunk to scratch, row-major. Null if an element cannot be evaluated.
Value ContractionEmitter::packLhs(const Task &task) {
  Value base = lhsScratch();
  Value endRow = rowSplit->start(m, task.endTile);
  SmallVector<Value> rowSizes = sizes(info.rows);
  bool ok = true;
  Value zero = m.constant(0), step = m.constant(lanes);
  Value whole = m.mul(m.div(depthCount, step), lanes);
  auto copyVector = [&](ArrayRef<Value> row, Value r, Value k, Value mask) {
    PointEmitter::Scope scope(points);
    SmallVector<Idx> depth = split(info, Idx(k, /*lanes=*/true, 1, lanes), info.depth);
    SmallVector<Idx> columns(info.columns.size(), points.uniform(zero));
    SmallVector<Idx> iters = iteration(info, task, row, columns, depth), point;
    for (AffineExpr x : info.lhsMap().getResults())
      point.push_back(points.affine(x, iters));
    Value v = points.eval(info.left(), point, mask);
    if (!v) {
      ok = false;
      return;
    }
    Value position = m.add(m.mul(m.sub(r, task.firstRow), points.expr(lhsRowStride)), k);
    v = points.splat(v);
    if (info.lhsShift() != 0) {
      auto type = cast<VectorType>(v.getType());
      Value sign = arith::ConstantOp::create(b, loc(), DenseElementsAttr::get(type, b.getI8IntegerAttr(-128)));
      v = arith::XOrIOp::create(b, loc(), v, sign);
    }
    if (info.lhsRead() != info.lhsElement) {
      Type wide = points.vectorOf(info.lhsRead());
      v = isa<FloatType>(acc) ? arith::ExtFOp::create(b, loc(), wide, v).getResult()
          : info.lhsUnsigned  ? arith::ExtUIOp::create(b, loc(), wide, v).getResult()
                              : arith::ExtSIOp::create(b, loc(), wide, v).getResult();
    }
    points.store(base, Idx(position, /*lanes=*/true), v, mask);
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
            if (!shapes.divisible(info.size(info.depth), lanes)) {
              auto tail = scf::IfOp::create(b, loc(), m.less(whole, depthCount));
              OpBuilder::InsertionGuard guard(b);
              b.setInsertionPointToStart(&tail.getThenRegion().front());
              PointEmitter::Scope scope(points);
              copyVector(coordinates, r, whole, points.tailMask(m.sub(depthCount, whole)));
            }
            // What is read beside the last value meets a weight of 0, and must be finite.
            if (info.together() > 1 && isa<FloatType>(acc) &&
                !shapes.divisible(info.size(info.depth), info.together())) {
              Value end = m.add(m.mul(m.sub(r, task.firstRow), points.expr(lhsRowStride)), depthCount);
              Value none = arith::ConstantOp::create(b, loc(), b.getZeroAttr(info.lhsRead()));
              points.store(base, points.uniform(end), none);
            }
            return m.next(coordinates, rowSizes);
          });
  return ok ? base : Value();
}

/// The panels of the part's products.
SmallVector<Panel> ContractionEmitter::placeRhs(Part &part, const Task &task, Value lhs, Value &key) {
  SmallVector<Panel> out;
  part.ends.clear();
  if (info.panels) {
    Value panel = m.add(m.mul(task.batchLinear, part.panelCount), task.ownPanel);
    for (Product &product : part.products) {
      // The addresses of `operand` and of the task's panel in it.
      auto place = [&](Value operand, Value panelBytes) -> std::pair<Value, Value> {
        auto buffer = BufferOperand::get(e.kernel, operand, e.shapes);
        if (!buffer) {
          product.info.panels.emitError("packed panels are not an operand of the kernel");
          fail();
          return {};
        }
        int64_t bytes = byteSize(getElementTypeOrSelf(operand.getType()));
        Value base = m.advance(points.operandPtr(buffer->argument), m.mul(points.expr(buffer->layout.offset), bytes));
        return {base, m.advance(base, m.mul(panel, panelBytes))};
      };
      UnpackOp panels = product.info.panels;
      int64_t rowBytes = product.spec.rowBytes(), extraBytes = int64_t(panels.getExtraRows()) * rowBytes;
      Value panelBytes =
          m.add(m.mul(m.ceilDiv(depthCount, m.constant(product.spec.side())), rowBytes), m.constant(extraBytes));
      auto [base, values] = place(panels.getSource(), panelBytes);
      if (failedInside)
        return {};
      Panel &own = out.emplace_back(Panel{m.advance(values, m.constant(extraBytes)), {}, {}});
      own.codes.starts = values;
      part.ends.push_back(m.advance(base, m.mul(m.mul(size(info.batch), part.panelCount), panelBytes)));
      Value numberBytes = m.constant(product.groups * product.spec.panel() * byteSize(acc));
      if (product.spec.scaled)
        own.codes.scales = place(panels.getScales(), numberBytes).second;
      if (product.spec.zeros)
        own.codes.zeros = place(panels.getZeros(), numberBytes).second;
      if (failedInside)
        return {};
    }
    unpackCodes(part, task, out);
    key = prepareLhs(part, task, lhs, key);
    return out;
  }
  part.ends.assign(part.products.size(), Value());
  Value scratch = rhsScratch();
  for (Product &product : part.products) {
    out.push_back({scratch, {}, {}});
    scratch = m.advance(scratch, m.mul(depthCount, product.spec.panel() * byteSize(product.spec.b)));
  }
  Value last = key;
  key = m.add(m.mul(task.batchLinear, panelCount), task.panel);
  auto copy = scf::IfOp::create(b, loc(), arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ne, key, last));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&copy.getThenRegion().front());
  SmallVector<Value> noRows(info.rows.size(), m.constant(0));
  for (auto [product, panel] : llvm::zip_equal(part.products, out)) {
    PointEmitter::Scope inner(points);
    ContractionInfo &own = product.info;
    PanelSource source{own.right(), [&](Idx column, Idx depth) {
                         SmallVector<Idx> iters = iteration(own, task, noRows, split(own, column, own.columns),
                                                            split(own, depth, own.depth)),
                                          point;
                         for (AffineExpr r : own.rhsMap().getResults())
                           point.push_back(points.affine(r, iters));
                         return point;
                       }};
    if (auto strided = StridedOperand::get(e.kernel, own.right(), own.rhsMap(), e.shapes))
      source.depthContiguous = !own.depth.empty() && strided->strides[own.depth.back()].isConstant(1);
    if (failed(emitPanel(points, m, source, product.spec.b, task.firstColumn, part.columnCount, depthCount,
                         part.vectors, e.shapes.divisible(own.size(own.columns), product.spec.panel()), panel.values)))
      fail();
  }
  return out;
}

/// With more rows codes are made floats once for the task, in scratch, not again for each tile: codes of 4 bits need
/// registers that the sums of a whole tile take.
int64_t ContractionEmitter::fewRows(const Part &part) {
  // Products of tiles are so fast that making the panel anew pays early.
  if (llvm::any_of(part.products, [](const Product &product) { return product.info.asHalves(); }))
    return hasNibbles(part) ? fewRowsOfNibbles : fewRowsOfBytes;
  if (!hasNibbles(part))
    return 3 * tileRows;
  // The rows' factors and sums take the memory that the panel's floats would.
  return std::max<int64_t>(std::min(tileRows * 3 / 4, part.vectors * lanes * 8 / 9), 1);
}

Value ContractionEmitter::hasManyRows(const Part &part, const Task &task) {
  return m.less(m.constant(fewRows(part)), m.sub(rowSplit->start(m, task.endTile), task.firstRow));
}

/// Makes floats of panels of codes, and long ones of short ones, if the task has many rows.
void ContractionEmitter::unpackCodes(Part &part, const Task &task, MutableArrayRef<Panel> panels) {
  std::optional<int64_t> most = e.shapes.range(info.size(info.rows)).max;
  if (llvm::none_of(part.products, hasFloats) || (most && *most <= fewRows(part)))
    return;
  Value scratch = rhsScratch();
  for (auto [product, panel] : llvm::zip_equal(part.products, panels)) {
    if (!hasFloats(product))
      continue;
    panel.floats = scratch;
    scratch = m.advance(scratch, m.mul(depthCount, product.spec.panel() * byteSize(acc)));
  }
  auto many = scf::IfOp::create(b, loc(), hasManyRows(part, task));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&many.getThenRegion().front());
  for (auto [product, panel, end] : llvm::zip_equal(part.products, panels, part.ends)) {
    if (product.info.widensPanels())
      widenPanel(product, panel);
    if (!product.spec.scaled)
      continue;
    Value steps = m.div(depthCount, m.constant(product.groups * product.spec.side()));
    callUnpackPanel(b, loc(), product.spec, panel.values, panel.codes, m.i64(steps), m.i64(m.constant(product.groups)),
                    panel.floats, end, product.info.asHalves());
  }
}

void ContractionEmitter::widenPanel(const Product &product, const Panel &panel) {
  Value size = m.mul(depthCount, product.spec.panel());
  emitFor(b, loc(), m.constant(0), size, m.constant(lanes), {}, [&](Value at, ValueRange) {
    PointEmitter::Scope scope(points);
    Idx lane(at, /*lanes=*/true);
    Value v = points.load(panel.values, lane, product.spec.b);
    points.store(panel.floats, lane, arith::ExtFOp::create(b, loc(), points.vectorOf(acc), v));
    return SmallVector<Value>();
  });
}

/// Prepares the task's rows for products with codes of 4 bits in the memory for floats, unless the task before did, as
/// `key` says. The key for the next task.
Value ContractionEmitter::prepareLhs(const Part &part, const Task &task, Value lhs, Value key) {
  if (llvm::none_of(part.products, [](const Product &product) { return product.spec.scaled; }))
    return key;
  // Floats of panels overwrite what was prepared.
  Value none = m.constant(-1), many = hasManyRows(part, task);
  if (!hasNibbles(part))
    return select(many, none, key);
  Value own = select(many, none, m.add(m.mul(task.batchLinear, chunkCount), task.chunk));
  Value another = arith::AndIOp::create(b, loc(), arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ne, own, key),
                                        arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ne, own, none));
  auto once = scf::IfOp::create(b, loc(), another);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&once.getThenRegion().front());
  for (const Product &product : part.products)
    if (product.spec.nibbles) {
      auto [factors, totals] = preparedLhs();
      callPrepare(b, loc(), product.spec, lhs, m.i64(lhsRowBytes), m.i64(lhsDepthBytes),
                  m.i64(m.div(depthCount, m.constant(product.spec.side()))),
                  m.i64(m.sub(rowSplit->start(m, task.endTile), task.firstRow)), factors, totals);
      break;
    }
  return own;
}

/// Where the rows' factors are, and their sums behind them.
std::pair<Value, Value> ContractionEmitter::preparedLhs() {
  Value factors = rhsScratch();
  int64_t most = 1;
  for (const Part &part : parts)
    if (hasNibbles(part))
      most = std::max(most, fewRows(part));
  return {factors, m.advance(factors, m.mul(depthCount, most * byteSize(acc)))};
}
