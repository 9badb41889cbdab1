//===- Kinds.td - kinds of kernels that CPUs run -----------------*- tablegen -*-===//

#ifndef DISC_TARGET_CPU_KINDS
#define DISC_TARGET_CPU_KINDS

include "mlir/IR/OpBase.td"

def HostKind : AttrInterface<"HostKind"> {
  let cppNamespace = "::mlir::disc";
  let description = "A kind of kernel that CPUs run.";
  let methods = [
    InterfaceMethod<"Emits the kernel's tasks into its function; reports what it cannot emit.", "::llvm::LogicalResult",
        "emit", (ins "::mlir::disc::KernelEmission &":$emission)>
  ];
}

#endif // DISC_TARGET_CPU_KINDS
