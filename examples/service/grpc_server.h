//===- grpc_server.h - the Open Inference Protocol over gRPC ----*- C++ -*-===//

#ifndef SERVICE_GRPC_SERVER_H
#define SERVICE_GRPC_SERVER_H

#include "models.h"

#include <memory>
#include <string>

namespace service {

class GrpcServer {
public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;                  ///< 0: any that is free.
    int64_t maxMessage = 64 << 20; ///< Bytes of a request.
    int calls = 64;                ///< At the same time.
  };

  virtual ~GrpcServer() = default;

  virtual int port() const = 0;

  /// Is not ready from now on; other calls are still answered.
  virtual void announceStop() = 0;

  /// Ends connections once calls in progress are answered.
  virtual void stop() = 0;
};

/// Serves from the return on. Throws std::runtime_error, also in a program that was built without gRPC.
std::unique_ptr<GrpcServer> startGrpc(Models &models, const GrpcServer::Options &options);

} // namespace service

#endif // SERVICE_GRPC_SERVER_H
