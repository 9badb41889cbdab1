//===- HostTarget.h - Description of the machine we compile for -*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_HOSTTARGET_H
#define DISC_TARGET_DRIVER_HOSTTARGET_H

#include "dialects/Plan/PlanDialect.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <string>
#include <vector>

namespace mlir::disc {

/// A CPU as it is found or asked for. Compilations know it by the module's `TargetAttr`.
struct HostTarget {
  std::string triple;
  std::string cpu;      // as in -mcpu, e.g. "znver4"
  std::string features; // as in -mattr, e.g. "+avx2,+fma"
  int64_t vectorBits = 128;
  int64_t vectorRegisters = 16;
  int64_t sveBits = 0; // vectors are SVE's, of just this length; 0: they are not
  int64_t l1dBytes = 32 << 10;
  int64_t l1dWays = 8;
  int64_t l2Bytes = 1 << 20;
  int64_t l3Bytes = 16 << 20;
  int64_t cores = 1;
  bool fma = false;        // a product and a sum of floats are one instruction
  bool bf16Dot = false;    // sums of pairs of products of bf16 in f32 are instructions
  bool i16Dot = false;     // sums of pairs of products of i16 in i32 are instructions for whole vectors
  bool i8Dot = false;      // sums of four products of bytes in i32 are, with one sign,
  bool i8DotMixed = false; // or of unsigned and signed ones
  bool i8Tiles = false;    // products of tiles of bytes in i32 are instructions,
  bool bf16Tiles = false;  // and of bf16 in f32
  bool fetchToL2 = false;  // memory that is read in order comes faster if it is fetched to the second-level cache

  /// The machine this process runs on.
  static HostTarget detect();

  /// This machine as if it were only a `cpu`, as clang's -march spells it
  /// ("x86-64-v3", "haswell"): code for machines of that kind, and for tests of
  /// other vector widths. An error names what this machine lacks to be one.
  static llvm::Expected<HostTarget> detectAs(llvm::StringRef cpu);

  /// A machine of which only the kind of CPU is known: it need not be this one, and has caches of common sizes.
  /// `machine` is one of machines(), "" a machine like this one, and `cpu` a name of LLVM's, with features that it has
  /// besides ("cortex-a76+dotprod", "neoverse-v1+sve256"). "host" is this very machine. An error lists what there is.
  static llvm::Expected<HostTarget> describe(llvm::StringRef cpu, llvm::StringRef machine = "");

  /// The machines that there is a runtime for, as Debian writes them: "aarch64-linux-gnu".
  static std::vector<llvm::StringRef> machines();

  /// Which of them this is, and which the one that this process runs on is.
  llvm::StringRef machine() const;
  static llvm::StringRef ownMachine();

  /// What `disc_plan.target` says of the CPU.
  static HostTarget fromAttr(TargetAttr attr);

  /// Which of `features` ("avx2") its code may use.
  llvm::Expected<std::vector<std::string>> enabled(llvm::ArrayRef<llvm::StringRef> features) const;

  TargetAttr toAttr(MLIRContext *context) const;
};

/// Makes LLVM's back ends known, once.
void initializeTargets();

void setHostTarget(ModuleOp module, const HostTarget &target);

/// The module's target, or the detected host when it names none.
HostTarget getHostTarget(ModuleOp module);

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_HOSTTARGET_H
