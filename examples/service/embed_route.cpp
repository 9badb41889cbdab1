//===- embed_route.cpp - POST /embed --------------------------------------===//

#include "embed_route.h"
#include "http_answers.h"
#include "number.h"
#include "request.h"

#include <chrono>
#include <cmath>
#include <stdexcept>

namespace service {

using Clock = std::chrono::steady_clock;

EmbedRoute::EmbedRoute(const Tokenizer &tokenizer, const Engine &engine, Batcher &batcher, Metrics &metrics,
                       const Options &options)
    : tokenizer_(tokenizer), engine_(engine), batcher_(batcher), metrics_(metrics), options_(options) {}

void EmbedRoute::install(httplib::Server &http, const std::atomic<bool> &) {
  using httplib::Request;
  using httplib::Response;
  http.Post("/embed", [this](const Request &request, Response &response, const httplib::ContentReader &reader) {
    embed(request, response, reader);
  });
  http.Get("/embed", [](const Request &, Response &response) {
    response.set_header("Allow", "POST");
    answerError(response, 405, "use POST");
  });
}

void EmbedRoute::appendMetrics(std::string &out) const {
  writeMetricHeader(out, "service_queue_sentences", "gauge", "Sentences that wait for a run.");
  out += "service_queue_sentences ";
  appendNumber(out, batcher_.queued());
  out.push_back('\n');
}

static std::string formatEmbeddings(const std::vector<float> &values, size_t dimension) {
  std::string text = "{\"embeddings\":[";
  text.reserve(values.size() * 14 + 32);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) // JSON has no such numbers.
      throw std::runtime_error("the model's result is not finite");
    text += i % dimension ? "," : i ? "],[" : "[";
    appendNumber(text, values[i]);
  }
  text += "]]}";
  return text;
}

void EmbedRoute::embed(const httplib::Request &request, httplib::Response &response,
                       const httplib::ContentReader &reader) {
  std::string body;
  if (!readBody(request, response, reader, options_.maxBody, body))
    return;
  auto start = Clock::now();

  std::vector<Tokens> sentences;
  try {
    Sentences texts = parseSentences(body, size_t(options_.maxSentences));
    if (texts.count > texts.list.size())
      return answerError(response, 413,
                         std::to_string(texts.count) + " sentences are more than the " +
                             std::to_string(options_.maxSentences) + " that a request may hold");
    for (const std::string &text : texts.list)
      sentences.push_back(tokenizer_.encode(text, size_t(engine_.maxLength())));
  } catch (const std::invalid_argument &error) {
    return answerError(response, 400, error.what());
  }

  std::future<Batcher::Embeddings> result;
  switch (batcher_.submit(std::move(sentences), result)) {
  case Batcher::Admission::Full:
    return answerBusy(response, "the queue is full");
  case Batcher::Admission::Stopped:
    return answerBusy(response, "stopping");
  case Batcher::Admission::Accepted:
    break;
  }
  // An error of the model is an exception here, and 500.
  response.set_content(formatEmbeddings(result.get(), size_t(engine_.dimension())), kJson);
  metrics_.embedded(std::chrono::duration<double>(Clock::now() - start).count());
}

} // namespace service
