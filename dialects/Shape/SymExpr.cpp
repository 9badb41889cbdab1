//===- SymExpr.cpp - The ring of canonical expressions --------------------===//
//
// Atoms, the polynomial normal form, sums and products. Division, remainder,
// minimum and maximum are in SymExprRules.cpp; text is in SymExprText.cpp.
//
//===----------------------------------------------------------------------===//

#include "dialects/Shape/SymExpr.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CheckedArithmetic.h"
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

using namespace mlir;
using namespace mlir::disc;

struct SymAtom::Storage {
  Storage(Kind kind, StringRef name, ArrayRef<SymExpr> args)
      : kind(kind), name(name), args(args),
        hash(llvm::hash_combine(unsigned(kind), name, llvm::hash_combine_range(args.begin(), args.end()))) {}

  /// The atom of this structure, of which there is one.
  static SymAtom unique(Kind kind, StringRef name, ArrayRef<SymExpr> args);
  struct Table;

  Kind kind;
  std::string name;
  SmallVector<SymExpr, 2> args;
  /// Of the whole structure, so that unequal atoms are told apart without walking them.
  llvm::hash_code hash;
};

//===----------------------------------------------------------------------===//
// Atoms and monomials
//===----------------------------------------------------------------------===//

/// Extents of deep models share most of their parts; with one object for equal parts, comparing them takes no walk,
/// which would take time exponential in the depth.
struct SymAtom::Storage::Table {
  SymAtom find(Kind kind, StringRef name, ArrayRef<SymExpr> args) {
    auto made = std::make_shared<const Storage>(kind, name, args);
    // What goes is destroyed without the lock.
    std::vector<std::shared_ptr<const Storage>> looked;
    std::lock_guard lock(mutex);
    if (atoms.size() >= limit)
      sweep();
    auto [begin, end] = atoms.equal_range(made->hash);
    for (auto it = begin; it != end; ++it) {
      std::shared_ptr<const Storage> other = it->second.lock();
      if (!other)
        continue;
      looked.push_back(other);
      if (kind == other->kind && name == other->name && args == ArrayRef<SymExpr>(other->args))
        return SymAtom(other);
    }
    atoms.emplace(made->hash, made);
    return SymAtom(made);
  }

  void sweep() {
    for (auto it = atoms.begin(); it != atoms.end();)
      it = it->second.expired() ? atoms.erase(it) : std::next(it);
    limit = std::max<size_t>(kLeast, 2 * atoms.size());
  }

  static constexpr size_t kLeast = 4096;
  std::mutex mutex;
  std::unordered_multimap<size_t, std::weak_ptr<const Storage>> atoms;
  size_t limit = kLeast;
};

SymAtom SymAtom::Storage::unique(Kind kind, StringRef name, ArrayRef<SymExpr> args) {
  // Never destroyed: atoms may be made while the process ends.
  static Table *table = new Table;
  return table->find(kind, name, args);
}

SymAtom SymAtom::symbol(StringRef name) { return Storage::unique(Kind::Symbol, name, {}); }

SymAtom SymAtom::get(Kind kind, ArrayRef<SymExpr> args) { return Storage::unique(kind, StringRef(), args); }

SymAtom::Kind SymAtom::kind() const { return storage->kind; }
StringRef SymAtom::name() const { return storage->name; }
ArrayRef<SymExpr> SymAtom::args() const { return storage->args; }

bool SymAtom::operator==(const SymAtom &other) const {
  return storage == other.storage || (storage->hash == other.storage->hash && compare(other) == 0);
}

int SymAtom::compare(const SymAtom &other) const {
  if (storage == other.storage)
    return 0;
  if (kind() != other.kind())
    return kind() < other.kind() ? -1 : 1;
  if (int order = name().compare(other.name()))
    return order;
  if (args().size() != other.args().size())
    return args().size() < other.args().size() ? -1 : 1;
  for (auto [mine, theirs] : llvm::zip(args(), other.args()))
    if (int order = mine.compare(theirs))
      return order;
  return 0;
}

/// Graded lexicographic order, higher degree first. It agrees with
/// multiplication, which polynomial division relies on.
static int compareMonomials(ArrayRef<SymAtom> lhs, ArrayRef<SymAtom> rhs) {
  if (lhs.size() != rhs.size())
    return lhs.size() > rhs.size() ? -1 : 1;
  for (auto [a, b] : llvm::zip(lhs, rhs))
    if (int order = a.compare(b))
      return order;
  return 0;
}

namespace {
struct AtomHash {
  size_t operator()(const SymAtom &atom) const { return hash_value(atom); }
};
/// What is known of the parts of an expression, which are shared: a walk of the tree takes exponential time.
template <typename Value> using AtomMap = std::unordered_map<SymAtom, Value, AtomHash>;
using AtomSet = std::unordered_set<SymAtom, AtomHash>;

struct MonomialLess {
  bool operator()(const SymMonomial &lhs, const SymMonomial &rhs) const { return compareMonomials(lhs, rhs) < 0; }
};

/// Sums terms into the normal form.
class Accumulator {
public:
  void add(const SymTerm &term) {
    auto [it, inserted] = sum.try_emplace(term.factors, term.coefficient);
    if (inserted)
      return;
    if (auto total = llvm::checkedAdd(it->second, term.coefficient))
      it->second = *total;
    else
      overflow = true;
  }

  void addProduct(const SymTerm &lhs, const SymTerm &rhs) {
    auto coefficient = llvm::checkedMul(lhs.coefficient, rhs.coefficient);
    if (!coefficient) {
      overflow = true;
      return;
    }
    SymTerm term{*coefficient, {}};
    std::merge(lhs.factors.begin(), lhs.factors.end(), rhs.factors.begin(), rhs.factors.end(),
               std::back_inserter(term.factors));
    add(term);
  }

  bool overflow = false;
  std::map<SymMonomial, int64_t, MonomialLess> sum;
};
} // namespace

//===----------------------------------------------------------------------===//
// Construction and queries
//===----------------------------------------------------------------------===//

SymExpr::SymExpr(Terms &&sorted) {
  if (!sorted.empty())
    storage = std::make_shared<const Terms>(std::move(sorted));
}

SymExpr::SymExpr(int64_t value) {
  if (value != 0)
    storage = std::make_shared<const Terms>(Terms{SymTerm{value, {}}});
}

SymExpr SymExpr::atom(const SymAtom &atom) { return SymExpr(Terms{SymTerm{1, {atom}}}); }

SymExpr SymExpr::symbol(StringRef name) { return atom(SymAtom::symbol(name)); }

SymExpr SymExpr::undefined() { return atom(SymAtom::get(SymAtom::Kind::Undefined, {})); }

SymExpr SymExpr::fromTerms(ArrayRef<SymTerm> terms) {
  Accumulator accumulator;
  for (const SymTerm &term : terms)
    accumulator.add(term);
  if (accumulator.overflow)
    return undefined();
  Terms sorted;
  for (auto &[factors, coefficient] : accumulator.sum)
    if (coefficient != 0)
      sorted.push_back({coefficient, factors});
  return SymExpr(std::move(sorted));
}

ArrayRef<SymTerm> SymExpr::terms() const { return storage ? ArrayRef<SymTerm>(*storage) : ArrayRef<SymTerm>(); }

bool SymExpr::isDefined() const {
  // Undefined absorbs every operation, so it only ever stands alone.
  return terms().size() != 1 || terms()[0].factors.size() != 1 ||
         terms()[0].factors[0].kind() != SymAtom::Kind::Undefined;
}

bool SymExpr::isConstant() const { return !storage || terms()[0].factors.empty(); }

int64_t SymExpr::constant() const {
  assert(isConstant() && "not a constant");
  return constantTerm();
}

int64_t SymExpr::constantTerm() const {
  return storage && terms().back().factors.empty() ? terms().back().coefficient : 0;
}

std::optional<SymAtom> SymExpr::asAtom() const {
  if (terms().size() != 1 || terms()[0].coefficient != 1 || terms()[0].factors.size() != 1)
    return std::nullopt;
  return terms()[0].factors[0];
}

std::optional<StringRef> SymExpr::asSymbol() const {
  std::optional<SymAtom> atom = asAtom();
  if (!atom || atom->kind() != SymAtom::Kind::Symbol)
    return std::nullopt;
  // The name lives in the atom's storage, which this expression shares.
  return terms()[0].factors[0].name();
}

/// `seen` has the compound atoms that were walked.
static void collectSymbols(const SymExpr &expr, std::set<std::string> &names, AtomSet &seen) {
  for (const SymTerm &term : expr.terms())
    for (const SymAtom &atom : term.factors) {
      if (atom.kind() == SymAtom::Kind::Symbol)
        names.insert(atom.name().str());
      if (atom.args().empty() || !seen.insert(atom).second)
        continue;
      for (const SymExpr &arg : atom.args())
        collectSymbols(arg, names, seen);
    }
}

SmallVector<std::string> SymExpr::symbols() const {
  std::set<std::string> names;
  AtomSet seen;
  collectSymbols(*this, names, seen);
  return SmallVector<std::string>(names.begin(), names.end());
}

int64_t SymExpr::content() const {
  uint64_t divisor = 0;
  for (const SymTerm &term : terms())
    divisor = std::gcd(divisor, llvm::AbsoluteValue(term.coefficient));
  // Only a lone INT64_MIN does not fit.
  return divisor > uint64_t(INT64_MAX) ? 1 : int64_t(divisor);
}

int SymExpr::compare(const SymExpr &other) const {
  if (storage == other.storage)
    return 0;
  for (auto [mine, theirs] : llvm::zip(terms(), other.terms())) {
    if (int order = compareMonomials(mine.factors, theirs.factors))
      return order;
    if (mine.coefficient != theirs.coefficient)
      return mine.coefficient < theirs.coefficient ? -1 : 1;
  }
  if (terms().size() == other.terms().size())
    return 0;
  return terms().size() < other.terms().size() ? -1 : 1;
}

llvm::hash_code mlir::disc::hash_value(const SymAtom &atom) { return atom.storage->hash; }

llvm::hash_code mlir::disc::hash_value(const SymExpr &expr) {
  llvm::hash_code code = llvm::hash_value(expr.terms().size());
  for (const SymTerm &term : expr.terms())
    code =
        llvm::hash_combine(code, term.coefficient, llvm::hash_combine_range(term.factors.begin(), term.factors.end()));
  return code;
}

//===----------------------------------------------------------------------===//
// Ring operations
//===----------------------------------------------------------------------===//

SymExpr SymExpr::operator+(const SymExpr &rhs) const {
  if (!isDefined() || !rhs.isDefined())
    return undefined();
  SmallVector<SymTerm> all(terms());
  llvm::append_range(all, rhs.terms());
  return fromTerms(all);
}

SymExpr SymExpr::operator-() const { return *this * SymExpr(-1); }

SymExpr SymExpr::operator-(const SymExpr &rhs) const { return *this + -rhs; }

SymExpr SymExpr::operator*(const SymExpr &rhs) const {
  if (!isDefined() || !rhs.isDefined())
    return undefined();
  Accumulator accumulator;
  for (const SymTerm &mine : terms())
    for (const SymTerm &theirs : rhs.terms())
      accumulator.addProduct(mine, theirs);
  if (accumulator.overflow)
    return undefined();
  SmallVector<SymTerm> all;
  for (auto &[factors, coefficient] : accumulator.sum)
    all.push_back({coefficient, factors});
  return fromTerms(all);
}

SymExpr SymExpr::product(ArrayRef<SymExpr> factors) {
  SymExpr result(1);
  for (const SymExpr &factor : factors)
    result *= factor;
  return result;
}

//===----------------------------------------------------------------------===//
// Substitution and evaluation
//===----------------------------------------------------------------------===//

/// The atom over new arguments, normalised again.
static SymExpr rebuildAtom(const SymAtom &atom, ArrayRef<SymExpr> args) {
  switch (atom.kind()) {
  case SymAtom::Kind::FloorDiv:
    return SymExpr::floorDiv(args[0], args[1]);
  case SymAtom::Kind::Mod:
    return SymExpr::mod(args[0], args[1]);
  case SymAtom::Kind::Min:
    return SymExpr::min(args);
  case SymAtom::Kind::Max:
    return SymExpr::max(args);
  case SymAtom::Kind::Symbol:
  case SymAtom::Kind::Undefined:
    break;
  }
  return SymExpr::atom(atom);
}

/// `expr` with its outermost compound atoms mapped.
static SymExpr mapCompound(const SymExpr &expr, function_ref<SymExpr(const SymAtom &)> map) {
  SymExpr result;
  for (const SymTerm &term : expr.terms()) {
    SymExpr product(term.coefficient);
    for (const SymAtom &factor : term.factors)
      product *= factor.args().empty() ? SymExpr::atom(factor) : map(factor);
    result += product;
  }
  return result;
}

static SymExpr mapTerms(const SymExpr &expr, function_ref<SymExpr(const SymAtom &)> map, AtomMap<SymExpr> &mapped) {
  SymExpr result;
  for (const SymTerm &term : expr.terms()) {
    SymExpr product(term.coefficient);
    for (const SymAtom &factor : term.factors) {
      auto known = mapped.find(factor);
      if (known == mapped.end()) {
        SmallVector<SymExpr> args;
        for (const SymExpr &arg : factor.args())
          args.push_back(mapTerms(arg, map, mapped));
        // New arguments may have changed the atom into something larger, whose
        // symbols were mapped already.
        SymExpr became = args.empty() ? map(factor) : mapCompound(rebuildAtom(factor, args), map);
        known = mapped.emplace(factor, became).first;
      }
      product *= known->second;
    }
    result += product;
  }
  return result;
}

SymExpr SymExpr::mapAtoms(function_ref<SymExpr(const SymAtom &)> map) const {
  AtomMap<SymExpr> mapped;
  return mapTerms(*this, map, mapped);
}

SymExpr SymExpr::substitute(function_ref<std::optional<SymExpr>(StringRef)> value) const {
  return mapAtoms([&](const SymAtom &atom) {
    if (atom.kind() == SymAtom::Kind::Symbol)
      if (std::optional<SymExpr> replacement = value(atom.name()))
        return *replacement;
    return SymExpr::atom(atom);
  });
}

std::optional<int64_t> mlir::disc::checkedFloorDiv(int64_t lhs, int64_t rhs) {
  if (rhs == 0 || (lhs == INT64_MIN && rhs == -1))
    return std::nullopt;
  int64_t quotient = lhs / rhs;
  return quotient - (lhs % rhs != 0 && (lhs < 0) != (rhs < 0));
}

std::optional<int64_t> mlir::disc::checkedMod(int64_t lhs, int64_t rhs) {
  if (rhs == 0)
    return std::nullopt;
  if (rhs == -1)
    return 0;
  int64_t remainder = lhs % rhs;
  return remainder != 0 && (remainder < 0) != (rhs < 0) ? remainder + rhs : remainder;
}

namespace {
/// Values of expressions at one point.
class Evaluation {
public:
  explicit Evaluation(function_ref<std::optional<int64_t>(StringRef)> value) : value(value) {}

  std::optional<int64_t> of(const SymExpr &expr) {
    int64_t total = 0;
    for (const SymTerm &term : expr.terms()) {
      int64_t product = term.coefficient;
      for (const SymAtom &factor : term.factors) {
        std::optional<int64_t> evaluated = of(factor);
        auto next = evaluated ? llvm::checkedMul(product, *evaluated) : std::optional<int64_t>();
        if (!next)
          return std::nullopt;
        product = *next;
      }
      auto sum = llvm::checkedAdd(total, product);
      if (!sum)
        return std::nullopt;
      total = *sum;
    }
    return total;
  }

private:
  std::optional<int64_t> of(const SymAtom &atom) {
    if (atom.kind() == SymAtom::Kind::Symbol)
      return value(atom.name());
    auto known = values.find(atom);
    if (known != values.end())
      return known->second;
    std::optional<int64_t> result = compute(atom);
    values.emplace(atom, result);
    return result;
  }

  std::optional<int64_t> compute(const SymAtom &atom) {
    SmallVector<int64_t> args;
    for (const SymExpr &arg : atom.args()) {
      std::optional<int64_t> evaluated = of(arg);
      if (!evaluated)
        return std::nullopt;
      args.push_back(*evaluated);
    }
    switch (atom.kind()) {
    case SymAtom::Kind::FloorDiv:
      return checkedFloorDiv(args[0], args[1]);
    case SymAtom::Kind::Mod:
      return checkedMod(args[0], args[1]);
    case SymAtom::Kind::Min:
      return *llvm::min_element(args);
    case SymAtom::Kind::Max:
      return *llvm::max_element(args);
    case SymAtom::Kind::Symbol:
    case SymAtom::Kind::Undefined:
      break;
    }
    return std::nullopt;
  }

  function_ref<std::optional<int64_t>(StringRef)> value;
  AtomMap<std::optional<int64_t>> values;
};
} // namespace

std::optional<int64_t> SymExpr::evaluate(function_ref<std::optional<int64_t>(StringRef)> value) const {
  return Evaluation(value).of(*this);
}

std::optional<int64_t> SymExpr::evaluate(const llvm::StringMap<int64_t> &values) const {
  return evaluate([&](StringRef name) -> std::optional<int64_t> {
    auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional<int64_t>(it->second);
  });
}
