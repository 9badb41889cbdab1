//===- disc-symexpr.cpp - Normal forms and values of expressions ----------===//
//
// For the property tests (test/python/property) and for trying things out.
// Reads lines `expression ; S=3 T=4 ; S=0 T=-1 ...` and prints for each
//
//   normal form ; value ; value ...
//
// with `undefined` for a value that division by zero or overflow denies, or
// `error: ...` for text that does not parse.
//
//===----------------------------------------------------------------------===//

#include "dialects/Shape/SymExpr.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <iostream>

using namespace llvm;
using mlir::disc::SymExpr;

static std::string evaluate(const SymExpr &expr, StringRef assignments) {
  StringMap<int64_t> values;
  for (StringRef item : split(assignments.trim(), ' ')) {
    auto [name, text] = item.split('=');
    int64_t value;
    if (!text.getAsInteger(10, value))
      values[name] = value;
  }
  std::optional<int64_t> value = expr.evaluate(values);
  return value ? std::to_string(*value) : "undefined";
}

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    SmallVector<StringRef> fields;
    StringRef(line).split(fields, ';');
    std::string error;
    mlir::FailureOr<SymExpr> expr = SymExpr::parse(fields[0], &error);
    if (mlir::failed(expr)) {
      outs() << "error: " << error << "\n";
      continue;
    }
    outs() << *expr;
    for (StringRef assignments : drop_begin(fields))
      outs() << " ; " << evaluate(*expr, assignments);
    outs() << "\n";
    outs().flush();
  }
  return 0;
}
