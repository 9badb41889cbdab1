//===- SymbolFacts.cpp - Facts, simplification, equality ------------------===//
//
// How facts are kept, and what they say about normal forms. Ranges and order
// are in SymbolRanges.cpp. Tests: test/lit/Shape/discharge.mlir,
// test/python/property.
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Support/SymbolFacts.h"
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace mlir::disc;

using Kind = SymAtom::Kind;

//===----------------------------------------------------------------------===//
// Facts
//===----------------------------------------------------------------------===//

const SymbolFacts::Symbol &SymbolFacts::lookup(StringRef name) const {
  static const Symbol unknown;
  auto it = symbols.find(name);
  return it == symbols.end() ? unknown : it->second;
}

void SymbolFacts::declare(SymbolOp op) {
  std::optional<int64_t> likely;
  if (std::optional<ArrayRef<int64_t>> values = op.getLikely())
    if (!values->empty())
      likely = values->front();
  declare(op.getSymName(), {int64_t(op.getMin()), op.getMax()}, op.getDivisor(), likely);
}

void SymbolFacts::declare(StringRef name, Range range, int64_t divisor, std::optional<int64_t> likely) {
  Symbol symbol;
  symbol.order = symbols.size();
  symbol.divisor = divisor;
  symbol.likely = likely;
  // The bounds in multiples of the divisor are at least as tight.
  if (range.min)
    symbol.range.min = -*checkedFloorDiv(-*range.min, divisor) * divisor;
  if (range.max)
    symbol.range.max = *checkedFloorDiv(*range.max, divisor) * divisor;
  symbols[name] = symbol;
  answers.clear();
}

void SymbolFacts::bind(StringRef name) { symbols[name].isBound = true; }

bool SymbolFacts::mentionsBound(const SymExpr &expr) const {
  return llvm::any_of(expr.symbols(), [&](StringRef name) { return lookup(name).isBound; });
}

static SymbolFacts::Range intersect(SymbolFacts::Range a, SymbolFacts::Range b) {
  if (b.min && (!a.min || *b.min > *a.min))
    a.min = b.min;
  if (b.max && (!a.max || *b.max < *a.max))
    a.max = b.max;
  return a;
}

/// Records `lhs == rhs` as a replacement if `lhs` is a symbol that may stand
/// for `rhs`: not part of it, and of two symbols the one declared later.
bool SymbolFacts::orient(const SymExpr &lhs, const SymExpr &rhs) {
  std::optional<StringRef> name = lhs.asSymbol();
  if (!name || llvm::is_contained(rhs.symbols(), *name))
    return false;
  if (std::optional<StringRef> other = rhs.asSymbol()) {
    const Symbol mine = lookup(*name), theirs = lookup(*other);
    if (mine.order < theirs.order)
      return false;
    // What is known about either holds for the one that stays.
    Symbol &kept = symbols[*other];
    kept.range = intersect(theirs.range, mine.range);
    kept.divisor = std::lcm(theirs.divisor, mine.divisor);
    if (!kept.likely)
      kept.likely = mine.likely;
  }
  auto replace = [&](StringRef symbol) -> std::optional<SymExpr> {
    return symbol == *name ? std::optional<SymExpr>(rhs) : std::nullopt;
  };
  for (auto &entry : equalities)
    entry.second = entry.second.substitute(replace);
  for (SymExpr &expr : zeros)
    expr = expr.substitute(replace);
  for (SymExpr &expr : nonNegatives)
    expr = expr.substitute(replace);
  for (auto &[expr, divisor] : multiples)
    expr = expr.substitute(replace);
  // What is known about the symbol is known about what it stands for.
  const Symbol mine = lookup(*name);
  if (!rhs.asSymbol() && !rhs.isConstant()) {
    if (mine.range.min)
      nonNegatives.push_back(rhs - SymExpr(*mine.range.min));
    if (mine.range.max)
      nonNegatives.push_back(SymExpr(*mine.range.max) - rhs);
    if (mine.divisor > 1)
      multiples.push_back({rhs, mine.divisor});
  }
  equalities[*name] = rhs;
  return true;
}

/// No argument of min(a, b) == c is less than c, and none of max(a, b) == c is more.
void SymbolFacts::assumeOfAll(const SymExpr &lhs, const SymExpr &rhs) {
  std::optional<SymAtom> atom = lhs.asAtom();
  if (!atom || (atom->kind() != Kind::Min && atom->kind() != Kind::Max))
    return;
  for (const SymExpr &arg : atom->args())
    if (arg != rhs)
      atom->kind() == Kind::Min ? assume(Predicate::Le, rhs, arg) : assume(Predicate::Le, arg, rhs);
}

void SymbolFacts::assumeNonNegative(SymExpr expr) {
  // What follows for the symbols may simplify the expression, from which more may follow.
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds && !expr.isConstant(); ++round) {
    nonNegatives.push_back(expr);
    // What is known of a bound symbol says nothing of the others, which are used before it has a value.
    if (!expr.isDefined() || mentionsBound(expr) || !tighten(expr))
      return;
    expr = simplify(expr);
  }
}

/// Bounds a symbol that is a term of `expr >= 0` by what the other terms are at most: 1 + min(S, 1) <= S has S >= 1.
/// True if that is new.
bool SymbolFacts::tighten(const SymExpr &expr) {
  bool changed = false;
  for (const SymTerm &term : expr.terms()) {
    if (term.factors.size() != 1 || term.factors.front().kind() != Kind::Symbol)
      continue;
    const SymAtom &atom = term.factors.front();
    std::optional<int64_t> rest = range(expr - SymExpr(term.coefficient) * SymExpr::atom(atom)).max;
    std::optional<int64_t> bound = rest ? checkedFloorDiv(*rest, std::abs(term.coefficient)) : std::nullopt;
    if (!bound || *bound == std::numeric_limits<int64_t>::min())
      continue;
    Symbol &symbol = symbols[atom.name()];
    Range known = symbol.range;
    symbol.range = intersect(known, term.coefficient > 0 ? Range{-*bound, std::nullopt} : Range{std::nullopt, *bound});
    changed |= symbol.range.min != known.min || symbol.range.max != known.max;
  }
  if (changed)
    answers.clear();
  return changed;
}

void SymbolFacts::assume(Predicate predicate, const SymExpr &rawLhs, const SymExpr &rawRhs) {
  SymExpr lhs = simplify(rawLhs), rhs = simplify(rawRhs);
  answers.clear();
  switch (predicate) {
  case Predicate::Eq:
    assumeOfAll(lhs, rhs);
    assumeOfAll(rhs, lhs);
    // A bound symbol is not replaced either: it tells what must wait for its bind.
    if (mentionsBound(lhs) || mentionsBound(rhs)) {
      if (lhs != rhs)
        zeros.push_back(lhs - rhs);
      return;
    }
    if (lhs != rhs && !orient(lhs, rhs) && !orient(rhs, lhs))
      zeros.push_back(lhs - rhs);
    return;
  case Predicate::Le:
    if (std::optional<StringRef> name = lhs.asSymbol(); name && rhs.isConstant())
      symbols[*name].range = intersect(symbols[*name].range, {std::nullopt, rhs.constant()});
    else if (std::optional<StringRef> name = rhs.asSymbol(); name && lhs.isConstant())
      symbols[*name].range = intersect(symbols[*name].range, {lhs.constant(), std::nullopt});
    else
      assumeNonNegative(rhs - lhs);
    return;
  case Predicate::Divisible:
    if (!rhs.isConstant())
      zeros.push_back(SymExpr::mod(lhs, rhs));
    else if (std::optional<StringRef> name = lhs.asSymbol())
      symbols[*name].divisor = std::lcm(symbols[*name].divisor, rhs.constant());
    else
      multiples.push_back({lhs, rhs.constant()});
    return;
  }
}

//===----------------------------------------------------------------------===//
// Simplification
//===----------------------------------------------------------------------===//

SymExpr SymbolFacts::simplifyAtom(const SymAtom &atom) const {
  auto known = answers.atoms.find(atom);
  if (known != answers.atoms.end())
    return known->second;
  SymExpr result = decideAtom(atom);
  answers.atoms.emplace(atom, result);
  return result;
}

SymExpr SymbolFacts::decideAtom(const SymAtom &atom) const {
  SymExpr self = SymExpr::atom(atom);
  switch (atom.kind()) {
  case Kind::Symbol: {
    auto it = equalities.find(atom.name());
    if (it != equalities.end())
      return it->second;
    const Symbol &symbol = lookup(atom.name());
    if (symbol.range.min && symbol.range.min == symbol.range.max)
      return *symbol.range.min;
    return self;
  }
  case Kind::FloorDiv: {
    Range bounds = atomRange(atom);
    if (bounds.min && bounds.min == bounds.max)
      return *bounds.min;
    return self;
  }
  case Kind::Mod: {
    const SymExpr &lhs = atom.args()[0], &rhs = atom.args()[1];
    if (rhs.isConstant() && divisible(lhs, rhs.constant()))
      return 0;
    if (lessEqual(0, lhs) && lessEqual(lhs + SymExpr(1), rhs))
      return lhs;
    return self;
  }
  case Kind::Min:
  case Kind::Max: {
    // An argument goes when another one that stays decides against it.
    SmallVector<SymExpr> kept(atom.args());
    for (size_t i = 0; i < kept.size();) {
      bool dominated = false;
      for (size_t j = 0; j < kept.size() && !dominated; ++j)
        dominated = i != j && (atom.kind() == Kind::Min ? lessEqual(kept[j], kept[i]) : lessEqual(kept[i], kept[j]));
      if (dominated)
        kept.erase(kept.begin() + i);
      else
        ++i;
    }
    if (kept.size() == atom.args().size())
      return self;
    return atom.kind() == Kind::Min ? SymExpr::min(kept) : SymExpr::max(kept);
  }
  case Kind::Undefined:
    break;
  }
  return self;
}

SymExpr SymbolFacts::simplify(const SymExpr &expr) const {
  return expr.mapAtoms([&](const SymAtom &atom) { return simplifyAtom(atom); });
}

/// Writes each symbol S with a divisor d as d * S', so that normal forms see
/// the divisibility.
SymExpr SymbolFacts::expandDivisors(const SymExpr &expr) const {
  return expr.substitute([&](StringRef name) -> std::optional<SymExpr> {
    int64_t divisor = lookup(name).divisor;
    if (divisor == 1)
      return std::nullopt;
    return SymExpr(divisor) * SymExpr::symbol((name + "'").str());
  });
}

//===----------------------------------------------------------------------===//
// Equality and divisibility
//===----------------------------------------------------------------------===//

/// Writes remainders as a - b * (a floordiv b), so that they cancel against
/// divisions.
static SymExpr expandMods(const SymExpr &expr) {
  return expr.mapAtoms([](const SymAtom &atom) {
    if (atom.kind() != Kind::Mod)
      return SymExpr::atom(atom);
    return atom.args()[0] - atom.args()[1] * SymExpr::floorDiv(atom.args()[0], atom.args()[1]);
  });
}

bool SymbolFacts::equal(const SymExpr &lhs, const SymExpr &rhs) const {
  SymExpr difference = simplify(lhs) - simplify(rhs);
  if (!difference.isDefined())
    return false;
  if (difference.isConstant())
    return difference.constant() == 0;
  SymExpr expanded = expandMods(expandDivisors(difference));
  if (expanded.isConstant(0))
    return true;
  for (const SymExpr &zero : zeros)
    if (SymExpr::exactDiv(difference, zero))
      return true;
  Range bounds = range(difference);
  return bounds.min == 0 && bounds.max == 0;
}

bool SymbolFacts::divisible(const SymExpr &rawExpr, int64_t divisor) const {
  if (divisor == 0)
    return false;
  if (divisor == 1 || divisor == -1)
    return true;
  SymExpr expr = expandDivisors(rawExpr);
  if (SymExpr::mod(expr, divisor).isConstant(0))
    return true;
  for (auto &[multiple, factor] : multiples)
    if (factor % divisor == 0 && SymExpr::exactDiv(rawExpr, multiple))
      return true;
  return false;
}

bool SymbolFacts::proved(Predicate predicate, const SymExpr &lhs, const SymExpr &rhs) const {
  switch (predicate) {
  case Predicate::Eq:
    return equal(lhs, rhs);
  case Predicate::Le:
    return lessEqual(lhs, rhs);
  case Predicate::Divisible:
    return rhs.isConstant() ? divisible(simplify(lhs), rhs.constant()) : equal(SymExpr::mod(lhs, rhs), 0);
  }
  llvm_unreachable("unknown predicate");
}

bool SymbolFacts::impossible(Predicate predicate, const SymExpr &lhs, const SymExpr &rhs) const {
  switch (predicate) {
  case Predicate::Eq: {
    Range difference = range(simplify(lhs) - simplify(rhs));
    return (difference.min && *difference.min > 0) || (difference.max && *difference.max < 0);
  }
  case Predicate::Le:
    return lessEqual(rhs + SymExpr(1), lhs);
  case Predicate::Divisible: {
    SymExpr remainder = simplify(SymExpr::mod(lhs, rhs));
    Range bounds = range(remainder);
    return (bounds.min && *bounds.min > 0) || (bounds.max && *bounds.max < 0);
  }
  }
  llvm_unreachable("unknown predicate");
}

//===----------------------------------------------------------------------===//
// Typical values
//===----------------------------------------------------------------------===//

int64_t SymbolFacts::typical(const SymExpr &expr) const {
  // An unbounded extent is rarely larger than this.
  constexpr int64_t kUsualMax = 1024;
  auto value = [&](StringRef name) -> std::optional<int64_t> {
    const Symbol &symbol = lookup(name);
    if (symbol.likely)
      return symbol.likely;
    int64_t low = std::max<int64_t>(symbol.range.min.value_or(1), 1);
    int64_t high = std::max(low, std::min(symbol.range.max.value_or(kUsualMax), kUsualMax));
    int64_t mean = std::llround(std::sqrt(double(low)) * std::sqrt(double(high)));
    int64_t multiple = mean / symbol.divisor * symbol.divisor;
    return multiple >= low ? multiple : mean;
  };
  return simplify(expr).evaluate(value).value_or(0);
}
