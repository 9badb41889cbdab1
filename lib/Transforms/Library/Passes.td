//===- Passes.td - passes of the library stage -------------------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_LIBRARY_PASSES
#define DISC_TRANSFORMS_LIBRARY_PASSES

include "mlir/Pass/PassBase.td"

def VerifyLibrary : Pass<"disc-library-verify", "::mlir::ModuleOp"> {
  let summary = "Checks that later stages can compile everything that no library claimed";
  let description = [{
    Reports every operation that they cannot, at once, each with its source line.
  }];
}

#endif // DISC_TRANSFORMS_LIBRARY_PASSES
