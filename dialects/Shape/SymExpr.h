//===- SymExpr.h - Canonical symbolic integer expressions -------*- C++ -*-===//
//
// An immutable integer expression over the symbols of a model, kept in one
// normal form: a polynomial with integer coefficients over *atoms*. An atom is
// a symbol, or a floor division, remainder, minimum or maximum of expressions
// that no rule takes apart further. Two expressions with the same normal form
// are the same value, so most equalities between extents are one comparison.
//
// Division and remainder round towards minus infinity, as in Python. Division
// by zero and 64-bit overflow make an expression *undefined*, which is sticky;
// a rule may turn an undefined value into a defined one (`B floordiv B` is 1),
// never the reverse.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_DIALECTS_SHAPE_SYMEXPR_H
#define DISC_DIALECTS_SHAPE_SYMEXPR_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace mlir {
class AsmParser;
}

namespace mlir::disc {

class SymExpr;

/// An indivisible part of an expression. Atoms compare by structure.
class SymAtom {
public:
  enum class Kind { Symbol, FloorDiv, Mod, Min, Max, Undefined };

  static SymAtom symbol(StringRef name);
  /// FloorDiv and Mod take two arguments; Min and Max two or more.
  static SymAtom get(Kind kind, ArrayRef<SymExpr> args);

  Kind kind() const;
  StringRef name() const;
  ArrayRef<SymExpr> args() const;

  /// A total order: negative, zero or positive, as of strcmp.
  int compare(const SymAtom &other) const;
  bool operator==(const SymAtom &other) const;
  bool operator<(const SymAtom &other) const { return compare(other) < 0; }
  friend llvm::hash_code hash_value(const SymAtom &atom);

private:
  struct Storage;
  explicit SymAtom(std::shared_ptr<const Storage> storage) : storage(std::move(storage)) {}
  std::shared_ptr<const Storage> storage;
};

/// A sorted product of atoms; a power is a repetition.
using SymMonomial = SmallVector<SymAtom, 3>;

/// `coefficient * factors[0] * factors[1] * ...`.
struct SymTerm {
  int64_t coefficient;
  SymMonomial factors;
};

class SymExpr {
public:
  /// Zero.
  SymExpr() = default;
  SymExpr(int64_t value);
  static SymExpr symbol(StringRef name);
  static SymExpr undefined();
  static SymExpr atom(const SymAtom &atom);
  /// Sums the terms, in any order and with repetitions.
  static SymExpr fromTerms(ArrayRef<SymTerm> terms);

  /// Reads the text `str` prints; also `ceildiv`. On failure `error` (if
  /// given) says what was expected.
  static FailureOr<SymExpr> parse(StringRef text, std::string *error = nullptr);
  static FailureOr<SymExpr> parse(AsmParser &parser);
  std::string str() const;

  bool isDefined() const;
  bool isConstant() const;
  bool isConstant(int64_t value) const { return isConstant() && constant() == value; }
  /// The value of a constant expression.
  int64_t constant() const;
  /// The name if the expression is exactly one symbol.
  std::optional<StringRef> asSymbol() const;
  /// The atom if the expression is exactly one atom.
  std::optional<SymAtom> asAtom() const;

  /// Highest degree first, the constant last, no zero coefficient.
  ArrayRef<SymTerm> terms() const;
  /// The constant term, 0 if there is none.
  int64_t constantTerm() const;
  /// Every symbol mentioned, sorted, once each.
  SmallVector<std::string> symbols() const;

  SymExpr operator+(const SymExpr &rhs) const;
  SymExpr operator-(const SymExpr &rhs) const;
  SymExpr operator*(const SymExpr &rhs) const;
  SymExpr operator-() const;
  SymExpr &operator+=(const SymExpr &rhs) { return *this = *this + rhs; }
  SymExpr &operator-=(const SymExpr &rhs) { return *this = *this - rhs; }
  SymExpr &operator*=(const SymExpr &rhs) { return *this = *this * rhs; }

  static SymExpr floorDiv(const SymExpr &lhs, const SymExpr &rhs);
  static SymExpr ceilDiv(const SymExpr &lhs, const SymExpr &rhs);
  static SymExpr mod(const SymExpr &lhs, const SymExpr &rhs);
  static SymExpr min(const SymExpr &lhs, const SymExpr &rhs);
  static SymExpr max(const SymExpr &lhs, const SymExpr &rhs);
  static SymExpr min(ArrayRef<SymExpr> args);
  static SymExpr max(ArrayRef<SymExpr> args);
  static SymExpr product(ArrayRef<SymExpr> factors);

  /// `lhs / rhs` when it is exact as polynomials: (B * S + B) / (S + 1) = B.
  static std::optional<SymExpr> exactDiv(const SymExpr &lhs, const SymExpr &rhs);

  /// The largest positive integer that divides every coefficient (0 of zero).
  int64_t content() const;

  /// A total order over normal forms; zero means the same normal form.
  int compare(const SymExpr &other) const;
  bool operator==(const SymExpr &other) const { return compare(other) == 0; }
  bool operator!=(const SymExpr &other) const { return compare(other) != 0; }
  bool operator<(const SymExpr &other) const { return compare(other) < 0; }

  /// Replaces each symbol for which `value` answers, and normalises again.
  SymExpr substitute(function_ref<std::optional<SymExpr>(StringRef)> value) const;
  /// Replaces each atom, arguments before the atom itself, and normalises.
  /// `map` sees a symbol once, but may see a compound atom again.
  SymExpr mapAtoms(function_ref<SymExpr(const SymAtom &)> map) const;

  /// The value where every symbol has one; nothing on division by zero,
  /// overflow or a missing symbol.
  std::optional<int64_t> evaluate(function_ref<std::optional<int64_t>(StringRef)> value) const;
  std::optional<int64_t> evaluate(const llvm::StringMap<int64_t> &values) const;

private:
  using Terms = SmallVector<SymTerm, 2>;
  explicit SymExpr(Terms &&sorted);
  /// Null for zero.
  std::shared_ptr<const Terms> storage;
};

llvm::hash_code hash_value(const SymExpr &expr);
llvm::hash_code hash_value(const SymAtom &atom);
llvm::raw_ostream &operator<<(llvm::raw_ostream &os, const SymExpr &expr);

/// Floor division and remainder of integers; nothing when undefined.
std::optional<int64_t> checkedFloorDiv(int64_t lhs, int64_t rhs);
std::optional<int64_t> checkedMod(int64_t lhs, int64_t rhs);

} // namespace mlir::disc

#endif // DISC_DIALECTS_SHAPE_SYMEXPR_H
