//===- ArenaPlanner.cpp - places for temporaries of symbolic size ---------===//

#include "lib/Transforms/Memory/ArenaPlanner.h"

#include "llvm/ADT/StringMap.h"
#include <numeric>
#include <set>

using namespace mlir;
using namespace mlir::disc;

ArenaLayout::ArenaLayout(ArrayRef<Lifetime> lives) : lifetimes(lives), adjacent(lives.size()) {
  for (unsigned i = 0; i < lives.size(); ++i)
    for (unsigned j = 0; j < i; ++j)
      if (lives[i].first <= lives[j].last && lives[j].first <= lives[i].last) {
        adjacent[i].push_back(j);
        adjacent[j].push_back(i);
      }
}

SmallVector<int64_t> ArenaLayout::offsets(ArrayRef<int64_t> sizes, ArrayRef<unsigned> order) const {
  SmallVector<int64_t> at(size(), -1);
  for (unsigned i : order) {
    int64_t offset = 0;
    for (unsigned j : adjacent[i])
      if (at[j] >= 0)
        offset = std::max(offset, at[j] + sizes[j]);
    at[i] = offset;
  }
  return at;
}

int64_t ArenaLayout::bytes(ArrayRef<int64_t> sizes, ArrayRef<int64_t> offsets) {
  int64_t end = 0;
  for (auto [size, offset] : llvm::zip(sizes, offsets))
    end = std::max(end, offset + size);
  return end;
}

int64_t ArenaLayout::largestLive(ArrayRef<int64_t> sizes) const {
  // The largest set is complete when one of its members is born.
  int64_t largest = 0;
  for (unsigned i = 0; i < size(); ++i) {
    int64_t live = sizes[i];
    for (unsigned j : adjacent[i])
      if (lifetimes[j].first <= lifetimes[i].first && lifetimes[j].last >= lifetimes[i].first)
        live += sizes[j];
    largest = std::max(largest, live);
  }
  return largest;
}

ArenaLayout::Order ArenaLayout::pack(ArrayRef<int64_t> sizes, ArrayRef<int64_t> priority) const {
  Order order(size());
  std::iota(order.begin(), order.end(), 0u);
  llvm::sort(order,
             [&](unsigned a, unsigned b) { return std::make_pair(priority[b], a) < std::make_pair(priority[a], b); });
  SmallVector<int64_t> at(size(), -1);
  for (unsigned i : order) {
    SmallVector<std::pair<int64_t, int64_t>> taken;
    for (unsigned j : adjacent[i])
      if (at[j] >= 0)
        taken.push_back({at[j], at[j] + sizes[j]});
    llvm::sort(taken);
    int64_t offset = 0;
    for (auto [begin, end] : taken) {
      if (offset + sizes[i] <= begin)
        break;
      offset = std::max(offset, end);
    }
    at[i] = offset;
  }
  std::iota(order.begin(), order.end(), 0u);
  // Empty ones share their offset with what comes next, and must not rest on it.
  llvm::sort(order, [&](unsigned a, unsigned b) {
    return std::make_tuple(at[a], sizes[a], a) < std::make_tuple(at[b], sizes[b], b);
  });
  return order;
}

SymExpr ArenaPlanner::align(const SymExpr &bytes, const ShapeAnalysis &shapes) {
  if (shapes.divisible(bytes, alignment))
    return bytes;
  return SymExpr::ceilDiv(bytes, SymExpr(alignment)) * SymExpr(alignment);
}

/// The temporaries' sizes at shapes where the symbols are small, large, typical, and all but one alike.
SmallVector<SmallVector<int64_t>> ArenaPlanner::sampleSizes(ArrayRef<Temporary> temporaries) {
  // A symbol without a maximum is taken this much above its minimum: far enough to change which sizes are larger.
  constexpr int64_t unbounded = 4096;
  std::set<std::string> names;
  for (const Temporary &t : temporaries)
    for (std::string &name : t.bytes.symbols())
      names.insert(name);
  llvm::StringMap<int64_t> low, high, typical;
  for (const std::string &name : names) {
    SymExpr symbol = SymExpr::symbol(name);
    ShapeAnalysis::Range range = shapes.range(symbol);
    low[name] = std::max<int64_t>(range.min.value_or(0), 1);
    high[name] = std::min(range.max.value_or(low[name] + unbounded), low[name] + (int64_t(1) << 20));
    typical[name] = shapes.typical(symbol);
  }
  SmallVector<llvm::StringMap<int64_t>> points = {typical, low, high};
  for (const std::string &name : names)
    for (const auto &base : {low, high, typical})
      for (const auto &other : {low, high, typical}) {
        points.push_back(base);
        points.back()[name] = other.lookup(name);
      }
  SmallVector<SmallVector<int64_t>> samples;
  for (const llvm::StringMap<int64_t> &point : points) {
    SmallVector<int64_t> sizes;
    for (const Temporary &t : temporaries)
      sizes.push_back(std::clamp<int64_t>(t.bytes.evaluate(point).value_or(0), 0, int64_t(1) << 50));
    if (!llvm::is_contained(samples, sizes))
      samples.push_back(std::move(sizes));
  }
  return samples;
}

ArenaPlanner::Plan ArenaPlanner::plan(ArrayRef<Temporary> temporaries) {
  SmallVector<ArenaLayout::Lifetime> lives;
  for (const Temporary &t : temporaries)
    lives.push_back(t.life);
  ArenaLayout layout(lives);
  SmallVector<SmallVector<int64_t>> samples = sampleSizes(temporaries);
  SmallVector<double> live;
  for (ArrayRef<int64_t> sizes : samples)
    live.push_back(std::max<int64_t>(layout.largestLive(sizes), 1));

  // How much more than the largest live set an order takes, at each sample.
  struct Candidate {
    ArenaLayout::Order order;
    SmallVector<double> ratios;
  };
  SmallVector<Candidate> candidates;
  auto add = [&](ArenaLayout::Order order) {
    Candidate c{std::move(order), {}};
    for (auto [sizes, least] : llvm::zip(samples, live))
      c.ratios.push_back(ArenaLayout::bytes(sizes, layout.offsets(sizes, c.order)) / least);
    candidates.push_back(std::move(c));
  };
  // Worst first, then the sum: the order that is never far off, and among those the one that is best on the whole.
  auto score = [](ArrayRef<double> ratios) {
    return std::make_pair(*std::max_element(ratios.begin(), ratios.end()),
                          std::accumulate(ratios.begin(), ratios.end(), 0.0));
  };
  for (ArrayRef<int64_t> sizes : samples)
    for (int heuristic = 0; heuristic < 4; ++heuristic) {
      SmallVector<int64_t> priority;
      for (auto [i, life] : llvm::enumerate(lives)) {
        int64_t steps = life.last - life.first + 1;
        priority.push_back(heuristic == 0   ? sizes[i]
                           : heuristic == 1 ? steps
                           : heuristic == 2 ? sizes[i] / steps
                                            : -life.first);
      }
      add(layout.pack(sizes, priority));
    }

  Plan plan{layout, {}};
  SmallVector<double> reached(samples.size(), std::numeric_limits<double>::infinity());
  constexpr unsigned maxOrders = 3;
  constexpr double goodEnough = 1.02, worthAnother = 0.99;
  while (plan.orders.size() < maxOrders) {
    auto with = [&](const Candidate &c) {
      SmallVector<double> ratios;
      for (auto [a, b] : llvm::zip(reached, c.ratios))
        ratios.push_back(std::min(a, b));
      return ratios;
    };
    const Candidate *best = &candidates.front();
    for (const Candidate &c : candidates)
      if (score(with(c)) < score(with(*best)))
        best = &c;
    SmallVector<double> next = with(*best);
    if (!plan.orders.empty() && score(next).first > worthAnother * score(reached).first)
      break;
    plan.orders.push_back(best->order);
    reached = next;
    if (score(reached).first <= goodEnough)
      break;
  }
  return plan;
}
