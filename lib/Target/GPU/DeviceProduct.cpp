//===- DeviceProduct.cpp - products and convolutions on devices -------------===//
//
// A block computes a tile of results, over steps along the sum:
//
//   scf.for %k = 0 to K step 16 iter_args(16 sums) {
//     lhs[16][64], rhs[16][64] in memory of the block = the operands' elements, zeros beyond K
//     gpu.barrier
//     scf.for %d = 0 to 16 { 4 + 4 loads; 16 fused multiply-adds }
//     gpu.barrier
//   }
//   the epilogue at the thread's points, and its stores
//
// Operands are whatever the kernel's region says they are at a point, so that views, casts and products of several
// dimensions cost nothing of their own, and a convolution is a product whose left operand is read where its taps are.
// Several products of one left operand have the kernel's blocks one after another: those of the first, then those of
// the second, ...
//
// Thread (r, c) has the rows r, r + 16, ... and the columns c, c + 16, ...: neighbouring threads read and write
// neighbouring elements.
//
// Lit test: test/lit/GPU/products.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/DeviceProduct.h"

#include "dialects/Plan/Schedule.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/GPU/BufferAlignment.h"
#include "lib/Target/GPU/DeviceAttention.h"
#include "lib/Transforms/Schedule/ContractionInfo.h"
#include "lib/Transforms/Schedule/ConvolutionInfo.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// Tiles of fused multiply-adds.
class TileProduct {
public:
  TileProduct(DeviceKernel &k, ProductSource &source) : k(k), b(k.b), m(k.m), source(source), points(source.points) {}

  LogicalResult emit();

private:
  /// An operand's part of a step, in memory of the block: element (step, other) at `step * pitch() + other`. Where
  /// neighbouring threads write neighbouring steps, those lie in different banks.
  struct Operand {
    Value memory;
    int64_t width; // rows or columns of the tile
    bool alongDepth;
    Value first, count; // of the rows or columns
    function_ref<Value(Value other, Value step)> at;

    int64_t pitch() const { return width + alongDepth; }
  };
  void fetch(const Operand &operand, Value start, Value end);
  SmallVector<Value> multiply(const Operand &left, const Operand &right, ValueRange sums);
  void epilogue(Value batch, Value firstRow, Value firstColumn, ValueRange sums);
  Value widen(Value v);

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  ProductSource &source;
  PointEmitter &points;
  int64_t tileDepth = 0, threadRows = 0, threadColumns = 0, rowThreads = 0, columnThreads = 0;
  Value rowOf, columnOf; // of the thread in the block
  Value rowCount, columnCount;
  bool ok = true;
};
} // namespace

Value TileProduct::widen(Value v) {
  Type type = source.accumulator();
  if (!v || v.getType() == type)
    return v;
  if (isa<FloatType>(type))
    return arith::ExtFOp::create(b, k.loc, type, v);
  return arith::ExtSIOp::create(b, k.loc, type, v);
}

LogicalResult TileProduct::emit() {
  auto schedule = k.schedule<DeviceProductScheduleAttr>();
  int64_t tileRows = schedule.getTileRows(), tileColumns = schedule.getTileColumns();
  tileDepth = schedule.getTileDepth();
  threadRows = schedule.getThreadRows(), threadColumns = schedule.getThreadColumns();
  rowThreads = tileRows / threadRows, columnThreads = tileColumns / threadColumns;
  rowCount = points.expr(source.rows()), columnCount = points.expr(source.columns());
  Value steps = points.expr(source.depth());

  Value across = points.expr(SymExpr::ceilDiv(source.columns(), SymExpr(tileColumns)));
  Value down = points.expr(SymExpr::ceilDiv(source.rows(), SymExpr(tileRows)));
  Value block = k.block(), rest = m.div(block, across), batch = m.div(rest, down);
  Value firstColumn = m.mul(m.rem(block, across), tileColumns), firstRow = m.mul(m.rem(rest, down), tileRows);
  rowOf = m.div(k.thread(), m.constant(columnThreads)), columnOf = m.rem(k.thread(), m.constant(columnThreads));

  auto left = [&](Value row, Value step) { return widen(source.lhs(batch, row, step)); };
  auto right = [&](Value column, Value step) { return widen(source.rhs(batch, step, column)); };
  Type type = source.accumulator();
  Operand lhsTile{{}, tileRows, source.lhsAlongDepth(), firstRow, rowCount, left};
  Operand rhsTile{{}, tileColumns, source.rhsAlongDepth(), firstColumn, columnCount, right};
  for (Operand *tile : {&lhsTile, &rhsTile})
    tile->memory = k.shared(type, tile->pitch() * tileDepth);
  Value zero = points.constant(cast<TypedAttr>(b.getZeroAttr(type)));
  SmallVector<Value> sums(threadRows * threadColumns, zero);
  sums = emitFor(b, k.loc, m.constant(0), steps, m.constant(tileDepth), sums, [&](Value start, ValueRange carried) {
    PointEmitter::Scope scope(points);
    fetch(lhsTile, start, steps);
    fetch(rhsTile, start, steps);
    k.barrier();
    SmallVector<Value> next = multiply(lhsTile, rhsTile, carried);
    k.barrier();
    return next;
  });
  k.keepRolled(sums);
  if (ok)
    epilogue(batch, firstRow, firstColumn, sums);
  return success(ok);
}

/// Copies the operand's elements of steps [start, start + tileDepth), which end before `end`. Rows and columns beyond
/// the last one are the last one again: what comes of them is not stored.
void TileProduct::fetch(const Operand &operand, Value start, Value end) {
  int64_t count = operand.width * tileDepth, threads = k.threads();
  for (int64_t from = 0; from < count && ok; from += threads) {
    PointEmitter::Scope scope(points);
    Value position = m.add(k.thread(), m.constant(from));
    Value fast = m.constant(operand.alongDepth ? tileDepth : operand.width);
    Value step = m.rem(position, fast), other = m.div(position, fast);
    if (!operand.alongDepth)
      std::swap(step, other);
    auto copy = [&] {
      Value at = m.add(start, step), last = m.sub(end, m.constant(1));
      Value index = m.min(m.add(operand.first, other), m.sub(operand.count, m.constant(1)));
      Value v = operand.at(index, m.min(at, last));
      if (!(ok &= bool(v)))
        return;
      Value zero = points.constant(cast<TypedAttr>(b.getZeroAttr(v.getType())));
      v = arith::SelectOp::create(b, k.loc, m.less(at, end), v, zero);
      k.storeShared(operand.memory, v, m.add(m.mul(step, operand.pitch()), other));
    };
    if (from + threads <= count) {
      copy();
      continue;
    }
    auto some = scf::IfOp::create(b, k.loc, m.less(position, m.constant(count)), /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(some.thenBlock());
    copy();
  }
}

SmallVector<Value> TileProduct::multiply(const Operand &left, const Operand &right, ValueRange sums) {
  Type type = source.accumulator();
  return emitFor(b, k.loc, m.constant(0), m.constant(tileDepth), m.constant(1), sums, [&](Value d, ValueRange carried) {
    SmallVector<Value> next(carried), x, y;
    for (int64_t i = 0; i < threadRows; ++i)
      x.push_back(
          k.loadShared(left.memory, type, m.add(m.mul(d, left.pitch()), m.add(rowOf, m.constant(i * rowThreads)))));
    for (int64_t j = 0; j < threadColumns; ++j)
      y.push_back(k.loadShared(right.memory, type,
                               m.add(m.mul(d, right.pitch()), m.add(columnOf, m.constant(j * columnThreads)))));
    for (int64_t i = 0; i < threadRows; ++i)
      for (int64_t j = 0; j < threadColumns; ++j) {
        Value &sum = next[i * threadColumns + j];
        if (isa<FloatType>(type))
          sum = math::FmaOp::create(b, k.loc, x[i], y[j], sum);
        else
          sum = arith::AddIOp::create(b, k.loc, sum, arith::MulIOp::create(b, k.loc, x[i], y[j]));
      }
    return next;
  });
}

void TileProduct::epilogue(Value batch, Value firstRow, Value firstColumn, ValueRange sums) {
  for (int64_t i = 0; i < threadRows; ++i)
    for (int64_t j = 0; j < threadColumns && ok; ++j) {
      Value row = m.add(firstRow, m.add(rowOf, m.constant(i * rowThreads)));
      Value column = m.add(firstColumn, m.add(columnOf, m.constant(j * columnThreads)));
      Value inside = arith::AndIOp::create(b, k.loc, m.less(row, rowCount), m.less(column, columnCount));
      auto some = scf::IfOp::create(b, k.loc, inside, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(some.thenBlock());
      PointEmitter::Scope scope(points);
      SmallVector<Idx> at = source.resultAt(batch, row, Idx(column));
      ok &= succeeded(storeProduct(k, source, at, sums[i * threadColumns + j]));
    }
}

LogicalResult disc::storeProduct(DeviceKernel &k, ProductSource &source, ArrayRef<Idx> at, Value sum) {
  PointEmitter &points = source.points;
  Value tensor = source.result();
  Type element = getElementTypeOrSelf(tensor.getType()), type = element;
  if (auto vector = dyn_cast<VectorType>(sum.getType()))
    type = vector.clone(element);
  if (sum.getType() != type)
    sum = arith::TruncFOp::create(k.b, k.loc, type, sum);
  points.bind(tensor, [sum](ArrayRef<Idx>, Value) { return sum; });
  SmallVector<std::tuple<unsigned, SmallVector<Idx>, Value>> stores;
  for (auto [number, yielded] : llvm::enumerate(k.kernel.getYield().getValues())) {
    if (!source.results.empty() && !llvm::is_contained(source.results, number))
      continue;
    FailureOr<SmallVector<Idx>> to = followResult(points, yielded, tensor, at);
    if (failed(to))
      return k.kernel.emitError("result ") << number << " is not over the domain of the kernel's product";
    Value v = points.eval(yielded, *to);
    if (!v)
      return failure();
    stores.push_back({number, *to, v});
  }
  for (auto &[number, to, v] : stores)
    if (failed(points.store(number, to, v)))
      return failure();
  points.unbind(tensor);
  return success();
}

//===-- Contractions ---------------------------------------------------------===//

/// A thread decodes four words.
static SymExpr partBlocks(ContractionInfo info, int64_t threads) {
  auto op = info.right().getDefiningOp<UnpackFragmentsOp>();
  int64_t words = cast<RankedTensorType>(op.getSource().getType()).getNumElements();
  return SymExpr(int64_t(llvm::divideCeil(words / 4, threads)));
}

namespace {
class Contraction : public ProductSource {
public:
  Contraction(DeviceKernel &k, ContractionInfo contraction, int64_t lanes)
      : ProductSource(k, lanes), info(std::move(contraction)), coded(DeviceCodes::get(k, points, info.right())) {}

private:
  SymExpr batches() override { return info.size(info.batch); }
  SymExpr rows() override { return info.size(info.rows); }
  SymExpr columns() override { return info.size(info.columns); }
  SymExpr depth() override { return info.size(info.depth); }
  Type accumulator() override { return info.accumulator; }
  Value result() override { return info.op.getResult(0); }

  SmallVector<SymExpr> extents(ArrayRef<unsigned> dims) {
    return llvm::map_to_vector(dims, [&](unsigned d) { return info.sizes[d]; });
  }
  SmallVector<Idx> pointOf(AffineMap map, Value batch, Value row, const Idx &column, Value step) {
    SmallVector<Idx> iters(info.op.getNumLoops(), points.uniform(int64_t(0))), at;
    auto place = [&](ArrayRef<unsigned> dims, Value linear) {
      if (linear)
        for (auto [d, i] : llvm::zip(dims, split(linear, extents(dims))))
          iters[d] = Idx(i);
    };
    place(info.batch, batch);
    place(info.rows, row);
    place(info.columns, column.base);
    place(info.depth, step);
    if (column.lanes && !info.columns.empty()) {
      Idx &innermost = iters[info.columns.back()];
      innermost = Idx(innermost.base, /*lanes=*/true, 1, points.lanes());
    }
    for (AffineExpr e : map.getResults())
      at.push_back(points.affine(e, iters));
    return at;
  }
  Value lhs(Value batch, Value row, Value step) override {
    return points.eval(info.left(), pointOf(info.lhsMap(), batch, row, {}, step));
  }
  Value rhs(Value batch, Value step, Value column) override {
    if (coded)
      return coded->element(batch, column, step);
    return points.eval(info.right(), pointOf(info.rhsMap(), batch, {}, Idx(column), step));
  }
  SmallVector<Idx> resultAt(Value batch, Value row, const Idx &column) override {
    return pointOf(info.resultMap(), batch, row, column, {});
  }
  Type operandElement() override { return info.lhsElement == info.rhsElement ? info.lhsElement : Type(); }
  Value lineAddress(bool isLeft, Value batch, Value line) override {
    Value operand = isLeft ? info.left() : info.right();
    if (!isLeft && coded)
      return decodedMemory ? coded->decodedLine(decodedMemory, batch, line) : Value();
    auto strided = StridedOperand::get(k.kernel, operand, isLeft ? info.lhsMap() : info.rhsMap(), k.shapes);
    if (!strided || !strided->collapse(info.depth, info.sizes, k.shapes).value_or(SymExpr(0)).isConstant(1))
      return {};
    constexpr int64_t kBytes = 16;
    Type element = getElementTypeOrSelf(operand.getType());
    int64_t width = byteSize(element);
    auto isAligned = [&](const SymExpr &e) { return e.content() * width % kBytes == 0; };
    ArrayRef<unsigned> lines = isLeft ? info.rows : info.columns;
    if (bufferAlignments(k.kernel, k.shapes)[strided->argument] % kBytes || !isAligned(info.size(info.depth)) ||
        !isAligned(strided->offset))
      return {};
    Value offset = points.expr(strided->offset);
    for (auto [dims, position] : {std::make_pair(ArrayRef<unsigned>(info.batch), batch), std::make_pair(lines, line)})
      for (auto [d, i] : llvm::zip(dims, split(position, extents(dims)))) {
        if (info.sizes[d].isConstant(1)) // its stride may be anything
          continue;
        if (!isAligned(strided->strides[d]))
          return {};
        offset = m.add(offset, m.mul(i, points.expr(strided->strides[d])));
      }
    return m.advance(points.operandPtr(strided->argument), m.mul(offset, width));
  }
  bool isConstant(bool isLeft) override {
    auto buffer = BufferOperand::get(k.kernel, isLeft ? info.left() : info.right(), k.shapes);
    return buffer && k.isConstant(buffer->argument);
  }
  bool alongDepth(Value operand, AffineMap map) {
    auto strided = StridedOperand::get(k.kernel, operand, map, k.shapes);
    return !info.depth.empty() && strided && strided->strides[info.depth.back()].isConstant(1);
  }
  bool lhsAlongDepth() override { return alongDepth(info.left(), info.lhsMap()); }
  bool rhsAlongDepth() override { return coded || alongDepth(info.right(), info.rhsMap()); }
  ContractionInfo info;
  std::unique_ptr<DeviceCodes> coded;

public:
  DeviceCodes *codes() override { return coded.get(); }
  Value decodedMemory; ///< Where a kernel before this one has put what the codes stand for; null: nowhere.
};
} // namespace

/// Neighbouring columns that are neighbours in the result, and can be stored together.
static int64_t storedLanes(ShapeAnalysis &shapes, ArrayRef<SymExpr> sizes, ArrayRef<unsigned> columns) {
  if (columns.empty())
    return 1;
  return std::max<int64_t>(std::gcd<int64_t>(shapes.simplify(sizes[columns.back()]).content(), 4), 1);
}

static LogicalResult emitProduct(DeviceKernel &k, ProductSource &source) {
  return isMatrixSchedule(k.kernel.getScheduleAttr()) ? emitMatrixProduct(k, source) : TileProduct(k, source).emit();
}

LogicalResult disc::emitDeviceContraction(DeviceKernel &k) {
  FailureOr<std::vector<ContractionPart>> parts = contractionParts(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(parts))
    return failure();
  bool onUnit = isMatrixSchedule(k.kernel.getScheduleAttr());
  int64_t tileRows, tileColumns;
  if (onUnit) {
    auto schedule = k.schedule<DeviceMatrixScheduleAttr>();
    tileRows = schedule.getTileRows(), tileColumns = schedule.getTileColumns();
  } else {
    auto schedule = k.schedule<DeviceProductScheduleAttr>();
    tileRows = schedule.getTileRows(), tileColumns = schedule.getTileColumns();
  }
  std::optional<unsigned> memory = memoryResult(k.kernel);
  SymExpr first(0), decoded(0);
  for (const ContractionPart &part : *parts) {
    if (part.products.size() != 1)
      return k.kernel.emitError("a device's kernel has one product for each of its parts");
    ContractionInfo info = part.first();
    Value init = info.op.getDpsInitOperand(0)->get();
    auto fill = init.getDefiningOp<linalg::FillOp>();
    if (!fill || !(matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) || matchPattern(fill.getInputs()[0], m_Zero())))
      return info.op.emitError("a contraction must start from zeros");
    auto emit = [&] {
      Contraction source(k, info, onUnit ? storedLanes(k.shapes, info.sizes, info.columns) : 1);
      source.results = part.results;
      if (memory && source.codes())
        source.decodedMemory =
            k.m.advance(source.points.resultPtr(*memory),
                        k.m.mul(source.points.expr(decoded), byteSize(getElementTypeOrSelf(info.right().getType()))));
      return emitProduct(k, source);
    };
    if (parts->size() == 1)
      return emit();
    SymExpr tiles = info.size(info.batch) * SymExpr::ceilDiv(info.size(info.rows), SymExpr(tileRows)) *
                    SymExpr::ceilDiv(info.size(info.columns), SymExpr(tileColumns));
    PointEmitter points = k.points(1);
    LogicalResult status = success();
    k.share(points.expr(first), points.expr(tiles), [&] { status = emit(); });
    if (failed(status))
      return failure();
    first += tiles;
    decoded += info.size(info.batch) * info.size(info.columns) * info.size(info.depth);
  }
  return success();
}

LogicalResult disc::emitDeviceDecoding(DeviceKernel &k) {
  FailureOr<std::vector<ContractionPart>> parts = contractionParts(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(parts))
    return failure();
  PointEmitter points = k.points(1);
  Value memory = points.resultPtr(*memoryResult(k.kernel));
  SymExpr first(0), elements(0);
  for (const ContractionPart &part : *parts) {
    ContractionInfo info = part.first();
    Value right = info.right();
    SymExpr batches = info.size(info.batch), blocks = partBlocks(info, k.threads());
    k.share(points.expr(first), points.expr(blocks), [&] {
      std::unique_ptr<DeviceCodes> coded = DeviceCodes::get(k, points, right);
      MatrixUnit unit(k.b, k.loc, getElementTypeOrSelf(right.getType()));
      Value at = k.m.advance(memory, k.m.mul(points.expr(elements), byteSize(getElementTypeOrSelf(right.getType()))));
      coded->decode(unit, at, points.expr(batches), k.m.add(k.m.mul(k.block(), k.threads()), k.thread()));
    });
    first += blocks;
    elements += batches * info.size(info.columns) * info.size(info.depth);
  }
  return success();
}

SymExpr disc::decodingBlocks(KernelFuncOp kernel, int64_t threads, ShapeAnalysis &shapes) {
  SymExpr blocks(0);
  FailureOr<std::vector<ContractionPart>> parts = contractionParts(kernel, kernel.getBody().front(), shapes);
  if (succeeded(parts))
    for (const ContractionPart &part : *parts)
      blocks += partBlocks(part.first(), threads);
  return blocks;
}

//===-- Convolutions ---------------------------------------------------------===//

namespace {
class Convolution : public ProductSource {
public:
  Convolution(DeviceKernel &k, ConvolutionInfo convolution, int64_t lanes)
      : ProductSource(k, lanes), info(std::move(convolution)) {
    Type element = info.accumulator;
    type = element.isF16() || element.isBF16() ? Type(b.getF32Type()) : element;
    for (ConvolutionInfo::Axis &axis : info.axes) {
      outputs.push_back(axis.output);
      taps.push_back(axis.kernel);
    }
    taps.push_back(info.groupInputs);
    outputs.insert(outputs.begin(), info.batch);
  }

private:
  SymExpr batches() override { return info.groups; }
  SymExpr rows() override { return SymExpr::product(outputs); }
  SymExpr columns() override { return info.groupOutputs; }
  SymExpr depth() override { return SymExpr::product(taps); }
  Type accumulator() override { return type; }
  Value result() override { return info.op.getResult(); }
  bool lhsAlongDepth() override { return true; }
  bool rhsAlongDepth() override { return true; }

  Value lhs(Value group, Value row, Value step) override {
    SmallVector<Value> out = split(row, outputs), tap = split(step, taps);
    SmallVector<Idx> at(1, Idx(out[0]));
    Value inside;
    auto require = [&](Value condition) {
      inside = inside ? arith::AndIOp::create(b, k.loc, inside, condition).getResult() : condition;
    };
    for (auto [i, axis] : llvm::enumerate(info.axes)) {
      if (axis.dim < 0)
        continue;
      // In padded coordinates first: they are never negative.
      Value padded = m.add(m.mul(out[i + 1], axis.stride), m.mul(tap[i], axis.dilation));
      Value position = m.sub(padded, m.constant(axis.low)), zero = m.constant(0), extent = points.expr(axis.input);
      if (axis.inputDilation != 1) {
        Value spread = m.constant(axis.inputDilation);
        Value clamped = m.max(position, zero);
        require(m.equal(m.rem(clamped, spread), zero));
        require(arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::sge, position, zero));
        position = m.div(clamped, spread);
      } else if (axis.low > 0) {
        require(arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::sge, position, zero));
      }
      if (!axis.isInside())
        require(m.less(position, extent));
      position = m.max(m.min(position, m.sub(extent, m.constant(1))), zero);
      at.push_back(Idx(position));
    }
    at.push_back(Idx(m.add(m.mul(group, points.expr(info.groupInputs)), tap[3])));
    Value zero = points.constant(cast<TypedAttr>(b.getZeroAttr(info.inputElement)));
    if (!inside)
      return points.eval(info.op.getInput(), at);
    // An input without elements along a dimension is all padding, and must not be read.
    auto read = scf::IfOp::create(b, k.loc, TypeRange{info.inputElement}, inside, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(read.elseBlock());
    scf::YieldOp::create(b, k.loc, zero);
    b.setInsertionPointToStart(read.thenBlock());
    PointEmitter::Scope scope(points);
    Value v = points.eval(info.op.getInput(), at);
    scf::YieldOp::create(b, k.loc, v ? v : zero);
    return v ? read.getResult(0) : Value();
  }

  Value rhs(Value group, Value step, Value column) override {
    SmallVector<Value> tap = split(step, taps);
    SmallVector<Idx> at{Idx(group), Idx(column)};
    for (auto [i, axis] : llvm::enumerate(info.axes))
      if (axis.dim >= 0)
        at.push_back(Idx(tap[i]));
    at.push_back(Idx(tap[3]));
    return points.eval(info.op.getWeight(), at);
  }

  SmallVector<Idx> resultAt(Value group, Value row, const Idx &column) override {
    SmallVector<Value> out = split(row, outputs);
    SmallVector<Idx> at(1, Idx(out[0]));
    for (auto [i, axis] : llvm::enumerate(info.axes))
      if (axis.dim >= 0)
        at.push_back(Idx(out[i + 1]));
    at.push_back(column);
    at.back().base = m.add(m.mul(group, points.expr(info.groupOutputs)), column.base);
    return at;
  }
  Type operandElement() override { return info.inputElement == info.weightElement ? info.inputElement : Type(); }
  bool isConstant(bool isLeft) override {
    auto buffer = BufferOperand::get(k.kernel, isLeft ? info.op.getInput() : info.op.getWeight(), k.shapes);
    return buffer && k.isConstant(buffer->argument);
  }
  Value lineAddress(bool isLeft, Value group, Value line) override {
    // Rows of the input are read at their taps; a filter is one piece of memory.
    Value weight = info.op.getWeight();
    auto buffer = BufferOperand::get(k.kernel, weight, k.shapes);
    if (isLeft || !buffer || !buffer->layout.isContiguous(k.shapes.dims(weight)))
      return {};
    constexpr int64_t kBytes = 16;
    int64_t width = byteSize(getElementTypeOrSelf(weight.getType()));
    auto isAligned = [&](const SymExpr &e) { return e.content() * width % kBytes == 0; };
    if (bufferAlignments(k.kernel, k.shapes)[buffer->argument] % kBytes || !isAligned(depth()) ||
        !isAligned(buffer->layout.offset))
      return {};
    Value filter = m.add(m.mul(group, points.expr(info.groupOutputs)), line);
    Value offset = m.add(points.expr(buffer->layout.offset), m.mul(filter, points.expr(depth())));
    return m.advance(points.operandPtr(buffer->argument), m.mul(offset, width));
  }

  ConvolutionInfo info;
  Type type;
  SmallVector<SymExpr> outputs, taps;
};
} // namespace

LogicalResult disc::emitDeviceConvolution(DeviceKernel &k) {
  FailureOr<ConvolutionInfo> info = ConvolutionInfo::get(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(info))
    return failure();
  int64_t lanes = isMatrixSchedule(k.kernel.getScheduleAttr()) ? std::gcd<int64_t>(info->groupOutputs.content(), 4) : 1;
  Convolution source(k, *info, std::max<int64_t>(lanes, 1));
  return emitProduct(k, source);
}
