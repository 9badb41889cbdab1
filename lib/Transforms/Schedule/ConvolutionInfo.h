//===- ConvolutionInfo.h - the parts of a convolution kernel -------*- C++ -*-===//
//
// A convolution as its schedule and its code see it: always three spatial axes, of which the outer ones may be missing,
// groups of channels, and a right operand in panels.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TRANSFORMS_SCHEDULE_CONVOLUTIONINFO_H
#define DISC_LIB_TRANSFORMS_SCHEDULE_CONVOLUTIONINFO_H

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include <array>

namespace mlir::disc {

struct ConvolutionInfo {
  /// One spatial dimension. Where the tensor has none, a unit one with dim = -1.
  struct Axis {
    int64_t dim = -1; // of input and result
    SymExpr input{1}, output{1}, kernel{1};
    int64_t stride = 1, low = 0, high = 0, dilation = 1, inputDilation = 1;

    /// Positions of the (padded) input that `outputs` neighbouring results read.
    SymExpr window(const SymExpr &outputs) const {
      return (outputs - SymExpr(1)) * SymExpr(stride) + (kernel - SymExpr(1)) * SymExpr(dilation) + SymExpr(1);
    }
    /// The input has an element wherever a result reads.
    bool isInside() const { return low <= 0 && high <= 0 && inputDilation == 1; }
  };

  ConvolutionOp op;
  UnpackOp panels; // null until weights are packed
  std::array<Axis, 3> axes;
  SymExpr batch, groups, groupOutputs, groupInputs;
  SymExpr pixelInputs; // of a group, as products read them: rounded up where that many are read together
  /// One filter for each channel of the input: vectors run along the channels of all groups.
  bool isDepthwise = false;
  Type inputElement, weightElement, accumulator;

  /// The elements that products read of the input: rounded beside weights in pairs of bf16.
  Type inputRead() const { return together() == 2 ? weightElement : inputElement; }

  /// What is added to bytes of the input before they are multiplied, modulo 256.
  int64_t inputShift() const { return UnpackOp(panels) ? UnpackOp(panels).getLeftShift() : 0; }
  /// Channels side by side in a panel.
  int64_t together() const { return UnpackOp(panels) ? UnpackOp(panels).getTogether() : 1; }

  Axis &z() { return axes[0]; }
  Axis &h() { return axes[1]; }
  Axis &w() { return axes[2]; }
  /// No zeros around the input, and none between its elements.
  bool isInside() const {
    return llvm::all_of(axes, [](const Axis &a) { return a.isInside(); });
  }

  /// Lines too short to fill tiles of `rows` results: the input is copied once for each tap of a line (and of a column,
  /// where steps are larger than one), so that results of all lines lie evenly, and tiles go over the ends of lines.
  bool mergesLines(int64_t rows, ShapeAnalysis &shapes) const;
  /// Tiles may go on from line to line of the copied input: results there are evenly apart, with few between the lines
  /// whose sums nobody needs.
  bool joinsLines(ShapeAnalysis &shapes) const;
  /// Lines of one copy that `lines` lines of the result read, and the number of copies, where lines are merged.
  SymExpr mergedLines(const SymExpr &lines) const;
  SymExpr mergedCopies() const;

  static ConvolutionInfo get(ConvolutionOp op, ShapeAnalysis &shapes);
  /// Of a kernel's body, which must hold one.
  static FailureOr<ConvolutionInfo> get(Operation *kernel, Block &body, ShapeAnalysis &shapes);
};

/// Whether input and weights are bf16.
bool multipliesBf16(ConvolutionOp op);

/// Blocks of 2 x 2 results along spatial dimension `d` of Winograd's way. With dilated taps those of each residue are
/// counted apart: block `i` has positions `2 * dilation * (i / dilation) + i % dilation`, and `dilation` further.
SymExpr blocksOfWinograd(WinogradOp op, int64_t d, ShapeAnalysis &shapes);

} // namespace mlir::disc

#endif // DISC_LIB_TRANSFORMS_SCHEDULE_CONVOLUTIONINFO_H
