//===- Kinds.td - what fusion wants of a kind of kernel ----------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_FUSION_KINDS
#define DISC_TRANSFORMS_FUSION_KINDS

include "mlir/IR/OpBase.td"

def FusedKind : AttrInterface<"FusedKind"> {
  let cppNamespace = "::mlir::disc";
  let description = [{
    Which operations are kernels of a kind, alone and together. A kind without it is formed by other passes.
  }];
  let methods = [
    InterfaceMethod<"Whether the operation alone is such a kernel. The kind that was registered last is asked first.",
        "bool", "begins", (ins "::mlir::Operation *":$op, "::mlir::disc::ShapeAnalysis &":$shapes)>,
    InterfaceMethod<"Whether a kernel of this kind may take in one of kind `other`, before or behind it.", "bool",
        "absorbs", (ins "::mlir::disc::KernelKind":$other), /*methodBody=*/"", /*defaultImplementation=*/"return false;">,
    InterfaceMethod<"What its loop nest can and can't do.", "::mlir::disc::FusionTraits", "getTraits", (ins),
        /*methodBody=*/"", /*defaultImplementation=*/"return {};">,
  ];
}

#endif // DISC_TRANSFORMS_FUSION_KINDS
