//===- TargetInfo.h - what passes need to know of a machine -------*- C++ -*-===//
#ifndef DISC_TRANSFORMS_SUPPORT_TARGETINFO_H
#define DISC_TRANSFORMS_SUPPORT_TARGETINFO_H

#include "dialects/Plan/PlanDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include <optional>

namespace mlir::disc {

/// What schedules ask of a module's target (`TargetAttr`), and the tiles that follow from it.
struct TargetInfo {
  int64_t vectorBits, vectorRegisters, l1Bytes, l1Ways, l2Bytes, l3Bytes, cores, warp;
  bool matrixUnit, bf16Dot, i16Dot, i8Dot, i8DotMixed, i8Tiles, bf16Tiles, fetchToL2, fma;

  static TargetInfo get(ModuleOp module);

  /// 32-bit elements in a vector; kernels process this many elements of any type at a time.
  int64_t lanes() const { return vectorBits / 32; }

  /// Columns of a register tile of the product kernels, which are those of a panel, for sums of `bits` bits and a
  /// result of so many columns at most, if that is known; of floats, or of integers.
  int64_t panelColumns(int64_t bits, std::optional<int64_t> maxColumns = std::nullopt, bool floats = true) const;
  /// Rows of a register tile with panels of so many columns; of a product of tiles if `tiles` is set.
  int64_t tileRows(int64_t bits, int64_t columns, bool tiles = false) const;
  /// Whether pairs of bf16 in panels of two vectors are multiplied as tiles.
  bool multipliesHalves() const { return bf16Tiles && vectorBits == 512; }
  /// Whether products with panels of `element`, so many values of k side by side, are products of tiles.
  bool multipliesTiles(int64_t together, Type element) const {
    return (together == 4 && i8Tiles) || (together == 2 && element.isBF16() && bf16Tiles);
  }
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_TARGETINFO_H
