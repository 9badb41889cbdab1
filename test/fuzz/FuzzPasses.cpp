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
#include <set>
#include <string>
#include <vector>

using namespace mlir;

/// The seeds. Without coverage, libFuzzer would keep none of them.
static std::vector<std::string> &seeds() {
  static std::vector<std::string> &list = *new std::vector<std::string>;
  return list;
}

static bool readsSeeds = true; ///< Until the first mutation.

/// Whether a value is used above its definition, judged by braces and signs alone. Where the definition is in a region
/// of an operation that then fails to parse, MLIR destroys it before the use, which still refers to it.
static bool hasForwardReference(llvm::StringRef code) {
  std::vector<std::set<llvm::StringRef>> scopes(1);
  auto isName = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_$.-", c); };
  bool listed = true; // only values so far on this line: those to the left of a `=`
  for (size_t i = 0; i < code.size(); ++i) {
    llvm::StringRef rest = code.drop_front(i);
    if (rest[0] == '\n') {
      listed = true;
    } else if (rest.starts_with("//")) {
      i += std::min(rest.find('\n'), rest.size()) - 1;
    } else if (rest[0] == '"') {
      i += std::min(rest.find('"', 1), rest.size() - 1);
      listed = false;
    } else if (rest[0] == '{') {
      scopes.emplace_back();
      listed = false;
    } else if (rest[0] == '}') {
      if (scopes.size() > 1)
        scopes.pop_back();
    } else if (rest[0] == '%') {
      llvm::StringRef name = rest.drop_front().take_while(isName), behind = rest.drop_front(1 + name.size());
      i += name.size();
      if (listed || behind.starts_with(":") || behind.ltrim(' ').starts_with("="))
        scopes.back().insert(name);
      else if (llvm::none_of(scopes, [&](const auto &scope) { return scope.count(name) != 0; }))
        return true;
    } else if (std::isalpha(static_cast<unsigned char>(rest[0])) || rest[0] == '^') {
      llvm::StringRef word = rest.take_while([&](char c) { return isName(c) || c == '^'; });
      i += word.size() - 1;
      listed = false;
      for (llvm::StringRef function :
           {"func.func", "gpu.func", "llvm.func", "disc_rt.entry", "disc_rt.procedure", "disc_plan.kernel_func"})
        if (word == function)
          scopes.back().clear();
    }
  }
  return false;
}

/// Whether MLIR 22 itself crashes on the text, before any code of ours runs. Each case names the reason; none may be
/// here that an operation or a pass of ours could check.
static bool crashesMlir(llvm::StringRef code) {
  if (hasForwardReference(code))
    return true;
  auto anyAfter = [&](llvm::StringRef word, auto isBad) {
    for (size_t at = code.find(word); at != llvm::StringRef::npos; at = code.find(word, at + 1))
      if (isBad(code.drop_front(at + word.size()).ltrim()))
        return true;
    return false;
  };
  // The parser of dense arrays asks for the width of the element type, which `index` lacks.
  if (anyAfter("array<", [](llvm::StringRef rest) { return rest.starts_with("index"); }))
    return true;
  // linalg.generic casts the elements of `iterator_types` to strings.
  if (anyAfter("iterator_types", [](llvm::StringRef rest) {
        llvm::StringRef list = rest.split('[').second.split(']').first;
        llvm::SmallVector<llvm::StringRef> entries;
        list.split(entries, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
        return llvm::any_of(entries, [](llvm::StringRef entry) { return !entry.trim().starts_with("\""); });
      }))
    return true;
  // Named operations of linalg cast whatever `<...>` has behind their name to a dictionary.
  if (anyAfter("linalg.", [](llvm::StringRef rest) {
        rest = rest.drop_while([](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); }).ltrim();
        return rest.consume_front("<") && !rest.ltrim().starts_with("{");
      }))
    return true;
  // The parsers of llvm.extractvalue and llvm.insertvalue take a number of a struct's field for granted.
  for (llvm::StringRef word : {"llvm.extractvalue", "llvm.insertvalue"})
    if (anyAfter(word, [](llvm::StringRef rest) {
          return rest.split('[').second.take_until([](char c) { return c == ']'; }).size() > 2;
        }))
      return true;
  // nvvm.mma.sync takes an operand in each of its lists for granted.
  if (anyAfter("nvvm.mma.sync", [](llvm::StringRef rest) { return rest.split('\n').first.contains("[]"); }))
    return true;
  // llvm.mlir.addressof reads the global's `addr_space` before the global is verified.
  return anyAfter("addr_space", [](llvm::StringRef rest) {
    return !rest.consume_front("=") || rest.ltrim().empty() ||
           !std::isdigit(static_cast<unsigned char>(rest.ltrim().front()));
  });
}

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
  if (crashesMlir(body))
    return 0;
  std::string code = body.str(); // MLIR's lexer needs the 0 behind it
  // A context grows with every type and attribute that it meets.
  static MLIRContext *context = nullptr;
  static int uses = 0;
  if (!context || ++uses % 2000 == 0) {
    delete context;
    context = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
  }
  ScopedDiagnosticHandler silent(context, [](Diagnostic &) { return success(); });
  PassManager manager(context, ModuleOp::getOperationName(), OpPassManager::Nesting::Implicit);
  if (failed(parsePassPipeline(passes, manager, llvm::nulls())))
    return 0;
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(code, context);
  if (!module)
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
