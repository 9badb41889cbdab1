"""Detection: torchvision's operators and what detectors do with boxes, at many sizes, against eager PyTorch.

Where torchvision is not installed, its operators are defined here, in plain PyTorch.
"""

import importlib.util
import math

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc

_F = torch.nn.functional


def _nms(boxes, scores, iou_threshold):
    order = scores.argsort(stable=True, descending=True).tolist()
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    for i in order:
        low = torch.maximum(boxes[kept, :2], boxes[i, :2])
        sides = (torch.minimum(boxes[kept, 2:], boxes[i, 2:]) - low).clamp(min=0)
        common = sides[:, 0] * sides[:, 1]
        if not (common / (area[kept] + area[i] - common) > iou_threshold).any():
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def _between(image, y, x, border):
    """Elements of [C, H, W] at fractional places; ``border`` is how far outside they count as the nearest ones."""
    height, width = image.shape[1:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width) if border else torch.ones_like(y, dtype=torch.bool)
    if border:
        y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    result = torch.zeros(image.shape[0], *y.shape)
    for down in (0, 1):
        for right in (0, 1):
            row, column = y.floor().long() + down, x.floor().long() + right
            valid = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = (1 - (y - row).abs()) * (1 - (x - column).abs())
            found = image[:, row.clamp(0, height - 1), column.clamp(0, width - 1)]
            result += torch.where(valid, weight * found, torch.zeros(()))
    return result


def _roi_align(x, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    result = torch.zeros(len(rois), x.shape[1], pooled_height, pooled_width)
    for k, (image, *box) in enumerate(rois.tolist()):
        low_x, low_y, high_x, high_y = (c * spatial_scale - (0.5 if aligned else 0.0) for c in box)
        sides = [high_y - low_y, high_x - low_x]
        sides = sides if aligned else [max(side, 1.0) for side in sides]
        bins = [sides[0] / pooled_height, sides[1] / pooled_width]
        counts = [sampling_ratio if sampling_ratio > 0 else math.ceil(size) for size in bins]
        if min(counts) <= 0:
            continue
        places = [
            start + size * (torch.arange(cells * n) + 0.5) / n
            for start, size, cells, n in zip((low_y, low_x), bins, (pooled_height, pooled_width), counts, strict=True)
        ]
        samples = _between(x[int(image)], *torch.meshgrid(*places, indexing="ij"), border=True)
        result[k] = _F.avg_pool2d(samples[None], tuple(counts))[0]
    return result


def _deform_conv2d(x, weight, offset, mask, bias, sh, sw, ph, pw, dh, dw, groups, offset_groups, use_mask):
    n, channels = x.shape[:2]
    kernel, (rows, columns) = weight.shape[2:], offset.shape[2:]
    taps = kernel[0] * kernel[1]
    offset = offset.reshape(n, offset_groups, taps, 2, rows, columns)
    mask = mask.reshape(n, offset_groups, taps, rows, columns)
    seen = torch.zeros(n, channels, taps, rows, columns)
    per_group = channels // offset_groups
    for image in range(n):
        for group in range(offset_groups):
            own = slice(group * per_group, (group + 1) * per_group)
            for tap in range(taps):
                y = torch.arange(rows)[:, None] * sh - ph + tap // kernel[1] * dh + offset[image, group, tap, 0]
                z = torch.arange(columns) * sw - pw + tap % kernel[1] * dw + offset[image, group, tap, 1]
                found = _between(x[image, own], y, z, border=False)
                seen[image, own, tap] = found * mask[image, group, tap] if use_mask else found
    image = seen.reshape(n, groups, channels // groups * taps, rows * columns)
    product = weight.reshape(groups, weight.shape[0] // groups, -1) @ image
    return product.reshape(n, weight.shape[0], rows, columns) + bias[:, None, None]


def _define():
    """torchvision's operators, if it is not installed."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
        " int sampling_ratio, bool aligned) -> Tensor"
    )
    library.define(
        "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h,"
        " SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,"
        " SymInt offset_groups, bool use_mask) -> Tensor"
    )
    for name, kernel in (("nms", _nms), ("roi_align", _roi_align), ("deform_conv2d", _deform_conv2d)):
        library.impl(name, kernel, "CPU")
    # As torchvision has it: PyTorch's older function takes the number for at least 2.
    torch.library.register_fake(
        "torchvision::nms",
        lambda boxes, *_: boxes.new_empty(torch.library.get_ctx().create_unbacked_symint(), dtype=torch.int64),
        lib=library,
    )
    torch.library.register_fake(
        "torchvision::roi_align",
        lambda x, rois, _, height, width, *__: x.new_empty(rois.shape[0], x.shape[1], height, width),
        lib=library,
    )
    torch.library.register_fake(
        "torchvision::deform_conv2d",
        lambda x, weight, offset, *_: x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:]),
        lib=library,
    )
    return library


if importlib.util.find_spec("torchvision") is None:
    _LIBRARY = _define()
else:
    import torchvision  # noqa: F401

pytestmark = [pytest.mark.share(2), pytest.mark.filterwarnings("ignore:`create_unbacked_symint`")]

N = Dim("n", min=0, max=4096)


def make_boxes(count, *, whole=False):
    corner = torch.rand(count, 2) * 30
    boxes = torch.cat([corner, corner + torch.rand(count, 2) * 15], 1)
    return boxes.round() if whole else boxes


class Suppression(nn.Module):
    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold

    def forward(self, boxes, scores):
        kept = torch.ops.torchvision.nms(boxes, scores, self.threshold)
        return kept, boxes[kept]


@pytest.mark.parametrize("threshold", [0.5, 0.0, -0.1])
def test_nms(threshold):
    torch.manual_seed(0)
    net = Suppression(threshold)
    model = disc.compile(net, (make_boxes(5), torch.rand(5)), dynamic_shapes=({0: N}, {0: N}))
    for n in (5, 1, 2, 0, 17, 150):
        for whole in (False, True):
            # Equal scores, and boxes without an area.
            boxes, scores = make_boxes(n, whole=whole), (torch.rand(n) * 5).round() / 5
            for result, expected in zip(model(boxes, scores), net(boxes, scores), strict=True):
                torch.testing.assert_close(result, expected, rtol=0, atol=0)
    with pytest.raises(disc.ShapeError):
        model(make_boxes(3), torch.rand(4))


class Shrinking(nn.Module):
    """Suppression as it is often written: the list of candidates shrinks until none is left."""

    def forward(self, boxes, scores):
        order, kept = scores.argsort(descending=True), []
        while order.numel() > 0:
            best = order[0]
            kept.append(best)
            if order.numel() == 1:
                break
            rest = order[1:]
            low = torch.maximum(boxes[best, :2], boxes[rest, :2])
            sides = (torch.minimum(boxes[best, 2:], boxes[rest, 2:]) - low).clamp(min=0)
            common = sides[:, 0] * sides[:, 1]
            area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
            order = rest[common / (area[best] + area[rest] - common) <= 0.5]
        return torch.stack(kept)


def test_candidates_that_shrink_are_one_loop(monkeypatch):
    def unrolled(*_):
        raise AssertionError("the loop is traced step by step")

    monkeypatch.setattr("disc.frontend.rewriting.operators._unrolled", unrolled)
    n = Dim("n", min=1, max=500)
    module = Shrinking()
    model = disc.compile(module, (make_boxes(20), torch.rand(20)), dynamic_shapes=({0: n}, {0: n}))
    for size in (1, 2, 300):
        args = make_boxes(size), torch.rand(size)
        assert torch.equal(model(*args), module(*args))


class PerClass(nn.Module):
    """Thresholds, suppression within each class, then the best few: what most detectors end with."""

    def suppressed(self, boxes, scores, labels):
        if boxes.numel() == 0:
            return torch.empty((0,), dtype=torch.int64)
        moved = boxes + (labels.to(boxes) * (boxes.max() + 1))[:, None]
        return torch.ops.torchvision.nms(moved, scores, 0.4)

    def forward(self, boxes, logits):
        scores, labels = logits.softmax(-1)[:, :-1].max(-1)
        keep = torch.where(scores > 0.2)[0]
        boxes, scores, labels = boxes[keep], scores[keep], labels[keep]
        keep = self.suppressed(boxes, scores, labels)[:20]
        return boxes[keep], scores[keep], labels[keep]


def test_suppression_within_classes():
    torch.manual_seed(1)
    net = PerClass()
    model = disc.compile(net, (make_boxes(9), torch.randn(9, 4)), dynamic_shapes=({0: N}, {0: N}))
    for n in (9, 1, 0, 40, 2, 300):
        arguments = make_boxes(n), torch.randn(n, 4)
        for result, expected in zip(model(*arguments), net(*arguments), strict=True):
            torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(
    ("scale", "cells", "ratio", "aligned"),
    [(1.0, (7, 7), 2, False), (0.5, (3, 5), -1, True), (0.5, (2, 2), 0, False), (0.25, (4, 1), 5, True)],
)
def test_roi_align(scale, cells, ratio, aligned):
    class Align(nn.Module):
        def forward(self, x, rois):
            return torch.ops.torchvision.roi_align(x, rois, scale, *cells, ratio, aligned)

    def arguments(n, height, width, count):
        rois = torch.cat([torch.randint(0, n, (count, 1)).float(), make_boxes(count)], 1)
        return torch.randn(n, 3, height, width), rois

    torch.manual_seed(2)
    shapes = (
        {0: Dim("b", min=1, max=9), 2: Dim("h", min=1, max=99), 3: Dim("w", min=1, max=99)},
        {0: Dim("k", min=0, max=99)},
    )
    model = disc.compile(Align(), arguments(2, 12, 15, 4), dynamic_shapes=shapes)
    for sizes in ((2, 12, 15, 4), (1, 30, 30, 7), (3, 1, 1, 2), (1, 7, 40, 0), (2, 31, 17, 9)):
        given = arguments(*sizes)
        torch.testing.assert_close(model(*given), Align()(*given), rtol=1e-4, atol=1e-5)
    x, rois = arguments(1, 8, 8, 2)
    rois[1, 0] = 3.0
    with pytest.raises(IndexError):
        model(x, rois)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "offset_groups"), [(1, 1, 1, 1, 1), (2, 2, 2, 2, 4)]
)
def test_deformable_convolution(stride, padding, dilation, groups, offset_groups):
    class Deformed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 4 // groups, 3, 3))
            self.bias = nn.Parameter(torch.randn(6))
            self.moves = nn.Conv2d(4, 27 * offset_groups, 3, stride, padding, dilation)

        def forward(self, x):
            offset, mask = self.moves(x).split([18 * offset_groups, 9 * offset_groups], 1)
            sizes = stride, stride, padding, padding, dilation, dilation, groups, offset_groups
            return torch.ops.torchvision.deform_conv2d(x, self.weight, offset, mask.sigmoid(), self.bias, *sizes, True)

    torch.manual_seed(3)
    net = Deformed()
    dims = {0: Dim("b", min=1, max=9), 2: Dim("h", min=1, max=99), 3: Dim("w", min=1, max=99)}
    model = disc.compile(net, (torch.randn(2, 4, 9, 11),), dynamic_shapes=(dims,))
    for sizes in ((2, 9, 11), (1, 14, 6), (3, 5, 5), (1, 1, 2)):
        x = torch.randn(sizes[0], 4, *sizes[1:])
        with torch.no_grad():
            torch.testing.assert_close(model(x), net(x))


class Queries(nn.Module):
    """The end of a detector with queries: the best few of all classes, boxes in pixels, a threshold."""

    def forward(self, logits, boxes, size):
        scores, index = logits.sigmoid().flatten(1).topk(10, dim=1)
        labels, rows = index % logits.shape[2], index // logits.shape[2]
        centre, extent = boxes.split(2, -1)
        corners = torch.cat([centre - extent / 2, centre + extent / 2], -1)
        corners = corners.gather(1, rows[..., None].expand(-1, -1, 4))
        pixels = corners * size.flip(1).repeat(1, 2)[:, None].float()
        keep = scores > 0.6
        return scores[keep], labels[keep], pixels[keep]


def test_queries():
    torch.manual_seed(4)
    batch, count = Dim("b", min=0, max=16), Dim("q", min=10, max=400)

    def arguments(b, q):
        return torch.randn(b, q, 7), torch.rand(b, q, 4), torch.randint(100, 900, (b, 2))

    shapes = ({0: batch, 1: count}, {0: batch, 1: count}, {0: batch})
    model = disc.compile(Queries(), arguments(2, 20), dynamic_shapes=shapes)
    for sizes in ((2, 20), (1, 10), (5, 77), (0, 30), (16, 300)):
        given = arguments(*sizes)
        for result, expected in zip(model(*given), Queries()(*given), strict=True):
            torch.testing.assert_close(result, expected)


class Decoded(nn.Module):
    """Regressions of each class for boxes from several levels: the number of dims differs where there are none."""

    def forward(self, x, y):
        kept = [z[z[:, 0] > 0] for z in (x, y)]
        total = 0
        for z in kept:
            total += z.shape[0]
        deltas = torch.cat(kept) * 2
        if total > 0:
            deltas = deltas.reshape(total, -1, 2)
        return [part.flatten(1) for part in deltas.split([z.shape[0] for z in kept], 0)]


def test_boxes_of_another_rank_where_there_are_none():
    net = Decoded()
    shapes = {0: N}, {0: Dim("m", min=0, max=4096)}
    model = disc.compile(net, (torch.randn(5, 4), torch.randn(6, 4)), dynamic_shapes=shapes)
    for a, b in ((5, 6), (1, 40), (0, 9), (17, 0)):
        given = torch.randn(a, 4), torch.randn(b, 4).abs() * (1 if a < 9 else -1)
        given[0][:1].abs_()
        for result, expected in zip(model(*given), net(*given), strict=True):
            torch.testing.assert_close(result, expected)
    with pytest.raises(disc.ShapeError, match=r"deltas has 2 dims where it has no elements, and 3 dims elsewhere"):
        model(-torch.ones(3, 4), -torch.ones(2, 4))


class Anchored(nn.Module):
    def forward(self, x, y):
        total = 3 * x.shape[0] + y.shape[0]
        deltas = torch.cat([x.repeat(3, 1), y])
        if total > 0:
            deltas = deltas.reshape(total, -1, 2)
        return deltas.flatten(1).sum(1)


def test_anchors_of_another_rank_where_there_are_none():
    net = Anchored()
    dims = {0: Dim.AUTO}
    model = disc.compile(net, (torch.randn(5, 4), torch.randn(6, 4)), dynamic_shapes=(dims, dims))
    for a, b in ((5, 6), (1, 40), (0, 9), (17, 0), (1, 1)):
        given = torch.randn(a, 4), torch.randn(b, 4)
        torch.testing.assert_close(model(*given), net(*given))
    with pytest.raises(disc.ShapeError, match=r"deltas has 2 dims where it has no elements"):
        model(torch.ones(0, 4), torch.ones(0, 4))
