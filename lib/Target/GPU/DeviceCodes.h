//===- DeviceCodes.h - quantised weights as a matrix unit multiplies them ---*- C++ -*-===//
//
// The right operand of a product that `disc_tensor.unpack_fragments` describes: codes of 4 or 8 bits in the order in
// which threads read them, with scales and zeros. There are two ways to read it:
//
//   as fragments   a thread takes four words of its column, and makes whole numbers of them; sums are scaled, one run
//   of
//                  values that share a scale after the other. Numbers up to 2^8 are exact in all types of elements.
//   as elements    (code - zero) * scale, rounded to the type of the elements, a chunk of 16 bytes or one at a time
//
// An integer becomes a float without a conversion: of f32, the bits of 2^23 + code are those of 2^23 with the code as
// the lowest bits, and subtracting 2^23 + zero is exact. f16 (1024) and bf16 (128, codes of 4 bits) have two in a word.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_GPU_DEVICECODES_H
#define DISC_LIB_TARGET_GPU_DEVICECODES_H

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/GPU/MatrixUnit.h"

namespace mlir::disc {

class DeviceCodes {
public:
  static constexpr int64_t kColumns = 8, kRun = 32; // of a fragment; values of k of a step of four neighbouring threads
  static constexpr int64_t kFragmentBytes = 512;    // of the codes of 8 columns and a block

  /// Null if the operand is not made of codes.
  static std::unique_ptr<DeviceCodes> get(DeviceKernel &k, PointEmitter &points, Value operand);

  int64_t tiles() const { return llvm::divideCeil(columns, kColumns); }
  int64_t blocks() const { return llvm::divideCeil(depth, block); }
  int64_t runs() const { return block / kRun; }
  bool hasZeros() const { return bool(zeros); }
  bool isConstant() const { return constant; }

  /// The addresses of the first fragment of a tile of columns (the next ones are behind it), and of the first of its
  /// scales or zeros, those of column `8 * tile`.
  Value fragmentAddress(Value batch, Value tile);
  Value scaleAddress(Value batch, Value tile) { return paneAddress(scales, batch, tile); }
  Value zeroAddress(Value batch, Value tile) { return paneAddress(zeros, batch, tile); }
  /// Bytes from the scales of one group to those of the next.
  int64_t groupBytes() const { return 4 * kColumns * tiles(); }

  /// The whole numbers that the words (vector<4xi32>) of a thread stand for in one run, as fragments of chunks: two for
  /// f32, otherwise one. `zero`: of the column, f32, if it is to be subtracted; otherwise all are less commonZero().
  SmallVector<MatrixUnit::Fragment> numbers(MatrixUnit &unit, Value words, int64_t run, Value zero);
  /// What is subtracted from all codes: their zero, or the middle of them if there are zeros.
  int64_t commonZero() const { return hasZeros() ? 1 << (bits - 1) : zero; }
  /// The elements from `position` on, a multiple of a chunk, of a column: a chunk.
  Value chunk(MatrixUnit &unit, Value batch, Value column, Value position);
  /// The address of a column of what decode() has left in memory.
  Value decodedLine(Value memory, Value batch, Value column);
  /// What four words of a thread stand for, as lines along the sum, a multiple of 16 bytes. `number`: of the thread,
  /// among those of all batches.
  void decode(MatrixUnit &unit, Value memory, Value batches, Value number);
  /// One element.
  Value element(Value batch, Value column, Value position);

  int64_t bits, block, groups, depth, columns, zero;
  /// Values of k that share a scale.
  int64_t groupSize() const { return depth / groups; }

private:
  explicit DeviceCodes(DeviceKernel &k) : k(k), b(k.b), m(k.m) {}

  Value paneAddress(Value pane, Value batch, Value tile);
  Value scaleOrZero(Value pane, Value batch, Value column, Value group);
  /// The elements of a chunk, from the words that have their codes. `first`: of the chunk among eight of a run.
  SmallVector<Value> elements(ArrayRef<Value> words, int64_t first, int64_t count, Value base, Value scale);
  /// The address of word `word` of four of the thread that has the values of k from `position` on.
  Value wordAddress(Value batch, Value column, Value position, Value word);
  /// Code `shift` bits up in a word, less the zero, as f32. `base`: 2^23 + zero.
  Value number(Value word, Value shift, Value base);
  Value base(Value zero);
  Value i32(int64_t v);
  Value f32(double v);

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  Type type;                  // of the elements
  Value codes, scales, zeros; // the operands' addresses; zeros: null if all have one
  bool constant = false;
};

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_GPU_DEVICECODES_H
