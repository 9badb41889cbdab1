//===- Cpu.h - what this machine's processor can do -------------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_CPU_H
#define DISC_RUNTIME_CORE_CPU_H

#include <string>
#include <vector>

namespace disc::rt {

/// Those of a list of LLVM's feature names, "avx2,fma", that this machine lacks, as such a list: "" if it has all. A
/// name that is not known counts as lacking.
std::string missingFeatures(const char *features);

/// The names that are known for the machines of an ELF file's e_machine.
std::vector<const char *> cpuFeatureNames(unsigned machine);

/// "x86-64", "aarch64", ...
const char *machineName();

/// e_machine of the ELF files that run here.
unsigned elfMachine();

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_CPU_H
