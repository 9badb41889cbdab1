//===- ShapeInterfaces.td - how operations tell their extents ---*- tablegen -*-===//

#ifndef DISC_DIALECTS_SHAPE_INTERFACES
#define DISC_DIALECTS_SHAPE_INTERFACES

include "mlir/IR/OpBase.td"

def DimsOpInterface : OpInterface<"DimsOpInterface"> {
  let cppNamespace = "::mlir::disc";
  let description = [{
    The extents of an operation's tensor results, from those of its operands.
    `query` answers for other values: `query.dims(tensor)` and
    `query.expr(index)`. Static dimensions of the result type need not be
    right: the caller overrides them with the type's.
  }];
  let methods = [
    InterfaceMethod<
      "One expression per dimension of the ranked tensor result `index`.",
      "::llvm::SmallVector<::mlir::disc::SymExpr>", "getResultDims",
      (ins "unsigned":$index, "::mlir::disc::DimsQuery &":$query)>,
    InterfaceMethod<
      "The extents of an argument of one of the operation's regions; nothing "
      "if the operation does not know them.",
      "::std::optional<::llvm::SmallVector<::mlir::disc::SymExpr>>",
      "getRegionArgDims",
      (ins "::mlir::BlockArgument":$arg, "::mlir::disc::DimsQuery &":$query),
      /*methodBody=*/"", /*defaultImplementation=*/"return std::nullopt;">
  ];
}

#endif // DISC_DIALECTS_SHAPE_INTERFACES
