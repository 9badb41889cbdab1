//===- Passes.td - passes of the host flow -----------------------*- tablegen -*-===//

#ifndef DISC_TARGET_HOST_PASSES
#define DISC_TARGET_HOST_PASSES

include "mlir/Pass/PassBase.td"

def HostLower : Pass<"disc-host-lower", "::mlir::ModuleOp"> {
  let summary = "turns entry functions into straight code that calls the runtime";
  let description = [{
    Each `disc_rt.entry @name` becomes the public function `disc_name(ptr) -> i32`, and `@main` also `disc_shapes`, which
    checks the inputs and tells the outputs' extents; the model's interface becomes the
    constant `disc_model_info` (lib/Runtime/Core/ModelInfo.h). Kernels must be functions already: a launch takes
    `tasks`, `scratch`, `cost` and `symbols` from the attributes that `disc-cpu-emit-kernels` leaves on them.
  }];
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::arith::ArithDialect",
                           "::mlir::cf::ControlFlowDialect", "::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect"];
  let options = [Option<
      "serialNs", "serial-ns", "int64_t", /*default=*/"2000",
      "kernels that provably take less than this many nanoseconds are called without the thread pool">,
                 Option<"memoryBudget", "memory-budget", "int64_t", /*default=*/"0",
                        "the default memory budget of the model in bytes; 0: no limit">];
}

def CodegenVerify : Pass<"disc-codegen-verify", "::mlir::ModuleOp"> {
  let summary = "checks the contract of the codegen stage";
  let description = [{
    (C1) only operations of the LLVM dialect remain;
    (C2) `disc_main`, `disc_init` and `disc_shapes` are defined, with the signature the runtime calls;
    (C3) `disc_model_info` is defined;
    (C4) every function called is defined here, or one of the runtime's, or one of the C library's.
  }];
}

#endif // DISC_TARGET_HOST_PASSES
