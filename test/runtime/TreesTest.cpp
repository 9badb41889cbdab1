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
  /// `children`: those of each node; `present`: a byte for each optional field; `uses`: of each pattern.
  Schedule(int64_t nodes, int64_t arity, Numbers children, std::vector<uint8_t> present = {}, int64_t fields = 0,
           Numbers uses = {})
      : nodes(nodes), arity(arity), fields(fields), children(std::move(children)), present(std::move(present)),
        uses(std::move(uses)), order(size_t(nodes)), rows(size_t(nodes * arity)),
        leaves(size_t((1 << (fields + arity)) + 1)), starts(size_t(nodes + 1)), kinds(size_t(nodes)) {
    if (this->uses.empty())
      this->uses.assign(size_t(1) << (fields + arity), (1 << arity) - 1);
    Numbers scratch(size_t(nodes * (arity + 7) + 80));
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
    status = disc_fn_tree_schedule(nullptr, operands, this->uses.data(), 0, 1, scratch.data());
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

  int64_t used(int64_t node, int64_t i) const { return uses[size_t(patternOf(node))] >> i & 1 ? child(node, i) : -1; }

  /// Whether it is what the function promises.
  bool holds() const {
    Numbers place(order.size(), -1), needed = {0};
    std::vector<bool> met(order.size());
    met[0] = true;
    for (size_t at = 0; at < needed.size(); ++at)
      for (int64_t i = 0; i < arity; ++i)
        if (int64_t c = used(needed[at], i); c >= 0 && !met[size_t(c)]) {
          met[size_t(c)] = true;
          needed.push_back(c);
        }
    int64_t end = starts[size_t(groups)];
    bool good = status == DISC_OK && end == int64_t(needed.size());
    for (int64_t i = 0; i < end; ++i) {
      good &= met[size_t(order[size_t(i)])] && place[size_t(order[size_t(i)])] < 0;
      place[size_t(order[size_t(i)])] = i;
    }
    good &= root == place[0];
    auto check = [&](int64_t first, int64_t last, int64_t pattern) {
      for (int64_t i = first; i < last; ++i) {
        int64_t node = order[size_t(i)];
        good &= patternOf(node) == pattern && kinds[size_t(i)] == pattern;
        for (int64_t k = 0; k < arity; ++k) {
          int64_t c = used(node, k), row = rows[size_t(i * arity + k)];
          // Children belong to groups before this one.
          good &= c < 0 ? row == -1 : row == place[size_t(c)] && row < first;
        }
      }
    };
    for (size_t p = 0; p + 1 < leaves.size(); ++p)
      check(leaves[p], leaves[p + 1], int64_t(p));
    good &= leaves.back() == (groups ? starts[0] : end);
    for (int64_t g = 0; g < groups; ++g) {
      good &= starts[size_t(g)] < starts[size_t(g + 1)];
      check(starts[size_t(g)], starts[size_t(g + 1)], kinds[size_t(starts[size_t(g)])]);
    }
    return good;
  }

  int64_t nodes, arity, fields;
  Numbers children;
  std::vector<uint8_t> present;
  Numbers uses, order, rows, leaves, starts, kinds;
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
    up.insert(up.end(), {-1, i == 0 ? nodes - 1 : i == 1 ? -1 : i - 1});
  }
  Schedule forward(nodes, 2, down), backward(nodes, 2, up);
  CHECK(forward.holds() && forward.groups == nodes - 1 && forward.root == nodes - 1);
  CHECK(backward.holds() && backward.groups == nodes - 1 && backward.root == nodes - 1);
}

TEST(treeScheduleSharesSubtrees) {
  // 0 -> 1, 2; 1 -> 3; 2 -> 3, and 3 twice; nobody needs 4.
  Schedule shared(5, 2, {1, 2, 3, -1, 3, 3, -1, -1, -1, -1});
  CHECK(shared.holds() && shared.groups == 3 && shared.starts[3] == 4);
}

TEST(treeScheduleUsesWhatTheCodeUses) {
  // A node with a right child alone uses none, and two children are used from the left.
  Numbers uses = {0, -1, 0, 1};
  Schedule partly(5, 2, {1, 2, -1, 3, 4, -1, -1, -1, -1, -1}, {}, 0, uses);
  CHECK(partly.holds() && partly.groups == 1 && partly.starts[1] == 2);
  // What has no code is an error where it is needed.
  CHECK(Schedule(3, 2, {1, 2, 2, -1, -1, -1}, {}, 0, uses).status == DISC_ERROR_INDEX);
  // A way back is none where it is not used.
  CHECK(Schedule(2, 2, {1, 0, -1, 0}, {}, 0, uses).holds());
}

TEST(treeScheduleChecks) {
  CHECK(Schedule(2, 2, {1, -1, 2, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(2, 2, {1, -2, -1, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(2, 2, {1, INT64_MAX, -1, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(2, 2, {1, INT64_MIN, -1, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(1, 1, {0}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(4, 2, {1, -1, 2, -1, 3, -1, 1, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(4, 2, {3, -1, -1, -1, 3, -1, 2, -1}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(0, 2, {}).status == DISC_ERROR_INDEX);
  CHECK(Schedule(1, 7, Numbers(7, -1)).status == DISC_ERROR_SHAPE);
}
