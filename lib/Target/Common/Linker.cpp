//===- Linker.cpp - LLVM's linker as a function ---------------------------===//

#include "lib/Target/Common/Linker.h"

#include "lld/Common/Driver.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>
#include <vector>

LLD_HAS_DRIVER(elf)

using namespace mlir::disc;

static llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

static llvm::Error fileError(llvm::StringRef path, std::error_code code) {
  return makeError("cannot write '" + path + "': " + code.message());
}

llvm::Error mlir::disc::writeFile(llvm::StringRef path, llvm::StringRef content) {
  std::error_code code;
  llvm::raw_fd_ostream os(path, code);
  if (code)
    return fileError(path, code);
  os << content;
  os.close();
  if (os.has_error()) {
    code = os.error();
    os.clear_error();
    return fileError(path, code);
  }
  return llvm::Error::success();
}

llvm::Error TemporaryFolder::create() {
  if (std::error_code code = llvm::sys::fs::createUniqueDirectory("disc", path))
    return makeError("cannot make a temporary folder: " + code.message());
  return llvm::Error::success();
}

TemporaryFolder::~TemporaryFolder() {
  if (!path.empty())
    llvm::sys::fs::remove_directories(path);
}

std::string TemporaryFolder::file(const llvm::Twine &name) const {
  llvm::SmallString<128> result(path);
  llvm::sys::path::append(result, name);
  return result.str().str();
}

llvm::Error mlir::disc::runLinker(llvm::ArrayRef<std::string> args) {
  static std::mutex mutex;
  static bool usable = true;
  std::lock_guard<std::mutex> lock(mutex);
  if (!usable)
    return makeError("the linker crashed before, and cannot be used again in this process");
  std::vector<const char *> pointers{"ld.lld"};
  for (const std::string &arg : args)
    pointers.push_back(arg.c_str());
  std::string out, err;
  llvm::raw_string_ostream outStream(out), errStream(err);
  lld::Result result = lld::lldMain(pointers, outStream, errStream, {{lld::Gnu, &lld::elf::link}});
  usable = result.canRunAgain;
  if (result.retCode != 0)
    return makeError("linking failed: " + llvm::StringRef(err.empty() ? out : err).trim());
  return llvm::Error::success();
}
