//===- ReductionPlan.cpp - how a kernel with reductions is staged ---------===//
//
// For softmax over a row:
//
//   %m = max(%x)          pass 1
//   %e = exp(%x - %m)     computed in pass 2, kept for pass 3: an exponential costs more than a store and a load
//   %s = sum(%e)          pass 2
//   %r = %e / %s          pass 3
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Support/ReductionPlan.h"

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::disc;

double mlir::disc::scalarWork(Region &body) {
  double work = 0;
  body.walk([&](Operation *op) {
    if (isa<math::AbsFOp, math::AbsIOp, math::FmaOp, math::FloorOp, math::CeilOp, math::CopySignOp>(op))
      work += 1;
    else if (isa<math::SqrtOp, math::RsqrtOp, arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::RemSIOp>(op))
      work += 6;
    else if (isa_and_nonnull<math::MathDialect>(op->getDialect()))
      work += 16;
    else if (isa<tensor::ExtractOp>(op))
      work += 3;
    else if (!op->hasTrait<OpTrait::IsTerminator>() && !op->hasTrait<OpTrait::ConstantLike>())
      work += 1;
  });
  return work;
}

SmallVector<SymExpr> ReductionPlan::extents(ArrayRef<unsigned> dims) const {
  SmallVector<SymExpr> result;
  for (unsigned d : dims)
    result.push_back(domain[d]);
  return result;
}

bool ReductionPlan::isSplittable() const {
  return numPasses == 1 && llvm::none_of(results, [](const PlannedResult &r) { return r.isFull; }) && hasCombiners();
}

bool ReductionPlan::hasCombiners() const {
  return llvm::none_of(reductions, [](const PlannedReduction &r) { return r.combiners.empty(); });
}

static int64_t elementBytes(Value v) {
  Type elem = getElementTypeOrSelf(v.getType());
  return elem.isIndex() ? 8 : (elem.getIntOrFloatBitWidth() + 7) / 8;
}

SymExpr ReductionPlan::stagedBytes(const StagedValue &staged, const SymExpr &points) {
  int64_t bytes = elementBytes(staged.value);
  return SymExpr::ceilDiv(points * SymExpr(bytes), SymExpr(64)) * SymExpr(64);
}

namespace {
/// The tensors whose elements a value's elements are computed from.
SmallVector<Value> tensorOperands(Value v) {
  SmallVector<Value> operands;
  Operation *op = v.getDefiningOp();
  if (!op)
    return operands;
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic) {
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()))
        operands.push_back(operand);
    return operands;
  }
  for (OpOperand &operand : op->getOpOperands())
    if (isa<RankedTensorType>(operand.get().getType()) && !generic.getMatchingBlockArgument(&operand).use_empty())
      operands.push_back(operand.get());
  generic.getBody()->walk([&](tensor::ExtractOp extract) { operands.push_back(extract.getTensor()); });
  return operands;
}

class Planner {
public:
  Planner(Operation *kernel, Block &body, ShapeAnalysis &shapes) : kernel(kernel), body(body), shapes(shapes) {}

  LogicalResult run();
  ReductionPlan plan;

private:
  LogicalResult addReduction(linalg::GenericOp op);
  LogicalResult addResult(unsigned number, Value v);
  using Passes = DenseMap<Value, llvm::SmallBitVector>;
  Passes passesThatNeed(DenseSet<Value> &kept);
  void stage();
  void measureKept();
  unsigned depth(Value v);
  bool sameExtents(ArrayRef<SymExpr> a, ArrayRef<SymExpr> b) {
    return a.size() == b.size() &&
           llvm::all_of(llvm::zip(a, b), [&](auto p) { return shapes.equal(std::get<0>(p), std::get<1>(p)); });
  }
  bool isReduction(Value v) {
    auto op = v.getDefiningOp<linalg::GenericOp>();
    return op && op.getNumReductionLoops();
  }

  Operation *kernel;
  Block &body;
  ShapeAnalysis &shapes;
  DenseMap<Value, unsigned> depths;
};
} // namespace

/// How many reductions must be done, one after the other, before `v` can be computed.
unsigned Planner::depth(Value v) {
  if (auto it = depths.find(v); it != depths.end())
    return it->second;
  unsigned result = 0;
  for (Value operand : tensorOperands(v))
    result = std::max(result, depth(operand));
  return depths[v] = result + isReduction(v);
}

LogicalResult Planner::addReduction(linalg::GenericOp op) {
  PlannedReduction reduction{op, {}, {}, depth(op.getResult(0)), {}};
  for (auto [d, type] : llvm::enumerate(op.getIteratorTypesArray()))
    (type == utils::IteratorType::reduction ? reduction.reduced : reduction.parallel).push_back(d);

  // Extents of the iterators, from the operands that have them as a dimension.
  SmallVector<SymExpr> extents(op.getNumLoops(), SymExpr(1));
  llvm::SmallBitVector known(op.getNumLoops());
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()))
      continue;
    SmallVector<SymExpr> dims = shapes.dims(operand.get());
    for (auto [k, e] : llvm::enumerate(op.getMatchingIndexingMap(&operand).getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(e); dim && !known.test(dim.getPosition())) {
        extents[dim.getPosition()] = dims[k];
        known.set(dim.getPosition());
      }
  }
  // Where dimensions of extent 1 are does not matter: a product with a single column may have its result permuted.
  auto isUnit = [&](unsigned d) { return extents[d].isConstant(1); };
  SmallVector<unsigned> order = reduction.parallel;
  llvm::erase_if(order, isUnit);
  for (OpOperand &init : op.getDpsInitsMutable()) {
    SmallVector<unsigned> dims;
    for (AffineExpr e : op.getMatchingIndexingMap(&init).getResults())
      if (auto dim = dyn_cast<AffineDimExpr>(e); dim && !isUnit(dim.getPosition()))
        dims.push_back(dim.getPosition());
    if (dims != order)
      return op.emitError("the result of a reduction must have the parallel dimensions in their order");
  }
  if (plan.reductions.empty()) {
    plan.domain = extents;
    plan.parallel = reduction.parallel;
    plan.reduced = reduction.reduced;
  } else {
    auto pick = [&](ArrayRef<unsigned> dims) {
      SmallVector<SymExpr> picked;
      for (unsigned d : dims)
        picked.push_back(extents[d]);
      return picked;
    };
    if (!sameExtents(pick(reduction.parallel), plan.extents(plan.parallel)) ||
        !sameExtents(pick(reduction.reduced), plan.extents(plan.reduced))) {
      InFlightDiagnostic error = kernel->emitError("reductions of one kernel have different domains");
      error.attachNote(op.getLoc()) << "this one differs from the first";
      return error;
    }
  }
  SmallVector<BlockArgument> outs(op.getRegionOutputArgs());
  for (unsigned i = 0; i < outs.size(); ++i) {
    SmallVector<Operation *, 4> combiners;
    if (matchReduction(outs, i, combiners) && combiners.size() == 1 && arith::getNeutralElement(combiners.front()))
      reduction.combiners.push_back(combiners.front());
  }
  if (reduction.combiners.size() != outs.size())
    reduction.combiners.clear();
  plan.work += scalarWork(op.getRegion());
  plan.reductions.push_back(std::move(reduction));
  return success();
}

LogicalResult Planner::addResult(unsigned number, Value v) {
  PlannedResult result{number, v, {}, false, 0};
  while (Operation *op = result.base.getDefiningOp()) {
    if (!isa<PermuteOp, ReshapeOp>(op))
      break;
    result.views.insert(result.views.begin(), op);
    result.base = op->getOperand(0);
  }
  SmallVector<SymExpr> dims = shapes.dims(result.base);
  SymExpr size = SymExpr::product(dims);
  bool sizeIsFull = shapes.equal(size, SymExpr::product(plan.domain));
  bool sizeIsParallel = shapes.equal(size, plan.size(plan.parallel));
  if (!sizeIsFull && !sizeIsParallel)
    return kernel->emitError() << "result " << number << " covers neither the domain nor its parallel part";
  result.isFull = sizeIsFull && !isReduction(result.base) && (!sizeIsParallel || sameExtents(dims, plan.domain));
  result.pass = depth(result.base) + 1;
  plan.results.push_back(std::move(result));
  return success();
}

/// Which passes ask for each value, given that those in `kept` are asked for by their first pass alone.
Planner::Passes Planner::passesThatNeed(DenseSet<Value> &kept) {
  Passes needed;
  auto need = [&](Value v, unsigned pass) {
    llvm::SmallBitVector &passes = needed[v];
    passes.resize(plan.numPasses + 1);
    passes.set(pass);
  };
  for (const PlannedReduction &reduction : plan.reductions)
    for (Value operand : tensorOperands(reduction.op->getResult(0)))
      need(operand, reduction.pass);
  for (const PlannedResult &result : plan.results)
    if (result.isFull)
      need(result.base, result.pass);
  // Consumers before producers, so that all who need a value are known when it is reached.
  for (Operation &op : llvm::reverse(body.without_terminator()))
    for (Value v : op.getResults()) {
      auto it = needed.find(v);
      if (it == needed.end() || isReduction(v))
        continue;
      llvm::SmallBitVector passes = it->second;
      if (kept.contains(v) && passes.count() == 1)
        kept.erase(v); // its consumers are kept instead
      if (kept.contains(v))
        passes.reset(passes.find_first() + 1, passes.size());
      for (Value operand : tensorOperands(v))
        for (unsigned pass : passes.set_bits())
          need(operand, pass);
    }
  return needed;
}

/// Decides which values are kept: those of the domain that several passes need and that are dearer to compute again
/// than to store and load.
void Planner::stage() {
  constexpr double worthKeeping = 6;
  DenseSet<Value> kept;
  auto isFull = [&](Value v) {
    return v.getDefiningOp<linalg::GenericOp>() && !isReduction(v) && sameExtents(shapes.dims(v), plan.domain);
  };
  std::function<double(Value)> recompute = [&](Value v) -> double {
    // What is the same all along the reduced range is computed once for it.
    if (isReduction(v) || shapes.equal(SymExpr::product(shapes.dims(v)), plan.size(plan.parallel)))
      return 0;
    if (isa<BlockArgument>(v) || kept.contains(v))
      return sameExtents(shapes.dims(v), plan.domain) ? 1 : 0.5;
    double work = 0;
    if (auto generic = v.getDefiningOp<linalg::GenericOp>())
      work = scalarWork(generic.getRegion());
    for (Value operand : tensorOperands(v))
      work += recompute(operand);
    return work;
  };
  Passes needed = passesThatNeed(kept);
  for (Operation &op : body.without_terminator())
    for (Value v : op.getResults())
      if (isFull(v) && needed.count(v) && needed[v].count() > 1 && recompute(v) >= worthKeeping)
        kept.insert(v);
  needed = passesThatNeed(kept);

  for (Operation &op : body.without_terminator())
    for (Value v : op.getResults()) {
      auto it = needed.find(v);
      if (it == needed.end() || !isFull(v))
        continue;
      unsigned first = it->second.find_first();
      if (kept.contains(v))
        plan.staged.push_back({v, first});
      double times = kept.contains(v) ? 1 : it->second.count();
      plan.work += times * scalarWork(cast<linalg::GenericOp>(op).getRegion()) + (kept.contains(v) ? 2 : 0);
    }
  for (BlockArgument arg : body.getArguments())
    if (auto it = needed.find(arg); it != needed.end() && sameExtents(shapes.dims(arg), plan.domain))
      plan.work += it->second.count();
}

/// Sums up, for each pass, what is used after it and known by then. Views are their sources; what is the same all along
/// the reduced range is one value for all points.
void Planner::measureKept() {
  struct Uses {
    unsigned first, last;
  };
  llvm::MapVector<Value, Uses> uses;
  std::function<void(Value, unsigned)> use = [&](Value v, unsigned pass) {
    if (isReduction(v) || shapes.equal(SymExpr::product(shapes.dims(v)), plan.size(plan.parallel)))
      return;
    auto generic = v.getDefiningOp<linalg::GenericOp>();
    if (generic || isa<BlockArgument>(v)) {
      auto [it, isFirst] = uses.insert({v, {pass, pass}});
      it->second.last = pass;
      if (!isFirst)
        return;
    }
    for (Value operand : tensorOperands(v))
      use(operand, pass);
  };
  for (unsigned pass = 1; pass <= plan.numPasses; ++pass) {
    for (const PlannedReduction &reduction : plan.reductions)
      if (reduction.pass == pass)
        for (Value operand : tensorOperands(PlannedReduction(reduction).op->getResult(0)))
          use(operand, pass);
    for (const PlannedResult &result : plan.results)
      if (result.isFull && result.pass == pass)
        use(result.base, pass);
  }
  for (unsigned pass = 1; pass < plan.numPasses; ++pass) {
    int64_t registers = 0;
    for (auto [v, used] : uses)
      if (used.first <= pass && pass < used.last)
        registers += llvm::divideCeil(elementBytes(v), 4);
    plan.kept = std::max(plan.kept, registers);
  }
}

LogicalResult Planner::run() {
  SmallVector<linalg::GenericOp> reductions;
  for (auto op : body.getOps<linalg::GenericOp>())
    if (op.getNumReductionLoops())
      reductions.push_back(op);
  if (reductions.empty())
    return kernel->emitError("a kernel of this kind needs a reduction");
  for (linalg::GenericOp op : reductions)
    if (failed(addReduction(op)))
      return failure();
  for (auto [i, v] : llvm::enumerate(body.getTerminator()->getOperands()))
    if (failed(addResult(i, v)))
      return failure();
  for (const PlannedReduction &reduction : plan.reductions)
    plan.numPasses = std::max(plan.numPasses, reduction.pass);
  for (const PlannedResult &result : plan.results)
    if (result.isFull)
      plan.numPasses = std::max(plan.numPasses, result.pass);
  stage();
  measureKept();
  return success();
}

FailureOr<ReductionPlan> ReductionPlan::get(Operation *kernel, Block &body, ShapeAnalysis &shapes) {
  Planner planner(kernel, body, shapes);
  if (failed(planner.run()))
    return failure();
  return std::move(planner.plan);
}
