//===- NvvmLower.cpp - kernels to the LLVM dialect for NVIDIA -------------===//
//
//   gpu.func @k(...) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
//     %t = gpu.thread_id x ; %n = gpu.block_dim x ; gpu.barrier
// becomes
//   llvm.func @k(...) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 256, 1, 1>} {
//     %t = nvvm.read.ptx.sreg.tid.x range <i32, 0, 256> ; %n = llvm.mlir.constant(256) ; nvvm.barrier0
//
// and where `disc_plan.resident_threads` says how many threads a multiprocessor should have room for, `nvvm.minctasm`.
//
// Upstream makes of `known_block_size` a bound on the block's size; reqntid lets ptxas plan for the size itself.
//
// `nvvm.convert.float.to.tf32` is an addition to the bits here, not the instruction `cvt.rna.tf32`, which needs three
// more instructions because it keeps NaN. Kernels convert only the difference of a number and its upper bits. That is
// NaN for an infinity, which the device writes as 0x7fffffff; the addition makes almost zero of it, as kernels expect.
//
// Lit test: test/lit/NVVM/lower.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/DeviceCode.h"
#include "lib/Target/Common/KernelAttrs.h"
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
      if (auto threads = kernel->getAttrOfType<IntegerAttr>(disc::kResidentThreadsAttr)) {
        if (int64_t blocks = threads.getInt() / kernel.getKnownBlockSizeAttr()[0]; blocks > 1)
          kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), Builder(kernel).getI32IntegerAttr(int32_t(blocks)));
        kernel->removeAttr(disc::kResidentThreadsAttr);
      }
      kernel->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), kernel.getKnownBlockSizeAttr());
      kernel.removeKnownBlockSizeAttr();
    });
    getOperation().walk([](NVVM::ConvertFloatToTF32Op op) {
      OpBuilder b(op);
      Value bits = LLVM::BitcastOp::create(b, op.getLoc(), b.getI32Type(), op.getSrc());
      Value half = LLVM::ConstantOp::create(b, op.getLoc(), b.getI32IntegerAttr(0x1000));
      op.getRes().replaceAllUsesWith(LLVM::AddOp::create(b, op.getLoc(), bits, half).getResult());
      op.erase();
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
