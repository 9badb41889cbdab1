//===- EmitAttentionRows.cpp - attention of few queries -------------------===//
//
// What a decoder does to take a step: one query, or a few, of each head against all the keys so far. Lanes along the
// queries would be idle and keys come from memory once, so that the time is that of reading them. A task takes all
// queries that share one head of keys and values, those of grouped heads included (`rows` of them), and each run of
// keys, while it is in the first-level cache, goes through
//
//   P[row][key]   = q[row] . k[key]          lanes along the head's size; as many sums as lanes, added up by a tree of
//                                            shuffles that leaves each sum in a lane of its own
//   P[row][:]     = exp(P + mask - max)      lanes along the keys, a tail under a mask
//   O[row][:]    += P[row][key] * v[key][:]  lanes along the columns of the values
//
// for 4, 2 or 1 rows at a time: whatever is loaded of keys and values serves all of them. Maxima, sums and O are
// rescaled as in EmitAttention.cpp.
//
// Where the kernel also appends a row to keys and values (a concatenation), it reads the parts one after the other, and
// writes each run to the longer tensor when it has come from memory, past the caches if the tensor is large.
//
// Test: test/lit/CPU/attention-rows.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/AttentionParts.h"
#include "lib/Target/CPU/SoftmaxMath.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/SmallBitVector.h"
#include <limits>

using namespace mlir;
using namespace mlir::disc;

namespace {

class AttentionRows : AttentionParts {
public:
  using AttentionParts::AttentionParts;
  LogicalResult emit();

private:
  /// A run of keys that is done at once: `first` of the head's, and how many.
  struct Keys {
    Value first, count;
    Value position; // of the first one among all keys, if these are in several parts
  };
  /// Keys or values: parts that follow each other, mostly one, and where they are to be written together.
  struct Source {
    SmallVector<Matrix> parts;
    SmallVector<Value> counts;
    std::optional<Matrix> joined;
    Type element;
    SymExpr size;
  };
  /// Where a row's query stands.
  struct Row {
    SmallVector<Value> batch;
    Value query;
  };

  LogicalResult emitHead(Value task);
  FailureOr<Source> source(Value operand, const SymExpr &size);
  void appendRun(const Source &source, const Matrix &from, const Keys &run);
  Row rowAt(Value row);
  LogicalResult loadQueries();
  void multiplyKeys(const Keys &run, Value row, int64_t rows);
  SmallVector<Value> keySums(ArrayRef<Value> pointers, Value row, int64_t rows);
  Value addAcross(SmallVector<Value> vectors);
  LogicalResult softmax(const Keys &run, Value row);
  FailureOr<Value> masked(const Keys &run, const Row &at, Value offset, Value x, Value tail);
  void multiplyValues(const Keys &run, Value row, int64_t rows);
  void multiplyColumns(const Keys &run, Value row, int64_t rows, Value column, int64_t vectors, Value mask);
  LogicalResult writeResults();

  /// `body(row, count)` for all rows, 4, 2 or 1 at a time.
  void forRows(function_ref<void(Value, int64_t)> body);

  FewQueriesAttr few() { return schedule().getFew(); }

  //===--- scratch memory, in elements of sums -------------------------------===//
  Value at(Value base, Value element) { return m.advance(base, m.mul(element, byteSize(sumType))); }
  Value queryAt(Value row, Value column) {
    return at(scratchAt(few().getQueryScratch()), m.add(m.mul(row, points.expr(paddedDepth)), column));
  }
  Value scoreAt(Value row, Value key) {
    return at(scratchAt(few().getScoreScratch()), m.add(m.mul(row, longest), key));
  }
  Value outAt(Value row, Value column) {
    return at(scratchAt(few().getResultScratch()), m.add(m.mul(row, points.expr(paddedSize)), column));
  }
  Value statAt(Value row, int64_t which) {
    return at(scratchAt(few().getStatScratch()), m.add(m.mul(row, 2), m.constant(which)));
  }
  Value load(Type type, Value ptr) { return LLVM::LoadOp::create(b, loc(), type, ptr, byteSize(sumType)); }
  void store(Value v, Value ptr) { LLVM::StoreOp::create(b, loc(), v, ptr, byteSize(sumType)); }
  int64_t vectorBytes() { return lanes() * byteSize(sumType); }
  Value splat(Value v) { return vector::BroadcastOp::create(b, loc(), vectorType(), v); }
  /// A vector of keys or values, widened; lanes off under `mask` are zeros.
  Value loadWide(Value ptr, Type element, Value mask) {
    return widen(points.load(ptr, Idx(m.constant(0), /*lanes=*/true, 1, lanes()), element, mask));
  }
  /// `body` under a condition that may be known.
  void when(Value condition, function_ref<void()> body) {
    emitIf(b, loc(), condition, {}, [&] {
      PointEmitter::Scope scope(points);
      body();
      return SmallVector<Value>();
    });
  }

  SmallVector<unsigned> ownDims, sharedDims; // of the batch; those whose coordinates choose keys, and the others
  SmallVector<Value> headCoordinates;        // one per batch dimension, zero where shared
  Value rowCount;
  SymExpr rows, paddedDepth, paddedSize;
  int64_t longest = 0;
  Matrix keys, values;
};

LogicalResult AttentionRows::emit() {
  llvm::SmallBitVector isShared(dims.size());
  for (int64_t d : few().getSharedDims().asArrayRef()) {
    if (d + 2 >= int64_t(dims.size()))
      return e.kernel.emitError() << "'shared_dims' has " << d << ", which is no dimension of the batch";
    isShared.set(d);
  }
  rows = queryCount;
  for (unsigned d = 0; d + 2 < dims.size(); ++d) {
    (isShared[d] ? sharedDims : ownDims).push_back(d);
    if (isShared[d])
      rows *= dims[d];
  }
  auto padded = [&](const SymExpr &size) { return SymExpr::ceilDiv(size, SymExpr(lanes())) * SymExpr(lanes()); };
  paddedDepth = padded(depth), paddedSize = padded(valueSize);
  longest = few().getKeys();
  rowCount = points.expr(rows);

  bool ok = true;
  emitFor(b, loc(), m.index(e.begin()), m.index(e.end()), m.constant(1), {}, [&](Value task, ValueRange) {
    PointEmitter::Scope scope(points);
    ok &= succeeded(emitHead(task));
    return SmallVector<Value>();
  });
  // Stores past the caches are not ordered by what tells other threads that this one is done.
  if (joinedRows(op.getKey(), e.shapes))
    LLVM::FenceOp::create(b, loc(), LLVM::AtomicOrdering::seq_cst);
  return success(ok);
}

LogicalResult AttentionRows::emitHead(Value task) {
  SmallVector<Value> extents;
  for (unsigned d : ownDims)
    extents.push_back(points.expr(dims[d]));
  headCoordinates.assign(dims.size() - 2, m.constant(0));
  for (auto [d, coordinate] : llvm::zip(ownDims, m.delinearize(task, extents)))
    headCoordinates[d] = coordinate;
  FailureOr<Source> k = source(op.getKey(), depth), v = source(op.getValue(), valueSize);
  if (failed(k) || failed(v) || failed(loadQueries()))
    return failure();
  if (k->parts.size() != v->parts.size())
    return op.emitError("keys and values must be joined from as many parts");

  Value zero = m.constant(0), one = m.constant(1), count = points.expr(keyCount);
  if (op.getIsCausal())
    count = m.min(count, points.expr(queryCount)); // none sees more
  Value scalarZero = arith::ConstantOp::create(b, loc(), b.getFloatAttr(sumType, 0.0));
  Value lowest = arith::ConstantOp::create(b, loc(), b.getFloatAttr(sumType, -std::numeric_limits<double>::infinity()));
  emitFor(b, loc(), zero, rowCount, one, {}, [&](Value row, ValueRange) {
    store(lowest, statAt(row, 0));
    store(scalarZero, statAt(row, 1));
    emitFor(b, loc(), zero, points.expr(paddedSize), m.constant(lanes()), {}, [&](Value column, ValueRange) {
      store(constantVector(0.0), outAt(row, column));
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });

  bool ok = true;
  auto part = [&](Value position, Value rows) {
    emitFor(b, loc(), zero, rows, m.constant(longest), {}, [&](Value first, ValueRange) {
      PointEmitter::Scope scope(points);
      Keys run{first, m.min(m.constant(longest), m.sub(rows, first)), m.add(position, first)};
      appendRun(*k, keys, run);
      appendRun(*v, values, run);
      forRows([&](Value row, int64_t n) { multiplyKeys(run, row, n); });
      emitFor(b, loc(), zero, rowCount, one, {}, [&](Value row, ValueRange) {
        PointEmitter::Scope inner(points);
        ok &= succeeded(softmax(run, row));
        return SmallVector<Value>();
      });
      forRows([&](Value row, int64_t n) { multiplyValues(run, row, n); });
      return SmallVector<Value>();
    });
  };
  if (k->parts.size() == 1) {
    keys = k->parts[0], values = v->parts[0];
    part(zero, count);
    return success(ok && succeeded(writeResults()));
  }
  // One loop over the parts, so that there is one copy of the code.
  auto parts = m.constant(k->parts.size());
  emitFor(b, loc(), zero, parts, one, {zero}, [&](Value index, ValueRange in) {
    PointEmitter::Scope scope(points);
    Value rows = k->counts[0];
    keys = k->parts[0], values = v->parts[0];
    for (size_t i = 1; i < k->parts.size(); ++i) {
      Value here = m.equal(index, m.constant(i));
      auto choose = [&](Value &old, Value now) { old = arith::SelectOp::create(b, loc(), here, now, old); };
      choose(rows, k->counts[i]);
      for (auto [now, then] : {std::pair(&keys, &k->parts[i]), std::pair(&values, &v->parts[i])}) {
        choose(now->ptr, then->ptr);
        choose(now->rowBytes, then->rowBytes);
      }
    }
    part(in[0], rows);
    return SmallVector<Value>{m.add(in[0], rows)};
  });
  return success(ok && succeeded(writeResults()));
}

FailureOr<AttentionRows::Source> AttentionRows::source(Value operand, const SymExpr &size) {
  Source out;
  out.element = getElementTypeOrSelf(operand.getType());
  out.size = size;
  std::optional<JoinedRows> rows = joinedRows(operand, e.shapes);
  if (!rows) {
    FailureOr<Matrix> whole = matrix(operand, headCoordinates);
    if (failed(whole))
      return failure();
    out.parts.push_back(*whole);
    return out;
  }
  for (Value input : rows->concat.getInputs()) {
    auto buffer = BufferOperand::get(e.kernel, input, e.shapes);
    SmallVector<SymExpr> extents = e.shapes.dims(input);
    SymExpr count = extents[extents.size() - 2];
    auto layout = buffer ? rows->through(buffer->layout, count, e.shapes) : std::nullopt;
    if (!layout)
      return op.emitError("parts of keys and values must be in buffers");
    out.parts.push_back(matrix(points.operandPtr(buffer->argument), *layout, out.element, headCoordinates));
    out.counts.push_back(points.expr(count));
  }
  for (auto [i, yielded] : llvm::enumerate(e.kernel.getYield().getValues()))
    if (yielded == rows->concat.getResult()) {
      auto layout = rows->through(Layout::get(e.kernel.getLayout(e.kernel.getNumInputs() + i)), keyCount, e.shapes);
      if (!layout)
        return op.emitError("joined keys and values have no strided layout");
      out.joined = matrix(points.resultPtr(i), *layout, out.element, headCoordinates);
    }
  return out;
}

/// Writes a run where it belongs among all keys.
void AttentionRows::appendRun(const Source &source, const Matrix &from, const Keys &run) {
  if (!source.joined)
    return;
  Value start = m.advance(source.joined->ptr, m.mul(run.position, source.joined->rowBytes));
  Value size = points.expr(source.size), whole = m.mul(m.div(size, m.constant(lanes())), lanes());
  auto copy = [&](bool pastCaches) {
    emitFor(b, loc(), m.constant(0), run.count, m.constant(1), {}, [&](Value row, ValueRange) {
      PointEmitter::Scope scope(points);
      Value origin = m.advance(from.ptr, m.mul(m.add(run.first, row), from.rowBytes));
      Value target = m.advance(start, m.mul(row, source.joined->rowBytes));
      emitFor(b, loc(), m.constant(0), whole, m.constant(lanes()), {}, [&](Value column, ValueRange) {
        Idx at(column, /*lanes=*/true, 1, lanes());
        if (!pastCaches) {
          points.store(target, at, points.load(origin, at, source.element));
          return SmallVector<Value>();
        }
        Value offset = m.mul(column, byteSize(source.element));
        Value x = LLVM::LoadOp::create(b, loc(), vectorType(), m.advance(origin, offset), byteSize(source.element));
        LLVM::StoreOp::create(b, loc(), x, m.advance(target, offset), vectorBytes(), /*isVolatile=*/false,
                              /*isNonTemporal=*/true);
        return SmallVector<Value>();
      });
      if (!e.shapes.divisible(source.size, lanes()))
        when(m.less(whole, size), [&] {
          Value mask = points.tailMask(m.sub(size, whole));
          Idx at(whole, /*lanes=*/true, 1, lanes());
          points.store(target, at, points.load(origin, at, source.element, mask), mask);
        });
      return SmallVector<Value>();
    });
  };
  // Only whole vectors at their alignment can go past the caches.
  if (source.element != sumType || !e.shapes.divisible(source.size, lanes())) {
    copy(false);
    return;
  }
  Value address = LLVM::PtrToIntOp::create(b, loc(), b.getI64Type(), start);
  Value bits = arith::OrIOp::create(b, loc(), address, m.i64(source.joined->rowBytes));
  Value low = arith::AndIOp::create(b, loc(), bits,
                                    arith::ConstantOp::create(b, loc(), b.getI64IntegerAttr(vectorBytes() - 1)));
  Value aligned = m.equal(m.index(low), m.constant(0));
  SymExpr bytes = keyCount * source.size * SymExpr(byteSize(source.element));
  for (unsigned d : ownDims)
    bytes = bytes * dims[d];
  Value large = m.less(m.constant(few().getLarge()), points.expr(bytes));
  auto either = scf::IfOp::create(b, loc(), arith::AndIOp::create(b, loc(), aligned, large), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (bool past : {true, false}) {
    b.setInsertionPointToStart(&(past ? either.getThenRegion() : either.getElseRegion()).front());
    PointEmitter::Scope scope(points);
    copy(past);
  }
}

void AttentionRows::forRows(function_ref<void(Value, int64_t)> body) {
  // Vectors of one key are split evenly between the rows, so no more rows than lanes.
  Value from = m.constant(0);
  int64_t known = rows.isConstant() ? rows.constant() : 0;
  for (int64_t n : {4, 2, 1}) {
    if (n > lanes() || (known && known < n))
      continue;
    Value to = m.mul(m.div(rowCount, m.constant(n)), n);
    emitFor(b, loc(), from, to, m.constant(n), {}, [&](Value row, ValueRange) {
      PointEmitter::Scope scope(points);
      body(row, n);
      return SmallVector<Value>();
    });
    if (known && known % n == 0)
      return;
    from = to;
  }
}

AttentionRows::Row AttentionRows::rowAt(Value row) {
  SmallVector<Value> extents;
  for (unsigned d : sharedDims)
    extents.push_back(points.expr(dims[d]));
  extents.push_back(points.expr(queryCount));
  SmallVector<Value> coordinates = m.delinearize(row, extents);
  Row at{headCoordinates, coordinates.back()};
  for (auto [d, coordinate] : llvm::zip(sharedDims, coordinates))
    at.batch[d] = coordinate;
  return at;
}

/// Scaled queries, one row after the other, with zeros up to a whole vector.
LogicalResult AttentionRows::loadQueries() {
  Value scale = queryScale(), size = points.expr(depth);
  bool ok = true;
  emitFor(b, loc(), m.constant(0), rowCount, m.constant(1), {}, [&](Value row, ValueRange) {
    PointEmitter::Scope scope(points);
    Row at = rowAt(row);
    emitFor(b, loc(), m.constant(0), size, m.constant(lanes()), {}, [&](Value column, ValueRange) {
      PointEmitter::Scope inner(points);
      bool whole = e.shapes.divisible(depth, lanes());
      Value mask = whole ? Value() : points.tailMask(m.min(m.sub(size, column), m.constant(lanes())));
      Value x = points.eval(op.getQuery(),
                            point(at.batch, {points.uniform(at.query), Idx(column, /*lanes=*/true, 1, lanes())}), mask);
      ok &= bool(x);
      if (!x)
        return SmallVector<Value>();
      x = arith::MulFOp::create(b, loc(), widen(points.splat(x)), scale);
      if (mask)
        x = arith::SelectOp::create(b, loc(), mask, x, constantVector(0.0));
      store(x, queryAt(row, column));
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
  return success(ok);
}

//===--- scores ----------------------------------------------------------------===//

/// Sums over the depth of `rows` rows times the keys at `pointers`, row by row, each spread over a vector.
SmallVector<Value> AttentionRows::keySums(ArrayRef<Value> pointers, Value row, int64_t rows) {
  Type element = getElementTypeOrSelf(op.getKey().getType());
  SmallVector<Value> sums(lanes(), constantVector(0.0));
  auto step = [&](Value column, Value mask, ValueRange in) {
    SmallVector<Value> next(in), queries;
    for (int64_t i = 0; i < rows; ++i)
      queries.push_back(load(vectorType(), queryAt(m.add(row, m.constant(i)), column)));
    for (auto [j, pointer] : llvm::enumerate(pointers)) {
      Value key = loadWide(m.advance(pointer, m.mul(column, byteSize(element))), element, mask);
      for (int64_t i = 0; i < rows; ++i) {
        Value &sum = next[i * pointers.size() + j];
        sum = math::FmaOp::create(b, loc(), key, queries[i], sum);
      }
    }
    return next;
  };
  Value size = points.expr(depth), whole = m.mul(m.div(size, m.constant(lanes())), lanes());
  sums = emitFor(b, loc(), m.constant(0), whole, m.constant(lanes()), sums,
                 [&](Value column, ValueRange in) { return step(column, Value(), in); });
  if (e.shapes.divisible(depth, lanes()))
    return sums;
  return emitIf(b, loc(), m.less(whole, size), sums, [&] {
    PointEmitter::Scope scope(points);
    return step(whole, points.tailMask(m.sub(size, whole)), sums);
  });
}

/// The sum of vector i in lane i, for as many vectors as lanes.
Value AttentionRows::addAcross(SmallVector<Value> vectors) {
  int64_t n = lanes();
  // Each step folds vector i + d into vector i: lanes whose number has the bit d hold those of the former.
  for (int64_t d = n / 2; d >= 1; d /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t lane = 0; lane < n; ++lane) {
      low.push_back(lane & d ? n + lane - d : lane);
      high.push_back(lane & d ? n + lane : lane + d);
    }
    for (int64_t i = 0; i < d; ++i)
      vectors[i] = arith::AddFOp::create(b, loc(), vector::ShuffleOp::create(b, loc(), vectors[i], vectors[i + d], low),
                                         vector::ShuffleOp::create(b, loc(), vectors[i], vectors[i + d], high));
  }
  return vectors[0];
}

void AttentionRows::multiplyKeys(const Keys &run, Value row, int64_t rows) {
  int64_t each = lanes() / rows; // keys at a time
  Value whole = m.mul(m.div(run.count, m.constant(each)), each);
  auto group = [&](Value key, bool cut) {
    SmallVector<Value> pointers;
    Value last = m.sub(run.count, m.constant(1));
    for (int64_t j = 0; j < each; ++j) {
      // Past the last key it stands in; the softmax hides what that gives.
      Value from = m.add(key, m.constant(j));
      from = m.add(run.first, cut ? m.min(from, last) : from);
      pointers.push_back(m.advance(keys.ptr, m.mul(from, keys.rowBytes)));
    }
    Value scores = addAcross(keySums(pointers, row, rows));
    for (int64_t i = 0; i < rows; ++i) {
      Value part =
          rows == 1 ? scores : vector::ExtractStridedSliceOp::create(b, loc(), scores, {i * each}, {each}, {1});
      store(part, scoreAt(m.add(row, m.constant(i)), key));
    }
  };
  emitFor(b, loc(), m.constant(0), whole, m.constant(each), {}, [&](Value key, ValueRange) {
    PointEmitter::Scope scope(points);
    group(key, false);
    return SmallVector<Value>();
  });
  when(m.less(whole, run.count), [&] { group(whole, true); });
}

//===--- softmax ---------------------------------------------------------------===//

/// A vector of scores with what hides keys.
FailureOr<Value> AttentionRows::masked(const Keys &run, const Row &at, Value offset, Value x, Value tail) {
  Value key = m.add(run.position, offset);
  if (op.getMask()) {
    Value term =
        points.eval(op.getMask(), maskPoint(at.batch, points.uniform(at.query), Idx(key, /*lanes=*/true, 1, 1)), tail);
    if (!term)
      return failure();
    x = arith::AddFOp::create(b, loc(), x, maskTerm(term));
  }
  Value seen = tail;
  if (op.getIsCausal()) {
    // Keys up to the query: as many of these lanes as lie between.
    Value count = m.sub(m.add(at.query, m.constant(1)), key);
    Value before = points.tailMask(m.max(m.min(count, m.constant(lanes())), m.constant(0)));
    seen = seen ? arith::AndIOp::create(b, loc(), seen, before).getResult() : before;
  }
  return seen ? arith::SelectOp::create(b, loc(), seen, x, minusInfinity()).getResult() : x;
}

LogicalResult AttentionRows::softmax(const Keys &run, Value row) {
  Row at = rowAt(row);
  Value zero = m.constant(0), step = m.constant(lanes());
  Value whole = m.mul(m.div(run.count, step), lanes());
  bool ok = true;
  auto largest = [&](Value offset, Value tail, Value old) {
    Value ptr = scoreAt(row, offset);
    FailureOr<Value> x = masked(run, at, offset, load(vectorType(), ptr), tail);
    ok &= succeeded(x);
    if (failed(x))
      return old;
    if (tail || op.getMask() || op.getIsCausal())
      store(*x, ptr);
    return larger(b, loc(), *x, old);
  };
  Value most = emitFor(b, loc(), zero, whole, step, {minusInfinity()}, [&](Value offset, ValueRange in) {
    PointEmitter::Scope scope(points);
    return SmallVector<Value>{largest(offset, Value(), in[0])};
  })[0];
  most = emitIf(b, loc(), m.less(whole, run.count), {most}, [&] {
    PointEmitter::Scope scope(points);
    return SmallVector<Value>{largest(whole, points.tailMask(m.sub(run.count, whole)), most)};
  })[0];
  if (!ok)
    return failure();

  Value before = load(sumType, statAt(row, 0));
  Value now = vector::ReductionOp::create(b, loc(), vector::CombiningKind::MAXNUMF, most);
  Value grown = arith::CmpFOp::create(b, loc(), arith::CmpFPredicate::OLT, before, now);
  now = arith::SelectOp::create(b, loc(), grown, now, before);
  Value shift = finiteShift(b, loc(), splat(now));
  Value sums = emitFor(b, loc(), zero, run.count, step, {constantVector(0.0)}, [&](Value offset, ValueRange in) {
    Value ptr = scoreAt(row, offset), x = expOfDifference(b, loc(), load(vectorType(), ptr), shift);
    store(x, ptr);
    return SmallVector<Value>{arith::AddFOp::create(b, loc(), in[0], x)};
  })[0];
  // Any order: it is fixed here, and the same for each call.
  Value sum = vector::ReductionOp::create(b, loc(), vector::CombiningKind::ADD, sums, arith::FastMathFlags::reassoc);
  Value old = load(sumType, statAt(row, 1));
  old = emitIf(b, loc(), grown, {old}, [&] {
    Value factor = expOfDifference(b, loc(), splat(before), shift);
    store(now, statAt(row, 0));
    emitFor(b, loc(), zero, points.expr(paddedSize), step, {}, [&](Value column, ValueRange) {
      Value ptr = outAt(row, column);
      store(arith::MulFOp::create(b, loc(), load(vectorType(), ptr), factor), ptr);
      return SmallVector<Value>();
    });
    Value first = vector::ExtractOp::create(b, loc(), factor, 0);
    return SmallVector<Value>{arith::MulFOp::create(b, loc(), old, first)};
  })[0];
  store(arith::AddFOp::create(b, loc(), old, sum), statAt(row, 1));
  return success();
}

//===--- values ----------------------------------------------------------------===//

void AttentionRows::multiplyValues(const Keys &run, Value row, int64_t rows) {
  // Four vectors of columns at a time, then one by one, the last perhaps not a whole one.
  const int64_t wide = 4 * lanes();
  Value size = points.expr(valueSize), whole = m.mul(m.div(size, m.constant(wide)), wide);
  emitFor(b, loc(), m.constant(0), whole, m.constant(wide), {}, [&](Value column, ValueRange) {
    PointEmitter::Scope scope(points);
    multiplyColumns(run, row, rows, column, 4, Value());
    return SmallVector<Value>();
  });
  if (e.shapes.divisible(valueSize, wide))
    return;
  emitFor(b, loc(), whole, size, m.constant(lanes()), {}, [&](Value column, ValueRange) {
    PointEmitter::Scope scope(points);
    Value left = m.min(m.sub(size, column), m.constant(lanes()));
    multiplyColumns(run, row, rows, column, 1,
                    e.shapes.divisible(valueSize, lanes()) ? Value() : points.tailMask(left));
    return SmallVector<Value>();
  });
}

void AttentionRows::multiplyColumns(const Keys &run, Value row, int64_t rows, Value column, int64_t vectors,
                                    Value mask) {
  Type element = getElementTypeOrSelf(op.getValue().getType());
  int64_t count = rows * vectors, splits = std::min<int64_t>(16 / count, 4); // enough sums to hide their latency
  Value start = m.advance(values.ptr, m.mul(column, byteSize(element)));
  start = m.advance(start, m.mul(run.first, values.rowBytes));
  // A run has sums of its own, so that the error does not grow with the number of keys.
  SmallVector<Value> sums(count, constantVector(0.0));
  auto loop = [&](Value from, Value to, int64_t unroll, ValueRange init) {
    return emitFor(b, loc(), from, to, m.constant(unroll), init, [&](Value key, ValueRange in) {
      SmallVector<Value> next(in);
      for (int64_t u = 0; u < unroll; ++u) {
        Value at = m.add(key, m.constant(u)), ptr = m.advance(start, m.mul(at, values.rowBytes));
        SmallVector<Value> right;
        for (int64_t j = 0; j < vectors; ++j)
          right.push_back(loadWide(m.advance(ptr, m.constant(j * lanes() * byteSize(element))), element, mask));
        for (int64_t i = 0; i < rows; ++i) {
          Value weight = splat(load(sumType, scoreAt(m.add(row, m.constant(i)), at)));
          for (int64_t j = 0; j < vectors; ++j) {
            Value &sum = next[u * count + i * vectors + j];
            sum = math::FmaOp::create(b, loc(), weight, right[j], sum);
          }
        }
      }
      return next;
    });
  };
  Value whole = m.constant(0);
  if (splits > 1) {
    sums.append(count * (splits - 1), constantVector(0.0));
    whole = m.mul(m.div(run.count, m.constant(splits)), splits);
    sums = loop(m.constant(0), whole, splits, sums);
    for (int64_t n = splits * count / 2; n >= count; n /= 2)
      for (int64_t i = 0; i < n; ++i)
        sums[i] = arith::AddFOp::create(b, loc(), sums[i], sums[i + n]);
    sums.truncate(count);
  }
  sums = loop(whole, run.count, 1, sums);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < vectors; ++j) {
      Value out = outAt(m.add(row, m.constant(i)), m.add(column, m.constant(j * lanes())));
      store(arith::AddFOp::create(b, loc(), load(vectorType(), out), sums[i * vectors + j]), out);
    }
}

/// Rows divided by their sums; zeros for one that sees no key.
LogicalResult AttentionRows::writeResults() {
  bool ok = true;
  Value size = points.expr(valueSize);
  emitFor(b, loc(), m.constant(0), rowCount, m.constant(1), {}, [&](Value row, ValueRange) {
    PointEmitter::Scope scope(points);
    Row at = rowAt(row);
    Value sum = splat(load(sumType, statAt(row, 1)));
    Value inverse = inverseOf(sum);
    emitFor(b, loc(), m.constant(0), size, m.constant(lanes()), {}, [&](Value column, ValueRange) {
      PointEmitter::Scope inner(points);
      Value left = m.min(m.sub(size, column), m.constant(lanes()));
      Value mask = e.shapes.divisible(valueSize, lanes()) ? Value() : points.tailMask(left);
      Value x = arith::MulFOp::create(b, loc(), load(vectorType(), outAt(row, column)), inverse);
      ok &= succeeded(writeRow(at.batch, at.query, column, x, mask));
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
  return success(ok);
}

} // namespace

LogicalResult disc::emitAttentionRows(KernelEmission &e, AttentionOp op, PointEmitter &points, Type sumType) {
  return AttentionRows(e, op, points, sumType).emit();
}
