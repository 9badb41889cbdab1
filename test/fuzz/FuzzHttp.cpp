//===- FuzzHttp.cpp - bytes that clients send to the service --------------===//
//
// The real server listens on a port of the loopback device; each input is a connection. What comes back is nothing or
// whole answers of HTTP, and the server answers its next client.
//
//===----------------------------------------------------------------------===//

#include "FuzzModel.h"
#include "embed_route.h"
#include "kserve_route.h"
#include "server.h"

#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace {
struct Zeros : service::Engine {
  std::string name() const override { return "zeros"; }
  int64_t dimension() const override { return 2; }
  int64_t maxBatch() const override { return 4; }
  int64_t minLength() const override { return 2; }
  int64_t maxLength() const override { return 16; }
  void run(const int64_t *, const int64_t *, int64_t batch, int64_t, float *out) override {
    std::memset(out, 0, size_t(batch) * 2 * sizeof(float));
  }
};

/// Never destroyed: its threads serve until the process ends.
struct Served {
  Zeros engine;
  service::Metrics metrics;
  service::Tokenizer tokenizer;
  service::Batcher batcher;
  service::EmbedRoute embed;
  service::Models models;
  service::KServeRoute kserve;
  service::Server server;
  int port;

  static service::Server::Options options() {
    service::Server::Options options;
    options.port = 0;
    options.timeout = 1;
    options.connections = 2;
    return options;
  }
  static service::EmbedRoute::Options embedOptions() {
    service::EmbedRoute::Options options;
    options.maxBody = 512;
    return options;
  }
  explicit Served(const std::string &vocabulary)
      : tokenizer(vocabulary), batcher(engine, metrics, {}), embed(tokenizer, engine, batcher, metrics, embedOptions()),
        kserve(models, 1024), server({&embed, &kserve}, metrics, options()) {
    models.add(makeFuzzModel());
    port = server.bind();
    std::thread([this] { server.serve(); }).detach();
  }
};
} // namespace

namespace service {
std::unique_ptr<Model> openModel(const std::string &, int) { return std::make_unique<FuzzModel>(); }
} // namespace service

static Served &served() {
  static Served &made = *[] {
    std::string path = "/tmp/disc-fuzz-http-" + std::to_string(getpid());
    std::ofstream(path) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\n";
    auto *result = new Served(path);
    std::remove(path.c_str());
    return result;
  }();
  return made;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(served().port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  linger hard = {1, 0}; // no ports in TIME_WAIT
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  if (connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0)
    std::abort();
  (void)!send(fd, data, size, MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  std::string answer;
  char chunk[4096];
  for (ssize_t got; (got = recv(fd, chunk, sizeof(chunk), 0)) > 0;)
    answer.append(chunk, size_t(got));
  close(fd);
  if (!answer.empty() && answer.compare(0, 9, "HTTP/1.1 ") != 0 && answer.compare(0, 9, "HTTP/1.0 ") != 0) {
    std::fprintf(stderr, "answer: %.100s\n", answer.c_str());
    std::abort();
  }
  return 0;
}
