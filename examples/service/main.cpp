//===- main.cpp - a service of models -------------------------------------===//

#include "kserve_route.h"
#include "options.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <thread>
#include <unistd.h>

/// httplib waits with select(), which knows no descriptors beyond this; without more it waits for one to be free.
static constexpr rlim_t kMostDescriptors = 1024;

static void limitDescriptors() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = std::min(limit.rlim_cur, kMostDescriptors);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

/// SIGTERM and SIGINT, which every thread leaves to the one that waits for them.
static sigset_t blockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

/// For who cannot wait.
static void exitAtNextSignal(const sigset_t &signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  std::fprintf(stderr, "service: a second signal: stopping at once\n");
  _exit(128 + signal);
}

namespace {
/// The model of sentences, and what /embed needs.
struct Sentences {
  Sentences(service::Options &options, service::Metrics &metrics)
      : tokenizer(options.vocabulary), engine(service::makeEngine(options.engine)),
        batcher(*engine, metrics, limited(options.batcher, *engine)),
        route(tokenizer, *engine, batcher, metrics, options.embed) {}

  static service::Batcher::Options limited(service::Batcher::Options options, const service::Engine &engine) {
    options.maxBatch = std::min(options.maxBatch, engine.maxBatch());
    return options;
  }

  service::Tokenizer tokenizer;
  std::unique_ptr<service::Engine> engine;
  service::Batcher batcher;
  service::EmbedRoute route;
};
} // namespace

int main(int argc, char **argv) {
  int status = 0;
  std::optional<service::Options> options = service::parseOptions(argc, argv, status);
  if (!options)
    return status;
  sigset_t signals = blockSignals();
  limitDescriptors();
  try {
    service::Metrics metrics;
    std::vector<service::Route *> routes;
    std::unique_ptr<Sentences> sentences;
    if (!options->vocabulary.empty()) {
      sentences = std::make_unique<Sentences>(*options, metrics);
      routes.push_back(&sentences->route);
      std::printf("%s\n", sentences->engine->name().c_str());
    }
    service::Models models;
    for (const service::Models::Source &source : options->models) {
      models.open(source, options->model);
      std::printf("model %s: %s\n", source.name.c_str(), models.all().back()->model().description().c_str());
    }
    service::KServeRoute kserve(models, options->maxInferBody);
    routes.push_back(&kserve);
    service::Server server(routes, metrics, options->server);
    int port = server.bind();
    std::unique_ptr<service::GrpcServer> grpc;
    if (options->hasGrpc) {
      grpc = service::startGrpc(models, options->grpc);
      std::printf("gRPC on %s:%d\n", options->grpc.host.c_str(), grpc->port());
    }
    std::printf("listening on http://%s:%d\n", options->server.host.c_str(), port);
    std::fflush(stdout);

    std::thread stopper([&server, &grpc, signals] {
      int signal = 0;
      sigwait(&signals, &signal);
      std::thread([signals] { exitAtNextSignal(signals); }).detach();
      if (grpc)
        grpc->announceStop();
      server.stop();
      if (grpc)
        grpc->stop();
    });
    bool served = server.serve();
    if (!served)
      kill(getpid(), SIGTERM); // Lets the thread end that waits for it.
    stopper.join();
    if (!served)
      throw std::runtime_error("cannot listen any more");
  } catch (const std::exception &error) {
    std::fprintf(stderr, "service: %s\n", error.what());
    return 1;
  }
  std::printf("stopped\n");
  return 0;
}
