//===- model_config.h - how a model is served -------------------*- C++ -*-===//

#ifndef SERVICE_MODEL_CONFIG_H
#define SERVICE_MODEL_CONFIG_H

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace service {

/// How requests share a run. Dims are named by their expressions, as `disc run LIBRARY --info` prints them.
struct Batching {
  enum class Kind {
    None,
    Pad,   ///< Requests are rows; shorter ones are padded, and their results cut back.
    Ragged ///< Requests are concatenated; offsets or lengths say where each sequence begins.
  };
  Kind kind = Kind::None;
  std::string dim;                      ///< The dim along which requests are put together: "batch", "tokens".
  std::vector<std::string> padded;      ///< Pad: dims that may differ between requests.
  std::map<std::string, double> values; ///< Pad: what inputs are padded with, by name; 0 where nothing is said.
  std::string mask;             ///< Pad: the input that is 1 on elements and 0 on padding. Requests may leave it out.
  std::string offsets, lengths; ///< Ragged: the input with n + 1 offsets, or with n lengths; one of them.

  int64_t maxBatch = 32;                 ///< Rows or sequences of one run; more only if one request has more.
  int64_t maxSize = 1 << 20;             ///< Pad: rows times padded sizes of one run. Ragged: the size of `dim`.
  double maxPadding = 0.5;               ///< Pad: the share of a run that may be padding.
  std::chrono::microseconds maxDelay{0}; ///< How long a request may wait for others.
};

struct ModelConfig {
  Batching batching;
  int64_t queue = 256; ///< Requests that may wait.
  int workers = 1;     ///< Runs at the same time.
  int threads = 0;     ///< Of one run; 0: all cores.
  /// How long a request may take from its arrival until its run begins and ends; 0: as long as it needs.
  std::chrono::milliseconds deadline{0};
};

/// Reads the JSON of a configuration; what it does not mention is as in `defaults`. Throws std::runtime_error.
ModelConfig parseModelConfig(const std::string &text, const ModelConfig &defaults);

/// The same from a file.
ModelConfig readModelConfig(const std::string &path, const ModelConfig &defaults);

/// The file of a library's configuration. lib/libfoo.so: lib/libfoo.serving.json
std::string configBeside(const std::string &path);

} // namespace service

#endif // SERVICE_MODEL_CONFIG_H
