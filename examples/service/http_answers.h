//===- http_answers.h - bodies in and answers out ---------------*- C++ -*-===//

#ifndef SERVICE_HTTP_ANSWERS_H
#define SERVICE_HTTP_ANSWERS_H

#include <httplib.h>

#include <cstdint>
#include <string>

namespace service {

/// With its parameter, which httplib would compress the text without: brotli takes longer than the model does.
constexpr const char *kJson = "application/json; charset=utf-8";

/// {"error": text}
void answerError(httplib::Response &response, int status, const std::string &text);

/// 503 with Retry-After.
void answerBusy(httplib::Response &response, const std::string &text);

/// Ends the connection after the answer.
void closeAfter(httplib::Response &response);

/// Reads a body of at most `limit` bytes. False if the answer is made already.
bool readBody(const httplib::Request &request, httplib::Response &response, const httplib::ContentReader &reader,
              int64_t limit, std::string &body);

} // namespace service

#endif // SERVICE_HTTP_ANSWERS_H
