//===- ContractionInfo.cpp - the parts of a contraction kernel ------------===//
//
// Test: test/lit/Schedule/contraction.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/ContractionInfo.h"

#include "dialects/Plan/Schedule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::disc;

/// The block argument that `v` is, perhaps widened: the micro-kernels widen as they load.
static BlockArgument widenedArgument(Value v) {
  if (Operation *def = v.getDefiningOp(); def && isa<arith::ExtFOp, arith::ExtSIOp, arith::ExtUIOp>(def))
    v = def->getOperand(0);
  return dyn_cast<BlockArgument>(v);
}

static bool isWidenedUnsigned(BlockArgument arg) { return llvm::any_of(arg.getUsers(), llvm::IsaPred<arith::ExtUIOp>); }

/// The inputs multiplied, as block arguments of the body; nothing if it is not a sum of products.
static std::optional<std::pair<BlockArgument, BlockArgument>> factors(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1 || op.getNumReductionLoops() == 0)
    return std::nullopt;
  Block *body = op.getBody();
  BlockArgument sum = body->getArgument(2);
  Operation *add = body->getTerminator()->getOperand(0).getDefiningOp();
  if (!add || !isa<arith::AddFOp, arith::AddIOp>(add) || add->getNumResults() != 1)
    return std::nullopt;
  Value product = add->getOperand(0) == sum ? add->getOperand(1) : add->getOperand(0);
  if (add->getOperand(0) != sum && add->getOperand(1) != sum)
    return std::nullopt;
  Operation *mul = product.getDefiningOp();
  if (!mul || !isa<arith::MulFOp, arith::MulIOp>(mul))
    return std::nullopt;
  auto x = widenedArgument(mul->getOperand(0)), y = widenedArgument(mul->getOperand(1));
  if (!x || !y || x == sum || y == sum || x == y)
    return std::nullopt;
  return std::make_pair(x, y);
}

bool disc::isSumOfProducts(linalg::GenericOp generic) { return factors(generic).has_value(); }

bool ContractionInfo::rowsContiguous() const {
  linalg::GenericOp generic = op; // its accessors are not const
  AffineMap map = generic.getMatchingIndexingMap(generic.getDpsInputOperand(lhs));
  if (rows.size() != 1 || map.getNumResults() == 0)
    return false;
  auto last = dyn_cast<AffineDimExpr>(map.getResults().back());
  return last && last.getPosition() == rows.front();
}

Type ContractionInfo::lhsRead() const {
  if (together() == 2 && accumulator.isInteger())
    return IntegerType::get(accumulator.getContext(), 16);
  // Each element is read for each panel: widened there, it would take as long as its products do.
  return together() == 1 && isa<FloatType>(accumulator) && !asHalves() ? accumulator : lhsElement;
}

Type ContractionInfo::rhsRead() const { return panels || !isa<FloatType>(accumulator) ? rhsElement : accumulator; }

bool ContractionInfo::widensPanels() const {
  UnpackOp packed = panels;
  return packed && !packed.getScales() && together() == 1 && isa<FloatType>(accumulator) && rhsElement != accumulator;
}

SymExpr ContractionInfo::size(ArrayRef<unsigned> dims) const {
  SymExpr product(1);
  for (unsigned d : dims)
    product *= sizes[d];
  return product;
}

static llvm::SmallBitVector dimsOf(AffineMap map) {
  llvm::SmallBitVector used(map.getNumDims());
  for (AffineExpr e : map.getResults())
    e.walk([&](AffineExpr part) {
      if (auto d = dyn_cast<AffineDimExpr>(part))
        used.set(d.getPosition());
    });
  return used;
}

/// The iteration dimensions behind the given dimensions of an operand, leaving out those the map fixes at a constant.
static LogicalResult mapDims(AffineMap map, ArrayRef<int64_t> operandDims, SmallVectorImpl<unsigned> &out) {
  for (int64_t r : operandDims) {
    AffineExpr e = map.getResult(r);
    if (isa<AffineConstantExpr>(e))
      continue;
    auto d = dyn_cast<AffineDimExpr>(e);
    if (!d)
      return failure();
    out.push_back(d.getPosition());
  }
  return success();
}

static bool sameSet(ArrayRef<unsigned> x, ArrayRef<unsigned> y) {
  SmallVector<unsigned> a(x), b(y);
  llvm::sort(a), llvm::sort(b);
  return a == b;
}

FailureOr<ContractionInfo> ContractionInfo::get(linalg::GenericOp op, ShapeAnalysis &shapes) {
  ContractionInfo info;
  info.op = op;
  if (!isSumOfProducts(info.op))
    return info.op.emitError("not a sum of products of two tensors");

  auto isPacked = [&](unsigned i) { return info.op.getDpsInputOperand(i)->get().getDefiningOp<UnpackOp>(); };
  if (isPacked(0) && !isPacked(1))
    std::swap(info.lhs, info.rhs);
  info.panels = isPacked(info.rhs);
  Value lhs = info.op.getDpsInputOperand(info.lhs)->get(), rhs = info.op.getDpsInputOperand(info.rhs)->get();
  info.lhsElement = getElementTypeOrSelf(lhs.getType());
  info.rhsElement = getElementTypeOrSelf(rhs.getType());
  info.accumulator = getElementTypeOrSelf(info.op.getResult(0).getType());
  info.lhsUnsigned = isWidenedUnsigned(info.op.getBody()->getArgument(info.lhs));
  info.rhsUnsigned = isWidenedUnsigned(info.op.getBody()->getArgument(info.rhs));
  if (info.panels) {
    info.rhsElement = getElementTypeOrSelf(info.panels.getSource().getType());
    info.rhsUnsigned |= info.panels.getUnsignedCodes();
  }

  unsigned loops = info.op.getNumLoops();
  info.sizes.assign(loops, SymExpr(1));
  llvm::SmallBitVector sized(loops);
  for (OpOperand &operand : info.op->getOpOperands()) {
    AffineMap map = info.op.getMatchingIndexingMap(&operand);
    SmallVector<SymExpr> dims = shapes.dims(operand.get());
    for (auto [r, e] : llvm::enumerate(map.getResults()))
      if (auto d = dyn_cast<AffineDimExpr>(e); d && !sized.test(d.getPosition())) {
        sized.set(d.getPosition());
        info.sizes[d.getPosition()] = dims[r];
      }
  }
  if (!sized.all())
    return info.op.emitError("the extent of an iteration dimension is not an extent of any operand");

  llvm::SmallBitVector inLhs = dimsOf(info.lhsMap()), inRhs = dimsOf(info.rhsMap()),
                       inResult = dimsOf(info.resultMap());
  for (unsigned d = 0; d < loops; ++d) {
    if (!inResult.test(d))
      info.depth.push_back(d);
    else if (inLhs.test(d) && inRhs.test(d))
      info.batch.push_back(d);
    else
      // A dimension of the result alone (broadcast, or of extent 1) repeats rows.
      (inRhs.test(d) ? info.columns : info.rows).push_back(d);
  }

  if (info.panels) {
    SmallVector<unsigned> batch, columns, depth;
    AffineMap map = info.rhsMap();
    if (failed(mapDims(map, info.panels.getBatchDims(), batch)) ||
        failed(mapDims(map, info.panels.getNDims(), columns)) || failed(mapDims(map, info.panels.getKDims(), depth)) ||
        !sameSet(batch, info.batch) || !sameSet(columns, info.columns) || !sameSet(depth, info.depth))
      return info.op.emitError("the panels of the right operand do not fit the contraction's dimensions");
    info.batch = batch, info.columns = columns, info.depth = depth;
  }
  return info;
}

FailureOr<std::vector<ContractionPart>> disc::contractionParts(Operation *kernel, Block &body, ShapeAnalysis &shapes) {
  // Results that depend on the same computation belong together; what a product multiplies is not its part's own.
  auto yielded = body.getTerminator()->getOperands();
  llvm::EquivalenceClasses<unsigned> classes;
  llvm::MapVector<Operation *, unsigned> seenBy;
  for (unsigned i = 0; i < yielded.size(); ++i) {
    if (isMemory(yielded[i]))
      continue;
    classes.insert(i);
    SmallVector<Value> worklist{yielded[i]};
    while (!worklist.empty()) {
      Operation *def = worklist.pop_back_val().getDefiningOp();
      if (!def)
        continue;
      if (auto generic = dyn_cast<linalg::GenericOp>(def)) {
        auto [at, isNew] = seenBy.insert({def, i});
        classes.unionSets(i, at->second);
        if (!isNew || generic.getNumReductionLoops() > 0)
          continue;
      }
      llvm::append_range(worklist, def->getOperands());
    }
  }
  std::vector<ContractionPart> parts;
  llvm::DenseMap<unsigned, unsigned> partOf; // by leader
  for (unsigned i = 0; i < yielded.size(); ++i) {
    if (isMemory(yielded[i]))
      continue;
    auto [at, isNew] = partOf.try_emplace(classes.getLeaderValue(i), parts.size());
    if (isNew)
      parts.emplace_back();
    parts[at->second].results.push_back(i);
  }
  for (auto generic : body.getOps<linalg::GenericOp>()) {
    if (generic.getNumReductionLoops() == 0)
      continue;
    auto seen = seenBy.find(generic);
    if (seen == seenBy.end())
      return generic.emitError("no result of the kernel depends on this product");
    FailureOr<ContractionInfo> info = ContractionInfo::get(generic, shapes);
    if (failed(info))
      return failure();
    parts[partOf.lookup(classes.getLeaderValue(seen->second))].products.push_back(*info);
  }

  auto sameSizes = [&](const ContractionInfo &a, ArrayRef<unsigned> x, const ContractionInfo &b, ArrayRef<unsigned> y) {
    return x.size() == y.size() && llvm::all_of(llvm::zip(x, y), [&](auto pair) {
             return shapes.equal(a.sizes[std::get<0>(pair)], b.sizes[std::get<1>(pair)]);
           });
  };
  for (ContractionPart &part : parts) {
    if (part.products.empty())
      return kernel->emitError("a contraction kernel holds no contraction");
    for (ContractionInfo &info : part.products) {
      ContractionInfo &model = parts.front().products.front();
      const ContractionInfo &first = part.first();
      if (info.left() != model.left() || info.lhsMap() != model.lhsMap() || info.batch != model.batch ||
          info.rows != model.rows || info.depth != model.depth || !sameSizes(info, info.batch, model, model.batch))
        return info.op.emitError("the products of a contraction kernel must share their left operand");
      if (info.accumulator != model.accumulator || bool(info.panels) != bool(model.panels) ||
          info.lhsRead() != model.lhsRead() || info.lhsShift() != model.lhsShift() ||
          !sameSizes(info, info.columns, first, first.columns))
        return info.op.emitError("the products of a contraction kernel do not fit together");
    }
  }
  return parts;
}
