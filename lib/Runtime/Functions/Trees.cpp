//===- Trees.cpp - the order in which the nodes of trees are computed ------===//

#include "lib/Runtime/Functions/Elements.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <utility>

using namespace disc::rt;

namespace {
/// Trees as tables: row i of `children` has the children of node i, -1 where there is none, and row i of `present` says
/// which of its optional fields it has.
class Trees {
public:
  Trees(const disc_view &children, const disc_view &present)
      : children(children), present(present), nodes(children.dims[0]), arity(children.dims[1]), fields(present.dims[1]) {
  }

  int64_t child(int64_t node, int64_t i) const {
    return static_cast<const int64_t *>(children.data)[node * children.strides[0] + i * children.strides[1]];
  }

  /// The optional fields that a node has, and above them its children, as bits.
  uint64_t pattern(int64_t node) const {
    uint64_t bits = 0;
    const auto *flags = static_cast<const uint8_t *>(present.data) + node * present.strides[0];
    for (int64_t i = 0; i < fields; ++i)
      bits |= uint64_t(flags[i * present.strides[1]] != 0) << i;
    for (int64_t i = 0; i < arity; ++i)
      bits |= uint64_t(child(node, i) >= 0) << (fields + i);
    return bits;
  }

private:
  const disc_view &children, &present;

public:
  const int64_t nodes, arity, fields;
};

/// Memory that is handed out piece by piece.
struct Pieces {
  int64_t *take(int64_t count) { return std::exchange(next, next + count); }
  int64_t *next;
};
} // namespace

/// A text with three numbers. It is read before the function that gets it returns.
static int32_t fail(disc_call *call, const char *format, int64_t a, int64_t b = 0, int64_t c = 0) {
  char text[160];
  std::snprintf(text, sizeof(text), format, a, b, c);
  return disc_rt_function_failed(call, DISC_ERROR_INDEX, text);
}

/// Steps from child to child among nodes that are not done, all of which have such a child: they end up in a circle.
static int64_t nodeOfCycle(const Trees &trees, const int64_t *pending) {
  int64_t node = 0;
  while (pending[node] == 0)
    ++node;
  for (int64_t step = 0; step < trees.nodes; ++step)
    for (int64_t i = 0; i < trees.arity; ++i)
      if (int64_t child = trees.child(node, i); child >= 0 && pending[child] > 0) {
        node = child;
        break;
      }
  return node;
}

/// Heights where children may stand anywhere: a node is done after its children. -1, or a node of a cycle.
static int64_t heightsInAnyOrder(const Trees &trees, int64_t *height, Pieces pieces) {
  int64_t *pending = pieces.take(trees.nodes), *queue = pieces.take(trees.nodes);
  int64_t *first = pieces.take(trees.nodes + 2), *parents = pieces.take(trees.nodes * trees.arity);
  std::fill_n(pending, trees.nodes, 0);
  std::fill_n(height, trees.nodes, 0);
  std::fill_n(first, trees.nodes + 2, 0);
  auto forEach = [&](auto body) {
    for (int64_t node = 0; node < trees.nodes; ++node)
      for (int64_t i = 0; i < trees.arity; ++i)
        if (int64_t child = trees.child(node, i); child >= 0)
          body(node, child);
  };
  forEach([&](int64_t node, int64_t child) {
    ++pending[node];
    ++first[child + 2];
  });
  for (int64_t i = 0; i < trees.nodes; ++i)
    first[i + 2] += first[i + 1];
  forEach([&](int64_t node, int64_t child) { parents[first[child + 1]++] = node; });
  int64_t end = 0;
  for (int64_t node = 0; node < trees.nodes; ++node)
    if (pending[node] == 0)
      queue[end++] = node;
  for (int64_t at = 0; at < end; ++at) {
    int64_t child = queue[at];
    for (int64_t i = first[child]; i < first[child + 1]; ++i) {
      int64_t node = parents[i];
      height[node] = std::max(height[node], height[child] + 1);
      if (--pending[node] == 0)
        queue[end++] = node;
    }
  }
  return end == trees.nodes ? -1 : nodeOfCycle(trees, pending);
}

/// Sorts `from` by key, of equal ones the first first.
template <typename Key>
static void sortByKey(const int64_t *from, int64_t *to, int64_t count, int64_t *starts, int64_t keys, Key key) {
  std::fill_n(starts, keys + 1, 0);
  for (int64_t i = 0; i < count; ++i)
    ++starts[key(from[i]) + 1];
  for (int64_t i = 0; i < keys; ++i)
    starts[i + 1] += starts[i];
  for (int64_t i = 0; i < count; ++i)
    to[starts[key(from[i])]++] = from[i];
}

/// children i64 [n, a], present bool [n, f] -> order i64 [n], rows i64 [n, a], leaves i64 [2^f + 1], starts i64 [n + 1],
/// kinds i64 [n], count i64 [], root i64 []: the nodes in an order in which children come first, and what is alike in
/// groups. `present` and then `children` are the bits of a node's pattern. The nodes without children stand first in
/// `order`, those of pattern p from leaves[p] to leaves[p + 1]; behind them, by height and pattern, `count` groups: group
/// g from starts[g] to starts[g + 1], of pattern kinds[g]. `rows` are the children of the nodes in this order, by their
/// places in it (-1: none), and `root` is the place of node 0. What lies behind the groups is unspecified.
///
/// Indices out of range, cycles and patterns that are not allowed are errors; nodes may have several parents or none.
/// a + f is at most 6. config: bit p of the one number says whether pattern p is allowed. One task; scratch:
/// 8 * (n * (a + 5) + 80).
int32_t disc_fn_tree_schedule(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t,
                              void *scratch) {
  if (operands[0].dims[1] + operands[1].dims[1] > 6)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "more than 6 children and optional fields");
  const Trees trees(operands[0], operands[1]);
  const int64_t nodes = trees.nodes, arity = trees.arity, patterns = int64_t(1) << (trees.fields + arity);
  auto result = [&](int i) { return static_cast<int64_t *>(operands[2 + i].data); };
  int64_t *order = result(0), *rows = result(1), *leaves = result(2), *starts = result(3), *kinds = result(4);
  if (nodes == 0)
    return disc_rt_function_failed(call, DISC_ERROR_INDEX, "a tree without nodes");

  Pieces pieces = {static_cast<int64_t *>(scratch)};
  int64_t *pattern = pieces.take(nodes), *height = pieces.take(nodes);
  bool childrenBehind = true;
  for (int64_t node = 0; node < nodes; ++node) {
    for (int64_t i = 0; i < arity; ++i) {
      int64_t child = trees.child(node, i);
      if (child < -1 || child >= nodes)
        return fail(call, "child %" PRId64 " of node %" PRId64 " is %" PRId64 ", which is no node", i, node, child);
      childrenBehind &= child < 0 || child > node;
    }
    pattern[node] = int64_t(trees.pattern(node));
    if (!(uint64_t(config[0]) >> pattern[node] & 1))
      return fail(call,
                  "node %" PRId64 " has children and optional fields that the model's code is not for (as bits: %" PRId64
                  ")",
                  node, pattern[node]);
  }
  if (childrenBehind) {
    // As trees are flattened: a parent, then its children.
    for (int64_t node = nodes; node-- > 0;) {
      height[node] = 0;
      for (int64_t i = 0; i < arity; ++i)
        if (int64_t child = trees.child(node, i); child >= 0)
          height[node] = std::max(height[node], height[child] + 1);
    }
  } else if (int64_t node = heightsInAnyOrder(trees, height, pieces); node >= 0) {
    return fail(call, "node %" PRId64 " is a child of its own: children must not lead back to a parent", node);
  }

  // By pattern, and then by height, which keeps the order of equal ones.
  int64_t *byPattern = pieces.take(nodes), *places = pieces.take(std::max(nodes, patterns) + 1);
  for (int64_t i = 0; i < nodes; ++i)
    order[i] = i;
  sortByKey(order, byPattern, nodes, places, patterns, [&](int64_t node) { return pattern[node]; });
  sortByKey(byPattern, order, nodes, places, nodes, [&](int64_t node) { return height[node]; });

  int64_t *place = byPattern;
  for (int64_t i = 0; i < nodes; ++i)
    place[order[i]] = i;
  for (int64_t i = 0; i < nodes; ++i)
    for (int64_t k = 0; k < arity; ++k) {
      int64_t child = trees.child(order[i], k);
      rows[i * arity + k] = child < 0 ? -1 : place[child];
    }
  int64_t at = 0;
  for (int64_t p = 0; p < int64_t(1) << trees.fields; ++p) {
    leaves[p] = at;
    while (at < nodes && height[order[at]] == 0 && pattern[order[at]] == p)
      ++at;
    leaves[p + 1] = at;
  }
  int64_t groups = 0;
  for (; at < nodes; ++at) {
    int64_t node = order[at], before = at ? order[at - 1] : node;
    if (groups && height[node] == height[before] && pattern[node] == pattern[before])
      continue;
    starts[groups] = at;
    kinds[groups++] = pattern[node];
  }
  starts[groups] = nodes;
  *result(5) = groups;
  *result(6) = place[0];
  return DISC_OK;
}
