//===- Artifact.cpp - an ahead-of-time library ----------------------------===//

#include "lib/Target/Driver/Artifact.h"

#include "lib/Runtime/Core/Cpu.h"
#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/Library.h"
#include "lib/Runtime/Core/Safetensors.h"
#include "lib/Runtime/Core/Seal.h"
#include "lib/Target/Driver/Link.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/GlobalAlias.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <fstream>

using namespace mlir;
using namespace mlir::disc;

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// A word that can be part of a symbol: "x86-64-v3" is x86_64_v3.
static std::string symbolWord(StringRef text) {
  std::string result = text.str();
  for (char &c : result)
    if (!llvm::isAlnum(c))
      c = '_';
  return result;
}

/// Whether a feature is of no use to computing: code that we generate runs without.
static bool isForSystems(StringRef feature) {
  static const llvm::StringSet<> names = {
      "clflushopt", "clwb",  "clzero", "fsgsbase",  "fxsr",  "invpcid",  "movdir64b", "movdiri", "mwaitx",   "rdpid",
      "rdpru",      "rdrnd", "rdseed", "serialize", "shstk", "wbnoinvd", "xsave",     "xsavec",  "xsaveopt", "xsaves"};
  return names.contains(feature);
}

static unsigned elfMachineOf(const HostTarget &target) {
  llvm::Triple triple(target.triple);
  return triple.isAArch64() ? llvm::ELF::EM_AARCH64 : triple.isARM() ? llvm::ELF::EM_ARM : llvm::ELF::EM_X86_64;
}

llvm::Expected<std::string> mlir::disc::requiredFeatures(const HostTarget &target) {
  SmallVector<StringRef> known;
  for (const char *name : ::disc::rt::cpuFeatureNames(elfMachineOf(target)))
    if (!isForSystems(name))
      known.push_back(name);
  auto enabled = target.enabled(known);
  if (!enabled)
    return enabled.takeError();
  if (target.sveBits)
    enabled->push_back("sve" + std::to_string(target.sveBits));
  return llvm::join(*enabled, ",");
}

llvm::Error ArtifactBuilder::addVariant(ModuleOp module, StringRef cpu, CodegenOptions options, CodegenTimes *times) {
  Variant variant;
  variant.cpu = cpu.str();
  variant.prefix = "disc_" + name + "_" + symbolWord(cpu) + "_";
  for (const Variant &other : variants)
    if (other.prefix == variant.prefix)
      return makeError("two variants are for '" + cpu + "'");
  variant.target = getHostTarget(module);
  if (!variants.empty() && variants.front().target.triple != variant.target.triple)
    return makeError("one library cannot hold code for " + variants.front().target.triple + " and for " +
                     variant.target.triple);
  auto features = requiredFeatures(variant.target);
  if (!features)
    return features.takeError();
  variant.features = std::move(*features);
  options.symbolPrefix = variant.prefix;
  auto code = generateCode(module, options, times);
  if (!code)
    return code.takeError();
  variant.code = std::move(*code);
  variants.push_back(std::move(variant));
  return llvm::Error::success();
}

/// Builds `disc_library_NAME` (lib/Runtime/Core/Library.h).
class ArtifactBuilder::Descriptor {
public:
  Descriptor(const ArtifactBuilder &builder, const ArtifactOptions &options)
      : builder(builder), options(options), module("disc.library", context), i64(llvm::Type::getInt64Ty(context)),
        ptr(llvm::PointerType::get(context, 0)) {}

  /// Records what the weights must be, and puts them into the library unless they lie beside it.
  llvm::Error addWeights();
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> emit();

private:
  using Row = SmallVector<llvm::Constant *>;

  llvm::Constant *number(int64_t value) { return llvm::ConstantInt::get(i64, value); }
  llvm::Constant *null() { return llvm::ConstantPointerNull::get(ptr); }
  llvm::Constant *text(StringRef value) { return global(llvm::ConstantDataArray::getString(context, value)); }
  llvm::Constant *record(ArrayRef<llvm::Constant *> fields) { return llvm::ConstantStruct::getAnon(context, fields); }
  llvm::Constant *table(ArrayRef<Row> rows);
  llvm::Constant *numbers(ArrayRef<int64_t> values);
  llvm::Constant *global(llvm::Constant *value);
  llvm::Constant *external(const Twine &name);
  Row variant(const Variant &variant);

  const ArtifactBuilder &builder;
  const ArtifactOptions &options;
  llvm::LLVMContext context;
  llvm::Module module;
  llvm::Type *i64;
  llvm::PointerType *ptr;
  SmallVector<Row> tensors;
  llvm::Constant *image = null();
  int64_t imageBytes = 0;
};

llvm::Constant *ArtifactBuilder::Descriptor::global(llvm::Constant *value) {
  return new llvm::GlobalVariable(module, value->getType(), /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
                                  value);
}

llvm::Constant *ArtifactBuilder::Descriptor::table(ArrayRef<Row> rows) {
  if (rows.empty())
    return null();
  SmallVector<llvm::Constant *> records;
  for (const Row &row : rows)
    records.push_back(record(row));
  return global(llvm::ConstantArray::get(llvm::ArrayType::get(records.front()->getType(), records.size()), records));
}

llvm::Constant *ArtifactBuilder::Descriptor::numbers(ArrayRef<int64_t> values) {
  if (values.empty())
    return null();
  SmallVector<uint64_t> bits(values.begin(), values.end());
  return global(llvm::ConstantDataArray::get(context, bits));
}

/// A symbol of the model's other objects, or of the runtime's.
llvm::Constant *ArtifactBuilder::Descriptor::external(const Twine &name) {
  auto *symbol = new llvm::GlobalVariable(module, llvm::Type::getInt8Ty(context), /*isConstant=*/true,
                                          llvm::GlobalValue::ExternalLinkage, nullptr, name);
  symbol->setVisibility(llvm::GlobalValue::HiddenVisibility);
  return symbol;
}

ArtifactBuilder::Descriptor::Row ArtifactBuilder::Descriptor::variant(const Variant &variant) {
  return {text(variant.cpu),
          text(variant.features),
          external(variant.prefix + "model_info"),
          external(variant.prefix + "init"),
          external(variant.prefix + "main"),
          external(variant.prefix + "shapes"),
          number(variant.packed)};
}

/// As a string of the assembler.
static std::string quoted(StringRef path) {
  std::string result = "\"";
  for (char c : path) {
    if (c == '"' || c == '\\')
      result.push_back('\\');
    result.push_back(c);
  }
  return result + "\"";
}

llvm::Error ArtifactBuilder::Descriptor::addWeights() {
  if (options.weights.empty())
    return llvm::Error::success();
  auto file = llvm::MemoryBuffer::getFile(options.weights, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return makeError("cannot read '" + options.weights + "': " + file.getError().message());
  StringRef bytes = (*file)->getBuffer();
  ::disc::rt::Safetensors stored;
  if (::disc::rt::Status status = ::disc::rt::Safetensors::read(bytes.data(), bytes.size(), options.weights, stored);
      !status.ok())
    return makeError(status.error().message);
  for (const ::disc::rt::StoredTensor &tensor : stored.tensors()) {
    ::disc::rt::Hash128 hash = ::disc::rt::hash128(tensor.data, tensor.bytes);
    tensors.push_back({text(tensor.name), number(tensor.dtype), number(int64_t(tensor.shape.size())),
                       numbers(tensor.shape), number(int64_t(hash.low)), number(int64_t(hash.high))});
  }
  if (!options.weightsFile.empty())
    return llvm::Error::success();

  // The section's pages hold nothing else, so that processes share them, and it is one of those that code reaches from
  // any distance.
  std::string symbol = builder.weightsSymbol();
  bool large = llvm::Triple(builder.variants.front().target.triple).getArch() == llvm::Triple::x86_64;
  std::string section = ".section ." + std::string(large ? "l" : "") + "rodata.disc_weights,\"a" + (large ? "l" : "");
  std::string label = ".p2align 12\n.hidden " + symbol + "\n.globl " + symbol + "\n" + symbol + ":\n";
  if (options.kind == ArtifactKind::Shared)
    // Space only, which fillWeights() fills: the assembler and the linker would each hold a copy of the file. What the
    // linker joins with a section that has contents takes space in the file.
    module.appendModuleInlineAsm(section + "R\",%progbits\n.quad 0\n" + section + "\",%nobits,unique,1\n" + label +
                                 ".zero " + std::to_string(bytes.size()) + "\n");
  else
    module.appendModuleInlineAsm(section + "\",%progbits\n" + label + ".incbin " + quoted(options.weights) + "\n");
  image = external(symbol);
  imageBytes = int64_t(bytes.size());
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> ArtifactBuilder::Descriptor::emit() {
  // The runtime takes the first that the machine can run: what asks for more comes before what asks for less.
  SmallVector<std::pair<int64_t, const Variant *>> best;
  for (const Variant &v : builder.variants)
    best.push_back({-int64_t(llvm::StringRef(v.features).count(',')), &v});
  llvm::sort(best); // Of equal ones, those added first: they lie in one array.
  SmallVector<Row> rows;
  for (auto [features, v] : best)
    rows.push_back(variant(*v));
  llvm::Constant *value = record({number(DISC_LIBRARY_VERSION), external("disc_rt_api"), text(builder.name),
                                  number(int64_t(rows.size())), table(rows), image, number(imageBytes),
                                  text(options.weightsFile), number(int64_t(tensors.size())), table(tensors)});
  auto *library = new llvm::GlobalVariable(module, value->getType(), /*isConstant=*/true,
                                           llvm::GlobalValue::ExternalLinkage, value, "disc_library_" + builder.name);
  // In a program with several models this second name would be defined twice.
  if (options.kind == ArtifactKind::Shared)
    llvm::GlobalAlias::create(value->getType(), 0, llvm::GlobalValue::ExternalLinkage, DISC_LIBRARY_SYMBOL, library,
                              &module);
  return assemble(module, builder.variants.front().target);
}

/// Writes the weights to the space that a linked library has for them.
static llvm::Error fillWeights(const std::string &path, StringRef symbol, const std::string &weights) {
  auto library = llvm::object::ObjectFile::createObjectFile(path);
  if (!library)
    return library.takeError();
  std::optional<uint64_t> offset;
  for (const llvm::object::SymbolRef &candidate : library->getBinary()->symbols()) {
    auto name = candidate.getName();
    auto section = candidate.getSection();
    auto address = candidate.getAddress();
    if (!name || !section || !address)
      return llvm::joinErrors(llvm::joinErrors(name.takeError(), section.takeError()), address.takeError());
    if (*name == symbol && *section != library->getBinary()->section_end())
      offset = llvm::object::ELFSectionRef(**section).getOffset() + *address - (*section)->getAddress();
  }
  if (!offset)
    return makeError("the library '" + path + "' has no space for weights");

  std::ifstream source(weights, std::ios::binary);
  std::fstream target(path, std::ios::binary | std::ios::in | std::ios::out);
  target.seekp(std::streamoff(*offset));
  target << source.rdbuf();
  target.close();
  if (!source || !target)
    return makeError("cannot copy '" + weights + "' to '" + path + "'");
  return llvm::Error::success();
}

static llvm::Error writeAs(const std::string &path, StringRef machine, StringRef soname,
                           ArrayRef<llvm::MemoryBufferRef> objects, StringRef weightsSymbol,
                           const ArtifactOptions &options) {
  switch (options.kind) {
  case ArtifactKind::Object:
    return linkRelocatable(objects, path);
  case ArtifactKind::Static:
    return writeStaticLibrary(objects, options.runtime, path);
  case ArtifactKind::Shared:
    break;
  }
  if (llvm::Error error = linkShared(objects, options.runtime, options.libraries, machine, soname, path))
    return error;
  if (!options.weights.empty() && options.weightsFile.empty())
    if (llvm::Error error = fillWeights(path, weightsSymbol, options.weights))
      return error;
  if (::disc::rt::Status status = ::disc::rt::sealFile(path); !status.ok())
    return makeError(status.error().message);
  return llvm::Error::success();
}

llvm::Error ArtifactBuilder::write(StringRef output, const ArtifactOptions &options) const {
  if (variants.empty())
    return makeError("a library needs code for one CPU at least");
  Descriptor descriptor(*this, options);
  if (llvm::Error error = descriptor.addWeights())
    return error;
  auto described = descriptor.emit();
  if (!described)
    return described.takeError();

  // Members of an archive go by their names.
  std::vector<std::string> names{"disc_" + name + "_library.o"};
  std::vector<StringRef> contents{(*described)->getBuffer()};
  for (const Variant &variant : variants)
    for (auto [i, object] : llvm::enumerate(variant.code)) {
      names.push_back(variant.prefix + std::to_string(i) + ".o");
      contents.push_back(object->getBuffer());
    }
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> others;
  for (const std::string &path : options.objects) {
    auto object = llvm::MemoryBuffer::getFile(path);
    if (!object)
      return makeError("cannot read '" + path + "': " + object.getError().message());
    names.push_back(llvm::sys::path::filename(path).str());
    contents.push_back((*object)->getBuffer());
    others.push_back(std::move(*object));
  }
  std::vector<llvm::MemoryBufferRef> objects;
  for (auto [content, member] : llvm::zip_equal(contents, names))
    objects.emplace_back(content, member);

  // Beside the output: a rename does not cross file systems.
  std::string unfinished = (output + ".tmp").str();
  llvm::scope_exit cleanUp([&] { llvm::sys::fs::remove(unfinished); });
  if (llvm::Error error = writeAs(unfinished, variants.front().target.machine(), llvm::sys::path::filename(output),
                                  objects, weightsSymbol(), options))
    return error;
  if (std::error_code code = llvm::sys::fs::rename(unfinished, output))
    return makeError("cannot write '" + output + "': " + code.message());
  cleanUp.release();
  return llvm::Error::success();
}
