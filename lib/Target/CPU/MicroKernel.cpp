//===- MicroKernel.cpp - register-tiled products --------------------------===//
//
// Generates, for 512-bit vectors and f32, functions such as
//
//   llvm.func internal @disc_product_f32_f32_f32_x32_r14(%A, %rowStride, %kStride, %B, %K, %C, %accumulate) {
//     %sums:28 = scf.for %k = 0 to %K iter_args(...) {
//       two vectors of B; for each of 14 rows: one element of A, broadcast, and two fused multiply-adds
//     }
//     ... store the 28 sums
//   }
//
// and `@disc_product_f32_f32_f32_x32(..., %rows)`, which goes to the one for `rows`. A's strides are both arguments:
// LLVM turns the row addresses into one running pointer, so that a general stride costs nothing measurable, and one
// function serves row-major and column-major A. Kernels of a module share them: they are internal and not
// inlined.
//
// With `prefetch` (`_p` in the name), for weights, which come from the last cache or from memory, each step fetches the
// row of B that is read a few kilobytes later; at the end of a panel that is the next one, which lies behind it. Two
// more arguments say what a step brings into the second-level cache besides: of the weights that the next task needs.
// One or two rows only read, in order, and the hardware's prefetchers do that best alone, if B is not of codes, which
// take as long to widen as to read. With `toSecondLevel` (`_p2`) few rows, which are the only tile, fetch B to the
// second-level cache, further ahead: of several tiles all but the first find it there. The last argument is the end of
// the weights. All addresses are kept below it: a page that is not mapped costs a walk through the page tables each
// time that it is fetched (90 ns on a virtual machine of Zen 1, where that made small layers four times as slow).
//
// With `runs`, for convolutions, a second loop around that over k goes from one line of the image to the next.
//
// With `scaled`, for quantised weights, each run of k has scales of its own: its sums, of products with the codes made
// floats, are scaled and added to C in memory, which costs little beside a run and leaves the registers to the sums.
//
// With `together` four, bytes are multiplied in fours. Instructions want operands of certain signs; where the left one
// has the other, it is read with 128 added, modulo 256, and sums start from what takes that out again (`shifted`): 128
// times the sum of the column.
//
// With `nibbles` a word has eight codes, c0 + 16 c1 + 256 c2 + ... Instructions are what few rows cost, so codes are
// not shifted down: the number that the lowest i codes make, f_i, is a mask and a conversion, and
//   x0 c0 + x1 c1 + ... = x0 f1 + x1 / 16 (f2 - f1) + ... = (x0 - x1 / 16) f1 + (x1 / 16 - x2 / 256) f2 + ...
// A's factors of the f_i are computed once for all panels (`callPrepare`), beside sums of eight values of A, which zero
// points multiply. An infinite value of A therefore gives NaN.
//
// Test: test/lit/CPU/micro-kernel.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/MicroKernel.h"

#include "lib/Target/CPU/TileProduct.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

using namespace mlir;
using namespace mlir::disc;

std::string MicroKernelSpec::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << a << "_" << b << "_" << acc << "_x" << panel()
     << (planes ? "_planes"
         : runs ? "_runs"
                : "")
     << (together == 2   ? "_pairs"
         : together == 4 ? "_fours"
                         : "")
     << (shifted ? "_shifted" : "") << (nibbles ? "_nibbles" : "") << (scaled ? "_scaled" : "")
     << (zeros ? "_zeros" : "") << (tiles ? "_tiles" : "") << (aUnsigned ? "_ua" : "") << (bUnsigned ? "_ub" : "")
     << (prefetch ? toSecondLevel ? "_p2" : "_p" : "");
  return text;
}

int64_t MicroKernelSpec::rowBytes() const {
  return panel() * int64_t(llvm::divideCeil(b.getIntOrFloatBitWidth(), 8)) * together;
}

TileHeights disc::tileHeights(int64_t minCount, int64_t maxCount, int64_t tile) {
  minCount = std::max<int64_t>(minCount, 1);
  if (maxCount >= 0 && maxCount <= tile)
    return {std::min(minCount, std::max<int64_t>(maxCount, 1)), std::max<int64_t>(maxCount, 1)};
  if (minCount == maxCount) {
    int64_t tiles = llvm::divideCeil(maxCount, tile);
    return {maxCount / tiles, int64_t(llvm::divideCeil(maxCount, tiles))};
  }
  // The least even split of more than one tile is tile + 1 rows in two.
  return {std::min(minCount, (tile + 1) / 2), tile};
}

namespace {

constexpr int64_t cacheLine = 64;
/// How far before its use B is fetched: about what a core reads from memory in the time that one read takes.
constexpr int64_t aheadBytes = 8 << 10;
constexpr int64_t prefetchMinRows = 3;
/// The most rows that fetch B to the second-level cache: half of the tallest tile and one more.
constexpr int64_t fewRows = 8;

/// Emits the function for one height.
class KernelWriter {
public:
  KernelWriter(OpBuilder &b, Location loc, const MicroKernelSpec &spec, int64_t rows)
      : b(b), loc(loc), spec(spec), rows(rows), accType(VectorType::get({spec.lanes}, spec.acc)) {
    // Enough independent chains of additions to hide their latency: few rows split the sum over k. Where codes are made
    // floats, that hides some of it, and needs registers.
    while (rows * spec.vectors * splits < (spec.nibbles ? 4 : 8))
      splits *= 2;
  }

  void write(LLVM::LLVMFuncOp func) {
    Block *entry = func.addEntryBlock(b);
    b.setInsertionPointToStart(entry);
    aPtr = entry->getArgument(0), rowStride = entry->getArgument(1), kStride = entry->getArgument(2);
    bPtr = entry->getArgument(3);
    Value k = entry->getArgument(4), c = entry->getArgument(5), accumulate = entry->getArgument(6);
    unsigned more = 7;
    if (spec.prefetch)
      next = {entry->getArgument(more), entry->getArgument(more + 1), entry->getArgument(more + 2)}, more += 3;

    Value count, stride;
    if (spec.runs)
      count = entry->getArgument(more), stride = entry->getArgument(more + 1), more += 2;
    if (spec.scaled)
      scales = entry->getArgument(more++);
    if (spec.zeros)
      zeros = entry->getArgument(more++);
    if (spec.nibbles)
      totalsPtr = entry->getArgument(more), totalsStride = entry->getArgument(more + 1);
    Value starts = spec.shifted ? entry->getArgument(more) : Value();
    if (fetchesShare()) {
      Value steps = spec.runs ? arith::MulIOp::create(b, loc, k, count).getResult() : k;
      next.from = below(next.from, arith::MulIOp::create(b, loc, steps, next.step));
    }

    SmallVector<Value> sums(rows * spec.vectors, arith::ConstantOp::create(b, loc, b.getZeroAttr(accType)).getResult());
    if (spec.runs) {
      // Pointers step from run to run.
      Value first = aPtr, panel = bPtr, from = next.from;
      Value panelBytes = arith::MulIOp::create(b, loc, k, i64(spec.rowBytes()));
      Value firstScales = scales, firstZeros = zeros, firstTotals = totalsPtr;
      auto runs = scf::ForOp::create(
          b, loc, i64(0), count, i64(1), spec.scaled ? ValueRange() : ValueRange(sums),
          [&](OpBuilder &, Location, Value r, ValueRange in) {
            aPtr = offset(first, arith::MulIOp::create(b, loc, r, stride));
            bPtr = offset(panel, arith::MulIOp::create(b, loc, r, panelBytes));
            if (fetchesShare())
              next.from = offset(from, arith::MulIOp::create(b, loc, r, arith::MulIOp::create(b, loc, k, next.step)));
            if (!spec.scaled) {
              scf::YieldOp::create(b, loc, run(k, SmallVector<Value>(in)));
              return;
            }
            Value column = arith::MulIOp::create(b, loc, r, i64(spec.panel() * bytes(spec.acc)));
            scales = offset(firstScales, column);
            if (spec.zeros)
              zeros = offset(firstZeros, column);
            if (spec.nibbles)
              totalsPtr = offset(firstTotals, arith::MulIOp::create(b, loc, arith::MulIOp::create(b, loc, r, k),
                                                                    i64(bytes(spec.acc))));
            Value isLater = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, r, i64(0));
            addScaled(run(k, sums), c, arith::OrIOp::create(b, loc, accumulate, isLater));
            scf::YieldOp::create(b, loc);
          });
      if (spec.scaled) {
        LLVM::ReturnOp::create(b, loc, ValueRange());
        return;
      }
      sums.assign(runs.getResults().begin(), runs.getResults().end());
    } else {
      sums = run(k, sums);
    }

    auto added = scf::IfOp::create(
        b, loc, accumulate,
        [&](OpBuilder &, Location) {
          SmallVector<Value> old;
          for (auto [i, sum] : llvm::enumerate(sums))
            old.push_back(add(load(accType, offset(c, i * spec.lanes * bytes(spec.acc))), sum));
          scf::YieldOp::create(b, loc, old);
        },
        [&](OpBuilder &, Location) {
          SmallVector<Value> first(sums);
          for (int64_t j = 0; spec.shifted && j < spec.vectors; ++j) {
            Value start = load(accType, offset(starts, j * spec.lanes * bytes(spec.acc)));
            for (int64_t i = 0; i < rows; ++i)
              first[i * spec.vectors + j] = add(start, first[i * spec.vectors + j]);
          }
          scf::YieldOp::create(b, loc, first);
        });
    for (auto [i, sum] : llvm::enumerate(added.getResults()))
      LLVM::StoreOp::create(b, loc, sum, offset(c, i * spec.lanes * bytes(spec.acc)), bytes(spec.acc));
    LLVM::ReturnOp::create(b, loc, ValueRange());
  }

  /// out[k][j] = (B - zero) * scale, for the runs of a panel; or those of two values of k side by side, as bf16.
  void writeUnpack(LLVM::LLVMFuncOp func, bool halves) {
    Block *entry = func.addEntryBlock(b);
    b.setInsertionPointToStart(entry);
    Value panel = entry->getArgument(0), firstScales = entry->getArgument(1), k = entry->getArgument(2),
          count = entry->getArgument(3), out = entry->getArgument(4);
    next.end = entry->getArgument(5);
    Value firstZeros = spec.zeros ? entry->getArgument(6) : Value();
    // Two steps at once where one has no pair.
    int64_t together = halves && spec.side() == 1 ? 2 : 1, values = together * spec.side();
    int64_t vectorBytes = spec.lanes * bytes(spec.acc), stepBytes = spec.panel() * values * bytes(spec.acc);
    if (halves)
      stepBytes /= 2;
    scf::ForOp::create(b, loc, i64(0), count, i64(1), {}, [&](OpBuilder &, Location, Value r, ValueRange) {
      Value column = arith::MulIOp::create(b, loc, r, i64(spec.panel() * bytes(spec.acc)));
      zeros = spec.zeros ? offset(firstZeros, column) : Value();
      loadZeros();
      SmallVector<Value> factors;
      for (int64_t j = 0; j < spec.vectors; ++j)
        factors.push_back(load(accType, offset(offset(firstScales, column), j * vectorBytes)));
      Value steps = arith::DivUIOp::create(b, loc, k, i64(together));
      Value first = arith::MulIOp::create(b, loc, r, steps);
      scf::ForOp::create(b, loc, i64(0), steps, i64(1), {}, [&](OpBuilder &, Location, Value step, ValueRange) {
        Value at = arith::AddIOp::create(b, loc, first, step);
        Value to = offset(out, arith::MulIOp::create(b, loc, at, i64(stepBytes)));
        Value from = offset(panel, arith::MulIOp::create(b, loc, at, i64(together * spec.rowBytes())));
        Value later = ahead(from, together * spec.rowBytes());
        for (int64_t fetched = 0; fetched < together * spec.rowBytes(); fetched += cacheLine)
          fetchAhead(offset(later, fetched));
        SmallVector<Value> made;
        for (int64_t row = 0; row < together; ++row)
          for (Value v : loadRow(offset(from, row * spec.rowBytes())))
            made.push_back(arith::MulFOp::create(b, loc, v, factors[made.size() % spec.vectors]));
        if (halves)
          made = paired(made);
        for (auto [i, v] : llvm::enumerate(made))
          LLVM::StoreOp::create(b, loc, v, offset(to, int64_t(i) * vectorBytes), bytes(getElementTypeOrSelf(v)));
        scf::YieldOp::create(b, loc);
      });
      scf::YieldOp::create(b, loc);
    });
    LLVM::ReturnOp::create(b, loc, ValueRange());
  }

  /// Vectors of two values of k, side by side as bf16, of those of each; `rows` has `spec.vectors` for each value.
  SmallVector<Value> paired(ArrayRef<Value> rows) {
    auto type = VectorType::get({2 * spec.lanes}, b.getBF16Type());
    SmallVector<int64_t> order;
    for (int64_t lane = 0; lane < spec.lanes; ++lane)
      order.append({lane, spec.lanes + lane});
    SmallVector<Value> out;
    for (size_t i = 0; i < rows.size(); i += 2 * spec.vectors)
      for (int64_t j = 0; j < spec.vectors; ++j) {
        StringRef round = "llvm.x86.avx512bf16.cvtne2ps2bf16.512";
        Value both = LLVM::CallIntrinsicOp::create(b, loc, Type(type), b.getStringAttr(round),
                                                   ValueRange{rows[i + spec.vectors + j], rows[i + j]})
                         .getResult(0);
        out.push_back(vector::ShuffleOp::create(b, loc, both, both, order));
      }
    return out;
  }

  /// For each row and each eight values of k what multiplies the digits of a word, and the sum of the eight.
  void writePrepare(LLVM::LLVMFuncOp func) {
    Block *entry = func.addEntryBlock(b);
    b.setInsertionPointToStart(entry);
    Value a = entry->getArgument(0), rowStride = entry->getArgument(1), kStride = entry->getArgument(2),
          steps = entry->getArgument(3), rowCount = entry->getArgument(4), out = entry->getArgument(5),
          totals = entry->getArgument(6);
    constexpr int64_t digits = 8;
    auto type = VectorType::get({digits}, spec.acc);
    auto numbers = [&](ArrayRef<float> v) -> Value {
      return arith::ConstantOp::create(b, loc, DenseFPElementsAttr::get(type, v));
    };
    SmallVector<float> powers, next(digits, 1);
    for (int64_t i = 0; i < digits; ++i)
      powers.push_back(std::ldexp(1.0F, -4 * int(std::min(i, digits - 2))));
    next[digits - 2] = 1.0F / 16, next[digits - 1] = 0;
    scf::ForOp::create(b, loc, i64(0), rowCount, i64(1), {}, [&](OpBuilder &, Location, Value row, ValueRange) {
      Value from = offset(a, arith::MulIOp::create(b, loc, row, rowStride));
      Value first = arith::MulIOp::create(b, loc, row, steps);
      scf::ForOp::create(b, loc, i64(0), steps, i64(1), {}, [&](OpBuilder &, Location, Value step, ValueRange) {
        Value at =
            offset(from, arith::MulIOp::create(b, loc, step, arith::MulIOp::create(b, loc, kStride, i64(digits))));
        SmallVector<Value> elements;
        for (int64_t i = 0; i < digits; ++i) {
          Value x = load(spec.a, i == 0 ? at : offset(at, arith::MulIOp::create(b, loc, kStride, i64(i))));
          elements.push_back(x.getType() == spec.acc ? x : arith::ExtFOp::create(b, loc, spec.acc, x).getResult());
        }
        Value x = vector::FromElementsOp::create(b, loc, type, elements);
        Value scaled = arith::MulFOp::create(b, loc, x, numbers(powers));
        Value shifted = vector::ShuffleOp::create(b, loc, scaled, scaled, ArrayRef<int64_t>{1, 2, 3, 4, 5, 6, 7, 7});
        Value factors = arith::SubFOp::create(b, loc, scaled, arith::MulFOp::create(b, loc, shifted, numbers(next)));
        Value place = arith::AddIOp::create(b, loc, first, step);
        LLVM::StoreOp::create(b, loc, factors,
                              offset(out, arith::MulIOp::create(b, loc, place, i64(digits * bytes(spec.acc)))),
                              bytes(spec.acc));
        Value total = vector::ReductionOp::create(b, loc, vector::CombiningKind::ADD, x, arith::FastMathFlags::reassoc);
        LLVM::StoreOp::create(b, loc, total, offset(totals, arith::MulIOp::create(b, loc, place, i64(bytes(spec.acc)))),
                              bytes(spec.acc));
        scf::YieldOp::create(b, loc);
      });
      scf::YieldOp::create(b, loc);
    });
    LLVM::ReturnOp::create(b, loc, ValueRange());
  }

private:
  static int64_t bytes(Type t) { return llvm::divideCeil(t.getIntOrFloatBitWidth(), 8); }
  Value i64(int64_t v) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(v)); }
  Value offset(Value ptr, int64_t byteOffset) {
    if (byteOffset == 0)
      return ptr;
    return LLVM::GEPOp::create(b, loc, ptr.getType(), b.getI8Type(), ptr, LLVM::GEPArg(int32_t(byteOffset)));
  }
  Value offset(Value ptr, Value byteOffset) {
    return LLVM::GEPOp::create(b, loc, ptr.getType(), b.getI8Type(), ptr, LLVM::GEPArg(byteOffset));
  }
  Value load(Type type, Value ptr) {
    return LLVM::LoadOp::create(b, loc, type, ptr, bytes(getElementTypeOrSelf(type)));
  }
  /// Read, into the second-level cache: for the first level it comes too early.
  bool prefetches() const { return spec.prefetch && (rows >= prefetchMinRows || spec.scaled || spec.toSecondLevel); }
  bool fetchesToSecondLevel() const { return spec.toSecondLevel && rows <= fewRows; }
  /// Where the line of B is that is read some time after the one at `ptr`, of which `bytes` bytes are fetched.
  Value ahead(Value ptr, int64_t bytes) {
    return below(offset(ptr, fetchesToSecondLevel() ? aheadBytesToSecondLevel : aheadBytes),
                 i64(llvm::alignTo(bytes, cacheLine)));
  }
  void fetchAhead(Value line) { prefetch(line, fetchesToSecondLevel() ? secondLevel : firstLevel); }
  /// One or two rows are the only tile, which leaves nothing to the next ones.
  bool fetchesShare() const { return prefetches() && rows >= prefetchMinRows; }
  /// `ptr`, or, where fewer than `bytes` bytes lie between it and the end, the address that leaves as many.
  Value below(Value ptr, Value bytes) {
    auto address = [&](Value x) -> Value { return LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), x); };
    Value most = arith::SubIOp::create(b, loc, address(next.end), bytes);
    Value chosen = arith::MinUIOp::create(b, loc, address(ptr), most);
    return LLVM::IntToPtrOp::create(b, loc, ptr.getType(), chosen, LLVM::DereferenceableAttr());
  }
  /// C = sums * scales, or that added to C.
  void addScaled(ArrayRef<Value> sums, Value c, Value accumulate) {
    SmallVector<Value> factors;
    for (int64_t j = 0; j < spec.vectors; ++j)
      factors.push_back(load(accType, offset(scales, j * spec.lanes * bytes(spec.acc))));
    auto factor = [&](size_t i) { return factors[i % spec.vectors]; };
    auto place = [&](size_t i) { return offset(c, int64_t(i) * spec.lanes * bytes(spec.acc)); };
    auto results = scf::IfOp::create(
        b, loc, accumulate,
        [&](OpBuilder &, Location) {
          SmallVector<Value> out;
          for (auto [i, sum] : llvm::enumerate(sums))
            out.push_back(math::FmaOp::create(b, loc, sum, factor(i), load(accType, place(i))));
          scf::YieldOp::create(b, loc, out);
        },
        [&](OpBuilder &, Location) {
          SmallVector<Value> out;
          for (auto [i, sum] : llvm::enumerate(sums))
            out.push_back(arith::MulFOp::create(b, loc, sum, factor(i)));
          scf::YieldOp::create(b, loc, out);
        });
    for (auto [i, value] : llvm::enumerate(results.getResults()))
      LLVM::StoreOp::create(b, loc, value, place(i), bytes(spec.acc));
  }
  enum Level { secondLevel = 2, firstLevel = 3 };
  void prefetch(Value ptr, Level level) { LLVM::Prefetch::create(b, loc, ptr, /*rw=*/0, level, /*cache=*/1); }
  /// `v` with the elements that are multiplied: those of the sums, or, in pairs, half as wide; of four, bytes.
  Value widen(Value v, bool isUnsigned) {
    Type from = getElementTypeOrSelf(v.getType());
    Type to = accType;
    if (spec.together == 4)
      return v;
    if (spec.together == 2)
      to = VectorType::get({2 * spec.lanes}, isa<FloatType>(spec.acc) ? spec.a : b.getI16Type());
    if (v.getType() == to)
      return v;
    if (isa<FloatType>(spec.acc) && isa<FloatType>(from))
      return arith::ExtFOp::create(b, loc, to, v);
    if (isa<FloatType>(spec.acc))
      return isUnsigned ? arith::UIToFPOp::create(b, loc, to, v).getResult()
                        : arith::SIToFPOp::create(b, loc, to, v).getResult();
    return isUnsigned ? arith::ExtUIOp::create(b, loc, to, v).getResult()
                      : arith::ExtSIOp::create(b, loc, to, v).getResult();
  }
  /// Codes made floats, less their zero points.
  Value decoded(Value codes, int64_t vector) {
    Value v = widen(codes, spec.bUnsigned);
    return spec.zeros ? arith::SubFOp::create(b, loc, v, zeroVectors[vector]).getResult() : v;
  }
  Value bits(int64_t n) {
    auto type = VectorType::get({spec.lanes}, b.getI32Type());
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, b.getI32IntegerAttr(n)));
  }
  void loadZeros() {
    for (int64_t j = 0; j < spec.vectors; ++j)
      if (spec.zeros)
        zeroVectors[j] = load(accType, offset(zeros, j * spec.lanes * bytes(spec.acc)));
      else if (spec.nibbles)
        zeroVectors[j] = floats(middle);
  }
  static constexpr double middle = 8; // the zero point of nibbles without zeros
  /// The values of B for the value of k, or pair of them, at `ptr`; with nibbles those for the next seven follow.
  SmallVector<Value> loadRow(Value ptr) {
    SmallVector<Value> row;
    int64_t width = spec.lanes * spec.together;
    for (int64_t j = 0; j < spec.vectors; ++j) {
      Value v = load(VectorType::get({width}, spec.b), offset(ptr, j * width * bytes(spec.b)));
      if (!spec.nibbles) {
        row.push_back(spec.scaled ? decoded(v, j) : widen(v, spec.bUnsigned));
        continue;
      }
      row.push_back(v);
    }
    if (!spec.nibbles)
      return row;
    SmallVector<Value> codes;
    for (int64_t i = 0; i < spec.side(); ++i)
      for (int64_t j = 0; j < spec.vectors; ++j) {
        Value code = arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, row[j], bits(4 * i)), bits(15));
        codes.push_back(arith::SubFOp::create(b, loc, arith::SIToFPOp::create(b, loc, accType, code), zeroVectors[j]));
      }
    return codes;
  }
  Value add(Value x, Value y) {
    if (isa<FloatType>(spec.acc))
      return arith::AddFOp::create(b, loc, x, y);
    return arith::AddIOp::create(b, loc, x, y);
  }
  /// Sums of four products of bytes: x86 multiplies unsigned by signed ones, AArch64 those of one sign.
  Value addFour(Value x, Value y, Value sum) {
    bool mixed = spec.aUnsigned != spec.bUnsigned;
    StringRef name = mixed            ? spec.lanes == 16  ? "llvm.x86.avx512.vpdpbusd.512"
                                        : spec.lanes == 8 ? "llvm.x86.avx512.vpdpbusd.256"
                                                          : "llvm.x86.avx512.vpdpbusd.128"
                     : spec.aUnsigned ? "llvm.aarch64.neon.udot.v4i32.v16i8"
                                      : "llvm.aarch64.neon.sdot.v4i32.v16i8";
    if (mixed && spec.bUnsigned)
      std::swap(x, y);
    return LLVM::CallIntrinsicOp::create(b, loc, Type(accType), b.getStringAttr(name), ValueRange{sum, x, y})
        .getResult(0);
  }
  Value multiplyAdd(Value x, Value y, Value sum) {
    if (spec.together == 4)
      return addFour(x, y, sum);
    if (spec.together == 2 && isa<FloatType>(spec.acc))
      return LLVM::CallIntrinsicOp::create(b, loc, Type(accType), b.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512"),
                                           ValueRange{sum, x, y})
          .getResults();
    if (spec.together == 2) {
      // With VNNI, LLVM makes one instruction of both.
      StringRef name = spec.lanes == 16  ? "llvm.x86.avx512.pmaddw.d.512"
                       : spec.lanes == 8 ? "llvm.x86.avx2.pmadd.wd"
                                         : "llvm.x86.sse2.pmadd.wd";
      Value products =
          LLVM::CallIntrinsicOp::create(b, loc, Type(accType), b.getStringAttr(name), ValueRange{x, y}).getResult(0);
      return arith::AddIOp::create(b, loc, products, sum);
    }
    if (isa<FloatType>(spec.acc))
      return math::FmaOp::create(b, loc, x, y, sum);
    return arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, x, y), sum);
  }

  /// Adds the products of `k` neighbouring values.
  SmallVector<Value> run(Value k, SmallVector<Value> sums) {
    // A row of one and a half lines is fetched with the next one, or a line of each two would be fetched twice.
    if (spec.nibbles)
      return runOfWords(k);
    loadZeros();
    int64_t row = spec.panel() * bytes(spec.b), unroll = splits;
    if (splits == 1 && prefetches() && spec.together == 1 && row > cacheLine && row % cacheLine == cacheLine / 2)
      unroll = 2;
    Value zero = i64(0), one = i64(1), whole = zero;
    if (unroll > 1) {
      Value step = i64(unroll);
      whole = arith::SubIOp::create(b, loc, k, arith::RemUIOp::create(b, loc, k, step));
      SmallVector<Value> parts(sums);
      parts.append(rows * spec.vectors * (splits - 1), zeroVector());
      sums = fold(loop(zero, whole, step, parts, unroll));
    }
    return loop(whole, k, one, sums, 1);
  }

  /// The same with nibbles: `k` counts words. The digits of a word go to the sums in turn.
  SmallVector<Value> runOfWords(Value k) {
    int64_t count = rows * spec.vectors, digits = spec.side();
    SmallVector<Value> init(count * splits + rows, zeroVector());
    auto forOp =
        scf::ForOp::create(b, loc, i64(0), k, i64(1), init, [&](OpBuilder &, Location, Value step, ValueRange in) {
          SmallVector<Value> sums(in);
          Value aRow = offset(aPtr, arith::MulIOp::create(b, loc, step, kStride));
          Value bRow = offset(bPtr, arith::MulIOp::create(b, loc, step, i64(spec.rowBytes())));
          Value total = offset(totalsPtr, arith::MulIOp::create(b, loc, step, i64(bytes(spec.acc))));
          if (prefetches()) {
            if (fetchesShare())
              prefetch(offset(next.from, arith::MulIOp::create(b, loc, step, next.step)), secondLevel);
            Value later = ahead(bRow, spec.rowBytes());
            for (int64_t fetched = 0; fetched < spec.rowBytes(); fetched += cacheLine)
              fetchAhead(offset(later, fetched));
          }
          auto broadcast = [&](Value from, int64_t row, Value stride) -> Value {
            Value ptr = row == 0 ? from : offset(from, arith::MulIOp::create(b, loc, stride, i64(row)));
            return vector::BroadcastOp::create(b, loc, accType, load(spec.acc, ptr));
          };
          for (int64_t i = 0; i < rows; ++i)
            sums[count * splits + i] = add(sums[count * splits + i], broadcast(total, i, totalsStride));
          SmallVector<Value> words;
          for (int64_t j = 0; j < spec.vectors; ++j)
            words.push_back(load(VectorType::get({spec.lanes}, spec.b), offset(bRow, j * spec.lanes * bytes(spec.b))));
          for (int64_t d = 0; d < digits; ++d) {
            // The highest bit would be a sign: all but the lowest code, moved down by one.
            SmallVector<Value> right;
            for (Value word : words) {
              Value part = d + 1 < digits
                               ? arith::AndIOp::create(b, loc, word, bits((1 << 4 * (d + 1)) - 1)).getResult()
                               : arith::ShRUIOp::create(b, loc, word, bits(4)).getResult();
              right.push_back(arith::SIToFPOp::create(b, loc, accType, part));
            }
            for (int64_t i = 0; i < rows; ++i) {
              Value left = broadcast(offset(aRow, d * bytes(spec.acc)), i, rowStride);
              for (int64_t j = 0; j < spec.vectors; ++j) {
                Value &sum = sums[d % splits * count + i * spec.vectors + j];
                sum = multiplyAdd(left, right[j], sum);
              }
            }
          }
          scf::YieldOp::create(b, loc, sums);
        });
    SmallVector<Value> sums(forOp.getResults());
    SmallVector<Value> totals(ArrayRef<Value>(sums).take_back(rows));
    sums = fold(sums);
    loadZeros();
    for (auto [n, sum] : llvm::enumerate(sums)) {
      Value zero = arith::NegFOp::create(b, loc, zeroVectors[n % spec.vectors]);
      sum = math::FmaOp::create(b, loc, zero, totals[n / spec.vectors], sum);
    }
    return sums;
  }

  Value zeroVector() { return arith::ConstantOp::create(b, loc, b.getZeroAttr(accType)); }
  Value floats(double v) {
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(accType, b.getFloatAttr(spec.acc, v)));
  }

  /// Steps `k` through [from, to); each step handles `unroll` values of k. As many sums as `init` has go round.
  SmallVector<Value> loop(Value from, Value to, Value step, ArrayRef<Value> init, int64_t unroll) {
    auto forOp = scf::ForOp::create(b, loc, from, to, step, init, [&](OpBuilder &, Location, Value k, ValueRange in) {
      SmallVector<Value> sums(in);
      Value aRow = offset(aPtr, arith::MulIOp::create(b, loc, k, kStride));
      int64_t row = spec.rowBytes();
      Value bRow = offset(bPtr, arith::MulIOp::create(b, loc, k, i64(row)));
      Value share = fetchesShare() ? offset(next.from, arith::MulIOp::create(b, loc, k, next.step)) : Value();
      Value later = prefetches() ? ahead(bRow, unroll * row) : Value();
      int64_t fetched = 0;
      for (int64_t u = 0; u < unroll; ++u) {
        if (prefetches()) {
          // A step of two brings one line: only beside few rows is that less than their share.
          if (share && (u == 0 || unroll == splits))
            prefetch(share, secondLevel);
          for (; fetched < (u + 1) * row; fetched += cacheLine)
            fetchAhead(offset(later, fetched));
          if (share && u + 1 < unroll)
            share = offset(share, next.step);
        }
        SmallVector<Value> right = loadRow(offset(bRow, u * row));
        for (int64_t i = 0; i < rows; ++i) {
          Value ptr = i == 0 ? aRow : offset(aRow, arith::MulIOp::create(b, loc, rowStride, i64(i)));
          bool together = spec.together > 1;
          Type unit = together ? b.getI32Type() : spec.a;
          Value from = together ? LLVM::LoadOp::create(b, loc, unit, ptr, bytes(spec.a)).getResult() : load(unit, ptr);
          Value left = vector::BroadcastOp::create(b, loc, VectorType::get({spec.lanes}, unit), from);
          left = together
                     ? vector::BitCastOp::create(b, loc, VectorType::get({spec.lanes * spec.together}, spec.a), left)
                     : widen(left, spec.aUnsigned);
          for (int64_t j = 0; j < spec.vectors; ++j) {
            Value &sum = sums[(u * rows * spec.vectors + i * spec.vectors + j) % sums.size()];
            sum = multiplyAdd(left, right[j], sum);
          }
        }
        if (u + 1 < unroll)
          aRow = offset(aRow, kStride);
      }
      scf::YieldOp::create(b, loc, sums);
    });
    return SmallVector<Value>(forOp.getResults());
  }

  /// Adds the split sums pairwise.
  SmallVector<Value> fold(SmallVector<Value> sums) {
    for (size_t n = rows * spec.vectors * splits; n > size_t(rows * spec.vectors); n /= 2)
      for (size_t i = 0; i < n / 2; ++i)
        sums[i] = add(sums[i], sums[i + n / 2]);
    sums.resize(rows * spec.vectors);
    return sums;
  }

  OpBuilder &b;
  Location loc;
  const MicroKernelSpec &spec;
  int64_t rows;
  VectorType accType;
  int64_t splits = 1;
  Value aPtr, rowStride, kStride, bPtr, scales, zeros;
  Value totalsPtr, totalsStride; // sums of eight values of A; from row to row
  SmallVector<Value, 4> zeroVectors = SmallVector<Value, 4>(spec.vectors);
  Prefetch next;
};

LLVM::LLVMFuncOp declare(OpBuilder &b, ModuleOp module, Location loc, StringRef name, ArrayRef<Type> args) {
  b.setInsertionPointToEnd(module.getBody());
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), args);
  auto func = LLVM::LLVMFuncOp::create(b, loc, name, type, LLVM::Linkage::Internal, /*dsoLocal=*/true);
  func.setNoInline(true);
  for (auto [i, arg] : llvm::enumerate(args))
    if (isa<LLVM::LLVMPointerType>(arg))
      func.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  return func;
}

/// The function for one height.
LLVM::LLVMFuncOp kernelFor(OpBuilder &b, ModuleOp module, const MicroKernelSpec &spec, int64_t rows,
                           ArrayRef<Type> args) {
  std::string name = ("disc_product_" + spec.str() + "_r" + Twine(rows)).str();
  if (auto func = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
    return func;
  OpBuilder::InsertionGuard guard(b);
  Location loc = NameLoc::get(b.getStringAttr(name));
  auto func = declare(b, module, loc, name, args);
  KernelWriter(b, loc, spec, rows).write(func);
  return func;
}

/// The function that goes to the one for its last argument.
LLVM::LLVMFuncOp dispatcher(OpBuilder &b, ModuleOp module, const MicroKernelSpec &spec, TileHeights heights,
                            ArrayRef<Type> args) {
  std::string name = ("disc_product_" + spec.str() + "_r" + Twine(heights.min) + "to" + Twine(heights.max)).str();
  if (auto func = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
    return func;
  OpBuilder::InsertionGuard guard(b);
  Location loc = NameLoc::get(b.getStringAttr(name));
  SmallVector<LLVM::LLVMFuncOp> kernels;
  for (int64_t rows = heights.min; rows <= heights.max; ++rows)
    kernels.push_back(kernelFor(b, module, spec, rows, args));

  SmallVector<Type> allArgs(args);
  allArgs.push_back(b.getI64Type());
  auto func = declare(b, module, loc, name, allArgs);
  Block *entry = func.addEntryBlock(b);
  ValueRange forwarded = ValueRange(entry->getArguments()).drop_back();
  SmallVector<Block *> blocks;
  SmallVector<APInt> cases;
  for (auto [i, kernel] : llvm::enumerate(kernels)) {
    Block *block = b.createBlock(&func.getBody(), func.getBody().end());
    LLVM::CallOp::create(b, loc, kernel, forwarded).setTailCallKind(LLVM::TailCallKind::Tail);
    LLVM::ReturnOp::create(b, loc, ValueRange());
    blocks.push_back(block);
    cases.emplace_back(64, heights.min + i);
  }
  // No rows, no work: an empty matrix is one tile of none.
  Block *none = b.createBlock(&func.getBody(), func.getBody().end());
  LLVM::ReturnOp::create(b, loc, ValueRange());
  blocks.push_back(none);
  cases.emplace_back(64, 0);
  // Any other height is a mistake of the caller's: better to stop than to leave sums unwritten.
  Block *wrong = b.createBlock(&func.getBody(), func.getBody().end());
  LLVM::Trap::create(b, loc);
  LLVM::UnreachableOp::create(b, loc);
  b.setInsertionPointToEnd(entry);
  SmallVector<ValueRange> noOperands(blocks.size());
  LLVM::SwitchOp::create(b, loc, entry->getArguments().back(), wrong, ValueRange(), ArrayRef<APInt>(cases), blocks,
                         noOperands);
  return func;
}

} // namespace

void disc::callMicroKernel(OpBuilder &b, Location loc, const MicroKernelSpec &spec, TileHeights heights, Value rows,
                           Value a, Value rowStride, Value kStride, Value bPanel, Value k, Value c, Value accumulate,
                           Prefetch next, Runs runs, Codes codes, Value tileShape) {
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  Type ptr = LLVM::LLVMPointerType::get(b.getContext()), i64 = b.getI64Type();
  SmallVector<Type> args = {ptr, i64, i64, ptr, i64, ptr, b.getI1Type()};
  SmallVector<Value> operands = {a, rowStride, kStride, bPanel, k, c, accumulate};
  if (spec.prefetch) {
    args.append({ptr, i64, ptr});
    operands.append({next.from, next.step, next.end});
  }
  if (spec.runs) {
    args.append({i64, i64});
    operands.append({runs.count, runs.stride});
  }
  if (spec.planes) {
    args.append({i64, i64});
    operands.append({runs.planes, runs.planeStride});
  }
  for (Value numbers : {spec.scaled ? codes.scales : Value(), spec.zeros ? codes.zeros : Value()})
    if (numbers) {
      args.push_back(ptr);
      operands.push_back(numbers);
    }
  if (spec.nibbles) {
    args.append({ptr, i64});
    operands.append({codes.totals, codes.totalsStride});
  }
  if (spec.shifted) {
    args.push_back(ptr);
    operands.push_back(codes.starts);
  }
  if (spec.tiles) {
    args.append({ptr, i64});
    operands.append({tileShape, rows});
    std::string name = "disc_product_" + spec.str();
    auto func = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
    if (!func) {
      OpBuilder::InsertionGuard guard(b);
      Location own = NameLoc::get(b.getStringAttr(name));
      func = declare(b, module, own, name, args);
      writeTileProduct(b, own, spec, func);
    }
    LLVM::CallOp::create(b, loc, func, operands);
    return;
  }
  if (heights.min == heights.max) {
    LLVM::CallOp::create(b, loc, kernelFor(b, module, spec, heights.min, args), operands);
    return;
  }
  operands.push_back(rows);
  LLVM::CallOp::create(b, loc, dispatcher(b, module, spec, heights, args), operands);
}

void disc::callUnpackPanel(OpBuilder &b, Location loc, const MicroKernelSpec &spec, Value panel, Codes codes, Value k,
                           Value runs, Value out, Value end, bool halves) {
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  Type ptr = LLVM::LLVMPointerType::get(b.getContext()), i64 = b.getI64Type();
  SmallVector<Type> args = {ptr, ptr, i64, i64, ptr, ptr};
  SmallVector<Value> operands = {panel, codes.scales, k, runs, out, end};
  if (spec.zeros) {
    args.push_back(ptr);
    operands.push_back(codes.zeros);
  }
  std::string name = "disc_unpack_" + spec.str() + (halves ? "_halves" : "");
  auto func = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!func) {
    OpBuilder::InsertionGuard guard(b);
    Location own = NameLoc::get(b.getStringAttr(name));
    func = declare(b, module, own, name, args);
    KernelWriter(b, own, spec, /*rows=*/1).writeUnpack(func, halves);
  }
  LLVM::CallOp::create(b, loc, func, operands);
}

void disc::callPrepare(OpBuilder &b, Location loc, const MicroKernelSpec &spec, Value a, Value rowStride, Value kStride,
                       Value steps, Value rows, Value out, Value totals) {
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  Type ptr = LLVM::LLVMPointerType::get(b.getContext()), i64 = b.getI64Type();
  std::string name;
  llvm::raw_string_ostream(name) << "disc_prepare_" << spec.a << "_" << spec.acc;
  auto func = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!func) {
    OpBuilder::InsertionGuard guard(b);
    Location own = NameLoc::get(b.getStringAttr(name));
    func = declare(b, module, own, name, {ptr, i64, i64, i64, i64, ptr, ptr});
    KernelWriter(b, own, spec, /*rows=*/1).writePrepare(func);
  }
  LLVM::CallOp::create(b, loc, func, ValueRange{a, rowStride, kStride, steps, rows, out, totals});
}
