//===- HostTarget.cpp - Description of the machine we compile for ---------===//

#include "lib/Target/Driver/HostTarget.h"

#include "lib/Runtime/Core/Cpu.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/Threading.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

using namespace mlir;
using namespace mlir::disc;

/// The content of a one-line file of sysfs.
static std::optional<std::string> readLine(const Twine &path) {
  auto buffer = llvm::MemoryBuffer::getFileAsStream(path);
  if (!buffer)
    return std::nullopt;
  return (*buffer)->getBuffer().trim().str();
}

/// Sizes as sysfs writes them: "32K", "8M".
static std::optional<int64_t> parseSize(StringRef text) {
  int64_t scale = 1;
  if (text.consume_back("K"))
    scale = 1 << 10;
  else if (text.consume_back("M"))
    scale = 1 << 20;
  int64_t value;
  if (text.getAsInteger(10, value) || value <= 0)
    return std::nullopt;
  return value * scale;
}

/// Fills the cache sizes that the system tells; the defaults stay otherwise.
static void detectCaches(HostTarget &target) {
  for (int index = 0; index < 8; ++index) {
    std::string dir = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    auto level = readLine(dir + "/level"), type = readLine(dir + "/type"), size = readLine(dir + "/size");
    if (!level || !type || !size || *type == "Instruction")
      continue;
    std::optional<int64_t> bytes = parseSize(*size);
    if (!bytes)
      continue;
    if (*level == "1") {
      target.l1dBytes = *bytes;
      if (auto ways = parseSize(readLine(dir + "/ways_of_associativity").value_or("")))
        target.l1dWays = *ways;
    }
    if (*level == "2")
      target.l2Bytes = *bytes;
    if (*level == "3")
      target.l3Bytes = *bytes;
  }
}

namespace {
/// A kind of machine that we compile for.
struct Machine {
  StringRef name;   // as users and Debian's packages say it
  StringRef triple; // as LLVM wants it
};
} // namespace

static constexpr Machine kMachines[] = {
    {"x86_64-linux-gnu", "x86_64-unknown-linux-gnu"},
    {"aarch64-linux-gnu", "aarch64-unknown-linux-gnu"},
    // Debian's own minimum lacks NEON, which is what pays.
    {"arm-linux-gnueabihf", "armv7-unknown-linux-gnueabihf"},
};

void mlir::disc::initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers();
  });
}

std::vector<StringRef> HostTarget::machines() {
  std::vector<StringRef> names;
  for (const Machine &machine : kMachines)
    names.push_back(machine.name);
  return names;
}

StringRef HostTarget::machine() const {
  llvm::Triple::ArchType arch = llvm::Triple(triple).getArch();
  for (const Machine &machine : kMachines)
    if (llvm::Triple(machine.triple).getArch() == arch)
      return machine.name;
  return triple;
}

StringRef HostTarget::ownMachine() {
  HostTarget own;
  own.triple = llvm::Triple(llvm::sys::getProcessTriple()).str();
  return own.machine();
}

/// Whether `vdpbf16ps` takes four times as long as a fused multiply-add: Intel's server cores since 2023 leave bf16 to
/// AMX. Measured on Emerald Rapids, whose core is that of Sapphire Rapids.
static bool hasSlowBf16Dot(StringRef cpu) {
  return cpu == "sapphirerapids" || cpu == "emeraldrapids" || cpu.starts_with("graniterapids") ||
         cpu == "diamondrapids";
}

/// Whether a CPU with AVX-512 is Intel's: by its name, which is one of a general level, of AMD's, or else of Intel's.
/// Fetching to the second-level cache was faster than to the first on the only such CPU that it was measured on, a Xeon
/// with AMX (docs/rationale/products.md).
static bool isIntel(StringRef cpu) {
  return !cpu.empty() && cpu != "generic" && !cpu.starts_with("x86-64") && !cpu.starts_with("znver");
}

/// What vectors there are, by features.
static void setVectors(HostTarget &target, llvm::function_ref<bool(StringRef)> has) {
  llvm::Triple triple(target.triple);
  if (triple.isX86()) {
    bool avx512 = has("avx512f");
    target.vectorBits = avx512 ? 512 : has("avx") ? 256 : 128;
    target.vectorRegisters = avx512 ? 32 : 16;
    target.fma = has("fma");
    // A virtual machine may give the CPU another name, but not hide that it has tiles.
    target.bf16Dot = avx512 && has("avx512bf16") && !hasSlowBf16Dot(target.cpu) && !has("amx-bf16");
    target.i16Dot = avx512 ? has("avx512bw") : has("avx2") || !has("avx");
    target.i8Dot = false;
    target.i8DotMixed = avx512 ? has("avx512vnni") : has("avxvnni");
    target.i8Tiles = avx512 && has("amx-int8");
    target.bf16Tiles = avx512 && has("amx-bf16") && has("avx512bf16");
    target.fetchToL2 = avx512 && isIntel(target.cpu);
  } else {
    target.vectorBits = target.sveBits ? target.sveBits : 128; // NEON
    target.vectorRegisters = triple.isAArch64() ? 32 : 16;
    target.fma = triple.isAArch64() || has("vfp4");
    target.bf16Dot = false;
    target.i16Dot = false;
    target.i8Dot = triple.isAArch64() && has("dotprod") && target.vectorBits == 128;
    target.i8DotMixed = false;
    target.i8Tiles = target.bf16Tiles = target.fetchToL2 = false;
  }
}

HostTarget HostTarget::detect() {
  HostTarget target;
  llvm::Triple triple(llvm::sys::getProcessTriple());
  target.triple = triple.str();
  target.cpu = llvm::sys::getHostCPUName().str();
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  // The system may refuse the state of tiles to this process.
  for (auto &feature : features)
    if (feature.first().starts_with("amx-"))
      feature.second = feature.second && ::disc::rt::missingFeatures(feature.first().str().c_str()).empty();
  // Sorted, so that the text of the IR is the same in every run.
  std::vector<std::string> names;
  for (const auto &feature : features)
    names.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(names.begin(), names.end());
  target.features = llvm::join(names, ",");
  setVectors(target, [&](StringRef name) { return features.lookup(name); });
  detectCaches(target);
  target.cores = std::max(1u, llvm::hardware_concurrency().compute_thread_count());
  return target;
}

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

template <typename T> static std::string names(ArrayRef<T> list) {
  return llvm::join(llvm::map_range(list, [](const auto &entry) { return StringRef(entry.Key); }), ", ");
}

/// Whether LLVM knows a feature of that name; to ask for one that it does not ends the process.
static bool isFeature(const llvm::MCSubtargetInfo &info, StringRef name) {
  return llvm::any_of(info.getAllProcessorFeatures(), [&](const auto &entry) { return entry.Key == name; });
}

/// What LLVM knows of a CPU, for the given triple; an error for a name it does not know.
static llvm::Expected<std::unique_ptr<llvm::MCSubtargetInfo>> lookUp(const HostTarget &target, StringRef cpu,
                                                                     StringRef features = "") {
  initializeTargets();
  llvm::Triple triple(target.triple);
  std::string error;
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!backend)
    return makeError(error);
  // An unknown name is looked for with the list of known ones, as asking for it prints a warning.
  std::unique_ptr<llvm::MCSubtargetInfo> known(backend->createMCSubtargetInfo(triple, "", ""));
  if (cpu.empty() || !known->isCPUStringValid(cpu))
    return makeError("no CPU is called '" + cpu + "' for " + target.machine() +
                     "; there are: " + names(known->getAllProcessorDescriptions()));
  std::unique_ptr<llvm::MCSubtargetInfo> info(backend->createMCSubtargetInfo(triple, cpu, features));
  // Asking for its code would end the process.
  if (triple.isX86() && triple.isArch64Bit() && !info->checkFeatures("+64bit"))
    return makeError("'" + cpu + "' has no 64-bit mode");
  if (!triple.isX86() && !info->checkFeatures("+neon"))
    return makeError("'" + cpu + "' has no NEON");
  return info;
}

/// Makes `target` one for code of a CPU called `cpu`, whose features are those that `info` has.
static void setCpu(HostTarget &target, StringRef cpu, const llvm::MCSubtargetInfo &info) {
  target.cpu = cpu.str();
  target.features = info.getFeatureString().str(); // those that the CPU's name does not say
  setVectors(target, [&](StringRef name) { return info.checkFeatures(("+" + name).str()); });
}

llvm::Expected<HostTarget> HostTarget::detectAs(StringRef cpu) {
  HostTarget target = detect();
  auto wanted = lookUp(target, cpu);
  if (!wanted)
    return wanted.takeError();
  // A virtual machine may hide what code never uses.
  std::vector<const char *> used = ::disc::rt::cpuFeatureNames(::disc::rt::elfMachine());
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    if (!feature.second && llvm::is_contained(used, feature.first()) &&
        (*wanted)->checkFeatures(("+" + feature.first()).str()))
      return makeError("this machine can't run code for '" + cpu + "': it has no " + feature.first());
  setCpu(target, cpu, **wanted);
  return target;
}

/// The triple of code for a machine of that name.
static llvm::Expected<std::string> tripleOf(StringRef machine) {
  if (machine.empty() || machine == HostTarget::ownMachine())
    return llvm::Triple(llvm::sys::getProcessTriple()).str();
  for (const Machine &known : kMachines)
    if (machine == known.name)
      return known.triple.str();
  return makeError("no target is called '" + machine + "'; there are: " + llvm::join(HostTarget::machines(), ", "));
}

/// LLVM's text for features that a CPU's name is followed by. "sve256" is SVE with registers of 256 bits; any CPU of
/// ARMv7 has NEON.
static llvm::Expected<std::string> featuresOf(HostTarget &target, StringRef cpu, ArrayRef<StringRef> wanted) {
  llvm::Triple triple(target.triple);
  SmallVector<std::string> features;
  if (triple.isARM() && cpu == "generic")
    features.push_back("+neon");
  auto info = lookUp(target, cpu, llvm::join(features, ","));
  if (!info)
    return info.takeError();
  for (StringRef name : wanted) {
    StringRef bits = name;
    if (triple.isAArch64() && bits.consume_front("sve") && llvm::is_contained({"256", "512", "1024", "2048"}, bits)) {
      bits.getAsInteger(10, target.sveBits);
      features.push_back("+sve");
      continue;
    }
    if (!isFeature(**info, name))
      return makeError("no feature is called '" + name + "' for " + target.machine() +
                       "; there are: " + names((*info)->getAllProcessorFeatures()));
    features.push_back(("+" + name).str());
  }
  return llvm::join(features, ",");
}

llvm::Expected<HostTarget> HostTarget::describe(StringRef cpu, StringRef machine) {
  auto triple = tripleOf(machine);
  if (!triple)
    return triple.takeError();
  HostTarget target;
  target.triple = *triple;
  if (cpu == "host") {
    if (target.machine() != ownMachine())
      return makeError("'host' is this machine, " + ownMachine() + ": name a CPU of " + machine);
    return detect();
  }
  SmallVector<StringRef> parts;
  cpu.split(parts, '+');
  auto features = featuresOf(target, parts.front(), ArrayRef(parts).drop_front());
  if (!features)
    return features.takeError();
  auto wanted = lookUp(target, parts.front(), *features);
  if (!wanted)
    return wanted.takeError();
  setCpu(target, parts.front(), **wanted);
  return target;
}

llvm::Expected<std::vector<std::string>> HostTarget::enabled(ArrayRef<StringRef> features) const {
  auto info = lookUp(*this, cpu, this->features);
  if (!info)
    return info.takeError();
  std::vector<std::string> result;
  for (StringRef feature : features)
    if (isFeature(**info, feature) && (*info)->checkFeatures(("+" + feature).str()))
      result.push_back(feature.str());
  return result;
}

HostTarget HostTarget::fromAttr(TargetAttr attr) {
  HostTarget target;
  target.triple = attr.getTriple();
  target.cpu = attr.getCpu();
  target.features = attr.getFeatures();
  target.vectorBits = attr.getVectorBits();
  target.vectorRegisters = attr.numVectorRegisters();
  target.sveBits = attr.getSveBits();
  target.l1dBytes = attr.getL1dBytes();
  target.l1dWays = attr.getL1dWays();
  target.l2Bytes = attr.getL2Bytes();
  target.l3Bytes = attr.getL3Bytes();
  target.cores = attr.getCores();
  target.fma = attr.getFma();
  target.bf16Dot = attr.getBf16Dot();
  target.i16Dot = attr.getI16Dot();
  target.i8Dot = attr.getI8Dot();
  target.i8DotMixed = attr.getI8DotMixed();
  target.i8Tiles = attr.getI8Tiles();
  target.bf16Tiles = attr.getBf16Tiles();
  target.fetchToL2 = attr.getFetchToL2();
  return target;
}

TargetAttr HostTarget::toAttr(MLIRContext *context) const {
  return TargetAttr::get(context, triple, cpu, features, vectorBits, vectorRegisters, sveBits, l1dBytes, l1dWays,
                         l2Bytes, l3Bytes, cores, fma, bf16Dot, i16Dot, i8Dot, i8DotMixed, i8Tiles, bf16Tiles,
                         fetchToL2,
                         /*device=*/"", /*arch=*/{}, TargetDefaults::warp, /*matrix_unit=*/false);
}

void mlir::disc::setHostTarget(ModuleOp module, const HostTarget &target) {
  module.getContext()->loadDialect<PlanDialect>();
  module->setAttr(TargetAttr::attrName, target.toAttr(module.getContext()));
}

HostTarget mlir::disc::getHostTarget(ModuleOp module) {
  if (auto attr = module->getAttrOfType<TargetAttr>(TargetAttr::attrName)) {
    HostTarget target = HostTarget::fromAttr(attr);
    if (!target.triple.empty())
      return target;
  }
  return HostTarget::detect();
}
