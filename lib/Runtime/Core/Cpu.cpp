//===- Cpu.cpp - what this machine's processor can do ---------------------===//

#include "lib/Runtime/Core/Cpu.h"

#include <algorithm>
#include <cstdint>
#include <elf.h>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace disc::rt {

#if defined(__x86_64__)

const char *machineName() { return "x86-64"; }
unsigned elfMachine() { return EM_X86_64; }

namespace {
/// Which registers of which leaf of cpuid say it, and what the system must save for it to be usable.
enum Word { kL1C, kL1D, kL7B, kL7C, kL7D, kL71A, kX1C, kX1D, kX8B, kLD1A, kWords };
enum Needs { kNothing, kYmm, kZmm, kTiles };

struct Feature {
  const char *name;
  Word word;
  unsigned bit;
  Needs needs = kNothing;
};
} // namespace

static constexpr Feature kFeatures[] = {
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

namespace {
struct Cpu {
  uint32_t words[kWords] = {};
  bool usable[4] = {true, false, false, false};

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
};
} // namespace

static bool has(std::string_view name) {
  static const Cpu cpu;
  for (const Feature &feature : kFeatures)
    if (name == feature.name)
      return (cpu.words[feature.word] >> feature.bit & 1) && cpu.usable[feature.needs];
  return false;
}

std::vector<const char *> cpuFeatureNames() {
  std::vector<const char *> names;
  for (const Feature &feature : kFeatures)
    names.push_back(feature.name);
  return names;
}

#elif defined(__aarch64__)

const char *machineName() { return "aarch64"; }
unsigned elfMachine() { return EM_AARCH64; }

namespace {
struct Feature {
  const char *name;
  unsigned long mask;
  unsigned long type;
};
} // namespace

static constexpr Feature kFeatures[] = {
    {"neon", HWCAP_ASIMD, AT_HWCAP},      {"fp-armv8", HWCAP_FP, AT_HWCAP}, {"fullfp16", HWCAP_ASIMDHP, AT_HWCAP},
    {"dotprod", HWCAP_ASIMDDP, AT_HWCAP}, {"lse", HWCAP_ATOMICS, AT_HWCAP}, {"sve", HWCAP_SVE, AT_HWCAP},
#ifdef HWCAP2_BF16
    {"bf16", HWCAP2_BF16, AT_HWCAP2},     {"i8mm", HWCAP2_I8MM, AT_HWCAP2},
#endif
};

static bool has(std::string_view name) {
  for (const Feature &feature : kFeatures)
    if (name == feature.name)
      return getauxval(feature.type) & feature.mask;
  return false;
}

std::vector<const char *> cpuFeatureNames() {
  std::vector<const char *> names;
  for (const Feature &feature : kFeatures)
    names.push_back(feature.name);
  return names;
}

#else
#error "no detection of processor features for this machine"
#endif

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
