//===- NvvmLower.cpp - kernels to the LLVM dialect for NVIDIA -------------===//
//
//   gpu.func @k(...) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
//     %t = gpu.thread_id x ; %n = gpu.block_dim x ; gpu.barrier
// becomes
//   llvm.func @k(...) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 256, 1, 1>} {
//     %t = nvvm.read.ptx.sreg.tid.x range <i32, 0, 256> ; %n = llvm.mlir.constant(256) ; nvvm.barrier0
//
// Upstream makes of `known_block_size` a bound on the block's size; reqntid lets ptxas plan for the size itself.
//
// Lit test: test/lit/NVVM/lower.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/DeviceCode.h"
#include "lib/Target/NVVM/Passes.h"

#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"

namespace mlir::disc {
#define GEN_PASS_DEF_NVVMLOWER
#include "lib/Target/NVVM/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;

namespace {
struct NvvmLower : disc::impl::NvvmLowerBase<NvvmLower> {
  void runOnOperation() override {
    if (failed(disc::prepareKernels(getOperation())))
      return signalPassFailure();
    getOperation().walk([](gpu::GPUFuncOp kernel) {
      kernel->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), kernel.getKnownBlockSizeAttr());
      kernel.removeKnownBlockSizeAttr();
    });
    for (auto module : getOperation().getOps<gpu::GPUModuleOp>())
      if (failed(disc::convertKernels(module, [](LLVMTypeConverter &types, RewritePatternSet &patterns) {
            configureGpuToNVVMTypeConverter(types);
            populateGpuToNVVMConversionPatterns(types, patterns);
          })))
        return signalPassFailure();
  }
};
} // namespace
