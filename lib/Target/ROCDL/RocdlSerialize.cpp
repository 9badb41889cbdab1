//===- RocdlSerialize.cpp - GPU modules to code objects -------------------===//
//
//   gpu.module @kernels { llvm.func @k(...) attributes {rocdl.kernel, ...} {...} }
// becomes
//   gpu.binary @kernels [
//     #gpu.object<#rocdl.target<O = 3, chip = "gfx90a", abi = "500">, kernels = ..., bin = "...">, ...]
//
// Lit tests: test/lit/ROCDL/serialize.mlir, test/lit/ROCDL/isa*.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/DeviceCode.h"
#include "lib/Target/ROCDL/CodeObject.h"
#include "lib/Target/ROCDL/Passes.h"

#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/TargetSelect.h"

#include <mutex>

namespace mlir::disc {
#define GEN_PASS_DEF_ROCDLSERIALIZE
#include "lib/Target/ROCDL/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

static constexpr StringLiteral kTriple = "amdgcn-amd-amdhsa";

static void initializeTarget() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmPrinter();
  });
}

static void adapt(llvm::Module &module) {
  // Version 5 is what every ROCm since 5.5 loads.
  module.addModuleFlag(llvm::Module::Error, "amdhsa_code_object_version", 500);
  llvm::LLVMContext &context = module.getContext();
  llvm::MDNode *none = llvm::MDNode::get(context, {});
  for (llvm::Function &function : module) {
    if (function.getCallingConv() == llvm::CallingConv::AMDGPU_KERNEL)
      function.addFnAttr("uniform-work-group-size", "true"); // grids are whole blocks
    // Buffers lie in the device's own memory, which no other device looks at: atomics are one instruction each.
    for (llvm::Instruction &instruction : llvm::instructions(function)) {
      auto *atomic = llvm::dyn_cast<llvm::AtomicRMWInst>(&instruction);
      if (!atomic)
        continue;
      atomic->setSyncScopeID(context.getOrInsertSyncScopeID("agent"));
      atomic->setMetadata("amdgpu.no.fine.grained.memory", none);
      atomic->setMetadata("amdgpu.no.remote.memory", none);
    }
  }
}

namespace {
struct RocdlSerialize : disc::impl::RocdlSerializeBase<RocdlSerialize> {
  using RocdlSerializeBase::RocdlSerializeBase;

  void runOnOperation() override {
    initializeTarget();
    SmallVector<gpu::GPUModuleOp> modules(getOperation().getOps<gpu::GPUModuleOp>());
    if (modules.empty())
      return;
    auto archs = deviceArchs(getOperation(), kTriple, arch);
    if (failed(archs))
      return signalPassFailure();
    for (gpu::GPUModuleOp module : modules) {
      SmallVector<Attribute> objects;
      for (const std::string &chip : *archs) {
        gpu::ObjectAttr object = image(module, chip);
        if (!object)
          return signalPassFailure();
        objects.push_back(object);
      }
      replaceByBinary(module, objects);
    }
  }

  /// Null, with a diagnostic, where that fails.
  gpu::ObjectAttr image(gpu::GPUModuleOp module, StringRef chip) {
    auto type = assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
    FailureOr<std::string> code = compileForDevice(module, kTriple, chip, type, adapt);
    if (failed(code))
      return {};
    auto target = ROCDL::ROCDLTargetAttr::get(&getContext(), /*optLevel=*/3, kTriple, chip, "", "500");
    if (assembly)
      return imageAttr(module, target, gpu::CompilationTarget::Assembly, *code, {});
    llvm::Expected<std::string> linked = linkCodeObject(*code);
    if (!linked) {
      module.emitError(llvm::toString(linked.takeError()));
      return {};
    }
    llvm::Expected<KernelResources> resources = readCodeObject(*linked);
    if (!resources) {
      module.emitError(chip) << ": " << llvm::toString(resources.takeError());
      return {};
    }
    return imageAttr(module, target, gpu::CompilationTarget::Binary, *linked, *resources);
  }
};
} // namespace
