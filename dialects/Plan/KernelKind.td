//===- KernelKind.td - what shape of loop nest a kernel is -------*- tablegen -*-===//

#ifndef DISC_DIALECTS_PLAN_KERNEL_KIND
#define DISC_DIALECTS_PLAN_KERNEL_KIND

include "mlir/IR/OpBase.td"

def Plan_KindInterface : AttrInterface<"KernelKind"> {
  let cppNamespace = "::mlir::disc";
  let description = [{
    The stages know what they do with a kind by interfaces of their own, which are attached to its attribute:
      `FusedKind` (lib/Transforms/Fusion)        which operations begin such a kernel, and what it absorbs
      `ScheduledKind` (lib/Transforms/Schedule)  its schedule, on the host and in blocks of threads
      `InPlaceKind` (lib/Transforms/Memory)      which operands its results may overwrite
      `HostKind` (lib/Target/CPU), `DeviceKind` (lib/Target/GPU)   its code
    A kind from outside of the tree is an attribute of another dialect, which an extension of `disc_plan` registers with
    `PlanDialect::addKind` (test/kind).
  }];
  let methods = [
    InterfaceMethod<"The word for it in IR and reports.", "::llvm::StringRef", "getWord">
  ];
}

#endif // DISC_DIALECTS_PLAN_KERNEL_KIND
