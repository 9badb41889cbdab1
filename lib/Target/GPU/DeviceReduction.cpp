//===- DeviceReduction.cpp - row and column kernels on devices --------------===//
//
// The threads of a block form groups. Of a row kernel a group is neighbouring threads, a part of a warp for short rows
// and the whole block for long ones; of a column kernel it is threads of different warps, so that neighbouring ones
// read neighbouring columns. The threads of a group share the reduced range:
//
//   pass 1   scf.for %t = lane to R / 4 step group: %m = maximumf(%m, load)      -> lanes of the vector, then threads
//   pass 2   scf.for ...: %s += exp(load - %m)
//   pass 3   scf.for ...: store exp(load - %m) / %s
//
// Threads of a warp combine what they have by shuffles, others through memory of the block, in an order that depends on
// the schedule alone. All of them have the result then. What a pass of the CPU's kernel keeps for a later one is
// computed again, since a thread's registers are few and memory is far.
//
// Where a few blocks would reduce much (all of a tensor, columns of a narrow one), the reduced range is divided: the
// kernel's blocks, times the number of parts, leave their accumulators in memory, and a block for each parallel point
// combines them. How many parts there are follows from the shape alone.
//
// Lit test: test/lit/GPU/reductions.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/Common/ReductionPoints.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// What a thread of a block does: its share of one parallel point.
struct Share {
  SmallVector<Idx> parallel; // coordinates, inside the extents also where there is nothing to do
  Value active;              // i1: the point is there; null if all are
  Value lane;                // of the group
  int64_t group;             // threads
  Value slot;                // of the thread's value in memory of the block, for threads of other warps
  Value firstSlot;           // of the group's
  int64_t slotStep, numSlots;
  Value writesSlot; // i1: whether the thread has a value of its own there; null if all have
};

/// A reduction in parts: the function's arguments behind the symbols.
struct Parts {
  Value memory, count;
  Value number; // the block's own
  bool gathers; // combines the parts, and does not make one
};

class DeviceReduction {
public:
  DeviceReduction(DeviceKernel &k, ReductionPlan reductionPlan, int64_t width)
      : k(k), b(k.b), m(k.m), plan(std::move(reductionPlan)), width(width), points(k.points(width)) {
    KernelAccess access(k.kernel, k.shapes, plan.domain);
    readReductions(access, k.kernel, plan, k.shapes);
    runs = adjacentRuns(access, plan.reduced);
    if (runs.empty() || runs.back().extent.content() % width)
      this->width = 1;
  }

  const ReductionPlan &getPlan() const { return plan; }
  PointEmitter &getPoints() { return points; }
  LogicalResult emit(Share threadShare);
  /// The arguments, before emit(); the kernel's own block in place of the part's.
  Value divide(bool gathers);

private:
  /// Where part `part` of the point has its value of accumulator `number`.
  Value partAddress(unsigned number, Value part);
  void emitPass(unsigned pass);
  void emitSerial(const PlannedReduction &reduction);
  SmallVector<Idx> pointAt(Value position, int64_t lanes);
  SmallVector<Value> emitPoint(unsigned pass, ArrayRef<Idx> at, ValueRange carried);
  Value initial(const PlannedReduction &reduction, unsigned result);
  Value combine(Operation *combiner, Value v);
  void setResult(Value result, Value v);
  Value own(Value count);
  SmallVector<Value> gather(Value part, ValueRange carried);
  void leave(unsigned number, Value v);
  bool isSerial(const PlannedReduction &reduction) { return reduction.combiners.empty() || runs.empty(); }

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  const ReductionPlan plan;
  int64_t width;
  PointEmitter points;
  SmallVector<MergedDims> runs; // of the reduced dimensions
  Share share;
  std::optional<Parts> parts;
  bool ok = true;
};
} // namespace

Value DeviceReduction::divide(bool gathers) {
  unsigned first = k.kernel.getNumInputs() + k.kernel.getNumResults() + k.kernel.getSymbols().size();
  parts = Parts{k.function.getArgument(first), m.index(k.function.getArgument(first + 1)), {}, gathers};
  if (gathers) {
    width = 1;
    return k.block();
  }
  parts->number = m.rem(k.block(), parts->count);
  return m.div(k.block(), parts->count);
}

Value DeviceReduction::partAddress(unsigned number, Value part) {
  Value point = m.constant(0);
  for (auto [extent, i] : llvm::zip(plan.extents(plan.parallel), share.parallel))
    point = m.add(m.mul(point, points.expr(extent)), i.base);
  Value values = m.add(m.mul(points.expr(plan.size(plan.parallel)), number), point);
  return m.advance(parts->memory, m.mul(m.add(m.mul(values, parts->count), part), 8));
}

LogicalResult DeviceReduction::emit(Share threadShare) {
  share = std::move(threadShare);
  for (unsigned pass = 1; pass <= plan.numPasses && ok; ++pass)
    emitPass(pass);
  if (!ok)
    return failure();
  if (parts && !parts->gathers)
    return success();
  // All threads of the group have the results of one value per parallel point; the first one stores them.
  SmallVector<const PlannedResult *> small;
  for (const PlannedResult &result : plan.results)
    if (!result.isFull)
      small.push_back(&result);
  if (small.empty())
    return success();
  Value first = m.equal(share.lane, m.constant(0));
  if (share.active)
    first = arith::AndIOp::create(b, k.loc, first, share.active);
  auto branch = scf::IfOp::create(b, k.loc, first, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  PointEmitter::Scope scope(points);
  for (const PlannedResult *result : small) {
    SmallVector<Idx> at = points.reshapeIdx(share.parallel, plan.extents(plan.parallel), k.shapes.dims(result->base));
    Value v = points.eval(result->base, at);
    if (!v || failed(points.store(result->number, followViews(points, *result, at), v)))
      return failure();
  }
  return success();
}

/// How many steps there are for the thread: none if its point is not there. What lies at the point that it has instead
/// may be written by now.
Value DeviceReduction::own(Value count) {
  if (!share.active)
    return count;
  return arith::SelectOp::create(b, k.loc, share.active, count, m.constant(0));
}

/// The domain's point at a row-major position of the reduced range.
SmallVector<Idx> DeviceReduction::pointAt(Value position, int64_t lanes) {
  SmallVector<Idx> at(plan.domain.size(), points.uniform(int64_t(0)));
  for (auto [d, i] : llvm::zip(plan.parallel, share.parallel))
    at[d] = i;
  SmallVector<Value> extents;
  for (const MergedDims &run : runs)
    extents.push_back(points.expr(run.extent));
  SmallVector<Value> coordinates = m.delinearize(position, extents);
  for (auto [run, i] : llvm::zip(runs, coordinates))
    at[run.innermost] = Idx(i);
  if (!runs.empty() && lanes > 1)
    at[runs.back().innermost] = Idx(coordinates.back(), /*lanes=*/true, 1, lanes);
  return at;
}

void DeviceReduction::emitPass(unsigned pass) {
  SmallVector<Value> carried;
  for (const PlannedReduction &reduction : plan.reductions)
    if (reduction.pass == pass && !isSerial(reduction))
      for (Operation *combiner : reduction.combiners) {
        Value neutral = points.constant(*arith::getNeutralElement(combiner));
        carried.push_back(width > 1 ? points.splat(neutral) : neutral);
      }
  bool any = !carried.empty();
  any |= llvm::any_of(plan.results, [&](const PlannedResult &r) { return r.isFull && r.pass == pass; });
  if (any && parts && parts->gathers) {
    carried = emitFor(b, k.loc, share.lane, parts->count, m.constant(share.group), carried,
                      [&](Value part, ValueRange values) { return gather(part, values); });
  } else if (any) {
    Value begin = m.constant(0), end = points.expr(SymExpr::floorDiv(plan.size(plan.reduced), SymExpr(width)));
    if (parts) {
      Value size = m.ceilDiv(end, parts->count);
      begin = m.mul(parts->number, size);
      end = m.min(m.add(begin, size), end);
    }
    begin = m.add(begin, share.lane);
    carried = emitFor(b, k.loc, begin, own(end), m.constant(share.group), carried, [&](Value t, ValueRange values) {
      PointEmitter::Scope scope(points);
      return emitPoint(pass, pointAt(m.mul(t, width), width), values);
    });
  }
  unsigned next = 0;
  for (const PlannedReduction &reduction : plan.reductions) {
    if (reduction.pass != pass || !ok)
      continue;
    if (isSerial(reduction)) {
      emitSerial(reduction);
      continue;
    }
    for (unsigned i = 0; i < reduction.combiners.size(); ++i) {
      Operation *combiner = reduction.combiners[i];
      Value v = combine(combiner, carried[next++]);
      if (parts && !parts->gathers) {
        leave(next - 1, v);
        continue;
      }
      setResult(PlannedReduction(reduction).op->getResult(i), combineValues(b, combiner, initial(reduction, i), v));
    }
  }
}

/// The accumulators with those of a part.
SmallVector<Value> DeviceReduction::gather(Value part, ValueRange carried) {
  SmallVector<Value> next;
  for (const PlannedReduction &reduction : plan.reductions)
    for (Operation *combiner : reduction.combiners) {
      Value own = carried[next.size()];
      Value other = points.load(partAddress(next.size(), part), points.uniform(int64_t(0)), own.getType());
      next.push_back(combineValues(b, combiner, own, other));
    }
  return next;
}

/// Stores the group's value of an accumulator.
void DeviceReduction::leave(unsigned number, Value v) {
  Value first = m.equal(share.lane, m.constant(0));
  if (share.active)
    first = arith::AndIOp::create(b, k.loc, first, share.active);
  emitIf(b, k.loc, first, {}, [&] {
    points.store(partAddress(number, parts->number), points.uniform(int64_t(0)), v);
    return SmallVector<Value>();
  });
}

/// A reduction whose combiner is not one operation with a neutral element: each thread does all of it, in order.
void DeviceReduction::emitSerial(const PlannedReduction &reduction) {
  SmallVector<Value> inits;
  linalg::GenericOp op = reduction.op;
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    inits.push_back(initial(reduction, i));
  if (!ok)
    return;
  Value count = own(points.expr(plan.size(plan.reduced)));
  SmallVector<Value> sums =
      emitFor(b, k.loc, m.constant(0), count, m.constant(1), inits, [&](Value t, ValueRange values) {
        PointEmitter::Scope scope(points);
        SmallVector<Value> next = reducePoint(points, plan, reduction, pointAt(t, 1), {}, SmallVector<Value>(values));
        ok &= !next.empty();
        return next.empty() ? SmallVector<Value>(values) : next;
      });
  for (auto [result, v] : llvm::zip(op->getResults(), sums))
    setResult(result, v);
  // Each thread has read everything. A later pass may store a result where that lies.
  if (reduction.pass < plan.numPasses)
    k.barrier();
}

/// Everything that a pass does at one point, which may be a vector of them.
SmallVector<Value> DeviceReduction::emitPoint(unsigned pass, ArrayRef<Idx> at, ValueRange carried) {
  // A result may lie in the storage of an operand: nothing is stored before everything is read.
  SmallVector<std::pair<const PlannedResult *, Value>> stores;
  for (const PlannedResult &result : plan.results)
    if (result.isFull && result.pass == pass) {
      Value v = points.eval(result.base, points.reshapeIdx(at, plan.domain, k.shapes.dims(result.base)));
      if (!(ok &= bool(v)))
        return SmallVector<Value>(carried);
      stores.push_back({&result, v});
    }
  SmallVector<Value> next;
  for (const PlannedReduction &reduction : plan.reductions) {
    if (reduction.pass != pass || isSerial(reduction))
      continue;
    SmallVector<Value> accumulators(carried.slice(next.size(), reduction.combiners.size()));
    SmallVector<Value> sums = reducePoint(points, plan, reduction, at, {}, accumulators);
    if (!(ok &= !sums.empty()))
      return SmallVector<Value>(carried);
    for (Value sum : sums)
      next.push_back(width > 1 ? points.splat(sum) : sum);
  }
  for (auto [result, v] : stores) {
    SmallVector<Idx> base = points.reshapeIdx(at, plan.domain, k.shapes.dims(result->base));
    ok &= succeeded(points.store(result->number, followViews(points, *result, base), v));
  }
  return next;
}

Value DeviceReduction::initial(const PlannedReduction &reduction, unsigned result) {
  Value v = initialOf(points, reduction, result, share.parallel);
  ok &= bool(v);
  Type element = getElementTypeOrSelf(PlannedReduction(reduction).op->getResult(result).getType());
  return v ? v : points.constant(cast<TypedAttr>(b.getZeroAttr(element)));
}

/// The group's value, in all of its threads.
Value DeviceReduction::combine(Operation *combiner, Value v) {
  if (width > 1) {
    Value sum = vector::ExtractOp::create(b, k.loc, v, int64_t(0));
    for (int64_t i = 1; i < width; ++i)
      sum = combineValues(b, combiner, sum, vector::ExtractOp::create(b, k.loc, v, i));
    v = sum;
  }
  if (share.numSlots == 1 || share.writesSlot)
    for (int64_t mask = std::min(share.group, k.warp) / 2; mask >= 1; mask /= 2)
      v = combineValues(b, combiner, v, k.shuffleXor(v, mask));
  if (share.numSlots == 1)
    return v;
  Type type = v.getType();
  // Each reduction has memory of its own, so that none waits for others to have read it.
  Value memory = k.shared(type, k.threads());
  auto write = [&] { k.storeShared(memory, v, share.slot); };
  if (share.writesSlot) {
    auto branch = scf::IfOp::create(b, k.loc, share.writesSlot, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    write();
  } else {
    write();
  }
  k.barrier();
  Value sum;
  for (int64_t i = 0; i < share.numSlots; ++i) {
    Value other = k.loadShared(memory, type, m.add(share.firstSlot, m.constant(i * share.slotStep)));
    sum = sum ? combineValues(b, combiner, sum, other) : other;
  }
  return sum;
}

void DeviceReduction::setResult(Value result, Value v) {
  points.bind(result, [v](ArrayRef<Idx>, Value) { return v; });
}

/// Groups of neighbouring threads, of which each has a part of a warp, or whole ones.
static Share neighbours(DeviceKernel &k, int64_t group) {
  IndexMath &m = k.m;
  Value thread = k.thread(), threads = m.constant(group), warp = m.constant(k.warp);
  Share share;
  share.group = group;
  share.lane = m.rem(thread, threads);
  share.numSlots = std::max<int64_t>(group / k.warp, 1);
  share.slotStep = 1;
  if (share.numSlots > 1) {
    // A warp's threads have the same value: the first one writes it.
    share.slot = m.div(thread, warp);
    share.firstSlot = m.mul(m.div(thread, threads), m.constant(share.numSlots));
    share.writesSlot = m.equal(m.rem(thread, warp), m.constant(0));
  }
  return share;
}

LogicalResult disc::emitDeviceRow(DeviceKernel &k, bool inParts) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(plan))
    return failure();
  IndexMath &m = k.m;
  DeviceReduction rows(k, *plan, k.schedule("vector"));
  PointEmitter &points = rows.getPoints();
  Share share = neighbours(k, k.schedule("group"));
  int64_t groups = k.threads() / share.group;
  Value group = m.constant(share.group);
  SymExpr count = plan->size(plan->parallel);
  Value block = inParts ? rows.divide(/*gathers=*/false) : k.block();
  Value row = m.add(m.mul(block, m.constant(groups)), m.div(k.thread(), group));
  if (count.content() % groups) {
    Value number = points.expr(count);
    share.active = m.less(row, number);
    row = m.min(row, m.sub(number, m.constant(1)));
  }
  SmallVector<Value> extents;
  for (const SymExpr &extent : plan->extents(plan->parallel))
    extents.push_back(points.expr(extent));
  for (Value i : m.delinearize(row, extents))
    share.parallel.push_back(Idx(i));
  return rows.emit(std::move(share));
}

LogicalResult disc::emitDeviceWhole(DeviceKernel &k) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(plan))
    return failure();
  IndexMath &m = k.m;
  DeviceReduction reduction(k, *plan, /*width=*/1);
  PointEmitter &points = reduction.getPoints();
  SmallVector<Value> extents;
  for (const SymExpr &extent : plan->extents(plan->parallel))
    extents.push_back(points.expr(extent));
  Share share = neighbours(k, k.threads());
  for (Value i : m.delinearize(reduction.divide(/*gathers=*/true), extents))
    share.parallel.push_back(Idx(i));
  return reduction.emit(std::move(share));
}

LogicalResult disc::emitDeviceColumn(DeviceKernel &k, bool inParts) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(plan))
    return failure();
  IndexMath &m = k.m;
  DeviceReduction reduction(k, *plan, /*width=*/1);
  PointEmitter &points = reduction.getPoints();
  SmallVector<Value> outer, inner;
  SymExpr width(1);
  for (unsigned d : plan->parallel) {
    bool isInner = d > plan->reduced.back();
    (isInner ? inner : outer).push_back(points.expr(plan->domain[d]));
    if (isInner)
      width *= plan->domain[d];
  }
  int64_t columns = k.schedule("columns");
  Value perRow = points.expr(SymExpr::ceilDiv(width, SymExpr(columns))), lanes = m.constant(columns);
  Value thread = k.thread(), block = inParts ? reduction.divide(/*gathers=*/false) : k.block();
  Value own = m.rem(thread, lanes);
  Value column = m.add(m.mul(m.rem(block, perRow), lanes), own);
  Share share;
  share.group = k.threads() / columns;
  share.lane = m.div(thread, lanes);
  if (width.content() % columns) {
    Value number = points.expr(width);
    share.active = m.less(column, number);
    column = m.min(column, m.sub(number, m.constant(1)));
  }
  SmallVector<Value> at = outer.empty() ? SmallVector<Value>() : m.delinearize(m.div(block, perRow), outer);
  if (!inner.empty())
    llvm::append_range(at, m.delinearize(column, inner));
  unsigned nextOuter = 0, nextInner = outer.size();
  for (unsigned d : plan->parallel)
    share.parallel.push_back(Idx(at[d > plan->reduced.back() ? nextInner++ : nextOuter++]));
  share.slot = thread;
  share.firstSlot = own;
  share.slotStep = columns;
  share.numSlots = share.group;
  return reduction.emit(std::move(share));
}
