//===- Cpu.cpp - what this machine's processor can do ---------------------===//

#include "lib/Runtime/Core/Cpu.h"

#include <algorithm>
#include <cstdint>
#include <elf.h>
#include <iterator>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

namespace disc::rt {

namespace {
/// Where a feature is told. On x86-64 by registers of leaves of cpuid, and by what the system saves (`Needs`); on ARM
/// by the kernel, in words of the auxiliary vector; lengths of vectors by a system call.
enum Word { kL1C, kL1D, kL7B, kL7C, kL7D, kL71A, kX1C, kX1D, kX8B, kLD1A, kHwcap, kHwcap2, kVectorLength, kWords };
enum Needs { kNothing, kYmm, kZmm, kTiles };

struct Feature {
  const char *name;
  Word word;
  unsigned bit;
  Needs needs = kNothing;
};
} // namespace

static constexpr Feature kX86[] = {
    {"sse3", kL1C, 0},
    {"pclmul", kL1C, 1},
    {"ssse3", kL1C, 9},
    {"fma", kL1C, 12, kYmm},
    {"cx16", kL1C, 13},
    {"sse4.1", kL1C, 19},
    {"sse4.2", kL1C, 20},
    {"crc32", kL1C, 20},
    {"movbe", kL1C, 22},
    {"popcnt", kL1C, 23},
    {"aes", kL1C, 25},
    {"xsave", kL1C, 27}, // OSXSAVE: the system uses it, too
    {"avx", kL1C, 28, kYmm},
    {"f16c", kL1C, 29, kYmm},
    {"rdrnd", kL1C, 30},
    {"cx8", kL1D, 8},
    {"cmov", kL1D, 15},
    {"mmx", kL1D, 23},
    {"fxsr", kL1D, 24},
    {"sse", kL1D, 25},
    {"sse2", kL1D, 26},
    {"x87", kL1D, 0},
    {"fsgsbase", kL7B, 0},
    {"bmi", kL7B, 3},
    {"avx2", kL7B, 5, kYmm},
    {"bmi2", kL7B, 8},
    {"invpcid", kL7B, 10},
    {"avx512f", kL7B, 16, kZmm},
    {"avx512dq", kL7B, 17, kZmm},
    {"rdseed", kL7B, 18},
    {"adx", kL7B, 19},
    {"avx512ifma", kL7B, 21, kZmm},
    {"clflushopt", kL7B, 23},
    {"clwb", kL7B, 24},
    {"avx512cd", kL7B, 28, kZmm},
    {"sha", kL7B, 29},
    {"avx512bw", kL7B, 30, kZmm},
    {"avx512vl", kL7B, 31, kZmm},
    {"avx512vbmi", kL7C, 1, kZmm},
    {"avx512vbmi2", kL7C, 6, kZmm},
    {"shstk", kL7C, 7},
    {"gfni", kL7C, 8},
    {"vaes", kL7C, 9, kYmm},
    {"vpclmulqdq", kL7C, 10, kYmm},
    {"avx512vnni", kL7C, 11, kZmm},
    {"avx512bitalg", kL7C, 12, kZmm},
    {"avx512vpopcntdq", kL7C, 14, kZmm},
    {"rdpid", kL7C, 22},
    {"movdiri", kL7C, 27},
    {"movdir64b", kL7C, 28},
    {"avx512vp2intersect", kL7D, 8, kZmm},
    {"serialize", kL7D, 14},
    {"amx-bf16", kL7D, 22, kTiles},
    {"avx512fp16", kL7D, 23, kZmm},
    {"amx-tile", kL7D, 24, kTiles},
    {"amx-int8", kL7D, 25, kTiles},
    {"avxvnni", kL71A, 4, kYmm},
    {"avx512bf16", kL71A, 5, kZmm},
    {"amx-fp16", kL71A, 21, kTiles},
    {"avxifma", kL71A, 23, kYmm},
    {"sahf", kX1C, 0},
    {"lzcnt", kX1C, 5},
    {"sse4a", kX1C, 6},
    {"prfchw", kX1C, 8},
    {"xop", kX1C, 11, kYmm},
    {"fma4", kX1C, 16, kYmm},
    {"mwaitx", kX1C, 29},
    {"64bit", kX1D, 29},
    {"clzero", kX8B, 0},
    {"rdpru", kX8B, 4},
    {"wbnoinvd", kX8B, 9},
    {"xsaveopt", kLD1A, 0},
    {"xsavec", kLD1A, 1},
    {"xsaves", kLD1A, 3},
};

// Not all that there are: what code that we generate may use. (A CPU's name promises cryptography to LLVM that not
// every such CPU has.)
static constexpr Feature kAArch64[] = {
    {"fp-armv8", kHwcap, 0},
    {"neon", kHwcap, 1},
    {"lse", kHwcap, 8},
    {"fullfp16", kHwcap, 10},
    {"rdm", kHwcap, 12},
    {"complxnum", kHwcap, 14},
    {"dotprod", kHwcap, 20},
    {"sve", kHwcap, 22},
    {"fp16fml", kHwcap, 23},
    {"sve2", kHwcap2, 1},
    {"fptoint", kHwcap2, 8},
    {"i8mm", kHwcap2, 13},
    {"bf16", kHwcap2, 14},
    // Registers of just this many bits.
    {"sve256", kVectorLength, 5},
    {"sve512", kVectorLength, 6},
    {"sve1024", kVectorLength, 7},
    {"sve2048", kVectorLength, 8},
};

static constexpr Feature kArm[] = {
    {"neon", kHwcap, 12},  {"vfp3", kHwcap, 13}, {"vfp4", kHwcap, 16},     {"hwdiv-arm", kHwcap, 17},
    {"hwdiv", kHwcap, 18}, {"d32", kHwcap, 19},  {"fullfp16", kHwcap, 23}, {"dotprod", kHwcap, 24},
};

#if defined(__x86_64__)
const char *machineName() { return "x86-64"; }
unsigned elfMachine() { return EM_X86_64; }
#elif defined(__aarch64__)
const char *machineName() { return "aarch64"; }
unsigned elfMachine() { return EM_AARCH64; }
#elif defined(__arm__)
const char *machineName() { return "arm"; }
unsigned elfMachine() { return EM_ARM; }
#else
#error "no detection of processor features for this machine"
#endif

template <typename Visit> static void forFeatures(unsigned machine, Visit visit) {
  if (machine == EM_X86_64)
    std::for_each(std::begin(kX86), std::end(kX86), visit);
  else if (machine == EM_AARCH64)
    std::for_each(std::begin(kAArch64), std::end(kAArch64), visit);
  else if (machine == EM_ARM)
    std::for_each(std::begin(kArm), std::end(kArm), visit);
}

namespace {
struct Cpu {
  uint32_t words[kWords] = {};
  bool usable[4] = {true, false, false, false};

#if defined(__x86_64__)
  Cpu() {
    uint32_t a = 0, b = 0, c = 0, d = 0;
    auto leaf = [&](uint32_t number, uint32_t sub) { return __get_cpuid_count(number, sub, &a, &b, &c, &d) != 0; };
    if (leaf(1, 0)) {
      words[kL1C] = c;
      words[kL1D] = d;
    }
    uint64_t saved = 0;
    if (words[kL1C] >> 27 & 1) {
      uint32_t low, high;
      asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
      saved = low | uint64_t(high) << 32;
    }
    usable[kYmm] = (saved & 0x6) == 0x6;
    usable[kZmm] = (saved & 0xe6) == 0xe6;
    usable[kTiles] = (saved & 0x60000) == 0x60000;
    if (leaf(7, 0)) {
      words[kL7B] = b;
      words[kL7C] = c;
      words[kL7D] = d;
      if (a >= 1 && leaf(7, 1))
        words[kL71A] = a;
    }
    if ((words[kL1C] >> 27 & 1) && leaf(0xd, 1))
      words[kLD1A] = a;
    if (leaf(0x80000001, 0)) {
      words[kX1C] = c;
      words[kX1D] = d;
    }
    if (leaf(0x80000008, 0))
      words[kX8B] = b;
  }
#else
  Cpu() {
    words[kHwcap] = uint32_t(getauxval(AT_HWCAP));
    words[kHwcap2] = uint32_t(getauxval(AT_HWCAP2));
#ifdef PR_SVE_GET_VL
    // A power of 2, in bytes: a bit of its own.
    if (int length = prctl(PR_SVE_GET_VL); length > 0)
      words[kVectorLength] = uint32_t(length) & PR_SVE_VL_LEN_MASK;
#endif
  }
#endif
};
} // namespace

/// Asks the system once for the memory that the state of tiles takes in each thread. It refuses where a thread's stack
/// for signals is too small for that state.
static bool mayUseTiles() {
#if defined(__x86_64__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

static bool has(std::string_view name) {
  static const Cpu cpu;
  bool found = false;
  forFeatures(elfMachine(), [&](const Feature &feature) {
    if (name == feature.name)
      found = (cpu.words[feature.word] >> feature.bit & 1) && cpu.usable[feature.needs] &&
              (feature.needs != kTiles || mayUseTiles());
  });
  return found;
}

std::vector<const char *> cpuFeatureNames(unsigned machine) {
  std::vector<const char *> names;
  forFeatures(machine, [&](const Feature &feature) { names.push_back(feature.name); });
  return names;
}

std::string missingFeatures(const char *features) {
  std::string missing;
  std::string_view rest(features);
  while (!rest.empty()) {
    std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name.empty() || has(name))
      continue;
    missing += missing.empty() ? "" : ",";
    missing += name;
  }
  return missing;
}

} // namespace disc::rt
