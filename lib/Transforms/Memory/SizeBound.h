//===- SizeBound.h - upper bounds of sizes that cannot overflow --*- C++ -*-===//
//
// The size of a tensor is an expression that may overflow, so it cannot be compared with a limit itself. A bound is a
// sum of products of symbols with coefficients in floating point, where every factor counts as at least 1:
//
//   4 * B * (S - 3)          4 * B * S + 12 * B
//   (S + 15) floordiv 16     S / 16 + 2
//
// Then a product that divides another is never larger, an extent of 0 hides nothing, and all partial results that
// computing the size needs are below the bound too.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_MEMORY_SIZEBOUND_H
#define DISC_TRANSFORMS_MEMORY_SIZEBOUND_H

#include "dialects/Shape/SymExpr.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include <map>

namespace mlir::disc {

/// Sizes in bytes may not be larger. 2^63 leaves room for the sums of what is proved one by one, and for what kernels
/// add: padding, and a few numbers of 8 bytes for each element.
inline constexpr double kSizeLimit = double(int64_t(1) << 59);

class SizeBound {
public:
  /// A sorted product of atoms.
  using Monomial = SmallVector<SymAtom, 3>;

  SizeBound(double constant) { terms[{}] = constant; }
  /// A bound of the expression's absolute value. A `coarse` one takes divisions by expressions for divisions by 1.
  static SizeBound of(const SymExpr &expr, const ShapeAnalysis &shapes, bool coarse = false);
  SizeBound &operator+=(const SizeBound &other);
  SizeBound &operator*=(const SizeBound &other);

  /// Whether a division by an expression is part of it, which is slow.
  bool divides() const;
  /// Whether the second is at most the first, whatever the values of symbols.
  static bool covers(const Monomial &larger, const Monomial &smaller);
  /// The largest value of a product; infinity if there is none.
  static double largest(const Monomial &monomial, const ShapeAnalysis &shapes);

  struct Less {
    bool operator()(const Monomial &a, const Monomial &b) const {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
  };
  std::map<Monomial, double, Less> terms;
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_SIZEBOUND_H
