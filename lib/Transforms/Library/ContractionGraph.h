//===- ContractionGraph.h - merging nodes without cycles ---------*- C++ -*-===//
//
// A directed acyclic graph whose nodes are merged along edges as long as it stays acyclic. It keeps a topological
// order, so that a search for a path between two nodes visits only the nodes between them. The order is mended after a
// merge as in D. Pearce, P. Kelly, "A Dynamic Topological Sort Algorithm for Directed Acyclic Graphs", JEA 11, 2006.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_LIBRARY_CONTRACTIONGRAPH_H
#define DISC_TRANSFORMS_LIBRARY_CONTRACTIONGRAPH_H

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace mlir::disc {

class ContractionGraph {
public:
  /// Nodes 0 to `size - 1`; their numbers are a topological order of the edges that follow.
  explicit ContractionGraph(unsigned size);

  /// Adds an edge; `from < to`. Before the first contraction.
  void addEdge(unsigned from, unsigned to);

  /// The node that `node` is a part of.
  unsigned find(unsigned node);

  /// Merges the parts of `a` and `b` into one node, unless a path that leaves both leads from one to the other: then
  /// nothing changes, and the result is false. There need not be an edge between them.
  bool contract(unsigned a, unsigned b);

  /// Whether the part of `a` comes before that of `b` in the order: without that no path leads from `a` to `b`.
  bool isBefore(unsigned a, unsigned b) { return rank[find(a)] < rank[find(b)]; }

  /// Direct successors of a node that `find` returned.
  const llvm::SetVector<unsigned> &successors(unsigned node) const { return next[node]; }

private:
  std::vector<unsigned> parent;
  std::vector<llvm::SetVector<unsigned>> next, previous;
  std::vector<unsigned> rank, order; // of a node, and its inverse
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_LIBRARY_CONTRACTIONGRAPH_H
