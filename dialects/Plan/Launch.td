//===- Launch.td - what launches of a device's kernel need -------*- tablegen -*-===//
//
// Attributes of a kernel's function, which lib/Target/GPU sets and lib/Target/Host reads
// (lib/Target/Common/KernelAttrs.h has their names). `@kernel` are other kernels of the device.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_PLAN_LAUNCH
#define DISC_DIALECTS_PLAN_LAUNCH

class Plan_Launch<string name, string attr> : AttrDef<Plan_Dialect, name> {
  let mnemonic = attr;
  let assemblyFormat = "`<` struct(params) `>`";
}

def Plan_KernelVariantAttr : Plan_Launch<"KernelVariant", "kernel_variant"> {
  let summary = "a kernel that runs in the place of another one where `when` is positive";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$kernel, "::mlir::disc::ExprAttr":$when);
}

def Plan_OrderAttr : Plan_Launch<"Order", "order"> {
  let summary = "the other kernels of a call that puts things in order: each of `rows` rows of `length` things apart";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$merge, "::mlir::FlatSymbolRefAttr":$last,
                        "::mlir::disc::ExprAttr":$rows, "::mlir::disc::ExprAttr":$length);
}

def Plan_SplitAttr : Plan_Launch<"Split", "split"> {
  let summary = "the kernels that do the same in parts, of which there are at most so many";
  let description = "`values` is how many numbers there are of each part.";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$part, "::mlir::FlatSymbolRefAttr":$whole,
                        "::mlir::disc::ExprAttr":$most, "::mlir::disc::ExprAttr":$values);
}

def Plan_UpdateAttr : Plan_Launch<"Update", "update"> {
  let summary = "how the first operand comes to be where the kernel changes it";
  let description = [{
    `result` is which of the kernel's buffers is the first result, `bytes` its size, `copy` the kernel that copies;
    without one both are dense, and may be one.
  }];
  let parameters = (ins "int64_t":$result, "::mlir::disc::ExprAttr":$bytes,
                        OptionalParameter<"::mlir::FlatSymbolRefAttr">:$copy);
}

def Plan_LibraryProductAttr : Plan_Launch<"LibraryProduct", "library_product"> {
  let summary = "a product of matrices c = a * b that a library may compute, as disc_device_product says it";
  let description = [{
    `operands` are which of the kernel's buffers are a, b, c and, if there is one, the bias; `extents` batch, m, n, k,
    and elements from a batch's matrix to the next in a, b, c; `dtype` is an enum disc_dtype. The library is asked where
    `when` is positive. `gelu_tanh`: of the sum with the bias. `epilogue` is the kernel that does the rest.

    (P11) there are three or four operands, and seven extents.
  }];
  let parameters = (ins "::mlir::DenseI64ArrayAttr":$operands, "::mlir::disc::DimsAttr":$extents, "int64_t":$dtype,
                        "::mlir::disc::ExprAttr":$when, "bool":$a_columns, "bool":$b_columns,
                        DefaultValuedParameter<"bool", "false">:$gelu_tanh,
                        OptionalParameter<"::mlir::FlatSymbolRefAttr">:$epilogue);
  let genVerifyDecl = 1;
}

#endif // DISC_DIALECTS_PLAN_LAUNCH
