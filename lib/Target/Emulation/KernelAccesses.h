//===- KernelAccesses.h - where a kernel uses memory -----------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_EMULATION_KERNELACCESSES_H
#define DISC_LIB_TARGET_EMULATION_KERNELACCESSES_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::disc {

/// The memory that an address lies in, as far as it can be followed back.
struct MemoryOrigin {
  enum class Kind { None, Any, Private, Argument, Shared };
  Kind kind = Kind::None;
  unsigned argument = 0; ///< Of the kernel.
  StringAttr global;     ///< The array in shared memory.

  bool operator==(const MemoryOrigin &o) const {
    return kind == o.kind && argument == o.argument && global == o.global;
  }
};

/// An operation that reads or writes memory which other threads see.
struct KernelAccess {
  int64_t kind;       ///< enum disc_emulated_kind
  OpOperand *address; ///< A pointer, or a vector of them, one for each lane.
  OpOperand *mask;    ///< Which lanes take part; null: all.
  int64_t lanes;      ///< That have addresses or a mask of their own; 1 if the access is a whole.
  int64_t bytes;      ///< Of a lane.
  int64_t alignment;
  MemoryOrigin origin;
};

/// All of them, in a kernel as `disc-gpu-emit-kernels` makes it. An error for an operation of which it isn't known what
/// memory it uses.
FailureOr<SmallVector<KernelAccess>> findAccesses(gpu::GPUFuncOp kernel);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_EMULATION_KERNELACCESSES_H
