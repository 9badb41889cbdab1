//===- embed_route.h - POST /embed ------------------------------*- C++ -*-===//

#ifndef SERVICE_EMBED_ROUTE_H
#define SERVICE_EMBED_ROUTE_H

#include "batcher.h"
#include "metrics.h"
#include "route.h"
#include "tokenizer.h"

namespace service {

/// {"sentences": ["...", ...]} or {"sentence": "..."} -> {"embeddings": [[...], ...]}
class EmbedRoute : public Route {
public:
  struct Options {
    int64_t maxBody = 1 << 20; ///< Bytes of a request.
    int64_t maxSentences = 32; ///< Of a request.
  };

  EmbedRoute(const Tokenizer &tokenizer, const Engine &engine, Batcher &batcher, Metrics &metrics,
             const Options &options);

  void install(httplib::Server &http, const std::atomic<bool> &stopping) override;
  std::string label(const std::string &path) const override { return path == "/embed" ? path : ""; }
  void drain() override { batcher_.drain(); }
  void appendMetrics(std::string &out) const override;

private:
  void embed(const httplib::Request &request, httplib::Response &response, const httplib::ContentReader &reader);

  const Tokenizer &tokenizer_;
  const Engine &engine_;
  Batcher &batcher_;
  Metrics &metrics_;
  const Options options_;
};

} // namespace service

#endif // SERVICE_EMBED_ROUTE_H
