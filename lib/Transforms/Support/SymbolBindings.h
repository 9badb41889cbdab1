//===- SymbolBindings.h - symbols whose values data decides ------*- C++ -*-===//
//
// A `disc_shape.bind` in the middle of a function gives a symbol its value. No SSA edge leads from it to what mentions
// the symbol, because extents are names: passes that reorder ask here.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_SUPPORT_SYMBOLBINDINGS_H
#define DISC_TRANSFORMS_SUPPORT_SYMBOLBINDINGS_H

#include "dialects/Shape/ShapeDialect.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::disc {

class SymbolBindings {
public:
  /// The binds of a block of the host flow, which are the operations that give symbols values for what comes after
  /// them, and the guards that follow from them.
  explicit SymbolBindings(Block &block);

  bool empty() const { return binds.empty(); }

  /// The binds, and the guards on the symbols they bind, that must come before `op`: those of every symbol that its
  /// attributes mention, or those of anything inside it, or of the extents outside of the block that it reads; and
  /// those of the count of a result that it reads.
  SmallVector<Operation *> before(Operation *op) const;

  /// What must come after a bind: the operations of the block that mention its symbol, as they were at the start.
  ArrayRef<Operation *> after(Operation *bind) const;

  /// True if the expression mentions a symbol that is bound in the block.
  bool mentions(const SymExpr &expr) const;
  /// The last bind, in the block's order, of the symbols in these expressions; null if there is none.
  Operation *lastOf(ArrayRef<SymExpr> exprs) const;

private:
  Block *block;
  llvm::StringMap<Operation *> binds;
  llvm::DenseMap<Operation *, SmallVector<Operation *>> guards, users;
  /// The binds of an operation's results that say how much of its other results is written.
  llvm::DenseMap<Operation *, SmallVector<Operation *>> counted;
};

/// Sorts a block by data flow and bindings; what is in order stays in order.
void sortByDataFlow(Block &block);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_SYMBOLBINDINGS_H
