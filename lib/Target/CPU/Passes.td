//===- Passes.td - code generation for CPUs -----------------------*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_CPU_PASSES
#define DISC_LIB_TARGET_CPU_PASSES

include "mlir/Pass/PassBase.td"

def CpuEmitKernels : Pass<"disc-cpu-emit-kernels", "::mlir::ModuleOp"> {
  let summary = "turn kernels into functions over vectors";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif // DISC_LIB_TARGET_CPU_PASSES
