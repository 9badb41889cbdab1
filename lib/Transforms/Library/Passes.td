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

def Annotate : Pass<"disc-library-annotate", "::mlir::ModuleOp"> {
  let summary = "Chooses for each operation one of the back ends that claim it";
  let options = [
    ListOption<"backends", "backends", "std::string", "names of back ends, in order of precedence">,
  ];
  let dependentDialects = ["::mlir::disc::PlanDialect"];
}

def Merge : Pass<"disc-library-merge", "::mlir::ModuleOp"> {
  let summary = "Groups operations of one back end into convex regions";
  let options = [
    ListOption<"backends", "backends", "std::string", "back ends whose regions may contain several matches">,
  ];
  let dependentDialects = ["::mlir::disc::PlanDialect"];
}

def Partition : Pass<"disc-library-partition", "::mlir::ModuleOp"> {
  let summary = "Makes each group a region";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::disc::ShapeDialect"];
}

def Select : Pass<"disc-library-select", "::mlir::ModuleOp"> {
  let summary = "Replaces regions by calls of their back end's code, and all other composites by their bodies";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::disc::PlanDialect", "::mlir::disc::ShapeDialect",
                           "::mlir::disc::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def VerifyLibrary : Pass<"disc-library-verify", "::mlir::ModuleOp"> {
  let summary = "Checks that later stages can compile everything that no library claimed";
  let description = [{
    Reports every operation that they cannot, at once, each with its source line.
  }];
}

#endif // DISC_TRANSFORMS_LIBRARY_PASSES
