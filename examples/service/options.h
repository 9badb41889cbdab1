//===- options.h - the command line -----------------------------*- C++ -*-===//

#ifndef SERVICE_OPTIONS_H
#define SERVICE_OPTIONS_H

#include "batcher.h"
#include "embed_route.h"
#include "engine.h"
#include "grpc_server.h"
#include "models.h"
#include "server.h"

#include <optional>
#include <string>
#include <vector>

namespace service {

struct Options {
  std::string vocabulary; ///< "": no sentences.
  Engine::Options engine;
  Batcher::Options batcher;
  EmbedRoute::Options embed;
  std::vector<Models::Source> models;
  ModelConfig model; ///< Of models whose own configuration does not say it.
  int64_t maxInferBody = 64 << 20;
  GrpcServer::Options grpc;
  bool hasGrpc = false;
  Server::Options server;
};

/// Reads the command line. When there is nothing to serve, because help was asked for (0) or something is wrong (2), it
/// has been said, and `status` is what the program exits with.
std::optional<Options> parseOptions(int argc, char **argv, int &status);

} // namespace service

#endif // SERVICE_OPTIONS_H
