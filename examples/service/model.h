//===- model.h - what the service asks of a model of tensors ----*- C++ -*-===//

#ifndef SERVICE_MODEL_H
#define SERVICE_MODEL_H

#include "tensor.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace service {

/// An answer that is not a success; the text is for the client.
class RequestError : public std::runtime_error {
public:
  enum class Kind {
    Invalid,  ///< The client's request is wrong.
    NotFound, ///< No such model or version.
    TooLarge,
    Busy, ///< The queue is full.
    Stopping,
    Deadline,
    Failed, ///< The model's run failed.
  };
  RequestError(Kind which, const std::string &text) : std::runtime_error(shorten(text)), kind(which) {}

  const Kind kind;

private:
  /// Names in a text may come from the client.
  static std::string shorten(const std::string &text) {
    constexpr size_t kMost = 1000;
    return text.size() > kMost ? text.substr(0, kMost) + " ..." : text;
  }
};

/// An input or output.
struct TensorSpec {
  std::string name;
  Datatype type;
  std::vector<std::string> dims; ///< The expression of each dim, a number or in symbols: "batch", "2 * length", "384".
  Shape min, max;                ///< Of each dim.

  /// A dim of more than one size is -1.
  Shape shape() const;
};

/// What a model looks like from outside.
struct Signature {
  std::string platform; ///< "disc"
  std::vector<TensorSpec> inputs, outputs;
  bool keepsState = false; ///< Runs change the model, or their inputs: they cannot be combined.
};

/// A model. Errors of a request are RequestError, others std::runtime_error.
class Model {
public:
  virtual ~Model() = default;

  /// For people: what runs the model.
  virtual std::string description() const = 0;

  virtual const Signature &signature() const = 0;

  /// The shapes that outputs would have, -1 where a size is known only after a run. The inputs have the types and ranks
  /// of the signature; their elements are not read. Throws RequestError(Invalid) for shapes that the model does not
  /// support. May be called by many threads at the same time, as run.
  virtual std::vector<Shape> outputShapes(const std::vector<Tensor> &inputs) const = 0;

  virtual std::vector<Tensor> run(const std::vector<Tensor> &inputs) const = 0;
};

/// Defined by the program. `threads`: of one run; 0: all cores.
std::unique_ptr<Model> openModel(const std::string &path, int threads);

} // namespace service

#endif // SERVICE_MODEL_H
