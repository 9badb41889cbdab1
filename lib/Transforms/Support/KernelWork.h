//===- KernelWork.h - What a kernel computes, reads and writes --*- C++ -*-===//
//
// The numbers that a roofline needs, at some values of the symbols: how many scalar operations a kernel's description
// has, and how many bytes of its buffers it touches. They are properties of the description, the same for every
// schedule: what a tile reads twice counts once.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_SUPPORT_KERNELWORK_H
#define DISC_TRANSFORMS_SUPPORT_KERNELWORK_H

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

/// Counts; nothing where an extent has no value or the number does not fit 64 bits.
struct KernelWork {
  /// Additions, products, comparisons, calls of math functions: one each. Index arithmetic, conversions and constants
  /// do not count.
  std::optional<int64_t> operations;
  /// Each operand's elements once, those that a stride of zero repeats not again; of an operand that is read at
  /// computed positions no more than the number of reads.
  std::optional<int64_t> readBytes;
  /// The results.
  std::optional<int64_t> writtenBytes;
};

KernelWork measureWork(KernelFuncOp kernel, ShapeAnalysis &shapes,
                       function_ref<std::optional<int64_t>(StringRef)> symbol);

/// The places in files of the operations that `kernel` contains and then of its own location, as "file:line", each
/// once.
SmallVector<std::string> sourceLines(KernelFuncOp kernel);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_KERNELWORK_H
