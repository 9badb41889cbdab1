//===- server.cpp - the service's HTTP interface --------------------------===//

#include "server.h"
#include "client_stream.h"
#include "connections.h"
#include "number.h"
#include "request.h"

#include <nlohmann/json.hpp>

#include <sys/socket.h>
#include <unistd.h>

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

bool Server::Http::process_and_close_socket(socket_t socket) {
  if (Connections::turnAway()) {
    server_.doorkeeper_.take(socket);
    return true;
  }
  {
    ClientStream stream(socket, std::chrono::seconds(server_.options_.timeout), server_.closing_);
    bool ended = false;
    while (!ended && stream.awaitRequest() && process_request(stream, /*close_connection=*/false, ended, nullptr)) {
    }
  }
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return true;
}

/// What a client is told for which there is no room. Who watches the service learns how it is.
std::string Server::answerVisitor(const std::string &method, const std::string &path) {
  bool reads = method == "GET" || method == "HEAD";
  int status = reads && path == "/metrics" ? 200 : reads && path == "/health" && !stopping_ ? 200 : 503;
  metrics_.answered(path == "/embed" || path == "/health" || path == "/metrics" ? path : "other", status);
  std::string answer;
  if (status == 503)
    answer = lastError(503, stopping_ ? "stopping" : "too many connections", "Retry-After: 1\r\n");
  else if (path == "/health")
    answer = lastAnswer(200, kJson, "{\"status\":\"ok\"}");
  else
    answer = lastAnswer(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.text(batcher_.queued()));
  return method == "HEAD" ? answer.substr(0, answer.find("\r\n\r\n") + 4) : answer;
}

Server::Server(const Tokenizer &tokenizer, const Engine &engine, Batcher &batcher, Metrics &metrics,
               const Options &options)
    : tokenizer_(tokenizer), engine_(engine), batcher_(batcher), metrics_(metrics), options_(options), http_(*this),
      doorkeeper_([this](const std::string &method, const std::string &path) { return answerVisitor(method, path); },
                  std::chrono::seconds(options.timeout)) {
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
  // Said to clients; the stream keeps to them.
  http_.set_keep_alive_max_count(1000000);
  http_.set_keep_alive_timeout(options_.timeout);

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
    if (stopping_ && !response.content_provider_)
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
  closing_ = true;
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
  uint64_t size = request.get_header_value<uint64_t>("Content-Length");
  bool large = size > limit, slow = false, whole = false;
  if (size <= patience) {
    size = 0;
    whole = reader([&](const char *data, size_t count) {
      size += count;
      large |= size > limit;
      if (!large)
        body.append(data, count);
      return size <= patience;
    });
    slow = ClientStream::current()->timedOut();
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
