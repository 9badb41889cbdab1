//===- runs.h - runs of a model for one request or several ------*- C++ -*-===//

#ifndef SERVICE_RUNS_H
#define SERVICE_RUNS_H

#include "combiner.h"

#include <chrono>
#include <optional>
#include <vector>

namespace service {

/// The results of a request, or the reason why there are none.
struct Outcome {
  std::vector<Tensor> outputs;
  std::optional<RequestError> error;
};

/// Hears of runs, on the thread that runs them.
class RunListener {
public:
  using Clock = std::chrono::steady_clock;

  virtual ~RunListener() = default;

  /// A run for these items succeeded.
  virtual void ran(const Items &items, Clock::time_point start, Clock::time_point end) = 0;

  /// A run for several items failed. Each item then gets a run of its own.
  virtual void divided() = 0;

  /// Called once for each item, after the run that produced its results.
  virtual void finished(const Combiner::Item &item, Outcome outcome) = 0;
};

/// Runs the model for all items; those with equal keys share runs as the combiner plans them. A shared run that fails
/// is repeated item by item, so that an item cannot harm another one.
void runItems(const Model &model, const Combiner &combiner, const Items &items, RunListener &listener);

} // namespace service

#endif // SERVICE_RUNS_H
