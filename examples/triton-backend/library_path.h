//===- library_path.h - libraries that replaced others ----------*- C++ -*-===//

#ifndef TRITON_DISC_LIBRARY_PATH_H
#define TRITON_DISC_LIBRARY_PATH_H

#include <string>

namespace triton_disc {

/// A spelling of the path with which disc_load opens the file that is there now. The process keeps every library it has
/// loaded, by its path: a file that replaced one gets another spelling, "models/m/1/./model.so".
std::string loadablePath(const std::string &path);

} // namespace triton_disc

#endif // TRITON_DISC_LIBRARY_PATH_H
