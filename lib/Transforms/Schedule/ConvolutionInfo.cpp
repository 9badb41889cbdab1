//===- ConvolutionInfo.cpp - the parts of a convolution kernel ------------===//
//
// Test: test/lit/Schedule/convolution.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Schedule/ConvolutionInfo.h"

using namespace mlir;
using namespace mlir::disc;

ConvolutionInfo ConvolutionInfo::get(ConvolutionOp op, ShapeAnalysis &shapes) {
  ConvolutionInfo info;
  info.op = op;
  info.panels = op.getWeight().getDefiningOp<UnpackOp>();
  SmallVector<SymExpr> input = shapes.dims(op.getInput()), weight = shapes.dims(op.getWeight()),
                       output = shapes.dims(op.getResult());
  int64_t spatial = op.getSpatialRank();
  for (int64_t d = 0; d < spatial; ++d) {
    Axis &axis = info.axes[3 - spatial + d];
    axis.dim = d + 1;
    axis.input = input[d + 1], axis.output = output[d + 1], axis.kernel = weight[d + 2];
    axis.stride = op.getStrides()[d], axis.dilation = op.getDilations()[d];
    axis.low = op.getLow()[d], axis.high = op.getHigh()[d], axis.inputDilation = op.getInputDilations()[d];
  }
  info.batch = output.front();
  info.groups = weight[0], info.groupOutputs = weight[1], info.groupInputs = weight.back();
  info.pixelInputs = SymExpr::ceilDiv(info.groupInputs, SymExpr(info.together())) * SymExpr(info.together());
  info.isDepthwise = info.groupOutputs.isConstant(1) && info.groupInputs.isConstant(1) && !info.groups.isConstant(1);
  info.inputElement = getElementTypeOrSelf(op.getInput().getType());
  info.weightElement = getElementTypeOrSelf(op.getWeight().getType());
  info.accumulator = getElementTypeOrSelf(op.getResult().getType());
  return info;
}

bool disc::multipliesBf16(ConvolutionOp op) {
  return getElementTypeOrSelf(op.getInput()).isBF16() && getElementTypeOrSelf(op.getWeight()).isBF16();
}

bool ConvolutionInfo::mergesLines(int64_t rows, ShapeAnalysis &shapes) const {
  const Axis &h = axes[1], &w = axes[2];
  std::optional<int64_t> width = shapes.range(w.output).max, lines = shapes.range(h.output).max;
  // One more copy for each tap must not cost what fuller tiles save.
  int64_t outputs = shapes.range(groupOutputs).min.value_or(0), taps = shapes.range(w.kernel).max.value_or(INT64_MAX);
  return !isDepthwise && width && *width <= rows + rows / 2 && (!lines || *lines > 1) && w.inputDilation == 1 &&
         h.inputDilation == 1 && taps <= 5 && outputs >= 64;
}

bool ConvolutionInfo::joinsLines(ShapeAnalysis &shapes) const {
  constexpr int64_t few = 4;
  const Axis &h = axes[1], &w = axes[2];
  std::optional<int64_t> taps = shapes.range(w.kernel).max;
  return !isDepthwise && h.stride == 1 && w.stride == 1 && taps && (*taps - 1) * w.dilation <= few;
}

SymExpr ConvolutionInfo::mergedLines(const SymExpr &lines) const {
  return axes[1].stride == 1 ? axes[1].window(lines) : lines;
}

SymExpr ConvolutionInfo::mergedCopies() const {
  SymExpr copies = axes[0].kernel * axes[2].kernel;
  return axes[1].stride == 1 ? copies : copies * axes[1].kernel;
}

FailureOr<ConvolutionInfo> ConvolutionInfo::get(Operation *kernel, Block &body, ShapeAnalysis &shapes) {
  auto ops = body.getOps<ConvolutionOp>();
  if (ops.empty() || std::next(ops.begin()) != ops.end())
    return kernel->emitError("a convolution kernel must hold one disc_tensor.convolution");
  return get(*ops.begin(), shapes);
}
