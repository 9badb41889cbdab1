//===- EmitLoop.cpp - kernels without reductions ----------------------------===//
//
//   disc_plan.kernel_func loop @k { %r = linalg.generic ... ; disc_plan.yield %r : tensor<?x?x384xf32> }
//
// becomes, with the domain's dimensions merged where all buffers allow (here into one):
//
//   %lo = begin * 4096 ; %hi = min(end * 4096, B * S * 384)
//   scf.for %i = %lo to %full step 16 { vector<16xf32> of each input; body; store }
//   scf.if %rest { the same once, under a mask }
//
// Short inner dimensions (the parts of complex numbers, x/y/z) that do not merge with the dimension outside them, since
// buffers are walked otherwise along them, are joined with it all the same: the lanes run over both, and each buffer
// is read by whole vectors, of which shuffles make the lanes (PointEmitter::loadPattern). Of x [N, 2] + b [2]:
//
//   scf.for %i = %lo to %hi step 16 { x: vector<16xf32> load; b: vector<2xf32> load, shuffle [0, 1, 0, 1, ..]; .. }
//
// Tasks are chunks of the row-major range of the domain, whatever the layouts are: a row may be cut anywhere, so that
// work divides evenly over threads for every shape.
//
// An operand that lies in memory along another dimension than the lanes (a transpose) is read in square tiles, which
// are transposed in registers (CrossedTiles); a task is then a range of tiles:
//
//   scf.for %tile { 16 x vector<16xf32> loads; 64 shuffles; 16 stores to the stack ; scf.for %k = 0 to 16 { body } }
//
// Lit test: test/lit/CPU/emit-loop.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/CPU/CrossedTiles.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class LoopEmitter {
public:
  explicit LoopEmitter(KernelEmission &e)
      : e(e), b(e.builder), loc(e.kernel.getLoc()), points(e.builder, e.kernel, e.args(), e.lanes(), e.shapes),
        width(e.lanes()) {}

  LogicalResult run();

private:
  bool planConcat();
  void planJoin(const KernelAccess &access);
  LogicalResult rows();
  LogicalResult tiles(CrossedTiles &crossed, unsigned across);
  LogicalResult segment(ArrayRef<Idx> outer, Value from, Value to);
  using Point = function_ref<bool(Value position, Value mask)>;
  bool vectors(Value from, Value to, Point point);
  bool point(ArrayRef<Idx> outer, Value position, Value mask);
  bool concatSegment(ArrayRef<Idx> outer, Value from, Value to);
  Value index(Value i64) { return arith::IndexCastOp::create(b, loc, b.getIndexType(), i64); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value min(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }
  Value max(Value x, Value y) { return arith::MaxSIOp::create(b, loc, x, y); }

  KernelEmission &e;
  OpBuilder &b;
  Location loc;
  PointEmitter points;
  SmallVector<SymExpr> domain;
  SmallVector<MergedDims> runs;
  SmallVector<MergedDims> joined; // what the innermost run is made of, if the lanes run over several
  int64_t unit = 1;     // rows, and what is left of them, are multiples of this: the joined runs within the first
  int64_t width;        // elements in a vector, a multiple of `unit`
  bool aligned = false; // vectors start at multiples of the lanes, and rows are made of whole vectors
  ConcatOp concat;      // the kernel's only work, along a dimension of the innermost run
};
} // namespace

LogicalResult LoopEmitter::run() {
  YieldOp yield = e.kernel.getYield();
  domain = e.shapes.dims(yield.getValues().front());
  if (planConcat())
    return rows();
  KernelAccess access(e.kernel, e.shapes, domain);
  for (auto [i, v] : llvm::enumerate(yield.getValues())) {
    SmallVector<SymExpr> dims = e.shapes.dims(v);
    // A result of another shape is the same elements viewed otherwise.
    auto at = access.reshape(access.identity(), domain, dims);
    access.read(v, at);
    access.write(i, at);
  }
  runs = access.mergedRuns(0, domain.size());
  planJoin(access);
  for (unsigned r = 0; r + 1 < runs.size() && joined.empty(); ++r) {
    CrossedTiles crossed(points, access, runs.back().innermost, runs[r].innermost, 0, e.kernel.getNumInputs(),
                         e.lanes());
    if (!crossed.empty())
      return tiles(crossed, r);
  }
  return rows();
}

/// Joins runs while those inside the outermost of them have half as many elements as there are lanes, or fewer.
void LoopEmitter::planJoin(const KernelAccess &access) {
  // Lanes that data sends to places of their own are gathered one by one, which rows that are read whole are not; and
  // of more than a few rows far apart, tiles are the better way.
  int64_t most = access.readsByData() ? e.lanes() / 8 : e.lanes() / 2;
  size_t first = runs.size();
  int64_t inside = 1;
  while (first > 1 && runs[first - 1].extent.isConstant()) {
    if (!access.isStatic(runs[first - 1].innermost))
      most = std::min<int64_t>(most, 8);
    if (inside * runs[first - 1].extent.constant() > most)
      break;
    inside *= runs[--first].extent.constant();
  }
  if (first == runs.size() || inside <= 1)
    return;
  joined.assign(runs.begin() + first - 1, runs.end());
  unit = inside;
  width = e.lanes() - e.lanes() % unit;
  MergedDims all{runs.back().innermost, joined.front().extent * SymExpr(unit)};
  runs.truncate(first - 1);
  runs.push_back(all);
}

/// A concatenation is copied part by part, each with the dimensions inside the joined one in the same run: whether a
/// point lies in one part or another is asked once per row.
bool LoopEmitter::planConcat() {
  ValueRange results = e.kernel.getYield().getValues();
  auto op = results.size() == 1 ? results.front().getDefiningOp<ConcatOp>() : ConcatOp();
  if (!op)
    return false;
  KernelAccess access(e.kernel, e.shapes, domain);
  SmallVector<LinearCoord> at = access.identity();
  access.write(0, at);
  at[op.getDim()].exact = false; // each part has its own offset
  for (Value input : op.getInputs())
    access.read(input, at);
  // The parts end within each step of the dimensions outside the joined one, however the buffers lie.
  SmallVector<MergedDims> inner = access.mergedRuns(op.getDim(), domain.size());
  if (inner.size() != 1 || (inner.front().extent.isConstant() && inner.front().extent.constant() * 2 <= e.lanes()))
    return false;
  runs = access.mergedRuns(0, op.getDim());
  runs.push_back(inner.front());
  concat = op;
  return true;
}

/// The domain in tiles of V points of run `across` and V lanes of the innermost run.
LogicalResult LoopEmitter::tiles(CrossedTiles &crossed, unsigned across) {
  int64_t lanes = e.lanes();
  Value unit = points.constantIndex(lanes), zero = points.constantIndex(0), one = points.constantIndex(1);
  SmallVector<SymExpr> extents;
  SymExpr total(1);
  // Tiles along the lanes come last: neighbours write neighbouring memory.
  for (auto [r, run] : llvm::enumerate(ArrayRef(runs).drop_back()))
    if (r != across)
      extents.push_back(run.extent);
  for (const SymExpr &extent : {runs[across].extent, runs.back().extent})
    extents.push_back(SymExpr::ceilDiv(extent, SymExpr(lanes)));
  total = SymExpr::product(extents);
  // The schedule's tasks are chunks of elements; as many chunks of tiles make the same work.
  Value count = points.expr(total);
  ExprAttr given = e.kernel.getTasksAttr();
  Value tasks = points.expr(given ? given.getValue() : SymExpr(1));
  auto share = [&](Value task) { return arith::DivUIOp::create(b, loc, mul(index(task), count), tasks).getResult(); };

  unsigned x = runs[across].innermost, n = runs.back().innermost;
  Value row; // of the tile, along `across`
  for (BlockArgument arg : e.kernel.getBody().getArguments())
    if (unsigned i = arg.getArgNumber(); crossed.contains(i))
      points.bind(arg, [&crossed, &row, i](ArrayRef<Idx>, Value) { return crossed.get(i, row); });
  bool ok = true;
  emitRowMajor(points, share(e.begin()), share(e.end()), extents, [&](Value, ValueRange at) {
    CrossedTiles::Place place;
    place.at.resize(domain.size());
    SmallVector<Idx> outer(domain.size(), points.uniform(0));
    unsigned next = 0;
    for (auto [r, run] : llvm::enumerate(ArrayRef(runs).drop_back()))
      if (r != across) {
        place.at[run.innermost] = at[next];
        outer[run.innermost] = Idx(at[next++]);
      }
    Value x0 = place.at[x] = mul(at[next], unit), n0 = place.at[n] = mul(at[next + 1], unit);
    Value xLeft = min(sub(points.expr(runs[across].extent), x0), unit);
    Value nLeft = min(sub(points.expr(runs.back().extent), n0), unit);
    auto body = [&](bool whole) {
      PointEmitter::Scope scope(points);
      Value mask;
      if (!whole) {
        place.laneCount = nLeft;
        place.memoryMask = points.tailMask(xLeft);
        mask = points.tailMask(nLeft);
      }
      crossed.read(place);
      emitFor(b, loc, zero, whole ? unit : xLeft, one, {}, [&](Value k, ValueRange) {
        PointEmitter::Scope inner(points);
        row = k;
        outer[x] = Idx(add(x0, k));
        ok &= point(outer, n0, mask);
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    };
    Value whole = arith::AndIOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, xLeft, unit),
                                        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, nLeft, unit));
    emitIf(b, loc, whole, {}, [&] { return body(true); });
    Value part = arith::XOrIOp::create(b, loc, whole, points.constant(b.getBoolAttr(true)));
    emitIf(b, loc, part, {}, [&] { return body(false); });
  });
  return success(ok);
}

LogicalResult LoopEmitter::rows() {
  Value chunk = points.constantIndex(e.schedule<LoopScheduleAttr>().getChunk());
  SymExpr total(1);
  for (const MergedDims &run : runs)
    total *= run.extent;
  auto whole = [&](Value n) {
    return unit == 1 ? n : sub(n, arith::RemUIOp::create(b, loc, n, points.constantIndex(unit)));
  };
  Value lo = whole(mul(index(e.begin()), chunk));
  Value hi = min(whole(mul(index(e.end()), chunk)), points.expr(total));
  if (runs.empty()) {
    SmallVector<Idx> at(domain.size(), points.uniform(0));
    return success(point(at, Value(), Value()));
  }

  SymExpr inner = runs.back().extent;
  ArrayRef<MergedDims> outerRuns = ArrayRef<MergedDims>(runs).drop_back();
  aligned = !concat && width == e.lanes() && inner.content() % e.lanes() == 0 &&
            e.schedule<LoopScheduleAttr>().getChunk() % e.lanes() == 0;
  SmallVector<Idx> outer(domain.size(), points.uniform(0));
  if (outerRuns.empty())
    return segment(outer, lo, hi);

  // The rows that [lo, hi) touches.
  Value zero = points.constantIndex(0);
  Value extent = points.expr(inner);
  Value firstRow = arith::DivUIOp::create(b, loc, lo, extent);
  Value lastRow = arith::CeilDivUIOp::create(b, loc, hi, extent);
  SmallVector<SymExpr> outerExtents;
  for (const MergedDims &run : outerRuns)
    outerExtents.push_back(run.extent);
  bool ok = true;
  emitRowMajor(points, firstRow, lastRow, outerExtents, [&](Value row, ValueRange at) {
    for (auto [run, i] : llvm::zip(outerRuns, at))
      outer[run.innermost] = Idx(i);
    Value rowStart = mul(row, extent);
    ok &= succeeded(segment(outer, max(sub(lo, rowStart), zero), min(sub(hi, rowStart), extent)));
  });
  return success(ok);
}

/// Positions [from, to) of one row.
LogicalResult LoopEmitter::segment(ArrayRef<Idx> outer, Value from, Value to) {
  if (concat)
    return success(concatSegment(outer, from, to));
  return success(vectors(from, to, [&](Value at, Value mask) { return point(outer, at, mask); }));
}

bool LoopEmitter::concatSegment(ArrayRef<Idx> outer, Value from, Value to) {
  unsigned dim = concat.getDim(), innermost = runs.back().innermost;
  SymExpr width(1), offset(0); // elements of the run per step of the joined dimension; of the parts so far
  for (unsigned d = dim + 1; d <= innermost; ++d)
    width *= domain[d];
  bool ok = true;
  for (Value input : concat.getInputs()) {
    SymExpr end = offset + e.shapes.dims(input)[dim] * width;
    Value first = points.expr(offset), last = points.expr(end);
    ok &= vectors(max(from, first), min(to, last), [&](Value position, Value mask) {
      SmallVector<Idx> at(outer);
      at[innermost] = Idx(sub(position, first), true);
      Value v = points.eval(input, at, mask);
      at[innermost] = Idx(position, true);
      return v && succeeded(points.store(0, at, v, mask));
    });
    offset = end;
  }
  return ok;
}

/// `point` at each vector of positions [from, to), which may be empty.
bool LoopEmitter::vectors(Value from, Value to, Point point) {
  int64_t unroll = e.schedule<LoopScheduleAttr>().getUnroll();
  SymExpr inner = runs.back().extent;
  bool ok = true;
  Value all; // the lanes that there are elements for
  if (width < e.lanes()) {
    SmallVector<bool> on(e.lanes());
    std::fill_n(on.begin(), width, true);
    all = points.constant(DenseElementsAttr::get(points.vectorOf(b.getI1Type()), ArrayRef<bool>(on)));
  }
  auto body = [&](int64_t copies) {
    return [&, copies](Value i, ValueRange) {
      PointEmitter::Scope scope(points);
      for (int64_t u = 0; u < copies; ++u)
        ok &= point(u ? add(i, points.constantIndex(u * width)) : i, all);
      return SmallVector<Value>();
    };
  };
  auto wholeUnits = [&](Value start, int64_t unit) {
    Value n = max(sub(to, start), points.constantIndex(0));
    Value whole = sub(n, arith::RemUIOp::create(b, loc, n, points.constantIndex(unit)));
    return add(start, whole);
  };
  Value at = from;
  bool isShort = inner.isConstant() && inner.constant() < width;
  if (!isShort) {
    if (unroll > 1 && !(inner.isConstant() && inner.constant() < unroll * width)) {
      Value stop = wholeUnits(at, unroll * width);
      emitFor(b, loc, at, stop, points.constantIndex(unroll * width), {}, body(unroll));
      at = stop;
    }
    Value stop = aligned ? to : wholeUnits(at, width);
    emitFor(b, loc, at, stop, points.constantIndex(width), {}, body(1));
    at = stop;
  }
  if (!aligned) {
    Value left = sub(to, at);
    Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, left, points.constantIndex(0));
    emitIf(b, loc, some, {}, [&] {
      PointEmitter::Scope scope(points);
      ok &= point(at, points.tailMask(left));
      return SmallVector<Value>();
    });
  }
  return ok;
}

/// One vector of results at `position` of the innermost run; a scalar if there is no run.
bool LoopEmitter::point(ArrayRef<Idx> outer, Value position, Value mask) {
  SmallVector<Idx> at(outer);
  if (position) {
    Idx within(position, true, 1, aligned ? e.lanes() : unit);
    for (const MergedDims &run : llvm::reverse(ArrayRef(joined).drop_front(joined.empty() ? 0 : 1)))
      std::tie(within, at[run.innermost]) = points.divModIdx(within, run.extent);
    at[joined.empty() ? runs.back().innermost : joined.front().innermost] = within;
  }
  return succeeded(points.storeResults(at, domain, mask));
}

LogicalResult mlir::disc::emitLoop(KernelEmission &e) {
  if (e.kernel.getYield().getValues().front().getDefiningOp<RunningSumOp>())
    return emitRunningSum(e);
  return LoopEmitter(e).run();
}
