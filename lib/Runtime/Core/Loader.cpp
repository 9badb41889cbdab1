//===- Loader.cpp - libraries from files ----------------------------------===//
//
// The dynamic linker trusts what it maps, so a file is checked as a whole before it gets there. What was loaded stays:
// its outputs, threads and error texts may be in use.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Loader.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Core/Seal.h"
#include "lib/Runtime/Core/StoredFile.h"

#include <dlfcn.h>
#include <link.h>
#include <map>
#include <mutex>
#include <unistd.h>

namespace disc::rt {

std::string folderOfPath(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string folderOf(const void *object) {
  Dl_info info;
  link_map *map = nullptr;
  if (!dladdr1(object, &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP))
    return ".";
  if (map && *map->l_name)
    return folderOfPath(map->l_name);
  // The program itself, whose argv[0] need not be a path.
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return folderOfPath(length > 0 && length < ssize_t(sizeof(path)) ? std::string(path, size_t(length))
                                                                   : std::string(info.dli_fname));
}

/// The dynamic linker knows a library by its path, and gives the old one for a path whose file was replaced.
static Status checkSameFile(const std::string &path, const Seal &seal) {
  static Mutex &mutex = *new Mutex;
  static auto &known = *new std::map<std::string, std::pair<uint64_t, uint64_t>>;
  std::lock_guard<Mutex> lock(mutex);
  auto [entry, fresh] = known.try_emplace(path, seal.hashLow, seal.hashHigh);
  if (fresh || entry->second == std::make_pair(seal.hashLow, seal.hashHigh))
    return Status();
  return Status(Code::File, path + ": the process has loaded an earlier file of this path, which stays; give the new "
                                   "one another name");
}

Status loadLibrary(const std::string &given, bool trusted, const disc_library *&library) {
  // Without a slash, the dynamic linker would search its own folders.
  std::string path = given.find('/') == std::string::npos ? "./" + given : given;
  std::shared_ptr<StoredFile> file;
  if (Status status = StoredFile::open(path, StoredFile::Access::Parts, file); !status.ok())
    return status;
  Seal seal;
  if (Status status = checkSealed(*file, trusted, seal); !status.ok())
    return status;
  if (Status status = checkSameFile(path, seal); !status.ok())
    return status;
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *text = dlerror();
    return Status(Code::File, path + ": cannot load: " + (text ? text : "the dynamic linker does not say why"));
  }
  library = static_cast<const disc_library *>(dlsym(handle, DISC_LIBRARY_SYMBOL));
  if (library)
    return Status();
  dlclose(handle);
  return Status(Code::File, path + ": there is no model in it (no symbol " DISC_LIBRARY_SYMBOL ")");
}

} // namespace disc::rt
