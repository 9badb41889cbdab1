//===- SymbolRanges.cpp - Ranges and order of expressions -----------------===//
//
// Several sound bounds, of which the tightest counts:
//   - interval arithmetic, term by term;
//   - the corners of the box, exact for expressions linear in each atom:
//     S * 3 - S * B with B >= 1;
//   - the expression around the lower bounds, which needs no upper bounds:
//     S * S - S = s * s + 3 * s + 2 for S = 2 + s;
//   - d * (a floordiv d) as a - a mod d, which is less than d.
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Support/SymbolFacts.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CheckedArithmetic.h"
#include <map>

using namespace mlir;
using namespace mlir::disc;

using Kind = SymAtom::Kind;
using Interval = SymbolFacts::Range;
using Bound = std::optional<int64_t>;

//===----------------------------------------------------------------------===//
// Interval arithmetic; a bound that overflows is no bound
//===----------------------------------------------------------------------===//

static Bound addBounds(Bound a, Bound b) { return a && b ? llvm::checkedAdd(*a, *b) : Bound(); }

static Interval add(Interval a, Interval b) { return {addBounds(a.min, b.min), addBounds(a.max, b.max)}; }

static Interval hull(Interval a, Interval b) {
  Interval result;
  if (a.min && b.min)
    result.min = std::min(*a.min, *b.min);
  if (a.max && b.max)
    result.max = std::max(*a.max, *b.max);
  return result;
}

static Interval tighter(Interval a, Interval b) {
  if (b.min && (!a.min || *b.min > *a.min))
    a.min = b.min;
  if (b.max && (!a.max || *b.max < *a.max))
    a.max = b.max;
  return a;
}

static Interval negate(Interval a) {
  Interval result;
  if (a.max)
    result.min = llvm::checkedSub<int64_t>(0, *a.max);
  if (a.min)
    result.max = llvm::checkedSub<int64_t>(0, *a.min);
  return result;
}

static bool isNonNegative(Interval a) { return a.min && *a.min >= 0; }
static bool isPositive(Interval a) { return a.min && *a.min > 0; }

static bool isZero(Interval a) { return a.min == 0 && a.max == 0; }

static Interval multiply(Interval a, Interval b) {
  if (isZero(a) || isZero(b))
    return {0, 0};
  if (isNonNegative(a) && isNonNegative(b)) {
    Interval result;
    // A lower bound that overflows cannot be met, but zero stays right.
    result.min = llvm::checkedMul(*a.min, *b.min).value_or(0);
    if (a.max && b.max)
      result.max = llvm::checkedMul(*a.max, *b.max);
    return result;
  }
  if (a.max && *a.max <= 0)
    return negate(multiply(negate(a), b));
  if (b.max && *b.max <= 0)
    return negate(multiply(a, negate(b)));
  if (!a.min || !a.max || !b.min || !b.max)
    return {};
  Interval result;
  for (int64_t x : {*a.min, *a.max})
    for (int64_t y : {*b.min, *b.max}) {
      Bound product = llvm::checkedMul(x, y);
      if (!product)
        return {};
      result = result.min ? hull(result, {product, product}) : Interval{product, product};
    }
  return result;
}

static Interval floorDivide(Interval a, Interval b) {
  if (!isPositive(b))
    return {};
  Interval result;
  // The quotient moves towards zero as the divisor grows; without an upper
  // bound of the divisor it gets as far as 0, or -1 from below.
  if (a.min)
    result.min = *a.min < 0 ? checkedFloorDiv(*a.min, *b.min) : b.max ? checkedFloorDiv(*a.min, *b.max) : Bound(0);
  if (a.max)
    result.max = *a.max >= 0 ? checkedFloorDiv(*a.max, *b.min) : b.max ? checkedFloorDiv(*a.max, *b.max) : Bound(-1);
  return result;
}

static Interval remainder(Interval a, Interval b) {
  if (!isPositive(b))
    return {};
  Interval result{0, std::nullopt};
  if (b.max)
    result.max = *b.max - 1;
  if (!isNonNegative(a))
    return result;
  if (a.max && *a.max < *b.min)
    return a;
  return tighter(result, {0, a.max});
}

//===----------------------------------------------------------------------===//
// Ranges of expressions
//===----------------------------------------------------------------------===//

Interval SymbolFacts::atomRange(const SymAtom &atom) const {
  switch (atom.kind()) {
  case Kind::Symbol: {
    auto it = equalities.find(atom.name());
    Interval own = lookup(atom.name()).range;
    return it == equalities.end() ? own : tighter(own, range(it->second));
  }
  case Kind::FloorDiv:
    return floorDivide(range(atom.args()[0]), range(atom.args()[1]));
  case Kind::Mod:
    return remainder(range(atom.args()[0]), range(atom.args()[1]));
  case Kind::Min:
  case Kind::Max: {
    // The minimum is below every argument's upper bound.
    bool isMin = atom.kind() == Kind::Min;
    Interval result = range(atom.args()[0]), reach = result;
    for (const SymExpr &arg : atom.args().drop_front()) {
      Interval bounds = range(arg);
      result = hull(result, bounds);
      Bound &side = isMin ? reach.max : reach.min;
      Bound other = isMin ? bounds.max : bounds.min;
      if (other && (!side || (isMin ? *other < *side : *other > *side)))
        side = other;
    }
    (isMin ? result.max : result.min) = isMin ? reach.max : reach.min;
    return result;
  }
  case Kind::Undefined:
    break;
  }
  return {};
}

Interval SymbolFacts::sumRange(const SymExpr &expr) const {
  Interval total{0, 0};
  for (const SymTerm &term : expr.terms()) {
    Interval product{1, 1};
    for (auto it = term.factors.begin(); it != term.factors.end();) {
      // An even power is not negative.
      auto end = std::find_if(it, term.factors.end(), [&](const SymAtom &atom) { return !(atom == *it); });
      Interval base = atomRange(*it), power{1, 1};
      for (auto factor = it; factor != end; ++factor)
        power = multiply(power, base);
      if ((end - it) % 2 == 0)
        power = tighter(power, {0, std::nullopt});
      product = multiply(product, power);
      it = end;
    }
    total = add(total, multiply(product, Interval{term.coefficient, term.coefficient}));
  }
  return total;
}

namespace {
/// The distinct atoms of an expression, numbered, with their ranges.
using AtomRanges = std::map<SymAtom, Interval>;
} // namespace

/// The atoms of `expr`, or nothing if one occurs in a power.
static std::optional<AtomRanges> multilinearAtoms(const SymExpr &expr) {
  AtomRanges atoms;
  for (const SymTerm &term : expr.terms())
    for (auto [index, atom] : llvm::enumerate(term.factors)) {
      if (index > 0 && atom == term.factors[index - 1])
        return std::nullopt;
      atoms[atom];
    }
  return atoms;
}

Interval SymbolFacts::cornerRange(const SymExpr &expr) const {
  constexpr size_t kMaxAtoms = 6;
  std::optional<AtomRanges> atoms = multilinearAtoms(expr);
  if (!atoms || atoms->size() > kMaxAtoms)
    return {};
  SmallVector<Interval> ranges;
  std::map<SymAtom, unsigned> index;
  for (auto &[atom, bounds] : *atoms) {
    bounds = atomRange(atom);
    if (!bounds.min || !bounds.max)
      return {};
    index[atom] = ranges.size();
    ranges.push_back(bounds);
  }
  std::optional<Interval> result;
  for (unsigned corner = 0; corner < (1u << ranges.size()); ++corner) {
    Bound total = 0;
    for (const SymTerm &term : expr.terms()) {
      Bound product = term.coefficient;
      for (const SymAtom &atom : term.factors) {
        unsigned i = index[atom];
        int64_t value = corner >> i & 1 ? *ranges[i].max : *ranges[i].min;
        product = product ? llvm::checkedMul(*product, value) : Bound();
      }
      total = addBounds(total, product);
    }
    if (!total)
      return {};
    result = result ? hull(*result, {total, total}) : Interval{total, total};
  }
  return *result;
}

std::optional<int64_t> SymbolFacts::shiftedMin(const SymExpr &expr) const {
  // Every atom as its lower bound plus something not negative. Each atom gets
  // a symbol of its own, so that compound ones are not normalised again.
  std::map<SymAtom, SymExpr> shifted;
  SymExpr sum;
  for (const SymTerm &term : expr.terms()) {
    SymExpr product(term.coefficient);
    for (const SymAtom &atom : term.factors) {
      auto [it, inserted] = shifted.try_emplace(atom);
      if (inserted) {
        Interval bounds = atomRange(atom);
        if (!bounds.min)
          return std::nullopt;
        it->second = SymExpr(*bounds.min) + SymExpr::symbol(std::to_string(shifted.size()));
      }
      product *= it->second;
    }
    sum += product;
  }
  if (!sum.isDefined())
    return std::nullopt;
  for (const SymTerm &term : sum.terms())
    if (term.coefficient < 0 && !term.factors.empty())
      return std::nullopt;
  return sum.constantTerm();
}

/// Whether `atom` is a factor of `term`, once.
static bool hasOnce(const SymTerm &term, const SymAtom &atom) { return llvm::count(term.factors, atom) == 1; }

/// d * (a floordiv d) as a - a mod d, where what multiplies the quotient has the divisor as a factor.
static SymExpr unfoldDivisions(SymExpr expr) {
  std::vector<SymAtom> quotients;
  for (const SymTerm &term : expr.terms())
    for (const SymAtom &atom : term.factors)
      if (atom.kind() == Kind::FloorDiv && !llvm::is_contained(quotients, atom))
        quotients.push_back(atom);
  for (const SymAtom &quotient : quotients) {
    const SymExpr &numerator = quotient.args()[0], &divisor = quotient.args()[1];
    SmallVector<SymTerm> multipliers, rest;
    for (const SymTerm &term : expr.terms()) {
      if (!hasOnce(term, quotient)) {
        rest.push_back(term);
        continue;
      }
      SymTerm multiplier = term;
      multiplier.factors.erase(llvm::find(multiplier.factors, quotient));
      // By constants, each term for itself.
      if (divisor.isConstant() && term.coefficient % divisor.constant() != 0)
        rest.push_back(term);
      else
        multipliers.push_back(multiplier);
    }
    std::optional<SymExpr> count = SymExpr::exactDiv(SymExpr::fromTerms(multipliers), divisor);
    if (count && !count->isConstant(0))
      expr = SymExpr::fromTerms(rest) + *count * (numerator - SymExpr::mod(numerator, divisor));
    if (!expr.isDefined())
      break;
  }
  return expr;
}

/// Facts about the remainders in `expr`: one less than the divisor at most.
SmallVector<SymExpr> SymbolFacts::remainderFacts(const SymExpr &expr) const {
  SmallVector<SymExpr> facts;
  for (const SymTerm &term : expr.terms())
    for (const SymAtom &atom : term.factors)
      if (atom.kind() == Kind::Mod && !atom.args()[1].isConstant() && isPositive(range(atom.args()[1])))
        facts.push_back(atom.args()[1] - SymExpr::atom(atom) - SymExpr(1));
  return facts;
}

Interval SymbolFacts::range(const SymExpr &expr) const {
  if (!expr.isDefined())
    return {};
  if (expr.isConstant())
    return {expr.constant(), expr.constant()};
  auto known = answers.ranges.find(expr);
  if (known != answers.ranges.end())
    return known->second;
  Interval result = computeRange(expr);
  answers.ranges.emplace(expr, result);
  return result;
}

Interval SymbolFacts::computeRange(const SymExpr &expr) const {
  Interval result = sumRange(expr);
  if (expr.terms().size() == 1)
    return result; // The other bounds are no tighter for a single term.
  result = tighter(result, cornerRange(expr));
  result = tighter(result, {shiftedMin(expr), std::nullopt});
  if (Bound negated = shiftedMin(-expr))
    result = tighter(result, {std::nullopt, llvm::checkedSub<int64_t>(0, *negated)});
  SymExpr unfolded = unfoldDivisions(expr);
  if (unfolded != expr && unfolded.isDefined())
    result = tighter(result, range(unfolded));
  return result;
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// The first minimum or maximum that is a factor of a term.
static std::optional<SymAtom> findMinMax(const SymExpr &expr) {
  for (const SymTerm &term : expr.terms())
    for (const SymAtom &atom : term.factors)
      if (atom.kind() == Kind::Min || atom.kind() == Kind::Max)
        return atom;
  return std::nullopt;
}

bool SymbolFacts::nonNegative(const SymExpr &expr, ArrayRef<SymExpr> assumed, unsigned depth) const {
  if (!expr.isDefined())
    return false;
  if (isNonNegative(range(expr)))
    return true;
  for (ArrayRef<SymExpr> known : {ArrayRef<SymExpr>(nonNegatives), assumed})
    for (const SymExpr &fact : known)
      if (isNonNegative(range(expr - fact)))
        return true;
  SymExpr unfolded = unfoldDivisions(expr);
  if (unfolded.isDefined())
    for (const SymExpr &fact : remainderFacts(unfolded))
      if (isNonNegative(range(unfolded - fact)))
        return true;

  // A minimum is one of its arguments, the one that is at most the others.
  std::optional<SymAtom> choice = findMinMax(expr);
  if (!choice || depth == 0)
    return false;
  for (const SymExpr &chosen : choice->args()) {
    SmallVector<SymExpr> facts(assumed);
    for (const SymExpr &other : choice->args())
      if (other != chosen)
        facts.push_back(choice->kind() == Kind::Min ? other - chosen : chosen - other);
    SymExpr branch = expr.mapAtoms([&](const SymAtom &atom) { return atom == *choice ? chosen : SymExpr::atom(atom); });
    if (!nonNegative(branch, facts, depth - 1))
      return false;
  }
  return true;
}

bool SymbolFacts::lessEqual(const SymExpr &lhs, const SymExpr &rhs) const {
  auto replace = [&](StringRef name) -> std::optional<SymExpr> {
    auto it = equalities.find(name);
    return it == equalities.end() ? std::nullopt : std::optional<SymExpr>(it->second);
  };
  // Not `simplify`, which asks this.
  constexpr unsigned kMaxChoices = 3;
  SymExpr difference = rhs - lhs;
  auto known = answers.nonNegatives.find(difference);
  if (known != answers.nonNegatives.end())
    return known->second;
  bool result = nonNegative(difference.substitute(replace), {}, kMaxChoices);
  answers.nonNegatives.emplace(difference, result);
  return result;
}
