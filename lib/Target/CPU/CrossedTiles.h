//===- CrossedTiles.h - operands whose rows cross the lanes --------*- C++ -*-===//
//
// Where the lanes run along one dimension of the domain and an operand's memory along another, a vector of the operand
// would be a gather. Instead V vectors along memory are read, transposed in registers, and kept: V vectors along the
// lanes, for V neighbouring points of the other dimension. Results are written the same way.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_CPU_CROSSEDTILES_H
#define DISC_LIB_TARGET_CPU_CROSSEDTILES_H

#include "lib/Target/Common/KernelAccess.h"

namespace mlir::disc {

/// The transpose of V vectors of V lanes: V * log2(V) shuffles.
SmallVector<Value> transposeVectors(OpBuilder &b, Location loc, SmallVector<Value> rows);

class CrossedTiles {
public:
  /// The buffers (of `count` from `first`, in the numbering of LinearAccess) that are only ever addressed with stride 1
  /// along dimension `memory` of the domain, and with another one along dimension `lanes`. Up to `capacity` points
  /// along `memory` are kept, in tiles of V.
  CrossedTiles(PointEmitter &points, const KernelAccess &access, unsigned lanes, unsigned memory, unsigned first,
               unsigned count, int64_t capacity);

  bool empty() const { return tiles.empty(); }
  bool contains(unsigned buffer) const;

  /// A tile of the domain: its first point, how many of its lanes are in the domain (null: all), and a mask of the
  /// points along `memory` that are (null: all).
  struct Place {
    SmallVector<Value> at; // one per dimension of the domain; null stands for zero
    Value laneCount;
    Value memoryMask;
    Value slot; // of the tile's first point among those kept (null: zero)
  };
  /// Reads a tile of every buffer.
  void read(const Place &place);
  /// Writes what `put` has kept for every buffer. Lanes outside the domain are not written.
  void write(const Place &place);

  /// The vector along the lanes at the kept point `k`, along `memory`.
  Value get(unsigned buffer, Value k);
  void put(unsigned buffer, Value k, Value v);

private:
  struct Tile {
    unsigned buffer;
    LinearAccess access;
    Type elem;
    Value storage; // capacity * V elements on the stack
  };
  const Tile &tile(unsigned buffer) const;
  Value pointer(const Tile &tile);
  Idx rowAddress(const Tile &tile, const Place &place, Value row);
  Idx slot(Value k);
  Idx slot(const Place &place, int64_t k);

  PointEmitter &points;
  unsigned laneDim;
  SmallVector<Tile> tiles;
};

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_CROSSEDTILES_H
