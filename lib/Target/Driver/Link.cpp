//===- Link.cpp - objects to a file, with the linker in this process ------===//

#include "lib/Target/Driver/Link.h"
#include "lib/Target/Common/Linker.h"
#include "lib/Target/Driver/HostTarget.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Object/Archive.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <link.h>

using namespace mlir::disc;

static llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// The C and C++ libraries as this process has them: a machine without a compiler has no other names for them.
static std::vector<std::string> systemLibraries() {
  std::vector<std::string> result;
  auto visit = [](dl_phdr_info *info, size_t, void *data) {
    llvm::StringRef name = llvm::sys::path::filename(info->dlpi_name);
    for (llvm::StringRef wanted : {"libstdc++.so.", "libm.so.", "libc.so.", "libgcc_s.so.", "ld-linux"})
      if (name.starts_with(wanted))
        static_cast<std::vector<std::string> *>(data)->push_back(info->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(visit, &result);
  return result;
}

/// The C and C++ libraries of another machine, where Debian's cross compilers or its foreign packages put them.
static llvm::Expected<std::vector<std::string>> foreignLibraries(llvm::StringRef machine) {
  std::vector<std::string> result;
  for (llvm::StringRef wanted : {"libstdc++.so.6", "libm.so.6", "libc.so.6", "libgcc_s.so.1", "ld-linux"}) {
    std::string found;
    for (const std::string &folder : {("/usr/" + machine + "/lib").str(), ("/usr/lib/" + machine).str()}) {
      std::error_code none;
      for (llvm::sys::fs::directory_iterator it(folder, none), end; it != end && !none; it.increment(none))
        if (llvm::sys::path::filename(it->path()).starts_with(wanted) && llvm::sys::fs::exists(it->path()))
          found = std::min(found.empty() ? it->path() : found, it->path());
    }
    if (found.empty())
      return makeError("to link for " + machine + ", its " + wanted +
                       " is needed; Debian has it in the package libstdc++6-" +
                       (machine.starts_with("aarch64") ? "arm64" : "armhf") + "-cross");
    result.push_back(found);
  }
  return result;
}

static llvm::Error link(llvm::ArrayRef<llvm::MemoryBufferRef> objects, std::vector<std::string> args,
                        llvm::ArrayRef<std::string> libraries, llvm::StringRef output, const TemporaryFolder &folder) {
  args.insert(args.end(), {"-o", output.str()});
  for (auto [i, object] : llvm::enumerate(objects)) {
    std::string path = folder.file(llvm::Twine(i) + ".o");
    if (llvm::Error error = writeFile(path, object.getBuffer()))
      return error;
    args.push_back(path);
  }
  args.insert(args.end(), libraries.begin(), libraries.end());
  return runLinker(args);
}

llvm::Error mlir::disc::linkShared(llvm::ArrayRef<llvm::MemoryBufferRef> objects, llvm::ArrayRef<std::string> archives,
                                   llvm::ArrayRef<std::string> others, llvm::StringRef machine, llvm::StringRef soname,
                                   llvm::StringRef output) {
  llvm::Expected<std::vector<std::string>> system =
      machine == HostTarget::ownMachine() ? systemLibraries() : foreignLibraries(machine);
  if (!system)
    return system.takeError();
  TemporaryFolder folder;
  if (llvm::Error error = folder.create())
    return error;
  // What is not meant for callers has hidden visibility; this catches what the C++ library's templates bring in.
  std::string exports = folder.file("exports");
  if (llvm::Error error = writeFile(exports, "{ global: disc_*; local: *; };\n"))
    return error;
  // All of the runtime: nothing here calls what it offers to callers.
  std::vector<std::string> libraries{"--whole-archive"};
  libraries.insert(libraries.end(), archives.begin(), archives.end());
  libraries.insert(libraries.end(), {"--no-whole-archive", "--as-needed"});
  libraries.insert(libraries.end(), others.begin(), others.end());
  libraries.insert(libraries.end(), system->begin(), system->end());
  return link(objects,
              {"-shared", "-soname=" + soname.str(), "--version-script=" + exports, "-Bsymbolic", "--no-undefined",
               "--gc-sections", "--hash-style=gnu", "--build-id=sha1", "--eh-frame-hdr", "-znow", "-zrelro",
               "-znoexecstack", "-zseparate-code",
               // Outputs, threads and error texts of a model may outlive dlclose(), which therefore unmaps nothing.
               "-znodelete"},
              libraries, output, folder);
}

llvm::Error mlir::disc::linkRelocatable(llvm::ArrayRef<llvm::MemoryBufferRef> objects, llvm::StringRef output) {
  TemporaryFolder folder;
  if (llvm::Error error = folder.create())
    return error;
  return link(objects, {"-r"}, {}, output, folder);
}

llvm::Error mlir::disc::writeStaticLibrary(llvm::ArrayRef<llvm::MemoryBufferRef> objects,
                                           llvm::ArrayRef<std::string> archives, llvm::StringRef output) {
  std::vector<llvm::NewArchiveMember> members;
  for (llvm::MemoryBufferRef object : objects)
    members.emplace_back(object);
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> buffers;
  std::vector<std::unique_ptr<llvm::object::Archive>> opened;
  for (const std::string &path : archives) {
    auto buffer = llvm::MemoryBuffer::getFile(path);
    if (!buffer)
      return makeError("cannot read '" + path + "': " + buffer.getError().message());
    auto archive = llvm::object::Archive::create((*buffer)->getMemBufferRef());
    if (!archive)
      return archive.takeError();
    llvm::Error error = llvm::Error::success();
    for (const llvm::object::Archive::Child &child : (*archive)->children(error)) {
      auto member = llvm::NewArchiveMember::getOldMember(child, /*Deterministic=*/true);
      if (!member)
        return llvm::joinErrors(std::move(error), member.takeError());
      members.push_back(std::move(*member));
    }
    if (error)
      return error;
    buffers.push_back(std::move(*buffer));
    opened.push_back(std::move(*archive));
  }
  return llvm::writeArchive(output, members, llvm::SymtabWritingMode::NormalSymtab, llvm::object::Archive::K_GNU,
                            /*Deterministic=*/true, /*Thin=*/false);
}
