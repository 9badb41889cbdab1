//===- SourceLine.h - where the user's program asks for it -----*- C++ -*-===//
#ifndef DISC_TRANSFORMS_SUPPORT_SOURCELINE_H
#define DISC_TRANSFORMS_SUPPORT_SOURCELINE_H

#include "mlir/IR/Location.h"
#include "llvm/Support/Path.h"
#include <string>

namespace mlir::disc {

/// The innermost place in a file that `loc` knows, as "file:line"; "" if it knows none.
inline std::string sourceLine(Location loc) {
  std::string source;
  loc->walk([&](Location at) {
    auto file = dyn_cast<FileLineColLoc>(at);
    if (!file)
      return WalkResult::advance();
    source = llvm::sys::path::filename(file.getFilename().getValue()).str() + ":" + std::to_string(file.getLine());
    return WalkResult::interrupt();
  });
  return source;
}

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_SOURCELINE_H
