//===- http_answers.cpp - bodies in and answers out -----------------------===//

#include "http_answers.h"
#include "client_stream.h"

#include <nlohmann/json.hpp>

namespace service {

void answerError(httplib::Response &response, int status, const std::string &text) {
  using nlohmann::json;
  response.status = status;
  response.set_content(json{{"error", text}}.dump(-1, ' ', false, json::error_handler_t::replace), kJson);
}

void answerBusy(httplib::Response &response, const std::string &text) {
  response.set_header("Retry-After", "1");
  answerError(response, 503, text);
}

/// httplib ends the connection when the source of a body says that it failed, which this one
/// does when all was sent.
void closeAfter(httplib::Response &response) {
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

bool readBody(const httplib::Request &request, httplib::Response &response, const httplib::ContentReader &reader,
              int64_t most, std::string &body) {
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding"))
    return true; // It has none.
  if (request.is_multipart_form_data()) {
    answerError(response, 415, "the request is a form: send JSON");
    closeAfter(response);
    return false;
  }
  // A client that sends somewhat too much shall be able to read the answer: most of them first send all.
  const uint64_t limit = uint64_t(most), patience = limit * 16;
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

} // namespace service
