//===- NvvmSerialize.cpp - GPU modules to cubins and PTX ------------------===//
//
//   gpu.module @kernels { llvm.func @k(...) attributes {nvvm.kernel, ...} {...} }
// becomes
//   gpu.binary @kernels [
//     #gpu.object<#nvvm.target<O = 3, chip = "sm_90">, kernels = <[#gpu.kernel_metadata<"k", ...>]>, bin = "...">,
//     #gpu.object<#nvvm.target<O = 3, chip = "sm_80">, kernels = ..., assembly = "...">]
//
// Lit tests: test/lit/NVVM/serialize.mlir, test/lit/NVVM/ptx*.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/DeviceCode.h"
#include "lib/Target/NVVM/Passes.h"
#include "lib/Target/NVVM/Ptxas.h"

#include "llvm/IR/Module.h"
#include "llvm/Support/TargetSelect.h"

#include <mutex>

namespace mlir::disc {
#define GEN_PASS_DEF_NVVMSERIALIZE
#include "lib/Target/NVVM/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

static constexpr StringLiteral kTriple = "nvptx64-nvidia-cuda";

static void initializeTarget() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

/// The number of sm_80, sm_90a, ...
static unsigned numberOf(StringRef arch) {
  unsigned number = 0;
  arch.consume_front("sm_");
  arch.consumeInteger(10, number);
  return number;
}

namespace {
struct NvvmSerialize : disc::impl::NvvmSerializeBase<NvvmSerialize> {
  using NvvmSerializeBase::NvvmSerializeBase;

  void runOnOperation() override {
    initializeTarget();
    SmallVector<gpu::GPUModuleOp> modules(getOperation().getOps<gpu::GPUModuleOp>());
    if (modules.empty())
      return;
    auto archs = deviceArchs(getOperation(), kTriple, arch);
    if (failed(archs))
      return signalPassFailure();
    std::string assembler;
    if (cubin) {
      llvm::Expected<std::string> found = findPtxas(ptxas);
      if (!found) {
        getOperation().emitError("ptxas: ") << llvm::toString(found.takeError());
        return signalPassFailure();
      }
      assembler = *found;
    }
    for (gpu::GPUModuleOp module : modules)
      if (failed(serialize(module, *archs, assembler)))
        return signalPassFailure();
  }

  LogicalResult serialize(gpu::GPUModuleOp module, ArrayRef<std::string> archs, StringRef assembler) {
    auto lowest = llvm::min_element(archs, [](auto &x, auto &y) { return numberOf(x) < numberOf(y); });
    SmallVector<Attribute> objects;
    for (const std::string &chip : archs) {
      bool portable = chip == *lowest;
      if (assembler.empty() && !portable)
        continue; // drivers compile the PTX of the lowest
      FailureOr<std::string> ptx =
          compileForDevice(module, kTriple, chip, llvm::CodeGenFileType::AssemblyFile, [](llvm::Module &) {});
      if (failed(ptx))
        return failure();
      auto target = NVVM::NVVMTargetAttr::get(&getContext(), /*optLevel=*/3, kTriple, chip);
      if (!assembler.empty()) {
        llvm::Expected<Cubin> made = runPtxas(assembler, *ptx, chip);
        if (!made)
          return module.emitError(llvm::toString(made.takeError()));
        objects.push_back(imageAttr(module, target, gpu::CompilationTarget::Binary, made->image, made->resources));
      }
      if (portable)
        objects.push_back(imageAttr(module, target, gpu::CompilationTarget::Assembly, *ptx, {}));
    }
    replaceByBinary(module, objects);
    return success();
  }
};
} // namespace
