//===- FuzzFunctions.cpp - sorting, scattering, suppressing, counting -----===//
//
// Bytes decide dtypes, extents, strides, values and indices; every operand has exactly the memory that its view spans,
// and tasks are cut at a random place. What a function accepts is compared with a plain loop where there is a short
// one.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/Function.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fuzzer/FuzzedDataProvider.h>
#include <memory>
#include <vector>

static void require(bool holds, int line = __builtin_LINE()) {
  if (!holds && std::fprintf(stderr, "line %d\n", line))
    std::abort();
}

namespace {
constexpr int64_t kDtypes[] = {DISC_F32, DISC_F64, DISC_F16, DISC_BF16, DISC_I64, DISC_I32, DISC_I16, DISC_I8, DISC_U8};

int64_t widthOf(int64_t dtype) { return dtype == DISC_BOOL ? 1 : (dtype & 0xff) / 8; }

/// A tensor whose memory is as large as its elements need.
struct Operand {
  std::vector<int64_t> dims, strides;
  std::unique_ptr<char[]> memory;
  int64_t elements = 1, span = 1, dtype;
  char *data;

  Operand(int64_t dtype, std::vector<int64_t> extents, FuzzedDataProvider *bytes = nullptr)
      : dims(std::move(extents)), strides(dims.size()), dtype(dtype) {
    int64_t dense = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      // Inputs may be broadcast, or have gaps.
      uint8_t odd = bytes ? bytes->ConsumeIntegral<uint8_t>() : 0;
      strides[i] = odd == 1 ? 0 : odd == 2 ? 2 * dense : dense;
      dense = std::max<int64_t>(dense, strides[i] * std::max<int64_t>(dims[i], 1));
      elements *= dims[i];
    }
    for (size_t i = 0; i < dims.size() && elements; ++i)
      span += (dims[i] - 1) * strides[i];
    size_t room = elements ? size_t(span * widthOf(dtype)) : 0;
    memory.reset(new char[room]());
    data = memory.get();
    if (bytes) {
      std::vector<uint8_t> values = bytes->ConsumeBytes<uint8_t>(std::min<size_t>(room, 256));
      for (size_t i = 0; i < room && !values.empty(); ++i)
        data[i] = char(values[i % values.size()]);
    }
  }

  disc_view view() const { return {data, dtype, int64_t(dims.size()), dims.data(), strides.data()}; }
  template <typename T> T &at(int64_t i) { return reinterpret_cast<T *>(data)[i]; }
  /// Numbers of a small range, so that they often fit.
  Operand &indices(FuzzedDataProvider &bytes, int64_t low, int64_t high) {
    for (int64_t i = 0; elements && i < span; ++i)
      at<int64_t>(i) = bytes.ConsumeIntegralInRange<int64_t>(0, 60) ? bytes.ConsumeIntegralInRange(low, high)
                                                                    : bytes.ConsumeIntegral<int64_t>();
    return *this;
  }
};

/// Runs tasks [0, tasks) in two parts.
int32_t run(FuzzedDataProvider &bytes, disc_function function, std::vector<disc_view> operands, const int64_t *config,
            int64_t tasks, int64_t scratchBytes) {
  std::unique_ptr<char[]> scratch(new char[size_t(scratchBytes + 64)]);
  auto *aligned = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(scratch.get()) + 63) / 64 * 64);
  int64_t cut = bytes.ConsumeIntegralInRange<int64_t>(0, tasks);
  for (auto [begin, end] : {std::pair(int64_t(0), cut), std::pair(cut, tasks)})
    if (begin < end || tasks == 1)
      if (int32_t status = begin < end ? function(nullptr, operands.data(), config, begin, end, aligned) : 0)
        return status;
  return DISC_OK;
}

int64_t extent(FuzzedDataProvider &bytes, int64_t most = 9) {
  // Long rows take other algorithms.
  return bytes.ConsumeIntegralInRange(0, 40) ? bytes.ConsumeIntegralInRange<int64_t>(0, most)
                                             : bytes.ConsumeIntegralInRange<int64_t>(0, 1500);
}

void sorting(FuzzedDataProvider &bytes) {
  int64_t dtype = bytes.PickValueInArray(kDtypes), rows = bytes.ConsumeIntegralInRange<int64_t>(0, 3),
          n = extent(bytes), kept = bytes.ConsumeBool() ? n : bytes.ConsumeIntegralInRange<int64_t>(0, n);
  bool selects = bytes.ConsumeBool();
  Operand x(dtype, {rows, n}, &bytes);
  int64_t config[] = {dtype, bytes.ConsumeIntegralInRange(0, selects ? 3 : 1),
                      bytes.ConsumeIntegralInRange<int64_t>(-1, n)};
  std::vector<int64_t> dims{rows};
  if (!selects)
    dims.push_back(kept);
  Operand values(dtype, dims), indices(DISC_I64, dims);
  int32_t status = run(bytes, selects ? disc_fn_select : disc_fn_sort, {x.view(), values.view(), indices.view()},
                       config, rows, n * (widthOf(dtype) == 8 ? 32 : 16));
  require(status == DISC_OK || (selects && status == DISC_ERROR_INDEX));
  int64_t per = selects ? 1 : kept, width = widthOf(dtype);
  for (int64_t i = 0; status == DISC_OK && i < rows * per; ++i) {
    int64_t at = indices.at<int64_t>(i);
    require(at >= 0 && at < n);
    const char *from = x.data + width * (i / per * x.strides[0] + at * x.strides[1]);
    require(std::memcmp(from, values.data + width * i, size_t(width)) == 0);
    for (int64_t k = i / per * per; !selects && k < i && i < 50; ++k)
      require(indices.at<int64_t>(k) != at);
  }
}

void scattering(FuzzedDataProvider &bytes) {
  int64_t dtype = bytes.PickValueInArray(kDtypes), rank = bytes.ConsumeIntegralInRange(1, 3),
          indexed = bytes.ConsumeIntegralInRange<int64_t>(0, std::min<int64_t>(rank, 2));
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < rank; ++i)
    dims.push_back(extent(bytes, 6) % 70);
  // A loop of its own for the updates, then one along each dim that has no index.
  std::vector<int64_t> loops, extents;
  if (indexed)
    loops.push_back(-1), extents.push_back(bytes.ConsumeIntegralInRange<int64_t>(0, 9));
  for (int64_t d = indexed; d < rank; ++d)
    loops.push_back(d),
        extents.push_back(bytes.ConsumeBool() ? dims[size_t(d)]
                                              : bytes.ConsumeIntegralInRange<int64_t>(0, dims[size_t(d)]));
  bool hasSelf = bytes.ConsumeBool(), inPlace = hasSelf && bytes.ConsumeBool();
  Operand target(dtype, dims), self(dtype, dims, inPlace ? nullptr : &bytes), values(dtype, extents, &bytes);
  std::vector<Operand> indices;
  for (int64_t k = 0; k < indexed; ++k) {
    indices.emplace_back(DISC_I64, extents, &bytes);
    indices.back().indices(bytes, -dims[size_t(k)], dims[size_t(k)]);
  }
  int64_t parts = bytes.ConsumeIntegralInRange<int64_t>(1, 5);
  std::vector<int64_t> config{dtype,
                              bytes.ConsumeIntegralInRange(0, 4),
                              hasSelf,
                              bytes.ConsumeIntegral<int8_t>(),
                              bytes.ConsumeBool(),
                              parts,
                              int64_t(loops.size()),
                              indexed};
  config.insert(config.end(), loops.begin(), loops.end());
  for (int64_t k = 0; k < indexed; ++k)
    config.push_back(k);
  std::vector<disc_view> operands;
  if (hasSelf)
    operands.push_back(inPlace ? target.view() : self.view());
  operands.push_back(values.view());
  for (const Operand &index : indices)
    operands.push_back(index.view());
  operands.push_back(target.view());
  int32_t status = run(bytes, disc_fn_scatter, operands, config.data(), parts, 0);
  require(status == DISC_OK || status == DISC_ERROR_INDEX);
  if (!indexed || status != DISC_OK)
    return;
  // Accepted: every index that an update uses is in range.
  bool empty = values.elements == 0 || target.elements == 0;
  for (Operand &index : indices)
    for (int64_t i = 0; !empty && i < extents[0]; ++i) {
      int64_t at = index.at<int64_t>(i * index.strides[0]), most = dims[size_t(&index - indices.data())];
      require(at < most && at >= (config[4] ? -most : 0));
    }
}

void suppressing(FuzzedDataProvider &bytes) {
  int64_t n = bytes.ConsumeIntegralInRange<int64_t>(0, 12);
  if (bytes.ConsumeBool()) {
    int64_t dtype = bytes.ConsumeBool() ? DISC_F64 : DISC_F32;
    Operand boxes(dtype, {n, 4}, &bytes), order(DISC_I64, {n}), result(DISC_I64, {n}), count(DISC_I64, {});
    for (int64_t i = 0; i < n; ++i)
      order.at<int64_t>(i) = (i + n / 2) % n;
    double threshold = bytes.ConsumeFloatingPoint<double>();
    int64_t config[1];
    std::memcpy(config, &threshold, 8);
    require(run(bytes, disc_fn_suppress_boxes, {boxes.view(), order.view(), result.view(), count.view()}, config, 1,
                n * (5 * widthOf(dtype) + 1)) == DISC_OK);
    require(count.at<int64_t>(0) >= (n > 0) && count.at<int64_t>(0) <= n);
    return;
  }
  int64_t batches = bytes.ConsumeIntegralInRange<int64_t>(0, 2), classes = bytes.ConsumeIntegralInRange<int64_t>(0, 3),
          capacity = bytes.ConsumeIntegralInRange<int64_t>(0, 12);
  Operand boxes(DISC_F32, {batches, n, 4}, &bytes), scores(DISC_F32, {batches, classes, n}, &bytes), most(DISC_I64, {}),
      iou(DISC_F32, {}, &bytes), least(DISC_F32, {}, &bytes), result(DISC_I64, {capacity, 3}), count(DISC_I64, {});
  most.indices(bytes, -1, 5);
  int64_t config[] = {bytes.ConsumeBool()};
  require(run(bytes, disc_fn_non_max_suppression,
              {boxes.view(), scores.view(), most.view(), iou.view(), least.view(), result.view(), count.view()}, config,
              1, 16 * n) == DISC_OK);
  require(count.at<int64_t>(0) >= 0 && count.at<int64_t>(0) <= capacity);
}

void counting(FuzzedDataProvider &bytes) {
  int64_t n = extent(bytes), m = extent(bytes), dtype = bytes.PickValueInArray(kDtypes);
  Operand count(DISC_I64, {});
  switch (bytes.ConsumeIntegralInRange(0, 6)) {
  case 0: {
    Operand x(dtype, {n}, &bytes), values(dtype, {n}), inverse(DISC_I64, {n}), counts(DISC_I64, {n});
    int64_t config[] = {dtype, bytes.ConsumeBool()};
    require(run(bytes, disc_fn_unique, {x.view(), values.view(), inverse.view(), counts.view(), count.view()}, config,
                1, n * (widthOf(dtype) == 8 ? 32 : 16)) == DISC_OK);
    int64_t sum = 0, found = count.at<int64_t>(0);
    require(found >= (n > 0) && found <= n);
    for (int64_t i = 0; i < found; ++i)
      sum += counts.at<int64_t>(i);
    for (int64_t i = 0; i < n; ++i)
      require(inverse.at<int64_t>(i) >= 0 && inverse.at<int64_t>(i) < found);
    require(sum == n);
    return;
  }
  case 1: {
    n = std::min<int64_t>(n, 20), m = std::min<int64_t>(m, 6);
    Operand x(dtype, {n, m}, &bytes), rows(DISC_I64, {n}), inverse(DISC_I64, {n}), counts(DISC_I64, {n});
    int64_t config[] = {dtype, bytes.ConsumeBool()};
    require(run(bytes, disc_fn_unique_rows, {x.view(), rows.view(), inverse.view(), counts.view(), count.view()},
                config, 1, 8 * n) == DISC_OK);
    require(count.at<int64_t>(0) >= (n > 0) && count.at<int64_t>(0) <= n);
    return;
  }
  case 2: {
    n = std::min<int64_t>(n, 20), m = std::min<int64_t>(m, 6);
    Operand x(dtype, {n, m}, &bytes), indices(DISC_I64, {n * m, 2});
    require(run(bytes, disc_fn_nonzero, {x.view(), indices.view(), count.view()}, nullptr, 1, 0) == DISC_OK);
    for (int64_t i = 0; i < count.at<int64_t>(0); ++i)
      require(indices.at<int64_t>(2 * i) < n && indices.at<int64_t>(2 * i + 1) < m);
    return;
  }
  case 3: {
    Operand repeats(DISC_I64, {n}, &bytes), out(DISC_I64, {m});
    repeats.indices(bytes, 0, 3);
    int32_t status = run(bytes, disc_fn_repeat_interleave, {repeats.view(), out.view()}, nullptr, 1, 0);
    for (int64_t i = 0; status == DISC_OK && i < m; ++i)
      require(out.at<int64_t>(i) >= 0 && out.at<int64_t>(i) < std::max<int64_t>(n, 1));
    return;
  }
  case 4: {
    Operand numbers(DISC_I64, {n}, &bytes), out(DISC_I64, {m});
    numbers.indices(bytes, 0, m);
    (void)run(bytes, disc_fn_bincount, {numbers.view(), out.view()}, nullptr, 1, 0);
    return;
  }
  case 5: {
    bool single = bytes.ConsumeBool(), hasSorter = bytes.ConsumeBool();
    int64_t rows = bytes.ConsumeIntegralInRange<int64_t>(0, 3);
    std::vector<int64_t> sortedDims{rows, n}, valueDims{rows, m};
    if (single)
      sortedDims = {n};
    Operand sorted(dtype, sortedDims, &bytes), values(dtype, valueDims, &bytes), sorter(DISC_I64, sortedDims, &bytes),
        out(DISC_I64, valueDims);
    sorter.indices(bytes, 0, std::max<int64_t>(n - 1, 0));
    int64_t tasks = bytes.ConsumeIntegralInRange<int64_t>(1, 3),
            config[] = {dtype, bytes.ConsumeBool(), hasSorter, tasks};
    std::vector<disc_view> operands{sorted.view(), values.view()};
    if (hasSorter)
      operands.push_back(sorter.view());
    operands.push_back(out.view());
    int32_t status = run(bytes, disc_fn_searchsorted, operands, config, tasks, 0);
    require(status == DISC_OK || (hasSorter && status == DISC_ERROR_INDEX));
    for (int64_t i = 0; status == DISC_OK && i < rows * m; ++i)
      require(out.at<int64_t>(i) >= 0 && out.at<int64_t>(i) <= n);
    return;
  }
  default: {
    int64_t rows = bytes.ConsumeIntegralInRange<int64_t>(0, 3);
    Operand x(dtype, {rows, n}, &bytes), values(dtype, {rows, n}), indices(DISC_I64, {rows, n});
    int64_t operation = bytes.ConsumeIntegralInRange(0, 3), config[] = {dtype, operation};
    if (operation < 2 && dtype != DISC_F32 && dtype != DISC_F64)
      return; // integers may overflow, which wraps
    require(run(bytes, disc_fn_cumulative, {x.view(), values.view(), indices.view()}, config, rows, 0) == DISC_OK);
    return;
  }
  }
}
} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FuzzedDataProvider bytes(data, size);
  switch (bytes.ConsumeIntegralInRange(0, 3)) {
  case 0:
    sorting(bytes);
    break;
  case 1:
    scattering(bytes);
    break;
  case 2:
    suppressing(bytes);
    break;
  default:
    counting(bytes);
  }
  return 0;
}
