//===- options.cpp - the command line -------------------------------------===//

#include "options.h"

#include <getopt.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

namespace service {

namespace {

/// Takes the argument, or says what is wrong with it.
using Parser = std::function<std::string(const char *)>;

struct Option {
  const char *name, *value, *help;
  Parser parse;
};

/// A whole number from `least` to `most`.
template <typename T> Parser number(T &out, int64_t least, int64_t most) {
  return [&out, least, most](const char *text) -> std::string {
    int64_t value = 0;
    const char *end = text + std::strlen(text);
    auto [rest, error] = std::from_chars(text, end, value);
    if (error != std::errc() || rest != end || value < least || value > most)
      return "expected a number from " + std::to_string(least) + " to " + std::to_string(most);
    out = T(value);
    return "";
  };
}

Parser word(std::string &out) {
  return [&out](const char *text) -> std::string {
    out = text;
    return out.empty() ? "expected a text" : "";
  };
}

/// NAME=PATH. Names are parts of paths and labels of metrics.
bool splitName(const std::string &text, std::string &name, std::string &path) {
  size_t end = text.find('=');
  if (end == std::string::npos)
    return false;
  name = text.substr(0, end);
  path = text.substr(end + 1);
  auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && !path.empty() && std::all_of(name.begin(), name.end(), allowed);
}

Parser model(Options &to) {
  return [&to](const char *text) -> std::string {
    Models::Source source;
    if (!splitName(text, source.name, source.path))
      return "expected NAME=LIBRARY, with a name of letters, digits, '.', '_' and '-'";
    for (const Models::Source &other : to.models)
      if (other.name == source.name)
        return "there are two models of this name";
    to.models.push_back(source);
    return "";
  };
}

Parser modelConfig(Options &to) {
  return [&to](const char *text) -> std::string {
    std::string name, file;
    if (!splitName(text, name, file))
      return "expected NAME=FILE";
    for (Models::Source &source : to.models)
      if (source.name == name)
        return source.config = file, "";
    return "there is no --model of this name before it";
  };
}

std::vector<Option> optionsOf(Options &to) {
  constexpr int64_t kMany = 1 << 30;
  auto both = [](Parser first, Parser second) -> Parser {
    return [first, second](const char *text) {
      std::string problem = first(text);
      return problem.empty() ? second(text) : problem;
    };
  };
  auto grpcPort = [&to, parse = number(to.grpc.port, 0, 65535)](const char *text) {
    to.hasGrpc = true;
    return parse(text);
  };
  return {
      {"model", "NAME=FILE", "a library of DISC, served as /v2/models/NAME; may be repeated", model(to)},
      {"model-config", "NAME=FILE", "how it is served (libfoo.serving.json beside libfoo.so)", modelConfig(to)},
      {"vocab", "FILE", "the vocab.txt of the model of sentences, for /embed", word(to.vocabulary)},
      {"host", "ADDRESS", "where to listen (127.0.0.1)", both(word(to.server.host), word(to.grpc.host))},
      {"port", "N", "0: any that is free; it is printed (8080)", number(to.server.port, 0, 65535)},
      {"grpc-port", "N", "listen for gRPC, too; 0: any that is free", grpcPort},
      {"threads", "N", "threads of one run; 0: all cores (0)",
       both(number(to.engine.threads, 0, 1024), number(to.model.threads, 0, 1024))},
      {"workers", "N", "runs of one model at the same time (1)",
       both(number(to.batcher.workers, 1, 256), number(to.model.workers, 1, 256))},
      {"queue", "N", "sentences, or requests for a model, that may wait; more get 503 (256)",
       both(number(to.batcher.capacity, 1, kMany), number(to.model.queue, 1, kMany))},
      {"max-infer-body", "BYTES", "of a request for a model; more get 413 (67108864)",
       number(to.maxInferBody, 1, kMany)},
      {"connections", "N", "clients at the same time; more get 503 (64)",
       both(number(to.server.connections, 1, 900), number(to.grpc.calls, 1, 900))},
      {"timeout", "SECONDS", "for a client to send its request, and between requests (5)",
       number(to.server.timeout, 1, 3600)},
      {"lame-duck-ms", "N", "how long to listen on after SIGTERM, to say 503 (200)",
       number(to.server.lameDuck, 0, 600000)},
      {"weights", "FILE", "/embed: weights to use instead of the library's", word(to.engine.model)},
      {"max-batch", "N", "/embed: sentences of one run (32)", number(to.batcher.maxBatch, 1, kMany)},
      {"max-tokens", "N", "/embed: tokens of one run, padding included (8192)", number(to.batcher.maxTokens, 1, kMany)},
      {"run-cost", "N", "/embed: what a run costs beside its tokens, in tokens (8)",
       number(to.batcher.runCost, 0, kMany)},
      {"delay-us", "N", "/embed: how long a sentence waits for others to share its run (0)",
       number(to.batcher.delay, 0, 1000000)},
      {"max-sentences", "N", "/embed: of one request; more get 413 (32)", number(to.embed.maxSentences, 1, kMany)},
      {"max-body", "BYTES", "/embed: of one request; more get 413 (1048576)", number(to.embed.maxBody, 1, kMany)},
  };
}

void printHelp(const std::vector<Option> &options) {
  std::printf(
      "Serves models over HTTP and gRPC by the Open Inference Protocol (KServe v2), and sentence embeddings.\n\n"
      "usage: service [--model NAME=FILE]... [--vocab FILE] [OPTION]...\n\n");
  for (const Option &option : options)
    std::printf("  --%-14s %-9s %s\n", option.name, option.value, option.help);
  std::printf("  --help\n");
}

} // namespace

std::optional<Options> parseOptions(int argc, char **argv, int &status) {
  Options parsed;
  std::vector<Option> options = optionsOf(parsed);
  std::vector<option> table;
  for (const Option &entry : options)
    table.push_back({entry.name, required_argument, nullptr, 1});
  table.push_back({"help", no_argument, nullptr, 'h'});
  table.push_back({nullptr, 0, nullptr, 0});

  status = 2;
  int index = 0;
  for (int code; (code = getopt_long(argc, argv, "h", table.data(), &index)) != -1;) {
    if (code == 'h') {
      printHelp(options);
      status = 0;
      return std::nullopt;
    }
    if (code != 1) // getopt said what.
      return std::nullopt;
    if (std::string problem = options[size_t(index)].parse(optarg); !problem.empty()) {
      std::fprintf(stderr, "service: --%s '%s': %s\n", options[size_t(index)].name, optarg, problem.c_str());
      return std::nullopt;
    }
  }
  parsed.grpc.maxMessage = parsed.maxInferBody;
  if (optind < argc) {
    std::fprintf(stderr, "service: unexpected '%s'\n", argv[optind]);
    return std::nullopt;
  }
  if (parsed.vocabulary.empty() && parsed.models.empty()) {
    std::fprintf(stderr, "service: --model is missing, or --vocab\n");
    return std::nullopt;
  }
  if (!parsed.vocabulary.empty() && parsed.embed.maxSentences > parsed.batcher.capacity) {
    std::fprintf(stderr, "service: --max-sentences is more than --queue: such a request could never be taken\n");
    return std::nullopt;
  }
  return parsed;
}

} // namespace service
