//===- ReductionPoints.cpp - reductions, point by point -------------------===//

#include "lib/Target/Common/ReductionPoints.h"

#include "dialects/Tensor/TensorDialect.h"

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

void disc::readReductions(KernelAccess &access, KernelFuncOp kernel, const ReductionPlan &plan, ShapeAnalysis &shapes) {
  SmallVector<LinearCoord> identity = access.identity();
  for (const PlannedReduction &reduction : plan.reductions)
    for (Value v : linalg::GenericOp(reduction.op)->getResults())
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
      access.read(result.base, access.reshape(parallel, plan.extents(plan.parallel), shapes.dims(result.base)));
      continue;
    }
    SmallVector<LinearCoord> at = access.reshape(identity, plan.domain, shapes.dims(result.base));
    access.read(result.base, at);
    for (Operation *view : result.views) {
      if (auto permute = dyn_cast<PermuteOp>(view)) {
        SmallVector<LinearCoord> permuted;
        for (int64_t p : permute.getPermutation())
          permuted.push_back(at[p]);
        at = permuted;
      } else {
        at = access.reshape(at, shapes.dims(view->getOperand(0)), shapes.dims(view->getResult(0)));
      }
    }
    access.write(result.number, at);
  }
}

SmallVector<MergedDims> disc::adjacentRuns(KernelAccess &access, ArrayRef<unsigned> dims) {
  SmallVector<MergedDims> runs;
  for (unsigned i = 0; i < dims.size();) {
    unsigned j = i + 1;
    while (j < dims.size() && dims[j] == dims[j - 1] + 1)
      ++j;
    llvm::append_range(runs, access.mergedRuns(dims[i], dims[j - 1] + 1));
    i = j;
  }
  return runs;
}

SmallVector<Idx> disc::itersAt(const ReductionPlan &plan, const PlannedReduction &reduction, ArrayRef<Idx> at) {
  SmallVector<Idx> iters(linalg::GenericOp(reduction.op).getNumLoops());
  for (auto [iter, d] : llvm::zip(reduction.parallel, plan.parallel))
    iters[iter] = at[d];
  for (auto [iter, d] : llvm::zip(reduction.reduced, plan.reduced))
    iters[iter] = at[d];
  return iters;
}

SmallVector<Value> disc::reducePoint(PointEmitter &points, const ReductionPlan &plan, const PlannedReduction &reduction,
                                     ArrayRef<Idx> at, Value mask, ArrayRef<Value> accumulators) {
  linalg::GenericOp op = reduction.op;
  IRMapping map;
  if (failed(points.emitBody(op, itersAt(plan, reduction, at), mask, accumulators, map)))
    return {};
  return llvm::map_to_vector(op.getBody()->getTerminator()->getOperands(), [&](Value v) { return map.lookup(v); });
}

Value disc::initialOf(PointEmitter &points, const PlannedReduction &reduction, unsigned result, ArrayRef<Idx> parallel,
                      Value mask) {
  linalg::GenericOp op = reduction.op;
  SmallVector<Idx> iters(op.getNumLoops(), points.uniform(int64_t(0)));
  for (auto [iter, i] : llvm::zip(reduction.parallel, parallel))
    iters[iter] = i;
  OpOperand *init = op.getDpsInitOperand(result);
  SmallVector<Idx> at;
  for (AffineExpr expr : op.getMatchingIndexingMap(init).getResults())
    at.push_back(points.affine(expr, iters));
  return points.eval(init->get(), at, mask);
}

Value disc::combineValues(OpBuilder &b, Operation *combiner, Value x, Value y) {
  Operation *clone = combiner->clone();
  clone->setOperands({x, y});
  clone->getResult(0).setType(x.getType());
  return b.insert(clone)->getResult(0);
}

SmallVector<Idx> disc::followViews(PointEmitter &points, const PlannedResult &result, ArrayRef<Idx> at) {
  SmallVector<Idx> coords(at);
  for (Operation *view : result.views) {
    if (auto permute = dyn_cast<PermuteOp>(view)) {
      SmallVector<Idx> permuted;
      for (int64_t p : permute.getPermutation())
        permuted.push_back(coords[p]);
      coords = permuted;
    } else {
      ShapeAnalysis &shapes = points.shapes();
      coords = points.reshapeIdx(coords, shapes.dims(view->getOperand(0)), shapes.dims(view->getResult(0)));
    }
  }
  return coords;
}
