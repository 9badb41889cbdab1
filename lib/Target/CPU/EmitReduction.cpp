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
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/EmitReduction.h"

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

/// The coordinates that a reduction's output has at a point of its iteration space.
static SmallVector<LinearCoord> parallelOf(ArrayRef<LinearCoord> iters, AffineMap map) {
  SmallVector<LinearCoord> at;
  for (AffineExpr expr : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    at.push_back(dim ? iters[dim.getPosition()] : LinearCoord());
    if (!dim) {
      at.back().coefficients.resize(iters.front().coefficients.size());
      at.back().opaque.resize(iters.front().opaque.size());
    }
  }
  return at;
}

ReductionEmitter::ReductionEmitter(KernelEmission &e, ReductionPlan reductionPlan, bool lanesAreReduced)
    : points(e.builder, e.kernel, e.args(), e.lanes(), e.shapes), plan(std::move(reductionPlan)), e(e), b(e.builder),
      loc(e.kernel.getLoc()), access(e.kernel, e.shapes, plan.domain), lanesAreReduced(lanesAreReduced) {
  numSets = lanesAreReduced ? std::max<int64_t>(e.schedule("accumulators", 1), 1) : 1;
  int64_t blocks = lanesAreReduced ? 1 : e.schedule("blocks", 1) * e.lanes();
  SymExpr at(0), size = plan.size(plan.reduced) * SymExpr(blocks);
  for (const StagedValue &staged : plan.staged) {
    stagedStart.push_back(at);
    at += ReductionPlan::stagedBytes(staged, size);
  }

  // Reduced dimensions may be merged if they are adjacent in the domain, up to dimensions of extent 1.
  SmallVector<LinearCoord> identity = access.identity();
  for (const PlannedReduction &reduction : plan.reductions)
    for (Value v : reduction.op->getResults())
      access.stopAt(v);
  for (PlannedReduction reduction : plan.reductions) {
    SmallVector<LinearCoord> iters(reduction.op.getNumLoops(), access.zero());
    for (auto [iter, d] : llvm::zip(reduction.parallel, plan.parallel))
      iters[iter] = identity[d];
    for (auto [iter, d] : llvm::zip(reduction.reduced, plan.reduced))
      iters[iter] = identity[d];
    access.readInputs(reduction.op, iters);
    for (OpOperand &init : reduction.op.getDpsInitsMutable())
      access.read(init.get(), parallelOf(iters, reduction.op.getMatchingIndexingMap(&init)));
  }
  SmallVector<LinearCoord> parallel;
  for (unsigned d : plan.parallel)
    parallel.push_back(identity[d]);
  for (const PlannedResult &result : plan.results) {
    if (!result.isFull) {
      access.read(result.base, access.reshape(parallel, plan.extents(plan.parallel), e.shapes.dims(result.base)));
      continue;
    }
    SmallVector<LinearCoord> at = access.reshape(identity, plan.domain, e.shapes.dims(result.base));
    access.read(result.base, at);
    for (Operation *view : result.views) {
      if (auto permute = dyn_cast<PermuteOp>(view)) {
        SmallVector<LinearCoord> permuted;
        for (int64_t p : permute.getPermutation())
          permuted.push_back(at[p]);
        at = permuted;
      } else {
        at = access.reshape(at, e.shapes.dims(view->getOperand(0)), e.shapes.dims(view->getResult(0)));
      }
    }
    access.write(result.number, at);
  }
  auto merge = [&](ArrayRef<unsigned> dims, SmallVector<MergedDims> &into) {
    for (unsigned i = 0; i < dims.size();) {
      unsigned j = i + 1;
      while (j < dims.size() && dims[j] == dims[j - 1] + 1)
        ++j;
      llvm::append_range(into, access.mergedRuns(dims[i], dims[j - 1] + 1));
      i = j;
    }
  };
  merge(plan.reduced, runs);
  merge(plan.parallel, parallelRuns);
}

bool ReductionEmitter::useTiles() {
  if (runs.size() != 1 || parallelRuns.empty())
    return false;
  unsigned lanes = parallelRuns.back().innermost, memory = runs.back().innermost;
  unsigned numInputs = e.kernel.getNumInputs();
  inputTiles.emplace(points, access, lanes, memory, 0, numInputs);
  resultTiles.emplace(points, access, lanes, memory, numInputs, e.kernel.getNumResults());
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
  if (!runs.back().extent.isConstant(e.lanes()))
    place.memoryMask = points.tailMask(points.expr(runs.back().extent));
  inputTiles->read(place);
  if (failed(emitPoints({point}, count ? points.tailMask(count) : Value())))
    return failure();
  resultTiles->write(place);
  return success();
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
  bool any = false;
  for (unsigned set = 0; set < sets; ++set)
    for (const PlannedReduction &reduction : plan.reductions) {
      if (reduction.pass != pass || isSerial(reduction))
        continue;
      any = true;
      for (unsigned i = 0; i < reduction.op->getNumResults(); ++i)
        carried.push_back(points.splat(lanesAreReduced
                                           ? points.constant(*arith::getNeutralElement(reduction.combiners[i]))
                                           : initial(reduction, i, set)));
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
            values[k] = combine(combiner, values[k], values[(n + 1) / 2 + k]);
        values = {combine(combiner, initial(reduction, i, 0), combineLanes(combiner, values[0]))};
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

/// The accumulators after one more point. The body's own combiner adds to them, whatever it is.
SmallVector<Value> ReductionEmitter::reduceAt(const PlannedReduction &reduction, const Site &site, Value mask,
                                              ArrayRef<Value> accs) {
  linalg::GenericOp op = reduction.op;
  SmallVector<Idx> iters(op.getNumLoops());
  for (auto [iter, d] : llvm::zip(reduction.parallel, plan.parallel))
    iters[iter] = site.at[d];
  for (auto [iter, d] : llvm::zip(reduction.reduced, plan.reduced))
    iters[iter] = site.at[d];
  IRMapping map;
  SmallVector<Value> sums(accs);
  if (!(ok &= succeeded(points.emitBody(op, iters, mask, accs, map))))
    return sums;
  for (auto [sum, v] : llvm::zip(sums, op.getBody()->getTerminator()->getOperands()))
    sum = map.lookup(v);
  return sums;
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
  return emitFor(b, loc, points.constantIndex(0), extent, points.constantIndex(1), carried,
                 [&](Value i, ValueRange values) {
                   PointEmitter::Scope scope(points);
                   SmallVector<Site> inner(sites);
                   for (Site &site : inner)
                     site.at[runs[run].innermost] = Idx(i);
                   return walk(run + 1, arith::AddIOp::create(b, loc, start, i), inner, lanes, values, body);
                 });
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
    return emitFor(b, loc, from, to, points.constantIndex(sets * lanes), values, [&](Value i, ValueRange accs) {
      SmallVector<Site> sites;
      for (unsigned set = 0; set < sets; ++set)
        sites.push_back(siteAt(i, set));
      return body(sites, Value(), accs);
    });
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
  linalg::GenericOp op = reduction.op;
  current = siteAt(parallel);
  SmallVector<Idx> iters(op.getNumLoops(), points.uniform(0));
  for (auto [iter, i] : llvm::zip(reduction.parallel, parallelPoints[parallel]))
    iters[iter] = i;
  OpOperand *init = op.getDpsInitOperand(result);
  SmallVector<Idx> at;
  for (AffineExpr expr : op.getMatchingIndexingMap(init).getResults())
    at.push_back(points.affine(expr, iters));
  Value v = points.eval(init->get(), at, parallelMask);
  ok &= bool(v);
  return v ? v : points.constant(cast<TypedAttr>(b.getZeroAttr(getElementTypeOrSelf(init->get().getType()))));
}

Value ReductionEmitter::combine(Operation *combiner, Value x, Value y) {
  Operation *clone = combiner->clone();
  clone->setOperands({x, y});
  clone->getResult(0).setType(x.getType());
  return b.insert(clone)->getResult(0);
}

/// Halves the vector until one lane is left.
Value ReductionEmitter::combineLanes(Operation *combiner, Value v) {
  for (int64_t n = e.lanes() / 2; n >= 1; n /= 2) {
    auto half = [&](int64_t offset) -> Value {
      return vector::ExtractStridedSliceOp::create(b, loc, v, ArrayRef<int64_t>{offset}, ArrayRef<int64_t>{n},
                                                   ArrayRef<int64_t>{1});
    };
    v = combine(combiner, half(0), half(n));
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
      if (a.base != c.base || a.each != c.each || a.lanes != c.lanes || (a.lanes && a.step != c.step))
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

/// Follows the views from what is computed to what is stored.
bool ReductionEmitter::storeViewed(const PlannedResult &result, SmallVector<Idx> coords, Value v, Value mask) {
  for (Operation *view : result.views) {
    if (auto permute = dyn_cast<PermuteOp>(view)) {
      SmallVector<Idx> permuted;
      for (int64_t p : permute.getPermutation())
        permuted.push_back(coords[p]);
      coords = permuted;
    } else {
      coords = points.reshapeIdx(coords, e.shapes.dims(view->getOperand(0)), e.shapes.dims(view->getResult(0)));
    }
  }
  if (unsigned buffer = e.kernel.getNumInputs() + result.number; resultTiles && resultTiles->contains(buffer)) {
    resultTiles->put(buffer, current.at[runs.back().innermost].base, v);
    return true;
  }
  return succeeded(points.store(result.number, coords, v, mask));
}
