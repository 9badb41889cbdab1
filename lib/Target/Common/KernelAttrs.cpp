//===- KernelAttrs.cpp - what a kernel's function tells the host flow -------===//

#include "lib/Target/Common/KernelAttrs.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::disc;

DictionaryAttr LibraryProductAttrs::toAttr(MLIRContext *context) const {
  Builder b(context);
  NamedAttrList attrs;
  attrs.set("operands", b.getDenseI64ArrayAttr(operands));
  attrs.set("extents", DimsAttr::get(context, extents));
  attrs.set("dtype", b.getI64IntegerAttr(dtype));
  attrs.set("when", ExprAttr::get(context, when));
  attrs.set("a_columns", b.getBoolAttr(aColumns));
  attrs.set("b_columns", b.getBoolAttr(bColumns));
  if (geluTanh)
    attrs.set("gelu_tanh", b.getUnitAttr());
  if (epilogue)
    attrs.set("epilogue", epilogue);
  return attrs.getDictionary(context);
}

LibraryProductAttrs LibraryProductAttrs::fromAttr(DictionaryAttr attr) {
  LibraryProductAttrs out;
  out.operands = llvm::to_vector(attr.getAs<DenseI64ArrayAttr>("operands").asArrayRef());
  out.extents = llvm::to_vector(attr.getAs<DimsAttr>("extents").getDims());
  out.dtype = attr.getAs<IntegerAttr>("dtype").getInt();
  out.when = attr.getAs<ExprAttr>("when").getValue();
  out.aColumns = attr.getAs<BoolAttr>("a_columns").getValue();
  out.bColumns = attr.getAs<BoolAttr>("b_columns").getValue();
  out.geluTanh = attr.contains("gelu_tanh");
  out.epilogue = attr.getAs<FlatSymbolRefAttr>("epilogue");
  return out;
}

DictionaryAttr OrderAttrs::toAttr(MLIRContext *context) const {
  NamedAttrList attrs;
  attrs.set("merge", merge);
  attrs.set("last", last);
  attrs.set("rows", ExprAttr::get(context, rows));
  attrs.set("length", ExprAttr::get(context, length));
  return attrs.getDictionary(context);
}

OrderAttrs OrderAttrs::fromAttr(DictionaryAttr attr) {
  return {attr.getAs<FlatSymbolRefAttr>("merge"), attr.getAs<FlatSymbolRefAttr>("last"),
          attr.getAs<ExprAttr>("rows").getValue(), attr.getAs<ExprAttr>("length").getValue()};
}

DictionaryAttr UpdateAttrs::toAttr(MLIRContext *context) const {
  NamedAttrList attrs;
  attrs.set("result", IntegerAttr::get(IntegerType::get(context, 64), result));
  attrs.set("bytes", ExprAttr::get(context, bytes));
  if (copy)
    attrs.set("copy", copy);
  return attrs.getDictionary(context);
}

UpdateAttrs UpdateAttrs::fromAttr(DictionaryAttr attr) {
  return {attr.getAs<IntegerAttr>("result").getInt(), attr.getAs<ExprAttr>("bytes").getValue(),
          attr.getAs<FlatSymbolRefAttr>("copy")};
}

DictionaryAttr VariantAttrs::toAttr(MLIRContext *context) const {
  NamedAttrList attrs;
  attrs.set("kernel", kernel);
  attrs.set("when", ExprAttr::get(context, when));
  return attrs.getDictionary(context);
}

VariantAttrs VariantAttrs::fromAttr(DictionaryAttr attr) {
  return {attr.getAs<FlatSymbolRefAttr>("kernel"), attr.getAs<ExprAttr>("when").getValue()};
}

DictionaryAttr SplitAttrs::toAttr(MLIRContext *context) const {
  NamedAttrList attrs;
  attrs.set("part", part);
  attrs.set("whole", whole);
  attrs.set("most", ExprAttr::get(context, most));
  attrs.set("values", ExprAttr::get(context, values));
  return attrs.getDictionary(context);
}

SplitAttrs SplitAttrs::fromAttr(DictionaryAttr attr) {
  return {attr.getAs<FlatSymbolRefAttr>("part"), attr.getAs<FlatSymbolRefAttr>("whole"),
          attr.getAs<ExprAttr>("most").getValue(), attr.getAs<ExprAttr>("values").getValue()};
}
