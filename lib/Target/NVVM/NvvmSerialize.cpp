//===- NvvmSerialize.cpp - GPU modules to cubins and PTX ------------------===//
//
//   gpu.module @kernels { llvm.func @k(...) attributes {nvvm.kernel, ...} {...} }
// becomes
//   gpu.binary @kernels [
//     #gpu.object<#nvvm.target<O = 3, chip = "sm_90">, kernels = <[#gpu.kernel_metadata<"k", ...>]>, bin = "...">,
//     #gpu.object<#nvvm.target<O = 3, chip = "sm_80">, kernels = ..., assembly = "...">]
//
// `nvvm.griddepcontrol` is for chips from sm_90 on; code for others is without it. Where all kernels wait for those
// before them, the image says so: `properties = {early = true}`. A launch may then begin before its turn.
//
// Lit tests: test/lit/NVVM/early.mlir, test/lit/NVVM/serialize.mlir, test/lit/NVVM/ptx*.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/DeviceCode.h"
#include "lib/Target/NVVM/Passes.h"
#include "lib/Target/NVVM/Ptxas.h"

#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
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

/// The first chip on which kernels can start before those that they wait for have finished.
static constexpr unsigned kFirstEarly = 90;

/// Whether all kernels wait for those before them.
static bool startsEarly(gpu::GPUModuleOp module) {
  return llvm::all_of(module.getOps<LLVM::LLVMFuncOp>(), [](LLVM::LLVMFuncOp function) {
    if (!function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()))
      return true;
    return function
        .walk([](NVVM::GriddepcontrolOp op) {
          return op.getKind() == NVVM::GridDepActionKind::wait ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  });
}

static void eraseEarlyStarts(llvm::Module &code) {
  for (llvm::Function &function : llvm::make_early_inc_range(code)) {
    llvm::Intrinsic::ID id = function.getIntrinsicID();
    if (id != llvm::Intrinsic::nvvm_griddepcontrol_wait && id != llvm::Intrinsic::nvvm_griddepcontrol_launch_dependents)
      continue;
    for (llvm::User *user : llvm::make_early_inc_range(function.users()))
      cast<llvm::CallInst>(user)->eraseFromParent();
    function.eraseFromParent();
  }
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
      bool isEarly = startsEarly(module) && numberOf(chip) >= kFirstEarly;
      FailureOr<std::string> ptx =
          compileForDevice(module, kTriple, chip, llvm::CodeGenFileType::AssemblyFile, [&](llvm::Module &code) {
            if (!isEarly)
              eraseEarlyStarts(code);
          });
      if (failed(ptx))
        return failure();
      auto target = NVVM::NVVMTargetAttr::get(&getContext(), /*optLevel=*/3, kTriple, chip);
      if (!assembler.empty()) {
        llvm::Expected<Cubin> made = runPtxas(assembler, *ptx, chip);
        if (!made)
          return module.emitError(llvm::toString(made.takeError()));
        objects.push_back(
            imageAttr(module, target, gpu::CompilationTarget::Binary, made->image, made->resources, isEarly));
      }
      if (portable)
        objects.push_back(imageAttr(module, target, gpu::CompilationTarget::Assembly, *ptx, {}, isEarly));
    }
    replaceByBinary(module, objects);
    return success();
  }
};
} // namespace
