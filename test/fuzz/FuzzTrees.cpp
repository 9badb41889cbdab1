//===- FuzzTrees.cpp - tables of nodes from anywhere ----------------------===//
//
// Bytes decide extents, strides, children, fields and which patterns have code. Memory is exactly what the function is
// promised. A schedule that it gives must be one: children come first, groups are alike.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/Function.h"

#include <cstdio>
#include <cstdlib>
#include <fuzzer/FuzzedDataProvider.h>
#include <memory>
#include <vector>

static void require(bool holds, int line = __builtin_LINE()) {
  if (!holds && std::fprintf(stderr, "line %d\n", line))
    std::abort();
}

namespace {
template <typename T> std::unique_ptr<T[]> memory(int64_t count) {
  return std::unique_ptr<T[]>(new T[size_t(count)]());
}
} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FuzzedDataProvider bytes(data, size);
  int64_t n = bytes.ConsumeIntegralInRange(0, 40), arity = bytes.ConsumeIntegralInRange(0, 4),
          fields = bytes.ConsumeIntegralInRange(0, 4);
  bool tooMany = arity + fields > 6;
  int64_t patterns = int64_t(1) << (arity + fields);
  // Columns may be stored apart, and flags be the same for all nodes.
  bool apart = bytes.ConsumeBool(), same = bytes.ConsumeBool();
  auto children = memory<int64_t>(n * arity);
  auto present = memory<uint8_t>(same ? fields : n * fields);
  const int64_t childDims[] = {n, arity}, fieldDims[] = {n, fields};
  const int64_t childStrides[] = {apart ? 1 : arity, apart ? n : 1}, fieldStrides[] = {same ? 0 : fields, 1};
  std::vector<int64_t> config;
  for (int64_t i = 0; i < patterns; ++i)
    config.push_back(bytes.ConsumeIntegralInRange<int64_t>(0, 7) ? (int64_t(1) << arity) - 1
                                                                 : bytes.ConsumeIntegralInRange<int64_t>(-1, 15));
  for (int64_t i = 0; i < (same ? fields : n * fields); ++i)
    present[i] = bytes.ConsumeIntegral<uint8_t>() & 3;
  bool behind = bytes.ConsumeBool();
  for (int64_t node = 0; node < n; ++node)
    for (int64_t k = 0; k < arity; ++k) {
      int64_t child = bytes.ConsumeIntegralInRange<int64_t>(-2, 41);
      if (behind)
        child = child <= node ? -1 : child;
      if (child >= n)
        child = bytes.ConsumeBool() ? n - 1 : child == 41 ? INT64_MAX : -1;
      children[node * childStrides[0] + k * childStrides[1]] = child;
    }

  auto order = memory<int64_t>(n), rows = memory<int64_t>(n * arity), leaves = memory<int64_t>(patterns + 1);
  auto starts = memory<int64_t>(n + 1), kinds = memory<int64_t>(n), scratch = memory<int64_t>(n * (arity + 7) + 80);
  int64_t count = -1, root = -1;
  const int64_t ones[] = {arity, 1}, d1[] = {n}, dRows[] = {n, arity}, dLeaves[] = {patterns + 1}, dStarts[] = {n + 1};
  const int64_t one[] = {1};
  disc_view operands[] = {{children.get(), DISC_I64, 2, childDims, childStrides},
                          {present.get(), DISC_BOOL, 2, fieldDims, fieldStrides},
                          {order.get(), DISC_I64, 1, d1, one},
                          {rows.get(), DISC_I64, 2, dRows, ones},
                          {leaves.get(), DISC_I64, 1, dLeaves, one},
                          {starts.get(), DISC_I64, 1, dStarts, one},
                          {kinds.get(), DISC_I64, 1, d1, one},
                          {&count, DISC_I64, 0, nullptr, nullptr},
                          {&root, DISC_I64, 0, nullptr, nullptr}};
  int32_t status = disc_fn_tree_schedule(nullptr, operands, config.data(), 0, 1, scratch.get());
  require(status == DISC_OK || status == DISC_ERROR_INDEX || (tooMany && status == DISC_ERROR_SHAPE));
  if (status != DISC_OK)
    return 0;
  require(!tooMany && n > 0);
  // Every child that is used comes before its parent.
  int64_t nodes = starts[count];
  require(nodes > 0 && nodes <= n && root >= 0 && root < nodes && order[root] == 0);
  for (int64_t i = 0; i < nodes; ++i) {
    require(order[i] >= 0 && order[i] < n && kinds[i] >= 0 && kinds[i] < patterns);
    for (int64_t k = 0; k < arity; ++k) {
      int64_t row = rows[i * arity + k];
      require(row >= -1 && row < i);
      if (row >= 0)
        require(order[row] == children[order[i] * childStrides[0] + k * childStrides[1]]);
    }
  }
  for (int64_t g = 0; g < count; ++g)
    for (int64_t i = starts[g]; i < starts[g + 1]; ++i)
      require(kinds[i] == kinds[starts[g]]);
  return 0;
}
