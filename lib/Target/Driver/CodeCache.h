//===- CodeCache.h - Compiled objects by content ----------------*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_CODECACHE_H
#define DISC_TARGET_DRIVER_CODECACHE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mlir::disc {

/// A folder of compiled objects, one file for each module, named by a hash of all that the code depends on.
///
/// Any number of processes and threads may use one folder. A file appears by a rename, so it is never half written. A
/// file that is damaged counts as missing and is replaced. Errors of the file system are ignored: the cache then
/// misses.
class CodeCache {
public:
  using Objects = std::vector<std::unique_ptr<llvm::MemoryBuffer>>;

  /// An empty `folder` is a cache that always misses. Files that were not used for longest are removed when all take
  /// more than `limit` bytes.
  CodeCache(std::string folder, uint64_t limit);

  bool enabled() const { return !folder.empty(); }

  /// The key of a module whose code depends on `parts` alone.
  static std::string key(llvm::ArrayRef<llvm::StringRef> parts);

  /// The objects that were stored under a key; none if there is no such file, or a damaged one.
  Objects find(llvm::StringRef key) const;

  void store(llvm::StringRef key, const Objects &objects) const;

private:
  std::string path(llvm::StringRef key) const;
  void evict() const;

  std::string folder;
  uint64_t limit;
};

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_CODECACHE_H
