//===- Kinds.td - the schedules of a kind of kernel --------------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_SCHEDULE_KINDS
#define DISC_TRANSFORMS_SCHEDULE_KINDS

include "mlir/IR/OpBase.td"

def ScheduledKind : AttrInterface<"ScheduledKind"> {
  let cppNamespace = "::mlir::disc";
  let description = "Both set `schedule`, `tasks`, `scratch` and `cost` of a kernel, or report why they can't.";
  let methods = [
    InterfaceMethod<"For the host's vectors and caches.", "::llvm::LogicalResult", "schedule",
        (ins "::mlir::disc::KernelOp":$kernel, "::mlir::disc::ShapeAnalysis &":$shapes,
             "const ::mlir::disc::TargetInfo &":$target),
        /*methodBody=*/"",
        /*defaultImplementation=*/"return kernel.emitError(\"kernels of this kind are not for the host\");">,
    InterfaceMethod<[{
      For a device's blocks of threads. Gives the kernel that takes the place of this one, which may have more results,
      or this one.
    }], "::llvm::FailureOr<::mlir::disc::KernelOp>", "scheduleBlocks",
        (ins "::mlir::disc::KernelOp":$kernel, "::mlir::disc::ShapeAnalysis &":$shapes,
             "const ::mlir::disc::TargetInfo &":$target),
        /*methodBody=*/"", /*defaultImplementation=*/[{
          return ::llvm::FailureOr<::mlir::disc::KernelOp>(kernel.emitError("kernels of this kind are for the CPU"));
        }]>,
  ];
}

#endif // DISC_TRANSFORMS_SCHEDULE_KINDS
