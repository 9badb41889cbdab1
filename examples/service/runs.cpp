//===- runs.cpp - runs of a model for one request or several --------------===//

#include "runs.h"

#include <algorithm>
#include <new>

namespace service {

using Clock = RunListener::Clock;

static void runAlone(const Model &model, const Combiner::Item &item, RunListener &listener) {
  Outcome outcome;
  try {
    auto start = Clock::now();
    outcome.outputs = model.run(item.inputs);
    listener.ran({&item}, start, Clock::now());
  } catch (const RequestError &error) {
    outcome.error.emplace(error);
  } catch (const std::bad_alloc &) {
    outcome.error.emplace(RequestError::Kind::Failed, "there is not enough memory for the run");
  } catch (const std::exception &error) {
    outcome.error.emplace(RequestError::Kind::Failed, error.what());
  }
  listener.finished(item, std::move(outcome));
}

static void runTogether(const Model &model, const Combiner &combiner, const Items &items, RunListener &listener) {
  std::vector<std::vector<Tensor>> results;
  try {
    std::vector<Tensor> inputs = combiner.combine(items);
    auto start = Clock::now();
    std::vector<Tensor> outputs = model.run(inputs);
    auto end = Clock::now();
    results = combiner.split(items, outputs);
    listener.ran(items, start, end);
  } catch (const std::exception &) {
    // One of them may be to blame: the others shall not suffer for it.
    listener.divided();
    for (const Combiner::Item *item : items)
      runAlone(model, *item, listener);
    return;
  }
  for (size_t i = 0; i < items.size(); ++i)
    listener.finished(*items[i], {std::move(results[i]), std::nullopt});
}

void runItems(const Model &model, const Combiner &combiner, const Items &items, RunListener &listener) {
  std::vector<bool> taken(items.size());
  for (size_t first = 0; first < items.size(); ++first) {
    if (taken[first])
      continue;
    if (!items[first]->joins) {
      runAlone(model, *items[first], listener);
      continue;
    }
    Items equals;
    for (size_t i = first; i < items.size(); ++i) {
      if (taken[i] || !items[i]->joins || items[i]->key != items[first]->key)
        continue;
      taken[i] = true;
      equals.push_back(items[i]);
    }
    for (const Items &run : combiner.plan(std::move(equals))) {
      if (run.size() == 1)
        runAlone(model, *run[0], listener);
      else
        runTogether(model, combiner, run, listener);
    }
  }
}

} // namespace service
