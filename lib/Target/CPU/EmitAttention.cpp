//===- EmitAttention.cpp - softmax(q k^T) v as one kernel -----------------===//
//
//   disc_plan.kernel_func attention @k ... {
//   ^bb0(%q: tensor<?x12x?x32xf32>, %k: tensor<?x12x?x32xf32>, %v: tensor<?x12x?x32xf32>, %m: tensor<?x1x1x?xi1>):
//     %y = disc_tensor.attention %q, %k, %v mask %m scale 0.17 causal false ...
//     disc_plan.yield %y
//   }
//
// becomes a function in which each task does one block of queries of one head. Queries run along the lanes, so that
// all the rest is products that read keys and values in place, and a softmax without sums across lanes:
//
//   Q^T = scale * q^T, a panel                     E x queries      queries transposed, the only packing
//   P   = mask^T (if there is one)                 S x queries
//   P  += k . Q^T                                                   product; k's rows in place
//   P   = exp(P - max over S), with its sums                        vectors over queries
//   O^T = v^T . P                                  Ev x queries     product; v's columns in place, P is a panel
//   y   = (O^T / sums)^T                                            transposed in registers, stored through the layout
//
// Neither keys nor values nor a mask that is shared by heads are ever copied. With few queries (one, when a decoder
// takes a step) the block is a single vector wide. A query that sees no key gives zeros, as in PyTorch.
//
// Test: test/lit/CPU/attention.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/CPU/MicroKernel.h"
#include "lib/Target/CPU/PackPanel.h"
#include "lib/Target/CPU/TileLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace mlir::disc;

namespace {

class AttentionEmitter {
public:
  AttentionEmitter(KernelEmission &e, AttentionOp op, Type sumType)
      : e(e), b(e.builder), op(op), m{e.builder, e.kernel.getLoc()}, sumType(sumType),
        points(e.builder, e.kernel, e.args(), e.vectorBits / sumType.getIntOrFloatBitWidth(), e.shapes) {}

  LogicalResult emit();

private:
  /// One block of queries: `vectors` vectors of them from `first` on.
  struct Block {
    int64_t vectors;
    Value first, keys; // keys that any of the queries may see
    SmallVector<Value> batch;
  };

  Location loc() { return m.loc; }
  int64_t lanes() { return points.lanes(); }
  VectorType vectorType() { return points.vectorOf(sumType); }
  Value scheduled(StringRef name) {
    return m.advance(e.scratch(), points.expr(e.kernel.getScheduleAttr().getAs<ExprAttr>(name).getValue()));
  }
  Value constantVector(double v) {
    return arith::ConstantOp::create(b, loc(), DenseElementsAttr::get(vectorType(), b.getFloatAttr(sumType, v)));
  }
  Value rowBytes(const Block &block) { return m.constant(block.vectors * lanes() * byteSize(sumType)); }
  Value load(Value row, int64_t vector) {
    return LLVM::LoadOp::create(b, loc(), vectorType(), vectorAt(row, vector), byteSize(sumType));
  }
  void store(Value v, Value row, int64_t vector) {
    LLVM::StoreOp::create(b, loc(), v, vectorAt(row, vector), byteSize(sumType));
  }
  Value vectorAt(Value row, int64_t vector) { return m.advance(row, m.constant(vector * lanes() * byteSize(sumType))); }
  SmallVector<Idx> point(ArrayRef<Value> batch, std::initializer_list<Idx> rest) {
    SmallVector<Idx> out;
    for (Value v : batch)
      out.push_back(points.uniform(v));
    out.append(rest);
    return out;
  }
  /// Start of a head's matrix in its buffer, and the strides of its rows and columns, in bytes.
  struct Matrix {
    Value ptr, rowBytes, columnBytes;
  };
  FailureOr<Matrix> matrix(Value operand, ArrayRef<Value> batch);

  LogicalResult emitBlock(const Block &block);
  LogicalResult packQueries(const Block &block);
  LogicalResult writeMask(const Block &block);
  SmallVector<Value> scores(const Block &block, const Matrix &keys);
  SmallVector<Value> exponentials(const Block &block, ArrayRef<Value> maxima);
  void weigh(const Block &block, const Matrix &values);
  LogicalResult writeResult(const Block &block, ArrayRef<Value> sums);
  LogicalResult writeRow(const Block &block, Value query, Value firstColumn, Value v, Value mask);

  KernelEmission &e;
  OpBuilder &b;
  AttentionOp op;
  IndexMath m;
  Type sumType;
  PointEmitter points;
  int64_t tileRows = 1;
  SmallVector<SymExpr> dims; // of the queries: batch..., L, E
  SymExpr keyCount, valueSize;
};

LogicalResult AttentionEmitter::emit() {
  dims = e.shapes.dims(op.getQuery());
  SmallVector<SymExpr> keyDims = e.shapes.dims(op.getKey());
  keyCount = keyDims[keyDims.size() - 2];
  valueSize = e.shapes.dims(op.getValue()).back();
  tileRows = e.schedule("rows", 1);

  ArrayRef<SymExpr> batchDims = ArrayRef<SymExpr>(dims).drop_back(2);
  SmallVector<Value> batchSizes;
  for (const SymExpr &d : batchDims)
    batchSizes.push_back(points.expr(d));
  Value queries = points.expr(dims[dims.size() - 2]), width = m.constant(2 * lanes());
  Value blocks = m.ceilDiv(queries, width);
  ShapeAnalysis::Range range = e.shapes.range(dims[dims.size() - 2]);

  bool ok = true;
  emitFor(b, loc(), m.index(e.begin()), m.index(e.end()), m.constant(1), {}, [&](Value task, ValueRange) {
    PointEmitter::Scope scope(points);
    Block block;
    block.batch = m.delinearize(m.div(task, blocks), batchSizes);
    block.first = m.mul(m.rem(task, blocks), width);
    block.keys = points.expr(keyCount);
    auto variant = [&](int64_t vectors) {
      Block sized = block;
      sized.vectors = vectors;
      if (op.getIsCausal())
        sized.keys = m.min(block.keys, m.add(block.first, m.constant(vectors * lanes())));
      ok &= succeeded(emitBlock(sized));
    };
    if (range.max && *range.max <= lanes()) {
      variant(1);
      return SmallVector<Value>();
    }
    Value few = m.less(m.sub(queries, block.first), m.constant(lanes() + 1));
    auto either = scf::IfOp::create(b, loc(), few, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    for (int64_t vectors : {1, 2}) {
      b.setInsertionPointToStart(vectors == 1 ? &either.getThenRegion().front() : &either.getElseRegion().front());
      PointEmitter::Scope inner(points);
      variant(vectors);
    }
    return SmallVector<Value>();
  });
  return success(ok);
}

FailureOr<AttentionEmitter::Matrix> AttentionEmitter::matrix(Value operand, ArrayRef<Value> batch) {
  auto buffer = BufferOperand::get(e.kernel, operand, e.shapes);
  if (!buffer)
    return op.emitError("keys and values must lie in a buffer");
  ArrayRef<SymExpr> strides = buffer->layout.strides;
  int64_t bytes = byteSize(getElementTypeOrSelf(operand.getType()));
  Value offset = points.expr(buffer->layout.offset);
  for (auto [coordinate, stride] : llvm::zip_equal(batch, strides.drop_back(2)))
    offset = m.add(offset, m.mul(coordinate, points.expr(stride)));
  return Matrix{m.advance(points.operandPtr(buffer->argument), m.mul(offset, bytes)),
                m.mul(points.expr(strides.drop_back().back()), bytes), m.mul(points.expr(strides.back()), bytes)};
}

LogicalResult AttentionEmitter::emitBlock(const Block &block) {
  FailureOr<Matrix> keys = matrix(op.getKey(), block.batch), values = matrix(op.getValue(), block.batch);
  if (failed(keys) || failed(values) || failed(packQueries(block)))
    return failure();
  if (op.getMask() && failed(writeMask(block)))
    return failure();
  SmallVector<Value> maxima = scores(block, *keys);
  SmallVector<Value> sums = exponentials(block, maxima);
  weigh(block, *values);
  return writeResult(block, sums);
}

LogicalResult AttentionEmitter::packQueries(const Block &block) {
  PanelSource source{op.getQuery(), [&](Idx query, Idx column) { return point(block.batch, {query, column}); }};
  auto buffer = BufferOperand::get(e.kernel, op.getQuery(), e.shapes);
  source.depthContiguous = buffer && buffer->layout.strides.back().isConstant(1);
  Value scale = constantVector(op.getScale().convertToDouble());
  source.transform = [&](Value v) -> Value {
    if (v.getType() != vectorType())
      v = arith::ExtFOp::create(b, loc(), vectorType(), v);
    return arith::MulFOp::create(b, loc(), v, scale);
  };
  return emitPanel(points, m, source, sumType, block.first, points.expr(dims[dims.size() - 2]),
                   points.expr(dims.back()), block.vectors,
                   e.shapes.divisible(dims[dims.size() - 2], block.vectors * lanes()), scheduled("query_scratch"));
}

/// Starts the scores from the mask: what is added, minus infinity where a boolean mask hides a key.
LogicalResult AttentionEmitter::writeMask(const Block &block) {
  auto type = cast<RankedTensorType>(op.getMask().getType());
  Idx zero = points.uniform(int64_t(0));
  PanelSource source{op.getMask(), [&](Idx query, Idx key) {
                       SmallVector<Idx> full = point(block.batch, {query, key});
                       for (auto [d, idx] : llvm::enumerate(full))
                         if (type.getDimSize(d) == 1)
                           idx = zero;
                       return full;
                     }};
  // Memory that runs along the keys is read along them, unless all queries share it.
  auto buffer = BufferOperand::get(e.kernel, op.getMask(), e.shapes);
  unsigned rank = type.getRank();
  source.depthContiguous = buffer && buffer->layout.strides.back().isConstant(1) && type.getDimSize(rank - 2) != 1 &&
                           type.getDimSize(rank - 1) != 1;
  source.transform = [&](Value v) -> Value {
    if (type.getElementType().isInteger(1))
      return arith::SelectOp::create(b, loc(), v, constantVector(0.0),
                                     constantVector(-std::numeric_limits<double>::infinity()));
    if (v.getType() == vectorType())
      return v;
    if (type.getElementTypeBitWidth() > sumType.getIntOrFloatBitWidth())
      return arith::TruncFOp::create(b, loc(), vectorType(), v);
    return arith::ExtFOp::create(b, loc(), vectorType(), v);
  };
  return emitPanel(points, m, source, sumType, block.first, points.expr(dims[dims.size() - 2]), block.keys,
                   block.vectors, e.shapes.divisible(dims[dims.size() - 2], block.vectors * lanes()),
                   scheduled("score_scratch"));
}

/// Products of keys and queries, and their largest value for each query.
SmallVector<Value> AttentionEmitter::scores(const Block &block, const Matrix &keys) {
  MicroKernelSpec spec{getElementTypeOrSelf(op.getKey().getType()), sumType, sumType, lanes(), block.vectors};
  ShapeAnalysis::Range range = e.shapes.range(keyCount);
  int64_t least = op.getIsCausal() ? 1 : range.min.value_or(1);
  TileHeights heights = tileHeights(least, op.getIsCausal() ? -1 : range.max.value_or(-1), tileRows);
  Value zero = m.constant(0), one = m.constant(1);
  Value tiles = m.max(m.ceilDiv(block.keys, m.constant(tileRows)), one);
  EvenSplit split(m, block.keys, tiles);
  Value queries = scheduled("query_scratch"), panel = scheduled("score_scratch");
  Value accumulate = arith::ConstantOp::create(b, loc(), b.getBoolAttr(bool(op.getMask())));
  Value hidden = constantVector(-std::numeric_limits<double>::infinity());

  // Distance of each query from the first key, to compare keys with.
  SmallVector<Value> queryIndex;
  auto indexVector = VectorType::get({lanes()}, b.getI32Type());
  if (op.getIsCausal())
    for (int64_t v = 0; v < block.vectors; ++v) {
      SmallVector<int32_t> steps;
      for (int64_t i = 0; i < lanes(); ++i)
        steps.push_back(v * lanes() + i);
      Value first = arith::IndexCastOp::create(b, loc(), b.getI32Type(), block.first);
      queryIndex.push_back(
          arith::AddIOp::create(b, loc(), vector::BroadcastOp::create(b, loc(), indexVector, first),
                                arith::ConstantOp::create(b, loc(), DenseIntElementsAttr::get(indexVector, steps))));
    }

  SmallVector<Value> lowest(block.vectors, hidden);
  return emitFor(b, loc(), zero, tiles, one, lowest, [&](Value tile, ValueRange carried) {
    PointEmitter::Scope scope(points);
    Value start = split.start(m, tile), rows = split.size(m, tile);
    Value to = m.advance(panel, m.mul(start, rowBytes(block)));
    callMicroKernel(b, loc(), spec, heights, m.i64(rows), m.advance(keys.ptr, m.mul(start, keys.rowBytes)),
                    m.i64(keys.rowBytes), m.i64(keys.columnBytes), queries, m.i64(points.expr(dims.back())), to,
                    accumulate);
    return emitFor(b, loc(), zero, rows, one, carried, [&](Value r, ValueRange maxima) {
      SmallVector<Value> next;
      Value row = m.advance(to, m.mul(r, rowBytes(block)));
      for (int64_t v = 0; v < block.vectors; ++v) {
        Value x = load(row, v);
        if (op.getIsCausal()) {
          Value key = arith::IndexCastOp::create(b, loc(), b.getI32Type(), m.add(start, r));
          Value seen = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::sge, queryIndex[v],
                                             vector::BroadcastOp::create(b, loc(), indexVector, key));
          x = arith::SelectOp::create(b, loc(), seen, x, hidden);
          store(x, row, v);
        }
        Value larger = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::OGT, x, maxima[v]);
        next.push_back(arith::SelectOp::create(b, loc(), larger, x, maxima[v]));
      }
      return next;
    });
  });
}

/// Replaces the scores by exp(score - maximum) and adds them up for each query.
SmallVector<Value> AttentionEmitter::exponentials(const Block &block, ArrayRef<Value> maxima) {
  Value hidden = constantVector(-std::numeric_limits<double>::infinity()), zero = constantVector(0.0);
  SmallVector<Value> shifts, sums(block.vectors, zero);
  for (Value maximum : maxima) {
    // Without any key to see, exp(-inf - 0) = 0 everywhere.
    Value none = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::OEQ, maximum, hidden);
    shifts.push_back(arith::SelectOp::create(b, loc(), none, zero, maximum));
  }
  Value panel = scheduled("score_scratch");
  return emitFor(b, loc(), m.constant(0), block.keys, m.constant(1), sums, [&](Value s, ValueRange carried) {
    Value row = m.advance(panel, m.mul(s, rowBytes(block)));
    SmallVector<Value> next;
    for (int64_t v = 0; v < block.vectors; ++v) {
      Value x = math::ExpOp::create(b, loc(), arith::SubFOp::create(b, loc(), load(row, v), shifts[v]));
      store(x, row, v);
      next.push_back(arith::AddFOp::create(b, loc(), carried[v], x));
    }
    return next;
  });
}

/// Products of values and weights: columns of the values by queries.
void AttentionEmitter::weigh(const Block &block, const Matrix &values) {
  MicroKernelSpec spec{getElementTypeOrSelf(op.getValue().getType()), sumType, sumType, lanes(), block.vectors};
  ShapeAnalysis::Range range = e.shapes.range(valueSize);
  TileHeights heights = tileHeights(range.min.value_or(1), range.max.value_or(-1), tileRows);
  Value size = points.expr(valueSize), one = m.constant(1);
  Value tiles = m.max(m.ceilDiv(size, m.constant(tileRows)), one);
  EvenSplit split(m, size, tiles);
  Value panel = scheduled("score_scratch"), out = scheduled("out_scratch");
  Value fresh = arith::ConstantOp::create(b, loc(), b.getBoolAttr(false));
  emitFor(b, loc(), m.constant(0), tiles, one, {}, [&](Value tile, ValueRange) {
    Value start = split.start(m, tile), rows = split.size(m, tile);
    callMicroKernel(b, loc(), spec, heights, m.i64(rows), m.advance(values.ptr, m.mul(start, values.columnBytes)),
                    m.i64(values.columnBytes), m.i64(values.rowBytes), panel, m.i64(block.keys),
                    m.advance(out, m.mul(start, rowBytes(block))), fresh);
    return SmallVector<Value>();
  });
}

/// Divides by the sums, transposes back, and stores rows of the result.
LogicalResult AttentionEmitter::writeResult(const Block &block, ArrayRef<Value> sums) {
  Value zeros = constantVector(0.0), ones = constantVector(1.0);
  SmallVector<Value> inverses;
  for (Value sum : sums) {
    Value none = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::OEQ, sum, zeros);
    Value inverse = arith::DivFOp::create(b, loc(), ones, sum);
    inverses.push_back(arith::SelectOp::create(b, loc(), none, zeros, inverse));
  }
  Value out = scheduled("out_scratch"), size = points.expr(valueSize), queries = points.expr(dims[dims.size() - 2]);
  bool ok = true;
  // Square by square; the scratch has whole squares, what lies past the last column is not stored.
  auto squares = [&](Value column, bool cut) {
    Value mask = cut ? points.tailMask(m.sub(size, column)) : Value();
    for (int64_t v = 0; v < block.vectors; ++v) {
      SmallVector<Value> square;
      for (int64_t i = 0; i < lanes(); ++i) {
        Value row = m.advance(out, m.mul(m.add(column, m.constant(i)), rowBytes(block)));
        square.push_back(arith::MulFOp::create(b, loc(), load(row, v), inverses[v]));
      }
      square = lanes() > 1 ? transposeRegisters(b, loc(), square) : square;
      for (auto [i, row] : llvm::enumerate(square)) {
        Value query = m.add(block.first, m.constant(v * lanes() + i));
        auto exists = scf::IfOp::create(b, loc(), m.less(query, queries));
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToStart(&exists.getThenRegion().front());
        PointEmitter::Scope scope(points);
        ok &= succeeded(writeRow(block, query, column, row, mask));
      }
    }
  };
  Value whole = m.mul(m.div(size, m.constant(lanes())), lanes());
  emitFor(b, loc(), m.constant(0), whole, m.constant(lanes()), {}, [&](Value column, ValueRange) {
    PointEmitter::Scope scope(points);
    squares(column, false);
    return SmallVector<Value>();
  });
  if (!e.shapes.divisible(valueSize, lanes())) {
    auto tail = scf::IfOp::create(b, loc(), m.less(whole, size));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&tail.getThenRegion().front());
    PointEmitter::Scope scope(points);
    squares(whole, true);
  }
  return success(ok);
}

LogicalResult AttentionEmitter::writeRow(const Block &block, Value query, Value firstColumn, Value v, Value mask) {
  Type element = getElementTypeOrSelf(op.getResult().getType());
  if (element != sumType)
    v = arith::TruncFOp::create(b, loc(), points.vectorOf(element), v);
  SmallVector<Idx> at = point(block.batch, {points.uniform(query), Idx(firstColumn, /*lanes=*/true, 1, lanes())});
  points.bind(op.getResult(), [&](ArrayRef<Idx>, Value) { return v; });
  for (auto [i, yielded] : llvm::enumerate(e.kernel.getYield().getValues())) {
    FailureOr<SmallVector<Idx>> to = followResult(points, yielded, op.getResult(), at);
    if (failed(to))
      return e.kernel.emitError("result ") << i << " of an attention kernel does not follow from the attention";
    Value x = points.eval(yielded, *to, mask);
    if (!x || failed(points.store(i, *to, x, mask)))
      return failure();
  }
  points.unbind(op.getResult());
  return success();
}

} // namespace

LogicalResult disc::emitAttention(KernelEmission &e) {
  auto ops = e.kernel.getBody().front().getOps<AttentionOp>();
  if (ops.empty())
    return e.kernel.emitError("an attention kernel holds no attention");
  AttentionOp op = *ops.begin();
  Type element = getElementTypeOrSelf(op.getQuery().getType());
  Type sumType = element.getIntOrFloatBitWidth() < 32 ? Float32Type::get(op.getContext()) : element;
  return AttentionEmitter(e, op, sumType).emit();
}
