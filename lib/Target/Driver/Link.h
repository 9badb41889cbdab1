//===- Link.h - objects to a file, with the linker in this process -*- C++ -*-===//
//
// LLVM's linker and archiver as functions: whoever compiles a model needs no toolchain.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TARGET_DRIVER_LINK_H
#define DISC_TARGET_DRIVER_LINK_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

namespace mlir::disc {

/// Links a shared library that exports `disc_*`, from the objects and what they need of the archives. It depends on the
/// C and C++ libraries, and `others`, by name: on those that this process uses, or on those installed for another
/// `machine` (HostTarget::machine). Other programs will know it as `soname`.
llvm::Error linkShared(llvm::ArrayRef<llvm::MemoryBufferRef> objects, llvm::ArrayRef<std::string> archives,
                       llvm::ArrayRef<std::string> others, llvm::StringRef machine, llvm::StringRef soname,
                       llvm::StringRef output);

/// Joins objects into one.
llvm::Error linkRelocatable(llvm::ArrayRef<llvm::MemoryBufferRef> objects, llvm::StringRef output);

/// Writes an archive of the objects and of the members of other archives.
llvm::Error writeStaticLibrary(llvm::ArrayRef<llvm::MemoryBufferRef> objects, llvm::ArrayRef<std::string> archives,
                               llvm::StringRef output);

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_LINK_H
