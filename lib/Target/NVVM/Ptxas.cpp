//===- Ptxas.cpp - NVIDIA's assembler -------------------------------------===//

#include "lib/Target/NVVM/Ptxas.h"
#include "lib/Target/Common/Linker.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace mlir::disc;

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<std::string> mlir::disc::findPtxas(StringRef chosen) {
  if (chosen.empty()) {
    llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName("ptxas");
    return found ? *found : std::string();
  }
  if (!llvm::sys::fs::can_execute(chosen))
    return makeError("'" + chosen + "' is not an executable program");
  return chosen.str();
}

static std::string contentOf(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

KernelResources mlir::disc::parseResources(StringRef report) {
  // ptxas info    : Compiling entry function 'k' for 'sm_90'
  // ptxas info    : Function properties for k
  //     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
  // ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem, 400 bytes cmem[0]
  KernelResources result;
  std::map<std::string, int64_t> *kernel = nullptr;
  SmallVector<StringRef> lines;
  report.split(lines, '\n');
  for (StringRef line : lines) {
    StringRef rest = line;
    if (rest.consume_front("ptxas info") && (rest = rest.ltrim(" :")).consume_front("Compiling entry function '")) {
      kernel = &result[rest.take_until([](char c) { return c == '\''; }).str()];
      *kernel = {{"registers", 0}, {"stack", 0}, {"spill_stores", 0}, {"spill_loads", 0}, {"shared", 0}};
      continue;
    }
    if (!kernel)
      continue;
    SmallVector<StringRef> parts;
    rest.split(parts, ',');
    for (StringRef part : parts) {
      part = part.trim();
      part.consume_front("Used ");
      int64_t number = 0;
      if (part.consumeInteger(10, number))
        continue;
      part = part.trim();
      StringRef name = part == "registers"            ? "registers"
                       : part == "bytes stack frame"  ? "stack"
                       : part == "bytes spill stores" ? "spill_stores"
                       : part == "bytes spill loads"  ? "spill_loads"
                       : part == "bytes smem"         ? "shared"
                                                      : "";
      if (!name.empty())
        (*kernel)[name.str()] = number;
    }
  }
  return result;
}

llvm::Expected<Cubin> mlir::disc::runPtxas(StringRef ptxas, StringRef ptx, StringRef arch) {
  TemporaryFolder folder;
  if (llvm::Error error = folder.create())
    return error;
  std::string source = folder.file("kernels.ptx"), output = folder.file("kernels.cubin"), log = folder.file("log");
  if (llvm::Error error = writeFile(source, ptx))
    return error;
  std::string chip = "-arch=" + arch.str();
  std::optional<StringRef> redirects[] = {StringRef(), StringRef(log), StringRef(log)};
  std::string message;
  int status =
      llvm::sys::ExecuteAndWait(ptxas, {ptxas, chip, "-O3", "-v", source, "-o", output},
                                /*Env=*/std::nullopt, redirects, /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  std::string report = contentOf(log);
  if (status != 0) {
    // `message` is the system's reason (cannot be started, ended by a signal), `report` is what ptxas printed.
    std::string reason = llvm::join(llvm::make_filter_range(ArrayRef<StringRef>{message, StringRef(report).trim()},
                                                            [](StringRef text) { return !text.empty(); }),
                                    ": ");
    return makeError(ptxas + " failed for " + arch + ": " +
                     (reason.empty() ? "exit status " + Twine(status) : Twine(reason)));
  }
  if (!llvm::sys::fs::exists(output))
    return makeError(ptxas + " wrote no cubin for " + arch + ": " + StringRef(report).trim());
  return Cubin{contentOf(output), parseResources(report)};
}
