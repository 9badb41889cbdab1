//===- Recompute.h - computing values again instead of keeping them -*- C++ -*-===//
//
// A flow of steps, which read and write values, at one set of sizes. Its schedule within a limit runs all steps in
// their order; where the values that are alive would exceed the limit, one is dropped that other steps still need, and
// the step that made it is run again before them. Which one is dropped follows the rule of Dynamic Tensor
// Rematerialization (Kirisame et al., arXiv 2006.09616): what costs least to make again, for its size and for the time
// until it is needed. There the past says when that will be; here the flow is known, so it is the truth:
//
//   steps     a = f()    b = g(a)    c = h(b)    d = k(c, b)    e = m(d, a)      limit: two values
//   schedule  a = f()    b = g(a)    [a dropped] c = h(b)    d = k(c, b)    a = f()    e = m(d, a)
//
// What is run again has needs too, of values that no later step reads. They are recorded, and in the next attempt such
// values may be kept (the input of a layer, from which all others in it can be made).
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_MEMORY_RECOMPUTE_H
#define DISC_TRANSFORMS_MEMORY_RECOMPUTE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace mlir::disc {

/// The steps of a host flow.
struct StepFlow {
  static constexpr int64_t kNever = -1, kAlways = std::numeric_limits<int64_t>::max();

  struct Step {
    std::vector<unsigned> reads, writes;                ///< Values; each once.
    std::vector<std::pair<unsigned, unsigned>> inPlace; ///< A value written may take the memory of one read.
    int64_t cost = 0;                                   ///< Nanoseconds.
    int64_t inner = 0;                                  ///< Bytes that it needs beside its values while it runs.
    /// It may be run again before the step of this number, which changes what it reads.
    int64_t repeatableUntil = kAlways;
  };
  struct Value {
    int64_t bytes = 0;
    unsigned step = 0; ///< That writes it.
  };

  std::vector<Step> steps;
  std::vector<Value> values;

  int64_t cost() const;
};

/// The order in which steps are run, some of them several times.
struct StepSchedule {
  struct Run {
    unsigned step;
    bool again;
    std::vector<unsigned> from; ///< For each value that the step reads, the run that wrote it.
  };
  std::vector<Run> runs;
  int64_t peak = 0;  ///< Bytes of the values alive at once.
  int64_t extra = 0; ///< Cost of what is run again.
};

/// A schedule whose peak is at most `limit`; nothing if none is found. With `quick` it is the first one found.
std::optional<StepSchedule> scheduleWithin(const StepFlow &flow, int64_t limit, bool quick = false);

/// The peak of a schedule at other sizes and costs of the same flow, and the cost of what it runs again.
std::pair<int64_t, int64_t> measure(const StepSchedule &schedule, const StepFlow &flow);

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_RECOMPUTE_H
