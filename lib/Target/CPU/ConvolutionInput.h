//===- ConvolutionInput.h - what tasks of a convolution read -------*- C++ -*-===//
//
// Chunks of an image, and the part of the input that such a chunk is computed from.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_CPU_CONVOLUTIONINPUT_H
#define DISC_LIB_TARGET_CPU_CONVOLUTIONINPUT_H

#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/Common/TileLoops.h"
#include "lib/Transforms/Schedule/ConvolutionInfo.h"

namespace mlir::disc {

/// Some lines of an image of the result by some tiles of each; of some images, of which `image` is the first.
struct ConvolutionChunk {
  Value image, images, z;
  Value firstLine, lines;
  Value firstTile, endTile, firstPosition, positions;
};

/// How the schedule divides images.
class ConvolutionChunks {
public:
  ConvolutionChunks(KernelEmission &e, PointEmitter &points, IndexMath &m, ConvolutionInfo &info);

  ConvolutionChunk locate(Value linear);
  /// Positions of tile `tile` of a line.
  Value tileStart(Value tile) { return positionSplit->start(m, tile); }
  Value tileSize(Value tile) { return positionSplit->size(m, tile); }
  /// The longest chunk, in positions and in lines.
  SymExpr maxPositions, maxLines;

private:
  IndexMath &m;
  Value depth, lines, tiles, down, across;
  std::optional<EvenSplit> positionSplit, lineSplit, tileSplit;
  std::optional<EvenSplit> imageSplit; // unless each image is a chunk
};

/// The point of the convolution's result at a position of a chunk.
SmallVector<Idx> convolutionPoint(PointEmitter &points, ConvolutionInfo &info, const ConvolutionChunk &chunk,
                                  Value line, Idx position, Idx channel);

/// Stores what the kernel yields at `point` of the convolution's result, whose value there `sum` gives.
LogicalResult storeConvolution(KernelEmission &e, PointEmitter &points, Value result, ArrayRef<Idx> point, Value mask,
                               PointEmitter::Computation sum);

/// The code of a depthwise convolution.
LogicalResult emitDepthwise(KernelEmission &e, const ConvolutionInfo &info);
LogicalResult emitWinograd(KernelEmission &e, WinogradOp op);

/// The input of a chunk for one group, read in place, or copied to scratch with zeros where the input ends.
class ConvolutionInput {
public:
  ConvolutionInput(KernelEmission &e, PointEmitter &points, IndexMath &m, ConvolutionInfo &info,
                   ConvolutionChunks &chunks);
  /// Fails, with an error, if the input is no buffer.
  LogicalResult plan();

  bool isCopied() const { return copied; }
  LinesOfTiles lines() const { return linesOfTiles; }
  /// From one tap of the kernel to the next, in elements of what the product reads.
  SymExpr zTap, hTap, wTap;
  /// From one line of the chunk to the next, and from one result to the next.
  SymExpr lineStep, step;
  /// From one image of the chunk to the next, of a copy.
  SymExpr imageStep;
  /// The results from one line to the next where lines are joined, those between the lines among them.
  SymExpr joinedLine;

  /// The first element that the first result of the chunk's first image reads.
  Value pointer(const ConvolutionChunk &chunk, Value group);
  /// Fills the scratch memory of the chunk's first image.
  void copy(const ConvolutionChunk &chunk, Value group, Value to);

private:
  /// Position `at` of an axis with zeros, as one of the input; `inside` tells whether there is an element.
  Value position(const ConvolutionInfo::Axis &axis, Value at, Value &inside);
  void copyLine(const ConvolutionChunk &chunk, Value from, Value to, Value inside);
  void copyMerged(const ConvolutionChunk &chunk, Value image, Value to);
  void copyResults(const ConvolutionChunk &chunk, Value tap, Value from, Value to, Value inside);
  void copyRun(Value from, Value to, Value count);
  void zeros(Value to, Value count);
  Value read(Value from, const Idx &at, Value mask);
  Value bytes(int64_t code);
  /// Whether pixels of the copy have more channels than those of the input. What is there is multiplied by zeros.
  bool isPadded() const { return !e.shapes.equal(info.pixelInputs, info.groupInputs); }
  /// Whether these channels must be zeros, not what the memory contains: NaN times 0 is NaN.
  bool padsWithZeros() const { return isPadded() && isa<FloatType>(made); }
  Value ofInput(Value ptr, Value elements) { return m.advance(ptr, m.mul(elements, byteSize(element))); }
  Value ofCopy(Value ptr, Value elements) { return m.advance(ptr, m.mul(elements, byteSize(made))); }
  void copyPixels(Value from, Value to, Value count, int64_t fromStep, int64_t toStep);
  void vectors(Value count, function_ref<void(Value at, Value mask)> body);
  Value stride(const ConvolutionInfo::Axis &axis);

  KernelEmission &e;
  OpBuilder &b;
  PointEmitter &points;
  IndexMath &m;
  ConvolutionInfo &info;
  ConvolutionChunks &chunks;
  std::optional<BufferOperand> buffer;
  Type element, made; // of the input, and of its copy
  bool copied = true;
  LinesOfTiles linesOfTiles = LinesOfTiles::Apart;
  SymExpr zStride, hStride, wStride; // of what is copied, from position to position
};

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_CONVOLUTIONINPUT_H
