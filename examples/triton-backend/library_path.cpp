//===- library_path.cpp - libraries that replaced others ------------------===//

#include "library_path.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace triton_disc {

std::string loadablePath(const std::string &path) {
  using File = std::pair<dev_t, ino_t>;
  static std::mutex mutex;
  static std::map<std::string, std::vector<File>> known; // Those that have been at a path, in order.

  struct stat about;
  if (stat(path.c_str(), &about) != 0)
    return path; // disc_load says what is wrong.
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<File> &files = known[path];
  auto file = std::find(files.begin(), files.end(), File(about.st_dev, about.st_ino));
  const auto number = file - files.begin();
  if (file == files.end())
    files.emplace_back(about.st_dev, about.st_ino);
  std::string spelling = path;
  for (auto i = number; i > 0; --i)
    spelling.insert(spelling.rfind('/') + 1, "./");
  return spelling;
}

} // namespace triton_disc
