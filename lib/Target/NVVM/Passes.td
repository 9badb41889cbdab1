//===- Passes.td - code for NVIDIA's GPUs ---------------------------*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_NVVM_PASSES
#define DISC_LIB_TARGET_NVVM_PASSES

include "mlir/Pass/PassBase.td"

def NvvmLower : Pass<"disc-nvvm-lower", "::mlir::ModuleOp"> {
  let summary = "turn kernels into the LLVM dialect for NVIDIA's GPUs";
  let description = [{
    Takes GPU modules behind `disc-lower-math`, `convert-scf-to-cf` and `convert-vector-to-llvm`. What would need a
    library on the device is an error. Functions keep the exact block size, ranges of thread ids, and which arguments
    are only read.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def NvvmSerialize : Pass<"disc-nvvm-serialize", "::mlir::ModuleOp"> {
  let summary = "turn GPU modules into cubins and PTX";
  let description = [{
    Replaces each `gpu.module` in the LLVM dialect by a `gpu.binary`: a cubin for each architecture where `ptxas` is
    found, and PTX of the lowest one, which drivers compile for newer GPUs. The images' kernel tables tell what each
    kernel needs (`registers`, `stack`, `spill_stores`, `spill_loads`, `shared`, `constants`), as ptxas reports it.
  }];
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::gpu::GPUDialect", "::mlir::NVVM::NVVMDialect"];
  let options = [
    ListOption<"arch", "arch", "std::string", "architectures, such as sm_80; default: those of disc_plan.target">,
    Option<"ptxas", "ptxas", "std::string", /*default=*/"\"\"",
           "path of ptxas; default: the one on PATH, and PTX alone where there is none">,
    Option<"cubin", "cubin", "bool", /*default=*/"true", "assemble cubins">
  ];
}

#endif // DISC_LIB_TARGET_NVVM_PASSES
