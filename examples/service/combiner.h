//===- combiner.h - tensors of several requests as those of one -*- C++ -*-===//

#ifndef SERVICE_COMBINER_H
#define SERVICE_COMBINER_H

#include "model.h"
#include "model_config.h"

#include <optional>
#include <string>
#include <vector>

namespace service {

/// Puts the inputs of requests together, and takes results apart, as a model's configuration says.
///
/// Pad: inputs are concatenated along the dim `batch`; other inputs must be equal. With `length` padded:
///
///   ids [2, 5] + ids [1, 9] -> ids [3, 9]      embedding [3, 384] -> [2, 384] + [1, 384]
///                                              states [3, 9, 64]  -> [2, 5, 64] + [1, 9, 64]
///
/// Ragged: inputs are concatenated along `tokens`, and those with one row per sequence along that.
///
///   values [7, 8], offsets [0, 3, 7] + values [5, 8], offsets [0, 5] -> values [12, 8], offsets [0, 3, 7, 12]
class Combiner {
public:
  /// Throws std::runtime_error if the configuration does not fit the model.
  Combiner(const Model &model, const Batching &batching);

  /// A request as the combiner sees it.
  struct Item {
    std::vector<Tensor> inputs;
    std::vector<Shape> outputs; ///< The shapes of its own results.
    bool joins = false;         ///< May share a run. The others are run alone.
    int64_t rows = 1;           ///< Rows or sequences.
    int64_t size = 0;           ///< Of the dim along which requests are put together.
    std::vector<int64_t> sizes; ///< Of the padded dims.
    std::string key;            ///< Requests with equal keys can share a run.
  };

  /// What an input must be made of if the request leaves it out: the mask, from the inputs that are there. No value for
  /// other inputs. Absent inputs have no data.
  std::optional<Tensor> makeMissing(size_t input, const std::vector<Tensor> &inputs) const;

  /// Checks what could harm other requests and what the model checks. Throws RequestError(Invalid).
  Item examine(std::vector<Tensor> inputs) const;

  /// Whether a dim of this expression has one row per sequence.
  bool isBySequence(const std::string &dim) const;

  /// Items in the order in which runs should take them, divided into runs. All have the same key.
  std::vector<std::vector<const Item *>> plan(std::vector<const Item *> items) const;

  std::vector<Tensor> combine(const std::vector<const Item *> &items) const;

  /// The results of each item. Throws std::runtime_error if they cannot be separated.
  std::vector<std::vector<Tensor>> split(const std::vector<const Item *> &items,
                                         const std::vector<Tensor> &outputs) const;

  /// Elements of a run with these items, in units of rows times padded sizes: with padding, and without.
  static int64_t paddedVolume(const std::vector<const Item *> &items);
  static int64_t ownVolume(const std::vector<const Item *> &items);

private:
  static constexpr size_t kNone = size_t(-1);

  /// What becomes of an input. The rest of its dims, and an input without any, are the same in all requests.
  struct InputRule {
    size_t concatenated = kNone;                   ///< The dim, and
    bool bySequence = false;                       ///< whether it has one row per sequence.
    std::vector<std::pair<size_t, size_t>> padded; ///< Dims, and which of the padded ones they are.
    double value = 0;
    bool isOffsets = false, isLengths = false;
  };

  void makeInputRules(const Signature &signature);
  void makeOutputRules(const Signature &signature);
  void checkWithProbe() const;
  void readSequences(Item &item) const;
  void readSizes(Item &item) const;

  const Model &model_;
  const Batching batching_;
  std::string marks_; ///< Ragged: the expression of the only dim of the offsets or lengths.
  int64_t most_ = 0;  ///< The largest size of `dim` that the model supports.
  std::vector<InputRule> inputs_;
  std::vector<size_t> outputs_; ///< The dim along which each output is taken apart.
};

using Items = std::vector<const Combiner::Item *>;

} // namespace service

#endif // SERVICE_COMBINER_H
