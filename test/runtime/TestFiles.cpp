//===- TestFiles.cpp - files that tests write -----------------------------===//

#include "HandModel.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace disc::test;

static std::string temporaryFolder() {
  static const std::string folder = [] {
    char name[] = "/tmp/disc-runtime-XXXXXX";
    std::string made = mkdtemp(name) ? name : "/tmp";
    return made;
  }();
  static const int registered = std::atexit([] { (void)!std::system(("rm -rf '" + temporaryFolder() + "'").c_str()); });
  (void)registered;
  return folder;
}

std::string disc::test::temporaryPath(const std::string &name) { return temporaryFolder() + "/" + name; }

void disc::test::writeFile(const std::string &path, const std::string &bytes) {
  // A file that is mapped must not shrink: the new one takes its place.
  std::string fresh = path + ".new";
  if (std::FILE *file = std::fopen(fresh.c_str(), "wb")) {
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
  }
  std::rename(fresh.c_str(), path.c_str());
}

std::string disc::test::readFile(const std::string &path) {
  std::string bytes;
  if (std::FILE *file = std::fopen(path.c_str(), "rb")) {
    char chunk[65536];
    for (size_t got; (got = std::fread(chunk, 1, sizeof(chunk), file));)
      bytes.append(chunk, got);
    std::fclose(file);
  }
  return bytes;
}
