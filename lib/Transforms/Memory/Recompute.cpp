//===- Recompute.cpp - computing values again instead of keeping them -----===//

#include "lib/Transforms/Memory/Recompute.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir::disc;

namespace {
/// Of each value, the steps before or in which it is needed, ascending.
using Needs = std::vector<std::vector<int64_t>>;

/// How much each property counts when one value is chosen to be dropped: exponents.
struct Weights {
  double size, distance;
};

class Simulation {
public:
  /// `most` is what running steps again may cost.
  Simulation(const StepFlow &flow, int64_t limit, int64_t most, const Needs &needs, Weights weights)
      : flow(flow), limit(limit), most(most), needs(needs), weights(weights), made(flow.values.size(), kAbsent),
        locks(flow.values.size()), seen(flow.values.size()), firstNeed(flow.values.size()), again(flow.values.size()) {}

  /// All steps in order; false if the limit is too low.
  bool run() {
    for (now = 0; now < int64_t(flow.steps.size()); ++now)
      if (!perform(unsigned(now), std::nullopt))
        return false;
    return true;
  }

  StepSchedule schedule;
  /// What was needed to run steps again, also of an attempt that failed.
  const Needs &neededAgain() const { return again; }

private:
  static constexpr int64_t kAbsent = -1;
  static constexpr size_t kMostRuns = 4;

  bool isPresent(unsigned v) const { return made[v] != kAbsent; }

  /// The first step from `from` on that needs it; -1 if there is none.
  int64_t nextNeed(unsigned v, int64_t from) {
    const std::vector<int64_t> &list = needs[v];
    size_t &at = firstNeed[v];
    while (at < list.size() && list[at] < now)
      ++at;
    for (size_t i = at; i < list.size(); ++i)
      if (list[i] >= from)
        return list[i];
    return -1;
  }

  void keep(unsigned v, int64_t run) {
    made[v] = run;
    live += flow.values[v].bytes;
    kept.push_back(v);
  }

  void drop(unsigned v) {
    made[v] = kAbsent;
    live -= flow.values[v].bytes;
    kept.erase(llvm::find(kept, v));
  }

  /// The cost of making `v` again just before step `when`, from what is present now; nothing if that is impossible or
  /// costs more than `mostCost`.
  std::optional<double> costOf(unsigned v, int64_t when, double mostCost) {
    ++stamp;
    double sum = 0;
    llvm::SmallVector<unsigned> open = {v};
    seen[v] = stamp;
    while (!open.empty()) {
      const StepFlow::Step &step = flow.steps[flow.values[open.pop_back_val()].step];
      if (step.repeatableUntil <= when)
        return std::nullopt;
      sum += step.cost;
      if (sum > mostCost)
        return std::nullopt;
      for (unsigned w : step.writes)
        seen[w] = stamp;
      for (unsigned r : step.reads)
        if (!isPresent(r) && seen[r] != stamp) {
          seen[r] = stamp;
          open.push_back(r);
        }
    }
    return sum;
  }

  /// Drops values until so many bytes more are within the limit.
  bool makeRoom(int64_t bytes) {
    while (live + bytes > limit) {
      std::optional<unsigned> best;
      double least = 0;
      for (unsigned v : kept) {
        if (locks[v] || flow.values[v].bytes == 0)
          continue;
        int64_t need = std::max(nextNeed(v, now), now);
        double gain =
            std::pow(double(flow.values[v].bytes), weights.size) * std::pow(double(need - now + 1), weights.distance);
        double bound = best ? least * gain : std::numeric_limits<double>::infinity();
        if (std::optional<double> cost = costOf(v, need, bound); cost && *cost < bound) {
          best = v;
          least = *cost / gain;
        }
      }
      if (!best)
        return false;
      drop(*best);
    }
    return true;
  }

  /// Runs a step: for the first time, or again because a step that waits reads `wanted`.
  bool perform(unsigned number, std::optional<unsigned> wanted);

  const StepFlow &flow;
  const int64_t limit, most;
  const Needs &needs;
  const Weights weights;
  std::vector<int64_t> made; ///< The run that a present value comes from.
  std::vector<unsigned> locks, seen;
  std::vector<size_t> firstNeed;
  std::vector<unsigned> kept;
  Needs again;
  int64_t live = 0, now = 0;
  unsigned stamp = 0;
};
} // namespace

bool Simulation::perform(unsigned number, std::optional<unsigned> wanted) {
  const StepFlow::Step &step = flow.steps[number];
  const bool isFirst = !wanted;
  // Within a low limit, values can drive each other out without an end.
  if (schedule.extra > most || schedule.runs.size() > kMostRuns * flow.steps.size())
    return false;
  if (!isFirst && step.repeatableUntil <= now)
    return false;
  for (unsigned r : step.reads) {
    if (!isFirst)
      again[r].push_back(now);
    if (!isPresent(r) && !perform(flow.values[r].step, r))
      return false;
    ++locks[r];
  }
  // A value whose only lock is this step's is not needed by one that waits for it.
  auto isNeeded = [&](unsigned v, unsigned own) { return locks[v] > own || nextNeed(v, isFirst ? now + 1 : now) >= 0; };
  int64_t bytes = step.inner;
  llvm::SmallVector<unsigned> claimed;
  for (unsigned w : step.writes) {
    bytes += flow.values[w].bytes;
    for (auto [written, read] : step.inPlace)
      if (written == w && flow.values[read].bytes == flow.values[w].bytes && !isNeeded(read, 1) &&
          !llvm::is_contained(claimed, read)) {
        claimed.push_back(read);
        bytes -= flow.values[w].bytes;
        break;
      }
  }
  if (!makeRoom(bytes))
    return false;
  schedule.peak = std::max(schedule.peak, live + bytes);
  StepSchedule::Run run{number, !isFirst, {}};
  for (unsigned r : step.reads) {
    run.from.push_back(unsigned(made[r]));
    --locks[r];
  }
  int64_t place = schedule.runs.size();
  schedule.runs.push_back(std::move(run));
  if (!isFirst)
    schedule.extra += step.cost;
  for (unsigned r : step.reads)
    if (isPresent(r) && !isNeeded(r, 0))
      drop(r);
  // Where a step is run again for one of its values, another that is still there stays.
  for (unsigned w : step.writes)
    if (!isPresent(w) && (w == wanted || isNeeded(w, 0)))
      keep(w, place);
  return true;
}

int64_t StepFlow::cost() const {
  int64_t sum = 0;
  for (const Step &step : steps)
    sum += step.cost;
  return sum;
}

std::optional<StepSchedule> mlir::disc::scheduleWithin(const StepFlow &flow, int64_t limit, bool quick) {
  Needs direct(flow.values.size());
  for (auto [number, step] : llvm::enumerate(flow.steps))
    for (unsigned r : step.reads)
      direct[r].push_back(int64_t(number));
  // Nobody wants a plan that takes three times as long.
  const int64_t mostExtra = 2 * flow.cost();
  const int attempts = quick ? 2 : 6;
  std::optional<StepSchedule> best;
  // Which is best depends on the flow, and an attempt takes about a millisecond for some hundred steps.
  for (Weights weights : {Weights{1, 1}, {1, 0.5}, {1, 0}, {0.5, 1}, {1, 2}}) {
    Needs needs = direct;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      Simulation simulation(flow, limit, best ? best->extra : mostExtra, needs, weights);
      if (simulation.run() && (!best || simulation.schedule.extra < best->extra)) {
        best = std::move(simulation.schedule);
        if (best->extra == 0 || quick)
          return best;
      }
      Needs merged = direct;
      for (auto [list, more] : llvm::zip(merged, simulation.neededAgain())) {
        list.insert(list.end(), more.begin(), more.end());
        llvm::sort(list);
        list.erase(std::unique(list.begin(), list.end()), list.end());
      }
      if (merged == needs)
        break;
      needs = std::move(merged);
    }
  }
  return best;
}

std::pair<int64_t, int64_t> mlir::disc::measure(const StepSchedule &schedule, const StepFlow &flow) {
  // The last run that reads what a run wrote, for each of the values.
  std::vector<std::vector<int64_t>> lastUse;
  for (const StepSchedule::Run &run : schedule.runs)
    lastUse.emplace_back(flow.steps[run.step].writes.size(), -1);
  for (auto [number, run] : llvm::enumerate(schedule.runs))
    for (auto [value, from] : llvm::zip(flow.steps[run.step].reads, run.from)) {
      const std::vector<unsigned> &writes = flow.steps[schedule.runs[from].step].writes;
      lastUse[from][llvm::find(writes, value) - writes.begin()] = int64_t(number);
    }
  std::vector<std::vector<std::pair<unsigned, int64_t>>> ending(schedule.runs.size()); // values and their bytes
  int64_t live = 0, peak = 0, extra = 0;
  for (auto [number, run] : llvm::enumerate(schedule.runs)) {
    const StepFlow::Step &step = flow.steps[run.step];
    int64_t bytes = step.inner;
    llvm::SmallVector<unsigned> claimed;
    for (auto [place, w] : llvm::enumerate(step.writes)) {
      int64_t size = flow.values[w].bytes;
      bytes += size;
      for (auto [written, read] : step.inPlace) {
        if (written != w || flow.values[read].bytes != size || llvm::is_contained(claimed, read) ||
            llvm::none_of(ending[number], [&, r = read](auto &e) { return e.first == r; }))
          continue;
        claimed.push_back(read);
        bytes -= size;
        break;
      }
    }
    peak = std::max(peak, live + bytes);
    extra += run.again ? step.cost : 0;
    for (auto [place, w] : llvm::enumerate(step.writes))
      if (int64_t last = lastUse[number][place]; last >= 0) {
        live += flow.values[w].bytes;
        ending[last].push_back({w, flow.values[w].bytes});
      }
    for (auto &[value, size] : ending[number])
      live -= size;
  }
  return {peak, extra};
}
