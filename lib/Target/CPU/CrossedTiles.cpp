//===- CrossedTiles.cpp - operands whose rows cross the lanes ---------------===//

#include "lib/Target/CPU/CrossedTiles.h"

#include "lib/Target/CPU/EmitKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

SmallVector<Value> mlir::disc::transposeVectors(OpBuilder &b, Location loc, SmallVector<Value> rows) {
  int64_t n = rows.size();
  // Stage s exchanges the off-diagonal quarters of each 2s x 2s block.
  for (int64_t s = 1; s < n; s *= 2) {
    SmallVector<int64_t> upper(n), lower(n);
    for (int64_t l = 0; l < n; ++l) {
      upper[l] = l & s ? n + l - s : l;
      lower[l] = l & s ? n + l : l + s;
    }
    for (int64_t i = 0; i < n; ++i) {
      if (i & s)
        continue;
      Value x = rows[i], y = rows[i + s];
      rows[i] = vector::ShuffleOp::create(b, loc, x, y, upper);
      rows[i + s] = vector::ShuffleOp::create(b, loc, x, y, lower);
    }
  }
  return rows;
}

CrossedTiles::CrossedTiles(PointEmitter &points, const KernelAccess &access, unsigned lanes, unsigned memory,
                           unsigned first, unsigned count, int64_t capacity)
    : points(points), laneDim(lanes) {
  KernelFuncOp kernel = points.kernel();
  unsigned numInputs = kernel.getNumInputs();
  for (unsigned buffer = first; buffer < first + count; ++buffer) {
    const LinearAccess *only = access.onlyAccess(buffer);
    if (!only || !only->strides[memory].isConstant(1) || only->strides[lanes].isConstant(0) ||
        only->strides[lanes].isConstant(1))
      continue;
    Value tensor = buffer < numInputs ? Value(kernel.getBody().getArgument(buffer))
                                      : kernel.getYield().getValues()[buffer - numInputs];
    Type elem = getElementTypeOrSelf(tensor.getType());
    if (!elem.isIntOrFloat() || elem.getIntOrFloatBitWidth() < 8)
      continue;
    int64_t bytes = llvm::alignTo(capacity, points.lanes()) * points.lanes() * (elem.getIntOrFloatBitWidth() / 8);
    Value storage;
    points.atEntry([&] {
      OpBuilder &b = points.b();
      Value size = arith::ConstantOp::create(b, kernel.getLoc(), b.getI64IntegerAttr(bytes));
      storage = LLVM::AllocaOp::create(b, kernel.getLoc(), points.operandPtr(0).getType(), b.getI8Type(), size, 64);
    });
    tiles.push_back({buffer, *only, elem, storage});
  }
}

bool CrossedTiles::contains(unsigned buffer) const {
  return llvm::any_of(tiles, [&](const Tile &t) { return t.buffer == buffer; });
}

const CrossedTiles::Tile &CrossedTiles::tile(unsigned buffer) const {
  return *llvm::find_if(tiles, [&](const Tile &t) { return t.buffer == buffer; });
}

Value CrossedTiles::pointer(const Tile &tile) {
  unsigned numInputs = points.kernel().getNumInputs();
  return tile.buffer < numInputs ? points.operandPtr(tile.buffer) : points.resultPtr(tile.buffer - numInputs);
}

/// Where row `row` of the tile (a point along the lanes) begins in memory.
Idx CrossedTiles::rowAddress(const Tile &tile, const Place &place, Value row) {
  OpBuilder &b = points.b();
  Location loc = points.kernel().getLoc();
  Idx address = points.uniform(points.expr(tile.access.offset));
  for (auto [d, base] : llvm::enumerate(place.at)) {
    Value coordinate = base;
    if (d == laneDim)
      coordinate = arith::AddIOp::create(b, loc, base, row);
    if (coordinate)
      address = points.addIdx(address, points.mulIdx(points.uniform(coordinate), tile.access.strides[d]));
  }
  return Idx(address.base, true);
}

Idx CrossedTiles::slot(Value k) {
  Value first = arith::MulIOp::create(points.b(), points.kernel().getLoc(), k, points.constantIndex(points.lanes()));
  return Idx(first, true, 1, points.lanes());
}

Idx CrossedTiles::slot(const Place &place, int64_t k) {
  Value at = points.constantIndex(k);
  if (place.slot)
    at = points.b().createOrFold<arith::AddIOp>(points.kernel().getLoc(), place.slot, at);
  return slot(at);
}

void CrossedTiles::read(const Place &place) {
  OpBuilder &b = points.b();
  Location loc = points.kernel().getLoc();
  for (const Tile &tile : tiles) {
    SmallVector<Value> rows;
    for (int64_t r = 0; r < points.lanes(); ++r) {
      Value row = points.constantIndex(r);
      // Beyond the domain the last row is read again: nobody looks at it.
      if (place.laneCount)
        row = arith::MinSIOp::create(b, loc, row,
                                     arith::SubIOp::create(b, loc, place.laneCount, points.constantIndex(1)));
      rows.push_back(points.load(pointer(tile), rowAddress(tile, place, row), tile.elem, place.memoryMask));
    }
    for (auto [k, v] : llvm::enumerate(transposeVectors(b, loc, rows)))
      points.store(tile.storage, slot(place, k), v);
  }
}

void CrossedTiles::write(const Place &place) {
  OpBuilder &b = points.b();
  Location loc = points.kernel().getLoc();
  for (const Tile &tile : tiles) {
    SmallVector<Value> rows;
    for (int64_t k = 0; k < points.lanes(); ++k)
      rows.push_back(points.load(tile.storage, slot(place, k), tile.elem));
    for (auto [r, v] : llvm::enumerate(transposeVectors(b, loc, rows))) {
      Value row = points.constantIndex(r), value = v;
      auto store = [&] {
        PointEmitter::Scope scope(points);
        points.store(pointer(tile), rowAddress(tile, place, row), value, place.memoryMask);
        return SmallVector<Value>();
      };
      if (!place.laneCount) {
        store();
        continue;
      }
      Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, row, place.laneCount);
      emitIf(b, loc, inside, {}, store);
    }
  }
}

Value CrossedTiles::get(unsigned buffer, Value k) {
  const Tile &t = tile(buffer);
  return points.load(t.storage, slot(k), t.elem);
}

void CrossedTiles::put(unsigned buffer, Value k, Value v) {
  const Tile &t = tile(buffer);
  points.store(t.storage, slot(k), points.splat(v));
}
