//===- TreesTest.cpp - schedules of trees ----------------------------------===//

#include "Check.h"
#include "lib/Runtime/Functions/Function.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

using namespace disc::rt;

namespace {
using Numbers = std::vector<int64_t>;

/// The function's operands and results.
struct Schedule {
  /// `children`: those of each node; `present`: a byte for each optional field.
  Schedule(int64_t nodes, int64_t arity, Numbers children, std::vector<uint8_t> present = {}, int64_t fields = 0,
           uint64_t allowed = ~uint64_t(0))
      : nodes(nodes), arity(arity), fields(fields), children(std::move(children)), present(std::move(present)),
        order(nodes), rows(nodes * arity), leaves((1 << fields) + 1), starts(nodes + 1), kinds(nodes) {
    Numbers scratch(size_t(nodes * (arity + 5) + 80)), config = {int64_t(allowed)};
    Numbers table = {nodes, arity}, tableStrides = {arity, 1}, flags = {nodes, fields}, flagStrides = {fields, 1};
    Numbers one = {1};
    auto vector = [&](Numbers &data, const int64_t *dims) -> disc_view {
      return {data.data(), DISC_I64, 1, dims, one.data()};
    };
    int64_t numLeaves = int64_t(leaves.size()), numStarts = nodes + 1;
    disc_view operands[] = {{this->children.data(), DISC_I64, 2, table.data(), tableStrides.data()},
                            {this->present.data(), DISC_BOOL, 2, flags.data(), flagStrides.data()},
                            vector(order, &this->nodes),
                            {rows.data(), DISC_I64, 2, table.data(), tableStrides.data()},
                            vector(leaves, &numLeaves),
                            vector(starts, &numStarts),
                            vector(kinds, &this->nodes),
                            {&groups, DISC_I64, 0, nullptr, nullptr},
                            {&root, DISC_I64, 0, nullptr, nullptr}};
    status = disc_fn_tree_schedule(nullptr, operands, config.data(), 0, 1, scratch.data());
  }

  int64_t child(int64_t node, int64_t i) const { return children[size_t(node * arity + i)]; }

  int64_t patternOf(int64_t node) const {
    int64_t bits = 0;
    for (int64_t i = 0; i < fields; ++i)
      bits |= int64_t(present[size_t(node * fields + i)]) << i;
    for (int64_t i = 0; i < arity; ++i)
      bits |= int64_t(child(node, i) >= 0) << (fields + i);
    return bits;
  }

  /// Whether it is what the function promises.
  bool holds() const {
    Numbers sorted = order, place(order.size()), all(order.size());
    std::sort(sorted.begin(), sorted.end());
    std::iota(all.begin(), all.end(), 0);
    bool good = status == DISC_OK && sorted == all;
    for (int64_t i = 0; i < nodes; ++i)
      place[size_t(order[size_t(i)])] = i;
    good &= root == place[0];
    for (int64_t p = 0; p < 1 << fields; ++p)
      for (int64_t i = leaves[size_t(p)]; i < leaves[size_t(p + 1)]; ++i)
        good &= patternOf(order[size_t(i)]) == p;
    int64_t begin = leaves.back();
    good &= starts[0] == begin && starts[size_t(groups)] == nodes;
    for (int64_t g = 0; g < groups; ++g) {
      int64_t first = starts[size_t(g)], end = starts[size_t(g + 1)];
      good &= first < end;
      for (int64_t i = first; i < end; ++i) {
        int64_t node = order[size_t(i)];
        good &= patternOf(node) == kinds[size_t(g)];
        for (int64_t k = 0; k < arity; ++k) {
          int64_t c = child(node, k), row = rows[size_t(i * arity + k)];
          // Children belong to groups before this one.
          good &= c < 0 ? row == -1 : row == place[size_t(c)] && row < first;
        }
      }
    }
    return good;
  }

  int64_t nodes, arity, fields;
  Numbers children;
  std::vector<uint8_t> present;
  Numbers order, rows, leaves, starts, kinds;
  int64_t groups = -1, root = -1;
  int32_t status;
};

/// A random tree of which each node hangs on an earlier one, with its nodes named anew if `shuffled`.
Schedule randomTree(int64_t nodes, int64_t arity, int64_t fields, bool shuffled, unsigned seed) {
  std::mt19937 random(seed);
  Numbers names(static_cast<size_t>(nodes)), children(size_t(nodes * arity), -1);
  std::iota(names.begin(), names.end(), 0);
  if (shuffled)
    std::shuffle(names.begin(), names.end(), random);
  for (int64_t node = 1; node < nodes;) {
    int64_t &slot = children[size_t(names[random() % size_t(node)] * arity + int64_t(random() % size_t(arity)))];
    if (slot < 0)
      slot = names[size_t(node++)];
  }
  std::vector<uint8_t> present(size_t(nodes * fields));
  for (uint8_t &flag : present)
    flag = random() % 2;
  return Schedule(nodes, arity, children, present, fields);
}
} // namespace

TEST(treeScheduleOfRandomTrees) {
  for (bool shuffled : {false, true})
    for (int64_t arity : {1, 2, 4})
      for (int64_t fields : {0, 1, 2})
        for (int64_t nodes : {1, 2, 3, 17, 200})
          CHECK(randomTree(nodes, arity, fields, shuffled, unsigned(nodes * 7 + arity)).holds());
}

TEST(treeScheduleOfDeepChains) {
  const int64_t nodes = 200000;
  Numbers down, up;
  for (int64_t i = 0; i < nodes; ++i) {
    down.insert(down.end(), {i + 1 < nodes ? i + 1 : -1, -1});
    up.insert(up.end(), {-1, i - 1});
  }
  Schedule rootFirst(nodes, 2, down), rootLast(nodes, 2, up);
  CHECK(rootFirst.holds() && rootFirst.groups == nodes - 1 && rootFirst.root == nodes - 1);
  CHECK(rootLast.holds() && rootLast.groups == nodes - 1 && rootLast.root == 0);
}

TEST(treeScheduleSharesSubtrees) {
  // 0 -> 1, 2; 1 -> 3; 2 -> 3, and 3 twice; 4 hangs nowhere.
  Schedule shared(5, 2, {1, 2, 3, -1, 3, 3, -1, -1, -1, -1});
  CHECK(shared.holds() && shared.groups == 3 && shared.leaves[1] == 2);
}

TEST(treeScheduleChecks) {
  CHECK(Schedule(2, 2, {1, -1, 2, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(2, 2, {1, -2, -1, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(2, 2, {1, INT64_MAX, -1, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(2, 2, {1, INT64_MIN, -1, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(1, 1, {0}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(4, 2, {1, -1, 2, -1, 3, -1, 1, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(4, 2, {1, -1, -1, -1, 3, -1, 2, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(0, 2, {}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(1, 7, {-1, -1, -1, -1, -1, -1, -1}).status == DISC_ERROR_SHAPE);
  // A left child alone is not allowed.
  CHECK(Schedule(2, 2, {-1, 1, -1, -1}, {}, 0, 0b1101).status == DISC_OK);
  CHECK(Schedule(2, 2, {1, -1, -1, -1}, {}, 0, 0b1101).status == DISC_ERROR_INDEX);
}
