//===- grpc_server.cpp - the Open Inference Protocol over gRPC ------------===//

#include "grpc_server.h"
#include "infer_proto.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <open_inference.grpc.pb.h>

#include <atomic>
#include <new>
#include <stdexcept>

namespace service {

namespace {
using grpc::ServerContext;
using grpc::Status;
using grpc::StatusCode;
using Kind = RequestError::Kind;
using Clock = ServedModel::Clock;

StatusCode codeOf(Kind kind) {
  switch (kind) {
  case Kind::Invalid:
    return StatusCode::INVALID_ARGUMENT;
  case Kind::NotFound:
    return StatusCode::NOT_FOUND;
  case Kind::TooLarge:
    return StatusCode::RESOURCE_EXHAUSTED;
  case Kind::Busy:
  case Kind::Stopping:
    return StatusCode::UNAVAILABLE;
  case Kind::Deadline:
    return StatusCode::DEADLINE_EXCEEDED;
  case Kind::Failed:
    return StatusCode::INTERNAL;
  }
  return StatusCode::UNKNOWN;
}

const char *nameOf(StatusCode code) {
  switch (code) {
  case StatusCode::OK:
    return "OK";
  case StatusCode::INVALID_ARGUMENT:
    return "INVALID_ARGUMENT";
  case StatusCode::RESOURCE_EXHAUSTED:
    return "RESOURCE_EXHAUSTED";
  case StatusCode::UNAVAILABLE:
    return "UNAVAILABLE";
  case StatusCode::DEADLINE_EXCEEDED:
    return "DEADLINE_EXCEEDED";
  case StatusCode::INTERNAL:
    return "INTERNAL";
  default:
    return "UNKNOWN";
  }
}

/// No C++ exception leaves a handler.
template <typename Handler> Status guarded(Handler handle) {
  try {
    handle();
    return Status::OK;
  } catch (const RequestError &error) {
    return Status(codeOf(error.kind), error.what());
  } catch (const std::bad_alloc &) {
    return Status(StatusCode::INTERNAL, "there is not enough memory for the request");
  } catch (const std::exception &error) {
    return Status(StatusCode::INTERNAL, error.what());
  }
}

class Service final : public inference::GRPCInferenceService::Service {
public:
  explicit Service(Models &models) : models_(models) {}

  std::atomic<bool> stopping{false};

  Status ServerLive(ServerContext *, const inference::ServerLiveRequest *,
                    inference::ServerLiveResponse *response) override {
    response->set_live(true);
    return Status::OK;
  }

  Status ServerReady(ServerContext *, const inference::ServerReadyRequest *,
                     inference::ServerReadyResponse *response) override {
    response->set_ready(!stopping);
    return Status::OK;
  }

  Status ModelReady(ServerContext *, const inference::ModelReadyRequest *request,
                    inference::ModelReadyResponse *response) override {
    response->set_ready(!stopping && models_.has(request->name(), request->version()));
    return Status::OK;
  }

  Status ServerMetadata(ServerContext *, const inference::ServerMetadataRequest *,
                        inference::ServerMetadataResponse *response) override {
    response->set_name(kServerName);
    response->set_version(kServerVersion);
    for (const char *extension : kExtensions)
      response->add_extensions(extension);
    return Status::OK;
  }

  Status ModelMetadata(ServerContext *, const inference::ModelMetadataRequest *request,
                       inference::ModelMetadataResponse *response) override {
    return guarded([&] {
      const ServedModel &model = models_.find(request->name(), request->version());
      response->set_name(model.name());
      response->add_versions(kModelVersion);
      response->set_platform(model.signature().platform);
      auto describe = [](const std::vector<TensorSpec> &specs, auto &list) {
        for (const TensorSpec &spec : specs) {
          auto &tensor = *list.Add();
          tensor.set_name(spec.name);
          tensor.set_datatype(datatypeName(spec.type));
          for (int64_t extent : spec.shape())
            tensor.add_shape(extent);
        }
      };
      describe(model.signature().inputs, *response->mutable_inputs());
      describe(model.signature().outputs, *response->mutable_outputs());
    });
  }

  Status ModelInfer(ServerContext *context, const inference::ModelInferRequest *request,
                    inference::ModelInferResponse *response) override {
    const auto start = Clock::now();
    ServedModel *model = nullptr;
    Status status = guarded([&] {
      model = &models_.find(request->model_name(), request->model_version());
      InferCall call = readInferRequest(*model, *request);
      if (auto end = context->deadline(); end != std::chrono::system_clock::time_point::max())
        call.deadline = std::min(
            call.deadline, start + std::chrono::duration_cast<Clock::duration>(end - std::chrono::system_clock::now()));
      std::vector<Tensor> results = call.run(*model);
      writeInferResponse(*model, call, results, *request, *response);
    });
    if (!status.ok())
      response->Clear();
    if (model)
      model->metrics().answered("grpc", nameOf(status.error_code()),
                                std::chrono::duration<double>(Clock::now() - start).count());
    return status;
  }

private:
  Models &models_;
};

class Server final : public GrpcServer {
public:
  Server(Models &models, const Options &options) : service_(models) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ResourceQuota quota;
    // Beside the threads of calls, some that wait for calls. Calls beyond that get RESOURCE_EXHAUSTED.
    quota.SetMaxThreads(options.calls + 4);
    grpc::ServerBuilder builder;
    const std::string host = options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
    const std::string address = host + ":" + std::to_string(options.port);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    // Two services must not share a port by mistake.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.calls);
    builder.SetMaxReceiveMessageSize(int(std::min<int64_t>(options.maxMessage, std::numeric_limits<int>::max())));
    builder.SetMaxSendMessageSize(-1);
    builder.SetResourceQuota(quota);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0)
      throw std::runtime_error("cannot listen on " + address + " for gRPC");
  }

  ~Server() override { stop(); }

  int port() const override { return port_; }

  void announceStop() override {
    service_.stopping = true;
    server_->GetHealthCheckService()->SetServingStatus(false);
  }

  void stop() override {
    // Calls that wait for a client to send or to read are ended after a second.
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
  }

private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};
} // namespace

std::unique_ptr<GrpcServer> startGrpc(Models &models, const GrpcServer::Options &options) {
  return std::make_unique<Server>(models, options);
}

} // namespace service
