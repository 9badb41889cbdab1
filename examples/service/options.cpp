//===- options.cpp - the command line -------------------------------------===//

#include "options.h"

#include <getopt.h>

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

std::vector<Option> optionsOf(Options &to) {
  constexpr int64_t kMany = 1 << 30;
  return {
      {"vocab", "FILE", "the model's vocab.txt (must be given)", word(to.vocabulary)},
      {"host", "ADDRESS", "where to listen (127.0.0.1)", word(to.server.host)},
      {"port", "N", "0: any that is free; it is printed (8080)", number(to.server.port, 0, 65535)},
      {"threads", "N", "threads of one run; 0: all cores (0)", number(to.engine.threads, 0, 1024)},
      {"workers", "N", "runs at the same time (1)", number(to.batcher.workers, 1, 256)},
      {"model", "FILE", "weights to use instead of the library's", word(to.engine.model)},
      {"max-batch", "N", "sentences of one run (32)", number(to.batcher.maxBatch, 1, kMany)},
      {"max-tokens", "N", "tokens of one run, padding included (8192)", number(to.batcher.maxTokens, 1, kMany)},
      {"run-cost", "N", "what a run costs beside its tokens, in tokens (8)", number(to.batcher.runCost, 0, kMany)},
      {"delay-us", "N", "how long a sentence waits for others to share its run (0)",
       number(to.batcher.delay, 0, 1000000)},
      {"queue", "N", "sentences that may wait; more are refused with 503 (256)", number(to.batcher.capacity, 1, kMany)},
      {"max-sentences", "N", "of one request; more are refused with 413 (32)",
       number(to.server.maxSentences, 1, kMany)},
      {"max-body", "BYTES", "of one request; more are refused with 413 (1048576)", number(to.server.maxBody, 1, kMany)},
      {"connections", "N", "clients at the same time; more are refused with 503 (64)",
       number(to.server.connections, 1, 900)},
      {"timeout", "SECONDS", "for a client to send its request, and between requests (5)",
       number(to.server.timeout, 1, 3600)},
      {"lame-duck-ms", "N", "how long to listen on after SIGTERM, to say 503 (200)",
       number(to.server.lameDuck, 0, 600000)},
  };
}

void printHelp(const std::vector<Option> &options) {
  std::printf("Serves sentence embeddings over HTTP.\n\nusage: service --vocab FILE [OPTION]...\n\n");
  for (const Option &option : options)
    std::printf("  --%-14s %-8s %s\n", option.name, option.value, option.help);
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
  if (optind < argc || parsed.vocabulary.empty()) {
    std::fprintf(stderr, optind < argc ? "service: unexpected '%s'\n" : "service: --vocab is missing\n", argv[optind]);
    return std::nullopt;
  }
  if (parsed.server.maxSentences > parsed.batcher.capacity) {
    std::fprintf(stderr, "service: --max-sentences is more than --queue: such a request could never be taken\n");
    return std::nullopt;
  }
  return parsed;
}

} // namespace service
