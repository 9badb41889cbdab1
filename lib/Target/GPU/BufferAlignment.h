//===- BufferAlignment.h - where buffers of kernels begin -----------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_GPU_BUFFERALIGNMENT_H
#define DISC_LIB_TARGET_GPU_BUFFERALIGNMENT_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

/// Of each operand and result, a number of bytes that its address is a multiple of in all launches.
SmallVector<int64_t> bufferAlignments(KernelFuncOp kernel, ShapeAnalysis &shapes);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_BUFFERALIGNMENT_H
