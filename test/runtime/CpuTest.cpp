//===- CpuTest.cpp - what this machine's processor can do -----------------===//

#include "lib/Runtime/Core/Cpu.h"
#include "Check.h"
#include "HandModel.h"

#include <algorithm>
#include <elf.h>
#include <string_view>

using namespace disc::rt;
using namespace disc::test;

TEST(featuresOfThisMachine) {
  CHECK_TEXT(missingFeatures(""), "");
  CHECK_TEXT(missingFeatures("avx1024"), "avx1024");
#if defined(__x86_64__)
  CHECK_TEXT(missingFeatures("sse,sse2,x87,cmov,cx8,fxsr,mmx"), ""); // what every such machine has
  CHECK_TEXT(missingFeatures("sse2,,nonsense,x87,more"), "nonsense,more");
  // As the compiler's own detection has it.
  struct {
    const char *name;
    bool has;
  } known[] = {{"sse4.2", bool(__builtin_cpu_supports("sse4.2"))},
               {"avx", bool(__builtin_cpu_supports("avx"))},
               {"avx2", bool(__builtin_cpu_supports("avx2"))},
               {"fma", bool(__builtin_cpu_supports("fma"))},
               {"bmi", bool(__builtin_cpu_supports("bmi"))},
               {"bmi2", bool(__builtin_cpu_supports("bmi2"))},
               {"popcnt", bool(__builtin_cpu_supports("popcnt"))},
               {"avx512f", bool(__builtin_cpu_supports("avx512f"))},
               {"avx512bw", bool(__builtin_cpu_supports("avx512bw"))},
               {"avx512vl", bool(__builtin_cpu_supports("avx512vl"))},
               {"avx512vnni", bool(__builtin_cpu_supports("avx512vnni"))},
               {"avx512bf16", bool(__builtin_cpu_supports("avx512bf16"))},
               {"gfni", bool(__builtin_cpu_supports("gfni"))},
               {"vpclmulqdq", bool(__builtin_cpu_supports("vpclmulqdq"))}};
  for (auto [name, has] : known)
    CHECK_TEXT(missingFeatures(name), has ? "" : name);
#endif
}

TEST(knownFeatures) {
  for (const char *name : cpuFeatureNames(elfMachine())) {
    std::string missing = missingFeatures(name);
    CHECK(missing.empty() || missing == name);
  }
  auto knows = [](unsigned machine, std::string_view wanted) {
    auto names = cpuFeatureNames(machine);
    return std::any_of(names.begin(), names.end(), [&](const char *name) { return name == wanted; });
  };
  CHECK(knows(EM_X86_64, "avx2") && !knows(EM_X86_64, "neon"));
  CHECK(knows(EM_AARCH64, "dotprod") && knows(EM_AARCH64, "sve256") && !knows(EM_AARCH64, "vfp4"));
  CHECK(knows(EM_ARM, "vfp4"));
  CHECK(cpuFeatureNames(EM_NONE).empty());
}

TEST(theFirstVariantThatRunsIsChosen) {
  auto library = scaleLibrary(3);
  disc_variant best = library->variant, plain = library->variant;
  best.cpu = "best";
  best.features = "avx4096";
  plain.cpu = "plain";
  disc_variant variants[] = {best, plain};
  library->library.variants = variants;
  library->library.num_variants = 2;
  disc_model *model = nullptr;
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
  CHECK(disc_describe(model, &spec) == DISC_OK);
  CHECK_TEXT(spec.cpu, "plain");
  disc_free(model);
  variants[1].features = "nonsense";
  model = nullptr;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_ERROR_TARGET && !model);
  CHECK(std::string(disc_last_error()).find("best needs avx4096; plain needs nonsense") != std::string::npos);
  library->library.num_variants = 0;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_ERROR_TARGET);
}
