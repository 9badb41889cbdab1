//===- SymExprText.cpp - Printing and parsing of expressions --------------===//
//
//   sum     ::= product (('+' | '-') product)*
//   product ::= factor (('*' | 'floordiv' | 'ceildiv' | 'mod') factor)*
//   factor  ::= integer | name | '-' factor | '(' sum ')'
//             | ('min' | 'max') '(' sum (',' sum)+ ')'
//   name    ::= identifier | '"' text '"' | '?' integer
//
// One parser serves plain text and MLIR's attribute syntax through two token
// sources.
//
//===----------------------------------------------------------------------===//

#include "dialects/Shape/SymExpr.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::disc;

using Kind = SymAtom::Kind;

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

static bool isReserved(StringRef name) {
  return name == "min" || name == "max" || name == "floordiv" || name == "ceildiv" || name == "mod" ||
         name == "undefined";
}

static bool isIdentifier(StringRef name) {
  if (name.empty() || !(llvm::isAlpha(name[0]) || name[0] == '_'))
    return false;
  return llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

static void printName(raw_ostream &os, StringRef name) {
  bool isOpaque = name.starts_with("?") && name.size() > 1 && llvm::all_of(name.drop_front(), llvm::isDigit);
  if (isOpaque || (isIdentifier(name) && !isReserved(name))) {
    os << name;
    return;
  }
  os << '"';
  llvm::printEscapedString(name, os);
  os << '"';
}

/// Prints what can stand beside an operator of any precedence.
static void printOperand(raw_ostream &os, const SymExpr &expr) {
  std::optional<SymAtom> atom = expr.asAtom();
  bool isSimple =
      expr.isConstant() ? expr.constant() >= 0 : atom && atom->kind() != Kind::FloorDiv && atom->kind() != Kind::Mod;
  os << (isSimple ? "" : "(") << expr << (isSimple ? "" : ")");
}

static void printAtom(raw_ostream &os, const SymAtom &atom, bool alone) {
  switch (atom.kind()) {
  case Kind::Symbol:
    printName(os, atom.name());
    return;
  case Kind::Undefined:
    os << "undefined";
    return;
  case Kind::Min:
  case Kind::Max:
    os << (atom.kind() == Kind::Min ? "min(" : "max(");
    llvm::interleaveComma(atom.args(), os);
    os << ")";
    return;
  case Kind::FloorDiv:
  case Kind::Mod:
    os << (alone ? "" : "(");
    printOperand(os, atom.args()[0]);
    os << (atom.kind() == Kind::FloorDiv ? " floordiv " : " mod ");
    printOperand(os, atom.args()[1]);
    os << (alone ? "" : ")");
    return;
  }
}

/// Prints the term without its sign.
static void printTerm(raw_ostream &os, const SymTerm &term, bool guardDivision) {
  uint64_t scale = llvm::AbsoluteValue(term.coefficient);
  bool alone = term.factors.size() == 1 && scale == 1 && !guardDivision;
  llvm::interleave(term.factors, os, [&](const SymAtom &atom) { printAtom(os, atom, alone); }, " * ");
  if (term.factors.empty())
    os << scale;
  else if (scale != 1)
    os << " * " << scale;
}

raw_ostream &mlir::disc::operator<<(raw_ostream &os, const SymExpr &expr) {
  if (expr.isConstant(0))
    return os << "0";
  for (auto [index, term] : llvm::enumerate(expr.terms())) {
    bool negative = term.coefficient < 0;
    if (index == 0) {
      // A leading minus binds one factor: the same value around a product,
      // another one around the dividend of a division.
      os << (negative ? "-" : "");
      printTerm(os, term, /*guardDivision=*/negative);
      continue;
    }
    os << (negative ? " - " : " + ");
    printTerm(os, term, /*guardDivision=*/false);
  }
  return os;
}

std::string SymExpr::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << *this;
  return text;
}

//===----------------------------------------------------------------------===//
// Token sources
//===----------------------------------------------------------------------===//

namespace {
class TokenSource {
public:
  virtual ~TokenSource() = default;
  /// One of `+ - * ( ) , ?`.
  virtual bool punctuation(char c) = 0;
  virtual bool keyword(StringRef word) = 0;
  virtual bool identifier(std::string &name) = 0;
  virtual bool quoted(std::string &text) = 0;
  /// A decimal integer without a sign; fails if it does not fit.
  virtual bool integer(int64_t &value) = 0;
  virtual void error(const Twine &message) = 0;
};

class TextSource final : public TokenSource {
public:
  TextSource(StringRef text, std::string *message) : rest(text), message(message) {}

  bool punctuation(char c) override {
    skipSpace();
    return rest.consume_front(StringRef(&c, 1));
  }
  bool keyword(StringRef word) override {
    skipSpace();
    if (peekIdentifier() != word)
      return false;
    rest = rest.drop_front(word.size());
    return true;
  }
  bool identifier(std::string &name) override {
    skipSpace();
    name = peekIdentifier().str();
    rest = rest.drop_front(name.size());
    return !name.empty();
  }
  bool quoted(std::string &text) override {
    skipSpace();
    if (!rest.starts_with("\""))
      return false;
    size_t end = rest.find('"', 1);
    if (end == StringRef::npos)
      return false;
    text = rest.slice(1, end).str();
    rest = rest.drop_front(end + 1);
    return true;
  }
  bool integer(int64_t &value) override {
    skipSpace();
    StringRef digits = rest.take_while(llvm::isDigit);
    if (digits.empty() || digits.getAsInteger(10, value))
      return false;
    rest = rest.drop_front(digits.size());
    return true;
  }
  void error(const Twine &text) override {
    if (message)
      *message = (text + " at '" + rest + "'").str();
  }
  bool atEnd() {
    skipSpace();
    return rest.empty();
  }

private:
  void skipSpace() { rest = rest.ltrim(); }
  StringRef peekIdentifier() {
    if (rest.empty() || llvm::isDigit(rest[0]))
      return {};
    return rest.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
  }
  StringRef rest;
  std::string *message;
};

class AttributeSource final : public TokenSource {
public:
  explicit AttributeSource(AsmParser &parser) : parser(parser) {}

  bool punctuation(char c) override {
    switch (c) {
    case '+':
      return succeeded(parser.parseOptionalPlus());
    case '-':
      return succeeded(parser.parseOptionalMinus());
    case '*':
      return succeeded(parser.parseOptionalStar());
    case '(':
      return succeeded(parser.parseOptionalLParen());
    case ')':
      return succeeded(parser.parseOptionalRParen());
    case ',':
      return succeeded(parser.parseOptionalComma());
    case '?':
      return succeeded(parser.parseOptionalQuestion());
    }
    return false;
  }
  bool keyword(StringRef word) override { return succeeded(parser.parseOptionalKeyword(word)); }
  bool identifier(std::string &name) override {
    StringRef word;
    if (failed(parser.parseOptionalKeyword(&word)))
      return false;
    name = word.str();
    return true;
  }
  bool quoted(std::string &text) override { return succeeded(parser.parseOptionalString(&text)); }
  bool integer(int64_t &value) override {
    OptionalParseResult result = parser.parseOptionalInteger(value);
    return result.has_value() && succeeded(*result);
  }
  void error(const Twine &message) override { parser.emitError(parser.getCurrentLocation(), message); }

private:
  AsmParser &parser;
};

//===----------------------------------------------------------------------===//
// The parser
//===----------------------------------------------------------------------===//

class ExprParser {
public:
  explicit ExprParser(TokenSource &tokens) : tokens(tokens) {}

  FailureOr<SymExpr> sum() {
    FailureOr<SymExpr> result = product();
    while (succeeded(result)) {
      bool plus = tokens.punctuation('+');
      if (!plus && !tokens.punctuation('-'))
        break;
      FailureOr<SymExpr> rhs = product();
      if (failed(rhs))
        return failure();
      result = plus ? *result + *rhs : *result - *rhs;
    }
    return result;
  }

private:
  FailureOr<SymExpr> product() {
    FailureOr<SymExpr> result = factor();
    while (succeeded(result)) {
      using Binary = SymExpr (*)(const SymExpr &, const SymExpr &);
      Binary combine = nullptr;
      if (tokens.punctuation('*'))
        combine = [](const SymExpr &a, const SymExpr &b) { return a * b; };
      else if (tokens.keyword("floordiv"))
        combine = &SymExpr::floorDiv;
      else if (tokens.keyword("ceildiv"))
        combine = &SymExpr::ceilDiv;
      else if (tokens.keyword("mod"))
        combine = &SymExpr::mod;
      if (!combine)
        break;
      FailureOr<SymExpr> rhs = factor();
      if (failed(rhs))
        return failure();
      result = combine(*result, *rhs);
    }
    return result;
  }

  FailureOr<SymExpr> factor() {
    int64_t value;
    std::string name;
    if (tokens.punctuation('-')) {
      FailureOr<SymExpr> operand = factor();
      return failed(operand) ? operand : FailureOr<SymExpr>(-*operand);
    }
    if (tokens.punctuation('(')) {
      FailureOr<SymExpr> inner = sum();
      if (succeeded(inner) && !tokens.punctuation(')'))
        return fail("expected ')'");
      return inner;
    }
    if (tokens.punctuation('?')) {
      if (!tokens.integer(value))
        return fail("expected a number after '?'");
      return SymExpr::symbol("?" + std::to_string(value));
    }
    if (tokens.quoted(name))
      return SymExpr::symbol(name);
    if (tokens.keyword("min"))
      return minMax(/*isMin=*/true);
    if (tokens.keyword("max"))
      return minMax(/*isMin=*/false);
    if (tokens.integer(value))
      return SymExpr(value);
    if (!tokens.identifier(name))
      return fail("expected a symbol, an integer or '('");
    if (name == "undefined")
      return SymExpr::undefined();
    if (isReserved(name))
      return fail("expected a symbol, found '" + name + "'");
    return SymExpr::symbol(name);
  }

  FailureOr<SymExpr> minMax(bool isMin) {
    if (!tokens.punctuation('('))
      return fail("expected '('");
    SmallVector<SymExpr> args;
    do {
      FailureOr<SymExpr> arg = sum();
      if (failed(arg))
        return failure();
      args.push_back(*arg);
    } while (tokens.punctuation(','));
    if (!tokens.punctuation(')'))
      return fail("expected ')'");
    return isMin ? SymExpr::min(args) : SymExpr::max(args);
  }

  FailureOr<SymExpr> fail(const Twine &message) {
    tokens.error(message);
    return failure();
  }

  TokenSource &tokens;
};
} // namespace

FailureOr<SymExpr> SymExpr::parse(AsmParser &parser) {
  AttributeSource source(parser);
  return ExprParser(source).sum();
}

FailureOr<SymExpr> SymExpr::parse(StringRef text, std::string *error) {
  TextSource source(text, error);
  FailureOr<SymExpr> result = ExprParser(source).sum();
  if (succeeded(result) && !source.atEnd()) {
    source.error("unexpected text");
    return failure();
  }
  return result;
}
