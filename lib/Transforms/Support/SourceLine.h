//===- SourceLine.h - where the user's program asks for it -----*- C++ -*-===//
#ifndef DISC_TRANSFORMS_SUPPORT_SOURCELINE_H
#define DISC_TRANSFORMS_SUPPORT_SOURCELINE_H

#include "mlir/IR/Location.h"
#include "llvm/Support/Path.h"
#include <string>

namespace mlir::disc {

/// The innermost place in a file that `loc` knows, or null.
inline FileLineColLoc sourcePlace(Location loc) {
  FileLineColLoc place;
  loc->walk([&](Location at) {
    place = dyn_cast<FileLineColLoc>(at);
    return place ? WalkResult::interrupt() : WalkResult::advance();
  });
  return place;
}

/// The same as "file:line", without folders; "" if there is no such place.
inline std::string sourceLine(Location loc) {
  FileLineColLoc place = sourcePlace(loc);
  return place ? llvm::sys::path::filename(place.getFilename().getValue()).str() + ":" + std::to_string(place.getLine())
               : "";
}

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_SUPPORT_SOURCELINE_H
