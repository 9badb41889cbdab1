//===- CodeObject.cpp - what a code object of AMD says of its kernels -----===//

#include "lib/Target/ROCDL/CodeObject.h"
#include "lib/Target/Common/Linker.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/BinaryFormat/MsgPackDocument.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace mlir::disc;

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<std::string> mlir::disc::linkCodeObject(StringRef object) {
  TemporaryFolder folder;
  if (llvm::Error error = folder.create())
    return error;
  std::string input = folder.file("kernels.o"), output = folder.file("kernels.hsaco");
  if (llvm::Error error = writeFile(input, object))
    return error;
  if (llvm::Error error = runLinker({"-shared", "--no-undefined", input, "-o", output}))
    return error;
  auto image = llvm::MemoryBuffer::getFile(output);
  if (!image)
    return makeError("cannot read what was linked: " + image.getError().message());
  return (*image)->getBuffer().str();
}

static llvm::Error readKernels(ArrayRef<uint8_t> note, const llvm::StringSet<> &symbols, KernelResources &result) {
  llvm::msgpack::Document document;
  if (!document.readFromBlob(StringRef(reinterpret_cast<const char *>(note.data()), note.size()), /*Multi=*/false) ||
      !document.getRoot().isMap())
    return makeError("the metadata is damaged");
  llvm::msgpack::DocNode kernels = document.getRoot().getMap()["amdhsa.kernels"];
  if (!kernels.isArray())
    return llvm::Error::success(); // a module without kernels
  static constexpr std::pair<StringLiteral, StringLiteral> fields[] = {
      {".vgpr_count", "vgprs"},
      {".agpr_count", "agprs"},
      {".sgpr_count", "sgprs"},
      {".vgpr_spill_count", "vgpr_spills"},
      {".sgpr_spill_count", "sgpr_spills"},
      {".private_segment_fixed_size", "stack"},
      {".group_segment_fixed_size", "shared"},
  };
  for (llvm::msgpack::DocNode &node : kernels.getArray()) {
    if (!node.isMap())
      return makeError("the metadata is damaged");
    llvm::msgpack::MapDocNode kernel = node.getMap();
    llvm::msgpack::DocNode name = kernel[".name"], descriptor = kernel[".symbol"];
    if (!name.isString() || !descriptor.isString())
      return makeError("the metadata is damaged");
    if (!symbols.contains(descriptor.getString()))
      return makeError("kernel '" + name.getString() + "' has no descriptor");
    auto &needs = result[name.getString().str()];
    for (auto [key, ours] : fields) {
      llvm::msgpack::DocNode value = kernel[key];
      needs[ours.str()] = value.getKind() == llvm::msgpack::Type::UInt ? static_cast<int64_t>(value.getUInt()) : 0;
    }
  }
  return llvm::Error::success();
}

llvm::Expected<KernelResources> mlir::disc::readCodeObject(StringRef image) {
  using ELF = llvm::object::ELF64LEObjectFile;
  auto file = ELF::create(llvm::MemoryBufferRef(image, "code object"));
  if (!file)
    return file.takeError();
  llvm::StringSet<> symbols;
  for (const llvm::object::ELFSymbolRef &symbol : file->getDynamicSymbolIterators())
    if (auto name = symbol.getName())
      symbols.insert(*name);
    else
      return name.takeError();
  const auto &elf = file->getELFFile();
  auto sections = elf.sections();
  if (!sections)
    return sections.takeError();
  KernelResources result;
  bool found = false;
  for (const auto &section : *sections) {
    if (section.sh_type != llvm::ELF::SHT_NOTE)
      continue;
    llvm::Error error = llvm::Error::success();
    for (const auto &note : elf.notes(section, error)) {
      if (note.getType() != llvm::ELF::NT_AMDGPU_METADATA)
        continue;
      found = true;
      if (llvm::Error damaged = readKernels(note.getDesc(section.sh_addralign), symbols, result))
        return llvm::joinErrors(std::move(error), std::move(damaged));
    }
    if (error)
      return error;
  }
  if (!found)
    return makeError("the code object has no metadata");
  return result;
}
