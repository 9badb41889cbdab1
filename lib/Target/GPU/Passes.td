//===- Passes.td - kernels for devices that run grids of blocks ----*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_GPU_PASSES
#define DISC_LIB_TARGET_GPU_PASSES

include "mlir/Pass/PassBase.td"

def GpuEmitKernels : Pass<"disc-gpu-emit-kernels", "::mlir::ModuleOp"> {
  let summary = "turn kernels into functions of a gpu.module";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::arith::ArithDialect", "::mlir::disc::RtDialect",
                           "::mlir::gpu::GPUDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

#endif // DISC_LIB_TARGET_GPU_PASSES
