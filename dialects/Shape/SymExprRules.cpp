//===- SymExprRules.cpp - Division, remainder, minimum, maximum -----------===//
//
// The rules that take these operations apart until what is left is an atom.
// Every rule is an identity over the integers wherever its left side is
// defined, whatever the signs. Their labels are those of
// docs/rationale/shape.md; test/python/property checks them against Python.
//
//===----------------------------------------------------------------------===//

#include "dialects/Shape/SymExpr.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace mlir::disc;

using Kind = SymAtom::Kind;

//===----------------------------------------------------------------------===//
// Monomials and common factors
//===----------------------------------------------------------------------===//

/// `lhs / rhs` if every factor of `rhs` is one of `lhs`. Both are sorted.
static std::optional<SymMonomial> divideMonomial(ArrayRef<SymAtom> lhs, ArrayRef<SymAtom> rhs) {
  if (!std::includes(lhs.begin(), lhs.end(), rhs.begin(), rhs.end()))
    return std::nullopt;
  SymMonomial quotient;
  std::set_difference(lhs.begin(), lhs.end(), rhs.begin(), rhs.end(), std::back_inserter(quotient));
  return quotient;
}

/// Divides a polynomial by a term that divides each of its terms.
static SymExpr divideByTerm(const SymExpr &expr, const SymTerm &divisor) {
  SmallVector<SymTerm> terms;
  for (const SymTerm &term : expr.terms())
    terms.push_back({term.coefficient / divisor.coefficient, *divideMonomial(term.factors, divisor.factors)});
  return SymExpr::fromTerms(terms);
}

/// The largest term that divides every term of all expressions; its coefficient
/// is positive. At least one expression is not zero.
static SymTerm commonFactor(ArrayRef<SymExpr> exprs) {
  int64_t coefficient = 0;
  std::optional<SymMonomial> factors;
  for (const SymExpr &expr : exprs) {
    coefficient = std::gcd(coefficient, expr.content());
    for (const SymTerm &term : expr.terms()) {
      SymMonomial common;
      if (factors)
        std::set_intersection(factors->begin(), factors->end(), term.factors.begin(), term.factors.end(),
                              std::back_inserter(common));
      factors = factors ? common : term.factors;
    }
  }
  return {coefficient, *factors};
}

static bool hasNegativeLead(const SymExpr &expr) {
  return !expr.terms().empty() && expr.terms().front().coefficient < 0;
}

/// The expression without its constant term.
static SymExpr withoutConstant(const SymExpr &expr) { return expr - SymExpr(expr.constantTerm()); }

/// Coefficients no rule may see: negating or reducing them overflows.
static bool isUnsafe(const SymExpr &expr) {
  return !expr.isDefined() ||
         llvm::any_of(expr.terms(), [](const SymTerm &term) { return term.coefficient == INT64_MIN; });
}

std::optional<SymExpr> SymExpr::exactDiv(const SymExpr &lhs, const SymExpr &rhs) {
  if (isUnsafe(lhs) || isUnsafe(rhs) || rhs.isConstant(0))
    return std::nullopt;
  const SymTerm &lead = rhs.terms().front();
  SymExpr quotient, rest = lhs;
  // Each step removes the leading term, as in division by hand.
  while (!rest.isConstant(0)) {
    const SymTerm &term = rest.terms().front();
    std::optional<SymMonomial> factors = divideMonomial(term.factors, lead.factors);
    if (!factors || term.coefficient % lead.coefficient != 0)
      return std::nullopt;
    SymExpr step = fromTerms({{term.coefficient / lead.coefficient, *factors}});
    quotient += step;
    rest -= step * rhs;
    if (isUnsafe(rest))
      return std::nullopt;
  }
  return quotient;
}

/// Splits `lhs = quotient * divisor + rest` term by term. With `floorAll` the
/// remaining coefficients lie in [0, divisor), otherwise only the constant's
/// does and the others keep their sign, which keeps ranges tight.
static void splitByTerm(const SymExpr &lhs, const SymTerm &divisor, bool floorAll, SymExpr &quotient, SymExpr &rest) {
  SmallVector<SymTerm> quotients, rests;
  for (const SymTerm &term : lhs.terms()) {
    std::optional<SymMonomial> factors = divideMonomial(term.factors, divisor.factors);
    if (!factors) {
      rests.push_back(term);
      continue;
    }
    bool floors = floorAll || term.factors.empty();
    int64_t a = term.coefficient, b = divisor.coefficient;
    quotients.push_back({floors ? *checkedFloorDiv(a, b) : a / b, *factors});
    rests.push_back({floors ? *checkedMod(a, b) : a % b, term.factors});
  }
  quotient = SymExpr::fromTerms(quotients);
  rest = SymExpr::fromTerms(rests);
}

//===----------------------------------------------------------------------===//
// Floor division
//===----------------------------------------------------------------------===//

/// Takes `g` out of `g * x + k` and `g * divisor`, where `g` divides every
/// coefficient but the constant's: returns `x + k floordiv g`.
static SymExpr reduceByGcd(const SymExpr &expr, int64_t gcd) {
  SymExpr scaled = divideByTerm(withoutConstant(expr), SymTerm{gcd, {}});
  return scaled + SymExpr(*checkedFloorDiv(expr.constantTerm(), gcd));
}

static SymExpr floorDivByConstant(SymExpr lhs, int64_t divisor);

/// (D4) (x + a floordiv b) floordiv d = (b * x + a) floordiv (b * d), for the one quotient there is in the numerator.
static std::optional<SymExpr> unnestFloorDiv(const SymExpr &expr, int64_t divisor) {
  auto isQuotient = [](const SymTerm &term) {
    return (term.coefficient == 1 || term.coefficient == -1) && term.factors.size() == 1 &&
           term.factors[0].kind() == Kind::FloorDiv && term.factors[0].args()[1].isConstant();
  };
  if (llvm::count_if(expr.terms(), isQuotient) != 1)
    return std::nullopt;
  const SymTerm &quotient = *llvm::find_if(expr.terms(), isQuotient);
  if (quotient.coefficient < 0) { // (D2) makes it positive.
    std::optional<SymExpr> negated = unnestFloorDiv(-expr + SymExpr(divisor - 1), divisor);
    return negated ? std::optional<SymExpr>(-*negated) : std::nullopt;
  }
  const SymExpr &innerNumerator = quotient.factors[0].args()[0], &innerDivisor = quotient.factors[0].args()[1];
  SymExpr others = expr - SymExpr::atom(quotient.factors[0]);
  SymExpr product = innerDivisor * SymExpr(divisor);
  SymExpr numerator = others * innerDivisor + innerNumerator;
  if (isUnsafe(product) || isUnsafe(numerator))
    return std::nullopt;
  return floorDivByConstant(numerator, product.constant());
}

static SymExpr floorDivByConstant(SymExpr lhs, int64_t divisor) {
  // (D1) multiples of the divisor leave the numerator.
  SymExpr quotient, rest;
  splitByTerm(lhs, SymTerm{divisor, {}}, /*floorAll=*/false, quotient, rest);
  if (rest.isConstant())
    return quotient; // The rest is in [0, divisor).

  if (std::optional<SymExpr> unnested = unnestFloorDiv(rest, divisor))
    return quotient + *unnested;

  // (D2) -a floordiv d = -((a + d - 1) floordiv d).
  if (hasNegativeLead(rest))
    return quotient - floorDivByConstant(-rest + SymExpr(divisor - 1), divisor);

  // (D3) a common divisor of the coefficients cancels, the constant rounds.
  int64_t gcd = std::gcd(withoutConstant(rest).content(), divisor);
  if (gcd > 1)
    return quotient + floorDivByConstant(reduceByGcd(rest, gcd), divisor / gcd);

  return quotient + SymExpr::atom(SymAtom::get(Kind::FloorDiv, {rest, SymExpr(divisor)}));
}

SymExpr SymExpr::floorDiv(const SymExpr &lhs, const SymExpr &rhs) {
  if (isUnsafe(lhs) || isUnsafe(rhs) || rhs.isConstant(0))
    return undefined();
  // (D5) the leading coefficient of the divisor is positive.
  if (hasNegativeLead(rhs))
    return floorDiv(-lhs, -rhs);
  if (rhs.isConstant())
    return floorDivByConstant(lhs, rhs.constant());
  if (lhs.isConstant(0))
    return 0;

  // (D6) common factors cancel.
  SymTerm common = commonFactor({lhs, rhs});
  if (common.coefficient > 1 || !common.factors.empty())
    return floorDiv(divideByTerm(lhs, common), divideByTerm(rhs, common));
  // (D7) an exact polynomial quotient.
  if (std::optional<SymExpr> exact = exactDiv(lhs, rhs))
    return *exact;
  // (D1) again, for a divisor that is one term.
  if (rhs.terms().size() == 1) {
    SymExpr quotient, rest;
    splitByTerm(lhs, rhs.terms().front(), /*floorAll=*/false, quotient, rest);
    if (!quotient.isConstant(0))
      return quotient + floorDiv(rest, rhs);
  }
  return atom(SymAtom::get(Kind::FloorDiv, {lhs, rhs}));
}

SymExpr SymExpr::ceilDiv(const SymExpr &lhs, const SymExpr &rhs) {
  // Not lhs + rhs - 1, which is right for positive divisors only; for these
  // (D2) brings both to the same normal form.
  if (rhs.isConstant() && rhs.constant() > 0)
    return floorDiv(lhs + rhs - SymExpr(1), rhs);
  return -floorDiv(-lhs, rhs);
}

//===----------------------------------------------------------------------===//
// Remainder
//===----------------------------------------------------------------------===//

/// (M3) a remainder inside a remainder vanishes when the outer divisor divides
/// what the inner one took away.
static std::optional<SymExpr> unnestMod(const SymExpr &expr, int64_t divisor) {
  for (auto [index, term] : llvm::enumerate(expr.terms())) {
    for (auto [position, factor] : llvm::enumerate(term.factors)) {
      if (factor.kind() != Kind::Mod || !factor.args()[1].isConstant())
        continue;
      SymExpr taken = SymExpr(term.coefficient) * factor.args()[1];
      if (isUnsafe(taken) || taken.constant() % divisor != 0)
        continue;
      SymMonomial others(term.factors);
      others.erase(others.begin() + position);
      return expr - SymExpr::fromTerms({term}) + SymExpr::fromTerms({{term.coefficient, others}}) * factor.args()[0];
    }
  }
  return std::nullopt;
}

static SymExpr modByConstant(const SymExpr &lhs, int64_t divisor) {
  // (M1) every coefficient is reduced.
  SymExpr quotient, rest;
  splitByTerm(lhs, SymTerm{divisor, {}}, /*floorAll=*/true, quotient, rest);
  if (rest.isConstant())
    return rest;

  // (M2) (g * x + k) mod (g * d) = g * ((x + k floordiv g) mod d) + k mod g.
  int64_t gcd = std::gcd(withoutConstant(rest).content(), divisor);
  if (gcd > 1)
    return SymExpr(gcd) * modByConstant(reduceByGcd(rest, gcd), divisor / gcd) +
           SymExpr(*checkedMod(rest.constantTerm(), gcd));

  if (std::optional<SymExpr> unnested = unnestMod(rest, divisor))
    if (!isUnsafe(*unnested))
      return modByConstant(*unnested, divisor);
  return SymExpr::atom(SymAtom::get(Kind::Mod, {rest, SymExpr(divisor)}));
}

SymExpr SymExpr::mod(const SymExpr &lhs, const SymExpr &rhs) {
  if (isUnsafe(lhs) || isUnsafe(rhs) || rhs.isConstant(0))
    return undefined();
  // (M4) a mod -b = -(-a mod b).
  if (hasNegativeLead(rhs))
    return -mod(-lhs, -rhs);
  if (rhs.isConstant())
    return modByConstant(lhs, rhs.constant());
  if (lhs.isConstant(0))
    return 0;

  // (M5) common factors come out.
  SymTerm common = commonFactor({lhs, rhs});
  if (common.coefficient > 1 || !common.factors.empty())
    return fromTerms({common}) * mod(divideByTerm(lhs, common), divideByTerm(rhs, common));
  if (exactDiv(lhs, rhs))
    return 0;
  if (rhs.terms().size() == 1) {
    SymExpr quotient, rest;
    splitByTerm(lhs, rhs.terms().front(), /*floorAll=*/true, quotient, rest);
    if (!quotient.isConstant(0))
      return mod(rest, rhs);
  }
  return atom(SymAtom::get(Kind::Mod, {lhs, rhs}));
}

//===----------------------------------------------------------------------===//
// Minimum and maximum
//===----------------------------------------------------------------------===//

static Kind dual(Kind kind) { return kind == Kind::Min ? Kind::Max : Kind::Min; }

/// (X1) `c * min(a, b) + k` as an argument of a minimum spreads into
/// `c * a + k` and `c * b + k`; of a maximum inside for negative `c`.
static void flatten(Kind kind, const SymExpr &arg, SmallVectorImpl<SymExpr> &out) {
  SymExpr variable = withoutConstant(arg);
  if (variable.terms().size() == 1 && variable.terms()[0].factors.size() == 1) {
    int64_t scale = variable.terms()[0].coefficient;
    const SymAtom &atom = variable.terms()[0].factors[0];
    if (atom.kind() == (scale > 0 ? kind : dual(kind))) {
      for (const SymExpr &inner : atom.args())
        flatten(kind, SymExpr(scale) * inner + SymExpr(arg.constantTerm()), out);
      return;
    }
  }
  out.push_back(arg);
}

static SymExpr minMax(Kind kind, ArrayRef<SymExpr> operands) {
  SmallVector<SymExpr> args;
  for (const SymExpr &operand : operands)
    flatten(kind, operand, args);
  if (llvm::any_of(args, isUnsafe))
    return SymExpr::undefined();

  // (X2) of arguments a constant apart one remains.
  auto variableLess = [](const SymExpr &a, const SymExpr &b) { return withoutConstant(a) < withoutConstant(b); };
  llvm::sort(args, variableLess);
  SmallVector<SymExpr> distinct;
  for (const SymExpr &arg : args) {
    if (distinct.empty() || variableLess(distinct.back(), arg)) {
      distinct.push_back(arg);
      continue;
    }
    bool smaller = arg.constantTerm() < distinct.back().constantTerm();
    if (smaller == (kind == Kind::Min))
      distinct.back() = arg;
  }
  if (distinct.size() == 1)
    return distinct.front();

  // (X3) the constant of the first argument that is not one comes out, then
  // any common factor.
  auto variable = llvm::make_filter_range(distinct, [](const SymExpr &arg) { return !arg.isConstant(); });
  int64_t shift = (*variable.begin()).constantTerm();
  int64_t scale = 0;
  for (SymExpr &arg : distinct) {
    arg -= SymExpr(shift);
    if (isUnsafe(arg))
      return SymExpr::undefined();
    scale = std::gcd(scale, arg.content());
  }
  for (SymExpr &arg : distinct)
    arg = divideByTerm(arg, SymTerm{scale, {}});

  // (X4) min(-a, -b) = -max(a, b).
  SymExpr result;
  if (llvm::all_of(variable, hasNegativeLead)) {
    for (SymExpr &arg : distinct)
      arg = -arg;
    result = -minMax(dual(kind), distinct);
  } else {
    llvm::sort(distinct);
    result = SymExpr::atom(SymAtom::get(kind, distinct));
  }
  return SymExpr(scale) * result + SymExpr(shift);
}

SymExpr SymExpr::min(ArrayRef<SymExpr> args) { return minMax(Kind::Min, args); }
SymExpr SymExpr::max(ArrayRef<SymExpr> args) { return minMax(Kind::Max, args); }

SymExpr SymExpr::min(const SymExpr &lhs, const SymExpr &rhs) { return minMax(Kind::Min, {lhs, rhs}); }

SymExpr SymExpr::max(const SymExpr &lhs, const SymExpr &rhs) { return minMax(Kind::Max, {lhs, rhs}); }
