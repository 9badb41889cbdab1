//===- Passes.td - passes of the fusion stage --------------------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_FUSION_PASSES
#define DISC_TRANSFORMS_FUSION_PASSES

include "mlir/Pass/PassBase.td"

def LowerExternCalls : Pass<"disc-fusion-lower-extern-calls", "::mlir::ModuleOp"> {
  let summary = "Makes calls of back ends calls of the runtime's function for regions";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::disc::TensorDialect"];
}

def RecognizeAttention : Pass<"disc-fusion-recognize-attention", "::mlir::ModuleOp"> {
  let summary = "Makes one operation of attention that is spelled out as products around a softmax";
  let dependentDialects = ["::mlir::disc::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def GroupQueries : Pass<"disc-fusion-group-queries", "::mlir::ModuleOp"> {
  let summary = "Heads of queries that share repeated keys and values become a dimension that these are broadcast along";
}

def ChannelsLast : Pass<"disc-fusion-channels-last", "::mlir::ModuleOp"> {
  let summary = "Moves permutations between convolutions out to the borders: what lies between has its channels last";
  let dependentDialects = ["::mlir::disc::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def FoldScales : Pass<"disc-fusion-fold-scales", "::mlir::ModuleOp"> {
  let summary = "Folds scales of channels after convolutions and products (batch norm) into weights, at load";
  let dependentDialects = ["::mlir::disc::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect"];
}

def RaiseReshapes : Pass<"disc-fusion-raise-reshapes", "::mlir::ModuleOp"> {
  let summary = "Moves reshapes that split dimensions before computations, to where the dimensions were merged";
  let dependentDialects = ["::mlir::disc::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def FoldViews : Pass<"disc-fusion-fold-views", "::mlir::ModuleOp"> {
  let summary = "Folds views into the indexing maps of their users, and copies where no layout can express a view";
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def IntegerProducts : Pass<"disc-fusion-integer-products", "::mlir::ModuleOp"> {
  let summary = "Makes products of quantised tensors products of their codes, with exact sums";
  let dependentDialects = ["::mlir::disc::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect"];
}

def IntegerConvolutions : Pass<"disc-fusion-integer-convolutions", "::mlir::ModuleOp"> {
  let summary = "Makes convolutions of quantised tensors convolutions of their codes, with exact sums";
  let dependentDialects = ["::mlir::disc::PlanDialect", "::mlir::disc::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect"];
}

def FormKernels : Pass<"disc-fusion-form-kernels", "::mlir::ModuleOp"> {
  let summary = "Groups computations into kernels, deciding from the symbolic shapes alone";
  let description = [{
    Every operation that computes on tensors lies in exactly one `disc_plan.kernel` afterwards, which records its kind
    and the reason for what it holds.
  }];
  let dependentDialects = ["::mlir::disc::PlanDialect"];
  let options = [
    Option<"manyProducts", "many-products", "bool", "true", "let a kernel have several products of one left operand">,
    Option<"fuseConcats", "fuse-concats", "bool", "false", "let loops have concatenations, asked for point by point">,
  ];
}

def MergeProducts : Pass<"disc-fusion-merge-products", "::mlir::ModuleOp"> {
  let summary = "Makes one kernel of products that share their left operand";
  let dependentDialects = ["::mlir::disc::PlanDialect"];
  let options = [
    Option<"onlyF32", "only-f32", "bool", "false", "leave products of many rows of other types to libraries that do one at a time">,
  ];
}

def VerifyFusion : Pass<"disc-fusion-verify", "::mlir::ModuleOp"> {
  let summary = "Checks the contract of the fusion stage";
}

#endif // DISC_TRANSFORMS_FUSION_PASSES
