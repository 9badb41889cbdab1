//===- KernelGroups.h - which computations share a kernel --------*- C++ -*-===//
//
// Groups of operations, grown by merging a producer's group with a consumer's where one loop nest can serve both. Every
// decision asks the symbolic shapes: extents that are not proved equal are different.
//
// Each group has a *domain*: the extents of its widest operations, without unit extents, some of them reduced. Inside
// a group an operation has one of these roles:
//   full      computes at each point of the domain
//   part      computes at each point of the domain's parallel dimensions
//   reduction goes from full to part
//   free      cheap, depends on nothing in the group with another role: recomputed wherever it is read
// and values pass between operations of different roles at the same point of the domain.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_FUSION_KERNELGROUPS_H
#define DISC_TRANSFORMS_FUSION_KERNELGROUPS_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Fusion/Kinds.h"
#include "lib/Transforms/Support/KnownAtLoad.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/SymbolBindings.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::disc {

struct KernelGroup {
  FusedKind kind;
  llvm::SetVector<Operation *> ops;
  SmallVector<SymExpr> domain;
  SmallVector<bool> reduced;
  /// Why operations were added, in the order they were.
  SmallVector<std::string> reasons;

  /// "domain [B, S, 384]; reduces [2]".
  std::string describe() const;
};

/// True for computations that are cloned into each kernel that uses them: extents, constants, fills, empty tensors.
bool isCloned(Operation *op);

/// A product with columns to keep in registers. Without any, it is a dot product per row: a reduction like others.
bool isContraction(linalg::GenericOp op, ShapeAnalysis &shapes);

/// The loops of an operation without parallel ones of one step.
SmallVector<utils::IteratorType> movingLoops(linalg::GenericOp op, ShapeAnalysis &shapes);

/// The narrower tensor, if the operation computes each element of its result from that element of it, with little work.
Value narrowSource(Operation *op);

class KernelGroups {
public:
  /// With `manyProducts`, a kernel may have several products of one left operand; with `fuseConcats`, loops read and
  /// compute parts of concatenations at their points.
  KernelGroups(Block &block, ShapeAnalysis &shapes, bool manyProducts, bool fuseConcats);
  /// Merges until nothing fits any more.
  void fuse();
  /// The group of an operation; null for what stays between kernels.
  KernelGroup *groupOf(Operation *op) const { return groups.lookup(op); }
  /// The binds and guards that must come before an operation.
  SmallVector<Operation *> before(Operation *op) const { return bindings.before(op); }

private:
  bool fuseEdges(llvm::function_ref<bool(KernelGroup &, KernelGroup &)> wanted);
  bool tryMerge(KernelGroup &producer, KernelGroup &consumer);
  bool isConsistent(const KernelGroup &merged) const;
  bool makesCycle(const llvm::SetVector<Operation *> &ops) const;
  bool isForLoad(const KernelGroup &group);
  bool widensInput(ConvolutionOp op, Value operand) const;
  void seed(Operation *op);
  FusedKind kindOf(Operation *op);
  void joinRows(AttentionOp op);
  /// Lets the groups that read what `op` makes of a narrower value read that one, if all can (Widening.cpp).
  bool leaveToReaders(Operation *op);

  Block &block;
  SymbolBindings bindings;
  KnownAtLoad known;
  ShapeAnalysis &shapes;
  const bool manyProducts, fuseConcats;
  bool onDevice;
  SmallVector<FusedKind> kinds; // in the order in which they were registered
  llvm::DenseMap<Operation *, KernelGroup *> groups;
  std::vector<std::unique_ptr<KernelGroup>> storage;
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_FUSION_KERNELGROUPS_H
