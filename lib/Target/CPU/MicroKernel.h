//===- MicroKernel.h - register-tiled products --------------------*- C++ -*-===//
//
// The innermost product of every contraction and of attention: a function that multiplies `rows` rows of A by one
// panel of B, with all sums in registers. One function per height, so that no row is padded.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_CPU_MICROKERNEL_H
#define DISC_LIB_TARGET_CPU_MICROKERNEL_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::disc {

/// What distinguishes one family of micro-kernels from another.
struct MicroKernelSpec {
  Type a, b, acc;        // elements of A and B in memory; of the sums and of C. A and B are widened as they are read
  int64_t lanes;         // of `acc` in a vector register
  int64_t vectors;       // registers in a row of the tile: a panel is lanes * vectors wide
  bool prefetch = false; // B comes from far, and what follows it in memory is needed next: fetches both ahead
  bool toSecondLevel = false; // ... few rows to the second-level cache, not to the first
  bool runs = false;          // A's values of k lie in several runs, one after the other in B
  bool planes = false;        // ... which are in several planes; with `tiles` alone
  int64_t together = 1; // k advances by so many, side by side in A and in B: sums of two products, of bf16 in f32 or of
                        // i16 in i32, where B may be bytes, or of four products of bytes in i32
  bool shifted = false; // sums start from what `Codes::starts` has for each column
  bool nibbles = false; // B: i32 of eight codes, unsigned, of 4 bits each, the first in the lowest bits; without
                        // `zeros` the zero point of all is 8. A: what `callPrepare` wrote
  bool scaled = false;  // B: codes. The sum of each run is multiplied by a scale for its column
  bool zeros = false;   // ... and a zero point for its column is subtracted from each code
  bool aUnsigned = false, bUnsigned = false; // the integers are
  bool tiles = false; // by registers of tiles (TileProduct.h), `together` in steps of 4 bytes that neighbour in A

  int64_t panel() const { return lanes * vectors; }
  /// Values of k in a step.
  int64_t side() const { return nibbles ? 8 : together; }
  /// Bytes of a panel of B for a step.
  int64_t rowBytes() const;
  /// `f32_f32_f32_x32`
  std::string str() const;
};

/// How far before its use B is fetched with `toSecondLevel`.
constexpr int64_t aheadBytesToSecondLevel = 16 << 10;

/// The inclusive range of tile heights that a caller may ask for.
struct TileHeights {
  int64_t min, max;
};

/// The heights that an even split of `count` rows in tiles of at most `tile` can give, where `count` is between
/// `minCount` and `maxCount` (negative: unbounded).
TileHeights tileHeights(int64_t minCount, int64_t maxCount, int64_t tile);

/// Memory for a kernel with `prefetch` to fetch: at the k-th step the line at `from + k * step` (i64, in bytes).
/// Nothing at or behind `end`, the end of what B is a part of, is fetched.
struct Prefetch {
  Value from, step, end;
};

/// For a kernel with `scaled`, which has `runs` too: scales and zeros (f32) of the first run; `panel` of each lead to
/// the next run's.
/// With `nibbles`, the sums that `callPrepare` wrote, from the first run on, and the distance from row to row (i64).
/// For a kernel with `shifted`: `starts`, `panel` numbers of the type of the sums.
struct Codes {
  Value scales, zeros, totals, totalsStride, starts;
};

/// For a kernel with `runs`: how many there are, and the distance from one to the next in A (i64, in bytes). `k` is
/// what each holds. With `planes`, so many runs in each of them.
struct Runs {
  Value count, stride;
  Value planes = {}, planeStride = {};
};

/// Calls the micro-kernel for `rows` rows, generating the functions at the end of the module on first use:
///   C[i][j] (+)= sum over k < K of A[i * rowStride + k * kStride] * B[k * panel + j]
/// `rows`, `k` i64; `k` counts steps and kStride leads from step to step; the strides i64, in *bytes*; `accumulate` i1:
/// add to what C holds. C is row-major, `panel` wide. `tileShape`: for `tiles`, what `openTiles` gave.
void callMicroKernel(OpBuilder &builder, Location loc, const MicroKernelSpec &spec, TileHeights heights, Value rows,
                     Value a, Value rowStride, Value kStride, Value b, Value k, Value c, Value accumulate,
                     Prefetch next = {}, Runs runs = {}, Codes codes = {}, Value tileShape = {});

/// For a kernel with `nibbles`: writes what it reads as A, `rows` rows of 8 * `steps` f32 to `out`, and for each step
/// the sum of eight values to `totals`, from rows of 8 * `steps` values at `a`. All i64; strides in bytes.
void callPrepare(OpBuilder &builder, Location loc, const MicroKernelSpec &spec, Value a, Value rowStride, Value kStride,
                 Value steps, Value rows, Value out, Value totals);

/// Makes floats of a panel of codes, once for many rows: out[k][j] = (code - zero) * scale, or, with `halves`, those of
/// two values of k side by side as bf16. `spec` is that of the kernel for codes; `k` counts steps of each of `runs`;
/// `end` is that of what B is a part of.
void callUnpackPanel(OpBuilder &builder, Location loc, const MicroKernelSpec &spec, Value b, Codes codes, Value k,
                     Value runs, Value out, Value end, bool halves);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_MICROKERNEL_H
