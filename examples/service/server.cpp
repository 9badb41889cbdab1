//===- server.cpp - the service's HTTP interface --------------------------===//

#include "server.h"
#include "connections.h"
#include "number.h"

#include <nlohmann/json.hpp>

#include <sys/socket.h>

#include <cmath>
#include <stdexcept>
#include <thread>

namespace service {

using Clock = std::chrono::steady_clock;

/// With its parameter, which httplib would compress the text without: brotli takes longer than the model does.
static const char *const kJson = "application/json; charset=utf-8";

static void answerError(httplib::Response &response, int status, const std::string &text) {
  using nlohmann::json;
  response.status = status;
  response.set_content(json{{"error", text}}.dump(-1, ' ', false, json::error_handler_t::replace), kJson);
}

static void answerBusy(httplib::Response &response, const char *text) {
  response.set_header("Retry-After", "1");
  answerError(response, 503, text);
}

/// Ends the connection after the answer: httplib does so when the source of a body says that it failed, which this one
/// does when all was sent.
static void closeAfter(httplib::Response &response) {
  std::string body = std::move(response.body), type = response.get_header_value("Content-Type");
  response.body.clear();
  response.headers.erase("Content-Type");
  response.set_header("Connection", "close");
  size_t size = body.size();
  response.set_content_provider(size, type, [body = std::move(body)](size_t offset, size_t, httplib::DataSink &sink) {
    sink.write(body.data() + offset, body.size() - offset);
    return false;
  });
}

/// The sentences of a request. Throws std::invalid_argument, or json's own error, with a text for the client.
static std::vector<std::string> parseSentences(const std::string &body) {
  nlohmann::json request = nlohmann::json::parse(body);
  if (!request.is_object())
    throw std::invalid_argument("expected an object with \"sentences\" or \"sentence\"");
  auto many = request.find("sentences"), one = request.find("sentence");
  if ((many == request.end()) == (one == request.end()))
    throw std::invalid_argument("expected either \"sentences\" or \"sentence\"");
  std::vector<std::string> sentences;
  if (one != request.end()) {
    if (!one->is_string())
      throw std::invalid_argument(std::string("\"sentence\" is no string but ") + one->type_name());
    sentences.push_back(one->get<std::string>());
    return sentences;
  }
  if (!many->is_array())
    throw std::invalid_argument(std::string("\"sentences\" is no array but ") + many->type_name());
  if (many->empty())
    throw std::invalid_argument("\"sentences\" is empty");
  for (const nlohmann::json &sentence : *many) {
    if (!sentence.is_string())
      throw std::invalid_argument("sentence " + std::to_string(sentences.size()) + " is no string but " +
                                  sentence.type_name());
    sentences.push_back(sentence.get<std::string>());
  }
  return sentences;
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

Server::Server(const Tokenizer &tokenizer, const Engine &engine, Batcher &batcher, Metrics &metrics,
               const Options &options)
    : tokenizer_(tokenizer), engine_(engine), batcher_(batcher), metrics_(metrics), options_(options) {
  using httplib::Request;
  using httplib::Response;

  http_.new_task_queue = [this] { return new Connections(options_.connections); };
  http_.set_socket_options([this](int socket) {
    // Without SO_REUSEPORT, httplib's default, which lets two services share a port by mistake.
    int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    socket_ = socket;
  });
  http_.set_tcp_nodelay(true);
  http_.set_keep_alive_max_count(1000000);
  http_.set_keep_alive_timeout(options_.timeout);
  http_.set_read_timeout(options_.timeout);
  http_.set_write_timeout(options_.timeout);

  http_.set_pre_routing_handler([](const Request &request, Response &response) {
    if (request.method == "GET" || request.method == "HEAD" || request.method == "POST")
      return httplib::Server::HandlerResponse::Unhandled;
    response.set_header("Allow", "GET, HEAD, POST");
    answerError(response, 405, "the method is not supported");
    closeAfter(response); // There may be a body, which is not read.
    return httplib::Server::HandlerResponse::Handled;
  });
  http_.Post("/embed", [this](const Request &request, Response &response, const httplib::ContentReader &reader) {
    embed(request, response, reader);
  });
  // httplib would keep the body of any other POST in memory, however large.
  http_.Post(".*", [this](const Request &request, Response &response, const httplib::ContentReader &reader) {
    if (std::string body; readBody(request, response, reader, body))
      answerError(response, 404, "there is no such path");
  });
  http_.Get("/embed", [](const Request &, Response &response) {
    response.set_header("Allow", "POST");
    answerError(response, 405, "use POST");
  });
  http_.Get("/health", [this](const Request &, Response &response) {
    if (stopping_)
      return answerError(response, 503, "stopping");
    response.set_content("{\"status\":\"ok\"}", kJson);
  });
  http_.Get("/metrics", [this](const Request &, Response &response) {
    response.set_content(metrics_.text(batcher_.queued()), "text/plain; version=0.0.4; charset=utf-8");
  });
  // What httplib itself refuses comes here without a text.
  http_.set_error_handler([](const Request &, Response &response) {
    if (response.body.empty() && !response.content_provider_)
      answerError(response, response.status, response.status == 404 ? "there is no such path" : "bad request");
  });
  http_.set_exception_handler([](const Request &, Response &response, std::exception_ptr exception) {
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception &error) {
      answerError(response, 500, error.what());
    }
  });
  http_.set_post_routing_handler([this](const Request &, Response &response) {
    if ((stopping_ || Connections::turnAway()) && !response.content_provider_)
      closeAfter(response);
  });
  http_.set_logger([this](const Request &request, const Response &response) {
    bool known = request.path == "/embed" || request.path == "/health" || request.path == "/metrics";
    metrics_.answered(known ? request.path : "other", response.status);
  });
}

int Server::bind() {
  int port = options_.port;
  if (port == 0)
    port = http_.bind_to_any_port(options_.host);
  else if (!http_.bind_to_port(options_.host, port))
    port = -1;
  if (port < 0)
    throw std::runtime_error("cannot listen on " + options_.host + " port " + std::to_string(options_.port));
  // httplib's own backlog of 5 makes a burst of clients wait for retransmissions.
  ::listen(socket_, SOMAXCONN);
  return port;
}

bool Server::serve() {
  bool listened = http_.listen_after_bind();
  served_ = true;
  return listened || stopping_;
}

void Server::stop() {
  stopping_ = true;
  batcher_.drain();
  std::this_thread::sleep_for(options_.lameDuck);
  while (!http_.is_running() && !served_) // It may not have begun yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  http_.stop();
}

/// False if the answer is made already.
bool Server::readBody(const httplib::Request &request, httplib::Response &response,
                      const httplib::ContentReader &reader, std::string &body) const {
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding"))
    return true; // It has none.
  if (request.is_multipart_form_data()) {
    answerError(response, 415, "the request is a form: send JSON");
    closeAfter(response);
    return false;
  }
  // A client that sends somewhat too much shall be able to read the answer: most of them first send all.
  const uint64_t limit = uint64_t(options_.maxBody), patience = limit * 16;
  const auto deadline = Clock::now() + std::chrono::seconds(options_.timeout);
  uint64_t size = request.get_header_value<uint64_t>("Content-Length");
  bool large = size > limit, slow = false, whole = false;
  if (size <= patience) {
    size = 0;
    whole = reader([&](const char *data, size_t count) {
      size += count;
      large |= size > limit;
      slow = Clock::now() > deadline;
      if (!large)
        body.append(data, count);
      return !slow && size <= patience;
    });
  }
  if (whole && !large)
    return true;
  if (large)
    answerError(response, 413, "the request is larger than " + std::to_string(limit) + " bytes");
  else if (slow)
    answerError(response, 408, "the request took too long to arrive");
  else
    answerError(response, response.status >= 400 ? response.status : 400, "the request's body is incomplete");
  if (!whole)
    closeAfter(response);
  return false;
}

void Server::embed(const httplib::Request &request, httplib::Response &response, const httplib::ContentReader &reader) {
  std::string body;
  if (!readBody(request, response, reader, body))
    return;
  if (Connections::turnAway())
    return answerBusy(response, "too many connections");
  auto start = Clock::now();

  std::vector<Tokens> sentences;
  try {
    std::vector<std::string> texts = parseSentences(body);
    if (int64_t(texts.size()) > options_.maxSentences)
      return answerError(response, 413,
                         std::to_string(texts.size()) + " sentences are more than the " +
                             std::to_string(options_.maxSentences) + " that a request may hold");
    for (const std::string &text : texts)
      sentences.push_back(tokenizer_.encode(text, size_t(engine_.maxLength())));
  } catch (const std::invalid_argument &error) {
    return answerError(response, 400, error.what());
  } catch (const nlohmann::json::exception &error) {
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
