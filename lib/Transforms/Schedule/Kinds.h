//===- Kinds.h - the schedules of a kind of kernel ---------------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_SCHEDULE_KINDS_H
#define DISC_TRANSFORMS_SCHEDULE_KINDS_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/TargetInfo.h"

namespace mlir::disc {
/// Attaches ScheduledKind to the kinds of this tree.
void registerScheduledKinds(DialectRegistry &registry);
} // namespace mlir::disc

#include "lib/Transforms/Schedule/Kinds.h.inc"

#endif // DISC_TRANSFORMS_SCHEDULE_KINDS_H
