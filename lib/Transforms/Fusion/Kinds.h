//===- Kinds.h - what fusion wants of a kind of kernel -----------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_FUSION_KINDS_H
#define DISC_TRANSFORMS_FUSION_KINDS_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

/// What the loop nest of a kind of kernel can and can't do.
struct FusionTraits {
  /// Its points are independent: a value is computed again at whichever points it is read.
  bool isPointwise = false;
  /// It reduces, and has the points of its results, for the operations around.
  bool isReduction = false;
  /// Its sums are in registers when its epilogue runs; nothing but the sums is computed at the points that are summed.
  bool hasEpilogue = false;
  /// It may store values of all points, not of the parallel dimensions alone.
  bool storesFull = false;
  /// It stores in the order in which it computes.
  bool storesInOrder = false;
  /// It passes over what it reduces once.
  bool isOnePass = false;
};

/// Attaches FusedKind to the kinds of this tree.
void registerFusedKinds(DialectRegistry &registry);

} // namespace mlir::disc

#include "lib/Transforms/Fusion/Kinds.h.inc"

#endif // DISC_TRANSFORMS_FUSION_KINDS_H
