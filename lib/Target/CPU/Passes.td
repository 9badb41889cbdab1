//===- Passes.td - code generation for CPUs -----------------------*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_CPU_PASSES
#define DISC_LIB_TARGET_CPU_PASSES

include "mlir/Pass/PassBase.td"

def CpuEmitKernels : Pass<"disc-cpu-emit-kernels", "::mlir::ModuleOp"> {
  let summary = "turn kernels into functions over vectors";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def CpuCheckAccesses : Pass<"disc-cpu-check-accesses", "::mlir::ModuleOp"> {
  let summary = "check every memory access of kernels against the bounds of the buffer";
  let description = [{
    For `Options(sanitize=True)`. Runs last, on kernels in the LLVM dialect, so that every access is covered, whichever
    emitter it comes from: loads and stores, masked ones by their active lanes, gathers and scatters, block copies,
    atomics, the views that functions of the runtime get. Launches must be checked ones (`disc-memory-convert-to-rt` with
    `sanitize`). An operation that uses memory in another way is an error.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // DISC_LIB_TARGET_CPU_PASSES
