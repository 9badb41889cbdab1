//===- DeviceAttention.cpp - softmax(q k^T) v on devices --------------------===//
//
// A block does 16 queries of one head, with four warps' worth of 32 threads. Thread (w, j) has the queries w, w + 4,
// w + 8 and w + 12, of which it keeps the largest score, the sum of exponentials and a part of the result in registers:
//
//   scf.for %s = 0 to S step 32 iter_args(maxima, sums, results) {
//     scores of key %s + j: the sum over E in steps of 32, with parts of q and k in memory of the block
//     the mask; minus infinity for keys that there are not
//     maxima, exponentials and their sums over the 32 threads by shuffles; exponentials to memory of the block
//     results = results * exp(old maximum - new one) + exponentials . v, of the columns j, j + 32, ...
//   }
//   y = results / sums
//
// Scores never leave the block, and the memory it needs does not grow with the number of keys. Keys that no query of
// the block may see (`is_causal`) are not visited.
//
// Where that would be few blocks for many keys, the keys are divided (Dao et al., Flash-Decoding, 2023): a block walks
// one of `parts` parts and leaves its maximum, sum and results in memory, and a second kernel
// (DeviceAttentionWhole.cpp) combines those of a query, always in the same order.
//
// Lit test: test/lit/GPU/attention.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/DeviceAttention.h"

#include "dialects/Plan/Schedule.h"
#include "lib/Target/GPU/BufferAlignment.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <limits>

using namespace mlir;
using namespace mlir::disc;

//===-- What all share ----------------------------------------------------===//

AttentionEmitter::AttentionEmitter(DeviceKernel &k, AttentionOp op, int64_t lanes)
    : k(k), b(k.b), m(k.m), op(op), points(k.points(lanes)), dims(k.shapes.dims(op.getQuery())),
      shared(k.schedule<DeviceAttentionScheduleAttr>().getShared()),
      queries(k.schedule<DeviceAttentionScheduleAttr>().getQueries()) {
  Type element = getElementTypeOrSelf(op.getQuery().getType());
  type = element.isF64() ? element : Type(b.getF32Type());
  queryCount = SymExpr::product(ArrayRef(dims).drop_back().take_back(shared + 1)), depth = dims.back();
  keyCount = k.shapes.dims(op.getKey())[dims.size() - 2];
  valueSize = k.shapes.dims(op.getValue()).back();
}

void AttentionEmitter::placeBlock() {
  SmallVector<Value> batchSizes;
  for (const SymExpr &d : ArrayRef(dims).drop_back(2 + shared))
    batchSizes.push_back(points.expr(d));
  Value blocks = points.expr(SymExpr::ceilDiv(queryCount, SymExpr(queries))), block = k.block();
  if (ExprAttr count = k.schedule<DeviceAttentionScheduleAttr>().getParts()) {
    Value memory = points.operandPtr(k.kernel.getNumInputs() + *memoryResult(k.kernel));
    parts = Parts{points.expr(count.getValue()), {}, memory};
    parts->number = m.rem(block, parts->count);
    block = m.div(block, parts->count);
  }
  batch = m.delinearize(m.div(block, blocks), batchSizes);
  firstQuery = m.mul(m.rem(block, blocks), queries);
}

std::optional<unsigned> disc::memoryResult(KernelFuncOp kernel) {
  ValueRange yields = kernel.getYield().getValues();
  for (unsigned i = 0; i < yields.size(); ++i)
    if (isMemory(yields[i]))
      return i;
  return std::nullopt;
}

std::pair<Value, Value> AttentionEmitter::keyRange(int64_t step) {
  Value begin = m.constant(0), end = points.expr(keyCount);
  if (op.getIsCausal())
    end = m.min(end, shared ? points.expr(dims[dims.size() - 2]) : m.add(firstQuery, m.constant(queries)));
  if (!parts)
    return {begin, end};
  // Parts are whole steps, but for the last one.
  Value steps = points.expr(SymExpr::ceilDiv(keyCount, SymExpr(step)));
  Value size = m.mul(m.ceilDiv(steps, parts->count), step);
  begin = m.mul(parts->number, size);
  return {begin, m.min(end, m.add(begin, size))};
}

Value AttentionEmitter::partOf(Value query, Value part) {
  Value row = m.constant(0);
  for (auto [extent, i] : llvm::zip(ArrayRef(dims).drop_back(2 + shared), batch))
    row = m.add(m.mul(row, points.expr(extent)), i);
  row = m.add(m.mul(row, points.expr(queryCount)), query);
  return m.add(m.mul(row, parts->count), part);
}

/// The memory has the results of all parts, then their maxima, then their sums.
Value AttentionEmitter::partResults(Value query, Value part) {
  Value own = partOf(query, part);
  return m.advance(parts->memory, m.mul(m.mul(own, points.expr(valueSize)), byteSize(type)));
}

Value AttentionEmitter::partMaximum(Value query, Value part) {
  Value own = partOf(query, part);
  Value all = m.mul(points.expr(SymExpr::product(ArrayRef(dims).drop_back())), parts->count);
  return m.advance(parts->memory, m.mul(m.add(m.mul(all, points.expr(valueSize)), own), byteSize(type)));
}

Value AttentionEmitter::partSum(Value query, Value part) {
  Value all = m.mul(points.expr(SymExpr::product(ArrayRef(dims).drop_back())), parts->count);
  return m.advance(partMaximum(query, part), m.mul(all, byteSize(type)));
}

Value AttentionEmitter::infinity() { return number(-std::numeric_limits<double>::infinity()); }

Value AttentionEmitter::widen(Value v) {
  if (!v || v.getType() == type)
    return v;
  if (v.getType().getIntOrFloatBitWidth() > type.getIntOrFloatBitWidth())
    return arith::TruncFOp::create(b, k.loc, type, v);
  return arith::ExtFOp::create(b, k.loc, type, v);
}

Value AttentionEmitter::both(Value x, Value y) { return arith::AndIOp::create(b, k.loc, x, y); }

Value AttentionEmitter::select(Value condition, Value x, Value y) {
  return arith::SelectOp::create(b, k.loc, condition, x, y);
}

SmallVector<Value> AttentionEmitter::rowOf(Value number, bool isQuery) {
  SmallVector<Value> at(batch);
  if (!isQuery || !shared) {
    at.append(shared, m.constant(0));
    at.push_back(number);
    return at;
  }
  SmallVector<Value> extents;
  for (const SymExpr &d : ArrayRef(dims).drop_back().take_back(shared + 1))
    extents.push_back(points.expr(d));
  llvm::append_range(at, m.delinearize(number, extents));
  return at;
}

Value AttentionEmitter::positionOf(Value query) {
  return shared ? m.rem(query, points.expr(dims[dims.size() - 2])) : query;
}

SmallVector<Idx> AttentionEmitter::point(Value row, const Idx &column, bool isQuery) {
  SmallVector<Idx> at;
  for (Value i : rowOf(row, isQuery))
    at.push_back(Idx(i));
  at.push_back(column);
  return at;
}

Value AttentionEmitter::read(Value tensor, Value row, Value column, bool isQuery) {
  Value v = points.eval(tensor, point(row, Idx(column), isQuery));
  ok &= bool(v);
  return v ? widen(v) : number(0);
}

Value AttentionEmitter::mask(Value score, Value query, Value key) {
  if (!op.getMask())
    return score;
  auto maskType = cast<RankedTensorType>(op.getMask().getType());
  SmallVector<Idx> at = point(query, Idx(key), /*isQuery=*/true);
  for (auto [d, idx] : llvm::enumerate(at))
    if (maskType.getDimSize(d) == 1)
      idx = points.uniform(int64_t(0));
  Value v = points.eval(op.getMask(), at);
  if (!(ok &= bool(v)))
    return score;
  if (v.getType().isInteger(1))
    return select(v, score, infinity());
  return arith::AddFOp::create(b, k.loc, score, widen(v));
}

Value AttentionEmitter::inverse(Value sum) {
  Value none = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, sum, number(0));
  double hidden = op.getNanRows() ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  return select(none, number(hidden), arith::DivFOp::create(b, k.loc, number(1), sum));
}

LogicalResult AttentionEmitter::storeResult(Value query, const Idx &column, Value v) {
  Type element = getElementTypeOrSelf(op.getResult().getType()), wanted = element;
  if (auto vector = dyn_cast<VectorType>(v.getType()))
    wanted = vector.clone(element);
  if (v.getType() != wanted)
    v = arith::TruncFOp::create(b, k.loc, wanted, v);
  points.bind(op.getResult(), [v](ArrayRef<Idx>, Value) { return v; });
  SmallVector<Idx> at = point(query, column, /*isQuery=*/true);
  for (auto [i, yielded] : llvm::enumerate(k.kernel.getYield().getValues())) {
    if (yielded.getDefiningOp<ConcatOp>() || isMemory(yielded))
      continue;
    FailureOr<SmallVector<Idx>> to = followResult(points, yielded, op.getResult(), at);
    if (failed(to))
      return k.kernel.emitError("result ") << i << " of an attention kernel does not follow from the attention";
    Value x = points.eval(yielded, *to);
    if (!x || failed(points.store(i, *to, x)))
      return failure();
  }
  points.unbind(op.getResult());
  return success();
}

void AttentionEmitter::writeJoined() {
  ValueRange yields = k.kernel.getYield().getValues();
  for (unsigned i = 0; i < yields.size(); ++i) {
    Value yielded = yields[i];
    auto concat = yielded.getDefiningOp<ConcatOp>();
    if (!concat || writeChunks(concat, i))
      continue;
    SmallVector<SymExpr> extents = k.shapes.dims(yielded);
    SmallVector<Value> sizes;
    for (const SymExpr &e : extents)
      sizes.push_back(points.expr(e));
    Value threads = m.constant(k.threads());
    Value first = m.add(m.mul(k.block(), threads), k.thread()), stride = m.mul(k.blocks(), threads);
    emitFor(b, k.loc, first, points.expr(SymExpr::product(extents)), stride, {}, [&](Value position, ValueRange) {
      PointEmitter::Scope scope(points);
      SmallVector<Idx> at;
      for (Value c : m.delinearize(position, sizes))
        at.push_back(Idx(c));
      Value v = points.eval(yielded, at);
      ok &= v && succeeded(points.store(i, at, v));
      return SmallVector<Value>();
    });
  }
}

/// Whether each row of elements that a layout leads to begins at a multiple of kChunkBytes and is made of such pieces.
static bool isChunked(const Layout &layout, ArrayRef<SymExpr> dims, int64_t width) {
  auto isAligned = [&](const SymExpr &e) { return e.content() * width % kChunkBytes == 0; };
  if (!layout.strides.back().isConstant(1) || !isAligned(layout.offset) || !isAligned(dims.back()))
    return false;
  // The stride of one element may be anything: nothing is multiplied by it but 0.
  for (auto [extent, stride] : llvm::zip(dims.drop_back(), layout.strides))
    if (!extent.isConstant(1) && !isAligned(stride))
      return false;
  return true;
}

std::optional<BufferOperand> disc::chunkedBuffer(DeviceKernel &k, Value tensor) {
  auto buffer = BufferOperand::get(k.kernel, tensor, k.shapes);
  int64_t width = byteSize(getElementTypeOrSelf(tensor.getType()));
  if (!buffer || bufferAlignments(k.kernel, k.shapes)[buffer->argument] % kChunkBytes ||
      !isChunked(buffer->layout, k.shapes.dims(tensor), width))
    return std::nullopt;
  return buffer;
}

bool AttentionEmitter::writeChunks(ConcatOp concat, unsigned result) {
  unsigned target = k.kernel.getNumInputs() + result;
  Layout layout = Layout::get(k.kernel.getLayout(target));
  int64_t width = byteSize(getElementTypeOrSelf(concat.getType())), chunk = kChunkBytes / width;
  if (bufferAlignments(k.kernel, k.shapes)[target] % kChunkBytes ||
      !isChunked(layout, k.shapes.dims(concat.getResult()), width))
    return false;
  SmallVector<BufferOperand> sources;
  for (Value input : concat.getInputs()) {
    auto source = chunkedBuffer(k, input);
    if (!source)
      return false;
    sources.push_back(*source);
  }
  Value threads = m.mul(k.blocks(), k.threads());
  Value thread = m.add(m.mul(k.block(), k.threads()), k.thread());
  auto words = VectorType::get({kChunkBytes / 4}, b.getI32Type());
  SymExpr joined(0);
  for (auto [input, buffer] : llvm::zip(concat.getInputs(), sources)) {
    const BufferOperand &source = buffer; // for lambdas
    SmallVector<SymExpr> extents = k.shapes.dims(input);
    SymExpr own = extents[concat.getDim()];
    SmallVector<Value> sizes;
    for (const SymExpr &e : ArrayRef(extents).drop_back())
      sizes.push_back(points.expr(e));
    sizes.push_back(m.div(points.expr(extents.back()), m.constant(chunk)));
    Value count = m.constant(1), first = points.expr(joined);
    for (Value size : sizes)
      count = m.mul(count, size);
    joined += own;
    auto address = [&](Value base, const Layout &of, ArrayRef<Value> at) {
      Value offset = points.expr(of.offset);
      for (auto [i, stride] : llvm::zip(at, of.strides))
        offset = m.add(offset, m.mul(i, points.expr(stride)));
      return m.advance(base, m.mul(offset, width));
    };
    // Several are on their way at once.
    constexpr int64_t kAtOnce = 4;
    emitFor(b, k.loc, thread, count, m.mul(threads, kAtOnce), {}, [&](Value position, ValueRange) {
      PointEmitter::Scope scope(points);
      SmallVector<Value> chunks, targets, isThere;
      for (int64_t i = 0; i < kAtOnce; ++i) {
        Value own = m.add(position, m.mul(threads, i));
        isThere.push_back(less(own, count));
        SmallVector<Value> at = m.delinearize(select(isThere.back(), own, position), sizes);
        at.back() = m.mul(at.back(), chunk);
        chunks.push_back(LLVM::LoadOp::create(
            b, k.loc, words, address(points.operandPtr(source.argument), source.layout, at), kChunkBytes));
        at[concat.getDim()] = m.add(at[concat.getDim()], first);
        targets.push_back(address(points.resultPtr(result), layout, at));
      }
      for (auto [v, target, there] : llvm::zip(chunks, targets, isThere)) {
        Value chunk = v, to = target, isInside = there; // for lambdas
        emitIf(b, k.loc, isInside, {}, [&] {
          LLVM::StoreOp::create(b, k.loc, chunk, to, kChunkBytes);
          return SmallVector<Value>();
        });
      }
      return SmallVector<Value>();
    });
  }
  return true;
}

//===-- With fused multiply-adds ------------------------------------------===//

namespace {
constexpr int64_t kLanes = 32;         // threads that share a query, keys of a step, and elements of q and k in one
constexpr int64_t kPitch = kLanes + 1; // rows in memory of the block start in different banks

class DeviceAttention : AttentionEmitter {
public:
  DeviceAttention(DeviceKernel &k, AttentionOp op)
      : AttentionEmitter(k, op, /*lanes=*/1), groups(k.threads() / kLanes), own(queries / groups) {}
  LogicalResult emit();

private:
  /// What a thread carries from step to step: for each of its queries.
  struct State {
    SmallVector<Value> maxima, sums, results;

    SmallVector<Value> all() const {
      SmallVector<Value> out(maxima);
      llvm::append_range(out, sums);
      llvm::append_range(out, results);
      return out;
    }
  };
  State unpack(ValueRange all) {
    return {SmallVector<Value>(all.take_front(own)), SmallVector<Value>(all.slice(own, own)),
            SmallVector<Value>(all.drop_front(2 * own))};
  }

  Value exp(Value v) { return math::ExpOp::create(b, k.loc, v); }
  Value isHidden(Value v) { return arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, v, infinity()); }
  /// The number of the thread's query `r` in the block.
  Value queryOf(int64_t r) { return m.add(group, m.constant(r * groups)); }
  void fetch(bool isQuery, Value memory, int64_t rows, Value firstRow, Value rowCount, Value firstColumn);
  SmallVector<Value> scores(Value firstKey);
  State step(Value firstKey, const State &old);
  LogicalResult writeResult(const State &state);

  const int64_t groups, own; // threads that share one query; queries of a thread
  int64_t columns = 0;       // columns of the result that a thread has
  Value group, lane, queryMemory, keyMemory, scoreMemory;
};
} // namespace

LogicalResult DeviceAttention::emit() {
  std::optional<int64_t> widest = k.shapes.range(valueSize).max;
  constexpr int64_t most = 512;
  if (!widest || *widest > most)
    return op.emitError("attention on devices is for values of at most ") << most << " elements";
  columns = llvm::divideCeil(*widest, kLanes);

  placeBlock();
  Value lanes = m.constant(kLanes), thread = k.thread();
  group = m.div(thread, lanes), lane = m.rem(thread, lanes);
  queryMemory = k.shared(type, queries * kPitch);
  keyMemory = k.shared(type, kLanes * kPitch);
  scoreMemory = k.shared(type, queries * kPitch);

  State state;
  state.maxima.assign(own, infinity());
  state.sums.assign(own, number(0));
  state.results.assign(own * columns, number(0));
  auto [begin, end] = keyRange(kLanes);
  // Of values without elements none can be read.
  if (!k.shapes.lessEqual(SymExpr(1), valueSize))
    end = m.mul(end, m.min(points.expr(valueSize), m.constant(1)));
  SmallVector<Value> last = emitFor(b, k.loc, begin, end, lanes, state.all(), [&](Value key, ValueRange all) {
    PointEmitter::Scope scope(points);
    return step(key, unpack(all)).all();
  });
  if (!ok)
    return failure();
  writeJoined();
  return failure(failed(writeResult(unpack(last))) || !ok);
}

/// A part of q or k: `rows` rows of kLanes elements, zeros beyond the last column. Rows beyond the last one are that
/// one.
void DeviceAttention::fetch(bool isQuery, Value memory, int64_t rows, Value firstRow, Value rowCount,
                            Value firstColumn) {
  Value tensor = isQuery ? op.getQuery() : op.getKey();
  Value column = m.add(firstColumn, lane), size = points.expr(depth), one = m.constant(1);
  Value isThere = less(column, size), nearest = m.min(column, m.sub(size, one));
  for (int64_t r = 0; r < rows; r += groups) {
    PointEmitter::Scope scope(points);
    Value row = m.add(group, m.constant(r));
    Value v = read(tensor, m.min(m.add(firstRow, row), m.sub(rowCount, one)), nearest, isQuery);
    k.storeShared(memory, select(isThere, v, number(0)), m.add(m.mul(row, kPitch), lane));
  }
}

/// Of the thread's queries and its key.
SmallVector<Value> DeviceAttention::scores(Value firstKey) {
  SmallVector<Value> zeros(own, number(0));
  Value lanes = m.constant(kLanes);
  return emitFor(b, k.loc, m.constant(0), points.expr(depth), lanes, zeros, [&](Value start, ValueRange sums) {
    PointEmitter::Scope scope(points);
    fetch(/*isQuery=*/true, queryMemory, queries, firstQuery, points.expr(queryCount), start);
    fetch(/*isQuery=*/false, keyMemory, kLanes, firstKey, points.expr(keyCount), start);
    k.barrier();
    SmallVector<Value> next =
        emitFor(b, k.loc, m.constant(0), lanes, m.constant(1), sums, [&](Value d, ValueRange carried) {
          SmallVector<Value> out;
          Value key = k.loadShared(keyMemory, type, m.add(m.mul(lane, kPitch), d));
          for (int64_t r = 0; r < own; ++r) {
            Value query = k.loadShared(queryMemory, type, m.add(m.mul(queryOf(r), kPitch), d));
            out.push_back(math::FmaOp::create(b, k.loc, query, key, carried[r]));
          }
          return out;
        });
    k.barrier();
    return next;
  });
}

DeviceAttention::State DeviceAttention::step(Value firstKey, const State &old) {
  SmallVector<Value> score = scores(firstKey);
  Value keys = points.expr(keyCount), key = m.add(firstKey, lane), isKey = less(key, keys);
  Value nearestKey = m.min(key, m.sub(keys, m.constant(1)));
  Value lastQuery = m.sub(points.expr(queryCount), m.constant(1));
  State next;
  SmallVector<Value> factors;
  for (int64_t r = 0; r < own; ++r) {
    Value query = m.min(m.add(firstQuery, queryOf(r)), lastQuery);
    Value isSeen = isKey;
    if (op.getIsCausal())
      isSeen = both(isSeen, less(key, m.add(positionOf(query), m.constant(1))));
    Value scaled = arith::MulFOp::create(b, k.loc, score[r], number(op.getScale().convertToDouble()));
    Value s = select(isSeen, mask(scaled, query, nearestKey), infinity());
    Value largest = s;
    for (int64_t i = kLanes / 2; i >= 1; i /= 2)
      largest = arith::MaximumFOp::create(b, k.loc, largest, k.shuffleXor(largest, i));
    Value maximum = arith::MaximumFOp::create(b, k.loc, old.maxima[r], largest);
    // No key seen so far: differences of infinities would be NaN.
    Value none = isHidden(maximum), base = select(none, number(0), maximum);
    Value e = exp(arith::SubFOp::create(b, k.loc, s, base)), sum = e;
    for (int64_t i = kLanes / 2; i >= 1; i /= 2)
      sum = arith::AddFOp::create(b, k.loc, sum, k.shuffleXor(sum, i));
    Value factor = exp(arith::SubFOp::create(b, k.loc, old.maxima[r], base));
    next.maxima.push_back(maximum);
    next.sums.push_back(math::FmaOp::create(b, k.loc, old.sums[r], factor, sum));
    factors.push_back(factor);
    k.storeShared(scoreMemory, e, m.add(m.mul(queryOf(r), kPitch), lane));
  }
  k.barrier();

  SmallVector<Value> results;
  for (int64_t r = 0; r < own; ++r)
    for (int64_t c = 0; c < columns; ++c)
      results.push_back(arith::MulFOp::create(b, k.loc, old.results[r * columns + c], factors[r]));
  Value count = m.min(m.constant(kLanes), m.sub(keys, firstKey));
  Value lastColumn = m.sub(points.expr(valueSize), m.constant(1));
  next.results = emitFor(b, k.loc, m.constant(0), count, m.constant(1), results, [&](Value j, ValueRange carried) {
    PointEmitter::Scope scope(points);
    SmallVector<Value> values, out;
    for (int64_t c = 0; c < columns; ++c) {
      Value column = m.min(m.add(lane, m.constant(c * kLanes)), lastColumn);
      values.push_back(read(op.getValue(), m.add(firstKey, j), column, /*isQuery=*/false));
    }
    for (int64_t r = 0; r < own; ++r) {
      Value e = k.loadShared(scoreMemory, type, m.add(m.mul(queryOf(r), kPitch), j));
      for (int64_t c = 0; c < columns; ++c)
        out.push_back(math::FmaOp::create(b, k.loc, e, values[c], carried[r * columns + c]));
    }
    return out;
  });
  k.barrier();
  return next;
}

LogicalResult DeviceAttention::writeResult(const State &state) {
  for (int64_t r = 0; r < own; ++r) {
    Value factor = parts ? Value() : inverse(state.sums[r]), query = m.add(firstQuery, queryOf(r));
    if (parts)
      emitIf(b, k.loc, both(less(query, points.expr(queryCount)), m.equal(lane, m.constant(0))), {}, [&] {
        PointEmitter::Scope scope(points);
        points.store(partMaximum(query, parts->number), points.uniform(int64_t(0)), state.maxima[r]);
        points.store(partSum(query, parts->number), points.uniform(int64_t(0)), state.sums[r]);
        return SmallVector<Value>();
      });
    for (int64_t c = 0; c < columns; ++c) {
      Value column = m.add(lane, m.constant(c * kLanes));
      Value inside = both(less(query, points.expr(queryCount)), less(column, points.expr(valueSize)));
      auto some = scf::IfOp::create(b, k.loc, inside, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(some.thenBlock());
      PointEmitter::Scope scope(points);
      if (parts) {
        points.store(partResults(query, parts->number), Idx(column), state.results[r * columns + c]);
        continue;
      }
      Value v = arith::MulFOp::create(b, k.loc, state.results[r * columns + c], factor);
      if (failed(storeResult(query, Idx(column), v)))
        return failure();
    }
  }
  return success();
}

LogicalResult disc::emitDeviceAttention(DeviceKernel &k) {
  auto ops = k.kernel.getBody().getOps<AttentionOp>();
  if (ops.empty())
    return k.kernel.emitError("an attention kernel holds no attention");
  AttentionOp op = *ops.begin();
  return isMatrixSchedule(k.kernel.getScheduleAttr()) ? emitMatrixAttention(k, op) : DeviceAttention(k, op).emit();
}
