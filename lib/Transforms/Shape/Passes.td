//===- Passes.td - passes of the shape stage ---------------*- tablegen -*-===//

#ifndef DISC_TRANSFORMS_SHAPE_PASSES
#define DISC_TRANSFORMS_SHAPE_PASSES

include "mlir/Pass/PassBase.td"

def Propagate : Pass<"disc-shape-propagate", "::mlir::ModuleOp"> {
  let summary = "Gives each extent its one canonical form";
  let description = [{
    Every index computation that is an expression over symbols, `tensor.dim`
    included, becomes the one `disc_shape.dim` of that expression at the top of
    its function. Every operation with a dynamic tensor result gets
    `disc_shape.dims`. What operations demand of their operands' extents and
    cannot be proved becomes a `disc_shape.require`.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::disc::ShapeDialect"
  ];
}

def Discharge : Pass<"disc-shape-discharge", "::mlir::ModuleOp"> {
  let summary = "Proves requirements, or moves them to the entry as guards";
  let description = [{
    A `disc_shape.require` that always holds vanishes; one that never holds, or
    that depends on data, is an error; any other becomes a `disc_shape.guard`
    at the top of the function, a fact from there on.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::disc::ShapeDialect"
  ];
}

def VerifyShape : Pass<"disc-shape-verify", "::mlir::ModuleOp"> {
  let summary = "Checks the contract of the shape stage";
  let description = [{
    (V1) no `tensor.dim` is left whose extent is an expression over symbols.
    (V2) no `disc_shape.require` is left.
    (V3) every operation with a dynamic tensor result has `disc_shape.dims`.
    (V4) every dynamic size given to an operation is a `disc_shape.dim` or a
    constant.
    (V5) a function has one `disc_shape.dim` per expression.
    (V6) every argument of `main` with dynamic extents has `disc_shape.dims`.
    (V7) what operations demand of their operands' extents is proved.
    (V8) a symbol is bound once, and is none of those that arguments name.
  }];
}

#endif // DISC_TRANSFORMS_SHAPE_PASSES
