//===- LibraryProduct.h - products that a device's library may do ---*- C++ -*-===//
//
// Large products go to cuBLASLt or hipBLASLt where those are found at run time. The kernel that does all of the work
// stays beside the call, for small products and where there is no library.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_GPU_LIBRARYPRODUCT_H
#define DISC_LIB_TARGET_GPU_LIBRARYPRODUCT_H

#include "lib/Target/Common/KernelAttrs.h"
#include "lib/Target/GPU/DeviceKernel.h"
#include "lib/Transforms/Schedule/ContractionInfo.h"

namespace mlir::disc {

struct LibraryProduct {
  /// As the fields of LibraryProductAttr.
  SmallVector<int64_t> operands;
  SmallVector<SymExpr> extents;
  int64_t dtype = 0;
  SymExpr when;
  bool aColumns = false, bColumns = false, geluTanh = false;
  /// The tensor that the library makes: the sums, or what follows from them.
  Value origin;
  /// Nothing is left to do.
  bool isWhole = false;

  LibraryProductAttr attr(MLIRContext *context, FlatSymbolRefAttr epilogue) const {
    return LibraryProductAttr::get(context, DenseI64ArrayAttr::get(context, operands), DimsAttr::get(context, extents),
                                   dtype, ExprAttr::get(context, when), aColumns, bColumns, geluTanh, epilogue);
  }
};

/// The product of a contraction kernel as a library would do it; nothing if none could: its matrices have gaps, or the
/// kernel's one result is not where the sums would lie.
std::optional<LibraryProduct> libraryProduct(KernelFuncOp kernel, ShapeAnalysis &shapes);

/// What the kernel does with what the library made, which lies in its result's buffer.
LogicalResult emitDeviceEpilogue(DeviceKernel &k, const LibraryProduct &product);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_LIBRARYPRODUCT_H
