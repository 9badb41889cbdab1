//===- PackPanel.h - columns side by side for a product -------------*- C++ -*-===//
#ifndef DISC_LIB_TARGET_CPU_PACKPANEL_H
#define DISC_LIB_TARGET_CPU_PACKPANEL_H

#include "lib/Target/Common/TileLoops.h"

namespace mlir::disc {

/// A matrix, depth by columns, as points of a tensor.
struct PanelSource {
  Value tensor;
  /// The tensor's point for a column and a depth, one of which may run along the lanes.
  std::function<SmallVector<Idx>(Idx column, Idx depth)> point;
  /// Elements that follow each other in depth are neighbours in memory, those of a row are not: read down the columns
  /// and transpose in registers.
  bool depthContiguous = false;
  /// Turns each vector of the tensor's elements into one of the panel's; null: widens.
  std::function<Value(Value)> transform = {};
  /// Columns from `columnCount` on are zeros; if not, they hold anything.
  bool padWithZeros = false;
  /// The first row of depth to write; null: 0. Only if not `depthContiguous`.
  Value firstDepth = {};
  /// Elements from one row of depth to the next; 0: all of a row's vectors. If fewer, what a row has too many of is
  /// overwritten by the next one, and that of the last lies behind the panel.
  int64_t width = 0;
};

/// Writes the rows of depth before `depthCount`, of `vectors` vectors each, at `panel`: columns `firstColumn` and the
/// following ones, of which there are `columnCount` in all (at least one of them in this panel). `element` is the
/// panel's.
LogicalResult emitPanel(PointEmitter &points, IndexMath &m, const PanelSource &source, Type element, Value firstColumn,
                        Value columnCount, Value depthCount, int64_t vectors, bool alwaysWhole, Value panel);

/// The transpose of n vectors of n lanes, n a power of two.
SmallVector<Value> transposeRegisters(OpBuilder &b, Location loc, SmallVector<Value> rows);

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_CPU_PACKPANEL_H
