//===- batch.h - the requests of one call of Triton's -----------*- C++ -*-===//

#ifndef TRITON_DISC_BATCH_H
#define TRITON_DISC_BATCH_H

#include "api.h"
#include "hosted_model.h"
#include "runs.h"

#include <string>
#include <vector>

namespace triton_disc {

/// Answers requests: reads their inputs, runs the library for those that may share a run, and sends each its response,
/// which may be an error of its own. Reports statistics.
class Batch : service::RunListener {
public:
  Batch(const HostedModel &model, TRITONBACKEND_ModelInstance *instance) : model_(model), instance_(instance) {}

  /// Takes the requests over.
  void answer(TRITONBACKEND_Request **requests, uint32_t count) noexcept;

private:
  using Time = Clock::time_point;

  struct Request {
    TRITONBACKEND_Request *handle;
    service::Combiner::Item item;
    int64_t batch = 0; ///< The first extent of its inputs; 0 for a model without batches.
    std::vector<size_t> outputs;
    bool isAnswered = false;
  };

  void prepare(Request &request) const;
  void readInput(TRITONBACKEND_Input *input, Request &request, std::vector<service::Tensor> &inputs) const;
  service::Tensor readElements(TRITONBACKEND_Input *input, const service::TensorSpec &spec, service::Shape shape,
                               uint64_t bytes, uint32_t buffers) const;
  void readOutputNames(Request &request) const;
  void writeOutputs(TRITONBACKEND_Response *response, const Request &request,
                    const std::vector<service::Tensor> &outputs) const;
  void respond(Request &request, const std::vector<service::Tensor> *outputs, TRITONSERVER_Error *error);

  Request &requestOf(const service::Combiner::Item &item);
  void reportRun() const;
  void ran(const service::Items &items, Time start, Time end) override;
  void divided() override {}
  void finished(const service::Combiner::Item &item, service::Outcome outcome) override;

  const HostedModel &model_;
  TRITONBACKEND_ModelInstance *const instance_;
  std::vector<Request> requests_;
  Time begin_, computeStart_, computeEnd_; ///< Of the call, and of the last run.
  size_t unanswered_ = 0;                  ///< Requests of the last run,
  int64_t rows_ = 0;                       ///< and its batch.
};

} // namespace triton_disc

#endif // TRITON_DISC_BATCH_H
