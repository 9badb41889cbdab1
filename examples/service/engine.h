//===- engine.h - what the service asks of a model --------------*- C++ -*-===//

#ifndef SERVICE_ENGINE_H
#define SERVICE_ENGINE_H

#include <cstdint>
#include <memory>
#include <string>

namespace service {

/// A model that embeds sentences. Errors are std::runtime_error.
class Engine {
public:
  struct Options {
    int threads = 0;   ///< Of one run; 0: all cores.
    std::string model; ///< A file; "" if the engine needs none.
  };

  virtual ~Engine() = default;

  /// For people: what runs the model.
  virtual std::string name() const = 0;

  virtual int64_t dimension() const = 0; ///< Of an embedding.
  virtual int64_t maxBatch() const = 0;  ///< Sentences of one run.
  virtual int64_t minLength() const = 0; ///< Tokens of a sentence, padding included.
  virtual int64_t maxLength() const = 0;

  /// Embeds the rows of `ids` [batch, length], whose mask is 1 where a token is and 0 on padding, into `out` [batch,
  /// dimension]. May be called by many threads at the same time.
  virtual void run(const int64_t *ids, const int64_t *mask, int64_t batch, int64_t length, float *out) = 0;
};

/// Defined by the one engine that the program is linked with.
std::unique_ptr<Engine> makeEngine(const Engine::Options &options);

} // namespace service

#endif // SERVICE_ENGINE_H
