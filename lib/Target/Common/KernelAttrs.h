//===- KernelAttrs.h - what a kernel's function tells the host flow --*- C++ -*-===//
//
// `disc-cpu-emit-kernels` turns each `disc_plan.kernel_func @k` into
//
//   func.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
//
// and keeps on that function, as discardable attributes, what a launch needs to
// know. `disc-host-lower` reads and removes them.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TARGET_COMMON_KERNELATTRS_H
#define DISC_TARGET_COMMON_KERNELATTRS_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Shape/ShapeDialect.h"
#include "mlir/IR/Operation.h"

namespace mlir::disc {

inline constexpr llvm::StringLiteral kKernelSymbolsAttr = "disc_plan.symbols";
inline constexpr llvm::StringLiteral kKernelTasksAttr = "disc_plan.tasks";
inline constexpr llvm::StringLiteral kKernelScratchAttr = "disc_plan.scratch";
inline constexpr llvm::StringLiteral kKernelCostAttr = "disc_plan.cost";
inline constexpr llvm::StringLiteral kKernelKindAttr = "disc_plan.kind";
/// What the checks of a device's kernel say, whose addresses it takes.
inline constexpr llvm::StringLiteral kKernelTextsAttr = "disc_plan.texts";

/// On a function whose last slot is the call, to report failures to.
inline constexpr llvm::StringLiteral kKernelCallAttr = "disc_plan.reports_to_call";

/// On a function of the host in a module for a device: the bytes of each of the kernel's buffers, from the buffer's
/// start to the last element, as expressions; and how many of them are results. Its launch copies them to the host and
/// back.
inline constexpr llvm::StringLiteral kKernelBuffersAttr = "disc_plan.buffer_bytes";
inline constexpr llvm::StringLiteral kKernelResultsAttr = "disc_plan.results";

/// On a device's kernel: the product that a library may do in its place, a LibraryProductAttr.
inline constexpr llvm::StringLiteral kKernelLibraryAttr = "disc_plan.library";

/// On a device's kernel that has others for some sizes: a list of KernelVariantAttrs. The first runs of which `when` is
/// positive, or the kernel itself.
inline constexpr llvm::StringLiteral kKernelVariantsAttr = "disc_plan.variants";

/// On a device's kernel that is the first of several, which put things in order (lib/Target/GPU/DeviceOrder.h): an
/// OrderAttr.
inline constexpr llvm::StringLiteral kKernelOrderAttr = "disc_plan.order";

/// On a device's kernel that reduces: a SplitAttr.
inline constexpr llvm::StringLiteral kKernelSplitAttr = "disc_plan.split";

/// On a device's kernel: another one, which is launched before it, or before the library that does its product, with
/// the same arguments.
inline constexpr llvm::StringLiteral kKernelBeforeAttr = "disc_plan.before";

/// On a device's kernel: another one, which is launched behind it with the same arguments.
inline constexpr llvm::StringLiteral kKernelNextAttr = "disc_plan.next";

/// On a kernel's function: how many threads of it a multiprocessor should have registers for. For few, a thread may
/// have many, but then nobody computes while they wait for memory.
inline constexpr llvm::StringLiteral kResidentThreadsAttr = "disc_plan.resident_threads";

/// On an argument of a kernel's function: a buffer that no kernel writes to, which may be read before the wait for
/// other kernels.
inline constexpr llvm::StringLiteral kConstantAttr = "disc_plan.constant";

/// Of an image: every kernel waits itself for those before it.
inline constexpr llvm::StringLiteral kEarlyAttr = "early";

/// On a device's kernel that changes its first operand: an UpdateAttr.
inline constexpr llvm::StringLiteral kKernelUpdateAttr = "disc_plan.update";

/// Keeps what launches of `kernel` need on the function emitted for it.
inline void copyLaunchAttrs(KernelFuncOp kernel, Operation *function) {
  function->setAttr(kKernelSymbolsAttr, kernel.getSymbolsAttr());
  function->setAttr(kKernelKindAttr, StringAttr::get(kernel.getContext(), kernel.getKind().getWord()));
  if (Attribute tasks = kernel.getTasksAttr())
    function->setAttr(kKernelTasksAttr, tasks);
  if (Attribute scratch = kernel.getScratchAttr())
    function->setAttr(kKernelScratchAttr, scratch);
  if (Attribute cost = kernel.getCostAttr())
    function->setAttr(kKernelCostAttr, cost);
  for (StringRef name : {kKernelBuffersAttr, kKernelResultsAttr})
    if (Attribute attr = kernel->getAttr(name))
      function->setAttr(name, attr);
}

} // namespace mlir::disc

#endif // DISC_TARGET_COMMON_KERNELATTRS_H
