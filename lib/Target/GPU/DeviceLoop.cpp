//===- DeviceLoop.cpp - kernels without reductions on devices ---------------===//
//
//   disc_plan.kernel_func loop @k { %r = linalg.generic ... ; disc_plan.yield %r : tensor<?x?x384xf32> }
//
// becomes, with the domain's dimensions merged where all buffers allow (here into one):
//
//   scf.if 4 * 256 * (block + 1) <= n / 4 {
//     vector<4xf32> of each input at %u = 4 * 256 * block + thread, %u + 256, %u + 512, %u + 768 ; body ; stores
//   } else {
//     scf.for %u to n / 4 step 256 { vector<4xf32> of each input ; body ; store } ; the n mod 4 elements behind them
//   }
//
// Neighbouring threads have neighbouring vectors, so that a warp reads whole lines. `points` of the schedule says how
// many vectors a thread reads before it needs the first one.
//
// An operand that lies in memory along another dimension (a transpose) goes through memory of the block, in tiles of
// 32 x 32, so that it is read along its lines and the results are written along theirs:
//
//   scf.for %tile { tile[n][x] = %x ... along x ; gpu.barrier ; body, reading tile[n][x], and stores along n ;
//   gpu.barrier }
//
// Lit test: test/lit/GPU/emit-kernels.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/Common/KernelAccess.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// An operand whose elements are neighbours along another dimension than those of the results.
struct Crossed {
  BlockArgument operand;
  LinearAccess access;
  Value memory;
};
} // namespace

constexpr int64_t kTile = 32, kPitch = kTile + 1; // rows of a tile start in different banks

static SmallVector<Crossed> findCrossed(KernelFuncOp kernel, const KernelAccess &access, unsigned lanes,
                                        unsigned across) {
  SmallVector<Crossed> crossed;
  for (BlockArgument operand : kernel.getBody().getArguments()) {
    const LinearAccess *only = access.onlyAccess(operand.getArgNumber());
    Type elem = getElementTypeOrSelf(operand.getType());
    if (only && only->strides[across].isConstant(1) && !only->strides[lanes].isConstant(0) &&
        !only->strides[lanes].isConstant(1) && elem.isIntOrFloat() && elem.getIntOrFloatBitWidth() >= 8)
      crossed.push_back({operand, *only, {}});
  }
  return crossed;
}

std::optional<unsigned> disc::tiledRun(KernelFuncOp kernel, const KernelAccess &access, ArrayRef<MergedDims> runs) {
  // The threads of a block are rows of a tile.
  if (!runs.empty() && kernel.getScheduleAttr().getBlockThreads() % kTile == 0)
    for (unsigned r = 0; r + 1 < runs.size(); ++r)
      if (!findCrossed(kernel, access, runs.back().innermost, runs[r].innermost).empty())
        return r;
  return std::nullopt;
}

/// The domain in tiles of run `across` and the innermost run.
static LogicalResult emitTiles(DeviceKernel &k, ArrayRef<SymExpr> domain, ArrayRef<MergedDims> runs, unsigned across,
                               SmallVector<Crossed> crossed) {
  IndexMath &m = k.m;
  PointEmitter points = k.points(1);
  unsigned x = runs[across].innermost, n = runs.back().innermost;
  SmallVector<SymExpr> extents;
  for (auto [r, run] : llvm::enumerate(runs.drop_back()))
    if (r != across)
      extents.push_back(run.extent);
  for (const SymExpr &extent : {runs[across].extent, runs.back().extent})
    extents.push_back(SymExpr::ceilDiv(extent, SymExpr(kTile)));
  SmallVector<Value> sizes;
  for (const SymExpr &extent : extents)
    sizes.push_back(points.expr(extent));
  for (Crossed &c : crossed)
    c.memory = k.shared(getElementTypeOrSelf(c.operand.getType()), kTile * kPitch);
  Value width = m.constant(kTile), fast = m.rem(k.thread(), width), slow = m.div(k.thread(), width);
  int64_t step = k.threads() / kTile;
  Value xCount = points.expr(runs[across].extent), nCount = points.expr(runs.back().extent);
  bool ok = true;
  emitFor(k.b, k.loc, k.block(), points.expr(SymExpr::product(extents)), k.blocks(), {}, [&](Value tile, ValueRange) {
    PointEmitter::Scope scope(points);
    SmallVector<Value> place = m.delinearize(tile, sizes);
    SmallVector<Idx> at(domain.size(), points.uniform(int64_t(0)));
    unsigned next = 0;
    for (auto [r, run] : llvm::enumerate(runs.drop_back()))
      if (r != across)
        at[run.innermost] = Idx(place[next++]);
    Value x0 = m.mul(place[next], kTile), n0 = m.mul(place[next + 1], kTile);
    // `body` at coordinate i of run `across` and j of the innermost one, if there is such a point.
    auto inside = [&](Value i, Value j, function_ref<void()> body) {
      Value is = arith::AndIOp::create(k.b, k.loc, m.less(i, xCount), m.less(j, nCount));
      auto branch = scf::IfOp::create(k.b, k.loc, is, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(k.b);
      k.b.setInsertionPointToStart(branch.thenBlock());
      PointEmitter::Scope inner(points);
      at[x] = Idx(i), at[n] = Idx(j);
      body();
    };
    for (int64_t row = 0; row < kTile; row += step) {
      Value own = m.add(slow, m.constant(row));
      inside(m.add(x0, fast), m.add(n0, own), [&] {
        for (const Crossed &c : crossed) {
          Idx address(points.expr(c.access.offset));
          for (auto [i, stride] : llvm::zip(at, c.access.strides))
            address = points.addIdx(address, points.mulIdx(i, stride));
          Value v = points.load(points.operandPtr(c.operand.getArgNumber()), address,
                                getElementTypeOrSelf(c.operand.getType()));
          k.storeShared(c.memory, v, m.add(m.mul(own, kPitch), fast));
        }
      });
    }
    k.barrier();
    for (int64_t row = 0; row < kTile; row += step) {
      Value own = m.add(slow, m.constant(row));
      inside(m.add(x0, own), m.add(n0, fast), [&] {
        for (const Crossed &c : crossed) {
          Value v = k.loadShared(c.memory, getElementTypeOrSelf(c.operand.getType()), m.add(m.mul(fast, kPitch), own));
          points.bind(c.operand, [v](ArrayRef<Idx>, Value) { return v; });
        }
        ok &= succeeded(points.storeResults(at, domain));
      });
    }
    k.barrier();
    return SmallVector<Value>();
  });
  return success(ok);
}

LogicalResult disc::emitDeviceLoop(DeviceKernel &k) {
  IndexMath &m = k.m;
  ValueRange results = k.kernel.getYield().getValues();
  // They have schedules of their own.
  if (!k.kernel.getBody().getOps<RunningSumOp>().empty())
    return emitDeviceRunningSum(k);
  auto schedule = k.schedule<DeviceLoopScheduleAttr>();
  int64_t width = schedule.getVector();
  int64_t scheduled = width, count = std::max<int64_t>(schedule.getPoints(), 1), repeats = 1;
  // Whether a point lies in one part of a concatenation or another is asked for each, one after the other. A vector
  // must not cross the end of a part.
  if (!k.kernel.getBody().getOps<ConcatOp>().empty())
    repeats = std::exchange(count, 1);
  for (const SymExpr &e : concatenatedExtents(k.kernel, k.shapes))
    width = k.isMultiple(e, width) ? width : 1;

  SmallVector<SymExpr> domain = k.shapes.dims(results.front());
  KernelAccess access = loopAccess(k.kernel, k.shapes);
  SmallVector<MergedDims> runs = access.mergedRuns(0, domain.size());
  if (std::optional<unsigned> across = tiledRun(k.kernel, access, runs))
    return emitTiles(k, domain, runs, *across,
                     findCrossed(k.kernel, access, runs.back().innermost, runs[*across].innermost));
  bool whole = !runs.empty() && k.isMultiple(runs.back().extent, width);
  // Vectors must not cross the ends of rows; one row has one end, and a tail there.
  if (runs.empty() || (runs.size() > 1 && !whole))
    width = 1;
  repeats *= scheduled / width;

  PointEmitter points = k.points(width);
  SymExpr total(1);
  SmallVector<Value> outerExtents;
  for (const MergedDims &run : runs) {
    total *= run.extent;
    if (&run != &runs.back())
      outerExtents.push_back(points.expr(run.extent));
  }
  bool ok = true;
  Value perRow = m.div(runs.empty() ? m.constant(1) : points.expr(runs.back().extent), m.constant(width));
  auto pointAt = [&](Value unit) {
    SmallVector<Idx> at(domain.size(), points.uniform(int64_t(0)));
    Value column = unit;
    if (!outerExtents.empty()) {
      column = m.rem(unit, perRow);
      SmallVector<Value> row = m.delinearize(m.div(unit, perRow), outerExtents);
      for (auto [run, i] : llvm::zip(runs, row))
        at[run.innermost] = Idx(i);
    }
    if (!runs.empty())
      at[runs.back().innermost] = width > 1 ? Idx(m.mul(column, width), /*lanes=*/true, 1, width) : Idx(column);
    return at;
  };
  Value thread = k.thread(), threads = m.constant(k.threads()), units = points.expr(SymExpr::floorDiv(total, width));
  auto unitsFrom = [&](Value first) {
    Value end = m.add(first, m.constant(k.threads() * count));
    auto all = scf::IfOp::create(k.b, k.loc, m.less(units, end), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(k.b);
    k.b.setInsertionPointToStart(all.elseBlock());
    {
      PointEmitter::Scope scope(points);
      SmallVector<SmallVector<Idx>> own;
      for (int64_t u = 0; u < count; ++u)
        own.push_back(pointAt(m.add(m.add(first, m.constant(u * k.threads())), thread)));
      ok &= succeeded(points.storeResultsOf(own, domain));
    }
    k.b.setInsertionPointToStart(all.thenBlock());
    emitFor(k.b, k.loc, m.add(first, thread), units, threads, {}, [&](Value unit, ValueRange) {
      PointEmitter::Scope scope(points);
      ok &= succeeded(points.storeResults(pointAt(unit), domain));
      return SmallVector<Value>();
    });
    if (width == 1 || whole)
      return;
    // The elements behind the last vector are fewer than the threads of a block.
    Value position = m.add(m.mul(units, width), thread);
    Value isThere = arith::AndIOp::create(k.b, k.loc, m.less(units, end), m.less(position, points.expr(total)));
    isThere = arith::AndIOp::create(k.b, k.loc, isThere, m.notLess(units, first));
    emitIf(k.b, k.loc, isThere, {}, [&] {
      PointEmitter::Scope scope(points);
      SmallVector<Idx> at(domain.size(), points.uniform(int64_t(0)));
      at[runs.back().innermost] = Idx(position);
      ok &= succeeded(points.storeResults(at, domain));
      return SmallVector<Value>();
    });
  };
  // A block has a piece of the domain, whatever the width is that its threads can use.
  int64_t step = k.threads() * count;
  Value begin = m.mul(k.block(), step * repeats);
  if (repeats == 1)
    unitsFrom(begin);
  else
    emitFor(k.b, k.loc, begin, m.min(m.add(begin, m.constant(step * repeats)), units), m.constant(step), {},
            [&](Value first, ValueRange) {
              unitsFrom(first);
              return SmallVector<Value>();
            });
  return success(ok);
}
