//===- Extents.h - One value per extent -------------------------*- C++ -*-===//

#ifndef DISC_TRANSFORMS_SHAPE_EXTENTS_H
#define DISC_TRANSFORMS_SHAPE_EXTENTS_H

#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include <map>

namespace mlir::disc {

/// The `disc_shape.dim` operations at the top of a function, one per
/// expression.
class Extents {
public:
  explicit Extents(FunctionOpInterface function);

  /// The value of an expression: a `disc_shape.dim`, or a constant.
  Value get(const SymExpr &expr, Location loc);

  /// `op` is about to be erased.
  void forget(Operation *op);

private:
  OpBuilder builder;
  std::map<SymExpr, Value> values;
};

/// Brings every index computation of the function into the form above and
/// every `disc_shape.dims` into normal form, given what is known by now.
void canonicalizeExtents(FunctionOpInterface function, Extents &extents, ShapeAnalysis &shapes);

/// The expressions of the tensor `disc_shape.dims` belongs to, if all are
/// expressible.
DimsAttr getDimsAttr(ShapeAnalysis &shapes, Value tensor);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SHAPE_EXTENTS_H
