//===- EmitCode.cpp - LLVM modules to code --------------------------------===//

#include "lib/Target/Common/EmitCode.h"

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

llvm::CodeGenOptLevel mlir::disc::codegenLevel(int optLevel) {
  switch (optLevel) {
  case 0:
    return llvm::CodeGenOptLevel::None;
  case 1:
    return llvm::CodeGenOptLevel::Less;
  case 2:
    return llvm::CodeGenOptLevel::Default;
  default:
    return llvm::CodeGenOptLevel::Aggressive;
  }
}

static llvm::OptimizationLevel pipelineLevel(int optLevel) {
  switch (optLevel) {
  case 0:
    return llvm::OptimizationLevel::O0;
  case 1:
    return llvm::OptimizationLevel::O1;
  case 2:
    return llvm::OptimizationLevel::O2;
  default:
    return llvm::OptimizationLevel::O3;
  }
}

void mlir::disc::optimizeModule(llvm::Module &module, llvm::TargetMachine &machine, int optLevel,
                                const std::atomic<bool> *cancelled) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopInterleaving = false;

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassInstrumentationCallbacks callbacks;
  if (cancelled)
    callbacks.registerShouldRunOptionalPassCallback(
        [cancelled](llvm::StringRef, llvm::Any) { return !cancelled->load(std::memory_order_relaxed); });
  llvm::PassBuilder builder(&machine, tuning, std::nullopt, &callbacks);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes = optLevel == 0 ? builder.buildO0DefaultPipeline(llvm::OptimizationLevel::O0)
                                                 : builder.buildPerModuleDefaultPipeline(pipelineLevel(optLevel));
  passes.run(module, modules);
}

llvm::Error mlir::disc::emitCode(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type,
                                 llvm::SmallVectorImpl<char> &out) {
  llvm::raw_svector_ostream os(out);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, os, nullptr, type))
    return llvm::createStringError(llvm::inconvertibleErrorCode(), "the target can't emit this kind of file");
  passes.run(module);
  return llvm::Error::success();
}
