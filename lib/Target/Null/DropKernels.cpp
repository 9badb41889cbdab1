//===- DropKernels.cpp - kernels that nothing runs ------------------------===//
//
//   gpu.module @kernels { gpu.func @k(...) kernel {...} }
//   disc_rt.device_kernel @k threads 256 [reads, writes, number]
// becomes
//   disc_rt.device_kernel @k threads 256 [reads, writes, number]
//
// The host flow of such a model does all that it does for a device: it checks inputs, plans memory, launches. What a
// call costs without its kernels is measured so, and a new device begins as a copy of this.
//
// Lit test: test/lit/Null/drop-kernels.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Null/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::disc {
#define GEN_PASS_DEF_DROPKERNELS
#include "lib/Target/Null/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;

namespace {
struct DropKernels : disc::impl::DropKernelsBase<DropKernels> {
  void runOnOperation() override {
    for (auto kernels : llvm::make_early_inc_range(getOperation().getOps<gpu::GPUModuleOp>()))
      kernels.erase();
  }
};
} // namespace
