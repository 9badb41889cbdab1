//===- Kinds.td - kinds of kernels that write over operands ------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_MEMORY_KINDS
#define DISC_TRANSFORMS_MEMORY_KINDS

include "mlir/IR/OpBase.td"

def InPlaceKind : AttrInterface<"InPlaceKind"> {
  let cppNamespace = "::mlir::disc";
  let description = "A kind without it needs memory of its own for each result.";
  let methods = [
    InterfaceMethod<"For each result of the kernel, the inputs whose storage it may take.",
        "::llvm::SmallVector<::llvm::SmallVector<unsigned>>", "inPlaceOperands",
        (ins "::mlir::disc::KernelFuncOp":$kernel, "::mlir::disc::ShapeAnalysis &":$shapes)>
  ];
}

#endif // DISC_TRANSFORMS_MEMORY_KINDS
