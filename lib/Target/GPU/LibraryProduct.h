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
  LibraryProductAttrs attrs; // but for the name of the kernel of what is left
  Value origin;              // the tensor that the library makes: the sums, or what follows from them
  bool isWhole = false;      // nothing is left to do
};

/// The product of a contraction kernel as a library would do it; nothing if none could: its matrices have gaps, or the
/// kernel's one result is not where the sums would lie.
std::optional<LibraryProduct> libraryProduct(KernelFuncOp kernel, ShapeAnalysis &shapes);

/// What the kernel does with what the library made, which lies in its result's buffer.
LogicalResult emitDeviceEpilogue(DeviceKernel &k, const LibraryProduct &product);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_LIBRARYPRODUCT_H
