//===- FuzzPasses.cpp - mutated IR through the passes ---------------------===//
//
// An input is a line with passes, as disc-opt takes them between commas, and a module (seeds.py takes both from the
// tests of test/lit). Mutations exchange lines, words and numbers of the module and leave the passes alone. Whatever
// comes out, errors included, is right: only a crash is a finding. The compiler's own code is not instrumented, so
// there is no coverage to follow: the seeds are what leads.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Driver/Register.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/raw_ostream.h"

#include <cctype>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace mlir;

/// The seeds. Without coverage, libFuzzer would keep none of them.
static std::vector<std::string> &seeds() {
  static std::vector<std::string> &list = *new std::vector<std::string>;
  return list;
}

static bool readsSeeds = true; ///< Until the first mutation.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static DialectRegistry &registry = *[] {
    auto *made = new DialectRegistry;
    disc::registerDialects(*made);
    disc::registerPasses();
    return made;
  }();
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  if (readsSeeds && size)
    seeds().push_back(text.str());
  auto [passes, body] = text.split('\n');
  std::string code = body.str(); // MLIR's lexer needs the 0 behind it
  // A context grows with every type and attribute that it meets.
  static MLIRContext *context = nullptr;
  static int uses = 0;
  if (!context || ++uses % 2000 == 0) {
    delete context;
    context = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
  }
  ScopedDiagnosticHandler silent(context, [](Diagnostic &) { return success(); });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(code, context);
  if (!module)
    return 0;
  PassManager manager(context, ModuleOp::getOperationName(), OpPassManager::Nesting::Implicit);
  if (failed(parsePassPipeline(passes, manager, llvm::nulls())))
    return 0;
  (void)manager.run(*module);
  return 0;
}

//===-- Mutations ---------------------------------------------------------===//

namespace {
/// Words, numbers, single signs, and the space before each.
std::vector<std::string> wordsOf(llvm::StringRef text) {
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    auto isWord = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_.$%@#^!", c); };
    while (i < text.size() && std::isspace(static_cast<unsigned char>(text[i])))
      ++i;
    size_t word = i;
    while (i < text.size() && text[i] && isWord(text[i]))
      ++i;
    if (i == word && i < text.size())
      ++i;
    words.push_back(text.slice(begin, i).str());
  }
  return words;
}

/// Of all inputs so far: what others are made of.
std::vector<std::string> &seen() {
  static std::vector<std::string> &words = *new std::vector<std::string>;
  return words;
}

std::string mutated(llvm::StringRef code, std::minstd_rand &random) {
  static const char *const kNumbers[] = {
      "0", "1",   "-1",  "2", "3", "7", "64", "4294967296", "9223372036854775807", "-9223372036854775808",
      "?", "1.0", "true"};
  std::vector<std::string> words = wordsOf(code);
  if (words.empty())
    return code.str();
  if (seen().size() < 20000)
    seen().insert(seen().end(), words.begin(), words.begin() + std::min<size_t>(words.size(), 200));
  auto below = [&](size_t count) { return size_t(random()) % std::max<size_t>(count, 1); };
  auto find = [&](auto accepts) {
    for (int i = 0; i < 30; ++i)
      if (size_t at = below(words.size()); accepts(words[at]))
        return at;
    return below(words.size());
  };
  auto isNumber = [](const std::string &word) { return std::isdigit(static_cast<unsigned char>(word.back())) != 0; };
  for (size_t n = 1 + below(3); n > 0; --n) {
    size_t at = below(words.size());
    switch (below(7)) {
    case 0: { // another number
      at = find(isNumber);
      bool blank = std::isspace(static_cast<unsigned char>(words[at][0]));
      words[at] = (blank ? " " : "") + std::string(kNumbers[below(std::size(kNumbers))]);
      break;
    }
    case 1: // a word of another place
      words[at] = words[below(words.size())];
      break;
    case 2: // a word of another input
      words[at] = seen()[below(seen().size())];
      break;
    case 3: // two of a kind change places
      std::swap(words[at], words[find([&](const std::string &w) { return w.substr(0, 2) == words[at].substr(0, 2); })]);
      break;
    case 4: // without some
      words.erase(words.begin() + long(at), words.begin() + long(std::min(words.size(), at + 1 + below(4))));
      break;
    case 5: // some twice
    {
      std::vector<std::string> some(words.begin() + long(at), words.begin() + long(std::min(words.size(), at + 8)));
      words.insert(words.begin() + long(at), some.begin(), some.end());
      break;
    }
    default: { // a line goes to another place
      size_t begin = find([](const std::string &w) { return w[0] == '\n'; }), end = begin + 1;
      while (end < words.size() && words[end][0] != '\n')
        ++end;
      std::vector<std::string> line(words.begin() + long(begin), words.begin() + long(end));
      if (below(2))
        words.erase(words.begin() + long(begin), words.begin() + long(end));
      size_t to = words.empty() ? 0 : below(words.size());
      words.insert(words.begin() + long(to), line.begin(), line.end());
    }
    }
    if (words.empty())
      break;
  }
  std::string result;
  for (const std::string &word : words)
    result += word;
  return result;
}
} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  readsSeeds = false;
  if (seeds().empty())
    return size;
  auto [passes, code] = llvm::StringRef(seeds()[random() % seeds().size()]).split('\n');
  std::string result = (passes + "\n").str() + mutated(code, random);
  size = std::min(result.size(), most);
  std::memcpy(data, result.data(), size);
  return size;
}
