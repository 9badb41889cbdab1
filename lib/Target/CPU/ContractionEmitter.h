//===- ContractionEmitter.h - the code of a product's kernel -------*- C++ -*-===//
//
// Shared by EmitContraction.cpp, tasks, tiles and epilogues, and ContractionOperands.cpp, where the operands are read.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_CPU_CONTRACTIONEMITTER_H
#define DISC_LIB_TARGET_CPU_CONTRACTIONEMITTER_H

#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/CPU/MicroKernel.h"
#include "lib/Target/Common/TileLoops.h"
#include "lib/Transforms/Schedule/ContractionInfo.h"
#include "lib/Transforms/Support/TargetInfo.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::disc::contraction {

/// So many lines, one for each value of k, stay in the first-level cache while the tiles that need a part of them go
/// by.
constexpr int64_t shortDepth = 64;
/// The most rows for which codes of 4 and of 8 bits are made floats in registers, where more are multiplied by tiles.
/// Measured: rows of bf16 are widened for each panel of bytes, and once for all of those of 4 bits.
constexpr int64_t fewRowsOfNibbles = 7, fewRowsOfBytes = 4;

/// Where a task works.
struct Task {
  SmallVector<Value> batch; // coordinates
  Value batchLinear, chunk, firstTile, endTile, firstRow;
  Value panel;       // of all parts
  Value ownPanel;    // of the part
  Value firstColumn; // of the part
};

struct Product {
  ContractionInfo info;
  MicroKernelSpec spec;
  int64_t groups;         // runs of k with scales of their own, if the panels are of codes
  MicroKernelSpec floats; // of the product with what the codes or short floats stand for
};

/// A panel of a product's right operand.
struct Panel {
  Value values;
  Codes codes;  // of the first group
  Value floats; // what the codes or short floats stand for, in scratch, if the task has many rows
};

/// Products of the same columns, whose tiles of sums lie one after the other.
struct Part {
  std::vector<Product> products;
  SmallVector<Value> ends; // of the packed right operands; null if a panel is packed in scratch
  SmallVector<unsigned> results;
  int64_t vectors; // of a panel
  Value columnCount, panelCount;

  ContractionInfo &info() { return products.front().info; }
};

class ContractionEmitter {
public:
  ContractionEmitter(KernelEmission &e, ArrayRef<ContractionPart> contractionParts)
      : e(e), b(e.builder), info(contractionParts.front().first()), m{e.builder, e.kernel.getLoc()},
        acc(info.accumulator), lanes(e.vectorBits / int64_t(acc.getIntOrFloatBitWidth())),
        points(e.builder, e.kernel, e.args(), lanes, e.shapes), schedule(e.schedule<ProductScheduleAttr>()),
        tileRows(schedule.getRows()) {
    TargetInfo target = TargetInfo::get(e.kernel->getParentOfType<ModuleOp>());
    for (auto [i, part] : llvm::enumerate(contractionParts)) {
      Part &own = parts.emplace_back();
      own.results = part.results;
      own.vectors = schedule.getColumns()[i] / lanes;
      for (const ContractionInfo &product : part.products) {
        UnpackOp panels = product.panels;
        MicroKernelSpec spec{product.lhsRead(), product.rhsRead(), acc, lanes, own.vectors};
        spec.aUnsigned = (product.lhsUnsigned && spec.a == product.lhsElement) != (product.lhsShift() != 0);
        spec.bUnsigned = product.rhsUnsigned;
        if (panels) {
          spec.prefetch = true;
          spec.toSecondLevel = target.fetchToL2;
          spec.together = panels.getTogether();
          spec.shifted = panels.getLeftShift() != 0;
          spec.nibbles = panels.getNibbles();
          spec.scaled = spec.runs = bool(panels.getScales());
          spec.zeros = bool(panels.getZeros());
          spec.tiles = target.multipliesTiles(spec.together, spec.b);
        }
        MicroKernelSpec floats{spec.a, acc, acc, lanes, own.vectors, spec.prefetch, spec.toSecondLevel};
        if (product.asHalves()) {
          floats.b = spec.a, floats.together = 2;
          floats.tiles = true;
          floats.toSecondLevel = false; // they lie in a near cache
        }
        own.products.push_back({product, spec, panels ? panels.getGroups() : 0, floats});
      }
    }
  }

  LogicalResult emit();

private:
  Location loc() { return m.loc; }
  Value size(ArrayRef<unsigned> dims) { return points.expr(info.size(dims)); }
  SmallVector<Value> sizes(ArrayRef<unsigned> dims) {
    SmallVector<Value> out;
    for (unsigned d : dims)
      out.push_back(points.expr(info.sizes[d]));
    return out;
  }
  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, loc(), condition, x, y); }
  Value lhsScratch() { return m.advance(e.scratch(), points.expr(schedule.getLhsScratch().getValue())); }
  Value rhsScratch() { return m.advance(e.scratch(), points.expr(schedule.getRhsScratch().getValue())); }
  void fail() { failedInside = true; }

  LogicalResult checkInit(ContractionInfo &product);
  void chooseLhs();
  Task locate(Value task);
  SmallVector<Value> emitTask(Value task, ValueRange carried);
  SmallVector<Value> emitPart(size_t index, Task task, Value before, Value lhs, Value rhsKey);
  Value placeLhs(const Task &task, Value &key);
  Value packLhs(const Task &task);
  bool packLhsPanels(const Task &task, Value base);
  SmallVector<Panel> placeRhs(Part &part, const Task &task, Value lhs, Value &key);
  Value prepareLhs(const Part &part, const Task &task, Value lhs, Value key);
  static bool hasNibbles(const Part &part) {
    return llvm::any_of(part.products, [](const Product &product) { return product.spec.nibbles; });
  }
  int64_t fewRows(const Part &part);
  Value hasManyRows(const Part &part, const Task &task);
  std::pair<Value, Value> preparedLhs();
  static bool hasFloats(const Product &product) { return product.spec.scaled || product.info.widensPanels(); }
  void widenPanel(const Product &product, const Panel &panel);
  void unpackCodes(Part &part, const Task &task, MutableArrayRef<Panel> panels);
  void emitTiles(Part &part, const Task &task, Value lhs, ArrayRef<Panel> rhs);
  LogicalResult emitEpilogue(Part &part, const Task &task, Value firstRow, Value rows, ArrayRef<Value> sums);
  LogicalResult emitVector(Part &part, const Task &task, ArrayRef<Value> rowCoordinates, int64_t vector,
                           ArrayRef<Value> sumRows, Value mask);
  SmallVector<Idx> iteration(ContractionInfo &product, const Task &task, ArrayRef<Value> rowCoordinates,
                             ArrayRef<Idx> columns, ArrayRef<Idx> depth);
  SmallVector<Idx> split(ContractionInfo &product, Idx linear, ArrayRef<unsigned> dims);

  KernelEmission &e;
  OpBuilder &b;
  ContractionInfo info; // of the first product: says what all share
  IndexMath m;
  Type acc;
  int64_t lanes;
  PointEmitter points;
  const ProductScheduleAttr schedule;
  const int64_t tileRows;
  std::vector<Part> parts;

  /// How the left operand is read in place; nothing if it is always copied.
  std::optional<StridedOperand> lhsInPlace;
  SymExpr lhsRowStride, lhsDepthStride;           // elements, of what the product reads unless it is panels
  int64_t lhsPanel = 0;                           // elements in each row of a panel; 0: it is never copied to panels
  Value copiesPanels;                             // i1: panels, not in place; null if that is never a choice
  Value lhsRowBytes, lhsDepthBytes, lhsTileBytes; // what leads to the next row, value of k and tile
  Value keepsChunk; // i1: neighbouring tasks have the same rows, not the same columns; null if that is known
  Value rowCount, depthCount, tileCount, chunkCount, panelCount;
  std::optional<EvenSplit> rowSplit;
  TileHeights heights{1, 1};
  Value tileShape; // if a product is one of tiles
  bool failedInside = false;
};

} // namespace mlir::disc::contraction

#endif // DISC_LIB_TARGET_CPU_CONTRACTIONEMITTER_H
