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
  Trees(const disc_view &children, const disc_view &present, const int64_t *uses)
      : nodes(children.dims[0]), arity(children.dims[1]), fields(present.dims[1]), children(children), present(present),
        uses(uses) {}

  const int64_t nodes, arity, fields;

  int64_t child(int64_t node, int64_t i) const {
    return static_cast<const int64_t *>(children.data)[node * children.strides[0] + i * children.strides[1]];
  }

  /// The optional fields that a node has, and above them its children, as bits.
  int64_t pattern(int64_t node) const {
    uint64_t bits = 0;
    const auto *flags = static_cast<const uint8_t *>(present.data) + node * present.strides[0];
    for (int64_t i = 0; i < fields; ++i)
      bits |= uint64_t(flags[i * present.strides[1]] != 0) << i;
    for (int64_t i = 0; i < arity; ++i)
      bits |= uint64_t(child(node, i) >= 0) << (fields + i);
    return int64_t(bits);
  }

  /// Calls `body` with the children that a node's code uses.
  template <typename Body> void forEachUsed(int64_t node, int64_t pattern, Body body) const {
    for (int64_t i = 0; i < arity; ++i)
      if (int64_t at = child(node, i); at >= 0 && (uses[pattern] >> i & 1))
        body(at);
  }

private:
  const disc_view &children, &present;
  const int64_t *uses;
};

/// Memory that is handed out piece by piece.
struct Pieces {
  int64_t *take(int64_t count) { return std::exchange(next, next + count); }
  int64_t *next;
};
} // namespace

/// An error with numbers in its text, which is read before the function that gets it returns.
static int32_t fail(disc_call *call, const char *format, int64_t a, int64_t b = 0, int64_t c = 0) {
  char text[160];
  std::snprintf(text, sizeof(text), format, a, b, c);
  return disc_rt_function_failed(call, DISC_ERROR_INDEX, text);
}

/// Heights of `count` nodes where children may stand anywhere: a node is done after its children. -1, or a node of a
/// cycle.
static int64_t heightsInAnyOrder(const Trees &trees, const int64_t *nodes, int64_t count, const int64_t *pattern,
                                 int64_t *height, Pieces pieces) {
  int64_t *pending = pieces.take(trees.nodes), *queue = pieces.take(trees.nodes);
  int64_t *first = pieces.take(trees.nodes + 2), *parents = pieces.take(trees.nodes * trees.arity);
  std::fill_n(pending, trees.nodes, 0);
  std::fill_n(first, trees.nodes + 2, 0);
  for (int64_t i = 0; i < count; ++i)
    trees.forEachUsed(nodes[i], pattern[nodes[i]], [&](int64_t child) {
      ++pending[nodes[i]];
      ++first[child + 2];
    });
  for (int64_t i = 0; i < trees.nodes; ++i)
    first[i + 2] += first[i + 1];
  int64_t end = 0;
  for (int64_t i = 0; i < count; ++i) {
    trees.forEachUsed(nodes[i], pattern[nodes[i]], [&](int64_t child) { parents[first[child + 1]++] = nodes[i]; });
    if (pending[nodes[i]] == 0)
      queue[end++] = nodes[i];
  }
  for (int64_t at = 0; at < end; ++at)
    for (int64_t i = first[queue[at]]; i < first[queue[at] + 1]; ++i) {
      int64_t node = parents[i];
      height[node] = std::max(height[node], height[queue[at]] + 1);
      if (--pending[node] == 0)
        queue[end++] = node;
    }
  if (end == count)
    return -1;
  // What is not done has a child that is not done: stepping from child to child ends in a circle.
  int64_t node = 0;
  while (pending[node] == 0)
    ++node;
  for (int64_t step = 0; step < count; ++step) {
    int64_t next = node;
    trees.forEachUsed(node, pattern[node], [&](int64_t child) { next = pending[child] > 0 ? child : next; });
    node = next;
  }
  return node;
}

/// Sorts by key, of equal ones the first first.
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

/// children i64 [n, a], present bool [n, f] -> order i64 [n], rows i64 [n, a], leaves i64 [2^(a + f) + 1],
/// starts i64 [n + 1], kinds i64 [n], count i64 [], root i64 []: the nodes that node 0 needs, in an order in which
/// children come first, and what is alike in groups. `present` and then `children` are the bits of a node's pattern; of
/// each pattern, config says as bits which children its code uses, or -1 if there is no code for it. In `order`, the
/// nodes that use no child stand first, those of pattern p from leaves[p] to leaves[p + 1]; behind them, by height and
/// pattern, `count` groups: group g from starts[g] to starts[g + 1]. `rows` are the children of the nodes in this
/// order, by their places in it (-1: none, or not used), `kinds` their patterns, and `root` is the place of node 0.
/// What lies behind is 0, in `kinds` -1.
///
/// Indices out of range, cycles and patterns without code are errors; nodes may have several parents or none. a + f is
/// at most 6. config: a number for each pattern. One task; scratch: 8 * (n * (a + 7) + 80).
int32_t disc_fn_tree_schedule(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t,
                              void *scratch) {
  if (operands[0].dims[1] + operands[1].dims[1] > 6)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "more than 6 children and optional fields");
  const Trees trees(operands[0], operands[1], config);
  const int64_t nodes = trees.nodes, arity = trees.arity, patterns = int64_t(1) << (trees.fields + arity);
  auto result = [&](int i) { return static_cast<int64_t *>(operands[2 + i].data); };
  int64_t *order = result(0), *rows = result(1), *leaves = result(2), *starts = result(3), *kinds = result(4);
  if (nodes == 0)
    return disc_rt_function_failed(call, DISC_ERROR_INDEX, "a tree without nodes");

  Pieces pieces = {static_cast<int64_t *>(scratch)};
  int64_t *pattern = pieces.take(nodes), *height = pieces.take(nodes), *reached = pieces.take(nodes);
  for (int64_t node = 0; node < nodes; ++node) {
    for (int64_t i = 0; i < arity; ++i)
      if (int64_t child = trees.child(node, i); child < -1 || child >= nodes)
        return fail(call, "child %" PRId64 " of node %" PRId64 " is %" PRId64 ", which is no node", i, node, child);
    pattern[node] = trees.pattern(node);
  }

  // What the root needs; a node that was met has a height, 0 so far.
  std::fill_n(height, nodes, -1);
  int64_t count = 0;
  bool childrenBehind = true;
  reached[count++] = height[0] = 0;
  for (int64_t at = 0; at < count; ++at) {
    int64_t node = reached[at];
    if (config[pattern[node]] < 0)
      return fail(call, "the model's code is not for the children and optional fields of node %" PRId64, node);
    trees.forEachUsed(node, pattern[node], [&](int64_t child) {
      childrenBehind &= child > node;
      if (height[child] < 0) {
        height[child] = 0;
        reached[count++] = child;
      }
    });
  }
  if (childrenBehind) {
    // As trees are flattened: a parent, then its children.
    for (int64_t node = nodes; node-- > 0;)
      if (height[node] == 0)
        trees.forEachUsed(node, pattern[node],
                          [&](int64_t child) { height[node] = std::max(height[node], height[child] + 1); });
  } else if (int64_t node = heightsInAnyOrder(trees, reached, count, pattern, height, pieces); node >= 0) {
    return fail(call, "node %" PRId64 " is below itself: the children of a tree must not lead back to a parent", node);
  }

  int64_t *sorted = pieces.take(nodes), *places = pieces.take(std::max(nodes, patterns) + 1);
  sortByKey(reached, sorted, count, places, patterns, [&](int64_t node) { return pattern[node]; });
  sortByKey(sorted, order, count, places, nodes, [&](int64_t node) { return height[node]; });
  int64_t *place = sorted;
  for (int64_t i = 0; i < count; ++i)
    place[order[i]] = i;
  std::fill_n(rows, nodes * arity, 0);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < arity; ++k) {
      int64_t child = trees.child(order[i], k);
      rows[i * arity + k] = child < 0 || !(config[pattern[order[i]]] >> k & 1) ? -1 : place[child];
    }
  int64_t at = 0;
  for (int64_t p = 0; p < patterns; ++p) {
    leaves[p] = at;
    while (at < count && height[order[at]] == 0 && pattern[order[at]] == p)
      ++at;
    leaves[p + 1] = at;
  }
  for (int64_t i = 0; i < nodes; ++i)
    kinds[i] = i < count ? pattern[order[i]] : -1;
  std::fill_n(starts, nodes + 1, 0);
  int64_t groups = 0;
  for (; at < count; ++at)
    if (groups == 0 || height[order[at]] != height[order[at - 1]] || kinds[at] != kinds[at - 1])
      starts[groups++] = at;
  starts[groups] = count;
  std::fill(order + count, order + nodes, 0);
  *result(5) = groups;
  *result(6) = place[0];
  return DISC_OK;
}
