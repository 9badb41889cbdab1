//===- PackPanel.cpp - columns side by side for a product -----------------===//
//
// A panel holds as many columns of a right operand as the product keeps in registers, one row of depth after the other:
//
//   panel[k][j] = matrix[k][firstColumn + j]
//
// If a row of the matrix is not contiguous but a column is (a transposed operand), squares of lanes x lanes elements
// are loaded down the columns and transposed in registers, which is several times faster than gathering.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/PackPanel.h"

#include "lib/Target/CPU/EmitKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

SmallVector<Value> disc::transposeRegisters(OpBuilder &b, Location loc, SmallVector<Value> rows) {
  int64_t n = rows.size();
  // Swaps the off-diagonal blocks of ever smaller squares.
  for (int64_t d = n / 2; d >= 1; d /= 2) {
    SmallVector<int64_t> upper, lower;
    for (int64_t lane = 0; lane < n; ++lane) {
      upper.push_back(lane & d ? n + lane - d : lane);
      lower.push_back(lane & d ? n + lane : lane + d);
    }
    for (int64_t i = 0; i < n; ++i) {
      if (i & d)
        continue;
      Value x = rows[i], y = rows[i + d];
      rows[i] = vector::ShuffleOp::create(b, loc, x, y, upper);
      rows[i + d] = vector::ShuffleOp::create(b, loc, x, y, lower);
    }
  }
  return rows;
}

namespace {
struct PanelWriter {
  PointEmitter &points;
  IndexMath &m;
  const PanelSource &source;
  Type element;
  Value firstColumn, columnCount, depthCount;
  int64_t vectors;
  Value panel;

  OpBuilder &b() { return m.b; }
  int64_t lanes() { return points.lanes(); }

  Value convert(Value v) {
    v = points.splat(v);
    if (source.transform)
      return source.transform(v);
    Type to = points.vectorOf(element);
    if (v.getType() == to)
      return v;
    if (isa<FloatType>(element) &&
        getElementTypeOrSelf(v.getType()).getIntOrFloatBitWidth() > element.getIntOrFloatBitWidth())
      v = arith::TruncFOp::create(b(), m.loc, to, v);
    else
      v = isa<FloatType>(element) ? arith::ExtFOp::create(b(), m.loc, to, v).getResult()
                                  : arith::ExtSIOp::create(b(), m.loc, to, v).getResult();
    return v;
  }

  void store(Value v, Value depth, int64_t vector) {
    int64_t width = source.width ? source.width : vectors * lanes();
    Value offset = m.add(m.mul(depth, width), m.constant(vector * lanes()));
    points.store(panel, Idx(offset, /*lanes=*/true), v);
  }

  Value column(int64_t offset) { return m.add(firstColumn, m.constant(offset)); }

  /// Rows of depth from `from` on, one by one, as vectors along the columns.
  LogicalResult rows(Value from, bool cut) {
    bool ok = true;
    emitFor(b(), m.loc, from, depthCount, m.constant(1), {}, [&](Value depth, ValueRange) {
      PointEmitter::Scope scope(points);
      for (int64_t v = 0; v < vectors; ++v) {
        SmallVector<Idx> point =
            source.point(Idx(column(v * lanes()), /*lanes=*/true, 1, lanes()), points.uniform(depth));
        if (!cut) {
          Value x = points.eval(source.tensor, point);
          ok &= bool(x);
          if (x)
            store(convert(x), depth, v);
          continue;
        }
        // Lanes past the last column touch no memory; a vector without any column is only zeros.
        Value left = m.sub(columnCount, column(v * lanes()));
        Type type = points.vectorOf(element);
        Value zero = arith::ConstantOp::create(b(), m.loc, b().getZeroAttr(type));
        auto some = scf::IfOp::create(b(), m.loc, TypeRange{type}, m.less(m.constant(0), left), true);
        OpBuilder::InsertionGuard guard(b());
        b().setInsertionPointToStart(&some.getElseRegion().front());
        scf::YieldOp::create(b(), m.loc, zero);
        b().setInsertionPointToStart(&some.getThenRegion().front());
        {
          PointEmitter::Scope inner(points);
          Value mask = points.tailMask(left);
          Value x = points.eval(source.tensor, point, mask);
          ok &= bool(x);
          x = x ? arith::SelectOp::create(b(), m.loc, mask, convert(x), zero).getResult() : zero;
          scf::YieldOp::create(b(), m.loc, x);
        }
        b().setInsertionPointAfter(some);
        store(some.getResult(0), depth, v);
      }
      return SmallVector<Value>();
    });
    return success(ok);
  }

  /// Squares of lanes x lanes elements, read down the columns. With `clamp`, the last column stands in for those that
  /// do not exist.
  LogicalResult squares(Value end, bool clamp) {
    Value last = m.sub(columnCount, m.constant(1));
    bool ok = true;
    emitFor(b(), m.loc, m.constant(0), end, m.constant(lanes()), {}, [&](Value depth, ValueRange) {
      for (int64_t v = 0; v < vectors; ++v) {
        PointEmitter::Scope scope(points);
        SmallVector<Value> down;
        for (int64_t i = 0; i < lanes(); ++i) {
          Value from = column(v * lanes() + i);
          Value x = points.eval(source.tensor, source.point(points.uniform(clamp ? m.min(from, last) : from),
                                                            Idx(depth, /*lanes=*/true, 1, lanes())));
          ok &= bool(x);
          if (!x)
            return SmallVector<Value>();
          down.push_back(convert(x));
        }
        for (auto [i, row] : llvm::enumerate(transposeRegisters(b(), m.loc, down)))
          store(row, m.add(depth, m.constant(i)), v);
      }
      return SmallVector<Value>();
    });
    return success(ok);
  }

  Value first() { return source.firstDepth ? source.firstDepth : m.constant(0); }
  bool readsDown() { return source.depthContiguous && lanes() > 1; }

  LogicalResult whole() {
    if (!readsDown())
      return rows(first(), false);
    Value end = m.mul(m.div(depthCount, m.constant(lanes())), lanes());
    return success(succeeded(squares(end, false)) && succeeded(rows(end, false)));
  }

  LogicalResult cut() {
    if (!readsDown() || source.padWithZeros)
      return rows(first(), true);
    Value end = m.mul(m.div(depthCount, m.constant(lanes())), lanes());
    return success(succeeded(squares(end, true)) && succeeded(rows(end, true)));
  }
};
} // namespace

LogicalResult disc::emitPanel(PointEmitter &points, IndexMath &m, const PanelSource &source, Type element,
                              Value firstColumn, Value columnCount, Value depthCount, int64_t vectors, bool alwaysWhole,
                              Value panel) {
  PanelWriter writer{points, m, source, element, firstColumn, columnCount, depthCount, vectors, panel};
  if (alwaysWhole)
    return writer.whole();
  Value isWhole = m.less(writer.column(vectors * points.lanes() - 1), columnCount);
  auto either = scf::IfOp::create(m.b, m.loc, isWhole, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(m.b);
  bool ok = true;
  for (bool cut : {false, true}) {
    m.b.setInsertionPointToStart(cut ? &either.getElseRegion().front() : &either.getThenRegion().front());
    PointEmitter::Scope scope(points);
    ok &= succeeded(cut ? writer.cut() : writer.whole());
  }
  return success(ok);
}
