//===- InPlace.h - results in the storage of operands ------------*- C++ -*-===//
//
// A kernel may write a result over an operand that nobody reads after it, if it reads each element of the operand, in
// whichever task, before it writes the element of the result that lies there.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_MEMORY_INPLACE_H
#define DISC_TRANSFORMS_MEMORY_INPLACE_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

/// Attaches InPlaceKind to the kinds of this tree.
void registerInPlaceKinds(DialectRegistry &registry);

/// For each result of a kernel, the inputs whose storage it may take. What the answer relies on of the emitters:
///   loop   at a point (a vector of positions), everything is computed before anything is stored
///   row    the same, in each pass; and a row's passes are done by one task
///   contraction, on CPUs   sums are in scratch until the epilogue, which computes all results at a point before it
///                          stores any; each point belongs to one tile
SmallVector<SmallVector<unsigned>> inPlaceOperands(KernelFuncOp kernel, ShapeAnalysis &shapes);

/// The same for calls, computed once for each kernel.
class InPlaceKernels {
public:
  InPlaceKernels(ModuleOp module, ShapeAnalysis &shapes) : module(module), shapes(shapes) {}

  ArrayRef<SmallVector<unsigned>> operator()(CallOp call);

  /// Whether all operands of the call that are `operand` are among `inputs`: the same buffer may be an operand twice,
  /// seen through different views.
  static bool covers(CallOp call, Value operand, ArrayRef<unsigned> inputs);

private:
  ModuleOp module;
  ShapeAnalysis &shapes;
  llvm::DenseMap<KernelFuncOp, SmallVector<SmallVector<unsigned>>> known;
};

} // namespace mlir::disc

#include "lib/Transforms/Memory/Kinds.h.inc"

#endif // DISC_TRANSFORMS_MEMORY_INPLACE_H
