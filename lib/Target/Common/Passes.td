//===- Passes.td - what several targets' code generation shares ----*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_COMMON_PASSES
#define DISC_LIB_TARGET_COMMON_PASSES

include "mlir/Pass/PassBase.td"

def LowerMath : Pass<"disc-lower-math", "::mlir::ModuleOp"> {
  let summary = "replace transcendental functions by polynomials, half types by f32";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

#endif // DISC_LIB_TARGET_COMMON_PASSES
