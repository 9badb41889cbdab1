//===- HostTarget.cpp - Description of the machine we compile for ---------===//

#include "lib/Target/Driver/HostTarget.h"

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

static int64_t vectorBitsOf(const llvm::Triple &triple, const llvm::StringMap<bool> &features) {
  if (!triple.isX86())
    return 128; // NEON; scalable vectors are not generated yet
  if (features.lookup("avx512f"))
    return 512;
  return features.lookup("avx") ? 256 : 128;
}

static bool hasBf16Dot(const llvm::Triple &triple, const llvm::StringMap<bool> &features) {
  return triple.isX86() && features.lookup("avx512f") && features.lookup("avx512bf16");
}

HostTarget HostTarget::detect() {
  HostTarget target;
  llvm::Triple triple(llvm::sys::getProcessTriple());
  target.triple = triple.str();
  target.cpu = llvm::sys::getHostCPUName().str();
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  // Sorted, so that the text of the IR is the same in every run.
  std::vector<std::string> names;
  for (const auto &feature : features)
    names.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(names.begin(), names.end());
  target.features = llvm::join(names, ",");
  target.vectorBits = vectorBitsOf(triple, features);
  target.bf16Dot = hasBf16Dot(triple, features);
  detectCaches(target);
  target.cores = std::max(1u, llvm::hardware_concurrency().compute_thread_count());
  return target;
}

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// What LLVM knows of a CPU, for the given triple; an error for a name it does not know.
static llvm::Expected<std::unique_ptr<llvm::MCSubtargetInfo>> lookUp(const HostTarget &target, StringRef cpu,
                                                                     StringRef features = "") {
  llvm::InitializeNativeTarget();
  llvm::Triple triple(target.triple);
  std::string error;
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!backend)
    return makeError(error);
  // An unknown name is looked for with the list of known ones, as asking for it prints a warning.
  std::unique_ptr<llvm::MCSubtargetInfo> known(backend->createMCSubtargetInfo(triple, "", ""));
  if (cpu.empty() || !known->isCPUStringValid(cpu))
    return makeError("no CPU is called '" + cpu + "' for " + target.triple);
  std::unique_ptr<llvm::MCSubtargetInfo> info(backend->createMCSubtargetInfo(triple, cpu, features));
  // Asking for its code would end the process.
  if (triple.isX86() && triple.isArch64Bit() && !info->checkFeatures("+64bit"))
    return makeError("'" + cpu + "' has no 64-bit mode");
  return info;
}

/// Makes `target` one for code of a CPU called `cpu`, whose features are those that `info` has.
static void setCpu(HostTarget &target, StringRef cpu, const llvm::MCSubtargetInfo &info) {
  llvm::Triple triple(target.triple);
  llvm::StringMap<bool> enabled;
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    enabled[feature.first()] = info.checkFeatures(("+" + feature.first()).str());
  target.cpu = cpu.str();
  target.features.clear(); // those of the CPU
  target.vectorBits = vectorBitsOf(triple, enabled);
  target.bf16Dot = hasBf16Dot(triple, enabled);
}

llvm::Expected<HostTarget> HostTarget::detectAs(StringRef cpu) {
  HostTarget target = detect();
  auto wanted = lookUp(target, cpu);
  if (!wanted)
    return wanted.takeError();
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    if (!feature.second && (*wanted)->checkFeatures(("+" + feature.first()).str()))
      return makeError("this machine can't run code for '" + cpu + "': it has no " + feature.first());
  setCpu(target, cpu, **wanted);
  return target;
}

llvm::Expected<HostTarget> HostTarget::describe(StringRef cpu) {
  if (cpu == "host")
    return detect();
  HostTarget target;
  target.triple = llvm::Triple(llvm::sys::getProcessTriple()).str();
  auto wanted = lookUp(target, cpu);
  if (!wanted)
    return wanted.takeError();
  setCpu(target, cpu, **wanted);
  return target;
}

llvm::Expected<std::vector<std::string>> HostTarget::enabled(ArrayRef<StringRef> features) const {
  auto info = lookUp(*this, cpu, this->features);
  if (!info)
    return info.takeError();
  std::vector<std::string> result;
  for (StringRef feature : features)
    if ((*info)->checkFeatures(("+" + feature).str()))
      result.push_back(feature.str());
  return result;
}

HostTarget HostTarget::fromAttr(DictionaryAttr attr) {
  HostTarget target;
  auto text = [&](StringRef name, std::string &field) {
    if (auto value = attr.getAs<StringAttr>(name))
      field = value.str();
  };
  auto number = [&](StringRef name, int64_t &field) {
    if (auto value = attr.getAs<IntegerAttr>(name))
      field = value.getInt();
  };
  text("triple", target.triple);
  text("cpu", target.cpu);
  text("features", target.features);
  number("vector_bits", target.vectorBits);
  number("l1d_bytes", target.l1dBytes);
  number("l1d_ways", target.l1dWays);
  number("l2_bytes", target.l2Bytes);
  number("l3_bytes", target.l3Bytes);
  number("cores", target.cores);
  if (auto flag = attr.getAs<BoolAttr>("bf16_dot"))
    target.bf16Dot = flag.getValue();
  return target;
}

DictionaryAttr HostTarget::toAttr(MLIRContext *context) const {
  Builder b(context);
  return b.getDictionaryAttr({
      b.getNamedAttr("triple", b.getStringAttr(triple)),
      b.getNamedAttr("cpu", b.getStringAttr(cpu)),
      b.getNamedAttr("features", b.getStringAttr(features)),
      b.getNamedAttr("vector_bits", b.getI64IntegerAttr(vectorBits)),
      b.getNamedAttr("l1d_bytes", b.getI64IntegerAttr(l1dBytes)),
      b.getNamedAttr("l1d_ways", b.getI64IntegerAttr(l1dWays)),
      b.getNamedAttr("l2_bytes", b.getI64IntegerAttr(l2Bytes)),
      b.getNamedAttr("l3_bytes", b.getI64IntegerAttr(l3Bytes)),
      b.getNamedAttr("cores", b.getI64IntegerAttr(cores)),
      b.getNamedAttr("bf16_dot", b.getBoolAttr(bf16Dot)),
  });
}

void mlir::disc::setHostTarget(ModuleOp module, const HostTarget &target) {
  module->setAttr(kTargetAttrName, target.toAttr(module.getContext()));
}

HostTarget mlir::disc::getHostTarget(ModuleOp module) {
  if (auto attr = module->getAttrOfType<DictionaryAttr>(kTargetAttrName)) {
    HostTarget target = HostTarget::fromAttr(attr);
    if (!target.triple.empty())
      return target;
  }
  return HostTarget::detect();
}
