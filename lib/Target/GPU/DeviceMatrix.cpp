//===- DeviceMatrix.cpp - products on a matrix unit -------------------------===//
//
// A block computes a tile of results, each of its warps a part of the tile, over steps of a line (64 bytes) along the
// sum. Lines of both operands go to memory of the block, several steps ahead of the one that is multiplied:
//
//   scf.for %step = 0 to K / line iter_args(sums, %stage) {
//     nvvm.cp.async.wait.group ; gpu.barrier                       // the lines of %step are there
//     nvvm.cp.async of the lines of %step + stages - 1, to where those of %step - 1 were
//     chunks of 16 bytes from memory of the block ; nvvm.mma.sync
//   }
//   sums to memory of the block ; the epilogue at neighbouring points of a row ; stores
//
// A line of an operand that cannot be copied in chunks (a computed operand, or one stored along its rows) is evaluated
// element by element and stored to memory of the block by the thread.
//
// Where there are few tiles (`slices` of the schedule), all warps of a block have the same tile, and each takes some of
// the steps. Chunks then come straight from the operands, since no other warp needs them, and the warps' sums are added
// up in memory of the block, in order.
//
// A product of few rows takes as long as its right operand (weights) takes to be read. With `slices` and more than two
// `stages`, a thread copies the chunks of weights that it needs itself to a queue of its own in memory of the block, so
// many steps ahead. No thread waits for another one, and the bytes on their way occupy no registers:
//
//   nvvm.cp.async of the chunks of steps 0, ..., stages - 2
//   nvvm.griddepcontrol wait                    // for other kernels, where the weights are constant
//   scf.for %pair = warp to K / (2 * line) step slices iter_args(sums, %slot) {
//     nvvm.cp.async of the chunks of step + stages - 1, to where those of step - 1 were
//     llvm.load of the left operand's chunks of both steps of the pair
//     nvvm.cp.async.wait.group stages - 1 ; llvm.load from the queue ; nvvm.mma.sync
//     the same for the second step, except the loads: a warp reads 128 neighbouring bytes of each line
//   }
//   nvvm.griddepcontrol launch_dependents
//
// Weights that are codes (DeviceCodes.h) pass through such a queue as they are, with their scales, a block of values of
// k in each step. Threads multiply whole numbers, and scale the sums of each run of values that share a scale. Tiles of
// more rows read lines of what the codes stand for, which a kernel before this one has computed (`disc_plan.before`).
//
// Chunk `c` of line `r` is stored at chunk `c ^ (r / 2 % 4)`: then eight neighbouring threads write to, and read from,
// different banks, in all orders that occur here.
//
// Lit test: test/lit/GPU/matrix-products.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Target/GPU/DeviceProduct.h"
#include "lib/Target/GPU/MatrixUnit.h"

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
constexpr int64_t kPadding = 8; // words behind a row of sums: rows then start in different banks

class MatrixProduct {
public:
  MatrixProduct(DeviceKernel &k, ProductSource &source)
      : k(k), b(k.b), m(k.m), source(source), points(source.points), element(source.operandElement()),
        unit(k.b, k.loc, element), coded(source.codes()) {}

  LogicalResult emit();

private:
  /// An operand's lines that the block needs: rows of the left one, columns of the right one.
  struct Operand {
    explicit Operand(bool isLeft) : isLeft(isLeft) {}

    const bool isLeft;
    int64_t width = 0; // lines of the tile
    Value first, count;
    bool alongDepth = false, isCopied = false;
    int64_t firstWord = 0;          // of the operand in a stage
    SmallVector<Value> own, chunks; // of each chunk that the thread brings: the line in the tile, and its chunk
    SmallVector<Value> addresses;   // of each, if it is copied: at step 0
  };

  void placeOperand(Operand &operand);
  Value clampedLine(const Operand &operand, Value line);
  Value chunkAt(const Operand &operand, Value line, Value address, Value position);
  Value wordOf(const Operand &operand, Value stage, Value line, Value chunk);
  void copy(const Operand &operand, Value step, Value stage);
  SmallVector<Value> evaluate(const Operand &operand, Value step);
  void put(const Operand &operand, ValueRange values, Value stage);
  MatrixUnit::Fragment fragment(const Operand &operand, Value stage, Value line);
  SmallVector<Value> staged();
  SmallVector<Value> sliced();
  struct Line {
    const Operand *operand;
    Value line, start; // start: null unless it is read in chunks
  };
  SmallVector<Line> warpLines();
  Value zeroChunk() { return points.constant(cast<TypedAttr>(b.getZeroAttr(unit.chunkType()))); }
  SmallVector<Value> streamed(ArrayRef<Line> lines);
  SmallVector<Value> streamedCodes(ArrayRef<Line> rows);
  int64_t codeWords();
  int64_t codeStages();
  void storeSums(ValueRange sums, Value firstRow);
  void epilogue(ValueRange sums);
  Value withoutNan(Value sum, Value row, Value column);
  void storeRows(Value firstRow, int64_t rows);

  Value fits(Value position) { return m.less(position, depth); }
  bool alwaysFits() const { return knownDepth % unit.line() == 0; }
  Value address(Value word) {
    return LLVM::GEPOp::create(b, k.loc, memory.getType(), b.getI32Type(), memory, ArrayRef<LLVM::GEPArg>{m.i64(word)},
                               LLVM::GEPNoWrapFlags::inbounds);
  }

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  ProductSource &source;
  PointEmitter &points;
  Type element;
  MatrixUnit unit;
  DeviceCodes *coded; ///< The right operand, if it is codes.

  int64_t tileRows = 0, tileColumns = 0, warpRows = 0, warpColumns = 0, stages = 0, slices = 0, knownDepth = 0;
  int64_t rowWarps = 0, columnWarps = 0, pitch = 0;
  Operand left{true}, right{false};
  Value memory, depth, steps, batch, warp, warpRow, warpColumn, group, place; // place: in a group of four threads
  bool ok = true;
};
} // namespace

LogicalResult MatrixProduct::emit() {
  auto schedule = k.schedule<DeviceMatrixScheduleAttr>();
  tileRows = schedule.getTileRows(), tileColumns = schedule.getTileColumns();
  warpRows = schedule.getWarpRows(), warpColumns = schedule.getWarpColumns();
  stages = schedule.getStages(), slices = schedule.getSlices();
  rowWarps = tileRows / warpRows, columnWarps = tileColumns / warpColumns;
  pitch = tileColumns + kPadding;
  knownDepth = source.depth().content();
  depth = points.expr(source.depth());
  steps = points.expr(SymExpr::ceilDiv(source.depth(), SymExpr(unit.line())));

  Value across = points.expr(SymExpr::ceilDiv(source.columns(), SymExpr(tileColumns)));
  Value down = points.expr(SymExpr::ceilDiv(source.rows(), SymExpr(tileRows)));
  Value block = k.block(), rest = m.div(block, across);
  batch = m.div(rest, down);
  left.width = tileRows, left.count = points.expr(source.rows()), left.first = m.mul(m.rem(rest, down), tileRows);
  right.width = tileColumns, right.count = points.expr(source.columns());
  right.first = m.mul(m.rem(block, across), tileColumns);
  left.alongDepth = source.lhsAlongDepth(), right.alongDepth = source.rhsAlongDepth();
  right.firstWord = tileRows * kWords;

  Value thread = k.thread(), lanes = m.constant(k.warp), lane = m.rem(thread, lanes), four = m.constant(kChunks);
  warp = m.div(thread, lanes);
  group = m.div(lane, four), place = m.rem(lane, four);
  Value perRow = m.constant(columnWarps);
  warpRow = slices > 1 ? m.constant(0) : m.mul(m.div(warp, perRow), warpRows);
  warpColumn = slices > 1 ? m.constant(0) : m.mul(m.rem(warp, perRow), warpColumns);

  int64_t sumWords = pitch * (slices > 1 ? slices * tileRows : warpRows);
  int64_t lineWords = stages * (tileRows + tileColumns) * kWords;
  if (slices > 1)
    lineWords = stages <= 2 ? 0 : coded ? codeStages() * slices * codeWords() : stages * slices * tileColumns * kWords;
  memory = k.shared(b.getI32Type(), std::max(sumWords, lineWords));
  SmallVector<Value> sums = slices > 1 ? sliced() : staged();
  if (ok)
    epilogue(sums);
  return success(ok);
}

Value MatrixProduct::clampedLine(const Operand &operand, Value line) {
  // Results of lines beyond the last one are not stored.
  return m.min(m.add(operand.first, line), m.sub(operand.count, m.constant(1)));
}

/// The chunk that begins at a position of the sum; zeros beyond the end. `address`: of position 0 of the line, if it is
/// read in chunks.
Value MatrixProduct::chunkAt(const Operand &operand, Value line, Value lineStart, Value position) {
  // Beyond the depth the other operand is zero.
  if (coded && !operand.isLeft && !lineStart)
    return coded->chunk(unit, batch, line, position);
  Value last = m.sub(depth, m.constant(1));
  if (lineStart) {
    // The depth is a multiple of a chunk, so a chunk is inside or outside as a whole.
    Value at = alwaysFits() ? position : m.min(position, m.sub(depth, m.constant(unit.chunk())));
    Value v = LLVM::LoadOp::create(b, k.loc, unit.chunkType(),
                                   m.advance(lineStart, m.mul(at, MatrixUnit::kChunkBytes / unit.chunk())),
                                   MatrixUnit::kChunkBytes);
    if (alwaysFits())
      return v;
    Value zero = points.constant(cast<TypedAttr>(b.getZeroAttr(unit.chunkType())));
    return arith::SelectOp::create(b, k.loc, fits(position), v, zero);
  }
  SmallVector<Value> elements;
  Value zero = points.constant(cast<TypedAttr>(b.getZeroAttr(element)));
  for (int64_t i = 0; i < unit.chunk() && ok; ++i) {
    PointEmitter::Scope scope(points);
    Value at = m.add(position, m.constant(i)), inside = m.min(at, last);
    Value v = operand.isLeft ? source.lhs(batch, line, inside) : source.rhs(batch, inside, line);
    if (!(ok &= bool(v)))
      break;
    elements.push_back(alwaysFits() ? v : arith::SelectOp::create(b, k.loc, fits(at), v, zero).getResult());
  }
  return ok ? unit.pack(elements) : points.constant(cast<TypedAttr>(b.getZeroAttr(unit.chunkType())));
}

/// Which chunks of each step the thread brings. Neighbouring threads read neighbouring elements: of a line if those lie
/// along the sum, otherwise of neighbouring lines.
void MatrixProduct::placeOperand(Operand &operand) {
  int64_t count = operand.width * kChunks, threads = k.threads();
  for (int64_t from = 0; from < count; from += threads) {
    Value position = m.add(k.thread(), m.constant(from));
    Value fast = m.constant(operand.alongDepth ? kChunks : operand.width);
    Value inner = m.rem(position, fast), outer = m.div(position, fast);
    Value line = operand.alongDepth ? outer : inner, chunk = operand.alongDepth ? inner : outer;
    operand.own.push_back(line);
    operand.chunks.push_back(chunk);
    if (Value start = source.lineAddress(operand.isLeft, batch, clampedLine(operand, line)))
      operand.addresses.push_back(m.advance(start, m.mul(chunk, MatrixUnit::kChunkBytes)));
  }
  operand.isCopied = !operand.addresses.empty();
}

Value MatrixProduct::wordOf(const Operand &operand, Value stage, Value line, Value chunk) {
  Value stageWord = m.mul(stage, (tileRows + tileColumns) * kWords);
  Value two = m.constant(2), turn = m.rem(m.div(line, two), m.constant(kChunks));
  Value turned = arith::XOrIOp::create(b, k.loc, chunk, turn);
  Value word = m.add(m.mul(line, kWords), m.mul(turned, kChunkWords));
  return m.add(m.add(stageWord, m.constant(operand.firstWord)), word);
}

/// Starts to copy the lines of a step.
void MatrixProduct::copy(const Operand &operand, Value step, Value stage) {
  Type i32 = b.getI32Type();
  for (auto [line, chunk, start] : llvm::zip(operand.own, operand.chunks, operand.addresses)) {
    Value to = address(wordOf(operand, stage, line, chunk));
    Value from = m.advance(start, m.mul(step, MatrixUnit::kLineBytes));
    Value size;
    if (!alwaysFits()) {
      // Bytes that are not copied become zero.
      Value position = m.add(m.mul(step, unit.line()), m.mul(chunk, unit.chunk()));
      Value all = arith::ConstantOp::create(b, k.loc, b.getI32IntegerAttr(MatrixUnit::kChunkBytes));
      Value none = arith::ConstantOp::create(b, k.loc, b.getI32IntegerAttr(0));
      size = arith::SelectOp::create(b, k.loc, i32, fits(position), all, none);
    }
    NVVM::CpAsyncOp::create(b, k.loc, to, from, MatrixUnit::kChunkBytes, NVVM::LoadCacheModifierKind::CG, size);
  }
}

SmallVector<Value> MatrixProduct::evaluate(const Operand &operand, Value step) {
  SmallVector<Value> values;
  for (auto [line, chunk] : llvm::zip(operand.own, operand.chunks)) {
    Value position = m.add(m.mul(step, unit.line()), m.mul(chunk, unit.chunk()));
    values.push_back(chunkAt(operand, clampedLine(operand, line), {}, position));
  }
  return values;
}

void MatrixProduct::put(const Operand &operand, ValueRange values, Value stage) {
  for (auto [line, chunk, v] : llvm::zip(operand.own, operand.chunks, values))
    LLVM::StoreOp::create(b, k.loc, v, address(wordOf(operand, stage, line, chunk)), MatrixUnit::kChunkBytes);
}

MatrixUnit::Fragment MatrixProduct::fragment(const Operand &operand, Value stage, Value line) {
  Value at = address(wordOf(operand, stage, line, place));
  return unit.prepare(LLVM::LoadOp::create(b, k.loc, unit.chunkType(), at, MatrixUnit::kChunkBytes));
}

/// Lines in memory of the block.
SmallVector<Value> MatrixProduct::staged() {
  auto copyAll = [&](Value step, Value stage) {
    for (Operand *operand : {&left, &right})
      if (operand->isCopied)
        copy(*operand, step, stage);
  };
  auto guarded = [&](Value step, function_ref<void()> body) {
    emitIf(b, k.loc, m.less(step, steps), {}, [&] {
      PointEmitter::Scope scope(points);
      body();
      return SmallVector<Value>();
    });
  };
  for (Operand *operand : {&left, &right})
    placeOperand(*operand);
  bool anyCopied = left.isCopied || right.isCopied;
  // Operands of a sum without elements have nothing to read.
  guarded(m.constant(0), [&] {
    for (Operand *operand : {&left, &right})
      if (!operand->isCopied)
        put(*operand, evaluate(*operand, m.constant(0)), m.constant(0));
  });
  for (int64_t i = 0; i + 1 < stages && anyCopied; ++i) {
    guarded(m.constant(i), [&] { copyAll(m.constant(i), m.constant(i)); });
    NVVM::CpAsyncCommitGroupOp::create(b, k.loc);
  }
  int64_t rowTiles = warpRows / MatrixUnit::kRows, columnTiles = warpColumns / MatrixUnit::kColumns;
  SmallVector<Value> carried(rowTiles * columnTiles * 4, points.constant(b.getF32FloatAttr(0)));
  carried.push_back(m.constant(0));
  Value one = m.constant(1), zero = m.constant(0);
  carried = emitFor(b, k.loc, zero, steps, one, carried, [&](Value step, ValueRange values) {
    PointEmitter::Scope scope(points);
    Value stage = values.back();
    if (anyCopied)
      NVVM::CpAsyncWaitGroupOp::create(b, k.loc, stages - 2);
    k.barrier();
    if (anyCopied) {
      Value ahead = m.add(step, m.constant(stages - 1));
      Value free = arith::SelectOp::create(b, k.loc, m.equal(stage, zero), m.constant(stages - 1), m.sub(stage, one));
      guarded(ahead, [&] { copyAll(ahead, free); });
      NVVM::CpAsyncCommitGroupOp::create(b, k.loc);
    }
    Value after = m.add(stage, one);
    after = arith::SelectOp::create(b, k.loc, m.equal(after, m.constant(stages)), zero, after);
    SmallVector<Value> brought[2];
    for (auto [operand, list] : llvm::zip(ArrayRef<Operand *>{&left, &right}, brought))
      if (!operand->isCopied)
        list = evaluate(*operand, m.add(step, one));

    SmallVector<MatrixUnit::Fragment> columns;
    for (int64_t j = 0; j < columnTiles; ++j)
      columns.push_back(fragment(right, stage, m.add(m.add(warpColumn, m.constant(j * MatrixUnit::kColumns)), group)));
    // Two tiles of rows at once: enough independent instructions, and registers for their fragments.
    constexpr int64_t kTogether = 2;
    SmallVector<Value> next;
    for (int64_t i = 0; i < rowTiles; i += kTogether) {
      SmallVector<MatrixUnit::Fragment> rows;
      for (int64_t row = i * MatrixUnit::kRows; row < std::min(i + kTogether, rowTiles) * MatrixUnit::kRows; row += 8)
        rows.push_back(fragment(left, stage, m.add(m.add(warpRow, m.constant(row)), group)));
      llvm::append_range(next,
                         unit.multiply(rows, columns, values.slice(next.size(), rows.size() / 2 * columnTiles * 4)));
    }
    for (auto [operand, list] : llvm::zip(ArrayRef<Operand *>{&left, &right}, brought))
      if (!operand->isCopied)
        put(*operand, list, after);
    next.push_back(after);
    return next;
  });
  k.keepRolled(carried);
  if (anyCopied)
    NVVM::CpAsyncWaitGroupOp::create(b, k.loc, 0);
  // The memory is that of the sums from here on.
  k.barrier();
  carried.pop_back();
  return carried;
}

/// The lines of the tile of which the thread needs chunks: the left operand's, and then the right one's.
SmallVector<MatrixProduct::Line> MatrixProduct::warpLines() {
  SmallVector<Line> lines;
  for (const Operand *operand : {&left, &right})
    for (int64_t i = 0; i < operand->width; i += 8) {
      Value line = clampedLine(*operand, m.add(m.constant(i), group));
      lines.push_back({operand, line, source.lineAddress(operand->isLeft, batch, line)});
    }
  return lines;
}

/// Every warp takes pairs of steps `warp`, `warp + slices`, ...; chunks of the right operand pass through a queue.
SmallVector<Value> MatrixProduct::streamed(ArrayRef<Line> lines) {
  int64_t rowTiles = tileRows / MatrixUnit::kRows, columnTiles = tileColumns / MatrixUnit::kColumns;
  size_t numSums = rowTiles * columnTiles * 4;
  ArrayRef<Line> rows = lines.take_front(2 * rowTiles), columns = lines.drop_front(2 * rowTiles);
  Value two = m.constant(2), pairs = m.ceilDiv(steps, two), numSlices = m.constant(slices);
  Value offset = m.mul(place, unit.chunk());
  // Step `number` (of a known parity) of those that the warp does from `pair` on: where the thread's chunk begins.
  auto positionOf = [&](Value pair, int64_t number) {
    Value later = m.add(pair, m.constant(number / 2 * slices));
    return m.add(m.mul(m.add(m.mul(later, 2), m.constant(number % 2)), unit.line()), offset);
  };
  // Whether every step of a pair that a warp does is inside as a whole.
  bool isExact = alwaysFits() && knownDepth % (2 * unit.line()) == 0;

  int64_t stageWords = columns.size() * k.threads() * kChunkWords;
  Value own = m.mul(k.thread(), kChunkWords);
  auto queued = [&](Value slot, size_t column) {
    Value word = m.add(m.mul(slot, stageWords), m.constant(column * k.threads() * kChunkWords));
    return address(m.add(word, own));
  };
  auto copyColumns = [&](Value position, Value slot) {
    // Beyond the end nothing is read, and the chunk is zero.
    Value all = arith::ConstantOp::create(b, k.loc, b.getI32IntegerAttr(MatrixUnit::kChunkBytes));
    Value none = arith::ConstantOp::create(b, k.loc, b.getI32IntegerAttr(0));
    Value size = arith::SelectOp::create(b, k.loc, fits(position), all, none);
    Value bytes = m.mul(position, MatrixUnit::kChunkBytes / unit.chunk());
    for (auto [i, column] : llvm::enumerate(columns))
      NVVM::CpAsyncOp::create(b, k.loc, queued(slot, i), m.advance(column.start, bytes), MatrixUnit::kChunkBytes,
                              NVVM::LoadCacheModifierKind::CG, size);
    NVVM::CpAsyncCommitGroupOp::create(b, k.loc);
  };
  auto loadRows = [&](Value position) {
    Value inside = m.min(position, m.sub(depth, m.constant(unit.chunk())));
    Value bytes = m.mul(inside, MatrixUnit::kChunkBytes / unit.chunk());
    SmallVector<Value> chunks;
    for (const Line &row : rows)
      chunks.push_back(row.start ? LLVM::LoadOp::create(b, k.loc, unit.chunkType(), m.advance(row.start, bytes),
                                                        MatrixUnit::kChunkBytes)
                                       .getResult()
                                 : chunkAt(*row.operand, row.line, {}, position));
    return chunks;
  };
  auto multiply = [&](ArrayRef<Value> chunks, Value position, Value slot, ValueRange sums) {
    NVVM::CpAsyncWaitGroupOp::create(b, k.loc, stages - 1);
    SmallVector<MatrixUnit::Fragment> left, right;
    for (Value chunk : chunks)
      left.push_back(unit.prepare(
          isExact ? chunk : arith::SelectOp::create(b, k.loc, fits(position), chunk, zeroChunk()).getResult()));
    for (size_t i = 0; i < columns.size(); ++i)
      right.push_back(
          unit.prepare(LLVM::LoadOp::create(b, k.loc, unit.chunkType(), queued(slot, i), MatrixUnit::kChunkBytes)));
    return unit.multiply(left, right, sums);
  };
  auto after = [&](Value slot, int64_t by) {
    Value next = m.add(slot, m.constant(by)), size = m.constant(stages);
    return arith::SelectOp::create(b, k.loc, m.less(next, size), next, m.sub(next, size)).getResult();
  };

  for (int64_t i = 0; i + 1 < stages; ++i)
    copyColumns(positionOf(warp, i), m.constant(i));
  if (source.isConstant(/*isLeft=*/false))
    k.delayWait();
  SmallVector<Value> carried(numSums, points.constant(b.getF32FloatAttr(0)));
  carried.push_back(m.constant(0));
  carried = emitFor(b, k.loc, warp, pairs, numSlices, carried, [&](Value pair, ValueRange values) {
    PointEmitter::Scope scope(points);
    SmallVector<Value> sums(values.drop_back()), chunks[2];
    Value slot = values.back();
    for (int64_t half : {0, 1}) {
      copyColumns(positionOf(pair, half + stages - 1), after(slot, stages - 1));
      if (half == 0)
        for (int64_t each : {0, 1})
          chunks[each] = loadRows(positionOf(pair, each));
      sums = multiply(chunks[half], positionOf(pair, half), slot, sums);
      slot = after(slot, 1);
    }
    sums.push_back(slot);
    return sums;
  });
  k.keepRolled(carried);
  // Before, its weights would take bandwidth from these (a decoder's step on an H200: 1081 us, and 1220).
  k.delayNext();
  NVVM::CpAsyncWaitGroupOp::create(b, k.loc, 0);
  // The memory is that of the sums from here on.
  k.barrier();
  carried.resize(numSums);
  return carried;
}

/// Of a stage of the queue: the codes of the tile, and a scale and zero for each thread where those differ along k.
int64_t MatrixProduct::codeWords() {
  int64_t more = coded->groups > 1 ? k.warp * (1 + coded->hasZeros()) : 0;
  return tileColumns / DeviceCodes::kColumns * (DeviceCodes::kFragmentBytes / 4 + more);
}

/// As many as fit into 48 KiB.
int64_t MatrixProduct::codeStages() {
  constexpr int64_t kMostWords = (48 << 10) / 4;
  return std::max<int64_t>(std::min(stages, kMostWords / (slices * codeWords())), 2);
}

/// Every warp takes blocks `warp`, `warp + slices`, ... of the codes.
SmallVector<Value> MatrixProduct::streamedCodes(ArrayRef<Line> rows) {
  int64_t tiles = tileColumns / DeviceCodes::kColumns, runs = coded->runs(), numStages = codeStages();
  int64_t rowTiles = tileRows / MatrixUnit::kRows;
  if (rowTiles > 1)
    k.function->setAttr(kResidentThreadsAttr, b.getI64IntegerAttr(256));
  bool isGrouped = coded->groups > 1, hasZeros = coded->hasZeros();
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  Value lane = m.rem(k.thread(), m.constant(k.warp)), blocks = m.constant(coded->blocks());
  Value numSlices = m.constant(slices), size = m.constant(numStages);
  auto number = [&](int64_t v) -> Value { return arith::ConstantOp::create(b, k.loc, b.getI32IntegerAttr(v)); };

  // Of each tile of columns: its codes, and its scales and zeros. Thread `8 * run + column` brings those of a run of
  // values of k.
  SmallVector<Value> codes;
  SmallVector<std::pair<Value, Value>> panes;
  Value eight = m.constant(8), own = m.mul(m.rem(lane, eight), 4), ownRun = m.rem(m.div(lane, eight), m.constant(runs));
  for (int64_t j = 0; j < tiles; ++j) {
    Value tile = m.min(m.add(m.div(right.first, eight), m.constant(j)), m.constant(coded->tiles() - 1));
    codes.push_back(m.advance(coded->fragmentAddress(batch, tile), m.mul(lane, MatrixUnit::kChunkBytes)));
    panes.push_back({coded->scaleAddress(batch, tile), hasZeros ? coded->zeroAddress(batch, tile) : Value()});
  }
  int64_t perTile = codeWords() / tiles, codesWords = DeviceCodes::kFragmentBytes / 4;
  auto queued = [&](Value slot, int64_t tile, int64_t part) {
    Value word = m.mul(m.add(m.mul(slot, slices), warp), codeWords());
    word = m.add(word, m.constant(tile * perTile + (part ? codesWords + (part - 1) * k.warp : 0)));
    return address(m.add(word, m.mul(lane, part ? 1 : kChunkWords)));
  };
  auto copyBlock = [&](Value block, Value slot) {
    // Beyond the end nothing is read, and the codes are zero.
    auto bytes = [&](int64_t count) -> Value {
      return arith::SelectOp::create(b, k.loc, m.less(block, blocks), number(count), number(0));
    };
    Value inside = m.min(block, m.constant(coded->blocks() - 1));
    auto copyOne = [&](Value to, Value from) {
      NVVM::CpAsyncOp::create(b, k.loc, to, from, 4, NVVM::LoadCacheModifierKind::CA, bytes(4));
    };
    Value position = m.add(m.mul(inside, coded->block), m.mul(ownRun, DeviceCodes::kRun));
    Value group = m.min(m.div(position, m.constant(coded->groupSize())), m.constant(coded->groups - 1));
    Value offset = m.add(m.mul(group, coded->groupBytes()), own);
    for (int64_t j = 0; j < tiles; ++j) {
      NVVM::CpAsyncOp::create(b, k.loc, queued(slot, j, 0),
                              m.advance(codes[j], m.mul(inside, DeviceCodes::kFragmentBytes)), MatrixUnit::kChunkBytes,
                              NVVM::LoadCacheModifierKind::CG, bytes(MatrixUnit::kChunkBytes));
      if (isGrouped)
        copyOne(queued(slot, j, 1), m.advance(panes[j].first, offset));
      if (isGrouped && hasZeros)
        copyOne(queued(slot, j, 2), m.advance(panes[j].second, offset));
    }
    NVVM::CpAsyncCommitGroupOp::create(b, k.loc);
  };
  auto loadRows = [&](Value position) {
    // The last block may be longer than the sum.
    bool isInside = knownDepth % coded->block == 0;
    Value at = isInside ? position : m.min(position, m.sub(depth, m.constant(unit.chunk())));
    SmallVector<Value> chunks;
    for (const Line &row : rows) {
      Value chunk = chunkAt(*row.operand, row.line, row.start, row.start ? at : position);
      if (row.start && !isInside)
        chunk = arith::SelectOp::create(b, k.loc, fits(position), chunk, zeroChunk());
      chunks.push_back(chunk);
    }
    return chunks;
  };
  auto fromLane = [&](Value v, Value from) -> Value {
    return gpu::ShuffleOp::create(b, k.loc, v, from, number(k.warp), gpu::ShuffleMode::IDX).getShuffleResult();
  };
  auto lane32 = [&](Value at) -> Value { return arith::IndexCastOp::create(b, k.loc, i32, at); };
  auto load = [&](Type type, Value at, int64_t bytes) -> Value {
    return LLVM::LoadOp::create(b, k.loc, type, at, bytes);
  };
  // Of halves, sums of the left operand take the place of subtracting zeros from all codes. A thread's sums are those
  // of two neighbouring columns and two rows.
  bool bySums = hasZeros && unit.isExact();
  using Pair = std::pair<Value, Value>;
  auto scaled = [&](ValueRange part, ValueRange rowSums, Pair zero, Pair scale) {
    SmallVector<Value> out;
    for (auto [i, sum] : llvm::enumerate(part)) {
      Value v = sum;
      if (bySums) {
        Value own = arith::SubFOp::create(b, k.loc, i % 2 ? zero.second : zero.first,
                                          points.constant(b.getF32FloatAttr(float(coded->commonZero()))));
        v = arith::SubFOp::create(b, k.loc, v, arith::MulFOp::create(b, k.loc, rowSums[i], own));
      }
      out.push_back(arith::MulFOp::create(b, k.loc, v, i % 2 ? scale.second : scale.first));
    }
    return out;
  };
  MatrixUnit::Fragment ones;
  for (int64_t i = 0; i < 4; ++i)
    ones.parts[0].push_back(number(element.isF16() ? 0x3c003c00 : 0x3f803f80));

  // Zeros of whole columns do not change.
  SmallVector<Value> zeros(tiles);
  if (hasZeros && !isGrouped && !bySums)
    for (int64_t j = 0; j < tiles; ++j)
      zeros[j] = load(f32, m.advance(panes[j].second, m.mul(group, 4)), 4);
  for (int64_t i = 0; i + 1 < numStages; ++i)
    copyBlock(m.add(warp, m.constant(i * slices)), m.constant(i));
  if (coded->isConstant())
    k.delayWait();
  // Of each tile of rows the sums of all tiles of columns, and then those of the left operand.
  int64_t perRows = 4 * (tiles + bySums), numSums = rowTiles * perRows;
  SmallVector<Value> carried(numSums, points.constant(b.getF32FloatAttr(0)));
  SmallVector<Value> none = carried;
  carried.push_back(m.constant(0));
  carried = emitFor(b, k.loc, warp, blocks, numSlices, carried, [&](Value block, ValueRange values) {
    PointEmitter::Scope scope(points);
    SmallVector<Value> sums(values.drop_back()), part = isGrouped ? none : sums;
    Value slot = values.back();
    auto after = [&](int64_t by) -> Value {
      Value next = m.add(slot, m.constant(by));
      return arith::SelectOp::create(b, k.loc, m.less(next, size), next, m.sub(next, size));
    };
    copyBlock(m.add(block, m.constant((numStages - 1) * slices)), after(numStages - 1));
    // Eight values of each run: a chunk of halves, two of f32.
    int64_t perRun = 8 / unit.chunk();
    Value first = m.add(m.mul(block, coded->block), m.mul(place, 8));
    SmallVector<SmallVector<Value>> left;
    auto loadRun = [&](int64_t run) {
      for (int64_t i = 0; i < perRun && run < runs; ++i)
        left.push_back(loadRows(m.add(first, m.constant(run * DeviceCodes::kRun + i * unit.chunk()))));
    };
    // All of f32, or of many rows, would be too many registers.
    int64_t early = unit.isExact() && rowTiles == 1 ? runs : 1;
    for (int64_t run = 0; run < early; ++run)
      loadRun(run);
    NVVM::CpAsyncWaitGroupOp::create(b, k.loc, numStages - 1);
    SmallVector<Value> words, scale, zero = zeros;
    for (int64_t j = 0; j < tiles; ++j) {
      words.push_back(load(unit.chunkType(), queued(slot, j, 0), MatrixUnit::kChunkBytes));
      if (isGrouped)
        scale.push_back(load(f32, queued(slot, j, 1), 4));
      if (isGrouped && hasZeros)
        zero[j] = load(f32, queued(slot, j, 2), 4);
    }
    int64_t shared = isGrouped ? std::gcd(coded->groupSize(), coded->block) / DeviceCodes::kRun : runs;
    for (int64_t run = 0; run < runs; ++run) {
      loadRun(run + early);
      SmallVector<SmallVector<MatrixUnit::Fragment>> columns(perRun);
      for (int64_t j = 0; j < tiles; ++j) {
        Value own = bySums ? Value() : zero[j];
        if (own && isGrouped)
          own = fromLane(own, lane32(m.add(m.constant(run * 8), group)));
        for (auto [i, fragment] : llvm::enumerate(coded->numbers(unit, words[j], run, own)))
          columns[i].push_back(fragment);
      }
      for (int64_t i = 0; i < perRun; ++i) {
        auto prepared = llvm::map_to_vector(left[run * perRun + i], [&](Value chunk) { return unit.prepare(chunk); });
        if (bySums)
          columns[i].push_back(ones);
        part = unit.multiply(prepared, columns[i], part);
      }
      if (!isGrouped || (run + 1) % shared)
        continue;
      for (int64_t j = 0; j < tiles; ++j) {
        Value at = m.add(m.constant(run * 8), m.mul(place, 2));
        auto both = [&](Value v) -> Pair {
          return {fromLane(v, lane32(at)), fromLane(v, lane32(m.add(at, m.constant(1))))};
        };
        Pair zeroOf = bySums ? both(zero[j]) : Pair(), scaleOf = both(scale[j]);
        for (int64_t first = 0; first < numSums; first += perRows) {
          ArrayRef<Value> all = ArrayRef(part).slice(first, perRows);
          SmallVector<Value> own = scaled(all.slice(4 * j, 4), all.drop_front(4 * tiles), zeroOf, scaleOf);
          for (int64_t i = 0; i < 4; ++i)
            sums[first + 4 * j + i] = arith::AddFOp::create(b, k.loc, sums[first + 4 * j + i], own[i]);
        }
      }
      part = none;
    }
    SmallVector<Value> next = isGrouped ? sums : part;
    next.push_back(after(1));
    return next;
  });
  k.keepRolled(carried);
  k.delayNext();
  NVVM::CpAsyncWaitGroupOp::create(b, k.loc, 0);
  // The memory is that of the sums from here on.
  k.barrier();
  SmallVector<Pair> zeroOf(tiles), scaleOf(tiles);
  for (int64_t j = 0; j < tiles && !isGrouped; ++j) {
    auto both = [&](Value pane) -> Pair {
      Value at = m.advance(pane, m.mul(place, 8));
      return {load(f32, at, 8), load(f32, m.advance(at, m.constant(4)), 4)};
    };
    zeroOf[j] = bySums ? both(panes[j].second) : Pair(), scaleOf[j] = both(panes[j].first);
  }
  SmallVector<Value> sums;
  for (int64_t first = 0; first < numSums; first += perRows)
    for (int64_t j = 0; j < tiles; ++j) {
      ArrayRef<Value> all = ArrayRef(carried).slice(first, perRows), own = all.slice(4 * j, 4);
      if (isGrouped)
        llvm::append_range(sums, own);
      else
        llvm::append_range(sums, scaled(own, all.drop_front(4 * tiles), zeroOf[j], scaleOf[j]));
    }
  return sums;
}

/// Every warp takes steps `warp`, `warp + slices`, ... with chunks from the operands.
SmallVector<Value> MatrixProduct::sliced() {
  int64_t rowTiles = tileRows / MatrixUnit::kRows, columnTiles = tileColumns / MatrixUnit::kColumns;
  SmallVector<Line> lines = warpLines();
  if (stages > 2 && coded)
    return streamedCodes(ArrayRef(lines).take_front(2 * rowTiles));
  if (stages > 2 && lines.back().start)
    return streamed(lines);
  auto bring = [&](Value step) {
    Value position = m.add(m.mul(step, unit.line()), m.mul(place, unit.chunk()));
    SmallVector<Value> chunks;
    for (const Line &line : lines)
      chunks.push_back(chunkAt(*line.operand, line.line, line.start, position));
    return chunks;
  };
  // The chunks of the next step are on their way while those of this one are multiplied. There is at least one step,
  // or nothing is read.
  Value last = m.sub(steps, m.constant(1)), isThere = m.less(m.constant(0), steps);
  auto bringNearest = [&](Value step) { return bring(m.min(step, last)); };
  SmallVector<Value> none(lines.size(), points.constant(cast<TypedAttr>(b.getZeroAttr(unit.chunkType()))));
  SmallVector<Value> carried = emitIf(b, k.loc, isThere, none, [&] {
    PointEmitter::Scope scope(points);
    return bringNearest(warp);
  });
  size_t numSums = rowTiles * columnTiles * 4;
  carried.insert(carried.begin(), numSums, points.constant(b.getF32FloatAttr(0)));
  carried = emitFor(b, k.loc, warp, steps, m.constant(slices), carried, [&](Value step, ValueRange values) {
    PointEmitter::Scope scope(points);
    SmallVector<Value> ahead = bringNearest(m.add(step, m.constant(slices)));
    SmallVector<MatrixUnit::Fragment> fragments;
    for (Value chunk : values.drop_front(numSums))
      fragments.push_back(unit.prepare(chunk));
    auto all = ArrayRef(fragments);
    SmallVector<Value> next =
        unit.multiply(all.take_front(2 * rowTiles), all.drop_front(2 * rowTiles), values.take_front(numSums));
    llvm::append_range(next, ahead);
    return next;
  });
  carried.resize(numSums);
  return carried;
}

/// The warp's sums, as rows of the tile from `firstRow` on.
void MatrixProduct::storeSums(ValueRange sums, Value firstRow) {
  int64_t columnTiles = (slices > 1 ? tileColumns : warpColumns) / MatrixUnit::kColumns;
  VectorType pair = VectorType::get({2}, b.getF32Type());
  for (size_t tile = 0; tile * 4 < sums.size(); ++tile)
    for (int64_t half : {0, 1}) {
      Value row = m.add(m.add(firstRow, m.constant(tile / columnTiles * MatrixUnit::kRows + 8 * half)), group);
      Value column = m.add(warpColumn, m.add(m.constant(tile % columnTiles * MatrixUnit::kColumns), m.mul(place, 2)));
      Value both = vector::FromElementsOp::create(b, k.loc, pair, sums.slice(tile * 4 + 2 * half, 2));
      LLVM::StoreOp::create(b, k.loc, both, address(m.add(m.mul(row, pitch), column)), 8);
    }
}

void MatrixProduct::epilogue(ValueRange sums) {
  if (slices > 1) {
    storeSums(sums, m.mul(warp, tileRows));
    k.barrier();
    storeRows(m.constant(0), tileRows);
    return;
  }
  // The rows of one warp after the other fit where the lines were.
  emitFor(b, k.loc, m.constant(0), m.constant(rowWarps), m.constant(1), {}, [&](Value part, ValueRange) {
    Value first = m.mul(part, warpRows);
    emitIf(b, k.loc, m.equal(first, warpRow), {}, [&] {
      storeSums(sums, m.constant(0));
      return SmallVector<Value>();
    });
    k.barrier();
    storeRows(first, warpRows);
    k.barrier();
    return SmallVector<Value>();
  });
}

/// f32 in two parts makes NaN of an infinity times a number without a rest. Where a sum is NaN, it is computed again.
Value MatrixProduct::withoutNan(Value sum, Value row, Value column) {
  Value isNan = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::UNO, sum, sum);
  int64_t width = points.lanes();
  Value any = width > 1 ? vector::ReductionOp::create(b, k.loc, vector::CombiningKind::OR, isNan).getResult() : isNan;
  return emitIf(
             b, k.loc, any, sum,
             [&] {
               SmallVector<Value> sums;
               for (int64_t lane = 0; lane < width; ++lane) {
                 Value own = m.add(column, m.constant(lane));
                 Value zero = points.constant(b.getF32FloatAttr(0));
                 sums.push_back(
                     emitFor(b, k.loc, m.constant(0), depth, m.constant(1), zero, [&](Value step, ValueRange before) {
                       PointEmitter::Scope scope(points);
                       Value x = source.lhs(batch, row, step), y = source.rhs(batch, step, own);
                       ok &= x && y;
                       return SmallVector<Value>{ok ? math::FmaOp::create(b, k.loc, x, y, before[0]) : before[0]};
                     }).front());
               }
               return SmallVector<Value>{
                   width > 1
                       ? vector::FromElementsOp::create(b, k.loc, cast<VectorType>(sum.getType()), sums).getResult()
                       : sums.front()};
             })
      .front();
}

/// Results of some rows of the tile, whose sums are in memory of the block.
void MatrixProduct::storeRows(Value firstRow, int64_t rows) {
  int64_t width = points.lanes(), perRow = tileColumns / width, units = rows * perRow;
  Type f32 = b.getF32Type(), type = width > 1 ? Type(VectorType::get({width}, f32)) : f32;
  emitFor(b, k.loc, k.thread(), m.constant(units), m.constant(k.threads()), {}, [&](Value number, ValueRange) {
    PointEmitter::Scope scope(points);
    Value count = m.constant(perRow), row = m.div(number, count), column = m.mul(m.rem(number, count), width);
    Value toRow = m.add(left.first, m.add(firstRow, row)), toColumn = m.add(right.first, column);
    Value inside = arith::AndIOp::create(b, k.loc, m.less(toRow, left.count), m.less(toColumn, right.count));
    emitIf(b, k.loc, inside, {}, [&] {
      PointEmitter::Scope within(points);
      Value sum;
      for (int64_t slice = 0; slice < slices; ++slice) {
        Value word = m.add(m.mul(m.add(row, m.constant(slice * tileRows)), pitch), column);
        Value part = LLVM::LoadOp::create(b, k.loc, type, address(word), 4 * width);
        sum = sum ? arith::AddFOp::create(b, k.loc, sum, part).getResult() : part;
      }
      if (!unit.isExact())
        sum = withoutNan(sum, toRow, toColumn);
      Idx to = width > 1 ? Idx(toColumn, /*lanes=*/true, 1, width) : Idx(toColumn);
      ok &= succeeded(storeProduct(k, source, source.resultAt(batch, toRow, to), sum));
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

LogicalResult disc::emitMatrixProduct(DeviceKernel &k, ProductSource &source) {
  Type element = source.operandElement();
  if (!element || !(element.isF32() || element.isF16() || element.isBF16()) || !source.accumulator().isF32())
    return k.kernel.emitError("a matrix unit multiplies f32, f16 and bf16, with sums in f32");
  return MatrixProduct(k, source).emit();
}
