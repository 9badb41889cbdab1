//===- Passes.td - what several targets' code generation shares ----*- tablegen -*-===//
#ifndef DISC_LIB_TARGET_COMMON_PASSES
#define DISC_LIB_TARGET_COMMON_PASSES

include "mlir/Pass/PassBase.td"

def AddLineTables : Pass<"disc-add-line-tables", "::mlir::ModuleOp"> {
  let summary = "add the lines of the user's program to functions in the LLVM dialect as debug information";
  let description = [{
    Debuggers and profilers then show for machine code the line of the model that it comes from.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def DescribeDevice : Pass<"disc-describe-device", "::mlir::ModuleOp"> {
  let summary = "say in `disc_plan.target` which kind of device runs the kernels";
  let description = [{
    The entries `device` (the runtime's name for it), `warp` (threads that step together), `matrix_unit` (whether there
    are the instructions of lib/Target/GPU/MatrixUnit.h) and `arch` (the kinds of chips that images are made for) join
    those of the host.
  }];
  let options = [
    Option<"device", "device", "std::string", "", "the runtime's name for the device">,
    Option<"warp", "warp", "int64_t", "32", "threads that step together">,
    Option<"matrixUnit", "matrix-unit", "bool", "false", "warps multiply fragments of matrices, as NVIDIA's do">,
    ListOption<"arch", "arch", "std::string", "kinds of chips that images are made for">,
  ];
  let dependentDialects = ["::mlir::disc::PlanDialect"];
}

def LowerMath : Pass<"disc-lower-math", "::mlir::ModuleOp"> {
  let summary = "replace transcendental functions by polynomials, half types by f32";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
  let options = [Option<"nativeBf16", "native-bf16", "bool", /*default=*/"false",
                        "the target's code generator converts bf16 without a library">,
                 Option<"nvidia", "nvidia", "bool", /*default=*/"false",
                        "kernels use the approximate instructions of NVIDIA's GPUs, where 2 ulp of f32 allow it">];
}

#endif // DISC_LIB_TARGET_COMMON_PASSES
