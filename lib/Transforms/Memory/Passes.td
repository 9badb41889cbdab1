//===- Passes.td - passes of the memory stage --------------------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_MEMORY_PASSES
#define DISC_TRANSFORMS_MEMORY_PASSES

include "mlir/Pass/PassBase.td"

def OutlineKernels : Pass<"disc-memory-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "Moves kernels out of the host flow, with the layouts of their buffers; equal kernels become one";
  let dependentDialects = ["::mlir::disc::PlanDialect"];
}

def HoistUpdates : Pass<"disc-memory-hoist-updates", "::mlir::ModuleOp"> {
  let summary = "Moves updates of state next to the computation of the new value";
}

def PlanBudget : Pass<"disc-memory-plan-budget", "::mlir::ModuleOp"> {
  let summary = "Adds plans of the host flow that recompute values instead of keeping them";
  let dependentDialects = ["::mlir::disc::PlanDialect"];
  let options = [Option<"plans", "plans", "unsigned", /*default=*/"8", "the most plans that are added">];
}

def AssignBuffers : Pass<"disc-memory-assign-buffers", "::mlir::ModuleOp"> {
  let summary = "Decides where each tensor of the host flow is stored, and inserts the copies that this needs";
  let dependentDialects = ["::mlir::disc::PlanDialect"];
}

def PlanArena : Pass<"disc-memory-plan-arena", "::mlir::ModuleOp"> {
  let summary = "Computes lifetimes and offsets of temporaries, and allocates memory where its size is known";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::disc::RtDialect", "::mlir::arith::ArithDialect"];
  let options = [Option<"sanitize", "sanitize", "bool", /*default=*/"false",
                        "red zones between temporaries, and last uses on launches">];
}

def ConvertToRt : Pass<"disc-memory-convert-to-rt", "::mlir::ModuleOp"> {
  let summary = "Replaces functions of the host flow by entries and procedures over pointers";
  let dependentDialects = ["::mlir::disc::RtDialect", "::mlir::arith::ArithDialect"];
  let options = [Option<"sanitize", "sanitize", "bool", /*default=*/"false",
                        "launches tell the runtime what their buffers are">];
}

def CheckSizes : Pass<"disc-memory-check-sizes", "::mlir::ModuleOp"> {
  let summary = "Checks sizes for overflow where the ranges of symbols do not exclude it";
  let dependentDialects = ["::mlir::disc::RtDialect"];
}

def VerifyMemory : Pass<"disc-memory-verify", "::mlir::ModuleOp"> {
  let summary = "Checks the contract of the memory stage";
}

#endif // DISC_TRANSFORMS_MEMORY_PASSES
