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
// the schedule and the shape alone. All of them have the result then. Those loops are for rows that are too long for
// registers, and for columns. With `points` in the schedule, a thread has so many vectors of its row from the first
// pass to the last, in straight code: what a pass loads or computes is there for those behind it.
//
//   load x[t] for all t ; %m = max over t ; combine ; %e[t] = exp(x[t] - %m), %s = sum over t ; combine ;
//   store %e[t] / %s for all t
//
// Columns may be vectors, too: `vector` neighbouring ones for each thread.
//
// Where a few blocks would reduce much (all of a tensor, columns of a narrow one), the reduced range is divided: the
// kernel's blocks, times the number of parts, leave their accumulators in memory, and a block for each parallel point,
// or a warp for each column, combines them. How many parts there are follows from the shape alone.
//
// Lit tests: test/lit/GPU/reductions.mlir, kept-rows.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Target/Common/ReductionPoints.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// What a thread of a block does: its share of one parallel point.
struct Share {
  SmallVector<Idx> parallel;  // coordinates, inside the extents also where there is nothing to do
  Value active;               // i1: the point is there; null if all are
  Value lane;                 // of the group
  int64_t group;              // threads; 0: the row's length decides, see `threads`
  Value threads;              // the same
  Value slot;                 // of the thread's value in memory of the block, for threads of other warps
  Value firstSlot;            // of the group's
  int64_t slotStep, numSlots; // as many as there may be
  Value slotCount;            // how many there are; null: numSlots
  Value writesSlot;           // i1: whether the thread has a value of its own there; null if all have
};

/// A reduction in parts: the function's arguments behind the symbols.
struct Parts {
  Value memory, count;
  Value number; // the block's own
  bool gathers; // combines the parts, and does not make one
};

class DeviceReduction {
public:
  /// `inFlight`: vectors that a thread reads before it uses the first one, where each costs little. `isAcross`: the
  /// lanes are those of neighbouring columns, not of neighbours that are reduced.
  DeviceReduction(DeviceKernel &k, ReductionPlan reductionPlan, int64_t width, int64_t inFlight, bool isAcross = false)
      : k(k), b(k.b), m(k.m), plan(std::move(reductionPlan)), isAcross(isAcross), width(width),
        points(k.points(width)) {
    KernelAccess access(k.kernel, k.shapes, plan.domain);
    readReductions(access, k.kernel, plan, k.shapes);
    runs = adjacentRuns(access, plan.reduced);
    if (!isAcross && (runs.empty() || points.divisor(runs.back().extent) % width))
      this->width = 1;
    unroll = isLight() ? inFlight : 1;
  }

  const ReductionPlan &getPlan() const { return plan; }
  PointEmitter &getPoints() { return points; }
  int64_t lanes() const { return width; }
  /// Whether memory takes longer than what is computed.
  bool isLight() const { return plan.work <= 24 * plan.numPasses; }
  /// With `count` vectors of its row in each thread's registers from the first pass to the last; 0: each pass reads
  /// them again.
  LogicalResult emit(Share threadShare, int64_t count);
  /// The arguments, before emit(); the kernel's own block in place of the part's.
  Value divide(bool gathers);

private:
  /// Where part `part` of the point, or of a lane's, has its value of accumulator `number`.
  Value partAddress(unsigned number, Value part, int64_t lane = 0);
  /// Elements of the reduced range that a vector has.
  int64_t step() const { return isAcross ? 1 : width; }
  /// A point of the thread's, and whether (i1) it is there; null if it always is.
  struct Point {
    SmallVector<Idx> at;
    Value there;
  };
  using Stores = SmallVector<std::pair<const PlannedResult *, Value>>;

  void emitPass(unsigned pass);
  void emitKept(int64_t count);
  void finishPass(unsigned pass, ValueRange carried);
  SmallVector<Value> neutrals(unsigned pass);
  bool hasStores(unsigned pass) {
    return llvm::any_of(plan.results, [&](const PlannedResult &r) { return r.isFull && r.pass == pass; });
  }
  void preload(unsigned pass, ArrayRef<Idx> at);
  void preload(Value v, ArrayRef<Idx> at);
  void preloadInputs(linalg::GenericOp op, ArrayRef<Idx> iters);
  void emitSerial(const PlannedReduction &reduction);
  SmallVector<Idx> pointAt(Value position, int64_t lanes);
  SmallVector<Value> evaluate(unsigned pass, ArrayRef<Idx> at, ValueRange carried, Stores &stores);
  void store(ArrayRef<Idx> at, const Stores &stores);
  void storeIf(Value condition, ArrayRef<Idx> at, const Stores &stores);
  Value initial(const PlannedReduction &reduction, unsigned result);
  Value combine(Operation *combiner, Value v);
  Value exchange(Operation *combiner, Value v);
  Value exchangeLanes(Operation *combiner, Value v);
  void setResult(Value result, Value v);
  Value own(Value count);
  SmallVector<Value> gather(Value part, ValueRange carried);
  void leave(unsigned number, Value v);
  bool isSerial(const PlannedReduction &reduction) { return reduction.combiners.empty() || runs.empty(); }

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  const ReductionPlan plan;
  const bool isAcross;
  int64_t width, unroll;
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

Value DeviceReduction::partAddress(unsigned number, Value part, int64_t lane) {
  Value point = m.constant(0);
  for (auto [extent, i] : llvm::zip(plan.extents(plan.parallel), share.parallel))
    point = m.add(m.mul(point, points.expr(extent)), i.base);
  if (lane)
    point = m.add(point, m.constant(lane));
  Value values = m.add(m.mul(points.expr(plan.size(plan.parallel)), number), point);
  return m.advance(parts->memory, m.mul(m.add(m.mul(values, parts->count), part), 8));
}

LogicalResult DeviceReduction::emit(Share threadShare, int64_t count) {
  share = std::move(threadShare);
  if (count)
    emitKept(count);
  for (unsigned pass = 1; !count && pass <= plan.numPasses && ok; ++pass)
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

/// A pass's accumulators before its first point.
SmallVector<Value> DeviceReduction::neutrals(unsigned pass) {
  SmallVector<Value> values;
  for (const PlannedReduction &reduction : plan.reductions)
    if (reduction.pass == pass && !isSerial(reduction))
      for (Operation *combiner : reduction.combiners) {
        Value neutral = points.constant(*arith::getNeutralElement(combiner));
        values.push_back(width > 1 ? points.splat(neutral) : neutral);
      }
  return values;
}

void DeviceReduction::emitPass(unsigned pass) {
  SmallVector<Value> carried = neutrals(pass);
  bool any = !carried.empty() || hasStores(pass);
  if (any && parts && parts->gathers) {
    // Few threads have many parts each.
    int64_t together = share.group <= k.warp ? 8 : 1;
    carried = emitUnrolled(b, k.loc, share.lane, own(parts->count), share.threads, together, carried,
                           [&](ArrayRef<Value> own, ValueRange values) {
                             SmallVector<Value> next(values);
                             for (Value part : own)
                               next = gather(part, next);
                             return next;
                           });
  } else if (any) {
    Value begin = m.constant(0), end = points.expr(SymExpr::floorDiv(plan.size(plan.reduced), SymExpr(step())));
    if (parts) {
      Value size = m.ceilDiv(end, parts->count);
      begin = m.mul(parts->number, size);
      end = m.min(m.add(begin, size), end);
    }
    begin = m.add(begin, share.lane);
    carried = emitUnrolled(b, k.loc, begin, own(end), share.threads, unroll, carried,
                           [&](ArrayRef<Value> positions, ValueRange values) {
                             PointEmitter::Scope scope(points);
                             SmallVector<Value> next(values);
                             SmallVector<std::pair<SmallVector<Idx>, Stores>> stores;
                             for (Value t : positions) {
                               stores.push_back({pointAt(m.mul(t, step()), step()), {}});
                               next = evaluate(pass, stores.back().first, next, stores.back().second);
                             }
                             for (auto &[at, values] : stores)
                               store(at, values);
                             return next;
                           });
  }
  finishPass(pass, carried);
}

/// Every value at a point of the thread's is computed once, by the first pass that needs it, and the passes after that
/// use the same one. What is evaluated for a point that is not there is not used.
void DeviceReduction::emitKept(int64_t count) {
  SymExpr vectors = SymExpr::floorDiv(plan.size(plan.reduced), SymExpr(width));
  // A warp's vectors are neighbours: all addresses are a constant apart from the first one.
  int64_t step = share.group ? std::min(share.group, k.warp) : k.warp;
  Value warps = m.constant(step),
        first = m.add(m.mul(m.div(share.lane, warps), step * count), m.rem(share.lane, warps));
  // How far the row's end is from the thread's first vector. One comparison for each vector says whether it is there.
  Value left = this->own(m.sub(points.expr(vectors), first));
  SmallVector<Point> own;
  for (int64_t t = 0; t < count; ++t) {
    bool isKnown = share.group && vectors.isConstant();
    if (isKnown && t * step >= vectors.constant())
      break;
    Value position = m.add(first, m.constant(t * step)), there = share.active;
    if (!isKnown || (share.group - step) * count + (t + 1) * step > vectors.constant())
      there = m.less(m.constant(t * step), left);
    own.push_back({pointAt(m.mul(position, width), width), there});
  }
  for (unsigned pass = 1; pass <= plan.numPasses && ok; ++pass) {
    SmallVector<Value> carried = neutrals(pass);
    // Loads come first, as memory takes far longer than anything else. Where a pass stores results, few points at a
    // time: what it loads for all of them would take too many registers.
    size_t together = hasStores(pass) ? 2 : std::max<size_t>(own.size() / std::max(k.kernel.getNumInputs(), 1u), 2);
    for (size_t begin = 0; begin < own.size(); begin += together) {
      ArrayRef<Point> batch = ArrayRef(own).slice(begin, std::min(together, own.size() - begin));
      for (const Point &point : batch) {
        points.setGuard(point.there);
        preload(pass, point.at);
      }
      SmallVector<Stores> stores(batch.size());
      for (auto [t, point] : llvm::enumerate(batch)) {
        points.setGuard(point.there);
        SmallVector<Value> next = evaluate(pass, point.at, carried, stores[t]);
        for (auto [sum, value] : llvm::zip(carried, next))
          sum = point.there ? arith::SelectOp::create(b, k.loc, point.there, value, sum).getResult() : value;
      }
      points.setGuard(share.active);
      for (auto [t, point] : llvm::enumerate(batch))
        storeIf(point.there, point.at, stores[t]);
    }
    finishPass(pass, carried);
  }
  points.setGuard({});
}

/// What the pass at a point loads from operands that are reached through computations alone, not through views.
void DeviceReduction::preload(unsigned pass, ArrayRef<Idx> at) {
  for (const PlannedReduction &reduction : plan.reductions) {
    if (reduction.pass != pass)
      continue;
    preloadInputs(reduction.op, itersAt(plan, reduction, at));
  }
  for (const PlannedResult &result : plan.results)
    if (result.isFull && result.pass == pass)
      preload(result.base, points.reshapeIdx(at, plan.domain, k.shapes.dims(result.base)));
}

void DeviceReduction::preloadInputs(linalg::GenericOp op, ArrayRef<Idx> iters) {
  for (OpOperand *input : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(input);
    if (!isa<RankedTensorType>(input->get().getType()) || op.getMatchingBlockArgument(input).use_empty() ||
        !map.isProjectedPermutation(/*allowZeroInResults=*/true))
      continue;
    preload(input->get(), llvm::map_to_vector(map.getResults(), [&](AffineExpr e) { return points.affine(e, iters); }));
  }
}

void DeviceReduction::preload(Value v, ArrayRef<Idx> at) {
  if (points.isKnown(v, at))
    return;
  if (isa<BlockArgument>(v)) {
    points.eval(v, at);
    return;
  }
  auto op = v.getDefiningOp<linalg::GenericOp>();
  if (!op || op.getNumReductionLoops())
    return;
  SmallVector<Idx> iters(op.getNumLoops(), points.uniform(int64_t(0)));
  for (auto [i, e] : llvm::zip(at, op.getIndexingMapMatchingResult(cast<OpResult>(v)).getResults()))
    if (auto dim = dyn_cast<AffineDimExpr>(e))
      iters[dim.getPosition()] = i;
  preloadInputs(op, iters);
}

/// The group's values of the pass's reductions.
void DeviceReduction::finishPass(unsigned pass, ValueRange carried) {
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
      Value first = initial(reduction, i);
      if (isAcross && width > 1)
        first = points.splat(first);
      setResult(PlannedReduction(reduction).op->getResult(i), combineValues(b, combiner, first, v));
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
    Idx none = points.uniform(int64_t(0));
    if (!isa<VectorType>(v.getType()))
      points.store(partAddress(number, parts->number), none, v);
    else
      for (int64_t lane = 0; lane < width; ++lane)
        points.store(partAddress(number, parts->number, lane), none, vector::ExtractOp::create(b, k.loc, v, lane));
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

/// Everything that a pass computes at one point, which may be a vector of them: the next accumulators, and the results
/// in `stores`. A result may lie in the storage of an operand: nothing is stored before everything is read.
SmallVector<Value> DeviceReduction::evaluate(unsigned pass, ArrayRef<Idx> at, ValueRange carried, Stores &stores) {
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
  return next;
}

void DeviceReduction::storeIf(Value condition, ArrayRef<Idx> at, const Stores &stores) {
  if (!condition || stores.empty())
    return store(at, stores);
  emitIf(b, k.loc, condition, {}, [&] {
    PointEmitter::Scope scope(points);
    store(at, stores);
    return SmallVector<Value>();
  });
}

void DeviceReduction::store(ArrayRef<Idx> at, const Stores &stores) {
  for (auto [result, v] : stores) {
    SmallVector<Idx> base = points.reshapeIdx(at, plan.domain, k.shapes.dims(result->base));
    ok &= succeeded(points.store(result->number, followViews(points, *result, base), v));
  }
}

Value DeviceReduction::initial(const PlannedReduction &reduction, unsigned result) {
  Value v = initialOf(points, reduction, result, share.parallel);
  ok &= bool(v);
  Type element = getElementTypeOrSelf(PlannedReduction(reduction).op->getResult(result).getType());
  return v ? v : points.constant(cast<TypedAttr>(b.getZeroAttr(element)));
}

/// The group's value, in all of its threads.
Value DeviceReduction::combine(Operation *combiner, Value v) {
  if (width > 1 && !isAcross) {
    Value sum = vector::ExtractOp::create(b, k.loc, v, int64_t(0));
    for (int64_t i = 1; i < width; ++i)
      sum = combineValues(b, combiner, sum, vector::ExtractOp::create(b, k.loc, v, i));
    v = sum;
  }
  if (share.numSlots == 1 || share.writesSlot)
    for (int64_t mask = std::min(share.group ? share.group : k.warp, k.warp) / 2; mask >= 1; mask /= 2)
      v = combineValues(b, combiner, v, k.shuffleXor(v, mask));
  if (share.numSlots == 1)
    return v;
  if (!share.slotCount)
    return exchange(combiner, v);
  Value several = m.less(m.constant(1), share.slotCount);
  return emitIf(b, k.loc, several, v, [&] { return SmallVector<Value>{exchange(combiner, v)}; }).front();
}

/// The value of all threads of the group that have a slot, in all of its threads.
Value DeviceReduction::exchange(Operation *combiner, Value v) {
  if (isAcross && width > 1)
    return exchangeLanes(combiner, v);
  Type type = v.getType();
  // Each reduction has memory of its own, so that none waits for others to have read it.
  int64_t slots = share.writesSlot ? k.threads() / k.warp : k.threads();
  Value memory = k.shared(type, slots);
  auto write = [&] {
    k.storeShared(memory, v, share.slot);
    return SmallVector<Value>();
  };
  if (share.writesSlot)
    emitIf(b, k.loc, share.writesSlot, {}, write);
  else
    write();
  k.barrier();
  constexpr int64_t few = 8;
  if (!share.slotCount && share.numSlots <= few) {
    Value sum;
    for (int64_t i = 0; i < share.numSlots; ++i) {
      Value other = k.loadShared(memory, type, m.add(share.firstSlot, m.constant(i * share.slotStep)));
      sum = sum ? combineValues(b, combiner, sum, other) : other;
    }
    return sum;
  }
  // Each thread of a warp reads a slot.
  int64_t lanes = llvm::PowerOf2Ceil(share.numSlots);
  Value count = share.slotCount ? share.slotCount : m.constant(share.numSlots);
  Value lane = m.rem(k.thread(), m.constant(lanes)), last = m.sub(count, m.constant(1));
  // Warps that have no row have no slots behind theirs.
  Value slot = m.min(m.add(share.firstSlot, m.mul(m.min(lane, last), share.slotStep)), m.constant(slots - 1));
  Value other = k.loadShared(memory, type, slot);
  Value neutral = points.constant(*arith::getNeutralElement(combiner));
  Value sum = arith::SelectOp::create(b, k.loc, m.less(lane, count), other, neutral);
  for (int64_t mask = lanes / 2; mask >= 1; mask /= 2)
    sum = combineValues(b, combiner, sum, k.shuffleXor(sum, mask));
  return sum;
}

/// The same for vectors of columns: one lane's values of all threads are neighbours.
Value DeviceReduction::exchangeLanes(Operation *combiner, Value v) {
  Type type = getElementTypeOrSelf(v.getType());
  Value memory = k.shared(type, k.threads() * width);
  auto at = [&](int64_t lane, Value slot) { return m.add(slot, m.constant(lane * k.threads())); };
  for (int64_t lane = 0; lane < width; ++lane)
    k.storeShared(memory, vector::ExtractOp::create(b, k.loc, v, lane), at(lane, share.slot));
  k.barrier();
  SmallVector<Value> sums;
  for (int64_t lane = 0; lane < width; ++lane) {
    Value sum;
    for (int64_t i = 0; i < share.numSlots; ++i) {
      Value slot = m.add(share.firstSlot, m.constant(i * share.slotStep));
      Value other = k.loadShared(memory, type, at(lane, slot));
      sum = sum ? combineValues(b, combiner, sum, other) : other;
    }
    sums.push_back(sum);
  }
  return vector::FromElementsOp::create(b, k.loc, cast<VectorType>(v.getType()), sums);
}

void DeviceReduction::setResult(Value result, Value v) {
  points.bind(result, [v](ArrayRef<Idx>, Value) { return v; });
}

/// Groups of neighbouring threads, of which each has a part of a warp, or `group / warp` whole ones. Without `group`, a
/// group has as many warps as `warps` says.
static Share neighbours(DeviceKernel &k, int64_t group, Value warps = {}) {
  IndexMath &m = k.m;
  Value thread = k.thread(), warp = m.constant(k.warp);
  Share share;
  share.group = group;
  share.threads = warps ? m.mul(warps, k.warp) : m.constant(group);
  share.lane = m.rem(thread, share.threads);
  share.slotCount = warps;
  share.numSlots = std::max<int64_t>((warps ? k.threads() : group) / k.warp, 1);
  share.slotStep = 1;
  if (share.numSlots > 1) {
    // A warp's threads have the same value: the first one writes it.
    share.slot = m.div(thread, warp);
    share.firstSlot = m.mul(m.div(thread, share.threads), warps ? warps : m.constant(share.numSlots));
    share.writesSlot = m.equal(m.rem(thread, warp), m.constant(0));
  }
  return share;
}

SymExpr disc::rowBlocks(const ReductionPlan &plan, DeviceRowScheduleAttr schedule, int64_t warp) {
  SymExpr rows = plan.size(plan.parallel);
  if (schedule.getGroup())
    return SymExpr::ceilDiv(rows, SymExpr(schedule.getThreads() / schedule.getGroup()));
  SymExpr own(schedule.getVector() * schedule.getPoints() * warp);
  SymExpr warps = SymExpr::max(SymExpr::ceilDiv(plan.size(plan.reduced), own), SymExpr(1));
  return SymExpr::ceilDiv(rows,
                          SymExpr::max(SymExpr::floorDiv(SymExpr(schedule.getThreads() / warp), warps), SymExpr(1)));
}

LogicalResult disc::emitDeviceRow(DeviceKernel &k, bool inParts) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(plan))
    return failure();
  IndexMath &m = k.m;
  auto schedule = k.schedule<DeviceRowScheduleAttr>();
  int64_t width = schedule.getVector(), count = schedule.getPoints(), group = schedule.getGroup();
  DeviceReduction rows(k, *plan, width, /*inFlight=*/width > 1 ? 4 : 8);
  PointEmitter &points = rows.getPoints();
  if (count && (!plan->hasCombiners() || rows.lanes() != width))
    return k.kernel.emitError("rows of this kernel cannot be kept in registers in vectors");
  if (group > k.warp && group % k.warp)
    return k.kernel.emitError("the threads of a row must be whole warps, or a part of one");
  if (count && rows.isLight() && plan->kept * width * count <= 32 && k.kernel.getNumInputs() <= 3)
    k.function->setAttr(kResidentThreadsAttr, k.b.getI64IntegerAttr(group || k.kernel.getNumInputs() > 1 ? 768 : 1024));
  Value groups = m.constant(group ? k.threads() / group : 0), warps;
  if (!group) {
    SymExpr own(width * count * k.warp);
    warps = points.expr(SymExpr::max(SymExpr::ceilDiv(plan->size(plan->reduced), own), SymExpr(1)));
    groups = m.div(m.constant(k.threads() / k.warp), warps);
  }
  Share share = neighbours(k, group, warps);
  SymExpr number = plan->size(plan->parallel);
  Value block = inParts ? rows.divide(/*gathers=*/false) : k.block();
  Value own = m.div(k.thread(), share.threads), row = m.add(m.mul(block, groups), own);
  if (!group || number.content() % (k.threads() / group)) {
    Value last = points.expr(number);
    share.active = m.less(row, last);
    if (!group) // there may be warps that are too few for a row
      share.active = arith::AndIOp::create(k.b, k.loc, share.active, m.less(own, groups));
    row = m.min(row, m.sub(last, m.constant(1)));
  }
  SmallVector<Value> extents;
  for (const SymExpr &extent : plan->extents(plan->parallel))
    extents.push_back(points.expr(extent));
  for (Value i : m.delinearize(row, extents))
    share.parallel.push_back(Idx(i));
  if (!count || !share.active || group != k.warp)
    return rows.emit(std::move(share), count);
  // A warp without a row has nothing to do, and nobody waits for it.
  Value active = std::exchange(share.active, Value());
  LogicalResult done = success();
  emitIf(k.b, k.loc, active, {}, [&] {
    PointEmitter::Scope scope(points);
    done = rows.emit(std::move(share), count);
    return SmallVector<Value>();
  });
  return done;
}

int64_t disc::wholesOfBlock(KernelFuncOp kernel, int64_t warp) {
  int64_t threads = kernel.getScheduleAttr().getBlockThreads();
  return isa<ColumnKindAttr>(kernel.getKind()) ? std::max<int64_t>(threads / warp, 1) : 1;
}

LogicalResult disc::emitDeviceWhole(DeviceKernel &k) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(plan))
    return failure();
  IndexMath &m = k.m;
  DeviceReduction reduction(k, *plan, /*width=*/1, /*inFlight=*/1);
  PointEmitter &points = reduction.getPoints();
  SmallVector<Value> extents;
  for (const SymExpr &extent : plan->extents(plan->parallel))
    extents.push_back(points.expr(extent));
  int64_t perBlock = wholesOfBlock(k.kernel, k.warp);
  Share share = neighbours(k, k.threads() / perBlock);
  Value point = reduction.divide(/*gathers=*/true);
  if (perBlock > 1) {
    Value end = points.expr(plan->size(plan->parallel));
    point = m.add(m.mul(point, perBlock), m.div(k.thread(), share.threads));
    share.active = m.less(point, end);
    point = m.min(point, m.sub(end, m.constant(1)));
  }
  for (Value i : m.delinearize(point, extents))
    share.parallel.push_back(Idx(i));
  return reduction.emit(std::move(share), /*count=*/0);
}

LogicalResult disc::emitDeviceColumn(DeviceKernel &k, bool inParts) {
  FailureOr<ReductionPlan> plan = ReductionPlan::get(k.kernel, k.kernel.getBody().front(), k.shapes);
  if (failed(plan))
    return failure();
  IndexMath &m = k.m;
  auto schedule = k.schedule<DeviceColumnScheduleAttr>();
  const int64_t lanes = std::max<int64_t>(schedule.getVector(), 1), columns = schedule.getColumns();
  DeviceReduction reduction(k, *plan, lanes, /*inFlight=*/8, /*isAcross=*/true);
  if (lanes > 1 && (!plan->hasCombiners() || plan->parallel.empty() || plan->parallel.back() < plan->reduced.back() ||
                    !k.isMultiple(plan->domain[plan->parallel.back()], lanes)))
    return k.kernel.emitError("columns of this kernel are not whole vectors");
  PointEmitter &points = reduction.getPoints();
  SmallVector<Value> outer, inner;
  SymExpr width(1);
  for (unsigned d : plan->parallel) {
    bool isInner = d > plan->reduced.back();
    (isInner ? inner : outer).push_back(points.expr(plan->domain[d]));
    if (isInner)
      width *= plan->domain[d];
  }
  const int64_t perThreads = columns / lanes; // threads side by side
  Value perRow = points.expr(SymExpr::ceilDiv(width, SymExpr(columns))), neighbours = m.constant(perThreads);
  Value thread = k.thread(), block = inParts ? reduction.divide(/*gathers=*/false) : k.block();
  Value own = m.rem(thread, neighbours);
  Value column = m.add(m.mul(m.rem(block, perRow), columns), m.mul(own, lanes));
  Share share;
  share.group = k.threads() / perThreads;
  share.threads = m.constant(share.group);
  share.lane = m.div(thread, neighbours);
  if (width.content() % columns) {
    Value number = points.expr(width);
    share.active = m.less(column, number);
    column = m.min(column, m.sub(number, m.constant(lanes)));
  }
  SmallVector<Value> at = outer.empty() ? SmallVector<Value>() : m.delinearize(m.div(block, perRow), outer);
  if (!inner.empty())
    llvm::append_range(at, m.delinearize(column, inner));
  unsigned nextOuter = 0, nextInner = outer.size();
  for (unsigned d : plan->parallel)
    share.parallel.push_back(Idx(at[d > plan->reduced.back() ? nextInner++ : nextOuter++]));
  if (lanes > 1)
    share.parallel.back() = Idx(at.back(), /*lanes=*/true, 1, lanes);
  share.slot = thread;
  share.firstSlot = own;
  share.slotStep = perThreads;
  share.numSlots = share.group;
  return reduction.emit(std::move(share), /*count=*/0);
}
