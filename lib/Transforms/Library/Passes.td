//===- Passes.td - passes of the library stage -------------------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_LIBRARY_PASSES
#define DISC_TRANSFORMS_LIBRARY_PASSES

include "mlir/Pass/PassBase.td"

def ClaimFunctions : Pass<"disc-library-claim-functions", "::mlir::ModuleOp"> {
  let summary = "Claims functions of the runtime for a device's own kernels";
  let description = [{
    Calls of `cumulative`, `insert`, `scatter` and `sort` get `on_device`, and where they put things in order memory for
    that. All others run on the host, with copies.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::disc::ShapeDialect", "::mlir::disc::TensorDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def VerifyLibrary : Pass<"disc-library-verify", "::mlir::ModuleOp"> {
  let summary = "Checks that later stages can compile everything that no library claimed";
  let description = [{
    Reports every operation that they cannot, at once, each with its source line.
  }];
}

#endif // DISC_TRANSFORMS_LIBRARY_PASSES
