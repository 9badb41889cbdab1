//===- Schedule.h - the numbers of a kernel's schedule -----------*- C++ -*-===//
//
// Code generators divide, allocate and loop by these numbers. The verifiers of `kernel` and `kernel_func` check them,
// so that a code generator needs no checks of its own.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_PLAN_SCHEDULE_H
#define DISC_DIALECTS_PLAN_SCHEDULE_H

#include "dialects/Plan/PlanDialect.h"

namespace mlir::disc {

/// True if the schedule maps the kernel to blocks of threads.
bool isDeviceSchedule(DictionaryAttr schedule);

/// True if the schedule is for a product on a matrix unit.
bool isMatrixSchedule(DictionaryAttr schedule);

/// True for a result of a kernel that is memory for the kernel itself: nothing computes it.
bool isMemory(Value yielded);

/// Fields of a device's schedule that are not numbers of its block:
/// `variants`: other schedules of the kernel, for some shapes (lib/Target/GPU/KernelVariants.cpp). Those of a matrix
/// unit and of attention have `tasks` and `when` of their own, which is positive for their shapes; for others both
/// follow from the layouts of the buffers. `library`: where it is positive, a library of the device computes the
/// product, if there is one. `parts`: of the keys of attention, each of which has blocks of its own.
inline constexpr llvm::StringLiteral kVariants = "variants", kVariantWhen = "when", kVariantTasks = "tasks",
                                     kLibraryWhen = "library", kParts = "parts";

/// (P8): each field belongs to the kind of kernel, has its type and is within its bounds; nothing required is missing.
LogicalResult verifySchedule(Operation *kernel, KernelKind kind, Block &body, DictionaryAttr schedule);

/// (P9): `tasks`, `scratch` and `cost`, if there are any, are defined expressions.
LogicalResult verifyLaunch(Operation *kernel, Attribute tasks, Attribute scratch, Attribute cost);

/// (P10): what is known of the machine is positive, of the right type, and a power of two where it has to be.
LogicalResult verifyTarget(Operation *op, Attribute target);

/// (P11): what a device's kernel says of its launches (lib/Target/Common/KernelAttrs.h) has the fields of these types.
LogicalResult verifyDeviceLaunch(Operation *op, StringRef name, Attribute attr);

} // namespace mlir::disc

#endif // DISC_DIALECTS_PLAN_SCHEDULE_H
