//===- Passes.td - passes of the schedule stage ------------------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_SCHEDULE_PASSES
#define DISC_TRANSFORMS_SCHEDULE_PASSES

include "mlir/Pass/PassBase.td"

def HoistParameters : Pass<"disc-schedule-hoist-parameters", "::mlir::ModuleOp"> {
  let summary = "Moves work that depends on parameters alone into @init";
  let dependentDialects = ["::mlir::disc::PlanDialect"];
}

def Winograd : Pass<"disc-schedule-winograd", "::mlir::ModuleOp"> {
  let summary = "Convolutions by 3 x 3 kernels that are known at load in fewer multiplications";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::disc::TensorDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
  let options = [
    Option<"precision", "precision", "std::string", "\"f32\"",
           "with bf16 convolutions stay what they are where the target multiplies tiles of bf16, which is faster">,
  ];
}

def PackWeights : Pass<"disc-schedule-pack-weights", "::mlir::ModuleOp"> {
  let summary = "Stores right-hand sides of contractions that are known at load in panels";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::disc::TensorDialect", "::mlir::arith::ArithDialect"];
  let options = [
    Option<"precision", "precision", "std::string", "\"f32\"",
           "what f32 weights are kept as: f32, or bf16, which products widen as they read or multiply">,
  ];
}

def FuseRounding : Pass<"disc-schedule-fuse-rounding", "::mlir::ModuleOp"> {
  let summary = "Fuses the rounding of a left operand of products into the kernel that computes it";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def PackFragments : Pass<"disc-schedule-pack-fragments", "::mlir::ModuleOp"> {
  let summary = "Stores quantised weights of contractions in the order in which a device's matrix unit reads them";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::disc::TensorDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def ScheduleKernels : Pass<"disc-schedule-kernels", "::mlir::ModuleOp"> {
  let summary = "Chooses tiles, task grid, scratch and cost of each kernel";
  let description = [{
    The choice depends on the kernel's kind, on symbolic extents and on the module's `disc_plan.target`.
  }];
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::disc::ShapeDialect"];
}

def ScheduleBlocks : Pass<"disc-schedule-blocks", "::mlir::ModuleOp"> {
  let summary = "Maps each kernel to blocks of threads";
  let description = [{
    In place of `disc-schedule-kernels`, for devices that run kernels as grids of blocks. Warps are as wide as the
    module's `disc_plan.target` says.
  }];
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::disc::ShapeDialect"];
}

def VerifySchedule : Pass<"disc-schedule-verify", "::mlir::ModuleOp"> {
  let summary = "Checks the contract of the schedule stage";
}

#endif // DISC_TRANSFORMS_SCHEDULE_PASSES
