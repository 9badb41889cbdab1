//===- SizeBound.cpp - upper bounds of sizes that cannot overflow ---------===//

#include "lib/Transforms/Memory/SizeBound.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::disc;

using Kind = SymAtom::Kind;

static SizeBound boundAtom(const SymAtom &atom, const ShapeAnalysis &shapes, bool coarse) {
  SizeBound opaque(0);
  opaque.terms = {{{atom}, 1.0}};
  switch (atom.kind()) {
  case Kind::FloorDiv: {
    const SymExpr &divisor = atom.args()[1];
    bool isKnown = divisor.isConstant() && divisor.constant() != 0;
    if (!isKnown && !coarse)
      return opaque;
    SizeBound bound = SizeBound::of(atom.args()[0], shapes, coarse);
    bound *= SizeBound(isKnown ? 1 / std::abs(double(divisor.constant())) : 1);
    bound += SizeBound(1);
    return bound;
  }
  case Kind::Mod:
    return SizeBound::of(atom.args()[1], shapes, coarse);
  case Kind::Min: {
    // Any argument will do for a proof: the one with the fewest factors.
    if (coarse) {
      std::optional<SizeBound> best;
      size_t fewest = ~size_t(0);
      for (const SymExpr &arg : atom.args()) {
        SizeBound bound = SizeBound::of(arg, shapes, coarse);
        size_t degree = 0;
        for (const auto &term : bound.terms)
          degree = std::max(degree, term.first.size());
        if (degree > 0 && degree < fewest && shapes.lessEqual(0, arg)) {
          fewest = degree;
          best = std::move(bound);
        }
      }
      if (best)
        return *best;
    }
    std::optional<int64_t> least;
    for (const SymExpr &arg : atom.args())
      if (std::optional<int64_t> most = shapes.range(arg).max; arg.isConstant() && (!least || *most < *least))
        least = most;
    return least && shapes.lessEqual(0, SymExpr::atom(atom)) ? SizeBound(double(*least)) : opaque;
  }
  case Kind::Max: {
    SizeBound sum(0);
    for (const SymExpr &arg : atom.args())
      sum += SizeBound::of(arg, shapes, coarse);
    return sum;
  }
  case Kind::Symbol:
  case Kind::Undefined:
    break;
  }
  return opaque;
}

SizeBound SizeBound::of(const SymExpr &expr, const ShapeAnalysis &shapes, bool coarse) {
  SizeBound sum(0);
  if (!expr.isDefined())
    return SizeBound(std::numeric_limits<double>::infinity());
  for (const SymTerm &term : expr.terms()) {
    SizeBound product(std::abs(double(term.coefficient)));
    for (const SymAtom &atom : term.factors)
      product *= boundAtom(atom, shapes, coarse);
    sum += product;
  }
  return sum;
}

SizeBound &SizeBound::operator+=(const SizeBound &other) {
  for (const auto &[monomial, coefficient] : other.terms)
    terms[monomial] += coefficient;
  return *this;
}

SizeBound &SizeBound::operator*=(const SizeBound &other) {
  std::map<Monomial, double, Less> product;
  for (const auto &[left, a] : terms)
    for (const auto &[right, b] : other.terms) {
      if (a == 0 || b == 0)
        continue;
      Monomial both(left);
      both.append(right.begin(), right.end());
      llvm::sort(both);
      product[both] += a * b;
    }
  terms = std::move(product);
  return *this;
}

static bool dividesBy(const SymAtom &atom) {
  return (atom.kind() == Kind::FloorDiv && !atom.args()[1].isConstant()) ||
         llvm::any_of(atom.args(), [](const SymExpr &arg) {
           return llvm::any_of(arg.terms(), [](const SymTerm &term) { return llvm::any_of(term.factors, dividesBy); });
         });
}

bool SizeBound::divides() const {
  return llvm::any_of(terms, [](const auto &term) { return llvm::any_of(term.first, dividesBy); });
}

bool SizeBound::covers(const Monomial &larger, const Monomial &smaller) {
  if (std::includes(larger.begin(), larger.end(), smaller.begin(), smaller.end()))
    return true;
  // A minimum is at most any of its arguments.
  for (auto [i, atom] : llvm::enumerate(smaller)) {
    if (atom.kind() != Kind::Min)
      continue;
    for (const SymExpr &arg : atom.args())
      if (std::optional<SymAtom> other = arg.asAtom()) {
        Monomial replaced(smaller);
        replaced[i] = *other;
        llvm::sort(replaced);
        if (covers(larger, replaced))
          return true;
      }
  }
  return false;
}

double SizeBound::largest(const Monomial &monomial, const ShapeAnalysis &shapes) {
  double product = 1;
  for (const SymAtom &atom : monomial) {
    ShapeAnalysis::Range range = shapes.range(SymExpr::atom(atom));
    if (!range.max || !range.min)
      return std::numeric_limits<double>::infinity();
    product *= std::max({1.0, std::abs(double(*range.max)), std::abs(double(*range.min))});
  }
  return product;
}
