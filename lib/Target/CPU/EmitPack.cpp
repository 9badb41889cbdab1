//===- EmitPack.cpp - weights in panels -----------------------------------===//
//
//   disc_plan.kernel_func pack @k ... {
//   ^bb0(%w: tensor<1536x384xf32>):
//     %p = disc_tensor.pack %w batch [] n [0] k [1] panel 32 : tensor<1536x384xf32> -> tensor<48x384x32xf32>
//     disc_plan.yield %p
//   }
//
// becomes a function in which each task writes one panel. It runs once, when the model is loaded.
//
// Test: test/lit/CPU/pack.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/CPU/PackPanel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <numeric>

using namespace mlir;
using namespace mlir::disc;

/// a0 b0 a1 b1 ...
static Value alternating(OpBuilder &b, Location loc, Value x, Value y, int64_t together) {
  int64_t count = cast<VectorType>(x.getType()).getNumElements();
  SmallVector<int64_t> order;
  for (int64_t i = 0; i < count; i += together)
    for (int64_t from : {i, count + i})
      for (int64_t k = 0; k < together; ++k)
        order.push_back(from + k);
  return vector::ShuffleOp::create(b, loc, x, y, order);
}

/// Rows of depth two by two or four by four, each column's values side by side, or, with `nibbles`, eight by eight, 4
/// bits of each in an i32; zeros past the last column and the last row of integers. With a shift, first the sums that
/// take it out again. Runs at load only, so that what is read by columns is simply gathered.
static LogicalResult emitSideBySide(PointEmitter &points, IndexMath &m, const PanelSource &source, PackOp pack,
                                    Value firstColumn, Value columnCount, Value depthCount, Value lastCount,
                                    Value lastPadded, int64_t vectors, Value panel) {
  OpBuilder &b = m.b;
  int64_t lanes = points.lanes();
  Type element = getElementTypeOrSelf(pack.getResult().getType());
  bool nibbles = pack.getNibbles();
  auto narrow = VectorType::get({lanes}, element), wide = VectorType::get({lanes}, b.getI32Type());
  int64_t side = pack.getSide(), shift = pack.getLeftShift();
  Value zero = arith::ConstantOp::create(b, m.loc, b.getZeroAttr(narrow)), starts = panel;
  panel = m.advance(panel, m.constant(int64_t(pack.getExtraRows()) * vectors * lanes * side * byteSize(element)));
  SmallVector<Value> noSums(shift != 0 ? vectors : 0,
                            arith::ConstantOp::create(b, m.loc, b.getZeroAttr(wide)).getResult());
  bool ok = true;
  auto sumsOf = emitFor(b, m.loc, m.constant(0), depthCount, m.constant(side), noSums, [&](Value depth, ValueRange in) {
    SmallVector<Value> sums(in);
    for (int64_t v = 0; v < vectors; ++v) {
      PointEmitter::Scope scope(points);
      Value column = m.add(firstColumn, m.constant(v * lanes)), left = m.sub(columnCount, column);
      SmallVector<Value> zeros(side, zero);
      SmallVector<Value> all = emitIf(b, m.loc, m.less(m.constant(0), left), zeros, [&]() -> SmallVector<Value> {
        PointEmitter::Scope inner(points);
        Value mask = points.tailMask(left);
        SmallVector<Value> out;
        for (int64_t k = 0; k < side; ++k) {
          // What is padded is read from before, and made zero.
          Value at = m.add(depth, m.constant(k)), own = mask;
          if (lastPadded) {
            Value exists = m.less(m.rem(at, lastPadded), lastCount);
            auto type = mask.getType();
            own = arith::AndIOp::create(b, m.loc, mask, vector::BroadcastOp::create(b, m.loc, type, exists));
          }
          Value x =
              points.eval(source.tensor, source.point(Idx(column, /*lanes=*/true, 1, lanes), points.uniform(at)), mask);
          ok &= bool(x);
          if (!x)
            return zeros;
          x = points.splat(x);
          if (nibbles)
            x = arith::ExtUIOp::create(b, m.loc, narrow, x);
          else if (x.getType() != narrow)
            x = arith::TruncFOp::create(b, m.loc, narrow, x);
          out.push_back(arith::SelectOp::create(b, m.loc, own, x, zero));
        }
        return out;
      });
      Value row = m.mul(depth, vectors), values = all[0];
      row = nibbles ? m.add(m.div(row, m.constant(side)), m.constant(v)) : m.add(row, m.constant(side * v));
      if (nibbles) {
        auto number = [&](int64_t n) -> Value {
          return arith::ConstantOp::create(b, m.loc, DenseElementsAttr::get(narrow, b.getIntegerAttr(element, n)));
        };
        values = zero;
        for (auto [k, x] : llvm::enumerate(all)) {
          Value low = arith::AndIOp::create(b, m.loc, x, number(15));
          values = arith::OrIOp::create(b, m.loc, values, arith::ShLIOp::create(b, m.loc, low, number(4 * int64_t(k))));
        }
      } else {
        values = alternating(b, m.loc, all[0], all[1], 1);
        if (side == 4)
          values = alternating(b, m.loc, values, alternating(b, m.loc, all[2], all[3], 1), 2);
      }
      for (Value x : shift != 0 ? all : SmallVector<Value>()) {
        x = pack.getUnsignedCodes() ? arith::ExtUIOp::create(b, m.loc, wide, x).getResult()
                                    : arith::ExtSIOp::create(b, m.loc, wide, x).getResult();
        sums[v] = arith::AddIOp::create(b, m.loc, sums[v], x);
      }
      LLVM::StoreOp::create(b, m.loc, values, m.advance(panel, m.mul(row, lanes * byteSize(element))),
                            byteSize(element));
    }
    return sums;
  });
  auto factor = DenseElementsAttr::get(wide, b.getI32IntegerAttr(int32_t(-shift)));
  for (auto [v, sum] : llvm::enumerate(sumsOf)) {
    Value start = arith::MulIOp::create(b, m.loc, sum, arith::ConstantOp::create(b, m.loc, factor));
    LLVM::StoreOp::create(b, m.loc, start, m.advance(starts, m.constant(int64_t(v) * lanes * 4)), 4);
  }
  return success(ok);
}

LogicalResult disc::emitPack(KernelEmission &e) {
  auto pack = e.kernel.getYield().getValues()[0].getDefiningOp<PackOp>();
  if (!pack)
    return e.kernel.emitError("a pack kernel must yield a disc_tensor.pack");
  auto type = cast<RankedTensorType>(pack.getResult().getType());
  bool sideBySide = pack.getSide() > 1;
  int64_t bits = sideBySide ? 32 : type.getElementTypeBitWidth();
  // A panel is a whole number of vectors of sums. Narrower elements may be more than it in one vector, and narrow
  // panels have narrow vectors; squares are transposed by halves, so that the lanes are a power of two.
  int64_t lanes = std::gcd(e.vectorBits / bits, pack.getPanel());
  if (2 * lanes < std::min<int64_t>(e.vectorBits / std::max<int64_t>(bits, 32), pack.getPanel()))
    return pack.emitError("the panel is not a whole number of vectors");
  Layout result = Layout::get(e.kernel.getLayout(e.kernel.getNumInputs()));
  SmallVector<SymExpr> dims = e.shapes.dims(pack.getSource());
  if (!result.isContiguous(e.shapes.dims(pack.getResult())))
    return pack.emitError("panels must be contiguous");

  OpBuilder &b = e.builder;
  IndexMath m{b, e.kernel.getLoc()};
  PointEmitter points(b, e.kernel, e.args(), lanes, e.shapes);
  auto extents = [&](ArrayRef<int64_t> which) {
    SmallVector<Value> out;
    for (int64_t d : which)
      out.push_back(points.expr(dims[d]));
    return out;
  };
  auto product = [&](ArrayRef<int64_t> which) {
    Value out = m.constant(1);
    for (Value extent : extents(which))
      out = m.mul(out, extent);
    return out;
  };
  auto coordinates = [&](Idx linear, ArrayRef<int64_t> which, SmallVectorImpl<Idx> &point) {
    for (size_t i = which.size(); i-- > 1;)
      std::tie(linear, point[which[i]]) = points.divModIdx(linear, dims[which[i]]);
    if (!which.empty())
      point[which[0]] = linear;
  };

  Value columns = product(pack.getNDims()), depth = product(pack.getKDims()), lastCount, lastPadded;
  int64_t together = pack.getTogether();
  ArrayRef<int64_t> kDims = pack.getKDims();
  if (together > 1 && !e.shapes.divisible(dims[kDims.back()], together)) {
    lastCount = points.expr(dims[kDims.back()]);
    lastPadded = m.mul(m.ceilDiv(lastCount, m.constant(together)), together);
    depth = m.mul(product(kDims.drop_back()), lastPadded);
  }
  Value panels = m.ceilDiv(columns, m.constant(pack.getPanel()));
  int64_t rowBytes = type.getShape().back() * byteSize(type.getElementType());
  Value rows = m.add(m.ceilDiv(depth, m.constant(int64_t(pack.getSide()))), m.constant(int64_t(pack.getExtraRows())));
  Value panelBytes = m.mul(rows, rowBytes);
  auto buffer = BufferOperand::get(e.kernel, pack.getSource(), e.shapes);
  bool ok = true;
  emitFor(b, m.loc, m.index(e.begin()), m.index(e.end()), m.constant(1), {}, [&](Value task, ValueRange) {
    PointEmitter::Scope scope(points);
    Value first = m.mul(m.rem(task, panels), pack.getPanel());
    Idx batch = points.uniform(m.div(task, panels));
    PanelSource source{pack.getSource(), [&](Idx column, Idx k) {
                         SmallVector<Idx> point(dims.size(), points.uniform(int64_t(0)));
                         coordinates(batch, pack.getBatchDims(), point);
                         coordinates(column, pack.getNDims(), point);
                         if (!lastPadded) {
                           coordinates(k, kDims, point);
                           return point;
                         }
                         // One value of k, perhaps padded.
                         Value at = k.base, last = m.min(m.rem(at, lastPadded), m.sub(lastCount, m.constant(1)));
                         coordinates(points.uniform(m.div(at, lastPadded)), kDims.drop_back(), point);
                         point[kDims.back()] = points.uniform(last);
                         return point;
                       }};
    source.depthContiguous =
        buffer && !pack.getKDims().empty() && buffer->layout.strides[pack.getKDims().back()].isConstant(1);
    source.padWithZeros = true;
    Value panel = m.advance(points.resultPtr(0), m.mul(task, panelBytes));
    if (sideBySide) {
      ok &= succeeded(emitSideBySide(points, m, source, pack, first, columns, depth, lastCount, lastPadded,
                                     pack.getPanel() / lanes, panel));
      return SmallVector<Value>();
    }
    ok &= succeeded(emitPanel(points, m, source, type.getElementType(), first, columns, depth, pack.getPanel() / lanes,
                              /*alwaysWhole=*/false, panel));
    return SmallVector<Value>();
  });
  return success(ok);
}
