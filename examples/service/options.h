//===- options.h - the command line -----------------------------*- C++ -*-===//

#ifndef SERVICE_OPTIONS_H
#define SERVICE_OPTIONS_H

#include "batcher.h"
#include "engine.h"
#include "server.h"

#include <optional>
#include <string>

namespace service {

struct Options {
  std::string vocabulary;
  Engine::Options engine;
  Batcher::Options batcher;
  Server::Options server;
};

/// Reads the command line. When there is nothing to serve, because help was asked for (0) or something is wrong (2), it
/// has been said, and `status` is what the program exits with.
std::optional<Options> parseOptions(int argc, char **argv, int &status);

} // namespace service

#endif // SERVICE_OPTIONS_H
