//===- ContractionGraph.cpp - merging nodes without cycles -----------------===//

#include "lib/Transforms/Library/ContractionGraph.h"

#include "llvm/ADT/DenseSet.h"

#include <numeric>

using namespace mlir::disc;

ContractionGraph::ContractionGraph(unsigned size) : parent(size), next(size), previous(size), rank(size), order(size) {
  std::iota(parent.begin(), parent.end(), 0);
  std::iota(rank.begin(), rank.end(), 0);
  std::iota(order.begin(), order.end(), 0);
}

void ContractionGraph::addEdge(unsigned from, unsigned to) {
  assert(from < to && "edges follow the order of the nodes");
  next[from].insert(to);
  previous[to].insert(from);
}

unsigned ContractionGraph::find(unsigned node) {
  while (parent[node] != node)
    node = parent[node] = parent[parent[node]];
  return node;
}

bool ContractionGraph::contract(unsigned a, unsigned b) {
  a = find(a);
  b = find(b);
  if (a == b)
    return true;
  if (rank[a] > rank[b])
    std::swap(a, b);
  // Everything between them that follows from `a` must come after the merged node, and must not lead to `b`.
  llvm::DenseSet<unsigned> following;
  llvm::SmallVector<unsigned> worklist;
  auto visit = [&](unsigned node) {
    if (rank[node] < rank[b] && following.insert(node).second)
      worklist.push_back(node);
  };
  for (unsigned node : next[a])
    visit(node);
  while (!worklist.empty()) {
    unsigned node = worklist.pop_back_val();
    if (next[node].contains(b))
      return false;
    for (unsigned later : next[node])
      visit(later);
  }

  unsigned begin = rank[a], end = rank[b];
  llvm::SmallVector<unsigned> before, after;
  for (unsigned i = begin + 1; i < end; ++i)
    (following.contains(order[i]) ? after : before).push_back(order[i]);
  // `b` keeps a place of its own behind the merged node; no edge uses it.
  before.push_back(a);
  before.push_back(b);
  before.append(after);
  for (auto [i, node] : llvm::enumerate(before)) {
    order[begin + i] = node;
    rank[node] = begin + i;
  }

  parent[b] = a;
  for (unsigned node : next[b]) {
    previous[node].remove(b);
    if (node != a) {
      next[a].insert(node);
      previous[node].insert(a);
    }
  }
  for (unsigned node : previous[b]) {
    next[node].remove(b);
    if (node != a) {
      previous[a].insert(node);
      next[node].insert(a);
    }
  }
  next[b].clear();
  previous[b].clear();
  return true;
}
