//===- disc-symexpr.cpp - Symbolic expressions on the command line --------===//
//
// For the property tests (test/python/property) and for trying things out.
// Reads one command per line, its fields separated by ';', and answers each
// with one line:
//
//   eval ; EXPR ; S=3 T=4 ; ...          normal form ; value ; ...
//   compare ; EXPR ; EXPR                whether the normal forms are the same
//   symbol ; S ; 2 ; 512 ; 8             declares min, max ('-': none), divisor
//   assume ; EXPR ; eq|le|divisible ; EXPR
//   clear                                forgets all facts
//   range ; EXPR                         min ; max ('-': none)
//   simplify ; EXPR                      normal form given the facts
//   prove ; EXPR ; eq|le|divisible ; EXPR    proved | impossible | unknown
//
// A value that division by zero or overflow denies is `undefined`; what cannot
// be read is answered with `error: ...`.
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Support/SymbolFacts.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <iostream>

using namespace llvm;
using namespace mlir::disc;

namespace {
class Interpreter {
public:
  std::string answer(StringRef line) {
    SmallVector<StringRef> fields;
    line.split(fields, ';');
    for (StringRef &field : fields)
      field = field.trim();
    error.clear();
    std::string result = dispatch(fields.front(), ArrayRef(fields).drop_front());
    return error.empty() ? result : "error: " + error;
  }

private:
  std::string dispatch(StringRef command, ArrayRef<StringRef> args) {
    if (command == "eval" && !args.empty())
      return eval(args);
    if (command == "compare" && args.size() == 2)
      return expr(args[0]) == expr(args[1]) ? "same" : "different";
    if (command == "symbol" && args.size() == 4) {
      facts.declare(args[0], {integer(args[1]), integer(args[2])}, integer(args[3]).value_or(1), std::nullopt);
      return "ok";
    }
    if (command == "assume" && args.size() == 3) {
      facts.assume(predicate(args[1]), expr(args[0]), expr(args[2]));
      return "ok";
    }
    if (command == "clear") {
      facts = SymbolFacts();
      return "ok";
    }
    if (command == "range" && args.size() == 1) {
      SymbolFacts::Range range = facts.range(expr(args[0]));
      return text(range.min, "-") + " ; " + text(range.max, "-");
    }
    if (command == "simplify" && args.size() == 1)
      return facts.simplify(expr(args[0])).str();
    if (command == "prove" && args.size() == 3) {
      SymExpr lhs = expr(args[0]), rhs = expr(args[2]);
      if (facts.proved(predicate(args[1]), lhs, rhs))
        return "proved";
      return facts.impossible(predicate(args[1]), lhs, rhs) ? "impossible" : "unknown";
    }
    error = "unknown command";
    return {};
  }

  std::string eval(ArrayRef<StringRef> args) {
    SymExpr value = expr(args.front());
    std::string result = value.str();
    for (StringRef assignments : args.drop_front()) {
      StringMap<int64_t> values;
      for (StringRef item : split(assignments, ' ')) {
        auto [name, number] = item.split('=');
        if (std::optional<int64_t> parsed = integer(number))
          values[name] = *parsed;
      }
      result += " ; " + text(value.evaluate(values), "undefined");
    }
    return result;
  }

  SymExpr expr(StringRef field) {
    mlir::FailureOr<SymExpr> parsed = SymExpr::parse(field, &error);
    return mlir::succeeded(parsed) ? *parsed : SymExpr();
  }

  Predicate predicate(StringRef field) {
    std::optional<Predicate> parsed = symbolizePredicate(field);
    if (!parsed)
      error = "unknown predicate";
    return parsed.value_or(Predicate::Eq);
  }

  static std::optional<int64_t> integer(StringRef field) {
    int64_t value;
    return field.getAsInteger(10, value) ? std::nullopt : std::optional<int64_t>(value);
  }

  static std::string text(std::optional<int64_t> value, StringRef absent) {
    return value ? std::to_string(*value) : absent.str();
  }

  SymbolFacts facts;
  std::string error;
};
} // namespace

int main() {
  Interpreter interpreter;
  for (std::string line; std::getline(std::cin, line);) {
    outs() << interpreter.answer(line) << "\n";
    outs().flush();
  }
  return 0;
}
