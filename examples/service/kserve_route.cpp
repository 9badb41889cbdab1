//===- kserve_route.cpp - the Open Inference Protocol over HTTP -----------===//

#include "kserve_route.h"
#include "http_answers.h"
#include "infer_json.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <optional>

namespace service {

using Clock = std::chrono::steady_clock;
using httplib::Request;
using httplib::Response;
using nlohmann::json;
using Kind = RequestError::Kind;

static constexpr const char *kHeaderLength = "Inference-Header-Content-Length";

static int statusOf(Kind kind) {
  switch (kind) {
  case Kind::Invalid:
    return 400;
  case Kind::NotFound:
    return 404;
  case Kind::TooLarge:
    return 413;
  case Kind::Busy:
  case Kind::Stopping:
    return 503;
  case Kind::Deadline:
    return 504;
  case Kind::Failed:
    return 500;
  }
  return 500;
}

static void answer(Response &response, const RequestError &error) {
  if (statusOf(error.kind) == 503)
    return answerBusy(response, error.what());
  answerError(response, statusOf(error.kind), error.what());
}

static void answer(Response &response, const json &body) {
  response.set_content(body.dump(-1, ' ', false, json::error_handler_t::replace), kJson);
}

namespace {
/// /v2/models/NAME[/versions/VERSION][/VERB]
struct ModelPath {
  std::string name, version, verb;
};
} // namespace

static std::optional<ModelPath> parsePath(const std::string &path) {
  const std::string prefix = "/v2/models/";
  if (path.compare(0, prefix.size(), prefix) != 0)
    return std::nullopt;
  std::vector<std::string> parts;
  for (size_t begin = prefix.size(); begin <= path.size() && parts.size() < 5;) {
    size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  ModelPath result;
  result.name = parts[0];
  size_t next = 1;
  if (parts.size() > 2 && parts[1] == "versions") {
    result.version = parts[2];
    next = 3;
  }
  if (parts.size() > next + 1 || result.name.empty() || (next == 3 && result.version.empty()))
    return std::nullopt;
  if (parts.size() == next + 1)
    result.verb = parts[next];
  bool known = parts.size() == next || result.verb == "ready" || result.verb == "infer";
  return known ? std::make_optional(result) : std::nullopt;
}

std::string KServeRoute::label(const std::string &path) const {
  if (path == "/v2" || path == "/v2/health/live" || path == "/v2/health/ready")
    return path;
  std::optional<ModelPath> parts = parsePath(path);
  return !parts ? "" : "/v2/models/NAME" + (parts->verb.empty() ? "" : "/" + parts->verb);
}

static json describe(const std::vector<TensorSpec> &specs) {
  json list = json::array();
  for (const TensorSpec &spec : specs)
    list.push_back({{"name", spec.name}, {"datatype", datatypeName(spec.type)}, {"shape", spec.shape()}});
  return list;
}

void KServeRoute::get(const Request &request, Response &response, bool stopping) const {
  const std::string &path = request.path;
  if (path == "/v2" || path == "/v2/")
    return answer(response, {{"name", kServerName}, {"version", kServerVersion}, {"extensions", kExtensions}});
  if (path == "/v2/health/live")
    return answer(response, {{"live", true}});
  if (path == "/v2/health/ready")
    return stopping ? answerBusy(response, "stopping") : answer(response, {{"ready", true}});
  std::optional<ModelPath> parts = parsePath(path);
  if (!parts)
    return answerError(response, 404, "there is no such path");
  if (parts->verb == "infer") {
    response.set_header("Allow", "POST");
    return answerError(response, 405, "use POST");
  }
  try {
    const ServedModel &model = models_.find(parts->name, parts->version);
    if (parts->verb == "ready")
      return stopping ? answerBusy(response, "stopping") : answer(response, {{"name", model.name()}, {"ready", true}});
    const Signature &signature = model.signature();
    answer(response, {{"name", model.name()},
                      {"versions", {kModelVersion}},
                      {"platform", signature.platform},
                      {"inputs", describe(signature.inputs)},
                      {"outputs", describe(signature.outputs)}});
  } catch (const RequestError &error) {
    answer(response, error);
  }
}

/// The value of Inference-Header-Content-Length.
static std::optional<size_t> headerLength(const Request &request) {
  if (!request.has_header(kHeaderLength))
    return std::nullopt;
  const std::string text = request.get_header_value(kHeaderLength);
  size_t value = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size())
    refuse(std::string(kHeaderLength) + ": expected a number of bytes, found '" + text.substr(0, 40) + "'");
  return value;
}

void KServeRoute::infer(ServedModel &model, const Request &request, Response &response, const std::string &body) {
  InferCall call = readInferRequest(model, body, headerLength(request));
  std::vector<Tensor> results = call.run(model);
  std::optional<size_t> jsonBytes;
  std::string text = writeInferResponse(model, call, results, jsonBytes);
  if (jsonBytes)
    response.set_header(kHeaderLength, std::to_string(*jsonBytes));
  response.set_content(std::move(text), jsonBytes ? "application/octet-stream" : kJson);
}

void KServeRoute::post(const Request &request, Response &response, const httplib::ContentReader &reader) {
  std::string body;
  if (!readBody(request, response, reader, maxBody_, body))
    return;
  std::optional<ModelPath> parts = parsePath(request.path);
  if (!parts || parts->verb != "infer")
    return answerError(response, 404, "there is no such path");
  ServedModel *model = nullptr;
  const auto start = Clock::now();
  try {
    model = &models_.find(parts->name, parts->version);
    infer(*model, request, response, body);
  } catch (const RequestError &error) {
    answer(response, error);
  } catch (const std::bad_alloc &) {
    answerError(response, 500, "there is not enough memory for the request");
  }
  if (model)
    model->metrics().answered("http", std::to_string(response.status == -1 ? 200 : response.status),
                              std::chrono::duration<double>(Clock::now() - start).count());
}

void KServeRoute::install(httplib::Server &http, const std::atomic<bool> &stopping) {
  http.Get("/v2(/.*)?",
           [this, &stopping](const Request &request, Response &response) { get(request, response, stopping); });
  http.Post("/v2/.*", [this](const Request &request, Response &response, const httplib::ContentReader &reader) {
    post(request, response, reader);
  });
}

} // namespace service
