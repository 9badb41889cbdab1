//===- KnownAtLoad.h - values computed from parameters alone ----*- C++ -*-===//
//
// What does not depend on the inputs of a call is computed once, when the model is loaded (HoistParameters), and
// weights among it are packed then (PackWeights). Passes that run before ask here what will be known at load.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_TRANSFORMS_SUPPORT_KNOWNATLOAD_H
#define DISC_TRANSFORMS_SUPPORT_KNOWNATLOAD_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::disc {

/// Answers which operations of the host flow are known at load. The answers are kept: ask a new object after changes.
class KnownAtLoad {
public:
  /// Whether `op` is a parameter, or a view, a kernel, or what will be one, of what is known at load that mentions no
  /// symbol and is not a result of the model: the caller's buffers are written by each call.
  bool contains(Operation *op) {
    if (auto known = answers.find(op); known != answers.end())
      return known->second;
    bool answer = isa<ParameterOp>(op) || ((isView(op) || isa<KernelOp, linalg::LinalgOp>(op)) &&
                                           op->getNumOperands() != 0 && mentionsNoSymbol(op) && !isReturned(op) &&
                                           llvm::all_of(op->getOperands(), [&](Value v) { return isOperand(v); }));
    return answers[op] = answer;
  }

  /// Whether the value is a result of such an operation; `v` may be null.
  bool contains(Value v) { return v && v.getDefiningOp() && contains(v.getDefiningOp()); }

private:
  bool isOperand(Value v) {
    Operation *def = v.getDefiningOp();
    if (!def)
      return false;
    if (auto dim = dyn_cast<DimOp>(def))
      return dim.getExprAttr().getValue().isConstant();
    return def->hasTrait<OpTrait::ConstantLike>() || (isa<tensor::EmptyOp>(def) && def->getNumOperands() == 0) ||
           contains(def);
  }

  static bool isReturned(Operation *op) {
    return llvm::any_of(op->getUsers(), [](Operation *user) {
      return user->hasTrait<OpTrait::IsTerminator>() || (isView(user) && isReturned(user));
    });
  }

  static bool mentionsNoSymbol(Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && !tensor.hasStaticShape())
        return false;
    return !op->walk([](DimOp dim) {
                return dim.getExprAttr().getValue().isConstant() ? WalkResult::advance() : WalkResult::interrupt();
              }).wasInterrupted();
  }

  llvm::DenseMap<Operation *, bool> answers;
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_KNOWNATLOAD_H
