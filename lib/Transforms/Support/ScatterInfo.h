//===- ScatterInfo.h - what a call of "scatter" does ---------------*- C++ -*-===//
#ifndef DISC_LIB_TRANSFORMS_SUPPORT_SCATTERINFO_H
#define DISC_LIB_TRANSFORMS_SUPPORT_SCATTERINFO_H

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"

namespace mlir::disc {

/// The numbers of its `config`, as lib/Runtime/Functions/Scatter.cpp says them.
struct ScatterInfo {
  enum Operation : int64_t { Set, Add, Multiply, Minimum, Maximum };
  /// Where in the config it says whether the first operand is the target's old value.
  static constexpr unsigned kHasSelf = 2;

  int64_t dtype; // enum disc_dtype
  Operation operation;
  bool hasSelf;
  int64_t fill;                        // an integer, or the bits of a double
  bool wrap;                           // negative indices count from the end
  SmallVector<int64_t> loops, indices; // the target's dim of each, or -1 for a loop along none

  /// Nothing if they are not constant, or do not fit the operands.
  static std::optional<ScatterInfo> get(CallFunctionOp op, ShapeAnalysis &shapes);
};

} // namespace mlir::disc

#endif // DISC_LIB_TRANSFORMS_SUPPORT_SCATTERINFO_H
