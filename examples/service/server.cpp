//===- server.cpp - the service's HTTP interface --------------------------===//

#include "server.h"
#include "client_stream.h"
#include "connections.h"
#include "http_answers.h"

#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

namespace service {

/// Bytes of a request to a path that does not exist.
static constexpr int64_t kMostUnknown = 1 << 20;

bool Server::Http::process_and_close_socket(socket_t socket) {
  if (Connections::turnAway()) {
    server_.doorkeeper_.take(socket);
    return true;
  }
  {
    ClientStream stream(socket, std::chrono::seconds(server_.options_.timeout), server_.closing_);
    bool ended = false;
    auto process = [&] {
      ++server_.processing_;
      bool goesOn = process_request(stream, /*close_connection=*/false, ended, nullptr);
      --server_.processing_;
      return goesOn;
    };
    while (!ended && stream.awaitRequest() && process()) {
    }
  }
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return true;
}

std::string Server::label(const std::string &path) const {
  if (path == "/health" || path == "/metrics")
    return path;
  for (const Route *route : routes_)
    if (std::string own = route->label(path); !own.empty())
      return own;
  return "other";
}

std::string Server::metricsText() const {
  std::string text = metrics_.text();
  for (const Route *route : routes_)
    route->appendMetrics(text);
  return text;
}

/// What a client is told for which there is no room. Who watches the service learns how it is.
std::string Server::answerVisitor(const std::string &method, const std::string &path) {
  bool reads = method == "GET" || method == "HEAD";
  bool health = path == "/v2/health/live" || ((path == "/health" || path == "/v2/health/ready") && !stopping_);
  int status = reads && (path == "/metrics" || health) ? 200 : 503;
  metrics_.answered(label(path), status);
  std::string answer;
  if (status == 503)
    answer = lastError(503, stopping_ ? "stopping" : "too many connections", "Retry-After: 1\r\n");
  else if (path == "/health")
    answer = lastAnswer(200, kJson, "{\"status\":\"ok\"}");
  else if (health)
    answer = lastAnswer(200, kJson, path == "/v2/health/live" ? "{\"live\":true}" : "{\"ready\":true}");
  else
    answer = lastAnswer(200, "text/plain; version=0.0.4; charset=utf-8", metricsText());
  return method == "HEAD" ? answer.substr(0, answer.find("\r\n\r\n") + 4) : answer;
}

Server::Server(std::vector<Route *> routes, Metrics &metrics, const Options &options)
    : routes_(std::move(routes)), metrics_(metrics), options_(options), http_(*this),
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
  for (Route *route : routes_)
    route->install(http_, stopping_);
  // httplib would keep the body of any other POST in memory, however large.
  http_.Post(".*", [this](const Request &request, Response &response, const httplib::ContentReader &reader) {
    if (std::string body; readBody(request, response, reader, kMostUnknown, body))
      answerError(response, 404, "there is no such path");
  });
  http_.Get("/health", [this](const Request &, Response &response) {
    if (stopping_)
      return answerError(response, 503, "stopping");
    response.set_content("{\"status\":\"ok\"}", kJson);
  });
  http_.Get("/metrics", [this](const Request &, Response &response) {
    response.set_content(metricsText(), "text/plain; version=0.0.4; charset=utf-8");
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
    metrics_.answered(label(request.path), response.status);
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
  for (Route *route : routes_)
    route->drain();
  std::this_thread::sleep_for(options_.lameDuck);
  while (!http_.is_running() && !served_) // It may not have begun yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  closing_ = true;
  // httplib cuts off answers that are not written yet when it stops. None takes longer than the grace of closing_,
  // unless new clients keep coming.
  for (int i = 0; i < 1000 && processing_ > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  http_.stop();
}

} // namespace service
