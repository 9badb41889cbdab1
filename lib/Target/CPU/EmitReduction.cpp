//===- EmitReduction.cpp - kernels with reductions ------------------------===//
//
// Softmax over rows of 384 becomes, for each task (one row):
//
//   pass 1   scf.for 4 vectors at a time: %m0..%m3 = maximumf(%m, load)     -> combined, then their lanes
//   pass 2   scf.for ...: %e = exp(load - %m); store %e to scratch; %s0..%s3 += %e
//   pass 3   scf.for ...: store (load scratch) / %s
//
// Lanes and accumulators are combined in an order that depends on nothing but the extents: results are reproducible
// whatever the number of threads.
//
// A sum of floats never adds more than `chainLength` terms one after another. Longer loops are cut into blocks, whose
// sums start from zero and are then added, and these again: the error of a sum of n terms grows with the length of the
// chains, not with n (blocked summation; Higham, Accuracy and Stability of Numerical Algorithms, 4.2).
//
//   %s = scf.for %i = 0 to %n step 64 (%s = 0) { %p = scf.for %k = %i to min(%i + 64, %n) (%p = 0) ...; %s + %p }
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/EmitReduction.h"

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

/// Terms that are added one after another, at each level of blocks.
static constexpr int64_t chainLength = 64;

ReductionEmitter::ReductionEmitter(KernelEmission &e, ReductionPlan reductionPlan, bool lanesAreReduced)
    : points(e.builder, e.kernel, e.args(), e.lanes(), e.shapes), plan(std::move(reductionPlan)), e(e), b(e.builder),
      loc(e.kernel.getLoc()), access(e.kernel, e.shapes, plan.domain), lanesAreReduced(lanesAreReduced) {
  numSets = lanesAreReduced ? e.schedule<RowScheduleAttr>().getAccumulators() : 1;
  // Short rows are columns too, of one vector of rows.
  auto columns = dyn_cast<ColumnScheduleAttr>(e.kernel.getScheduleAttr());
  int64_t blocks = lanesAreReduced ? 1 : (columns ? columns.getBlocks() : 1) * e.lanes();
  SymExpr at(0), size = plan.size(plan.reduced) * SymExpr(blocks);
  for (const StagedValue &staged : plan.staged) {
    stagedStart.push_back(at);
    at += ReductionPlan::stagedBytes(staged, size);
  }

  readReductions(access, e.kernel, plan, e.shapes);
  runs = adjacentRuns(access, plan.reduced);
  parallelRuns = adjacentRuns(access, plan.parallel);
}

bool ReductionEmitter::useTiles(int64_t longest) {
  if (runs.size() != 1 || parallelRuns.empty())
    return false;
  unsigned lanes = parallelRuns.back().innermost, memory = runs.back().innermost;
  unsigned numInputs = e.kernel.getNumInputs();
  inputTiles.emplace(points, access, lanes, memory, 0, numInputs, longest);
  resultTiles.emplace(points, access, lanes, memory, numInputs, e.kernel.getNumResults(), longest);
  for (BlockArgument arg : e.kernel.getBody().getArguments())
    if (unsigned i = arg.getArgNumber(); inputTiles->contains(i))
      points.bind(
          arg, [this, i](ArrayRef<Idx>, Value) { return inputTiles->get(i, current.at[runs.back().innermost].base); });
  return true;
}

LogicalResult ReductionEmitter::emitRows(ValueRange at, Value count) {
  PointEmitter::Scope scope(points);
  CrossedTiles::Place place;
  place.at.resize(plan.domain.size());
  SmallVector<Idx> byDim(plan.domain.size(), points.uniform(0)), point;
  for (auto [run, i] : llvm::zip(parallelRuns, at)) {
    place.at[run.innermost] = i;
    byDim[run.innermost] = Idx(i, run.innermost == parallelRuns.back().innermost);
  }
  for (unsigned d : plan.parallel)
    point.push_back(byDim[d]);
  place.laneCount = count;
  eachTile(place, [&] { inputTiles->read(place); });
  if (failed(emitPoints({point}, count ? points.tailMask(count) : Value())))
    return failure();
  eachTile(place, [&] { resultTiles->write(place); });
  return success();
}

/// `body` for each tile of the rows at `place`: whole ones, then what is left.
void ReductionEmitter::eachTile(CrossedTiles::Place &place, function_ref<void()> body) {
  int64_t lanes = e.lanes();
  unsigned memory = runs.back().innermost;
  if (runs.back().extent.isConstant(lanes))
    return body();
  auto at = [&](Value position, Value mask) {
    PointEmitter::Scope scope(points);
    place.at[memory] = place.slot = position;
    place.memoryMask = mask;
    body();
    return SmallVector<Value>();
  };
  Value extent = points.expr(runs.back().extent);
  Value rest = b.createOrFold<arith::RemUIOp>(loc, extent, points.constantIndex(lanes));
  Value whole = b.createOrFold<arith::SubIOp>(loc, extent, rest);
  emitFor(b, loc, points.constantIndex(0), whole, points.constantIndex(lanes), {},
          [&](Value position, ValueRange) { return at(position, Value()); });
  Value some = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::ne, rest, points.constantIndex(0));
  emitIf(b, loc, some, {}, [&] { return at(whole, points.tailMask(rest)); });
}

LogicalResult ReductionEmitter::emitPoints(ArrayRef<SmallVector<Idx>> at, Value mask) {
  parallelPoints.assign(at.begin(), at.end());
  parallelMask = mask;
  for (unsigned pass = 1; pass <= plan.numPasses; ++pass)
    if (failed(emitPass(pass)))
      return failure();
  for (const PlannedResult &result : plan.results)
    for (unsigned p = 0; p < parallelPoints.size() && !result.isFull; ++p) {
      current = siteAt(p);
      ok &= storeParallel(result, p, mask);
    }
  for (const StagedValue &staged : plan.staged)
    points.unbind(staged.value);
  return success(ok);
}

ReductionEmitter::Site ReductionEmitter::siteAt(unsigned parallel) {
  Site site;
  site.parallel = parallel;
  site.set = lanesAreReduced ? 0 : parallel;
  site.at.assign(plan.domain.size(), points.uniform(0));
  for (auto [d, i] : llvm::zip(plan.parallel, parallelPoints[parallel]))
    site.at[d] = i;
  return site;
}

LogicalResult ReductionEmitter::emitPass(unsigned pass) {
  unsigned sets = lanesAreReduced ? numSets : parallelPoints.size();
  SmallVector<Value> carried;
  sums.clear();
  bool any = false;
  for (unsigned set = 0; set < sets; ++set)
    for (const PlannedReduction &reduction : plan.reductions) {
      if (reduction.pass != pass || isSerial(reduction))
        continue;
      any = true;
      for (unsigned i = 0; i < reduction.op->getNumResults(); ++i) {
        sums.push_back(i < reduction.combiners.size() && isa<arith::AddFOp>(reduction.combiners[i])
                           ? reduction.combiners[i]
                           : nullptr);
        carried.push_back(points.splat(lanesAreReduced
                                           ? points.constant(*arith::getNeutralElement(reduction.combiners[i]))
                                           : initial(reduction, i, set)));
      }
    }
  any |= llvm::any_of(plan.results, [&](const PlannedResult &r) { return r.isFull && r.pass == pass; });
  any |= llvm::any_of(plan.staged, [&](const StagedValue &s) { return s.pass == pass; });
  if (!ok)
    return failure();
  if (any) {
    SmallVector<Site> sites;
    for (unsigned p = 0; p < parallelPoints.size(); ++p)
      sites.push_back(siteAt(p));
    carried =
        walk(0, points.constantIndex(0), sites, lanesAreReduced, carried,
             [&](ArrayRef<Site> sites, Value mask, ValueRange values) { return emitSites(pass, sites, mask, values); });
  }

  unsigned perSet = carried.size() / std::max(sets, 1u), next = 0;
  for (const PlannedReduction &reduction : plan.reductions) {
    if (reduction.pass != pass)
      continue;
    if (isSerial(reduction)) {
      emitSerial(reduction);
      continue;
    }
    for (unsigned i = 0; i < reduction.op->getNumResults(); ++i, ++next) {
      SmallVector<Value> values;
      for (unsigned set = 0; set < sets; ++set)
        values.push_back(carried[set * perSet + next]);
      if (lanesAreReduced) {
        Operation *combiner = reduction.combiners[i];
        for (unsigned n = values.size(); n > 1; n = (n + 1) / 2)
          for (unsigned k = 0; k < n / 2; ++k)
            values[k] = combineValues(b, combiner, values[k], values[(n + 1) / 2 + k]);
        values = {combineValues(b, combiner, initial(reduction, i, 0), combineLanes(combiner, values[0]))};
      }
      setResult(reduction.op->getResult(i), values);
    }
  }
  for (unsigned i = 0; i < plan.staged.size(); ++i)
    if (plan.staged[i].pass == pass)
      bindStaged(i);
  return success(ok);
}

/// A reduction whose combiner is not one operation with a neutral element: point by point, in order.
void ReductionEmitter::emitSerial(const PlannedReduction &reduction) {
  SmallVector<Value> inits;
  for (unsigned i = 0; i < reduction.op->getNumResults(); ++i)
    inits.push_back(initial(reduction, i, 0));
  if (!ok)
    return;
  sums.assign(inits.size(), nullptr);
  SmallVector<Value> results = walk(0, points.constantIndex(0), siteAt(0), /*lanes=*/false, inits,
                                    [&](ArrayRef<Site> sites, Value mask, ValueRange values) {
                                      PointEmitter::Scope scope(points);
                                      current = sites.front();
                                      return reduceAt(reduction, sites.front(), mask, SmallVector<Value>(values));
                                    });
  for (auto [result, v] : llvm::zip(reduction.op->getResults(), results))
    setResult(result, {v});
}

/// Everything that a pass does at some sites. `carried`: per set, per reduction of the pass, per result.
SmallVector<Value> ReductionEmitter::emitSites(unsigned pass, ArrayRef<Site> sites, Value mask, ValueRange carried) {
  PointEmitter::Scope scope(points);
  unsigned sets = lanesAreReduced ? numSets : parallelPoints.size();
  unsigned perSet = carried.size() / std::max(sets, 1u);
  SmallVector<Value> next(carried);
  for (const Site &site : sites) {
    current = site;
    for (auto [i, staged] : llvm::enumerate(plan.staged)) {
      if (staged.pass != pass)
        continue;
      SmallVector<Idx> at = points.reshapeIdx(site.at, plan.domain, e.shapes.dims(staged.value));
      Value v = points.eval(staged.value, at, mask);
      if (!(ok &= bool(v)))
        return next;
      Value buffer = stagedBuffer(i);
      points.store(buffer, site.slot, v, mask);
    }
    // A result may lie in the storage of an operand: nothing is stored before everything is read.
    SmallVector<std::pair<const PlannedResult *, Value>> stores;
    for (const PlannedResult &result : plan.results)
      if (result.isFull && result.pass == pass)
        stores.push_back({&result, evalFull(result, site, mask)});
    for (auto [result, v] : stores)
      ok &= v && storeViewed(*result, points.reshapeIdx(site.at, plan.domain, e.shapes.dims(result->base)), v, mask);
    unsigned at = site.set * perSet;
    for (const PlannedReduction &reduction : plan.reductions) {
      if (reduction.pass != pass || isSerial(reduction))
        continue;
      MutableArrayRef<Value> accs = MutableArrayRef<Value>(next).slice(at, reduction.op->getNumResults());
      SmallVector<Value> sums = reduceAt(reduction, site, mask, accs);
      for (auto [acc, sum] : llvm::zip(accs, sums)) {
        // A lane that is off keeps what it has; parallel lanes that are off are never read.
        sum = points.splat(sum);
        acc = mask && lanesAreReduced ? arith::SelectOp::create(b, loc, mask, sum, acc).getResult() : sum;
      }
      at += accs.size();
    }
  }
  return next;
}

SmallVector<Value> ReductionEmitter::reduceAt(const PlannedReduction &reduction, const Site &site, Value mask,
                                              ArrayRef<Value> accs) {
  SmallVector<Value> sums = reducePoint(points, plan, reduction, site.at, mask, accs);
  ok &= !sums.empty();
  return sums.empty() ? SmallVector<Value>(accs) : sums;
}

SmallVector<Value> ReductionEmitter::walk(unsigned run, Value position, ArrayRef<Site> sites, bool lanes,
                                          ValueRange carried, SiteBody body) {
  if (run == runs.size()) {
    SmallVector<Site> here(sites);
    for (auto [k, site] : llvm::enumerate(here)) {
      if (lanesAreReduced) {
        site.slot = Idx(position);
        continue;
      }
      Value vector = arith::MulIOp::create(b, loc, position, points.constantIndex(sites.size()));
      vector = arith::AddIOp::create(b, loc, vector, points.constantIndex(k));
      site.slot = Idx(arith::MulIOp::create(b, loc, vector, points.constantIndex(e.lanes())), true);
    }
    return body(here, lanes ? Value() : parallelMask, carried);
  }
  Value extent = points.expr(runs[run].extent);
  Value start = arith::MulIOp::create(b, loc, position, extent);
  if (lanes && run + 1 == runs.size())
    return walkLanes(start, sites.front(), carried, body);
  // Runs inside this one that are short go on adding to the same sums; longer ones have sums of their own.
  int64_t inside = chainSteps(run + 1);
  bool isLong = inside < 0 || inside > chainLength / 4;
  int64_t chain = isLong ? chainLength : chainLength / std::max<int64_t>(inside, 1);
  return sumLoop(points.constantIndex(0), extent, 1, runs[run].extent, chain, carried, [&](Value i, ValueRange values) {
    PointEmitter::Scope scope(points);
    SmallVector<Site> inner(sites);
    for (Site &site : inner)
      site.at[runs[run].innermost] = Idx(i);
    Value next = arith::AddIOp::create(b, loc, start, i);
    auto rest = [&](ValueRange values) { return walk(run + 1, next, inner, lanes, values, body); };
    return isLong ? apart(values, rest) : rest(values);
  });
}

/// How many terms the runs from `run` on add to one sum at most; negative if that is unknown.
int64_t ReductionEmitter::chainSteps(unsigned run) {
  int64_t steps = 1;
  for (; run < runs.size(); ++run) {
    ShapeAnalysis::Range range = e.shapes.range(runs[run].extent);
    if (!range.max || *range.max > chainLength || steps > chainLength)
      return -1;
    steps *= *range.max;
  }
  return steps;
}

/// `body` with sums that start from zero, which are then added to those carried.
SmallVector<Value> ReductionEmitter::apart(ValueRange carried, function_ref<SmallVector<Value>(ValueRange)> body) {
  SmallVector<Value> from(carried);
  for (auto [value, sum] : llvm::zip_equal(from, sums))
    if (sum)
      value = points.splat(points.constant(b.getFloatAttr(getElementTypeOrSelf(value.getType()), 0.0)));
  SmallVector<Value> values = body(from);
  for (auto [value, sum, before] : llvm::zip_equal(values, sums, carried))
    if (sum)
      value = combineValues(b, sum, before, value);
  return values;
}

/// A loop whose sums are added in blocks of `chain` steps, those in blocks again.
SmallVector<Value> ReductionEmitter::sumLoop(Value from, Value to, int64_t step, const SymExpr &extent, int64_t chain,
                                             ValueRange carried, LoopBody body) {
  bool hasSums = llvm::any_of(sums, [](Operation *sum) { return sum != nullptr; });
  std::optional<int64_t> most = e.shapes.range(extent).max;
  SmallVector<int64_t> blocks; // in units of `to`, the innermost first
  // Where steps are many terms wide, one level of blocks is enough for any row.
  size_t levels = step >= chainLength ? 1 : 2;
  for (int64_t block = step * chain; hasSums && blocks.size() < levels && (!most || *most >= 2 * block);
       block *= chainLength)
    blocks.push_back(block);
  std::function<SmallVector<Value>(size_t, Value, Value, ValueRange)> level = [&](size_t depth, Value from, Value to,
                                                                                  ValueRange carried) {
    if (depth == 0)
      return emitFor(b, loc, from, to, points.constantIndex(step), carried, body);
    Value block = points.constantIndex(blocks[depth - 1]);
    return emitFor(b, loc, from, to, block, carried, [&](Value i, ValueRange values) {
      PointEmitter::Scope scope(points);
      Value end = arith::MinSIOp::create(b, loc, arith::AddIOp::create(b, loc, i, block), to);
      return apart(values, [&](ValueRange own) { return level(depth - 1, i, end, own); });
    });
  };
  return level(blocks.size(), from, to, carried);
}

/// The innermost run, a vector at a time: several at once while that many are left, then one, then a part of one.
SmallVector<Value> ReductionEmitter::walkLanes(Value start, const Site &site, ValueRange carried, SiteBody body) {
  const MergedDims &run = runs.back();
  int64_t lanes = e.lanes();
  Value extent = points.expr(run.extent);
  auto siteAt = [&](Value i, unsigned set) {
    Site s = site;
    Value at = set ? arith::AddIOp::create(b, loc, i, points.constantIndex(set * lanes)).getResult() : i;
    s.at[run.innermost] = Idx(at, true, 1, lanes);
    s.slot = Idx(arith::AddIOp::create(b, loc, start, at), true);
    s.set = set;
    return s;
  };
  auto loop = [&](Value from, Value to, unsigned sets, ValueRange values) {
    auto step = [&](Value i, ValueRange accs) {
      SmallVector<Site> sites;
      for (unsigned set = 0; set < sets; ++set)
        sites.push_back(siteAt(i, set));
      return body(sites, Value(), accs);
    };
    // What is left behind the loop over several sets are fewer vectors than sets.
    if (sets < numSets)
      return emitFor(b, loc, from, to, points.constantIndex(sets * lanes), values, step);
    return sumLoop(from, to, sets * lanes, run.extent, chainLength, values, step);
  };
  auto wholeUnits = [&](int64_t unit) -> Value {
    if (run.extent.content() % unit == 0)
      return extent;
    Value rest = arith::RemUIOp::create(b, loc, extent, points.constantIndex(unit));
    return arith::SubIOp::create(b, loc, extent, rest);
  };
  bool isConstant = run.extent.isConstant();
  int64_t constant = isConstant ? run.extent.constant() : 0;
  SmallVector<Value> values(carried);
  Value at = points.constantIndex(0);
  if (numSets > 1 && !(isConstant && constant < numSets * lanes)) {
    Value stop = wholeUnits(numSets * lanes);
    values = loop(at, stop, numSets, values);
    at = stop;
  }
  bool onlyUnits = numSets > 1 && run.extent.content() % (numSets * lanes) == 0;
  if (!onlyUnits && !(isConstant && constant < lanes)) {
    Value stop = wholeUnits(lanes);
    values = loop(at, stop, 1, values);
    at = stop;
  }
  if (run.extent.content() % lanes == 0)
    return values;
  Value left = arith::SubIOp::create(b, loc, extent, at);
  auto tail = [&] {
    PointEmitter::Scope scope(points);
    return body(siteAt(at, 0), points.tailMask(left), values);
  };
  if (isConstant)
    return tail();
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, left, points.constantIndex(0));
  return emitIf(b, loc, some, values, tail);
}

/// What the reduction's output holds before it starts.
Value ReductionEmitter::initial(const PlannedReduction &reduction, unsigned result, unsigned parallel) {
  current = siteAt(parallel);
  Value v = initialOf(points, reduction, result, parallelPoints[parallel], parallelMask);
  ok &= bool(v);
  Type elem = getElementTypeOrSelf(reduction.op->getResult(result).getType());
  return v ? v : points.constant(cast<TypedAttr>(b.getZeroAttr(elem)));
}

/// Halves the vector until one lane is left.
Value ReductionEmitter::combineLanes(Operation *combiner, Value v) {
  for (int64_t n = e.lanes() / 2; n >= 1; n /= 2) {
    auto half = [&](int64_t offset) -> Value {
      return vector::ExtractStridedSliceOp::create(b, loc, v, ArrayRef<int64_t>{offset}, ArrayRef<int64_t>{n},
                                                   ArrayRef<int64_t>{1});
    };
    v = combineValues(b, combiner, half(0), half(n));
  }
  return vector::ExtractOp::create(b, loc, v, int64_t(0));
}

void ReductionEmitter::setResult(Value reductionResult, SmallVector<Value> perPoint) {
  finals[reductionResult] = std::move(perPoint);
  points.bind(reductionResult,
              [this, reductionResult](ArrayRef<Idx>, Value) { return finals[reductionResult][current.parallel]; });
}

Value ReductionEmitter::stagedBuffer(unsigned i) {
  Value bytes = arith::IndexCastOp::create(b, loc, b.getI64Type(), points.expr(stagedStart[i]));
  return LLVM::GEPOp::create(b, loc, e.scratch().getType(), b.getI8Type(), e.scratch(), ArrayRef<LLVM::GEPArg>{bytes});
}

/// From now on the value is read back where the domain's current point asks for it, and computed anywhere else.
void ReductionEmitter::bindStaged(unsigned i) {
  Value v = plan.staged[i].value;
  points.bind(v, [this, i, v](ArrayRef<Idx> idx, Value mask) -> Value {
    SmallVector<Idx> here = points.reshapeIdx(current.at, plan.domain, e.shapes.dims(v));
    for (auto [a, c] : llvm::zip(idx, here))
      if (!(a == c))
        return points.recompute(v, idx, mask);
    Value buffer = stagedBuffer(i);
    return points.load(buffer, current.slot, getElementTypeOrSelf(v.getType()), mask);
  });
}

Value ReductionEmitter::evalFull(const PlannedResult &result, const Site &site, Value mask) {
  return points.eval(result.base, points.reshapeIdx(site.at, plan.domain, e.shapes.dims(result.base)), mask);
}

bool ReductionEmitter::storeParallel(const PlannedResult &result, unsigned parallel, Value mask) {
  SmallVector<Idx> coords =
      points.reshapeIdx(parallelPoints[parallel], plan.extents(plan.parallel), e.shapes.dims(result.base));
  Value v = points.eval(result.base, coords, mask);
  return v && storeViewed(result, coords, v, mask);
}

bool ReductionEmitter::storeViewed(const PlannedResult &result, SmallVector<Idx> coords, Value v, Value mask) {
  coords = followViews(points, result, coords);
  if (unsigned buffer = e.kernel.getNumInputs() + result.number; resultTiles && resultTiles->contains(buffer)) {
    resultTiles->put(buffer, current.at[runs.back().innermost].base, v);
    return true;
  }
  return succeeded(points.store(result.number, coords, v, mask));
}
