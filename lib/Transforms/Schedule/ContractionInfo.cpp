//===- ContractionInfo.cpp - the parts of a contraction kernel ------------===//
//
// Test: test/lit/Schedule/contraction.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/ContractionInfo.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::disc;

/// The block argument that `v` is, perhaps widened (floats, signed integers): the micro-kernels widen as they load.
static BlockArgument widenedArgument(Value v, Type to) {
  if (Operation *def = v.getDefiningOp(); def && isa<arith::ExtFOp, arith::ExtSIOp>(def))
    v = def->getOperand(0);
  return dyn_cast<BlockArgument>(v);
}

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
  auto x = widenedArgument(mul->getOperand(0), sum.getType()), y = widenedArgument(mul->getOperand(1), sum.getType());
  if (!x || !y || x == sum || y == sum || x == y)
    return std::nullopt;
  return std::make_pair(x, y);
}

bool disc::isSumOfProducts(linalg::GenericOp generic) { return factors(generic).has_value(); }

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

FailureOr<ContractionInfo> ContractionInfo::get(Operation *kernel, Block &body, ShapeAnalysis &shapes) {
  ContractionInfo info;
  for (auto generic : body.getOps<linalg::GenericOp>())
    if (generic.getNumReductionLoops() > 0) {
      if (info.op)
        return generic.emitError("a contraction kernel holds a second reduction");
      info.op = generic;
    }
  if (!info.op)
    return kernel->emitError("a contraction kernel holds no contraction");
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
