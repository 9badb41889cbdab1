//===- Linker.h - LLVM's linker as a function, and the files it needs -*- C++ -*-===//

#ifndef DISC_TARGET_COMMON_LINKER_H
#define DISC_TARGET_COMMON_LINKER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

#include <string>

namespace mlir::disc {

/// A folder that vanishes with its contents.
class TemporaryFolder {
public:
  TemporaryFolder() = default;
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  ~TemporaryFolder();
  llvm::Error create();
  std::string file(const llvm::Twine &name) const;

private:
  llvm::SmallString<128> path;
};

llvm::Error writeFile(llvm::StringRef path, llvm::StringRef content);

/// `ld.lld` with these arguments. The linker keeps global state: one link at a time, and none after one that it could
/// not clean up.
llvm::Error runLinker(llvm::ArrayRef<std::string> args);

} // namespace mlir::disc

#endif // DISC_TARGET_COMMON_LINKER_H
