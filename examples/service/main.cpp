//===- main.cpp - a service of sentence embeddings ------------------------===//

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

int main(int argc, char **argv) {
  int status = 0;
  std::optional<service::Options> options = service::parseOptions(argc, argv, status);
  if (!options)
    return status;
  sigset_t signals = blockSignals();
  limitDescriptors();
  try {
    service::Tokenizer tokenizer(options->vocabulary);
    std::unique_ptr<service::Engine> engine = service::makeEngine(options->engine);
    options->batcher.maxBatch = std::min(options->batcher.maxBatch, engine->maxBatch());
    service::Metrics metrics;
    service::Batcher batcher(*engine, metrics, options->batcher);
    service::Server server(tokenizer, *engine, batcher, metrics, options->server);
    int port = server.bind();
    std::printf("%s\nlistening on http://%s:%d\n", engine->name().c_str(), options->server.host.c_str(), port);
    std::fflush(stdout);

    std::thread stopper([&server, signals] {
      int signal = 0;
      sigwait(&signals, &signal);
      std::thread([signals] { exitAtNextSignal(signals); }).detach();
      server.stop();
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
