//===- Extents.cpp - One value per extent ---------------------------------===//

#include "lib/Transforms/Shape/Extents.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::disc;

/// Behind the guards, which stand first.
static OpBuilder topOf(FunctionOpInterface function) {
  Block &entry = function.getFunctionBody().front();
  return OpBuilder(&entry, llvm::find_if(entry, [](Operation &op) { return !isa<GuardOp>(op); }));
}

Extents::Extents(FunctionOpInterface function) : builder(topOf(function)) {}

Value Extents::get(const SymExpr &expr, Location loc) {
  auto [it, inserted] = values.try_emplace(expr);
  if (!inserted)
    return it->second;
  // The insertion point stays where it is, so that extents stand in the order
  // of their first use, before everything else.
  if (expr.isConstant())
    it->second = arith::ConstantIndexOp::create(builder, loc, expr.constant());
  else
    it->second = DimOp::create(builder, loc, expr);
  return it->second;
}

void Extents::forget(Operation *op) {
  if (builder.getInsertionBlock() == op->getBlock() && builder.getInsertionPoint() == Block::iterator(op))
    builder.setInsertionPointAfter(op);
  for (auto it = values.begin(); it != values.end(); ++it)
    if (it->second.getDefiningOp() == op)
      return void(values.erase(it));
}

DimsAttr mlir::disc::getDimsAttr(ShapeAnalysis &shapes, Value tensor) {
  SmallVector<SymExpr> dims = shapes.dims(tensor);
  if (!llvm::all_of(dims, ShapeAnalysis::isExpressible))
    return {};
  return DimsAttr::get(tensor.getContext(), dims);
}

/// True for what computes on indices: its results may be expressions.
static bool isIndexComputation(Operation *op) {
  if (isa<tensor::DimOp, DimOp, BindOp>(op))
    return true;
  if (!isa<arith::ArithDialect>(op->getDialect()) || op->getNumResults() != 1 || op->hasTrait<OpTrait::ConstantLike>())
    return false;
  return op->getResult(0).getType().isIntOrIndex();
}

/// Replaces the result of an index computation; the operation dies later.
static void canonicalizeIndex(Operation *op, Extents &extents, ShapeAnalysis &shapes) {
  Value result = op->getResult(0);
  Type type = result.getType();
  OpBuilder builder(op);
  if (type.isInteger(1)) {
    if (std::optional<bool> decided = decideCompare(shapes, result))
      result.replaceAllUsesWith(arith::ConstantIntOp::create(builder, op->getLoc(), type, *decided));
    return;
  }
  SymExpr expr = shapes.expr(result);
  if (!ShapeAnalysis::isExpressible(expr))
    return;
  if (type.isIndex()) {
    result.replaceAllUsesWith(extents.get(expr, op->getLoc()));
    return;
  }
  if (expr.isConstant()) {
    result.replaceAllUsesWith(arith::ConstantIntOp::create(builder, op->getLoc(), type, expr.constant()));
    return;
  }
  // Integers of other types are casts of the extent.
  Value extent = extents.get(expr, op->getLoc());
  auto cast = dyn_cast<arith::IndexCastOp>(op);
  if (cast && cast.getIn() == extent)
    return;
  result.replaceAllUsesWith(arith::IndexCastOp::create(builder, op->getLoc(), type, extent));
}

static void canonicalizeDims(Operation *op, ShapeAnalysis &shapes) {
  SmallVector<Attribute> attributes;
  bool isDynamic = false;
  for (Value result : op->getResults()) {
    auto type = dyn_cast<RankedTensorType>(result.getType());
    if (!type)
      continue;
    isDynamic |= !type.hasStaticShape();
    // Left out where an extent is not expressible; the verifier reports that.
    DimsAttr dims = getDimsAttr(shapes, result);
    if (!dims)
      return;
    attributes.push_back(dims);
  }
  if (isDynamic)
    op->setAttr(ShapeDialect::getDimsAttrName(), ArrayAttr::get(op->getContext(), attributes));
}

/// Names the extents of what the function returns.
static void canonicalizeResults(FunctionOpInterface function, ShapeAnalysis &shapes) {
  Operation *terminator = function.getFunctionBody().front().getTerminator();
  if (!terminator->hasTrait<OpTrait::ReturnLike>())
    return;
  for (auto [index, value] : llvm::enumerate(terminator->getOperands())) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || type.hasStaticShape())
      continue;
    if (DimsAttr dims = getDimsAttr(shapes, value))
      function.setResultAttr(index, ShapeDialect::getDimsAttrName(), dims);
  }
}

/// Scalars left without a use. Tensor computations are not ours to remove.
static void eraseDeadScalars(FunctionOpInterface function, Extents &extents) {
  function->walk<WalkOrder::PostOrder, ReverseIterator>([&](Operation *op) {
    bool isScalar = op->getNumResults() > 0 &&
                    llvm::all_of(op->getResultTypes(), [](Type type) { return type.isIntOrIndexOrFloat(); });
    if (isScalar && isOpTriviallyDead(op)) {
      extents.forget(op);
      op->erase();
    }
  });
}

void mlir::disc::canonicalizeExtents(FunctionOpInterface function, Extents &extents, ShapeAnalysis &shapes) {
  SmallVector<Operation *> worklist;
  function->walk<WalkOrder::PreOrder>([&](Operation *op) {
    worklist.push_back(op);
    // Bodies compute on elements. What they need of extents they read by
    // tensor.dim or capture.
    if (isa<linalg::LinalgOp>(op)) {
      op->walk([&](tensor::DimOp dim) { worklist.push_back(dim); });
      return WalkResult::skip();
    }
    return WalkResult::advance();
  });
  for (Operation *op : worklist) {
    if (isIndexComputation(op))
      canonicalizeIndex(op, extents, shapes);
    else if (op != function.getOperation())
      canonicalizeDims(op, shapes);
  }
  canonicalizeResults(function, shapes);
  eraseDeadScalars(function, extents);
}
