//===- Schedule.h - the numbers of a kernel's schedule -----------*- C++ -*-===//
//
// Code generators divide, allocate and loop by these numbers. The attributes (Schedules.td) and the verifiers of
// `kernel` and `kernel_func` check them, so that a code generator needs no checks of its own.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_PLAN_SCHEDULE_H
#define DISC_DIALECTS_PLAN_SCHEDULE_H

#include "dialects/Plan/PlanDialect.h"

namespace mlir::disc {

/// True if the schedule maps the kernel to blocks of threads.
inline bool isDeviceSchedule(ScheduleAttrInterface schedule) { return schedule && schedule.getBlockThreads(); }

/// True if the schedule is for a product on a matrix unit.
inline bool isMatrixSchedule(ScheduleAttrInterface schedule) { return schedule && schedule.usesMatrixUnit(); }

/// True for a result of a kernel that is memory for the kernel itself: nothing computes it.
bool isMemory(Value yielded);

/// (P8): the schedule and its variants serve kernels of this kind.
LogicalResult verifySchedule(Operation *kernel, KernelKind kind, Block &body, ScheduleAttrInterface schedule,
                             ArrayAttr variants);

/// (P9): `tasks`, `scratch` and `cost`, if there are any, are defined expressions.
LogicalResult verifyLaunch(Operation *kernel, ExprAttr tasks, ExprAttr scratch, ExprAttr cost);

/// (P11): what a device's kernel says of its launches (lib/Target/Common/KernelAttrs.h) has the fields of these types.
LogicalResult verifyDeviceLaunch(Operation *op, StringRef name, Attribute attr);

} // namespace mlir::disc

#endif // DISC_DIALECTS_PLAN_SCHEDULE_H
