//===- Passes.td - kernels of a GPU for the CPU -------------------*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_EMULATION_PASSES
#define DISC_LIB_TARGET_EMULATION_PASSES

include "mlir/Pass/PassBase.td"

def EmulateKernels : Pass<"disc-emulate-kernels", "::mlir::ModuleOp"> {
  let summary = "turn the functions of GPU modules into functions of one thread, for the emulated device";
  let description = [{
    Each `gpu.func @k` becomes `func.func private @k_emulated(%thread: !llvm.ptr, %args: !llvm.ptr)`, which does the work
    of one thread of a block and calls the runtime (lib/Runtime/Device/Emulator.h) at barriers and shuffles. What is
    left inside is what kernels for the CPU consist of. `disc_rt.device_kernel @k` gets the function as its `host`.

    With `check`, the function tells the runtime of every access to global and shared memory before it does it, with the
    argument or the array in shared memory that the address derives from. An argument's attribute `disc_plan.bytes`, an
    expression of the kernel's symbols, says how large its buffer is; else that is what the device knows of it.
  }];
  let options = [Option<"check", "check", "bool", /*default=*/"false",
                        "have the runtime check each access to memory">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect"];
}

#endif // DISC_LIB_TARGET_EMULATION_PASSES
