//===- SymbolFacts.h - What is known about symbols, and proofs --*- C++ -*-===//
//
// Facts come from symbol declarations and guards; everything else is derived
// from them: ranges, divisibility, order and equality of expressions. A proof
// that is not found says nothing.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_SUPPORT_SYMBOLFACTS_H
#define DISC_TRANSFORMS_SUPPORT_SYMBOLFACTS_H

#include "dialects/Shape/ShapeDialect.h"
#include "dialects/Shape/SymExpr.h"
#include "llvm/ADT/StringMap.h"
#include <unordered_map>

namespace mlir::disc {

class SymbolFacts {
public:
  /// Inclusive bounds; nothing where there is none.
  struct Range {
    std::optional<int64_t> min, max;
  };

  /// Declares a symbol; the order of declarations decides which of two equal
  /// symbols stands for both. Undeclared symbols may have any value.
  void declare(SymbolOp symbol);
  void declare(StringRef name, Range range, int64_t divisor, std::optional<int64_t> likely);
  /// The symbol gets its value in the middle of a function. Guards on it say nothing of other symbols: those are used
  /// before the guard has been checked.
  void bind(StringRef name);
  /// From here on the relation is known.
  void assume(Predicate predicate, const SymExpr &lhs, const SymExpr &rhs);

  /// The normal form given the facts: equal symbols replaced, divisions,
  /// remainders, minima and maxima decided where ranges allow.
  SymExpr simplify(const SymExpr &expr) const;

  Range range(const SymExpr &expr) const;
  bool equal(const SymExpr &lhs, const SymExpr &rhs) const;
  bool lessEqual(const SymExpr &lhs, const SymExpr &rhs) const;
  bool divisible(const SymExpr &expr, int64_t divisor) const;
  /// True if no values of the symbols satisfy the relation.
  bool impossible(Predicate predicate, const SymExpr &lhs, const SymExpr &rhs) const;
  /// True if the relation always holds.
  bool proved(Predicate predicate, const SymExpr &lhs, const SymExpr &rhs) const;

  /// A value to weigh decisions with: the expression at each symbol's first
  /// likely value, else at the geometric mean of its bounds.
  int64_t typical(const SymExpr &expr) const;

private:
  struct Symbol {
    unsigned order = ~0u;
    Range range;
    int64_t divisor = 1;
    std::optional<int64_t> likely;
    bool isBound = false;
  };

  const Symbol &lookup(StringRef name) const;
  bool mentionsBound(const SymExpr &expr) const;
  bool orient(const SymExpr &lhs, const SymExpr &rhs);
  void assumeOfAll(const SymExpr &lhs, const SymExpr &rhs);
  void assumeNonNegative(SymExpr expr);
  bool tighten(const SymExpr &expr);
  SymExpr simplifyAtom(const SymAtom &atom) const;
  SymExpr decideAtom(const SymAtom &atom) const;
  Range computeRange(const SymExpr &expr) const;
  SymExpr expandDivisors(const SymExpr &expr) const;
  Range atomRange(const SymAtom &atom) const;
  Range sumRange(const SymExpr &expr) const;
  Range cornerRange(const SymExpr &expr) const;
  std::optional<int64_t> shiftedMin(const SymExpr &expr) const;
  SmallVector<SymExpr> remainderFacts(const SymExpr &expr) const;
  bool nonNegative(const SymExpr &expr, ArrayRef<SymExpr> assumed, unsigned depth) const;

  llvm::StringMap<Symbol> symbols;
  /// Symbols that stand for something else; the values mention none of the keys.
  llvm::StringMap<SymExpr> equalities;
  /// Expressions known to be zero, not negative, or a multiple.
  SmallVector<SymExpr> zeros, nonNegatives;
  SmallVector<std::pair<SymExpr, int64_t>> multiples;

  /// What was asked since the last new fact. Every bound of a nested expression asks for those of its parts several
  /// times: without this, the time grows exponentially with the nesting. A copy, made to learn more, starts afresh.
  /// Not for several threads at once.
  struct Answers {
    Answers() = default;
    Answers(const Answers &) {}
    Answers &operator=(const Answers &) {
      clear();
      return *this;
    }
    void clear() {
      ranges.clear();
      atoms.clear();
      nonNegatives.clear();
    }

    template <typename Key> struct Hash {
      size_t operator()(const Key &key) const { return hash_value(key); }
    };
    std::unordered_map<SymExpr, Range, Hash<SymExpr>> ranges;
    std::unordered_map<SymAtom, SymExpr, Hash<SymAtom>> atoms;
    std::unordered_map<SymExpr, bool, Hash<SymExpr>> nonNegatives;
  };
  mutable Answers answers;
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_SYMBOLFACTS_H
