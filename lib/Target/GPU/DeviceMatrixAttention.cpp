//===- DeviceMatrixAttention.cpp - softmax(q k^T) v on a matrix unit --------===//
//
// A block has 64 queries of one head, 16 for each of its four warps, and goes through the keys in steps:
//
//   scf.for %s = 0 to S step keys iter_args(maxima, sums, results, %stage) {
//     the step's keys and values are in memory of the block; those of the next step are on their way
//     scores = q . k, by nvvm.mma.sync ; the mask ; minus infinity for keys that do not exist
//     maxima over the four threads that share a row by shuffles ; exponentials, which stay in registers
//     results = results * exp(old maximum - new one) + exponentials . v, by nvvm.mma.sync
//   }
//   y = results / sums
//
// A thread has scores of the rows g and g + 8 of its warp, of two neighbouring keys of each 8. That is what the second
// product needs of its left operand, if the keys are summed in another order for f32; so exponentials are not moved. Of
// the values a thread reads two neighbouring columns of each 16, and uses them as columns of two instructions; so it
// ends up with four neighbouring columns of the result (Dao, FlashAttention-2, 2023, has the plan without these
// orders).
//
// Exponentials are powers of two by the device's own instruction, with an error of 2 units in the last place of f32.
//
// Lit test: test/lit/GPU/matrix-attention.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Target/GPU/DeviceAttention.h"
#include "lib/Target/GPU/MatrixUnit.h"
#include "lib/Transforms/Support/ViewLayout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
constexpr int64_t kWords = MatrixUnit::kLineBytes / 4, kChunkWords = MatrixUnit::kChunkBytes / 4;
constexpr int64_t kChunks = MatrixUnit::kLineBytes / MatrixUnit::kChunkBytes; // of a line
constexpr int64_t kStages = 2, kPair = 16;                                    // columns of two instructions
constexpr double kLog2E = 1.4426950408889634;

/// Some of a tensor's rows, from `first` on.
struct Piece {
  BufferOperand buffer;
  SymExpr first;
};

class MatrixAttention : AttentionEmitter {
public:
  MatrixAttention(DeviceKernel &k, AttentionOp op)
      : AttentionEmitter(k, op, storedLanes(op)), element(getElementTypeOrSelf(op.getQuery().getType())),
        unit(k.b, k.loc, element), keys(k.schedule<DeviceAttentionScheduleAttr>().getKeys()) {}
  LogicalResult emit();

private:
  /// Neighbouring columns of the result that a thread has.
  static int64_t storedLanes(AttentionOp op) { return getElementTypeOrSelf(op.getQuery().getType()).isF32() ? 4 : 2; }

  /// Keys or values: rows of chunks, which threads bring to memory of the block.
  struct Rows {
    Value tensor;
    bool isKey;
    int64_t chunks = 0, filled = 0; // of a row: in memory of the block, and with elements
    SmallVector<Value> rows, parts; // of each chunk that the thread brings
    SmallVector<Piece> pieces;      // none: rows are computed
  };
  struct State {
    SmallVector<Value> maxima, sums, results; // two rows; results of fragments, 4 of each
    Value stage;

    SmallVector<Value> all() const {
      SmallVector<Value> out(maxima);
      llvm::append_range(out, sums);
      llvm::append_range(out, results);
      out.push_back(stage);
      return out;
    }
  };
  State unpack(ValueRange all) {
    return {SmallVector<Value>(all.take_front(2)), SmallVector<Value>(all.slice(2, 2)),
            SmallVector<Value>(all.drop_front(4).drop_back()), all.back()};
  }

  void place(Rows &rows);
  Value rowAddress(const BufferOperand &buffer, Value row, bool isQuery = false);
  Value rowAddress(ArrayRef<Piece> pieces, Value row);
  Value wordOf(const Rows &rows, Value stage, Value row, Value chunk);
  void bring(const Rows &rows, Value firstKey, Value stage);
  Value chunkOf(Value tensor, const std::optional<BufferOperand> &buffer, Value row, Value firstColumn, bool isInside,
                bool isQuery);
  SmallVector<MatrixUnit::Fragment> queryFragments(int64_t line);
  SmallVector<Value> scores(Value stage);
  SmallVector<Value> withoutNan(Value firstKey, SmallVector<Value> score);
  SmallVector<Value> masked(Value firstKey, SmallVector<Value> score);
  State step(Value firstKey, const State &old);
  void addValues(Value stage, ArrayRef<Value> exponentials, SmallVector<Value> &results);
  Value power(Value v);
  LogicalResult writeResult(const State &state);

  Value address(Value word) {
    return LLVM::GEPOp::create(b, k.loc, memory.getType(), b.getI32Type(), memory, ArrayRef<LLVM::GEPArg>{m.i64(word)},
                               LLVM::GEPNoWrapFlags::inbounds);
  }
  Value loadWords(Value word, int64_t count) {
    Type i32 = b.getI32Type(), type = count > 1 ? Type(VectorType::get({count}, i32)) : i32;
    return LLVM::LoadOp::create(b, k.loc, type, address(word), 4 * count);
  }
  Value constant32(int64_t v) {
    return arith::ConstantOp::create(b, k.loc, b.getI32IntegerAttr(static_cast<int32_t>(v)));
  }
  /// The query of the thread's row 0 or 1.
  Value queryOf(int64_t row) { return m.add(m.add(firstQuery, warpRow), m.add(group, m.constant(8 * row))); }

  Type element;
  MatrixUnit unit;
  const int64_t keys; // of a step
  int64_t lines = 0, size = 0, valueWidth = 0, valuePitch = 0, stageWords = 0;
  Rows keyRows{{}, true, 0, 0, {}, {}, {}}, valueRows{{}, false, 0, 0, {}, {}, {}};
  std::optional<BufferOperand> queryBuffer;
  SmallVector<SmallVector<Value>> queryChunks; // of each line, if they are kept
  Value memory, keyTotal, warpRow, group, place4;
};
} // namespace

/// The buffers that a tensor's rows are in, one after the other, if all are chunks.
static SmallVector<Piece> chunkedPieces(DeviceKernel &k, Value tensor) {
  if (auto buffer = chunkedBuffer(k, tensor))
    return {{*buffer, SymExpr(0)}};
  std::optional<JoinedRows> joined = joinedRows(tensor, k.shapes);
  if (!joined)
    return {};
  SmallVector<Piece> out;
  SymExpr first(0);
  for (Value input : joined->concat.getInputs()) {
    auto buffer = chunkedBuffer(k, input);
    SymExpr count = k.shapes.dims(input).end()[-2];
    auto layout = buffer ? joined->through(buffer->layout, count, k.shapes) : std::nullopt;
    if (!layout)
      return {};
    out.push_back({BufferOperand{buffer->argument, *layout}, first});
    first += count;
  }
  return out;
}

Value MatrixAttention::rowAddress(ArrayRef<Piece> pieces, Value row) {
  Value address = rowAddress(pieces.front().buffer, row);
  for (const Piece &piece : pieces.drop_front()) {
    Value first = points.expr(piece.first);
    address = select(less(row, first), address, rowAddress(piece.buffer, m.sub(row, first)));
  }
  return address;
}

Value MatrixAttention::rowAddress(const BufferOperand &buffer, Value row, bool isQuery) {
  Value offset = points.expr(buffer.layout.offset);
  SmallVector<Value> at = rowOf(row, isQuery);
  for (auto [i, stride] : llvm::zip(at, buffer.layout.strides))
    offset = m.add(offset, m.mul(i, points.expr(stride)));
  return m.advance(points.operandPtr(buffer.argument), m.mul(offset, byteSize(element)));
}

LogicalResult MatrixAttention::emit() {
  size = depth.constant(), valueWidth = valueSize.constant();
  lines = llvm::divideCeil(size, unit.line());
  int64_t valueWords = valueWidth * byteSize(element) / 4;
  // Rows of values start 4 banks apart, modulo 16: then the pairs that a warp reads are in different banks.
  valuePitch = valueWords + (valueWords % 16 == 0 ? 4 : 12);
  stageWords = keys * (lines * kWords + valuePitch);
  // Registers as they are needed; without a number ptxas keeps a few values in local memory to have more blocks.
  int64_t bytes = std::max(size, valueWidth) * byteSize(element), most = unit.isExact() ? 256 : 128;
  k.function->setAttr(kResidentThreadsAttr, b.getI64IntegerAttr(bytes <= 64 ? 512 : bytes <= most ? 384 : 256));
  placeBlock();
  Value lanes = m.constant(k.warp), thread = k.thread(), lane = m.rem(thread, lanes);
  warpRow = m.mul(m.div(thread, lanes), MatrixUnit::kRows);
  group = m.div(lane, m.constant(kChunks)), place4 = m.rem(lane, m.constant(kChunks));
  keyTotal = points.expr(keyCount);
  memory = k.shared(b.getI32Type(), kStages * stageWords);
  keyRows.tensor = op.getKey(), valueRows.tensor = op.getValue();
  keyRows.chunks = lines * kChunks, valueRows.chunks = valueRows.filled = valueWidth / unit.chunk();
  keyRows.filled = llvm::divideCeil(size, unit.chunk());
  place(keyRows);
  place(valueRows);
  queryBuffer = chunkedBuffer(k, op.getQuery());
  // In registers, if there are few: f32 needs more of them for both of its parts.
  const int64_t keptLines = unit.isExact() ? 4 : 2;
  for (int64_t line = 0; line < lines && lines <= keptLines; ++line) {
    SmallVector<Value> both;
    for (int64_t row : {0, 1}) {
      Value query = m.min(queryOf(row), m.sub(points.expr(queryCount), m.constant(1)));
      Value column = m.add(m.constant(line * unit.line()), m.mul(place4, unit.chunk()));
      both.push_back(chunkOf(op.getQuery(), queryBuffer, query, column, size % unit.line() == 0, /*isQuery=*/true));
    }
    queryChunks.push_back(both);
  }

  State state;
  state.maxima.assign(2, infinity());
  state.sums.assign(2, number(0));
  state.results.assign(valueWidth / MatrixUnit::kColumns * 4, number(0));
  state.stage = m.constant(0);
  auto range = keyRange(keys);
  Value begin = range.first, end = range.second; // for lambdas
  auto bringAll = [&](Value key, Value stage) {
    emitIf(b, k.loc, m.less(key, end), {}, [&] {
      PointEmitter::Scope scope(points);
      bring(keyRows, key, stage);
      bring(valueRows, key, stage);
      return SmallVector<Value>();
    });
    NVVM::CpAsyncCommitGroupOp::create(b, k.loc);
  };
  bringAll(begin, m.constant(0));
  Value step32 = m.constant(keys);
  SmallVector<Value> last = emitFor(b, k.loc, begin, end, step32, state.all(), [&](Value key, ValueRange all) {
    PointEmitter::Scope scope(points);
    State old = unpack(all);
    NVVM::CpAsyncWaitGroupOp::create(b, k.loc, 0);
    k.barrier();
    Value other = m.sub(m.constant(kStages - 1), old.stage);
    bringAll(m.add(key, step32), other);
    State next = step(key, old);
    next.stage = other;
    return next.all();
  });
  if (!ok)
    return failure();
  writeJoined();
  return failure(failed(writeResult(unpack(last))) || !ok);
}

/// Which chunks of each step the thread brings.
void MatrixAttention::place(Rows &rows) {
  rows.pieces = chunkedPieces(k, rows.tensor);
  int64_t count = keys * rows.chunks, threads = k.threads();
  Value perRow = m.constant(rows.chunks);
  for (int64_t from = 0; from < count; from += threads) {
    Value position = m.add(k.thread(), m.constant(from));
    rows.rows.push_back(m.div(position, perRow));
    rows.parts.push_back(m.rem(position, perRow));
  }
}

Value MatrixAttention::wordOf(const Rows &rows, Value stage, Value row, Value chunk) {
  Value start = m.mul(stage, stageWords);
  if (!rows.isKey)
    return m.add(m.add(start, m.constant(keys * lines * kWords)),
                 m.add(m.mul(row, valuePitch), m.mul(chunk, kChunkWords)));
  // As lines of products: DeviceMatrix.cpp.
  Value four = m.constant(kChunks), line = m.div(chunk, four), turn = m.rem(m.div(row, m.constant(2)), four);
  Value turned = arith::XOrIOp::create(b, k.loc, m.rem(chunk, four), turn);
  Value inLine = m.add(m.mul(row, kWords), m.mul(turned, kChunkWords));
  return m.add(m.add(start, m.mul(line, keys * kWords)), inLine);
}

/// A chunk of a row of a tensor; zeros beyond its columns, unless the chunk is inside in any case.
Value MatrixAttention::chunkOf(Value tensor, const std::optional<BufferOperand> &buffer, Value row, Value firstColumn,
                               bool isInside, bool isQuery) {
  SymExpr width = k.shapes.dims(tensor).back();
  Value end = points.expr(width), zeros = points.constant(cast<TypedAttr>(b.getZeroAttr(unit.chunkType())));
  if (buffer) {
    Value at = isInside ? firstColumn : m.min(firstColumn, m.sub(end, m.constant(unit.chunk())));
    Value v = LLVM::LoadOp::create(b, k.loc, unit.chunkType(),
                                   m.advance(rowAddress(*buffer, row, isQuery), m.mul(at, byteSize(element))),
                                   MatrixUnit::kChunkBytes);
    return isInside ? v : select(less(firstColumn, end), v, zeros);
  }
  SmallVector<Value> elements;
  Value zero = points.constant(cast<TypedAttr>(b.getZeroAttr(element)));
  for (int64_t i = 0; i < unit.chunk(); ++i) {
    PointEmitter::Scope scope(points);
    Value column = m.add(firstColumn, m.constant(i));
    Value v = points.eval(tensor, point(row, Idx(m.min(column, m.sub(end, m.constant(1)))), isQuery));
    if (!(ok &= bool(v)))
      return zeros;
    elements.push_back(isInside ? v : select(less(column, end), v, zero));
  }
  return unit.pack(elements);
}

/// Starts to bring a step's rows. Rows beyond the last one are zeros: an exponential of 0 times what is there must be
/// 0.
void MatrixAttention::bring(const Rows &rows, Value firstKey, Value stage) {
  Value lastKey = m.sub(keyTotal, m.constant(1));
  for (auto [ownRow, ownPart] : llvm::zip(rows.rows, rows.parts)) {
    Value row = ownRow, part = ownPart; // for lambdas
    int64_t count = keys * rows.chunks;
    auto one = [&] {
      Value key = m.add(firstKey, row), nearest = m.min(key, lastKey);
      Value to = address(wordOf(rows, stage, row, part)), isThere = less(key, keyTotal);
      Value column = m.mul(part, unit.chunk());
      if (rows.filled < rows.chunks)
        isThere = both(isThere, less(part, m.constant(rows.filled)));
      if (!rows.pieces.empty()) {
        Value bytes = select(isThere, constant32(MatrixUnit::kChunkBytes), constant32(0));
        Value from = m.advance(rowAddress(ArrayRef(rows.pieces), nearest),
                               m.mul(m.min(column, m.constant((rows.filled - 1) * unit.chunk())), byteSize(element)));
        NVVM::CpAsyncOp::create(b, k.loc, to, from, MatrixUnit::kChunkBytes, NVVM::LoadCacheModifierKind::CG, bytes);
        return;
      }
      bool isInside = rows.filled * unit.chunk() == (rows.isKey ? size : valueWidth) && rows.filled == rows.chunks;
      Value v = chunkOf(rows.tensor, {}, nearest, column, isInside, /*isQuery=*/false);
      Value zeros = points.constant(cast<TypedAttr>(b.getZeroAttr(unit.chunkType())));
      LLVM::StoreOp::create(b, k.loc, select(isThere, v, zeros), to, MatrixUnit::kChunkBytes);
    };
    if (count % k.threads() == 0) {
      one();
      continue;
    }
    emitIf(b, k.loc, less(row, m.constant(keys)), {}, [&] {
      PointEmitter::Scope scope(points);
      one();
      return SmallVector<Value>();
    });
  }
}

SmallVector<MatrixUnit::Fragment> MatrixAttention::queryFragments(int64_t line) {
  SmallVector<MatrixUnit::Fragment> out;
  for (int64_t row : {0, 1}) {
    if (!queryChunks.empty()) {
      out.push_back(unit.prepare(queryChunks[line][row]));
      continue;
    }
    Value query = m.min(queryOf(row), m.sub(points.expr(queryCount), m.constant(1)));
    Value column = m.add(m.constant(line * unit.line()), m.mul(place4, unit.chunk()));
    out.push_back(
        unit.prepare(chunkOf(op.getQuery(), queryBuffer, query, column, size % unit.line() == 0, /*isQuery=*/true)));
  }
  return out;
}

/// Of the warp's 16 queries and the step's keys: 4 for each 8 keys.
SmallVector<Value> MatrixAttention::scores(Value stage) {
  SmallVector<Value> sums(keys / MatrixUnit::kColumns * 4, number(0));
  for (int64_t line = 0; line < lines && ok; ++line) {
    SmallVector<MatrixUnit::Fragment> columns;
    for (int64_t j = 0; j < keys; j += MatrixUnit::kColumns) {
      Value chunk = m.add(m.constant(line * kChunks), place4), row = m.add(m.constant(j), group);
      columns.push_back(unit.prepare(loadWords(wordOf(keyRows, stage, row, chunk), kChunkWords)));
    }
    sums = unit.multiply(queryFragments(line), columns, sums);
  }
  return sums;
}

Value MatrixAttention::power(Value v) {
  return LLVM::CallIntrinsicOp::create(b, k.loc, v.getType(), b.getStringAttr("llvm.nvvm.ex2.approx"), v).getResult(0);
}

/// f32 in two parts makes NaN of an infinity times a number without a rest. If a score of the thread is NaN, it
/// computes its scores again, one product after the other.
SmallVector<Value> MatrixAttention::withoutNan(Value firstKey, SmallVector<Value> score) {
  if (unit.isExact())
    return score;
  Value isAny;
  for (Value s : score) {
    Value isNan = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::UNO, s, s);
    isAny = isAny ? arith::OrIOp::create(b, k.loc, isAny, isNan).getResult() : isNan;
  }
  return emitIf(b, k.loc, isAny, score, [&] {
    Value lastKey = m.sub(keyTotal, m.constant(1)), lastQuery = m.sub(points.expr(queryCount), m.constant(1));
    SmallVector<Value> zeros(score.size(), number(0));
    return emitFor(b, k.loc, m.constant(0), points.expr(depth), m.constant(1), zeros, [&](Value e, ValueRange sums) {
      PointEmitter::Scope scope(points);
      SmallVector<Value> next(sums), rows;
      for (int64_t row : {0, 1})
        rows.push_back(read(op.getQuery(), m.min(queryOf(row), lastQuery), e, /*isQuery=*/true));
      for (size_t at = 0; at < score.size(); ++at) {
        if (at % 4 >= 2)
          continue; // the other row reads the same keys
        int64_t inTile = static_cast<int64_t>(at / 4) * MatrixUnit::kColumns + static_cast<int64_t>(at % 4);
        Value key = m.add(firstKey, m.add(m.constant(inTile), m.mul(place4, 2)));
        Value v = read(op.getKey(), m.min(key, lastKey), e, /*isQuery=*/false);
        for (size_t row : {0, 1})
          next[at + 2 * row] = math::FmaOp::create(b, k.loc, rows[row], v, sums[at + 2 * row]);
      }
      return next;
    });
  });
}

/// Scores in powers of two, with minus infinity where nothing is to be seen. Only steps at the last key, or at the
/// diagonal of causal attention, have to look where they are.
SmallVector<Value> MatrixAttention::masked(Value firstKey, SmallVector<Value> score) {
  double scale = op.getScale().convertToDouble();
  Value lastKey = m.sub(keyTotal, m.constant(1)), lastQuery = m.sub(points.expr(queryCount), m.constant(1));
  auto each = [&](function_ref<Value(Value s, Value query, Value key)> map) {
    for (int64_t row : {0, 1}) {
      Value query = m.min(queryOf(row), lastQuery);
      for (size_t tile = 0; tile * 4 < score.size(); ++tile)
        for (int64_t i : {0, 1}) {
          PointEmitter::Scope scope(points);
          Value &s = score[tile * 4 + 2 * row + i];
          Value column = m.add(m.constant(tile * MatrixUnit::kColumns + i), m.mul(place4, 2));
          s = map(s, query, m.add(firstKey, column));
        }
    }
  };
  each([&](Value s, Value query, Value key) -> Value {
    if (!op.getMask())
      return arith::MulFOp::create(b, k.loc, s, number(scale * kLog2E));
    s = mask(arith::MulFOp::create(b, k.loc, s, number(scale)), query, m.min(key, lastKey));
    return arith::MulFOp::create(b, k.loc, s, number(kLog2E));
  });
  Value end = m.add(firstKey, m.constant(keys)), isEdge = less(keyTotal, end);
  if (op.getIsCausal())
    isEdge =
        arith::OrIOp::create(b, k.loc, isEdge, less(m.add(shared ? m.constant(0) : firstQuery, m.constant(1)), end));
  SmallVector<Value> plain(score);
  return emitIf(b, k.loc, isEdge, plain, [&] {
    each([&](Value s, Value query, Value key) {
      Value isSeen = less(key, keyTotal);
      if (op.getIsCausal())
        isSeen = both(isSeen, less(key, m.add(positionOf(query), m.constant(1))));
      return select(isSeen, s, infinity());
    });
    return score;
  });
}

MatrixAttention::State MatrixAttention::step(Value firstKey, const State &old) {
  SmallVector<Value> score = masked(firstKey, withoutNan(firstKey, scores(old.stage)));
  State next;
  next.results = old.results;
  SmallVector<Value> exponentials(score.size());
  for (int64_t row : {0, 1}) {
    Value largest = infinity();
    for (size_t tile = 0; tile * 4 < score.size(); ++tile)
      for (int64_t i : {0, 1})
        largest = arith::MaximumFOp::create(b, k.loc, largest, score[tile * 4 + 2 * row + i]);
    for (int64_t lanes : {1, 2})
      largest = arith::MaximumFOp::create(b, k.loc, largest, k.shuffleXor(largest, lanes));
    Value maximum = arith::MaximumFOp::create(b, k.loc, old.maxima[row], largest);
    // No key seen so far: differences of infinities would be NaN.
    Value none = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, maximum, infinity());
    Value base = select(none, number(0), maximum);
    Value factor = power(arith::SubFOp::create(b, k.loc, old.maxima[row], base));
    Value sum = arith::MulFOp::create(b, k.loc, old.sums[row], factor);
    for (size_t tile = 0; tile * 4 < score.size(); ++tile)
      for (int64_t i : {0, 1}) {
        size_t at = tile * 4 + 2 * row + i;
        exponentials[at] = power(arith::SubFOp::create(b, k.loc, score[at], base));
        sum = arith::AddFOp::create(b, k.loc, sum, exponentials[at]);
      }
    next.maxima.push_back(maximum);
    next.sums.push_back(sum);
    for (size_t tile = 0; tile * 4 < next.results.size(); ++tile)
      for (int64_t i : {0, 1}) {
        Value &v = next.results[tile * 4 + 2 * row + i];
        v = arith::MulFOp::create(b, k.loc, v, factor);
      }
  }
  addValues(old.stage, exponentials, next.results);
  return next;
}

/// The results of 16 columns are those of two instructions: for f32 of the even columns and of the odd ones.
void MatrixAttention::addValues(Value stage, ArrayRef<Value> exponentials, SmallVector<Value> &results) {
  int64_t pairs = valueWidth / kPair;
  Value zero = number(0);
  SmallVector<Value> sums = unit.isExact() ? results : SmallVector<Value>(results.size(), zero);
  auto add = [&](ArrayRef<Value> left, int64_t part, ArrayRef<Value> right) {
    MutableArrayRef<Value> own = MutableArrayRef<Value>(sums).slice(part * 4, 4);
    SmallVector<Value> next = unit.instruction(left, right, own);
    llvm::copy(next, own.begin());
  };
  auto valueAt = [&](int64_t key, int64_t pair, int64_t words) {
    // Two neighbouring columns, of 16: the thread's group says which.
    Value row = m.add(m.constant(key), m.mul(place4, 2)), chunk = m.constant(0);
    Value column = m.add(m.constant(pair * kPair * byteSize(element) / 4), m.mul(group, words));
    return loadWords(m.add(wordOf(valueRows, stage, row, chunk), column), words);
  };
  if (element.isF32()) {
    for (int64_t tile = 0; tile < keys / MatrixUnit::kColumns; ++tile) {
      SmallVector<Value> left[2];
      for (int64_t i : {0, 2, 1, 3}) {
        Value word = arith::BitcastOp::create(b, k.loc, b.getI32Type(), exponentials[tile * 4 + i]);
        auto [high, low] = unit.split(word);
        left[0].push_back(high);
        left[1].push_back(low);
      }
      // A few pairs at once: enough independent instructions, and registers for their words.
      constexpr int64_t kTogether = 2;
      for (int64_t firstPair = 0; firstPair < pairs; firstPair += kTogether) {
        // Upper parts, rests, and upper parts without infinities, to multiply rests with.
        SmallVector<SmallVector<Value>> right[3];
        for (int64_t pair = firstPair; pair < std::min(firstPair + kTogether, pairs); ++pair) {
          Value first = valueAt(tile * 8, pair, 2), second = valueAt(tile * 8 + 1, pair, 2);
          for (int64_t odd : {0, 1}) {
            SmallVector<Value> parts[3];
            for (Value v : {first, second}) {
              auto [high, low] = unit.split(vector::ExtractOp::create(b, k.loc, v, odd));
              parts[0].push_back(high);
              parts[1].push_back(low);
              parts[2].push_back(unit.finite(high));
            }
            for (auto [list, words] : llvm::zip(right, parts))
              list.push_back(words);
          }
        }
        for (auto [l, r] : {std::make_pair(1, 2), {0, 1}, {0, 0}})
          for (auto [part, words] : llvm::enumerate(right[r]))
            add(left[l], 2 * firstPair + part, words);
      }
    }
    for (auto [sum, v] : llvm::zip(sums, results))
      sum = arith::AddFOp::create(b, k.loc, v, sum);
    results = sums;
    return;
  }
  Type i32 = b.getI32Type(), pairType = VectorType::get({2}, element);
  auto narrowed = [&](Value x, Value y) -> Value {
    Value both = vector::FromElementsOp::create(b, k.loc, VectorType::get({2}, b.getF32Type()), ValueRange{x, y});
    return LLVM::BitcastOp::create(b, k.loc, i32, arith::TruncFOp::create(b, k.loc, pairType, both));
  };
  // Lanes give the addresses of rows of 8 columns: those of 8 keys after those of 8 others, for 8 columns and the next.
  Value lane = m.rem(k.thread(), m.constant(k.warp)), sixteen = m.constant(16);
  Value key = m.rem(lane, sixteen), columnChunk = m.div(lane, sixteen);
  for (int64_t tile = 0; tile < keys / MatrixUnit::kColumns; tile += 2) {
    ArrayRef<Value> e = exponentials.slice(tile * 4, 8);
    SmallVector<Value> left = {narrowed(e[0], e[1]), narrowed(e[2], e[3]), narrowed(e[4], e[5]), narrowed(e[6], e[7])};
    for (int64_t pair = 0; pair < pairs; ++pair) {
      Value row = m.add(m.constant(tile * 8), key), chunk = m.add(m.constant(2 * pair), columnChunk);
      SmallVector<Value> words = unit.loadTransposed(address(wordOf(valueRows, stage, row, chunk)));
      add(left, 2 * pair, {words[0], words[1]});
      add(left, 2 * pair + 1, {words[2], words[3]});
    }
  }
  results = sums;
}

LogicalResult MatrixAttention::writeResult(const State &state) {
  for (int64_t row : {0, 1}) {
    Value sum = state.sums[row], query = queryOf(row);
    for (int64_t lanes : {1, 2})
      sum = arith::AddFOp::create(b, k.loc, sum, k.shuffleXor(sum, lanes));
    Value factor = parts ? Value() : inverse(sum);
    auto some = scf::IfOp::create(b, k.loc, less(query, points.expr(queryCount)), /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(some.thenBlock());
    Value memory;
    if (parts) {
      memory = partResults(query, parts->number);
      // All four threads have the row's.
      emitIf(b, k.loc, m.equal(place4, m.constant(0)), {}, [&] {
        PointEmitter::Scope scope(points);
        LLVM::StoreOp::create(b, k.loc, state.maxima[row], partMaximum(query, parts->number), 4);
        LLVM::StoreOp::create(b, k.loc, sum, partSum(query, parts->number), 4);
        return SmallVector<Value>();
      });
    }
    // f32 has four neighbouring columns of both instructions of a pair, half floats two of each.
    int64_t width = points.lanes();
    for (int64_t first = 0; first < valueWidth; first += 4 * width) {
      PointEmitter::Scope scope(points);
      SmallVector<Value> columns;
      for (int64_t i = 0; i < width; ++i) {
        int64_t part = first / MatrixUnit::kColumns + (width == 4 ? i % 2 : 0), at = width == 4 ? i / 2 : i;
        Value v = state.results[part * 4 + 2 * row + at];
        columns.push_back(parts ? v : arith::MulFOp::create(b, k.loc, v, factor).getResult());
      }
      Value all = vector::FromElementsOp::create(b, k.loc, VectorType::get({width}, type), columns);
      Value column = m.add(m.constant(first), m.mul(place4, width));
      if (parts) {
        LLVM::StoreOp::create(b, k.loc, all, m.advance(memory, m.mul(column, 4)), 4 * width);
        continue;
      }
      if (failed(storeResult(query, Idx(column, /*lanes=*/true, 1, width), all)))
        return failure();
    }
  }
  return success();
}

LogicalResult disc::emitMatrixAttention(DeviceKernel &k, AttentionOp op) { return MatrixAttention(k, op).emit(); }
