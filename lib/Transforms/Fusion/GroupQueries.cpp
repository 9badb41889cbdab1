//===- GroupQueries.cpp - repeated keys and values are not repeated -------===//
//
//   %b = disc_tensor.broadcast %key ... : tensor<?x2x?x64xf32> -> tensor<?x2x4x?x64xf32>
//   %k = disc_tensor.reshape %b ...     : tensor<?x2x4x?x64xf32> -> tensor<?x8x?x64xf32>    and the same of values
//   %y = disc_tensor.attention %q, %k, %v ...
//   %t = disc_tensor.permute %y [0, 2, 1, 3]
// becomes
//   %g = disc_tensor.reshape %q : tensor<?x8x?x64xf32> -> tensor<?x2x4x?x64xf32>
//   %y = disc_tensor.attention %g, %b, %w ...
//   %p = disc_tensor.permute %y [0, 3, 1, 2, 4]
//   %t = disc_tensor.reshape %p
//
// The broadcasts are views, which attention reads in place; heads in one dimension would need copies. That the result
// is permuted before its dimensions are merged lets the attention store it in that order.
//
// Test: test/lit/Fusion/group-queries.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {
#define GEN_PASS_DEF_GROUPQUERIES
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {

/// Operands of attention as a reshape that merges dimension `at` and the one after it.
struct Merge {
  unsigned at;
  SymExpr outer, inner;
};

SmallVector<Value> sizesOf(OpBuilder &b, Location loc, ArrayRef<SymExpr> dims) {
  SmallVector<Value> out;
  for (const SymExpr &d : dims)
    if (!d.isConstant())
      out.push_back(DimOp::create(b, loc, d));
  return out;
}

RankedTensorType typeOf(ArrayRef<SymExpr> dims, Value like) {
  SmallVector<int64_t> shape;
  for (const SymExpr &d : dims)
    shape.push_back(d.isConstant() ? d.constant() : ShapedType::kDynamic);
  return RankedTensorType::get(shape, getElementTypeOrSelf(like.getType()));
}

Value reshape(OpBuilder &b, Location loc, Value v, ArrayRef<SymExpr> dims) {
  return ReshapeOp::create(b, loc, typeOf(dims, v), v, sizesOf(b, loc, dims));
}

/// The batch dimension that `op` merges from two, if that is all it does.
std::optional<Merge> mergeOf(ReshapeOp op, ShapeAnalysis &shapes) {
  SmallVector<SymExpr> from = shapes.dims(op.getSource()), to = shapes.dims(op.getResult());
  if (from.size() != to.size() + 1)
    return std::nullopt;
  for (unsigned i = 0; i < to.size(); ++i) {
    if (shapes.equal(from[i], to[i]) && !from[i + 1].isConstant(1))
      continue;
    for (unsigned j = i + 1; j < to.size(); ++j)
      if (!shapes.equal(from[j + 1], to[j]))
        return std::nullopt;
    if (!shapes.equal(from[i] * from[i + 1], to[i]))
      return std::nullopt;
    return Merge{i, from[i], from[i + 1]};
  }
  return std::nullopt;
}

/// True if `broadcast` repeats elements along dimension `d`.
bool repeats(BroadcastOp broadcast, unsigned d) {
  auto it = llvm::find(broadcast.getDims(), int64_t(d));
  return it == broadcast.getDims().end() ||
         cast<RankedTensorType>(broadcast.getSource().getType()).getDimSize(it - broadcast.getDims().begin()) == 1;
}

bool splitHeads(AttentionOp op, ShapeAnalysis &shapes) {
  auto keys = op.getKey().getDefiningOp<ReshapeOp>(), values = op.getValue().getDefiningOp<ReshapeOp>();
  auto repeatedKeys = keys ? keys.getSource().getDefiningOp<BroadcastOp>() : BroadcastOp();
  auto repeatedValues = values ? values.getSource().getDefiningOp<BroadcastOp>() : BroadcastOp();
  if (!repeatedKeys || !repeatedValues)
    return false;
  std::optional<Merge> merge = mergeOf(keys, shapes), other = mergeOf(values, shapes);
  if (!merge || !other || merge->at != other->at || !shapes.equal(merge->inner, other->inner) ||
      merge->at + 2 >= shapes.dims(op.getKey()).size())
    return false;
  bool repeated = false;
  for (unsigned d : {merge->at, merge->at + 1})
    repeated |= repeats(repeatedKeys, d) && repeats(repeatedValues, d);
  if (!repeated)
    return false;

  OpBuilder b(op);
  Location loc = op.getLoc();
  auto split = [&](Value v) -> Value {
    SmallVector<SymExpr> dims = shapes.dims(v);
    bool unit = dims[merge->at].isConstant(1);
    dims[merge->at] = unit ? SymExpr(1) : merge->outer;
    dims.insert(dims.begin() + merge->at + 1, unit ? SymExpr(1) : merge->inner);
    return reshape(b, loc, v, dims);
  };
  Value query = split(op.getQuery()), mask = op.getMask() ? split(op.getMask()) : Value();
  SmallVector<SymExpr> dims = shapes.dims(op.getResult());
  dims[merge->at] = merge->outer;
  dims.insert(dims.begin() + merge->at + 1, merge->inner);
  Value grouped = AttentionOp::create(b, loc, typeOf(dims, op.getResult()), query, keys.getSource(), values.getSource(),
                                      mask, op.getScaleAttr(), op.getIsCausalAttr(), op.getNanRowsAttr());
  op.getResult().replaceAllUsesWith(reshape(b, loc, grouped, shapes.dims(op.getResult())));
  op.erase();
  return true;
}

/// permute(merge(attention)) as merge(permute(attention)).
bool permuteFirst(PermuteOp permute, ShapeAnalysis &shapes) {
  auto merged = permute.getSource().getDefiningOp<ReshapeOp>();
  if (!merged || !merged->hasOneUse() || !merged.getSource().hasOneUse() ||
      !merged.getSource().getDefiningOp<AttentionOp>())
    return false;
  std::optional<Merge> merge = mergeOf(merged, shapes);
  if (!merge)
    return false;
  SmallVector<int64_t> permutation;
  SmallVector<SymExpr> from = shapes.dims(merged.getSource()), dims;
  for (int64_t p : permute.getPermutation()) {
    permutation.push_back(p > merge->at ? p + 1 : p);
    if (p == merge->at)
      permutation.push_back(p + 1);
  }
  for (int64_t p : permutation)
    dims.push_back(from[p]);
  OpBuilder b(permute);
  Value first = PermuteOp::create(b, permute.getLoc(), typeOf(dims, permute), merged.getSource(),
                                  b.getDenseI64ArrayAttr(permutation));
  permute.getResult().replaceAllUsesWith(reshape(b, permute.getLoc(), first, shapes.dims(permute.getResult())));
  permute.erase();
  merged.erase();
  return true;
}

struct GroupQueries : disc::impl::GroupQueriesBase<GroupQueries> {
  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      ShapeAnalysis shapes(getOperation());
      for (Block *block : hostBlocks(func)) {
        for (auto op : llvm::make_early_inc_range(block->getOps<AttentionOp>()))
          splitHeads(op, shapes);
        for (auto op : llvm::make_early_inc_range(block->getOps<PermuteOp>()))
          permuteFirst(op, shapes);
        for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*block)))
          if (isView(&op) && isOpTriviallyDead(&op))
            op.erase();
      }
    }
  }
};
} // namespace
