//===- layout.h - a model's tensors as Triton's clients see them -*- C++ -*-===//

#ifndef TRITON_DISC_LAYOUT_H
#define TRITON_DISC_LAYOUT_H

#include "combiner.h"

#include <string>
#include <vector>

namespace triton_disc {

using service::Shape;
using service::Tensor;
using service::TensorSpec;

/// An input or output.
struct Port {
  enum class Form {
    Same,   ///< Clients see the library's shape. With batches, that begins with the batch.
    Tokens, ///< [sequences, length, ...] for clients, [tokens, ...] for the library.
    Made    ///< Clients do not see it: the offsets or lengths of the sequences.
  };

  const TensorSpec *spec;
  Form form = Form::Same;
  Shape min, max;        ///< Without the batch.
  bool isNumber = false; ///< Without dims for the library; [1] for Triton, which has no tensors without dims.
  bool ragged = false;   ///< Requests whose sizes differ may share a run.
  bool optional = false; ///< The mask, which the backend makes if it is missing.

  /// For config.pbtxt: -1 for a dim of more than one size.
  Shape dims() const;

  void treatNumber();
};

/// How the tensors of Triton's requests become those of the library. Without batches they are the same. With batches,
/// the first dim is the batch. For a model of concatenated sequences, the batch counts sequences:
///
///   values [2, 5, 8]  ->  values [10, 8], offsets [0, 5, 10]      each [10, 3] -> [2, 5, 3]    sums [2, 3] -> [2, 3]
class Layout {
public:
  /// `maxBatch`: as in config.pbtxt, 0 without batches. Throws std::runtime_error if the model cannot have such
  /// batches.
  Layout(const service::Signature &signature, const service::Batching &batching, const service::Combiner &combiner,
         int64_t maxBatch);

  bool hasBatch() const { return hasBatch_; }

  /// In the order of the library.
  const std::vector<Port> &inputs() const { return inputs_; }
  const std::vector<Port> &outputs() const { return outputs_; }

  /// The library's inputs from those of a request, which have the library's datatypes and, but for Made ones, elements.
  /// Throws RequestError(Invalid).
  void toLibrary(std::vector<Tensor> &inputs) const;

  /// The shape of an output for the request whose inputs had these shapes before toLibrary.
  Shape toClient(size_t output, const Shape &library, int64_t batch) const;

private:
  void addPorts(const std::vector<TensorSpec> &specs, const char *kind, const service::Batching &batching,
                const service::Combiner &combiner, std::vector<Port> &to) const;
  void checkLargestBatch(const service::Batching &batching, int64_t maxBatch) const;

  bool hasBatch_, byOffsets_ = false;
  std::vector<Port> inputs_, outputs_;
};

/// Of a model that has batches and no rule for them: they are concatenated along the first dim of all its tensors.
/// Throws std::runtime_error if that is not one dim.
service::Batching plainBatching(const service::Signature &signature);

} // namespace triton_disc

#endif // TRITON_DISC_LAYOUT_H
