//===- Codegen.cpp - LLVM dialect to an object in memory ------------------===//

#include "lib/Target/Driver/Codegen.h"
#include "lib/Target/Driver/HostTarget.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Target/LLVMIR/ModuleTranslation.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/Cloning.h"

#include <chrono>

using namespace mlir;
using namespace mlir::disc;

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

static llvm::CodeGenOptLevel codegenLevel(int optLevel) {
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

static llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createTargetMachine(const HostTarget &target,
                                                                                int optLevel) {
  llvm::Triple triple(target.triple);
  std::string error;
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!backend)
    return makeError(error);
  // Position independent: the JIT places code far from the runtime, and a
  // library needs it anyway.
  std::unique_ptr<llvm::TargetMachine> machine(
      backend->createTargetMachine(triple, target.cpu, target.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
                                   std::nullopt, codegenLevel(optLevel), /*JIT=*/false));
  if (!machine)
    return makeError("no code generator for " + target.triple);
  return machine;
}

/// Facts that hold for all code we generate.
static void addFunctionAttributes(llvm::Module &module, const HostTarget &target) {
  for (llvm::Function &function : module) {
    function.addFnAttr(llvm::Attribute::NoUnwind);
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", target.cpu);
    function.addFnAttr("target-features", target.features);
    // Tuning for some AVX-512 machines prefers 256 bits; the schedules chose
    // the width already.
    function.addFnAttr("prefer-vector-width", std::to_string(target.vectorBits));
    // perf walks stacks through frame pointers.
    function.addFnAttr("frame-pointer", "non-leaf");
  }
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine, int optLevel) {
  // Kernels arrive vectorised and register-tiled: searching them for more
  // vector parallelism costs compile time and finds nothing.
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopInterleaving = false;

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes = optLevel == 0 ? builder.buildO0DefaultPipeline(llvm::OptimizationLevel::O0)
                                                 : builder.buildPerModuleDefaultPipeline(pipelineLevel(optLevel));
  passes.run(module, modules);
}

static llvm::Error emit(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type,
                        SmallVectorImpl<char> &out) {
  llvm::raw_svector_ostream os(out);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, os, nullptr, type))
    return makeError("the target can't emit this kind of file");
  passes.run(module);
  return llvm::Error::success();
}

static void dump(const std::string &path, StringRef content) {
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  if (!error)
    os << content;
}

static void dump(const std::string &path, llvm::Module &module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os, nullptr);
  dump(path, text);
}

namespace {
class Stopwatch {
public:
  double lap() {
    auto now = std::chrono::steady_clock::now();
    double seconds = std::chrono::duration<double>(now - start).count();
    start = now;
    return seconds;
  }

private:
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};
} // namespace

llvm::Expected<ObjectCode> mlir::disc::compileToObject(ModuleOp module, const CodegenOptions &options,
                                                       CodegenTimes *times) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::InitializeNativeTargetAsmParser();
  CodegenTimes ignored;
  CodegenTimes &spent = times ? *times : ignored;

  HostTarget target = getHostTarget(module);
  auto machine = createTargetMachine(target, options.optLevel);
  if (!machine)
    return machine.takeError();

  Stopwatch watch;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule = translateModuleToLLVMIR(module, context, "disc");
  if (!llvmModule)
    return makeError("translation to LLVM IR failed");
  llvmModule->setTargetTriple(llvm::Triple(target.triple));
  llvmModule->setDataLayout((*machine)->createDataLayout());
  addFunctionAttributes(*llvmModule, target);
  spent.translate += watch.lap();

  if (!options.dumpPrefix.empty())
    dump(options.dumpPrefix + ".ll", *llvmModule);
  watch.lap();
  optimize(*llvmModule, **machine, options.optLevel);
  spent.optimize += watch.lap();

  if (!options.dumpPrefix.empty()) {
    dump(options.dumpPrefix + ".opt.ll", *llvmModule);
    // Emitting changes the module, so the listing is made from a copy's run
    // only when asked for.
    SmallVector<char, 0> text;
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(*llvmModule);
    if (llvm::Error error = emit(*copy, **machine, llvm::CodeGenFileType::AssemblyFile, text))
      return error;
    dump(options.dumpPrefix + ".s", StringRef(text.data(), text.size()));
  }
  watch.lap();
  SmallVector<char, 0> bytes;
  if (llvm::Error error = emit(*llvmModule, **machine, llvm::CodeGenFileType::ObjectFile, bytes))
    return error;
  spent.emit += watch.lap();

  ObjectCode objects;
  objects.push_back(
      std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes), "disc.o", /*RequiresNullTerminator=*/false));
  return objects;
}
