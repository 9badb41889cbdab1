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
//   for each block of keys (as many as suit the first-level cache):
//     P     = mask^T (if there is one)             keys x queries
//     P    += k . Q^T                                               product; k's rows in place
//     max'  = max(max, largest of P)                                vectors over queries
//     O^T, sums *= exp(max - max')                                  only if a maximum has grown
//     P     = exp(P - max'), sums += P
//     O^T  += v^T . P                              Ev x queries     product; v's columns in place, P is a panel
//   y   = (O^T / sums)^T                                            transposed in registers, stored through the layout
//
// A mask of keys is looked at first: it is not added where it hides nothing, and a run that it hides is left out.
// Neither keys nor values nor a mask that is shared by heads are ever copied, and scratch memory does not grow with
// the number of keys. Blocks of keys that no query of the task may see (`is_causal`) are not visited, and early blocks
// of queries, which see few keys, take turns with late ones. A query that sees no key gives zeros, as in PyTorch. With
// few queries lanes would be idle: EmitAttentionRows.cpp.
//
// Test: test/lit/CPU/attention.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/AttentionParts.h"
#include "lib/Target/CPU/MicroKernel.h"
#include "lib/Target/CPU/PackPanel.h"
#include "lib/Target/CPU/SoftmaxMath.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

namespace {

class AttentionBlocks : AttentionParts {
public:
  using AttentionParts::AttentionParts;
  LogicalResult emit();

private:
  /// One block of queries: `vectors` vectors of them from `first` on.
  struct Block {
    int64_t vectors;
    Value first, keys; // keys that any of the queries may see
    SmallVector<Value> batch;
  };
  /// A run of keys that is done at once.
  struct Keys {
    Value first, count;
    Value later;  // i1: there is a sum of earlier runs
    Value masked; // i1: the mask says something
  };
  /// What the softmax carries from one run of keys to the next, per vector of queries.
  struct Softmax {
    SmallVector<Value> maxima, sums;
  };

  int64_t longestRun() { return schedule().getKeys(); }
  Value flag(bool v) { return arith::ConstantOp::create(b, loc(), b.getBoolAttr(v)); }
  Value rowBytes(const Block &block) { return m.constant(block.vectors * lanes() * byteSize(sumType)); }
  Value load(Value row, int64_t vector) {
    return LLVM::LoadOp::create(b, loc(), vectorType(), vectorAt(row, vector), byteSize(sumType));
  }
  void store(Value v, Value row, int64_t vector) {
    LLVM::StoreOp::create(b, loc(), v, vectorAt(row, vector), byteSize(sumType));
  }
  Value vectorAt(Value row, int64_t vector) { return m.advance(row, m.constant(vector * lanes() * byteSize(sumType))); }

  LogicalResult emitBlock(const Block &block);
  LogicalResult fetchNextHead(Value head, Value index, Value blocks, ArrayRef<Value> batchSizes);
  LogicalResult packQueries(const Block &block);
  /// True for a mask that is the same for all queries of a head.
  bool masksKeys();
  LogicalResult lookAtMask(const Block &block, const Keys &run, Value &changes, Value &seen);
  LogicalResult writeMask(const Block &block, const Keys &run);
  SmallVector<Value> queryIndices(const Block &block);
  SmallVector<Value> scores(const Block &block, const Keys &run, const Matrix &keys, ArrayRef<Value> indices,
                            ArrayRef<Value> maxima);
  Value hideLater(Value x, Value key, Value queryIndex);
  SmallVector<Value> rescale(const Block &block, const Keys &run, const Softmax &old, ArrayRef<Value> maxima);
  SmallVector<Value> exponentials(const Block &block, const Keys &run, ArrayRef<Value> maxima, ArrayRef<Value> sums);
  void weigh(const Block &block, const Keys &run, const Matrix &values);
  LogicalResult writeResult(const Block &block, ArrayRef<Value> sums);

  int64_t tileRows = 1;
};

LogicalResult AttentionBlocks::emit() {
  tileRows = schedule().getRows();

  ArrayRef<SymExpr> batchDims = ArrayRef<SymExpr>(dims).drop_back(2);
  SmallVector<Value> batchSizes;
  for (const SymExpr &d : batchDims)
    batchSizes.push_back(points.expr(d));
  Value queries = points.expr(queryCount), width = m.constant(2 * lanes());
  Value blocks = m.ceilDiv(queries, width);
  ShapeAnalysis::Range range = e.shapes.range(queryCount);

  bool ok = true;
  emitFor(b, loc(), m.index(e.begin()), m.index(e.end()), m.constant(1), {}, [&](Value task, ValueRange) {
    PointEmitter::Scope scope(points);
    Block block;
    block.batch = m.delinearize(m.div(task, blocks), batchSizes);
    Value index = m.rem(task, blocks);
    if (op.getIsCausal()) {
      // First, last, second, last but one: any few neighbours see about as many keys.
      Value half = m.div(index, m.constant(2)), last = m.sub(m.sub(blocks, m.constant(1)), half);
      Value odd = m.equal(m.rem(index, m.constant(2)), m.constant(1));
      index = arith::SelectOp::create(b, loc(), odd, last, half);
    }
    block.first = m.mul(index, width);
    ok &= succeeded(fetchNextHead(m.div(task, blocks), m.rem(task, blocks), blocks, batchSizes));
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

/// Each task of a head asks for a part of the keys and values of the next head: rows of a few cache lines, far apart,
/// that the hardware would not foresee. The last head asks for nothing: what lies behind it may not be mapped, and
/// fetching from there is slow.
LogicalResult AttentionBlocks::fetchNextHead(Value head, Value index, Value blocks, ArrayRef<Value> batchSizes) {
  Value count = points.expr(keyCount), one = m.constant(1), heads = one, following = m.add(head, one);
  for (Value size : batchSizes)
    heads = m.mul(heads, size);
  SmallVector<Value> next = m.delinearize(following, batchSizes);
  Value from = m.div(m.mul(index, count), blocks), to = m.div(m.mul(m.add(index, one), count), blocks);
  to = arith::SelectOp::create(b, loc(), m.less(following, heads), to, from);
  for (auto [operand, size] : {std::pair(op.getKey(), depth), std::pair(op.getValue(), valueSize)}) {
    FailureOr<Matrix> matrix = this->matrix(operand, next);
    if (failed(matrix))
      return failure();
    Value bytes = m.mul(points.expr(size), byteSize(getElementTypeOrSelf(operand.getType())));
    emitFor(b, loc(), from, to, one, {}, [&](Value row, ValueRange) {
      Value start = m.advance(matrix->ptr, m.mul(row, matrix->rowBytes));
      emitFor(b, loc(), m.constant(0), bytes, m.constant(64), {}, [&](Value offset, ValueRange) {
        LLVM::Prefetch::create(b, loc(), m.advance(start, offset), /*rw=*/0, /*hint=*/2, /*cache=*/1);
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  }
  return success();
}

LogicalResult AttentionBlocks::emitBlock(const Block &block) {
  FailureOr<Matrix> keys = matrix(op.getKey(), block.batch), values = matrix(op.getValue(), block.batch);
  if (failed(keys) || failed(values) || failed(packQueries(block)))
    return failure();
  // Sizes of a product's tiles are even splits, so runs of keys are as well: the least tile is half a whole one.
  int64_t longest = longestRun();
  Value zero = m.constant(0), one = m.constant(1);
  Value runs = m.max(m.ceilDiv(block.keys, m.constant(longest)), one);
  EvenSplit split(m, block.keys, runs);
  SmallVector<Value> carried(block.vectors, minusInfinity());
  carried.append(block.vectors, constantVector(0.0));
  carried.push_back(flag(false)); // whether there are sums yet
  SmallVector<Value> indices = queryIndices(block);
  bool ok = true;
  carried = emitFor(b, loc(), zero, runs, one, carried, [&](Value index, ValueRange in) {
    PointEmitter::Scope scope(points);
    Softmax old{SmallVector<Value>(in.take_front(block.vectors)),
                SmallVector<Value>(in.drop_front(block.vectors).drop_back())};
    Keys run{split.start(m, index), split.size(m, index), in.back(), flag(bool(op.getMask()))};
    auto attend = [&] {
      PointEmitter::Scope inner(points);
      SmallVector<Value> next = scores(block, run, *keys, indices, old.maxima);
      SmallVector<Value> sums = exponentials(block, run, next, rescale(block, run, old, next));
      weigh(block, run, *values);
      next.append(sums);
      next.push_back(flag(true));
      return next;
    };
    if (!masksKeys()) {
      if (op.getMask())
        ok &= succeeded(writeMask(block, run));
      return attend();
    }
    // The mask is the same for all queries: a look at it may save adding it, or the whole run.
    Value seen;
    ok &= succeeded(lookAtMask(block, run, run.masked, seen));
    return emitIf(b, loc(), seen, in, [&] {
      emitIf(b, loc(), run.masked, {}, [&] {
        PointEmitter::Scope inner(points);
        ok &= succeeded(writeMask(block, run));
        return SmallVector<Value>();
      });
      return attend();
    });
  });
  if (!ok)
    return failure();
  if (masksKeys()) {
    // Nothing was seen, so nothing was written.
    Value none = arith::XOrIOp::create(b, loc(), carried.back(), flag(true));
    emitIf(b, loc(), none, {}, [&] {
      Value out = scratchAt(schedule().getOutScratch()), nothing = constantVector(0.0);
      emitFor(b, loc(), zero, points.expr(valueSize), one, {}, [&](Value column, ValueRange) {
        for (int64_t v = 0; v < block.vectors; ++v)
          store(nothing, m.advance(out, m.mul(column, rowBytes(block))), v);
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  }
  return writeResult(block, ArrayRef<Value>(carried).drop_front(block.vectors).drop_back());
}

bool AttentionBlocks::masksKeys() {
  auto type = op.getMask() ? cast<RankedTensorType>(op.getMask().getType()) : RankedTensorType();
  return type && type.getDimSize(type.getRank() - 2) == 1 && type.getDimSize(type.getRank() - 1) != 1;
}

/// Whether a mask of keys changes any score of the run, and whether it leaves any key to see.
LogicalResult AttentionBlocks::lookAtMask(const Block &block, const Keys &run, Value &changes, Value &seen) {
  Value zero = m.constant(0), step = m.constant(lanes()), whole = m.mul(m.div(run.count, step), lanes());
  Value none =
      arith::ConstantOp::create(b, loc(), DenseElementsAttr::get(VectorType::get({lanes()}, b.getI1Type()), false));
  bool ok = true;
  auto look = [&](Value offset, Value tail, ValueRange in) {
    PointEmitter::Scope scope(points);
    Idx key(m.add(run.first, offset), /*lanes=*/true, 1, 1);
    Value x = points.eval(op.getMask(), maskPoint(block.batch, points.uniform(int64_t(0)), key), tail);
    ok &= bool(x);
    if (!x)
      return SmallVector<Value>(in);
    x = maskTerm(x);
    SmallVector<Value> next;
    for (auto [old, neutral] : llvm::zip(in, SmallVector<Value>{constantVector(0.0), minusInfinity()})) {
      Value differs = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::UNE, x, neutral);
      if (tail)
        differs = arith::AndIOp::create(b, loc(), differs, tail);
      next.push_back(arith::OrIOp::create(b, loc(), old, differs));
    }
    return next;
  };
  SmallVector<Value> found =
      emitFor(b, loc(), zero, whole, step, {none, none}, [&](Value o, ValueRange in) { return look(o, Value(), in); });
  found = emitIf(b, loc(), m.less(whole, run.count), found,
                 [&] { return look(whole, points.tailMask(m.sub(run.count, whole)), found); });
  changes = vector::ReductionOp::create(b, loc(), vector::CombiningKind::OR, found[0]);
  seen = vector::ReductionOp::create(b, loc(), vector::CombiningKind::OR, found[1]);
  return success(ok);
}

LogicalResult AttentionBlocks::packQueries(const Block &block) {
  PanelSource source{op.getQuery(), [&](Idx query, Idx column) { return point(block.batch, {query, column}); }};
  auto buffer = BufferOperand::get(e.kernel, op.getQuery(), e.shapes);
  source.depthContiguous = buffer && buffer->layout.strides.back().isConstant(1);
  Value scale = queryScale();
  source.transform = [&](Value v) -> Value { return arith::MulFOp::create(b, loc(), widen(v), scale); };
  return emitPanel(points, m, source, sumType, block.first, points.expr(queryCount), points.expr(depth), block.vectors,
                   e.shapes.divisible(queryCount, block.vectors * lanes()), scratchAt(schedule().getQueryScratch()));
}

/// Starts the scores from the mask: what is added, minus infinity where a boolean mask hides a key.
LogicalResult AttentionBlocks::writeMask(const Block &block, const Keys &run) {
  auto type = cast<RankedTensorType>(op.getMask().getType());
  PanelSource source{op.getMask(), [&](Idx query, Idx key) {
                       return maskPoint(block.batch, query, points.addIdx(key, points.uniform(run.first)));
                     }};
  // Memory that runs along the keys is read along them, unless all queries share it.
  auto buffer = BufferOperand::get(e.kernel, op.getMask(), e.shapes);
  unsigned rank = type.getRank();
  source.depthContiguous = buffer && buffer->layout.strides.back().isConstant(1) && type.getDimSize(rank - 2) != 1 &&
                           type.getDimSize(rank - 1) != 1;
  source.transform = [&](Value v) -> Value { return maskTerm(v); };
  return emitPanel(points, m, source, sumType, block.first, points.expr(queryCount), run.count, block.vectors,
                   e.shapes.divisible(queryCount, block.vectors * lanes()), scratchAt(schedule().getScoreScratch()));
}

/// With `is_causal`, the position of each query, to compare keys with.
SmallVector<Value> AttentionBlocks::queryIndices(const Block &block) {
  SmallVector<Value> indices;
  auto type = VectorType::get({lanes()}, b.getI32Type());
  for (int64_t v = 0; op.getIsCausal() && v < block.vectors; ++v) {
    SmallVector<int32_t> steps;
    for (int64_t i = 0; i < lanes(); ++i)
      steps.push_back(v * lanes() + i);
    Value first = arith::IndexCastOp::create(b, loc(), b.getI32Type(), block.first);
    indices.push_back(
        arith::AddIOp::create(b, loc(), vector::BroadcastOp::create(b, loc(), type, first),
                              arith::ConstantOp::create(b, loc(), DenseIntElementsAttr::get(type, steps))));
  }
  return indices;
}

/// The score of a key, or minus infinity for queries before it.
Value AttentionBlocks::hideLater(Value x, Value key, Value queryIndex) {
  Value index = arith::IndexCastOp::create(b, loc(), b.getI32Type(), key);
  Value seen = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::sge, queryIndex,
                                     vector::BroadcastOp::create(b, loc(), queryIndex.getType(), index));
  return arith::SelectOp::create(b, loc(), seen, x, minusInfinity());
}

/// Products of keys and queries; gives the largest so far of each query.
SmallVector<Value> AttentionBlocks::scores(const Block &block, const Keys &run, const Matrix &keys,
                                           ArrayRef<Value> indices, ArrayRef<Value> maxima) {
  MicroKernelSpec spec{getElementTypeOrSelf(op.getKey().getType()), sumType, sumType, lanes(), block.vectors};
  // Tiles divide a run, not all keys: with more than one run its size is another, or not known.
  ShapeAnalysis::Range range = e.shapes.range(keyCount);
  int64_t least = op.getIsCausal() ? 1 : range.min.value_or(1), most = op.getIsCausal() ? -1 : range.max.value_or(-1);
  if (int64_t longest = longestRun(); most > longest) {
    int64_t runs = llvm::divideCeil(most, longest);
    bool known = least == most;
    least = known ? most / runs : std::min(least, longest / 2);
    most = known ? int64_t(llvm::divideCeil(most, runs)) : -1;
  }
  TileHeights heights = tileHeights(least, most, tileRows);
  Value zero = m.constant(0), one = m.constant(1);
  Value tiles = m.max(m.ceilDiv(run.count, m.constant(tileRows)), one);
  EvenSplit split(m, run.count, tiles);
  Value queries = scratchAt(schedule().getQueryScratch()), panel = scratchAt(schedule().getScoreScratch());

  return emitFor(b, loc(), zero, tiles, one, maxima, [&](Value tile, ValueRange carried) {
    PointEmitter::Scope scope(points);
    Value start = split.start(m, tile), rows = split.size(m, tile), key = m.add(run.first, start);
    Value to = m.advance(panel, m.mul(start, rowBytes(block)));
    callMicroKernel(b, loc(), spec, heights, m.i64(rows), m.advance(keys.ptr, m.mul(key, keys.rowBytes)),
                    m.i64(keys.rowBytes), m.i64(keys.columnBytes), queries, m.i64(points.expr(depth)), to, run.masked);
    if (op.getIsCausal()) {
      // Keys up to the block's first query are seen by all of it.
      auto hides = scf::IfOp::create(b, loc(), m.less(block.first, m.add(key, rows)));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(&hides.getThenRegion().front());
      emitFor(b, loc(), zero, rows, one, {}, [&](Value r, ValueRange) {
        Value row = m.advance(to, m.mul(r, rowBytes(block)));
        for (int64_t v = 0; v < block.vectors; ++v)
          store(hideLater(load(row, v), m.add(key, r), indices[v]), row, v);
        return SmallVector<Value>();
      });
    }
    return emitFor(b, loc(), zero, rows, one, carried, [&](Value r, ValueRange old) {
      SmallVector<Value> next;
      Value row = m.advance(to, m.mul(r, rowBytes(block)));
      for (int64_t v = 0; v < block.vectors; ++v)
        next.push_back(larger(b, loc(), load(row, v), old[v]));
      return next;
    });
  });
}

/// The sums, and the products of earlier keys, in terms of the new maxima.
SmallVector<Value> AttentionBlocks::rescale(const Block &block, const Keys &run, const Softmax &old,
                                            ArrayRef<Value> maxima) {
  Value grown;
  for (auto [before, now] : llvm::zip_equal(old.maxima, maxima)) {
    Value differs = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::OLT, before, now);
    grown = grown ? arith::OrIOp::create(b, loc(), grown, differs).getResult() : differs;
  }
  Value any = vector::ReductionOp::create(b, loc(), vector::CombiningKind::OR, grown);
  any = arith::AndIOp::create(b, loc(), any, run.later);
  return emitIf(b, loc(), any, old.sums, [&] {
    SmallVector<Value> factors, sums;
    for (auto [before, now, sum] : llvm::zip_equal(old.maxima, maxima, old.sums)) {
      factors.push_back(expOfDifference(b, loc(), before, finiteShift(b, loc(), now)));
      sums.push_back(arith::MulFOp::create(b, loc(), sum, factors.back()));
    }
    Value out = scratchAt(schedule().getOutScratch());
    emitFor(b, loc(), m.constant(0), points.expr(valueSize), m.constant(1), {}, [&](Value column, ValueRange) {
      Value row = m.advance(out, m.mul(column, rowBytes(block)));
      for (int64_t v = 0; v < block.vectors; ++v)
        store(arith::MulFOp::create(b, loc(), load(row, v), factors[v]), row, v);
      return SmallVector<Value>();
    });
    return sums;
  });
}

/// Replaces the scores by exp(score - maximum) and adds them to the sum of each query.
SmallVector<Value> AttentionBlocks::exponentials(const Block &block, const Keys &run, ArrayRef<Value> maxima,
                                                 ArrayRef<Value> sums) {
  SmallVector<Value> shifts;
  for (Value maximum : maxima)
    shifts.push_back(finiteShift(b, loc(), maximum));
  Value panel = scratchAt(schedule().getScoreScratch());
  // A run has sums of its own, so that the error does not grow with the number of keys.
  SmallVector<Value> own(sums.size(), constantVector(0.0));
  own = emitFor(b, loc(), m.constant(0), run.count, m.constant(1), own, [&](Value s, ValueRange carried) {
    Value row = m.advance(panel, m.mul(s, rowBytes(block)));
    SmallVector<Value> next;
    for (int64_t v = 0; v < block.vectors; ++v) {
      Value x = expOfDifference(b, loc(), load(row, v), shifts[v]);
      store(x, row, v);
      next.push_back(arith::AddFOp::create(b, loc(), carried[v], x));
    }
    return next;
  });
  for (auto [sum, before] : llvm::zip_equal(own, sums))
    sum = arith::AddFOp::create(b, loc(), before, sum);
  return own;
}

/// Products of values and weights: columns of the values by queries.
void AttentionBlocks::weigh(const Block &block, const Keys &run, const Matrix &values) {
  MicroKernelSpec spec{getElementTypeOrSelf(op.getValue().getType()), sumType, sumType, lanes(), block.vectors};
  ShapeAnalysis::Range range = e.shapes.range(valueSize);
  TileHeights heights = tileHeights(range.min.value_or(1), range.max.value_or(-1), tileRows);
  Value size = points.expr(valueSize), one = m.constant(1);
  Value tiles = m.max(m.ceilDiv(size, m.constant(tileRows)), one);
  EvenSplit split(m, size, tiles);
  Value panel = scratchAt(schedule().getScoreScratch()), out = scratchAt(schedule().getOutScratch());
  Value from = m.advance(values.ptr, m.mul(run.first, values.rowBytes));
  emitFor(b, loc(), m.constant(0), tiles, one, {}, [&](Value tile, ValueRange) {
    Value start = split.start(m, tile), rows = split.size(m, tile);
    callMicroKernel(b, loc(), spec, heights, m.i64(rows), m.advance(from, m.mul(start, values.columnBytes)),
                    m.i64(values.columnBytes), m.i64(values.rowBytes), panel, m.i64(run.count),
                    m.advance(out, m.mul(start, rowBytes(block))), run.later);
    return SmallVector<Value>();
  });
}

/// Divides by the sums, transposes back, and stores rows of the result.
LogicalResult AttentionBlocks::writeResult(const Block &block, ArrayRef<Value> sums) {
  SmallVector<Value> inverses;
  for (Value sum : sums)
    inverses.push_back(inverseOf(sum));
  Value out = scratchAt(schedule().getOutScratch()), size = points.expr(valueSize), queries = points.expr(queryCount);
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
        ok &= succeeded(writeRow(block.batch, query, column, row, mask));
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

} // namespace

LogicalResult disc::emitAttention(KernelEmission &e) {
  auto ops = e.kernel.getBody().front().getOps<AttentionOp>();
  if (ops.empty())
    return e.kernel.emitError("an attention kernel holds no attention");
  AttentionOp op = *ops.begin();
  Type element = getElementTypeOrSelf(op.getQuery().getType());
  Type sumType = element.getIntOrFloatBitWidth() < 32 ? Float32Type::get(op.getContext()) : element;
  PointEmitter points(e.builder, e.kernel, e.args(), e.vectorBits / sumType.getIntOrFloatBitWidth(), e.shapes);
  AttentionBlocks blocks(e, op, points, sumType);
  FewQueriesAttr fewQueries = e.schedule<AttentionScheduleAttr>().getFew();
  if (!fewQueries)
    return blocks.emit();
  int64_t few = fewQueries.getQueries();
  SmallVector<SymExpr> dims = e.shapes.dims(op.getQuery());
  SymExpr count = dims[dims.size() - 2];
  ShapeAnalysis::Range range = e.shapes.range(count);
  if (range.max && *range.max <= few)
    return emitAttentionRows(e, op, points, sumType);
  IndexMath m{e.builder, e.kernel.getLoc()};
  auto either =
      scf::IfOp::create(e.builder, m.loc, m.less(m.constant(few), points.expr(count)), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(e.builder);
  bool ok = true;
  for (bool many : {true, false}) {
    e.builder.setInsertionPointToStart(&(many ? either.getThenRegion() : either.getElseRegion()).front());
    PointEmitter::Scope scope(points);
    ok &= succeeded(many ? blocks.emit() : emitAttentionRows(e, op, points, sumType));
  }
  return success(ok);
}
