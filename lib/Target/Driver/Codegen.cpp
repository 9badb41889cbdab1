//===- Codegen.cpp - LLVM dialect to native code in memory ----------------===//

#include "lib/Target/Driver/Codegen.h"
#include "lib/Target/Common/EmitCode.h"
#include "lib/Target/Driver/CodeCache.h"
#include "lib/Target/Driver/HostTarget.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Target/LLVMIR/ModuleTranslation.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/Threading.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/SplitModule.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <pthread.h>

using namespace mlir;
using namespace mlir::disc;

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
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
    if (target.sveBits)
      function.addFnAttr(llvm::Attribute::getWithVScaleRangeArgs(module.getContext(), unsigned(target.sveBits / 128),
                                                                 unsigned(target.sveBits / 128)));
    // perf walks stacks through frame pointers.
    function.addFnAttr("frame-pointer", "non-leaf");
  }
}

/// Leaves of the functions only `disc_init` and what it calls: enough to compute what depends on parameters alone.
/// What that multiplies by instructions which the target lacks: nothing if it can run.
static StringRef keepInit(llvm::Module &module, const HostTarget &target) {
  SmallPtrSet<llvm::Value *, 16> reached;
  SmallVector<llvm::Value *> open{module.getFunction("disc_init")};
  while (!open.empty()) {
    llvm::Value *value = open.pop_back_val();
    // The tables name every kernel, for profiles.
    if (!value || !reached.insert(value).second)
      continue;
    if (auto *function = dyn_cast<llvm::Function>(value)) {
      for (llvm::Instruction &instruction : llvm::instructions(*function))
        open.append(instruction.value_op_begin(), instruction.value_op_end());
    } else if (auto *constant = dyn_cast<llvm::Constant>(value)) {
      open.append(constant->value_op_begin(), constant->value_op_end());
    }
  }
  for (llvm::Function &function : module) {
    if (function.isDeclaration() || reached.contains(&function))
      continue;
    auto linkage = function.getLinkage();
    function.deleteBody();
    function.setLinkage(linkage);
    new llvm::UnreachableInst(module.getContext(), llvm::BasicBlock::Create(module.getContext(), "", &function));
  }
  struct Need {
    StringLiteral part, what;
    bool there;
  };
  const Need needs[] = {{"tdpbf16", "tiles of bf16", target.bf16Tiles},
                        {".tdpb", "tiles of bytes", target.i8Tiles},
                        {"dpbf16", "bf16", target.bf16Dot},
                        {"avx512bf16.cvtne", "tiles of bf16", target.bf16Tiles},
                        {"vpdpb", "bytes", target.i8DotMixed},
                        {"512", "vectors of 512 bits", target.vectorBits >= 512},
                        {"avx2", "vectors of 256 bits", target.vectorBits >= 256}};
  for (llvm::Value *value : reached)
    if (value->getName().starts_with("llvm.x86."))
      for (const Need &need : needs)
        if (value->getName().contains(need.part)) {
          if (!need.there)
            return need.what;
          break;
        }
  return "";
}

/// Calls stay what they are: they go by the function, not by its name.
static void renameDefinitions(llvm::Module &module, StringRef prefix) {
  for (llvm::GlobalValue &value : module.global_values()) {
    if (value.isDeclaration() || value.getName().starts_with("llvm."))
      continue;
    StringRef name = value.getName();
    name.consume_front("disc_");
    value.setName(prefix + name);
    if (value.hasLocalLinkage())
      continue;
    value.setVisibility(llvm::GlobalValue::HiddenVisibility);
    value.setDSOLocal(true);
  }
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

namespace {
/// Compiles modules of one target. Each belongs to one thread.
class Compiler {
public:
  Compiler(const HostTarget &target, const CodegenOptions &options) : target(target), options(options) {}

  llvm::Error initialize() {
    auto created = createTargetMachine(target, options.optLevel);
    if (!created)
      return created.takeError();
    machine = std::move(*created);
    return llvm::Error::success();
  }

  llvm::DataLayout dataLayout() const { return machine->createDataLayout(); }

  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> compile(llvm::Module &module) {
    Stopwatch watch;
    optimizeModule(module, *machine, options.optLevel, options.cancelled);
    optimizeSeconds = watch.lap();
    if (options.cancelled && options.cancelled->load())
      return makeError("code generation was cancelled");
    if (!options.dumpPrefix.empty())
      if (llvm::Error error = dumpOptimized(module))
        return error;
    watch.lap();
    SmallVector<char, 0> bytes;
    if (options.kind == CodeKind::LLVMIR) {
      llvm::raw_svector_ostream os(bytes);
      module.print(os, nullptr);
    } else {
      bool listing = options.kind == CodeKind::Assembly;
      auto type = listing ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
      if (llvm::Error error = emitCode(module, *machine, type, bytes))
        return error;
    }
    emitSeconds = watch.lap();
    return std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes), module.getModuleIdentifier(),
                                                           /*RequiresNullTerminator=*/false);
  }

  double optimizeSeconds = 0, emitSeconds = 0;

private:
  llvm::Error dumpOptimized(llvm::Module &module) {
    dump(options.dumpPrefix + ".opt.ll", module);
    // Emitting changes the module, so the listing is made from a copy.
    SmallVector<char, 0> text;
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    if (llvm::Error error = emitCode(*copy, *machine, llvm::CodeGenFileType::AssemblyFile, text))
      return error;
    dump(options.dumpPrefix + ".s", StringRef(text.data(), text.size()));
    return llvm::Error::success();
  }

  const HostTarget &target;
  const CodegenOptions &options;
  std::unique_ptr<llvm::TargetMachine> machine;
};
} // namespace

/// How many parts pay: each costs a round trip through bitcode, about as much as
/// compiling a few hundred instructions.
static unsigned numParts(const llvm::Module &module, const CodegenOptions &options) {
  constexpr unsigned kInstructionsPerPart = 2000;
  if (!options.dumpPrefix.empty() || options.kind != CodeKind::Object)
    return 1; // one listing
  unsigned threads = options.threads > 0 ? options.threads : llvm::hardware_concurrency().compute_thread_count();
  return std::clamp(module.getInstructionCount() / kInstructionsPerPart, 1u, std::max(threads, 1u));
}

/// LLVM's contexts are not shared between threads: a part crosses as bitcode.
static std::vector<SmallVector<char, 0>> split(llvm::Module &module, unsigned parts) {
  std::vector<SmallVector<char, 0>> bitcode;
  llvm::SplitModule(
      module, parts,
      [&](std::unique_ptr<llvm::Module> part) {
        llvm::raw_svector_ostream os(bitcode.emplace_back());
        llvm::WriteBitcodeToFile(*part, os);
      },
      /*PreserveLocals=*/false, /*RoundRobin=*/true);
  return bitcode;
}

static llvm::Expected<ObjectCode> compileParts(ArrayRef<SmallVector<char, 0>> bitcode, const HostTarget &target,
                                               const CodegenOptions &options, CodegenTimes &spent) {
  ObjectCode objects(bitcode.size());
  std::mutex mutex;
  llvm::Error errors = llvm::Error::success();
  auto compilePart = [&](size_t i) {
    llvm::LLVMContext context;
    StringRef bytes(bitcode[i].data(), bitcode[i].size());
    Compiler compiler(target, options);
    llvm::Error error = compiler.initialize();
    if (!error) {
      auto part = llvm::parseBitcodeFile(llvm::MemoryBufferRef(bytes, ("disc." + Twine(i)).str()), context);
      if (!part) {
        error = part.takeError();
      } else {
        auto object = compiler.compile(**part);
        if (object)
          objects[i] = std::move(*object);
        else
          error = object.takeError();
      }
    }
    std::lock_guard<std::mutex> lock(mutex);
    errors = llvm::joinErrors(std::move(errors), std::move(error));
    // As the user waits for it: the slowest part counts.
    spent.optimize = std::max(spent.optimize, compiler.optimizeSeconds);
    spent.emit = std::max(spent.emit, compiler.emitSeconds);
  };

  std::atomic<size_t> next{0};
  auto compileRest = [&] {
    for (size_t i; (i = next.fetch_add(1)) < bitcode.size();)
      compilePart(i);
  };
  using Work = decltype(compileRest);
  auto main = [](void *work) -> void * {
    (*static_cast<Work *>(work))();
    return nullptr;
  };
  // A thread that the system refuses is one less: the others compile its part.
  std::vector<pthread_t> workers;
  pthread_t worker;
  while (workers.size() + 1 < bitcode.size() && pthread_create(&worker, nullptr, main, &compileRest) == 0)
    workers.push_back(worker);
  compileRest();
  for (pthread_t started : workers)
    pthread_join(started, nullptr);
  if (errors)
    return errors;
  return objects;
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> mlir::disc::assemble(llvm::Module &module,
                                                                         const HostTarget &target) {
  initializeTargets();
  auto machine = createTargetMachine(target, /*optLevel=*/0);
  if (!machine)
    return machine.takeError();
  module.setTargetTriple(llvm::Triple(target.triple));
  module.setDataLayout((*machine)->createDataLayout());
  SmallVector<char, 0> bytes;
  if (llvm::Error error = emitCode(module, **machine, llvm::CodeGenFileType::ObjectFile, bytes))
    return error;
  return std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes), module.getModuleIdentifier(),
                                                         /*RequiresNullTerminator=*/false);
}

/// What the code of a module depends on. The IR has the CPU and its features, but not what chooses LLVM's passes.
static std::string cacheKey(const llvm::Module &module, const HostTarget &target, const CodegenOptions &options) {
  constexpr llvm::StringLiteral kGenerator = "1"; // raise it with every change of this file and of optimizeModule
  SmallVector<char, 0> bitcode;
  llvm::raw_svector_ostream os(bitcode);
  llvm::WriteBitcodeToFile(module, os);
  return CodeCache::key({kGenerator, LLVM_VERSION_STRING, target.triple, target.cpu, target.features,
                         std::to_string(options.optLevel), StringRef(bitcode.data(), bitcode.size())});
}

static llvm::Expected<ObjectCode> compileModule(llvm::Module &module, Compiler &compiler, const HostTarget &target,
                                                const CodegenOptions &options, CodegenTimes &spent, Stopwatch &watch) {
  unsigned parts = numParts(module, options);
  if (parts > 1) {
    std::vector<SmallVector<char, 0>> bitcode = split(module, parts);
    spent.translate = watch.lap();
    return compileParts(bitcode, target, options, spent);
  }

  spent.translate = watch.lap();
  auto object = compiler.compile(module);
  if (!object)
    return object.takeError();
  spent.optimize = compiler.optimizeSeconds;
  spent.emit = compiler.emitSeconds;
  ObjectCode objects;
  objects.push_back(std::move(*object));
  return objects;
}

llvm::Expected<ObjectCode> mlir::disc::generateCode(ModuleOp module, const CodegenOptions &options,
                                                    CodegenTimes *times) {
  initializeTargets();
  CodegenTimes ignored;
  CodegenTimes &spent = times ? *times : ignored;
  spent = {};

  HostTarget target = options.initOnly ? HostTarget::detect() : getHostTarget(module);
  Compiler compiler(target, options);
  if (llvm::Error error = compiler.initialize())
    return error;

  Stopwatch watch;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule = translateModuleToLLVMIR(module, context, "disc");
  if (!llvmModule)
    return makeError("translation to LLVM IR failed");
  llvmModule->setTargetTriple(llvm::Triple(target.triple));
  llvmModule->setDataLayout(compiler.dataLayout());
  if (options.initOnly)
    if (StringRef lacking = keepInit(*llvmModule, target); !lacking.empty())
      return makeError("the weights cannot be packed on this machine, which has no instructions for products of " +
                       lacking);
  addFunctionAttributes(*llvmModule, target);
  if (!options.symbolPrefix.empty())
    renameDefinitions(*llvmModule, options.symbolPrefix);
  if (!options.dumpPrefix.empty())
    dump(options.dumpPrefix + ".ll", *llvmModule);

  bool cacheable = options.kind == CodeKind::Object && options.dumpPrefix.empty();
  CodeCache cache(cacheable ? options.cacheFolder : "", options.cacheLimit);
  std::string key = cache.enabled() ? cacheKey(*llvmModule, target, options) : "";
  if (cache.enabled()) {
    ObjectCode objects = cache.find(key);
    if (!objects.empty()) {
      spent.translate = watch.lap();
      spent.cached = true;
      return objects;
    }
  }

  auto objects = compileModule(*llvmModule, compiler, target, options, spent, watch);
  if (objects && cache.enabled())
    cache.store(key, *objects);
  return objects;
}
