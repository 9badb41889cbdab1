//===- KernelAccess.h - how a kernel walks its buffers -------------*- C++ -*-===//
//
// Small inner dimensions make short vector loops. Adjacent dimensions of a domain become one where every buffer is
// walked as if they were one: contiguous, or repeated along both.
//
//===----------------------------------------------------------------------===//
#ifndef DISC_LIB_TARGET_COMMON_KERNELACCESS_H
#define DISC_LIB_TARGET_COMMON_KERNELACCESS_H

#include "lib/Target/Common/PointEmitter.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallBitVector.h"

namespace mlir::disc {

/// A coordinate as a function of the domain's: a linear form, or anything of the dimensions in `opaque`.
struct LinearCoord {
  SmallVector<SymExpr> coefficients;
  llvm::SmallBitVector opaque;
  SymExpr offset;
  bool exact = true;   // false if something not seen here adds to it
  bool byData = false; // an index that is computed from values
};

/// A load or store: the element at `offset + sum(strides[d] * domain[d])` of a buffer, if `exact`.
struct LinearAccess {
  unsigned buffer; // inputs, then results
  SmallVector<SymExpr> strides;
  SymExpr offset;
  bool exact, byData;

  bool operator==(const LinearAccess &o) const {
    return buffer == o.buffer && strides == o.strides && offset == o.offset && exact == o.exact && byData == o.byData;
  }
};

/// Adjacent dimensions of a domain walked as one. At position `i` of the run the innermost dimension's coordinate is
/// `i` and the others' are 0: every address is the same as at the true coordinates.
struct MergedDims {
  unsigned innermost;
  SymExpr extent;
};

class KernelAccess {
public:
  KernelAccess(KernelFuncOp kernel, ShapeAnalysis &shapes, ArrayRef<SymExpr> domain);

  /// The domain's own coordinates.
  SmallVector<LinearCoord> identity() const;
  LinearCoord zero() const;
  /// Coordinates under a reshape.
  SmallVector<LinearCoord> reshape(ArrayRef<LinearCoord> from, ArrayRef<SymExpr> fromDims, ArrayRef<SymExpr> toDims);

  /// Records what evaluating `tensor` at the given coordinates reads.
  void read(Value tensor, ArrayRef<LinearCoord> at);
  /// Does not look through `tensor`: an emitter binds it.
  void stopAt(Value tensor) { stops.insert(tensor); }
  /// Records the accesses of a generic's inputs, at the given coordinates of its iteration space.
  void readInputs(linalg::GenericOp op, ArrayRef<LinearCoord> iters);
  /// Records a store of result `i`.
  void write(unsigned result, ArrayRef<LinearCoord> at);

  /// True if the two dimensions, with none but unit extents between them, may be walked as one.
  bool mergeable(unsigned outer, unsigned inner);
  /// Dimensions [begin, end) of the domain as runs that may each be walked as one, outermost first. Unit extents are
  /// in no run: their coordinate is 0.
  SmallVector<MergedDims> mergedRuns(unsigned begin, unsigned end);

  /// True if a step along the dimension is a step known while compiling in every buffer.
  bool isStatic(unsigned dim) const;
  /// True if values decide which element of some buffer is read.
  bool readsByData() const;

  /// What must be multiples of a vector's length for vectors along dimension `lanes`, in a run of `extent`, to end with
  /// the run and to start at multiples of their length: that extent, and where it is not constant the offset and the
  /// strides along `others` of each access that the lanes are neighbours in.
  SmallVector<SymExpr> vectorMultiples(unsigned lanes, const SymExpr &extent, ArrayRef<unsigned> others) const;

  /// The one way in which a buffer is addressed; null if there are several, or none that is known exactly.
  const LinearAccess *onlyAccess(unsigned buffer) const;

private:
  void access(unsigned buffer, ArrayRef<LinearCoord> at);
  void access(unsigned buffer, const LinearCoord &address);
  LinearCoord groupPosition(const ReshapeGroup &group, ArrayRef<LinearCoord> from, ArrayRef<SymExpr> fromDims) const;
  void barrier(const LinearCoord &coord);
  LinearCoord affine(AffineExpr e, ArrayRef<LinearCoord> iters);
  std::optional<LinearCoord> computed(Operation &op, const llvm::MapVector<Value, LinearCoord> &coordinates) const;

  KernelFuncOp kernel;
  ShapeAnalysis &shapes;
  SmallVector<SymExpr> domain;
  SmallVector<LinearAccess> accesses;
  llvm::SmallBitVector barriers;
  DenseSet<Value> stops;
  DenseSet<Value> visited; // values at identity coordinates, which are most
};

} // namespace mlir::disc

#endif // DISC_LIB_TARGET_COMMON_KERNELACCESS_H
