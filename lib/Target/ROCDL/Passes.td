//===- Passes.td - code for AMD's GPUs ------------------------------*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_ROCDL_PASSES
#define DISC_LIB_TARGET_ROCDL_PASSES

include "mlir/Pass/PassBase.td"

def RocdlLower : Pass<"disc-rocdl-lower", "::mlir::ModuleOp"> {
  let summary = "turn kernels into the LLVM dialect for AMD's GPUs";
  let description = [{
    Takes GPU modules behind `disc-lower-math`, `convert-scf-to-cf` and `convert-vector-to-llvm`. What would need a
    library on the device is an error. Shuffles are those of wavefronts of 64; by constants that DPP or a swizzle knows
    they take no address. The grid's size is read from the kernel's hidden arguments.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect", "::mlir::ROCDL::ROCDLDialect"];
}

def RocdlSerialize : Pass<"disc-rocdl-serialize", "::mlir::ModuleOp"> {
  let summary = "turn GPU modules into code objects";
  let description = [{
    Replaces each `gpu.module` in the LLVM dialect by a `gpu.binary` with a code object (hsaco) for each architecture,
    or with its assembly. The images' kernel tables tell what each kernel needs (`vgprs`, `agprs`, `sgprs`,
    `vgpr_spills`, `sgpr_spills`, `stack`, `shared`), as the code object's metadata has it.
  }];
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::gpu::GPUDialect", "::mlir::ROCDL::ROCDLDialect"];
  let options = [
    ListOption<"arch", "arch", "std::string", "architectures, such as gfx90a; default: those of disc_plan.target">,
    Option<"assembly", "assembly", "bool", /*default=*/"false", "give assembly in place of code objects">
  ];
}

#endif // DISC_LIB_TARGET_ROCDL_PASSES
