//===- Jit.cpp - Loads a compiled object into this process ----------------===//

#include "lib/Target/Driver/Jit.h"
#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/Half.h"
#include "lib/Runtime/Device/Emulator.h"
#include "lib/Runtime/Functions/Function.h"

#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/Debugging/DebugInfoSupport.h"
#include "llvm/ExecutionEngine/Orc/Debugging/ELFDebugObjectPlugin.h"
#include "llvm/ExecutionEngine/Orc/Debugging/PerfSupportPlugin.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/MapperJITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/MemoryMapper.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderPerf.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

using namespace mlir;
using namespace mlir::disc;
namespace orc = llvm::orc;
namespace jitlink = llvm::jitlink;

namespace {
/// Writes "address size name" lines of each linked object's functions. perf
/// reads the file at report time, so lines of code freed since do no harm
/// beyond a stale name.
class PerfMapPlugin : public orc::ObjectLinkingLayer::Plugin {
public:
  void modifyPassConfig(orc::MaterializationResponsibility &, jitlink::LinkGraph &,
                        jitlink::PassConfiguration &config) override {
    config.PrePrunePasses.push_back(keepNames);
    config.PostFixupPasses.push_back(append);
  }
  llvm::Error notifyFailed(orc::MaterializationResponsibility &) override { return llvm::Error::success(); }
  llvm::Error notifyRemovingResources(orc::JITDylib &, orc::ResourceKey) override { return llvm::Error::success(); }
  void notifyTransferringResources(orc::JITDylib &, orc::ResourceKey, orc::ResourceKey) override {}

private:
  /// Internal functions are reached through their section, so that the linker
  /// drops their symbols, unless told that they are needed.
  static llvm::Error keepNames(jitlink::LinkGraph &graph) {
    for (jitlink::Symbol *symbol : graph.defined_symbols())
      if (symbol->isCallable() && symbol->hasName())
        symbol->setLive(true);
    return llvm::Error::success();
  }

  static llvm::Error append(jitlink::LinkGraph &graph) {
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    std::string path = "/tmp/perf-" + std::to_string(llvm::sys::Process::getProcessId()) + ".map";
    std::error_code error;
    llvm::raw_fd_ostream os(path, error, llvm::sys::fs::OF_Append);
    if (error) // profiling is best effort; the code runs without it
      return llvm::Error::success();
    for (jitlink::Symbol *symbol : graph.defined_symbols()) {
      if (!symbol->isCallable() || !symbol->hasName() || !symbol->getSize())
        continue;
      os << llvm::format_hex_no_prefix(symbol->getAddress().getValue(), 1) << ' '
         << llvm::format_hex_no_prefix(symbol->getSize(), 1) << ' ' << *symbol->getName() << '\n';
    }
    return llvm::Error::success();
  }
};
} // namespace

/// Has each object that is linked reported to profilers and debuggers.
static llvm::Error announceCode(orc::ObjectLinkingLayer &layer, orc::ExecutionSession &session, bool dump) {
  layer.addPlugin(std::make_shared<PerfMapPlugin>());
  // The order matters: the debugger's copy of an object has the addresses that linking found.
  llvm::Error error = llvm::Error::success();
  auto debugger = std::make_shared<orc::ELFDebugObjectPlugin>(session, /*RequireDebugSections=*/true,
                                                              /*AutoRegisterCode=*/true, error);
  if (error)
    return error;
  layer.addPlugin(std::move(debugger));
  if (!dump)
    return llvm::Error::success();
  layer.addPlugin(std::make_shared<orc::DebugInfoPreservationPlugin>());
  layer.addPlugin(std::make_shared<orc::PerfSupportPlugin>(
      session.getExecutorProcessControl(), orc::ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderPerfStart),
      orc::ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderPerfEnd),
      orc::ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderPerfImpl), /*EmitDebugInfo=*/true,
      /*EmitUnwindInfo=*/false));
  return llvm::Error::success();
}

/// The runtime's entry points by name. They are listed rather than searched in
/// the process because the binary that holds them need not export them.
static orc::SymbolMap runtimeSymbols(orc::ExecutionSession &session, const llvm::DataLayout &layout) {
  orc::MangleAndInterner mangle(session, layout);
  orc::SymbolMap map;
#define DISC_RT_SYMBOL(name)                                                                                           \
  map[mangle(#name)] = orc::ExecutorSymbolDef(orc::ExecutorAddr::fromPtr(&name),                                       \
                                              llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable)
  DISC_RT_SYMBOL(disc_rt_check_inputs);
  DISC_RT_SYMBOL(disc_rt_extent);
  DISC_RT_SYMBOL(disc_rt_guard_failed);
  DISC_RT_SYMBOL(disc_rt_size_failed);
  DISC_RT_SYMBOL(disc_rt_input);
  DISC_RT_SYMBOL(disc_rt_parameter);
  DISC_RT_SYMBOL(disc_rt_global);
  DISC_RT_SYMBOL(disc_rt_arena);
  DISC_RT_SYMBOL(disc_rt_budget);
  DISC_RT_SYMBOL(disc_rt_begin_plan);
  DISC_RT_SYMBOL(disc_rt_over_budget);
  DISC_RT_SYMBOL(disc_rt_slot);
  DISC_RT_SYMBOL(disc_rt_poll);
  DISC_RT_SYMBOL(disc_rt_on_stack);
  DISC_RT_SYMBOL(disc_rt_enter);
  DISC_RT_SYMBOL(disc_rt_leave);
  DISC_RT_SYMBOL(disc_rt_push);
  DISC_RT_SYMBOL(disc_rt_mark);
  DISC_RT_SYMBOL(disc_rt_pop);
  DISC_RT_SYMBOL(disc_rt_output);
  DISC_RT_SYMBOL(disc_rt_output_shape);
  DISC_RT_SYMBOL(disc_rt_parallel_for);
  DISC_RT_SYMBOL(disc_rt_sanitize);
  DISC_RT_SYMBOL(disc_rt_checked_launch);
  DISC_RT_SYMBOL(disc_rt_checked_copy);
  DISC_RT_SYMBOL(disc_rt_check_access);
  DISC_RT_SYMBOL(disc_rt_check_views);
  DISC_RT_SYMBOL(disc_rt_buffer_begin);
  DISC_RT_SYMBOL(disc_rt_buffer_end);
  DISC_RT_SYMBOL(disc_rt_device_launch);
  DISC_RT_SYMBOL(disc_rt_device_matmul);
  DISC_RT_SYMBOL(disc_rt_device_call_host);
  DISC_RT_SYMBOL(disc_rt_device_copy);
  DISC_RT_SYMBOL(disc_rt_device_read);
  DISC_RT_SYMBOL(disc_rt_device_order);
  DISC_RT_SYMBOL(disc_rt_device_reduce);
  DISC_RT_SYMBOL(disc_rt_device_errors);
  DISC_RT_SYMBOL(disc_rt_index_failed);
  DISC_RT_SYMBOL(disc_rt_function_at);
  DISC_RT_SYMBOL(disc_rt_emulate_shared);
  DISC_RT_SYMBOL(disc_rt_emulate_barrier);
  DISC_RT_SYMBOL(disc_rt_emulate_shuffle);
  DISC_RT_SYMBOL(disc_rt_emulate_multiply);
  DISC_RT_SYMBOL(disc_rt_emulate_load_transposed);
  DISC_RT_SYMBOL(disc_rt_emulate_copy);
  DISC_RT_SYMBOL(disc_rt_emulate_power);
  DISC_RT_SYMBOL(disc_rt_emulate_commit);
  DISC_RT_SYMBOL(disc_rt_emulate_wait);
  DISC_RT_SYMBOL(disc_rt_emulate_check);
  DISC_RT_SYMBOL(disc_rt_emulate_extent);
  DISC_RT_SYMBOL(disc_rt_emulate_access);
  DISC_RT_SYMBOL(__extendhfsf2);
  DISC_RT_SYMBOL(__extendhfdf2);
  DISC_RT_SYMBOL(__truncsfhf2);
  DISC_RT_SYMBOL(__truncdfhf2);
  DISC_RT_SYMBOL(__truncsfbf2);
  DISC_RT_SYMBOL(__truncdfbf2);
#undef DISC_RT_SYMBOL
  for (const ::disc::rt::FunctionEntry *entry = ::disc::rt::functionTable; entry->name; ++entry)
    map[mangle(("disc_fn_" + llvm::Twine(entry->name)).str())] = orc::ExecutorSymbolDef(
        orc::ExecutorAddr::fromPtr(entry->function), llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable);
  return map;
}

/// Far more than the code of any model.
static constexpr size_t kReservation = size_t(256) << 20;

struct Jit::Impl {
  /// What ORC reports on the side; the errors that it returns only say which
  /// symbols failed. Guarded: linking may run on several threads.
  std::mutex mutex;
  std::string reports;
  std::unique_ptr<orc::LLJIT> lljit;
};

Jit::Jit(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Jit::~Jit() = default;

llvm::Expected<std::unique_ptr<Jit>> Jit::create(ObjectCode objects, const JitOptions &options) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();

  orc::LLJITBuilder builder;
  // No platform: the code has no constructors, thread locals or exceptions to
  // set up, and the default one compiles a helper module at each start.
  builder.setPlatformSetUp(orc::setUpInactivePlatform);
  builder.setObjectLinkingLayerCreator(
      [&](orc::ExecutionSession &session) -> llvm::Expected<std::unique_ptr<orc::ObjectLayer>> {
        // One reservation for all objects: they refer to each other by distances of 32 bits, and the gaps of a large
        // process's address space can be further apart. What is reserved and not used costs nothing.
        auto memory = orc::MapperJITLinkMemoryManager::CreateWithMapper<orc::InProcessMemoryMapper>(kReservation);
        if (!memory)
          return memory.takeError();
        auto layer = std::make_unique<orc::ObjectLinkingLayer>(session, std::move(*memory));
        if (options.symbols != CodeSymbols::None)
          if (llvm::Error error = announceCode(*layer, session, options.symbols == CodeSymbols::Dumped))
            return error;
        return layer;
      });
  auto lljit = builder.create();
  if (!lljit)
    return lljit.takeError();

  orc::JITDylib &dylib = (*lljit)->getMainJITDylib();
  if (llvm::Error error = dylib.define(
          orc::absoluteSymbols(runtimeSymbols((*lljit)->getExecutionSession(), (*lljit)->getDataLayout()))))
    return error;
  if (!options.addresses.empty()) {
    orc::MangleAndInterner mangle((*lljit)->getExecutionSession(), (*lljit)->getDataLayout());
    orc::SymbolMap map;
    for (const auto &[name, address] : options.addresses)
      map[mangle(name)] = orc::ExecutorSymbolDef(orc::ExecutorAddr(address), llvm::JITSymbolFlags::Exported);
    if (llvm::Error error = dylib.define(orc::absoluteSymbols(std::move(map))))
      return error;
  }
  auto process = orc::DynamicLibrarySearchGenerator::GetForCurrentProcess((*lljit)->getDataLayout().getGlobalPrefix());
  if (!process)
    return process.takeError();
  dylib.addGenerator(std::move(*process));
  for (std::unique_ptr<llvm::MemoryBuffer> &object : objects)
    if (llvm::Error error = (*lljit)->addObjectFile(std::move(object)))
      return error;

  auto impl = std::make_unique<Impl>();
  impl->lljit = std::move(*lljit);
  impl->lljit->getExecutionSession().setErrorReporter([impl = impl.get()](llvm::Error error) {
    std::lock_guard<std::mutex> lock(impl->mutex);
    impl->reports += llvm::toString(std::move(error)) + "\n";
  });
  return std::unique_ptr<Jit>(new Jit(std::move(impl)));
}

llvm::Expected<void *> Jit::lookup(llvm::StringRef symbol) {
  auto address = impl->lljit->lookup(symbol);
  if (!address) {
    std::lock_guard<std::mutex> lock(impl->mutex);
    return llvm::createStringError(llvm::inconvertibleErrorCode(), impl->reports + llvm::toString(address.takeError()));
  }
  return address->toPtr<void *>();
}
