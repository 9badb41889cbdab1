//===- Kinds.td - kinds of kernels that devices run --------------*- tablegen -*-===//

#ifndef DISC_TARGET_GPU_KINDS
#define DISC_TARGET_GPU_KINDS

include "mlir/IR/OpBase.td"

def DeviceKind : AttrInterface<"DeviceKind"> {
  let cppNamespace = "::mlir::disc";
  let description = "A kind of kernel that devices run.";
  let methods = [
    InterfaceMethod<"Adds the kernel's functions; `kernel` is erased afterwards. Reports what it cannot emit.",
        "::llvm::LogicalResult", "emit",
        (ins "::mlir::disc::DeviceEmission &":$emission, "::mlir::disc::KernelFuncOp":$kernel)>,
    InterfaceMethod<"The schedules in which the kernel is emitted, best first. The last one serves all shapes that are left.",
        "::llvm::FailureOr<::llvm::SmallVector<::mlir::disc::KernelVariant>>", "variants",
        (ins "::mlir::disc::KernelFuncOp":$kernel, "::mlir::disc::ShapeAnalysis &":$shapes), /*methodBody=*/"",
        /*defaultImplementation=*/"return ::mlir::disc::variantsWithTasks(kernel);">
  ];
}

#endif // DISC_TARGET_GPU_KINDS
