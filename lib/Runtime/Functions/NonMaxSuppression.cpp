//===- NonMaxSuppression.cpp - boxes that do not overlap better ones --------===//

#include "lib/Runtime/Functions/Elements.h"

#include <algorithm>
#include <cstdint>

using namespace disc::rt;

namespace {
struct Box {
  float top, left, bottom, right;
  float area() const { return (bottom - top) * (right - left); }
};

struct Candidate {
  float score;
  int64_t box;
};
} // namespace

static Box boxAt(const disc_view &boxes, int64_t batch, int64_t box, bool centered) {
  const float *data = static_cast<const float *>(boxes.data) + batch * boxes.strides[0] + box * boxes.strides[1];
  float v[4];
  for (int i = 0; i < 4; ++i)
    v[i] = data[i * boxes.strides[2]];
  if (centered)
    return {v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
  // Any two opposite corners.
  return {std::min(v[0], v[2]), std::min(v[1], v[3]), std::max(v[0], v[2]), std::max(v[1], v[3])};
}

/// Whether the boxes' intersection is more than `threshold` of their union.
static bool overlap(const Box &a, const Box &b, float threshold) {
  float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (!(height > 0 && width > 0))
    return false;
  float common = height * width;
  return common / (a.area() + b.area() - common) > threshold;
}

/// boxes f32 [B, N, 4], scores f32 [B, C, N], most i64 [], iou f32 [], least f32 [] -> indices i64 [capacity, 3],
/// count i64 []: for each batch and class up to `most` boxes, the best first, of more than `least`, none of which
/// overlaps a better one by more than `iou`; (batch, class, box) of each. config: whether a box is (x, y, width,
/// height) around its centre, not two corners (y, x). Scratch: 16 bytes for each of N. One task.
int32_t disc_fn_non_max_suppression(disc_call *, const disc_view *operands, const int64_t *config, int64_t, int64_t,
                                    void *scratch) {
  const disc_view &boxes = operands[0], &scores = operands[1];
  int64_t most = *static_cast<const int64_t *>(operands[2].data);
  float iou = *static_cast<const float *>(operands[3].data), least = *static_cast<const float *>(operands[4].data);
  auto *indices = static_cast<int64_t *>(operands[5].data);
  int64_t capacity = operands[5].dims[0], count = 0;
  bool centered = config[0];
  auto *candidates = static_cast<Candidate *>(scratch);
  for (int64_t batch = 0; batch < scores.dims[0]; ++batch)
    for (int64_t kind = 0; kind < scores.dims[1]; ++kind) {
      const float *row = static_cast<const float *>(scores.data) + batch * scores.strides[0] + kind * scores.strides[1];
      Candidate *end = candidates;
      for (int64_t i = 0; i < scores.dims[2]; ++i)
        if (float score = row[i * scores.strides[2]]; score > least)
          *end++ = {score, i};
      std::sort(candidates, end, [](const Candidate &a, const Candidate &b) {
        return a.score != b.score ? a.score > b.score : a.box < b.box;
      });
      int64_t first = count;
      for (Candidate *next = candidates; next != end && count - first < most && count < capacity; ++next) {
        Box box = boxAt(boxes, batch, next->box, centered);
        bool better = false;
        for (int64_t k = first; k < count && !better; ++k)
          better = overlap(boxAt(boxes, batch, indices[3 * k + 2], centered), box, iou);
        if (better)
          continue;
        int64_t *to = indices + 3 * count++;
        to[0] = batch;
        to[1] = kind;
        to[2] = next->box;
      }
    }
  *static_cast<int64_t *>(operands[6].data) = count;
  return DISC_OK;
}

/// The boxes of `operands[0]` in the order of `operands[1]`, one array for each coordinate: those that overlap a better
/// one are marked in `dropped`.
template <typename T> static int64_t suppress(const disc_view *operands, double threshold, void *scratch) {
  const disc_view &boxes = operands[0], &order = operands[1];
  int64_t count = order.dims[0], kept = 0;
  const T *data = static_cast<const T *>(boxes.data);
  const auto *best = static_cast<const int64_t *>(order.data);
  auto *left = static_cast<T *>(scratch);
  T *top = left + count, *right = top + count, *bottom = right + count, *area = bottom + count;
  auto *dropped = reinterpret_cast<uint8_t *>(area + count);
  for (int64_t i = 0; i < count; ++i) {
    const T *box = data + best[i * order.strides[0]] * boxes.strides[0];
    left[i] = box[0], top[i] = box[boxes.strides[1]];
    right[i] = box[2 * boxes.strides[1]], bottom[i] = box[3 * boxes.strides[1]];
    area[i] = (right[i] - left[i]) * (bottom[i] - top[i]);
    dropped[i] = 0;
  }
  auto *result = static_cast<int64_t *>(operands[2].data);
  for (int64_t i = 0; i < count; ++i) {
    if (dropped[i])
      continue;
    result[kept++] = best[i * order.strides[0]];
    for (int64_t k = i + 1; k < count; ++k) {
      T width = std::max(T(0), std::min(right[i], right[k]) - std::max(left[i], left[k]));
      T height = std::max(T(0), std::min(bottom[i], bottom[k]) - std::max(top[i], top[k]));
      T common = width * height;
      dropped[k] |= double(common / (area[i] + area[k] - common)) > threshold;
    }
  }
  return kept;
}

/// boxes f32|f64 [N, 4] as (x1, y1, x2, y2), order i64 [N] -> indices i64 [capacity >= N], count i64 []: the boxes in
/// `order` without those that overlap an earlier one that stays by more than config[0], the bits of a double, of the
/// union of both. Scratch: 5 elements and a byte for each box. One task.
int32_t disc_fn_suppress_boxes(disc_call *, const disc_view *operands, const int64_t *config, int64_t, int64_t,
                               void *scratch) {
  double threshold = configFloat(config[0]);
  *static_cast<int64_t *>(operands[3].data) = operands[0].dtype == DISC_F64
                                                  ? suppress<double>(operands, threshold, scratch)
                                                  : suppress<float>(operands, threshold, scratch);
  return DISC_OK;
}
