//===- TargetInfo.h - what passes need to know of a machine -------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_SUPPORT_TARGETINFO_H
#define DISC_TRANSFORMS_SUPPORT_TARGETINFO_H

#include "mlir/IR/BuiltinOps.h"
#include <optional>

namespace mlir::disc {

/// The numbers of the module attribute `disc_plan.target`; modest ones where it is silent.
struct TargetInfo {
  int64_t vectorBits = 256;
  int64_t vectorRegisters = 16;
  int64_t l1Bytes = 32 << 10;
  int64_t l1Ways = 8;
  int64_t l2Bytes = 512 << 10;
  int64_t l3Bytes = 8 << 20;
  int64_t cores = 1;
  int64_t warp = 32;       // threads of a device that step together
  bool matrixUnit = false; // of a device: warps have the instructions of lib/Target/GPU/MatrixUnit.h
  bool bf16Dot = false;
  bool i16Dot = false;     // sums of pairs of products of i16 in i32 are instructions
  bool i8Dot = false;      // sums of four products of bytes in i32 are, with one sign,
  bool i8DotMixed = false; // or of unsigned and signed ones
  bool fma = true;

  static constexpr llvm::StringLiteral attrName = "disc_plan.target";
  static TargetInfo get(ModuleOp module);

  /// 32-bit elements in a vector; kernels process this many elements of any type at a time.
  int64_t lanes() const { return vectorBits / 32; }

  /// Columns of a register tile of the product kernels, which are those of a panel, for sums of `bits` bits and a
  /// result of so many columns at most, if that is known; of floats, or of integers.
  int64_t panelColumns(int64_t bits, std::optional<int64_t> maxColumns = std::nullopt, bool floats = true) const;
  /// Rows of a register tile with panels of so many columns.
  int64_t tileRows(int64_t bits, int64_t columns) const;
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_TARGETINFO_H
