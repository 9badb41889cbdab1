//===- grpc_missing.cpp - a service that was built without gRPC -----------===//

#include "grpc_server.h"

#include <stdexcept>

namespace service {

std::unique_ptr<GrpcServer> startGrpc(Models &, const GrpcServer::Options &) {
  throw std::runtime_error("--grpc-port: this program was built without gRPC. Install libgrpc++-dev, libprotobuf-dev "
                           "and protobuf-compiler-grpc, configure again and build it");
}

} // namespace service
