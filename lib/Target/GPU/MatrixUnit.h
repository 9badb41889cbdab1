//===- MatrixUnit.h - products of fragments by a warp ---------------*- C++ -*-===//
//
// The tensor cores of NVIDIA's GPUs, as `nvvm.mma.sync` has them: a warp multiplies 16 rows by 8 columns, and each of
// its 32 threads has a few elements of both and of the sums. Operands are read in chunks of 16 bytes along the sum:
// thread `4 * g + t` has chunk `t` of a line of 64 bytes, of the lines `g` and `g + 8` of the left operand and of the
// line `g` of the right one. Two instructions take the halves of the chunks. Which element of a line an instruction
// takes as which does not matter, because they are summed up, as long as it is the same in both operands; so no thread
// needs an element that another one has.
//
//   f16, bf16: m16n8k16, sums in f32
//   f32:       m16n8k8 of tf32, three times: an element x is the sum of hi, its upper 11 bits, and lo, the rest, and
//              x * y is nearly lo * hi + hi * lo + hi * hi. The sums of a line start from zero and are then added in
//              f32, because the unit truncates where f32 rounds. Nearly as exact as f32 (error of a product: 2^-22).
//              The rest of an infinity is NaN, and counts as zero (`nvvm.convert.float.to.tf32` of kernels:
//              NvvmLower.cpp). An infinity times a number without a rest is still NaN. Source: Markidis et al., NVIDIA
//              Tensor Core Programmability, Performance & Precision, 2018; Ootomo and Yokota, Recovering single
//              precision accuracy from Tensor Cores, 2022.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_GPU_MATRIXUNIT_H
#define DISC_LIB_TARGET_GPU_MATRIXUNIT_H

#include "lib/Target/GPU/DeviceKernel.h"

namespace mlir::disc {

class MatrixUnit {
public:
  static constexpr int64_t kRows = 16, kColumns = 8, kChunkBytes = 16, kLineBytes = 64;

  /// For operands of this type: f32, f16 or bf16.
  MatrixUnit(OpBuilder &b, Location loc, Type element) : b(b), loc(loc), element(element) {}

  /// Elements of a chunk, and of a line.
  int64_t chunk() const { return kChunkBytes * 8 / element.getIntOrFloatBitWidth(); }
  int64_t line() const { return kLineBytes * 8 / element.getIntOrFloatBitWidth(); }
  /// The type in which chunks are moved: vector<4xi32>.
  VectorType chunkType() const { return VectorType::get({4}, b.getI32Type()); }

  /// A chunk, taken apart for the instructions. For f32 there are two parts: hi and lo, which may be missing in columns
  /// where it is zero.
  struct Fragment {
    SmallVector<Value> parts[2]; // each the words of one chunk
  };
  Fragment prepare(Value chunk);

  /// Sums (4 x f32 each: rows g and g + 8, columns 2t and 2t + 1 of both) for each pair of fragments in `rows`, of the
  /// lines g and g + 8, and each of `columns`, with the products of their lines added. Instructions that follow each
  /// other are independent, as far as there are several.
  SmallVector<Value> multiply(ArrayRef<Fragment> rows, ArrayRef<Fragment> columns, ValueRange sums);

  /// A chunk from elements, of which there are chunk().
  Value pack(ArrayRef<Value> elements);
  /// Four matrices of 8 x 8 half floats from memory of the block, transposed: lane `i` gives the address of row `i % 8`
  /// of matrix `i / 8`, and gets the rows `2 * t` and `2 * t + 1` of column `g` of each as a word.
  SmallVector<Value> loadTransposed(Value address);
  /// One instruction: a has 4 words, c has 4 sums.
  SmallVector<Value> instruction(ArrayRef<Value> a, ArrayRef<Value> right, ValueRange sums);
  /// f32 values as words of both parts.
  std::pair<Value, Value> split(Value word);

  /// An upper part, or 0 for that of an infinity or NaN.
  Value finite(Value high);

  bool isExact() const { return !element.isF32(); }

private:
  OpBuilder &b;
  Location loc;
  Type element;
};

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_MATRIXUNIT_H
