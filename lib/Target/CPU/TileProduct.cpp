//===- TileProduct.cpp - products by the CPU's registers of tiles ---------===//
//
// AMX of x86-64 has eight registers of up to 16 rows of 64 bytes. An instruction adds the product of 16 x 64 bytes and
// 64 x 16 bytes, of which four values of k lie side by side, to a tile of 16 x 16 i32; of bf16, 32 values of k, in
// pairs, to f32. These are the panels that instructions for vectors read as well. Generates
//
//   llvm.func internal @disc_product_i8_i8_i32_x32_fours_tiles(%A, %rowStride, %kStride, %B, %K, %C, %accumulate,
//                                                              ..., %shape, %rows) {
//     set the shape of the tiles, unless it is the one wanted
//     zero, or load, C
//     scf.for each 64 bytes of k: load A and B, multiply
//     store C
//   }
//
// with C in four registers, A and B in two each, for up to 32 rows and 32 columns. From 16 rows on both tiles of A have
// 16 rows: the second ends with the last row, and what both have is computed twice. So the shape, which takes longer to
// set than a product takes, is the same for all tiles of a kernel, unless k is no multiple of a whole step. Then steps
// are shorter if all can be alike; if not, what is left is added after the whole ones, from C in memory.
//
// Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter "Intel AMX".
//
// Test: test/lit/CPU/tile-product.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/TileProduct.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
constexpr int64_t tileRows = 16;  // of a register, and steps of k
constexpr int64_t tileBytes = 64; // of a row
constexpr int64_t cacheLine = 64;
/// In what LDTILECFG reads: the bytes of rows, and the rows, of registers 4 to 7 and 0 to 7.
constexpr int64_t widthsWord = 3, heightsWord = 6;

class TileWriter {
public:
  TileWriter(OpBuilder &b, Location loc, const MicroKernelSpec &spec) : b(b), loc(loc), spec(spec) {}

  void write(LLVM::LLVMFuncOp func) {
    Block *entry = func.addEntryBlock(b);
    b.setInsertionPointToStart(entry);
    aPtr = entry->getArgument(0), rowStride = entry->getArgument(1), kStride = entry->getArgument(2);
    bPtr = entry->getArgument(3), k = entry->getArgument(4), c = entry->getArgument(5);
    Value accumulate = entry->getArgument(6);
    unsigned more = 7;
    if (spec.prefetch)
      next = {entry->getArgument(more), entry->getArgument(more + 1), entry->getArgument(more + 2)}, more += 3;
    runs = {i64(1), i64(0), i64(1), i64(0)};
    if (spec.runs)
      runs.count = entry->getArgument(more), runs.stride = entry->getArgument(more + 1), more += 2;
    if (spec.planes)
      runs.planes = entry->getArgument(more), runs.planeStride = entry->getArgument(more + 1), more += 2;
    shape = entry->getArgument(more), rows = entry->getArgument(more + 1);

    Value most = i64(tileRows), zero = i64(0), one = i64(1);
    Value steps = arith::CeilDivUIOp::create(b, loc, k, most);
    steps = arith::MaxUIOp::create(b, loc, steps, one);
    Value even =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, arith::RemUIOp::create(b, loc, k, steps), zero);
    auto either = [&](Value x, Value y) -> Value { return arith::SelectOp::create(b, loc, even, x, y); };
    // An empty sum has no steps, of one value each.
    Value isEmpty = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, k, zero);
    Value width = arith::MaxUIOp::create(b, loc, either(arith::DivUIOp::create(b, loc, k, steps), most), one);
    Value whole =
        arith::SelectOp::create(b, loc, isEmpty, zero, either(steps, arith::DivUIOp::create(b, loc, k, most)));
    Value from = arith::MulIOp::create(b, loc, whole, width);
    Value rest = arith::SubIOp::create(b, loc, k, from);

    isTall = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, rows, most);
    Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, rows, zero);
    scf::IfOp::create(b, loc, some, [&](OpBuilder &, Location) {
      pass(zero, whole, width, accumulate);
      Value isLeft = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, rest, zero);
      scf::IfOp::create(b, loc, isLeft, [&](OpBuilder &, Location) {
        pass(from, one, rest, arith::ConstantOp::create(b, loc, b.getBoolAttr(true)));
        scf::YieldOp::create(b, loc);
      });
      scf::YieldOp::create(b, loc);
    });
    LLVM::ReturnOp::create(b, loc, ValueRange());
  }

  Value open() {
    auto pointer = LLVM::LLVMPointerType::get(b.getContext());
    Value image = LLVM::AllocaOp::create(b, loc, pointer, b.getI64Type(), i64(8), /*alignment=*/64);
    for (int64_t word : {widthsWord, heightsWord})
      LLVM::StoreOp::create(b, loc, i64(0), offset(image, 8 * word));
    return image;
  }

  void intrinsic(StringRef name, ArrayRef<Value> operands) {
    LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr(("llvm.x86." + name).str()), operands);
  }

private:
  Value i64(int64_t v) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(v)); }
  Value reg(int64_t n) { return LLVM::ConstantOp::create(b, loc, b.getI8Type(), b.getI8IntegerAttr(n)); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value offset(Value ptr, Value bytes) {
    return LLVM::GEPOp::create(b, loc, ptr.getType(), b.getI8Type(), ptr, LLVM::GEPArg(bytes));
  }
  Value offset(Value ptr, int64_t bytes) {
    if (bytes == 0)
      return ptr;
    return LLVM::GEPOp::create(b, loc, ptr.getType(), b.getI8Type(), ptr, LLVM::GEPArg(int32_t(bytes)));
  }

  /// Adds the products of `steps` steps of `width` groups of k each, from the group `first` of each run on.
  void pass(Value first, Value steps, Value width, Value more) {
    setShape(width);
    scf::IfOp::create(
        b, loc, isTall,
        [&](OpBuilder &, Location) {
          tiles(/*tall=*/true, first, steps, width, more);
          scf::YieldOp::create(b, loc);
        },
        [&](OpBuilder &, Location) {
          tiles(/*tall=*/false, first, steps, width, more);
          scf::YieldOp::create(b, loc);
        });
  }

  /// Registers 0 to 3 are C, 4 and 5 A, 6 and 7 B.
  void tiles(bool tall, Value first, Value steps, Value width, Value more) {
    int64_t down = tall ? 2 : 1, across = spec.vectors, panelBytes = spec.panel() * 4;
    SmallVector<Value> rowsOfA{i64(0)};
    if (tall)
      rowsOfA.push_back(arith::SubIOp::create(b, loc, rows, i64(tileRows)));
    auto eachSum = [&](StringRef name, bool inMemory) {
      for (int64_t i = 0; i < down; ++i)
        for (int64_t j = 0; j < across; ++j) {
          SmallVector<Value> operands{reg(2 * i + j)};
          if (inMemory)
            operands.append({offset(offset(c, mul(rowsOfA[i], i64(panelBytes))), j * tileBytes), i64(panelBytes)});
          intrinsic(name, operands);
        }
    };
    scf::IfOp::create(
        b, loc, more,
        [&](OpBuilder &, Location) {
          eachSum("tileloadd64", true);
          scf::YieldOp::create(b, loc);
        },
        [&](OpBuilder &, Location) {
          eachSum("tilezero", false);
          scf::YieldOp::create(b, loc);
        });
    Value aFirst = offset(aPtr, mul(first, kStride)), bFirst = offset(bPtr, mul(first, i64(spec.rowBytes())));
    Value aStep = mul(width, kStride), bStep = mul(width, i64(spec.rowBytes())), bRun = mul(k, i64(spec.rowBytes()));
    auto each = [&](Value count, function_ref<void(Value)> body) {
      scf::ForOp::create(b, loc, i64(0), count, i64(1), {}, [&](OpBuilder &, Location, Value i, ValueRange) {
        body(i);
        scf::YieldOp::create(b, loc);
      });
    };
    auto eachRun = [&](function_ref<void(Value, Value)> body) {
      if (!spec.planes)
        return each(runs.count, [&](Value run) { body(run, offset(aFirst, mul(run, runs.stride))); });
      each(runs.planes, [&](Value plane) {
        Value aPlane = offset(aFirst, mul(plane, runs.planeStride));
        each(runs.count, [&](Value run) {
          Value number = arith::AddIOp::create(b, loc, mul(plane, runs.count), run);
          body(number, offset(aPlane, mul(run, runs.stride)));
        });
      });
    };
    eachRun([&](Value run, Value aRun) {
      Value bOfRun = offset(bFirst, mul(run, bRun));
      each(steps, [&](Value step) {
        Value a = offset(aRun, mul(step, aStep)), right = offset(bOfRun, mul(step, bStep));
        fetch(run, first, step, width, right, bStep);
        for (int64_t j = 0; j < across; ++j)
          intrinsic("tileloadd64", {reg(6 + j), offset(right, j * tileBytes), i64(spec.rowBytes())});
        for (int64_t i = 0; i < down; ++i) {
          intrinsic("tileloadd64", {reg(4 + i), offset(a, mul(rowsOfA[i], rowStride)), rowStride});
          for (int64_t j = 0; j < across; ++j)
            intrinsic(product(), {reg(2 * i + j), reg(4 + i), reg(6 + j)});
        }
      });
    });
    eachSum("tilestored64", true);
  }

  StringRef product() {
    if (isa<FloatType>(spec.acc))
      return "tdpbf16ps";
    if (spec.aUnsigned)
      return spec.bUnsigned ? "tdpbuud" : "tdpbusd";
    return spec.bUnsigned ? "tdpbsud" : "tdpbssd";
  }

  /// This tile's share of the panel that is needed next, into the second-level cache; or, of the only tile, which
  /// leaves nothing to others, what it reads itself some time after `right`, where a step has `stepBytes` bytes.
  void fetch(Value run, Value first, Value step, Value width, Value right, Value stepBytes) {
    if (!spec.prefetch)
      return;
    Value group = arith::AddIOp::create(b, loc, mul(run, k), arith::AddIOp::create(b, loc, first, mul(step, width)));
    Value from = offset(next.from, mul(group, next.step)), length = mul(width, next.step);
    if (spec.toSecondLevel) {
      Value isOnly = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, next.step, i64(0));
      from = arith::SelectOp::create(b, loc, isOnly, offset(right, aheadBytesToSecondLevel), from);
      length = arith::SelectOp::create(b, loc, isOnly, stepBytes, length);
    }
    scf::ForOp::create(b, loc, i64(0), length, i64(cacheLine), {}, [&](OpBuilder &, Location, Value at, ValueRange) {
      Value line = offset(from, at);
      auto address = [&](Value p) -> Value { return LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), p); };
      Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, address(line), address(next.end));
      // Past the end the page may not be mapped: see MicroKernel.cpp.
      line = arith::SelectOp::create(b, loc, inside, line, bPtr);
      LLVM::Prefetch::create(b, loc, line, /*rw=*/0, /*hint=*/2, /*cache=*/1);
      scf::YieldOp::create(b, loc);
    });
  }

  /// `shape` is what LDTILECFG reads: 1 for the palette; bytes of a row from byte 16 on, 16 bits for each register;
  /// rows from byte 48 on, 8 bits each. Two of its words tell one shape from another.
  void setShape(Value width) {
    Value height = arith::MinUIOp::create(b, loc, rows, i64(tileRows));
    Value own = mul(width, i64(4));
    Value widths = arith::OrIOp::create(b, loc, own, arith::ShLIOp::create(b, loc, own, i64(16)));
    widths = arith::OrIOp::create(b, loc, widths, i64((tileBytes | tileBytes << 16) << 32));
    Value heights = mul(height, i64(0x0101'0101'0101));
    heights = arith::OrIOp::create(b, loc, heights, mul(width, i64(int64_t(0x0101) << 48)));
    auto differs = [&](int64_t word, Value wanted) -> Value {
      Value current = LLVM::LoadOp::create(b, loc, b.getI64Type(), offset(shape, 8 * word));
      return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, current, wanted);
    };
    Value other = arith::OrIOp::create(b, loc, differs(widthsWord, widths), differs(heightsWord, heights));
    scf::IfOp::create(b, loc, other, [&](OpBuilder &, Location) {
      Value all = i64(tileBytes * 0x0001'0001'0001'0001), zero = i64(0);
      Value words[] = {i64(1), zero, all, widths, zero, zero, heights, zero};
      for (auto [i, word] : llvm::enumerate(words))
        LLVM::StoreOp::create(b, loc, word, offset(shape, int64_t(8 * i)));
      intrinsic("ldtilecfg", {shape});
      scf::YieldOp::create(b, loc);
    });
  }

  OpBuilder &b;
  Location loc;
  const MicroKernelSpec &spec;
  Value aPtr, rowStride, kStride, bPtr, k, c, shape, rows, isTall;
  Prefetch next;
  Runs runs;
};
} // namespace

void disc::writeTileProduct(OpBuilder &b, Location loc, const MicroKernelSpec &spec, LLVM::LLVMFuncOp func) {
  TileWriter(b, loc, spec).write(func);
}

Value disc::openTiles(OpBuilder &b, Location loc) { return TileWriter(b, loc, {}).open(); }

void disc::closeTiles(OpBuilder &b, Location loc) { TileWriter(b, loc, {}).intrinsic("tilerelease", {}); }
