//===- Passes.td - kernels that nothing runs -----------------------*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_NULL_PASSES
#define DISC_LIB_TARGET_NULL_PASSES

include "mlir/Pass/PassBase.td"

def DropKernels : Pass<"disc-drop-kernels", "::mlir::ModuleOp"> {
  let summary = "take the code of kernels away: launches of them stay";
}

#endif // DISC_LIB_TARGET_NULL_PASSES
